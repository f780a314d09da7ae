//! What a seed decides about situations that few other seeds reach.

use std::time::Duration;

use leasehold_core::grant::policy::{Detection, OnChange, OnExpiry};

use super::{CrashPoint, EffectKind, Plan};

/// The first of the seeds with such a situation. What is drawn for these changes nothing for earlier seeds.
pub(crate) const RARE: u64 = 4_000_000_000;

/// The directory of namespaces that a daemon may not see although it sees those of another engine.
pub(crate) const HIDDEN: &str = "/run/hidden";

impl Plan {
    /// Gives each of these seeds one of these situations, and nothing else that may cost a lease.
    pub(super) fn with_rarity(self, seed: u64) -> Self {
        let calm = Self {
            relay_dies: false,
            off_link: false,
            flapping: 0,
            ..self.with_dying_relay()
        };
        let every = Some(calm.active / 8);
        let crash = CrashPoint {
            kind: EffectKind::Send,
            nth: 20,
            after: true,
        };
        match seed % 8 {
            // More containers than the pool has addresses: their ADDs are repeated without end. Now and then a server refuses those
            // that have a lease.
            0 | 4 => Self {
                actors: 24,
                lans: 1,
                permits: 2,
                pool: 6,
                lease: 60,
                storms: every,
                ..calm
            },
            // Containers take addresses that are kept for others, or have the Ethernet address of an earlier one, whose link the kernel
            // has yet to remove.
            1 | 5 => Self {
                grace: Some(if seed % 8 == 1 { 0 } else { 120 }),
                insists: true,
                lingers: true,
                unruly: 500_000,
                ..calm
            },
            // Main plugins put addresses on late: others are heard using these first, or a server refuses them.
            2 | 6 => Self {
                lease: 60,
                plugs_late: true,
                squatters: vec![(0, 0), (0, 2), (0, 4)],
                detection: Detection::Optimistic,
                storms: every,
                on_change: OnChange::Apply,
                on_expiry: OnExpiry::Remove,
                ..calm
            },
            // The host reboots after its wall clock was set.
            3 => Self {
                lease: 3600,
                active: Duration::from_secs(10_800),
                wall_jumps: every,
                reboots: 1_000_000,
                crashes: vec![crash; 3],
                ..calm
            },
            // Two engines have containers of one identity, and a daemon that starts again does not see one engine's namespaces.
            _ => Self {
                actors: 6,
                lans: 1,
                sharers: 2,
                hides: true,
                blindness: 1_000_000,
                unruly: 200_000,
                crashes: vec![crash; 4],
                ..calm
            },
        }
    }
}
