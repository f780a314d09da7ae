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
fn a_check_during_a_change_is_to_be_tried_again() {
    let changing_a = Answer::Failed(Failure::Changing(attachment("a")));
    let mut rig = changing(Profile::default());
    rig.disk = Disk::Slow;
    rig.run_until(1050.5);
    let check = rig.check(&[]);
    assert_eq!(rig.answers[&check], changing_a, "another lease is written");
    rig.hold_changes = true;
    rig.disk_recovers();
    let check = rig.check(&[]);
    assert_eq!(rig.answers[&check], changing_a, "the interface follows");
    rig.change_late();
    let check = rig.check(&[]);
    assert_eq!(rig.answers[&check], Answer::Checked);
}

#[test]
fn a_check_that_looked_before_a_change_fails() {
    let mut rig = changing(Profile::default());
    rig.hold_looks = true;
    let check = rig.check(&[]);
    rig.hold_looks = false;
    rig.run_until(1050.5);
    assert_eq!(rig.on_link(), [B]);
    rig.end_look();
    assert_eq!(
        rig.answers[&check],
        Answer::Failed(Failure::Changing(attachment("a")))
    );
}

#[test]
fn a_check_sees_a_change_that_failed() {
    let mut rig = changing(Profile::default());
    rig.hold_changes = true;
    rig.run_until(1050.5);
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
