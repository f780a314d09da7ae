//! What a held lease costs in memory.

use std::mem::size_of;
use std::sync::Arc;

use super::super::*;
use super::rig::*;
use crate::binding::{Hold, Life};
use crate::dhcpv4::lease::Lease;
use crate::dhcpv4::profile::Profile;

/// Returns how many hold the lease of the only binding.
fn sharers(rig: &Rig) -> usize {
    let binding = rig.reg.bindings.values().next().expect("a binding");
    let Life::Held(hold) = &binding.life else { panic!("{:?}", binding.life) };
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
    let parts = [size_of::<Binding>(), size_of::<Hold>(), size_of::<Lease>(), size_of::<Profile>()];
    assert!(parts.iter().sum::<usize>() <= 1250, "{parts:?}");
}
