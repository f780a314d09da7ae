//! Conflict detection over a whole life: what is sent, what is heard, what a caller hears, what the store holds.

mod control;
mod declines;
mod pace;
mod short;
mod siblings;

use std::net::Ipv4Addr;

use super::super::*;
use super::rig::*;
use crate::effect::{Call, Failure};
use crate::event::EventKind;
use crate::grant::policy::{Detection, Policy};
use crate::link::{Hears, KernelMessage, Link};
use crate::profile::Profile;
use crate::record::{BindingId, RecordState};
use crate::source::Wanted;
use crate::trouble::TroubleKind;
use crate::wire::Mac;
use crate::wire::frame::{Arp, ArpOp};

const FIRST: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 50);
const SECOND: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 51);
const NEIGHBOUR: Mac = Mac([2, 0, 0, 0, 9, 9]);
const OTHER: Mac = Mac([2, 0, 0, 0, 9, 8]);
const PROBE: (Ipv4Addr, Ipv4Addr) = (Ipv4Addr::UNSPECIFIED, FIRST);
const ANNOUNCEMENT: (Ipv4Addr, Ipv4Addr) = (FIRST, FIRST);

fn rig(detection: Detection) -> Rig {
    let mut rig = Rig::new(8);
    rig.profile = Profile::from(Policy {
        detection,
        ..Policy::default()
    });
    rig.lease = 4000;
    rig
}

impl Rig {
    fn leased(&self, add: u64) -> Ipv4Addr {
        match self.answers.get(&add) {
            Some(Answer::Leased { tenures }) => tenures[0].v4().unwrap().addr(),
            other => panic!("{other:?}"),
        }
    }

    fn messages(&self) -> Vec<u8> {
        self.sent.iter().map(|(kind, _)| *kind).collect()
    }

    fn count(&self, arp: (Ipv4Addr, Ipv4Addr)) -> usize {
        self.asked.iter().filter(|asked| **asked == arp).count()
    }

    fn kinds_of_events(&self) -> Vec<EventKind> {
        self.store.events.iter().map(|event| event.kind).collect()
    }

    fn appears(&mut self, address: Ipv4Addr) {
        self.input(Input::Kernel(KernelMessage::AddressAdded(
            (Cookie(1), 2),
            address.into(),
        )));
    }

    /// A neighbour answers a probe, and nothing else.
    fn answer_probe(&mut self, address: Ipv4Addr) {
        self.claim(NEIGHBOUR, address);
        self.run_until(self.seconds() + 1.0);
    }

    /// A station answers for an address.
    fn claim(&mut self, by: Mac, address: Ipv4Addr) {
        let own = Mac([2, 0, 0, 0, 1, 1]);
        let reply = Arp::request(by, address, Ipv4Addr::UNSPECIFIED);
        self.hear(&Arp {
            op: ArpOp::Reply,
            target_mac: own,
            destination_mac: own,
            ..reply
        });
    }

    fn seconds(&self) -> f64 {
        self.at.as_secs_f64()
    }
}

#[test]
fn the_first_probe_goes_with_the_request() {
    let mut rig = rig(Detection::Optimistic);
    let add = rig.add("a", 1, "a");
    assert_eq!(rig.leased(add), FIRST, "answered at once");
    assert_eq!(rig.asked, [PROBE]);
    assert!(matches!(
        rig.open.values().next().map(|want| want.arp),
        Some(Hears::About(FIRST))
    ));
    assert_eq!(rig.wake(), Why::Conflict);
    rig.run_until(1010.0);
    assert_eq!(rig.asked, [PROBE; 3]);
    assert_eq!(
        (rig.opened.len(), rig.open.len()),
        (1, 0),
        "over the sockets of the exchange, until the window is over"
    );
    assert_eq!(rig.kinds_of_events(), [EventKind::Acquired]);
}

