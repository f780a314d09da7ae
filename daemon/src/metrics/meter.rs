//! What the loop counts about its callers and itself.

use std::collections::BTreeMap;
use std::time::Duration;

use leasehold_core::counts::Histogram;
use leasehold_core::effect::Answer;

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Ending {
    /// It was answered with success.
    Done,
    /// It failed.
    Failed,
    /// Its caller hung up first.
    HungUp,
}

impl Ending {
    /// Returns how a call ends with this answer.
    pub(crate) fn of(answer: &Answer) -> Self {
        if matches!(answer, Answer::Failed(_)) {
            Self::Failed
        } else {
            Self::Done
        }
    }

    /// Returns its name, which is for programs and stays as it is.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Failed => "failed",
            Self::HungUp => "hung_up",
        }
    }
}

/// What the loop has counted since the start.
#[derive(Clone, Debug, Default)]
pub(crate) struct Meter {
    /// How long calls took, by their names and how they ended.
    pub(super) calls: BTreeMap<(&'static str, Ending), Histogram>,
    /// How late the loop was for its work of every second.
    pub(super) lag: Histogram,
}

impl Meter {
    pub(crate) fn call(&mut self, name: &'static str, ending: Ending, took: Duration) {
        self.calls.entry((name, ending)).or_default().observe(took);
    }

    pub(crate) fn lag(&mut self, late: Duration) {
        self.lag.observe(late);
    }
}
