//! Addresses that come onto an interface while it is being changed.

use super::rig::*;

/// The lease was refused, and the change that takes its address off is under way.
fn refused() -> Rig {
    let mut rig = Rig::new(8);
    rig.bind();
    rig.server = Server::Naks;
    rig.hold_changes = true;
    rig.run_until(1050.01);
    assert_eq!(rig.changes.len(), 1);
    rig
}

#[test]
fn an_address_put_on_again_during_its_removal_comes_off() {
    let mut rig = refused();
    let (op, target, steps) = rig.changes.pop_front().unwrap();
    let outcome = rig.change(&target, steps);
    // A slow main plugin. The kernel's reports come before the daemon hears about its own change.
    rig.configure(A);
    rig.hold_changes = false;
    rig.end(op, outcome);
    rig.run_until(1055.0);
    assert!(rig.on_link().is_empty(), "{:?}", rig.on_link());
}

#[test]
fn repeated_additions_are_taken_off_with_growing_pauses() {
    let mut rig = refused();
    rig.server = Server::Silent;
    let mut changes = 0;
    while rig.at.as_secs() < 1350 {
        while let Some((op, target, steps)) = rig.changes.pop_front() {
            changes += 1;
            rig.change(&target, steps);
            rig.interface.put(A.parse().unwrap());
            let outcome = rig.change(&target, Vec::new());
            rig.end(op, outcome);
        }
        rig.run_for(0.5);
    }
    assert!(
        (5..15).contains(&changes),
        "{changes} changes in five minutes"
    );
}
