//! Durations and their statistics.

use std::time::Duration;

/// How long each of many calls took, and how many failed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sample {
    durations: Vec<Duration>,
    /// What the calls that failed said.
    pub(crate) failures: Vec<String>,
}

impl Sample {
    /// Adds a call that succeeded.
    pub(crate) fn add(&mut self, took: Duration) {
        self.durations.push(took);
    }

    /// Adds another sample's calls.
    pub(crate) fn merge(&mut self, other: Self) {
        self.durations.extend(other.durations);
        self.failures.extend(other.failures);
    }

    /// Returns how many calls succeeded.
    pub(crate) fn len(&self) -> usize {
        self.durations.len()
    }

    /// Returns how many calls took longer than `limit`.
    pub(crate) fn longer_than(&self, limit: Duration) -> usize {
        self.durations.iter().filter(|took| **took > limit).count()
    }

    /// Returns the duration that `percent` of the calls did not exceed (nearest rank); zero if there are no calls.
    pub(crate) fn percentile(&self, percent: usize) -> Duration {
        let mut sorted = self.durations.clone();
        sorted.sort_unstable();
        let rank = (sorted.len() * percent).div_ceil(100);
        sorted
            .get(rank.saturating_sub(1))
            .copied()
            .unwrap_or_default()
    }
}