#[test]
fn an_address_in_use_is_declined_and_the_add_gets_another() {
    let mut rig = rig(Detection::Optimistic);
    rig.stations.insert(FIRST, NEIGHBOUR);
    let add = rig.add("a", 1, "a");
    rig.run_until(1000.999);
    assert_eq!(rig.messages(), [1, 3], "the control is not over");
    rig.run_until(1001.099);
    assert_eq!(rig.messages(), [1, 3, 4]);
    rig.run_until(1001.1);
    assert_eq!(rig.leased(add), SECOND, "quickly, as a caller waits");
    assert_eq!(
        rig.messages(),
        [1, 3, 4, 1, 3],
        "DISCOVER, REQUEST, DECLINE, DISCOVER, REQUEST"
    );
    use EventKind::*;
    assert_eq!(rig.kinds_of_events(), [Conflict, Declined, Acquired]);
    assert_eq!(
        rig.store.events[1].cause,
        "02:00:00:00:09:09 uses the address"
    );
    assert_eq!(
        (rig.store.records().len(), rig.state("a")),
        (1, vec!["BOUND"])
    );
}

#[test]
fn an_add_that_insists_on_a_used_address_fails() {
    let mut rig = rig(Detection::Optimistic);
    rig.stations.insert(FIRST, NEIGHBOUR);
    let mut call = rig.call("a", 1, "a");
    call.wanted = Some(Wanted {
        address: FIRST,
        preferred: false,
    });
    let add = rig.request(Call::Add(call));
    rig.run_until(1001.0);
    assert_eq!(
        rig.answers[&add],
        Answer::Failed(Failure::Conflict {
            address: FIRST,
            by: NEIGHBOUR
        })
    );
    assert!(rig.rows().is_empty() && rig.store.records().is_empty() && rig.open.is_empty());
    assert!(
        !rig.messages().contains(&7),
        "what was declined is not released: {:?}",
        rig.sent
    );
}

#[test]
fn a_useless_lease_is_declined_once_the_store_deleted_it() {
    let mut rig = rig(Detection::Optimistic);
    rig.disk = Disk::Slow;
    let add = rig.add("a", 1, "a");
    rig.answer_probe(FIRST);
    assert_eq!(rig.messages(), [1, 3]);
    rig.flush();
    assert!(!rig.answers.contains_key(&add), "its address is another's");
    let killed_here = "a daemon that starts now has the record, so no server may be told";
    assert_eq!(rig.messages(), [1, 3], "{killed_here}");
    rig.flush();
    assert!(rig.store.records().is_empty());
    assert_eq!(rig.messages()[..3], [1, 3, 4]);
    rig.run_until(rig.seconds() + 0.1);
    assert_eq!(rig.messages(), [1, 3, 4, 1, 3]);
    rig.flush();
    assert_eq!(rig.leased(add), SECOND);
    assert_eq!(
        rig.store
            .all()
            .map(|record| record.lease.ip())
            .collect::<Vec<_>>(),
        [SECOND]
    );
}

#[test]
fn a_declined_lease_that_stays_in_the_store_goes_later() {
    let mut rig = rig(Detection::Optimistic);
    rig.disk = Disk::Slow;
    let add = rig.add("a", 1, "a");
    rig.answer_probe(FIRST);
    let (op, changes) = rig.slow.pop_front().expect("the record");
    rig.disk = Disk::Full;
    rig.written(op, changes);
    rig.run_until(1002.0);
    assert!(
        matches!(rig.answers[&add], Answer::Failed(Failure::Store(_))),
        "{:?}",
        rig.answers[&add]
    );
    assert_eq!(rig.store.records().len(), 1);
    rig.disk = Disk::Good;
    rig.run_until(1100.0);
    assert!(rig.store.records().is_empty() && rig.rows().is_empty() && rig.open.is_empty());
    assert_eq!(rig.messages()[..3], [1, 3, 4]);
    assert!(!rig.sent.contains(&(7, FIRST)), "declined, not released");
}

