//! What a seed decides about neighbours that take leased addresses.

use leasehold_core::grant::policy::Detection;

use super::Plan;

/// The first of the seeds in which squatters come when their addresses are leased. What is drawn for these changes nothing for
/// earlier seeds.
pub(crate) const TAKEN: u64 = 3_000_000_000;

impl Plan {
    /// Gives these seeds squatters that come late, and nothing else that may cost a lease.
    pub(super) fn with_late_squatters(self) -> Self {
        Self {
            squatters: vec![(0, 0), (0, 2), (0, 4)],
            squatters_late: true,
            relay_dies: false,
            off_link: false,
            flapping: 0,
            lease: 120,
            detection: Detection::Optimistic,
            ..self.with_dying_relay()
        }
    }
}
