//! A DEL that the store refuses fails. Its lease goes back as soon as the store takes that, whether or not a DEL comes again.

use super::rig::*;

const RELEASE: u8 = 7;

/// A lease whose DEL the store refused, though it is still on the interface.
fn refused() -> Rig {
    let mut rig = Rig::new(8);
    rig.bind_slowly();
    rig.disk = Disk::Full;
    let del = rig.del("a");
    assert_eq!(*rig.failure(del), Failure::Store(StoreCause::Full));
    rig
}

#[test]
fn the_next_del_fails_too_while_the_store_refuses_it() {
    let mut rig = refused();
    let del = rig.del("a");
    assert_eq!(*rig.failure(del), Failure::Store(StoreCause::Full));
}

#[test]
fn the_next_daemon_holds_it_until_the_next_del() {
    let mut rig = refused();
    rig.restart();
    rig.disk = Disk::Good;
    assert_eq!(rig.state("a"), "BOUND");
    let del = rig.del("a");
    rig.run_until(1010.0);
    let found = (&rig.answers[&del], rig.sends(RELEASE));
    assert_eq!(found, (&Answer::Deleted, 1));
}