#[test]
fn a_conflict_after_the_answer_leads_to_another_lease() {
    let mut rig = rig(Detection::Optimistic);
    let add = rig.add("a", 1, "a");
    assert_eq!(rig.leased(add), FIRST);
    rig.appears(FIRST);
    rig.run_until(1000.5);
    rig.stations.insert(FIRST, NEIGHBOUR);
    rig.run_until(1003.0);
    assert_eq!(
        (rig.messages(), rig.state("a")),
        (vec![1, 3, 4], vec!["INIT"])
    );
    assert!(rig.open.is_empty(), "no sockets while it waits");
    assert!(
        rig.store
            .all()
            .all(|record| record.state == RecordState::Seeking)
    );
    let declined = rig.store.events.last().expect("events").wall;
    rig.run_until(1010.9);
    assert_eq!(
        rig.messages(),
        [1, 3, 4],
        "ten seconds of peace (RFC 2131 §3.1)"
    );
    rig.run_until(1014.0);
    assert_eq!(
        (rig.messages(), rig.state("a")),
        (vec![1, 3, 4, 1, 3], vec!["BOUND"])
    );
    let again = rig.store.events.last().expect("events");
    assert_eq!(again.wall.saturating_since(declined).as_secs(), 10);
    use EventKind::*;
    assert_eq!(rig.kinds_of_events()[..3], [Acquired, Conflict, Declined]);
    assert_eq!(
        rig.store
            .all()
            .map(|record| record.lease.ip())
            .collect::<Vec<_>>(),
        [SECOND]
    );
}

#[test]
fn a_background_lease_whose_address_is_in_use_is_declined() {
    let mut rig = rig(Detection::Optimistic);
    rig.lease = 10;
    rig.add("a", 1, "a");
    rig.server = Server::Silent;
    rig.run_until(1011.0);
    assert!(
        matches!(rig.state("a")[..], ["INIT" | "SELECTING"]),
        "{:?}",
        rig.state("a")
    );
    rig.stations.insert(FIRST, NEIGHBOUR);
    rig.server = Server::Up;
    rig.run_until(1020.0);
    assert!(rig.messages().ends_with(&[1, 3, 4]), "{:?}", rig.messages());
    rig.run_until(1035.0);
    assert_eq!(
        rig.rows()[0].tenure.as_ref().map(|tenure| tenure.ip()),
        Some(SECOND.into())
    );
}

/// The probes of a try that ended with a NAK say nothing about an address that is leased later.
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
fn an_address_is_announced_if_only_a_look_shows_it() {
    let mut rig = rig(Detection::Optimistic);
    rig.add("a", 1, "a");
    rig.interface
        .put("192.0.2.50/24".parse().expect("an address"));
    rig.input(Input::Kernel(KernelMessage::Missed));
    rig.run_until(1010.0);
    assert_eq!((rig.count(ANNOUNCEMENT), rig.count(PROBE)), (2, 3));
}

#[test]
fn an_address_is_defended_once_and_then_given_up() {
    let mut rig = rig(Detection::Optimistic);
    rig.add("a", 1, "a");
    rig.appears(FIRST);
    rig.run_until(1000.5);
    let claim = Arp::request(NEIGHBOUR, FIRST, FIRST);
    rig.hear(&claim);
    assert_eq!(
        (rig.count(ANNOUNCEMENT), rig.state("a")),
        (2, vec!["BOUND"])
    );
    rig.hear(&claim);
    rig.run_until(1001.5);
    assert_eq!(
        (rig.messages(), rig.state("a")),
        (vec![1, 3, 4], vec!["INIT"])
    );
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
        assert_eq!(
            (rig.messages(), rig.state("a")),
            (vec![1, 3], vec!["BOUND"])
        );
        assert_eq!(rig.kinds_of_events(), [EventKind::Acquired]);
    }
}

