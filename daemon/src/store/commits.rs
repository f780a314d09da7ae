//! What the store's thread has done, for others to read while it works.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

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

/// The counts as the thread writes them.
#[derive(Clone, Debug, Default)]
pub(super) struct CommitCounts(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    commits: Commits,
    /// Since when a commit has been under way.
    busy: Option<SystemTime>,
}

impl CommitCounts {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a commit.
    pub(super) fn count(&self, succeeded: bool, took: Duration) {
        let mut state = self.state();
        let commits = &mut state.commits;
        commits.took += took;
        match succeeded {
            true => {
                commits.last = Some(SystemTime::now());
                commits.done += 1;
            }
            false => commits.failed += 1,
        }
    }

    /// Records that a commit begins, or that it has ended.
    pub(super) fn is_busy(&self, busy: bool) {
        self.state().busy = busy.then(SystemTime::now);
    }

    /// Records that a commit failed: no ADD can be recorded until a trial succeeds.
    pub(super) fn fails(&self, cause: &StoreCause) {
        let mut state = self.state();
        let commits = &mut state.commits;
        let before = commits.fault.take();
        commits.fault = Some(Fault {
            cause: cause.clone(),
            since: before
                .as_ref()
                .map_or_else(SystemTime::now, |fault| fault.since),
            failed: before.map_or(0, |fault| fault.failed) + 1,
        });
    }

    /// Records that a trial succeeded.
    pub(super) fn works(&self) {
        self.state().commits.fault = None;
    }

    /// Returns whether the last commit failed, and no trial has succeeded since.
    pub(super) fn is_faulty(&self) -> bool {
        self.state().commits.fault.is_some()
    }

    /// Returns the counts. If a commit does not end, no ADD can be recorded either.
    pub(super) fn read(&self) -> Commits {
        let state = self.state();
        let mut commits = state.commits.clone();
        let stuck = state.busy.and_then(|since| {
            let took = since.elapsed().ok().filter(|took| *took >= STUCK)?;
            let cause = format!("the disk has not taken a write for {}", brief(took));
            Some(Fault {
                cause: StoreCause::Failed(cause),
                since,
                failed: 1,
            })
        });
        commits.fault = commits.fault.or(stuck);
        commits
    }
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
        counts.state().busy = Some(SystemTime::UNIX_EPOCH);
        let fault = counts.read().fault.unwrap();
        assert!(fault.cause.to_string().contains("has not taken a write"));
        counts.is_busy(false);
        assert_eq!(counts.read().fault, None);
    }
}
