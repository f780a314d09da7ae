//! Conflict detection over a whole life: what is sent, what is heard, what a caller hears, what the store holds.

mod control;
mod declines;
mod pace;
mod short;
mod siblings;

use super::rig::*;

const SECOND: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 51);
const OTHER_MAC: Mac = Mac([2, 0, 0, 0, 9, 8]);
const PROBE: (Ipv4Addr, Ipv4Addr) = (Ipv4Addr::UNSPECIFIED, FIRST);
const ANNOUNCEMENT: (Ipv4Addr, Ipv4Addr) = (FIRST, FIRST);

fn rig(detection: Detection) -> Rig {
    let mut rig = Rig::new(8);
    rig.profile.policy.detection = detection;
    rig.lease = 4000;
    rig
}

impl Rig {
    fn appears(&mut self, address: Ipv4Addr) {
        self.kernel(KernelMessage::AddressAdded((Cookie(1), 2), address.into()));
    }

    /// A neighbour answers a probe, and nothing else.
    fn answer_probe(&mut self, address: Ipv4Addr) {
        self.claim(NEIGHBOUR, address);
        self.run_until(self.seconds() + 1.0);
    }

    fn seconds(&self) -> f64 {
        self.at.as_secs_f64()
    }
}

#[test]
fn an_address_in_use_is_declined_and_the_add_gets_another() {
    let mut rig = rig(Detection::Optimistic);
    rig.stations.insert(FIRST, NEIGHBOUR);
    let add = rig.add("a", 1, "a");
    rig.run_until(1000.999);
    assert_eq!(rig.kinds(), [1, 3], "the control is not over");
    rig.run_until(1001.099);
    assert_eq!(rig.kinds(), [1, 3, 4]);
    rig.run_until(1001.1);
    assert_eq!(rig.leased(add), SECOND, "quickly, as a caller waits");
    // DISCOVER, REQUEST, DECLINE, DISCOVER, REQUEST.
    assert_eq!(rig.kinds(), [1, 3, 4, 1, 3]);
    use EventKind::*;
    assert_eq!(rig.events(), [Conflict, Declined, Acquired]);
    assert_eq!(
        rig.store.events[1].cause,
        "02:00:00:00:09:09 uses the address"
    );
    assert_eq!((rig.store.records().len(), rig.state("a")), (1, "BOUND"));
}

/// The probes of a try that ended with a NAK say nothing about an address that is leased later.
#[test]
fn each_try_of_an_address_has_all_its_probes() {
    let mut rig = rig(Detection::Optimistic);
    rig.lease = 10;
    rig.add("a", 1, "a");
    rig.server = Server::Naks;
    rig.run_until(1040.0);
    assert!(rig.rows()[0].tenure.is_none() && rig.count(PROBE) > 1);
    (rig.server, rig.lease) = (Server::Up, 4000);
    rig.asked.clear();
    rig.run_until(1200.0);
    let tenure = rig.rows()[0].tenure.clone().and_then(|tenure| tenure.v4());
    assert_eq!(tenure.map(|address| address.addr()), Some(FIRST));
    assert_eq!(rig.count(PROBE), 3);
}

#[test]
fn an_address_is_announced_when_it_appears() {
    let mut rig = rig(Detection::Optimistic);
    rig.add("a", 1, "a");
    rig.appears(FIRST);
    rig.appears(SECOND);
    assert_eq!(rig.count(ANNOUNCEMENT), 1, "at once");
    rig.run_until(1001.99);
    assert_eq!(rig.count(ANNOUNCEMENT), 1);
    rig.run_until(1002.0);
    assert_eq!(rig.count(ANNOUNCEMENT), 2);
    rig.run_until(1020.0);
    assert_eq!((rig.count(ANNOUNCEMENT), rig.count(PROBE)), (2, 3));
    assert!(rig.open.is_empty());
}

#[test]
fn another_interface_of_the_container_is_no_other_station() {
    for detection in [Detection::Optimistic, Detection::Strict] {
        let mut rig = rig(detection);
        rig.wired.inside = vec![NEIGHBOUR];
        rig.stations.insert(FIRST, NEIGHBOUR);
        let add = rig.add("a", 1, "a");
        rig.run_until(1007.0);
        assert_eq!(rig.leased(add), FIRST, "{detection:?}");
        rig.appears(FIRST);
        let announced = rig.count(ANNOUNCEMENT);
        (0..3).for_each(|_| rig.hear(&Arp::request(NEIGHBOUR, FIRST, FIRST)));
        assert_eq!(rig.count(ANNOUNCEMENT), announced, "nothing is defended");
        rig.run_until(1030.0);
        assert_eq!((rig.kinds(), rig.state("a")), (vec![1, 3], "BOUND"));
        assert_eq!(rig.events(), [EventKind::Acquired]);
    }
}

/// A lease of 1000 s whose window is over, renewed at T1.
fn renewed(detection: Detection, is_on: bool) -> Rig {
    let mut rig = rig(detection);
    rig.lease = 1000;
    match is_on {
        true => rig.bind(),
        false => _ = rig.add("a", 1, "a"),
    };
    rig.run_until(1200.0);
    rig.asked.clear();
    rig.run_until(rig.t1() + 1.0);
    rig
}

