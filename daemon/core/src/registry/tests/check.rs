//! CHECK while the daemon itself changes the interface.

use std::net::Ipv4Addr;
use std::time::Duration;

use super::rig::*;
use crate::effect::{Call, Failure};
use crate::grant::policy::{OnChange, Policy};
use crate::link::LinkCause;
use crate::profile::Profile;

const B: &str = "192.0.2.77/24";

/// The lease is about to be renewed with another address.
fn changing(profile: Profile) -> Rig {
    let mut rig = Rig::new(8);
    rig.profile = profile;
    rig.bind_slowly();
    rig.run_until(1040.0);
    rig.give = Ipv4Addr::new(192, 0, 2, 77);
    rig
}

impl Rig {
    fn check(&mut self, expected: &[&str]) -> u64 {
        let expected = expected
            .iter()
            .map(|address| address.parse().unwrap())
            .collect();
        self.request(Call::Check {
            attachment: attachment("a"),
            expected,
        })
    }

    fn seconds_from_now(&mut self, seconds: f64) {
        self.run_for(seconds);
    }
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
    rig.disk = Disk::Good;
    rig.flush();
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
    let (op, outcome) = rig.looks.pop_front().unwrap();
    rig.end(op, outcome);
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
    assert!(matches!(
        rig.answers[&check],
        Answer::Failed(Failure::NotOnLink { .. })
    ));
    assert_eq!(rig.answers[&del], Answer::Deleted);
}

#[test]
fn a_check_waits_no_longer_than_its_limit() {
    let mut rig = changing(Profile::default());
    rig.hold_changes = true;
    rig.run_until(1050.5);
    let check = rig.check(&[]);
    rig.seconds_from_now(20.5);
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
    rig.seconds_from_now(5.0);
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