#[test]
fn a_station_beside_the_containers_own_link_counts() {
    let mut rig = rig(Detection::Optimistic);
    rig.wired.inside = vec![OTHER];
    rig.add("a", 1, "a");
    rig.appears(FIRST);
    rig.run_until(1000.5);
    for by in [OTHER, NEIGHBOUR, OTHER, NEIGHBOUR] {
        rig.hear(&Arp::request(by, FIRST, FIRST));
    }
    rig.run_until(1002.0);
    assert_eq!(rig.messages(), [1, 3, 4]);
    let conflict = rig
        .store
        .events
        .iter()
        .find(|event| event.kind == EventKind::Conflict);
    assert!(conflict.is_some_and(|event| event.cause.starts_with(&NEIGHBOUR.to_string())));
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
        assert!(rig.kinds_of_events().contains(&EventKind::Renewed));
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
    assert_eq!((rig.count(PROBE), rig.state("a")), (2, vec!["BOUND"]));
    rig.claim(NEIGHBOUR, FIRST);
    rig.run_until(rig.seconds() + 1.5);
    assert_eq!(rig.messages().last(), Some(&4));
    assert!(rig.kinds_of_events().contains(&EventKind::Conflict));
}

#[test]
fn who_gives_the_address_up_when_told_off_is_no_conflict() {
    let mut rig = renewed(Detection::Optimistic, true);
    rig.claim(NEIGHBOUR, FIRST);
    rig.run_until(rig.seconds() + 60.0);
    assert_eq!((rig.count(PROBE), rig.count(ANNOUNCEMENT)), (2, 1));
    assert_eq!((rig.state("a"), rig.open.len()), (vec!["BOUND"], 0));
    assert!(!rig.kinds_of_events().contains(&EventKind::Conflict));
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
        assert_eq!(rig.kinds_of_events(), expected);
        assert_eq!(rig.state("a"), ["BOUND"], "it is kept");
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
fn probes_of_switches_are_no_conflict() {
    let mut rig = rig(Detection::Optimistic);
    rig.add("a", 1, "a");
    rig.run_until(1000.5);
    rig.hear(&Arp::request(NEIGHBOUR, Ipv4Addr::UNSPECIFIED, FIRST));
    assert_eq!(rig.state("a"), ["BOUND"]);
}

#[test]
fn a_strict_add_waits_until_its_address_is_free() {
    let mut rig = rig(Detection::Strict);
    let add = rig.add("a", 1, "a");
    assert!(rig.store.records().is_empty() && rig.messages() == [1, 3]);
    rig.run_until(1003.99);
    assert!(!rig.answers.contains_key(&add));
    assert_eq!(rig.state("a"), ["BOUND"]);
    rig.run_until(1007.0);
    assert_eq!(rig.leased(add), FIRST);
    assert_eq!((rig.count(PROBE), rig.store.records().len()), (3, 1));
    rig.appears(FIRST);
    assert_eq!(rig.count(ANNOUNCEMENT), 1, "its window is still open");
    rig.run_until(1011.0);
    assert!(rig.open.is_empty());
}

#[test]
fn a_strict_add_declines_what_others_use_or_probe_for() {
    for what in ["answers our probe", "probes as we do"] {
        let mut rig = rig(Detection::Strict);
        let add = rig.add("a", 1, "a");
        if what == "answers our probe" {
            rig.stations.insert(FIRST, NEIGHBOUR);
        } else {
            rig.hear(&Arp::request(NEIGHBOUR, Ipv4Addr::UNSPECIFIED, FIRST));
        }
        rig.run_until(1014.0);
        assert_eq!(rig.leased(add), SECOND, "{what}");
        assert_eq!(rig.messages(), [1, 3, 4, 1, 3]);
        assert_eq!(rig.store.records().len(), 1);
    }
}

#[test]
fn a_strict_add_out_of_time_gives_its_lease_back() {
    let mut rig = rig(Detection::Strict);
    let mut call = rig.call("a", 1, "a");
    call.timeout = Duration::from_secs(3);
    let add = rig.request(Call::Add(call));
    rig.run_until(1003.0);
    let Answer::Failed(Failure::TimedOut(waiting_for, _)) = &rig.answers[&add] else {
        panic!()
    };
    assert!(waiting_for.contains("conflict detection"), "{waiting_for}");
    assert_eq!(
        (rig.messages(), rig.open.len(), rig.rows().len()),
        (vec![1, 3, 7], 0, 0)
    );
}

#[test]
fn without_detection_nothing_is_asked() {
    let mut rig = rig(Detection::Off);
    rig.stations.insert(FIRST, NEIGHBOUR);
    let add = rig.add("a", 1, "a");
    rig.appears(FIRST);
    rig.run_until(1020.0);
    assert_eq!(
        (rig.leased(add), rig.asked.len(), rig.open.len()),
        (FIRST, 0, 0)
    );
}

#[test]
fn a_restart_probes_for_nothing() {
    let mut rig = Rig::new(8);
    let records = vec![(BindingId(1), record("a", "b", 900.0))];
    rig.input(Input::Start {
        boot: BootId("b".into()),
        records,
        doors: vec![],
        spooled: vec![],
        adoptees: vec![],
    });
    rig.appears(FIRST);
    rig.run_until(1100.0);
    assert!(rig.opened.is_empty() && rig.asked.is_empty());
}

#[test]
fn a_lease_confirmed_after_a_carrier_loss_is_probed_for() {
    let mut rig = rig(Detection::Optimistic);
    rig.add("a", 1, "a");
    rig.appears(FIRST);
    rig.run_until(1010.0);
    rig.tell_carrier(false);
    rig.run_until(1015.0);
    rig.asked.clear();
    rig.tell_carrier(true);
    rig.run_until(1040.0);
    assert_eq!(
        (rig.count(PROBE), rig.count(ANNOUNCEMENT)),
        (3, 2),
        "{:?}",
        rig.asked
    );
    assert!(rig.open.is_empty());
}

#[test]
fn a_lease_that_was_in_use_gives_way_only_after_a_defence() {
    for (again, state) in [(9.999, "INIT"), (10.0, "BOUND")] {
        let mut rig = rig(Detection::Optimistic);
        rig.add("a", 1, "a");
        rig.configure("192.0.2.50/24");
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
        assert_eq!(
            (rig.state("a"), rig.count(ANNOUNCEMENT)),
            (vec!["BOUND"], 2),
            "its own, and one in defence"
        );
        rig.run_until(began + again);
        rig.claim(NEIGHBOUR, FIRST);
        rig.run_until(began + again + 1.0);
        assert_eq!(
            (rig.state("a"), rig.messages().contains(&4)),
            (vec![state], state == "INIT"),
            "{again}"
        );
    }
}

#[test]
fn returned_carrier_announces_no_address_taken_off() {
    let mut rig = rig(Detection::Optimistic);
    rig.bind();
    rig.run_until(1100.0);
    rig.take_off("192.0.2.50/24");
    rig.tell_carrier(false);
    rig.run_until(1110.0);
    rig.asked.clear();
    rig.tell_carrier(true);
    rig.run_until(1140.0);
    assert_eq!(
        (rig.count(PROBE), rig.count(ANNOUNCEMENT)),
        (3, 0),
        "{:?}",
        rig.asked
    );
    assert_eq!(rig.state("a"), ["BOUND"]);
}

#[test]
fn the_interface_of_the_holder_before_is_nobody_else() {
    let mut rig = rig(Detection::Optimistic);
    rig.add("old", 1, "a");
    rig.live.remove(&1);
    let dying = Mac([2, 0, 0, 0, 1, 1]);
    rig.stations.insert(FIRST, dying);
    let add = rig.add("new", 2, "a");
    assert_eq!(rig.leased(add), FIRST, "it is taken over");
    rig.run_until(1020.0);
    assert_eq!(rig.state("new"), ["BOUND"]);
    assert!(!rig.kinds_of_events().contains(&EventKind::Conflict));
}
