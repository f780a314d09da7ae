//! What remains of a lease, and of what was heard about it, if two things happen at once.

use super::rig::*;

fn rig(profile: Profile) -> Rig {
    let mut rig = Rig::new(8);
    rig.profile = profile;
    rig
}

impl Rig {
    /// A neighbour answers our probe, and nothing else.
    fn neighbour_answers(&mut self, address: Ipv4Addr) {
        self.claim(NEIGHBOUR, address);
        self.run_for(1.0);
    }
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
    rig.disk = Disk::Slow;
    rig.start("b", vec![], vec![rig.running_as(add)]);
    rig.run_until(1015.0);
    rig.disk_recovers();
    rig.run_until(1020.0);
    assert_eq!(
        (rig.state("a"), rig.not_adopted().len()),
        (vec!["BOUND"], 0)
    );
    assert_eq!(rig.sends(7), 0, "the container runs");
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
    rig.give = OTHER;
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
    rig.give = OTHER;
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
    assert_eq!(rig.on_link(), [B]);
    rig.sent.clear();
    rig.run_until(1203.0);
    assert_eq!(rig.sent, [(3, OTHER)]);
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
    rig.give = OTHER;
    rig.run_until(1101.5);
    rig.del("a");
    rig.disk = Disk::Good;
    rig.del("a");
    rig.run_until(1110.0);
    assert_eq!(rig.events(), [EventKind::Acquired, EventKind::Released]);
}
