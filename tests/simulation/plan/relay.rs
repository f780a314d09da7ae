//! What a seed decides about a relay that dies.

use std::time::Duration;

use super::Plan;

/// The first of the seeds in which the relay to the server dies. What is drawn for these changes nothing for earlier seeds.
pub(crate) const RELAYED: u64 = 2_000_000_000;

impl Plan {
    /// Gives these seeds a server behind a relay that dies and links that flap, and nothing else that may cost a lease.
    pub(super) fn with_dying_relay(self) -> Self {
        Self {
            relay_dies: true,
            off_link: true,
            flapping: 100_000,
            lease: 600,
            times: None,
            active: Duration::from_secs(1800),
            actors: self.actors.min(8),
            sharers: 1,
            servers: 1,
            ipvlan: false,
            rogue: None,
            deaf: false,
            relay: false,
            beside: false,
            extend_delay: Duration::ZERO,
            flag_only: false,
            partitions: None,
            squatters: Vec::new(),
            proxy: false,
            claimer: 0,
            elsewhere: 0,
            unruly: 0,
            orders: None,
            docker: false,
            wires: None,
            fallback: None,
            ..self
        }
    }
}
