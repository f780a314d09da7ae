//! What the store's thread has done, for others to read while it works.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use leasehold_core::effect::StoreCause;
use leasehold_core::time::brief;

/// A commit that takes longer is stuck.
const STUCK: Duration = Duration::from_secs(10);

/// How many commits there were, when the last one that succeeded was, and whether an ADD could be recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Commits {
    /// Those that succeeded.
    pub(crate) done: u64,
    /// Those that failed.
    pub(crate) failed: u64,
    /// How long all of them took together.
    pub(crate) took: Duration,
    /// When the last one succeeded.
    pub(crate) last: Option<SystemTime>,
    /// Why no ADD can be recorded, from a commit that failed until a trial has succeeded.
    pub(crate) fault: Option<Fault>,
}

/// Why no ADD can be recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    /// How the last commit failed.
    pub(crate) cause: StoreCause,
    /// Since when, and how many commits have failed since.
    pub(crate) since: SystemTime,
    pub(crate) failed: u64,
}

/// The numbers as the thread writes them. Readers need not see all of one commit at once.
#[derive(Clone, Debug, Default)]
pub(super) struct CommitCounts(Arc<Numbers>);

#[derive(Debug, Default)]
struct Numbers {
    done: AtomicU64,
    failed: AtomicU64,
    micros: AtomicU64,
    /// In milliseconds since 1970; 0: none yet.
    last: AtomicU64,
    fault: Mutex<Option<Fault>>,
    /// Since when a commit has been under way, in milliseconds since 1970; 0: none is.
    busy: AtomicU64,
}

impl CommitCounts {
    /// Counts a commit.
    pub(super) fn count(&self, succeeded: bool, took: Duration) {
        let Numbers {
            done,
            failed,
            micros,
            last,
            fault: _,
            busy: _,
        } = &*self.0;
        micros.fetch_add(took.as_micros() as u64, Ordering::Relaxed);
        match succeeded {
            true => {
                last.store(now(), Ordering::Relaxed);
                done.fetch_add(1, Ordering::Relaxed)
            }
            false => failed.fetch_add(1, Ordering::Relaxed),
        };
    }

    /// Records that a commit begins, or that it has ended.
    pub(super) fn is_busy(&self, busy: bool) {
        let since = if busy { now() } else { 0 };
        self.0.busy.store(since, Ordering::Relaxed);
    }

    /// Returns that no ADD can be recorded if a commit does not end.
    fn stuck(&self) -> Option<Fault> {
        let since = self.0.busy.load(Ordering::Relaxed);
        let took = Duration::from_millis(now().saturating_sub(since));
        (since > 0 && took >= STUCK).then(|| Fault {
            cause: StoreCause::Failed(format!(
                "the disk has not taken a write for {}",
                brief(took)
            )),
            since: UNIX_EPOCH + Duration::from_millis(since),
            failed: 1,
        })
    }

    /// Records that a commit failed: no ADD can be recorded until a trial succeeds.
    pub(super) fn fails(&self, cause: &StoreCause) {
        let mut fault = self.fault();
        let (since, failed) = fault.as_ref().map_or_else(
            || (SystemTime::now(), 0),
            |fault| (fault.since, fault.failed),
        );
        *fault = Some(Fault {
            cause: cause.clone(),
            since,
            failed: failed + 1,
        });
    }

    /// Records that a trial succeeded.
    pub(super) fn works(&self) {
        *self.fault() = None;
    }

    /// Returns whether the last commit failed, and no trial has succeeded since.
    pub(super) fn is_faulty(&self) -> bool {
        self.fault().is_some()
    }

    fn fault(&self) -> MutexGuard<'_, Option<Fault>> {
        self.0.fault.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the numbers.
    pub(super) fn read(&self) -> Commits {
        let Numbers {
            done,
            failed,
            micros,
            last,
            fault: _,
            busy: _,
        } = &*self.0;
        let last = last.load(Ordering::Relaxed);
        Commits {
            done: done.load(Ordering::Relaxed),
            failed: failed.load(Ordering::Relaxed),
            took: Duration::from_micros(micros.load(Ordering::Relaxed)),
            last: (last > 0).then(|| UNIX_EPOCH + Duration::from_millis(last)),
            fault: self.fault().clone().or_else(|| self.stuck()),
        }
    }
}

/// Returns the time in milliseconds since 1970.
fn now() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_millis() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_lasts_until_a_trial_succeeds() {
        let counts = CommitCounts::default();
        counts.fails(&StoreCause::Full);
        counts.count(true, Duration::ZERO);
        let (fault, failed) = (
            counts.read().fault.unwrap(),
            counts.fails(&StoreCause::Full),
        );
        assert_eq!((fault.cause, fault.failed), (StoreCause::Full, 1));
        let again = counts.read().fault.unwrap();
        assert_eq!((again.since, again.failed, failed), (fault.since, 2, ()));
        counts.works();
        assert_eq!(counts.read().fault, None);
    }

    #[test]
    fn a_write_that_does_not_end_is_a_fault() {
        let counts = CommitCounts::default();
        counts.0.busy.store(1, Ordering::Relaxed);
        let fault = counts.read().fault.unwrap();
        assert!(fault.cause.to_string().contains("has not taken a write"));
        counts.is_busy(false);
        assert_eq!(counts.read().fault, None);
    }
}
