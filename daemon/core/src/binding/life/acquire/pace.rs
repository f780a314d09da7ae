//! How fast an acquisition goes, phase by phase, for the counts.

use std::time::Duration;

use crate::counts::{AddPhase, Counts};
use crate::source::{Fate, Form};
use crate::time::Instant;

/// When each phase of an acquisition last ended.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pace {
    /// An offer was taken.
    offered: Option<Instant>,
    /// A server granted the lease.
    won: Option<Instant>,
    /// When the store was given the record, and when it had it.
    stored: (Option<Instant>, Option<Instant>),
}

impl Pace {
    /// Records which message of the client was answered.
    pub(super) fn goes_on(&mut self, settled: Option<(Form, Fate)>, now: Instant) {
        match settled {
            Some((Form::Discover, Fate::Answered)) => {
                (self.offered, self.won) = (Some(now), Some(now))
            }
            Some((_, Fate::Answered)) => self.won = Some(now),
            Some(_) | None => {}
        }
    }

    /// Records that the store was given the record.
    pub(super) fn writes(&mut self, now: Instant) {
        self.stored = (Some(now), None);
    }

    /// Records that the store has the record.
    pub(super) fn has_written(&mut self, now: Instant) {
        self.stored.1 = Some(now);
    }

    /// Counts the phases of an ADD that has its lease from a server. `queued`: how long it waited for its permit; `since`: when it
    /// had it.
    pub(super) fn count(&self, queued: Duration, since: Instant, counts: &mut Counts) {
        let Some(won) = self.won else { return };
        counts.phase(AddPhase::Queue, queued);
        if let Some(at) = self.offered {
            counts.phase(AddPhase::Offer, at.saturating_since(since));
        }
        let asked = self.offered.unwrap_or(since);
        counts.phase(AddPhase::Ack, won.saturating_since(asked));
        if let (Some(began), Some(ended)) = self.stored {
            counts.phase(AddPhase::Store, ended.saturating_since(began));
        }
    }
}
