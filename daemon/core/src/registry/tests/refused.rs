//! A DEL that the store refuses fails. Its lease goes back as soon as the store takes that, whether or not a DEL comes again.

use super::rig::*;
use crate::effect::{Failure, StoreCause};
use crate::link::KernelMessage;
use crate::record::RecordState;

const A: &str = "192.0.2.50/24";
const RELEASE: u8 = 7;

/// A lease whose DEL the store refused, though it is still on the interface.
fn refused() -> Rig {
    let mut rig = Rig::new(8);
    rig.bind_slowly();
    rig.disk = Disk::Full;
    let del = rig.del("a");
    assert_eq!(
        rig.answers[&del],
        Answer::Failed(Failure::Store(StoreCause::Full))
    );
    rig
}

fn is_over(rig: &mut Rig) -> bool {
    rig.rows().is_empty() && rig.store.records().is_empty()
}

#[test]
fn nothing_is_sent_before_the_store_has_it() {
    let mut rig = refused();
    rig.run_until(1060.0);
    assert_eq!(
        (rig.sends(RELEASE), rig.state("a"), rig.only_record().state),
        (0, vec!["RELEASING"], RecordState::Bound)
    );
    assert_eq!(rig.on_link(), [A], "what its main plugin put there");
}

#[test]
fn its_lease_goes_back_without_another_del() {
    let mut rig = refused();
    rig.disk = Disk::Good;
    rig.run_until(1030.0);
    assert_eq!(rig.sends(RELEASE), 1);
    assert!(is_over(&mut rig));
}

#[test]
fn the_next_del_waits_for_the_store() {
    let mut rig = refused();
    rig.disk = Disk::Slow;
    let del = rig.del("a");
    assert!(!rig.answers.contains_key(&del), "it is asked at once");
    rig.disk = Disk::Good;
    rig.flush();
    rig.run_until(1002.0);
    assert_eq!(
        (&rig.answers[&del], rig.sends(RELEASE)),
        (&Answer::Deleted, 1)
    );
    assert!(is_over(&mut rig));
}

#[test]
fn the_next_del_fails_too_while_the_store_refuses_it() {
    let mut rig = refused();
    let del = rig.del("a");
    assert_eq!(
        rig.answers[&del],
        Answer::Failed(Failure::Store(StoreCause::Full))
    );
}

#[test]
fn the_next_add_gets_the_address() {
    let mut rig = refused();
    rig.disk = Disk::Good;
    let add = rig.add("a", 1, "a");
    rig.run_until(1010.0);
    assert!(
        matches!(rig.answers[&add], Answer::Leased { .. }),
        "{:?}",
        rig.answers[&add]
    );
    assert_eq!((rig.state("a"), rig.sends(RELEASE)), (vec!["BOUND"], 0));
    assert_eq!(rig.only_record().lease.address.to_string(), A);
}

#[test]
fn the_next_daemon_holds_it_until_the_next_del() {
    let mut rig = refused();
    rig.restart();
    rig.disk = Disk::Good;
    assert_eq!(rig.state("a"), ["BOUND"]);
    let del = rig.del("a");
    rig.run_until(1010.0);
    assert_eq!(
        (&rig.answers[&del], rig.sends(RELEASE)),
        (&Answer::Deleted, 1)
    );
}

#[test]
fn a_lease_that_ends_before_its_del_is_stored_is_dropped() {
    let mut rig = refused();
    rig.run_until(1101.0);
    rig.disk = Disk::Good;
    rig.run_until(1140.0);
    assert_eq!(rig.sends(RELEASE), 0);
    assert!(is_over(&mut rig));
}

#[test]
fn a_namespace_that_dies_meanwhile_changes_nothing() {
    let mut rig = refused();
    rig.live.remove(&1);
    rig.input(Input::Kernel(KernelMessage::NetnsDied(Cookie(1))));
    rig.disk = Disk::Good;
    rig.run_until(1030.0);
    assert_eq!(rig.sends(RELEASE), 1);
    assert!(is_over(&mut rig));
}

#[test]
fn a_lease_that_is_left_to_end_goes_with_the_next_del() {
    let mut rig = Rig::new(8);
    rig.profile.release = false;
    rig.bind_slowly();
    rig.disk = Disk::Full;
    let dels = [rig.del("a"), rig.del("a")];
    for del in dels {
        assert_eq!(
            rig.answers[&del],
            Answer::Failed(Failure::Store(StoreCause::Full))
        );
    }
    rig.disk = Disk::Good;
    let del = rig.del("a");
    assert_eq!(
        (&rig.answers[&del], rig.sends(RELEASE)),
        (&Answer::Deleted, 0)
    );
    assert!(is_over(&mut rig));
}
