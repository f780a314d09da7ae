//! What remains of a lease, and of what was heard about it, if two things happen at once.

use std::net::Ipv4Addr;

use super::super::*;
use super::rig::*;
use crate::effect::{Adoptee, Call, Failure};
use crate::event::EventKind;
use crate::grant::policy::{Detection, OnChange, OnExpiry, Policy};
use crate::profile::Profile;
use crate::wire::Mac;
use crate::wire::frame::{Arp, ArpOp};

const A: &str = "192.0.2.50/24";
const FIRST: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 50);
const NEIGHBOUR: Mac = Mac([2, 0, 0, 0, 9, 9]);

fn rig(profile: Profile) -> Rig {
    let mut rig = Rig::new(8);
    rig.profile = profile;
    rig
}

impl Rig {
    /// A neighbour answers our probe, and nothing else.
    fn neighbour_answers(&mut self, address: Ipv4Addr) {
        let own = Mac([2, 0, 0, 0, 1, 1]);
        let reply = Arp::request(NEIGHBOUR, address, Ipv4Addr::UNSPECIFIED);
        self.hear(&Arp {
            op: ArpOp::Reply,
            target_mac: own,
            destination_mac: own,
            ..reply
        });
        self.run_until((self.at + Duration::from_secs(1)).as_secs_f64());
    }

    fn spoken(&self) -> Vec<u8> {
        self.sent.iter().map(|(kind, _)| *kind).collect()
    }

    fn has_event(&self, kind: EventKind) -> bool {
        self.store.events.iter().any(|event| event.kind == kind)
    }

    /// Ends all looks and changes that are held back.
    fn look_up(&mut self) {
        self.hold_looks = false;
        while let Some((op, outcome)) = self.looks.pop_front() {
            self.input(Input::Done { op, outcome });
        }
    }
}

#[test]
fn on_expiry_keep_takes_off_an_address_in_use_elsewhere() {
    let mut rig = rig(Profile::from(Policy {
        on_expiry: OnExpiry::Keep,
        ..Policy::default()
    }));
    rig.lease = 4000;
    rig.add("a", 1, "a");
    rig.configure(A);
    rig.run_until(1000.5);
    rig.neighbour_answers(FIRST);
    assert!(
        rig.has_event(EventKind::Declined) && rig.on_link().is_empty(),
        "{:?}",
        rig.on_link()
    );
    // The server gives the same one again, and nobody else uses it any more.
    rig.give = FIRST;
    rig.restart();
    rig.run_until(1030.0);
    assert_eq!(
        (rig.on_link(), rig.state("a")),
        (vec![A.to_owned()], vec!["BOUND"])
    );
    assert_eq!(rig.only_record().former, None);
}

#[test]
fn a_conflict_heard_during_a_slow_write_is_not_forgotten() {
    let mut rig = rig(Profile::default());
    rig.disk = Disk::Slow;
    let add = rig.add("a", 1, "a");
    rig.neighbour_answers(FIRST);
    rig.run_until(1010.0);
    rig.disk = Disk::Good;
    rig.flush();
    rig.run_until(1010.1);
    assert_eq!(rig.spoken(), [1, 3, 4, 1, 3]);
    assert!(matches!(&rig.answers[&add], Answer::Leased { tenures } if tenures[0].ip() != FIRST));
}

#[test]
fn a_conflict_heard_while_the_mtu_is_set_is_declined() {
    let mut rig = rig(Profile::from(Policy {
        detection: Detection::Strict,
        ..Policy::default()
    }));
    rig.options = vec![26, 2, 0x05, 0x78]; // 1400
    let add = rig.add("a", 1, "a");
    rig.hold_looks = true;
    rig.run_until(1007.5);
    assert_eq!(rig.looks.len(), 1, "the MTU");
    rig.neighbour_answers(FIRST);
    rig.look_up();
    rig.run_until(1020.0);
    assert_eq!(rig.spoken(), [1, 3, 4, 1, 3]);
    assert!(matches!(&rig.answers[&add], Answer::Leased { tenures } if tenures[0].ip() != FIRST));
}

#[test]
fn a_confirmed_adoption_outlives_its_time_limit() {
    let mut rig = rig(Profile::from(Policy {
        detection: Detection::Strict,
        ..Policy::default()
    }));
    rig.interface.put(A.parse().unwrap());
    let mut add = rig.call("a", 1, "a");
    add.timeout = Duration::from_secs(8);
    let adoptees = vec![Adoptee {
        add,
        address: A.parse().unwrap(),
        mac: None,
    }];
    rig.disk = Disk::Slow;
    rig.input(Input::Start {
        boot: BootId("b".into()),
        records: vec![],
        doors: vec![],
        spooled: vec![],
        adoptees,
    });
    rig.run_until(1015.0);
    rig.disk = Disk::Good;
    rig.flush();
    rig.run_until(1020.0);
    assert_eq!(
        (rig.state("a"), rig.not_adopted().len()),
        (vec!["BOUND"], 0)
    );
    assert!(
        !rig.spoken().contains(&7),
        "released under a container that runs: {:?}",
        rig.spoken()
    );
}

#[test]
fn changes_on_a_full_disk_do_not_forget_the_old_address() {
    let mut rig = rig(Profile::from(Policy {
        detection: Detection::Off,
        ..Policy::default()
    }));
    rig.add("a", 1, "a");
    rig.configure(A);
    rig.disk = Disk::Full;
    for n in 1..8_u8 {
        rig.give = Ipv4Addr::new(192, 0, 2, 77);
        rig.options = vec![3, 4, 192, 0, 2, n];
        rig.run_until(1000.0 + 50.5 * f64::from(n));
    }
    assert_eq!(rig.on_link(), [A], "a changed address waits");
    rig.disk = Disk::Good;
    rig.run_until(1420.0);
    assert_eq!(rig.on_link(), [format!("{}/24", rig.give)]);
}

