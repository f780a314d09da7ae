//! What a seed decides about networks with local ranges.

use fastrand::Rng;
use leasehold_core::grant::policy::Detection;

use super::{Chance, pick};

/// Networks with local ranges, the same on each LAN.
#[derive(Clone, Debug)]
pub(crate) struct Ranges {
    /// How many there are on a LAN. Their ranges overlap.
    pub(crate) networks: usize,
    /// How many containers live at the same time on a LAN.
    pub(crate) containers: usize,
    /// How many addresses each range has.
    pub(crate) size: u32,
    /// Whether they have a second set, of IPv6 addresses.
    pub(crate) both: bool,
    /// How often a file takes long.
    pub(crate) slow: Chance,
    /// Whether a stray host-local gives addresses too.
    pub(crate) strays: bool,
    /// How their addresses are probed for, which happens only where containers have interfaces by then.
    pub(crate) detection: Detection,
    /// Whether containers get the addresses of their predecessors.
    pub(crate) pods: bool,
}

impl Ranges {
    /// Draws them.
    pub(super) fn draw(rng: &mut Rng) -> Self {
        let slow = pick(rng, &[0, 0, 100_000]);
        let networks = 1 + rng.usize(..2);
        Self {
            networks,
            containers: 2 + rng.usize(..6),
            size: pick(rng, &[3, 5, 40]),
            both: rng.bool(),
            slow,
            // Where files are late, nobody can say who was first. A stray knows the files of its own network alone.
            strays: slow == 0 && networks == 1 && rng.bool(),
            detection: pick(
                rng,
                &[
                    Detection::Off,
                    Detection::Off,
                    Detection::Optimistic,
                    Detection::Strict,
                ],
            ),
            pods: rng.bool(),
        }
    }
}
