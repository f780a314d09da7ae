//! The pause before a failed action is tried again.

use std::time::Duration;

use fastrand::Rng;

/// The longest pause between two tries of most things: a minute later whatever stood in the way may be gone.
pub(crate) const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// The longest pause between two tries that cost much, such as a search of all namespaces, or that matter little: an MTU that cannot be
/// set.
pub(crate) const RARELY: Duration = Duration::from_secs(300);

/// How often something failed in a row. Each pause is twice as long as the last, from one second on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Backoff(u32);

impl Backoff {
    /// Returns a backoff whose first pause is two seconds.
    pub(crate) fn of_two() -> Self {
        Self(1)
    }

    pub(crate) fn fail(&mut self) {
        self.0 = self.0.saturating_add(1);
    }

    /// Returns whether it failed since it last succeeded.
    pub(crate) fn has_failed(self) -> bool {
        self.0 > 0
    }

    /// Returns the pause after the failures so far: `longest` at most, ±12.5 %.
    pub(crate) fn pause(self, longest: Duration, rng: &mut Rng) -> Duration {
        jittered(doubled(self.0.saturating_sub(1), longest), rng)
    }
}

/// Returns a second, doubled this many `times`, and at most `most`.
pub(crate) fn doubled(times: u32, most: Duration) -> Duration {
    Duration::from_secs(1 << times.min(16)).min(most)
}

/// Returns `base` ±12.5 %.
pub(crate) fn jittered(base: Duration, rng: &mut Rng) -> Duration {
    let micros = base.as_micros() as u64;
    Duration::from_micros(micros - micros / 8 + rng.u64(0..=micros / 4))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest_within_an_eighth() {
        let mut backoff = Backoff::default();
        let mut rng = Rng::with_seed(1);
        assert!(!backoff.has_failed());
        for seconds in [1, 2, 4, 8, 16, 32, 60, 60] {
            backoff.fail();
            let pause = backoff.pause(LONGEST_PAUSE, &mut rng);
            let exact = Duration::from_secs(seconds);
            assert!(
                pause >= exact * 7 / 8 && pause <= exact * 9 / 8,
                "{pause:?} after {backoff:?}"
            );
        }
        assert!(backoff.has_failed());
    }
}