#[test]
fn each_extension_probes_once_for_the_address() {
    for (detection, is_on, probes) in [
        (Detection::Optimistic, true, 1),
        (Detection::Strict, true, 1),
        (Detection::Off, true, 0),
        (Detection::Optimistic, false, 0),
    ] {
        let mut rig = renewed(detection, is_on);
        assert!(rig.events().contains(&EventKind::Renewed));
        rig.run_until(rig.seconds() + 60.0);
        let asked = (rig.count(PROBE), rig.count(ANNOUNCEMENT), rig.open.len());
        assert_eq!(asked, (probes, 0, 0), "{detection:?}, on: {is_on}");
    }
}

#[test]
fn a_station_that_claims_twice_is_believed() {
    let mut rig = renewed(Detection::Optimistic, true);
    rig.claim(NEIGHBOUR, FIRST);
    assert_eq!((rig.count(PROBE), rig.count(ANNOUNCEMENT)), (1, 1));
    rig.run_until(rig.seconds() + 5.1);
    assert_eq!((rig.count(PROBE), rig.state("a")), (2, "BOUND"));
    rig.claim(NEIGHBOUR, FIRST);
    rig.run_until(rig.seconds() + 1.5);
    assert_eq!(rig.kinds().last(), Some(&4));
    assert!(rig.events().contains(&EventKind::Conflict));
}

/// A container whose server answers only by broadcast. `answered`: somebody answers its ARP.
fn flagged(answered: bool) -> Rig {
    let mut rig = rig(Detection::Optimistic);
    rig.server = Server::AnswersFlag;
    if !answered {
        rig.stations.clear();
    }
    let add = rig.add("a", 1, "a");
    rig.run_until(1004.0);
    assert_eq!(rig.leased(add), FIRST);
    rig.appears(FIRST);
    rig.run_until(1020.0);
    rig
}

#[test]
fn a_container_that_only_broadcasts_reach_is_reported() {
    for answered in [false, true] {
        let mut rig = flagged(answered);
        let expected = match answered {
            false => vec![EventKind::Acquired, EventKind::Unreachable],
            true => vec![EventKind::Acquired],
        };
        assert_eq!(rig.events(), expected);
        assert_eq!(rig.state("a"), "BOUND", "it is kept");
        let now = rig.now();
        let kinds: Vec<_> = rig
            .reg
            .troubles(now)
            .iter()
            .map(|trouble| trouble.kind)
            .collect();
        assert_eq!(kinds.contains(&TroubleKind::Unreachable), !answered);
    }
}

#[test]
fn a_lease_that_was_in_use_gives_way_only_after_a_defence() {
    for (again, state) in [(9.999, "INIT"), (10.0, "BOUND")] {
        let mut rig = rig(Detection::Optimistic);
        rig.add("a", 1, "a");
        rig.configure(A);
        rig.run_until(1010.0);
        rig.tell_carrier(false);
        rig.run_until(1015.0);
        rig.asked.clear();
        rig.tell_carrier(true);
        while rig.count(PROBE) == 0 {
            rig.wake();
        }
        let began = rig.seconds();
        rig.claim(NEIGHBOUR, FIRST);
        // Its own, and one in defence.
        assert_eq!((rig.state("a"), rig.count(ANNOUNCEMENT)), ("BOUND", 2));
        rig.run_until(began + again);
        rig.claim(NEIGHBOUR, FIRST);
        rig.run_until(began + again + 1.0);
        let found = (rig.state("a"), rig.kinds().contains(&4));
        assert_eq!(found, (state, state == "INIT"), "{again}");
    }
}

#[test]
fn returned_carrier_announces_no_address_taken_off() {
    let mut rig = rig(Detection::Optimistic);
    rig.bind();
    rig.run_until(1100.0);
    rig.take_off(A);
    rig.tell_carrier(false);
    rig.run_until(1110.0);
    rig.asked.clear();
    rig.tell_carrier(true);
    rig.run_until(1140.0);
    let found = (rig.count(PROBE), rig.count(ANNOUNCEMENT));
    assert_eq!(found, (3, 0), "{:?}", rig.asked);
    assert_eq!(rig.state("a"), "BOUND");
}

#[test]
fn a_station_beside_the_containers_own_link_counts() {
    let mut rig = rig(Detection::Optimistic);
    rig.wired.inside = vec![OTHER_MAC];
    rig.add("a", 1, "a");
    rig.appears(FIRST);
    rig.run_until(1000.5);
    for by in [OTHER_MAC, NEIGHBOUR, OTHER_MAC, NEIGHBOUR] {
        rig.hear(&Arp::request(by, FIRST, FIRST));
    }
    rig.run_until(1002.0);
    assert_eq!(rig.kinds(), [1, 3, 4]);
    assert!(rig.causes(EventKind::Conflict)[0].starts_with(&NEIGHBOUR.to_string()));
}
