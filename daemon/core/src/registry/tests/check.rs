//! CHECK while the daemon itself changes the interface.

use super::rig::*;

/// The lease is about to be renewed with another address.
fn changing(profile: Profile) -> Rig {
    let mut rig = Rig::new(8);
    rig.profile = profile;
    rig.bind_slowly();
    rig.run_until(1040.0);
    rig.give = OTHER;
    rig
}

#[test]
fn a_check_waits_for_the_store_to_write_another_lease() {
    let mut rig = changing(Profile::default());
    rig.disk = Disk::Slow;
    rig.run_until(1050.5);
    let check = rig.check(&[]);
    assert_eq!(
        rig.answers.get(&check),
        None,
        "it holds a lease all the time"
    );
    rig.disk_recovers();
    assert_eq!(rig.answers[&check], Answer::Checked);
}

#[test]
fn a_check_that_looked_before_a_change_looks_again() {
    let mut rig = changing(Profile::default());
    rig.hold_looks = true;
    let check = rig.check(&[]);
    rig.hold_looks = false;
    rig.run_until(1050.5);
    assert_eq!(rig.on_link(), [B]);
    rig.end_look();
    assert_eq!(rig.answers[&check], Answer::Checked);
}

#[test]
fn a_del_does_not_wait_for_what_a_check_waits_for() {
    let mut rig = changing(Profile::default());
    rig.hold_changes = true;
    rig.run_until(1050.5);
    let check = rig.check(&[]);
    assert_eq!(rig.answers.get(&check), None);
    let del = rig.del("a");
    assert_fails!(rig, check, Failure::NotOnLink { .. });
    assert_eq!(rig.answers[&del], Answer::Deleted);
}

#[test]
fn a_check_waits_no_longer_than_its_limit() {
    let mut rig = changing(Profile::default());
    rig.hold_changes = true;
    rig.run_until(1050.5);
    let check = rig.check(&[]);
    rig.run_for(20.5);
    let waited = Duration::from_secs(20);
    let waiting_for = "a change of the interface to end";
    assert_eq!(
        rig.answers[&check],
        Answer::Failed(Failure::TimedOut(waiting_for, waited))
    );
    rig.faults.push_back((0, LinkCause::TimedOut));
    rig.change_late();
    let check = rig.check(&[]);
    assert!(
        matches!(
            rig.answers[&check],
            Answer::Failed(Failure::NotOnLink { .. })
        ),
        "it is tried again later"
    );
    rig.run_for(5.0);
    let check = rig.check(&[]);
    assert_eq!(rig.answers[&check], Answer::Checked);
}

#[test]
fn a_check_does_not_wait_for_a_full_disk() {
    let mut rig = changing(Profile::from(Policy {
        on_change: OnChange::Apply,
        ..Policy::default()
    }));
    rig.disk = Disk::Full;
    rig.run_until(1050.5);
    let check = rig.check(&[]);
    rig.failure(check);
}