#[test]
fn a_full_disk_keeps_no_refused_address_on() {
    let mut rig = rig(Profile::from(Policy {
        detection: Detection::Off,
        ..Policy::default()
    }));
    rig.lease = 4000;
    rig.add("a", 1, "a");
    rig.configure(A);
    rig.run_until(1070.0);
    rig.disk = Disk::Full;
    rig.hold_looks = true;
    rig.server = Server::Naks;
    rig.run_until(3000.01);
    assert_eq!(rig.looks.len(), 1);
    rig.server = Server::Up;
    rig.give = Ipv4Addr::new(192, 0, 2, 77);
    rig.run_until(3040.0);
    assert_eq!(rig.state("a"), ["BOUND"]);
    rig.look_up();
    assert!(rig.on_link().is_empty(), "{:?}", rig.on_link());
    let add = rig.add("a", 1, "a");
    assert!(
        !matches!(rig.answers.get(&add), Some(Answer::Leased { tenures }) if tenures[0].ip() == FIRST),
        "nobody may hear about what was refused"
    );
}

#[test]
fn an_address_not_put_on_yet_is_extended_by_init_reboot() {
    let mut rig = rig(Profile::from(Policy {
        detection: Detection::Off,
        ..Policy::default()
    }));
    rig.add("a", 1, "a");
    rig.configure(A);
    rig.give = Ipv4Addr::new(192, 0, 2, 77);
    rig.disk = Disk::Full;
    rig.run_until(1051.0);
    rig.sent.clear();
    rig.run_until(1101.5);
    assert_eq!(
        rig.sent,
        [(3, Ipv4Addr::UNSPECIFIED)],
        "no server can answer to an address that is not there"
    );
    rig.disk = Disk::Good;
    rig.run_until(1160.0);
    assert_eq!(rig.on_link(), ["192.0.2.77/24"]);
    rig.sent.clear();
    rig.run_until(1203.0);
    assert_eq!(rig.sent, [(3, Ipv4Addr::new(192, 0, 2, 77))]);
}

#[test]
fn the_removal_of_an_address_just_put_on_is_reported() {
    let mut rig = rig(Profile::default());
    rig.add("a", 1, "a");
    rig.configure(A);
    rig.give = Ipv4Addr::new(192, 0, 2, 77);
    rig.run_until(1050.5);
    rig.take_off("192.0.2.77/24");
    assert!(rig.has_event(EventKind::AddressRemoved));
}

#[test]
fn an_address_never_put_on_is_no_removal_after_a_restart() {
    let mut rig = rig(Profile::from(Policy {
        on_change: OnChange::Keep,
        ..Policy::default()
    }));
    rig.lease = 400;
    rig.add("a", 1, "a");
    rig.configure(A);
    rig.give = Ipv4Addr::new(192, 0, 2, 77);
    rig.run_until(1300.0);
    rig.restart();
    assert!(
        !rig.has_event(EventKind::AddressRemoved),
        "{:?}",
        rig.store.events
    );
    assert_eq!(rig.on_link(), [A]);
}

#[test]
fn an_address_put_on_after_a_conflict_comes_off() {
    for on_expiry in [OnExpiry::Remove, OnExpiry::Keep] {
        let mut rig = rig(Profile::from(Policy {
            on_expiry,
            ..Policy::default()
        }));
        rig.lease = 4000;
        rig.add("a", 1, "a");
        rig.run_until(1000.02);
        rig.neighbour_answers(FIRST);
        assert_eq!(rig.state("a"), ["INIT"]);
        rig.configure(A);
        assert!(
            rig.on_link().is_empty(),
            "{on_expiry:?}: {:?}",
            rig.on_link()
        );
        rig.run_until(1030.0);
        assert_eq!(
            (rig.on_link(), rig.state("a")),
            (vec!["192.0.2.51/24".to_owned()], vec!["BOUND"])
        );
    }
}

#[test]
fn an_unstored_extension_is_no_event_of_the_next_lease() {
    let mut rig = rig(Profile::from(Policy {
        detection: Detection::Off,
        ..Policy::default()
    }));
    rig.add("a", 1, "a");
    rig.configure(A);
    rig.disk = Disk::Full;
    rig.run_until(1051.0);
    rig.give = Ipv4Addr::new(192, 0, 2, 77);
    rig.run_until(1101.5);
    rig.del("a");
    rig.disk = Disk::Good;
    rig.del("a");
    rig.run_until(1110.0);
    let told: Vec<_> = rig.store.events.iter().map(|event| event.kind).collect();
    assert_eq!(told, [EventKind::Acquired, EventKind::Released]);
}

#[test]
fn a_lease_that_ended_during_its_probes_is_not_released() {
    let mut rig = rig(Profile::from(Policy {
        detection: Detection::Strict,
        ..Policy::default()
    }));
    rig.lease = 10;
    let mut call = rig.call("a", 1, "a");
    call.timeout = Duration::from_secs(3);
    let add = rig.request(Call::Add(call));
    // The host sleeps.
    rig.at = Duration::from_secs(1011);
    rig.run_until(1011.0);
    assert!(matches!(
        rig.answers[&add],
        Answer::Failed(Failure::TimedOut(..))
    ));
    assert_eq!(
        (rig.spoken(), rig.rows().len(), rig.open.len()),
        (vec![1, 3], 0, 0)
    );
}
