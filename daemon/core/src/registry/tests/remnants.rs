//! What remains of a lease, and of what was heard about it, if two things happen at once.

use super::rig::*;

#[test]
fn a_confirmed_adoption_outlives_its_time_limit() {
    let mut rig = Rig::new(8);
    rig.profile.policy.detection = Detection::Strict;
    rig.interface.put(A.parse().unwrap());
    let mut add = rig.call("a", 1, "a");
    add.timeout = Duration::from_secs(8);
    rig.disk = Disk::Slow;
    rig.start("b", vec![], vec![rig.running_as(add)]);
    rig.run_until(1015.0);
    rig.disk_recovers();
    rig.run_until(1020.0);
    assert_eq!((rig.state("a"), rig.not_adopted().len()), ("BOUND", 0));
    assert_eq!(rig.sends(7), 0, "the container runs");
}

#[test]
fn an_address_not_put_on_yet_is_extended_by_init_reboot() {
    let mut rig = Rig::new(8);
    rig.profile.policy.detection = Detection::Off;
    rig.add("a", 1, "a");
    rig.configure(A);
    rig.give = OTHER;
    rig.disk = Disk::Full;
    rig.run_until(1051.0);
    rig.sent.clear();
    rig.run_until(1101.5);
    // No server can answer to an address that is not there.
    assert_eq!(rig.sent, [(3, Ipv4Addr::UNSPECIFIED)]);
    rig.disk = Disk::Good;
    rig.run_until(1160.0);
    assert_eq!(rig.on_link(), [B]);
    rig.sent.clear();
    rig.run_until(1203.0);
    assert_eq!(rig.sent, [(3, OTHER)]);
}

#[test]
fn a_regained_address_is_put_on_though_no_write_succeeds() {
    let mut rig = Rig::new(8);
    rig.profile.policy.detection = Detection::Off;
    rig.add("a", 1, "a");
    rig.configure(A);
    rig.server = Server::Naks;
    rig.disk = Disk::Slow;
    rig.run_until(1051.01);
    assert!(rig.on_link().is_empty());
    rig.server = Server::Up;
    rig.run_until(1065.0);
    // The store may be about to forget it.
    assert_eq!((rig.state("a"), rig.on_link().len()), ("BOUND", 0));
    while let Some((op, _)) = rig.slow.pop_front() {
        rig.end(op, Outcome::Persisted(Err(StoreCause::Full)));
    }
    assert_eq!(rig.on_link(), [A], "the store holds it as it was");
}
