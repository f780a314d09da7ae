//! What the store's thread has done, for others to read while it works.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How many commits there were, and when the last one that succeeded was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Commits {
    /// Those that succeeded.
    pub(crate) done: u64,
    /// Those that failed.
    pub(crate) failed: u64,
    /// How long all of them took together.
    pub(crate) took: Duration,
    /// When the last one succeeded.
    pub(crate) last: Option<SystemTime>,
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
}

impl CommitCounts {
    /// Counts a commit.
    pub(super) fn count(&self, succeeded: bool, took: Duration) {
        let Numbers {
            done,
            failed,
            micros,
            last,
        } = &*self.0;
        micros.fetch_add(took.as_micros() as u64, Ordering::Relaxed);
        match succeeded {
            true => {
                let now = SystemTime::now()
                    .duration_since(UNIX_EPOCH)
                    .unwrap_or_default();
                last.store(now.as_millis() as u64, Ordering::Relaxed);
                done.fetch_add(1, Ordering::Relaxed)
            }
            false => failed.fetch_add(1, Ordering::Relaxed),
        };
    }

    /// Returns the numbers.
    pub(super) fn read(&self) -> Commits {
        let Numbers {
            done,
            failed,
            micros,
            last,
        } = &*self.0;
        let last = last.load(Ordering::Relaxed);
        Commits {
            done: done.load(Ordering::Relaxed),
            failed: failed.load(Ordering::Relaxed),
            took: Duration::from_micros(micros.load(Ordering::Relaxed)),
            last: (last > 0).then(|| UNIX_EPOCH + Duration::from_millis(last)),
        }
    }
}
