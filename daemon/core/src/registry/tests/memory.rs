//! What a held lease costs in memory.

use std::mem::size_of;

use super::rig::*;
use crate::binding::{Hold, Life};
use crate::interface::Interfaces;

/// Returns how many hold the lease of the only binding.
fn sharers(rig: &Rig) -> usize {
    let binding = rig
        .reg
        .registry
        .tables
        .bindings
        .iter()
        .next()
        .expect("a binding");
    let Life::Held(hold) = &binding.life else {
        panic!("{:?}", binding.life)
    };
    Arc::strong_count(&hold.last)
}

#[test]
fn client_record_and_history_share_one_lease() {
    let mut rig = Rig::new(8);
    rig.add("a", 1, "a");
    assert_eq!(sharers(&rig), 3, "after the ADD");
    rig.run_until(1051.0);
    assert_eq!(sharers(&rig), 3, "after a renewal");
    rig.restart();
    assert_eq!(sharers(&rig), 3, "after a restart");
}

#[test]
fn what_every_held_lease_has_stays_small() {
    let parts = [
        size_of::<Binding>(),
        size_of::<Hold>(),
        size_of::<Lease>(),
        Interfaces::SIZE,
    ];
    assert!(parts.iter().sum::<usize>() <= 800, "{parts:?}");
}

#[test]
fn an_attachment_without_calls_keeps_no_room_for_them() {
    let mut rig = Rig::new(8);
    rig.add("a", 1, "a");
    assert_eq!(rig.reg.registry.slots.by_attachment.len(), 0);
}

#[test]
fn bindings_share_what_is_the_same() {
    let mut rig = Rig::new(8);
    rig.add("a", 1, "a");
    rig.give = Ipv4Addr::new(192, 0, 2, 51);
    rig.add("b", 2, "b");
    for when in ["after the ADDs", "after a restart"] {
        let bindings: Vec<_> = rig.reg.registry.tables.bindings.iter().collect();
        let [a, b] = bindings[..] else {
            panic!("{bindings:?}")
        };
        assert!(Arc::ptr_eq(&a.profile, &b.profile), "{when}");
        assert!(
            rig.reg
                .registry
                .tables
                .bindings
                .attachments()
                .any(|(known, _)| Arc::ptr_eq(known, &a.attachment)),
            "{when}"
        );
        rig.restart();
    }
}
