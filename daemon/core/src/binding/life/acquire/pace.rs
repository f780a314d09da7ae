//! How fast an acquisition goes, phase by phase, for the counts.

use super::Acquire;
use crate::binding::Cx;
use crate::counts::AddPhase;
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
}

impl Acquire {
    /// Counts the phases of an ADD that has its lease from a server.
    pub(super) fn count_phases(&self, cx: &mut Cx<'_>) {
        let Pace {
            offered,
            won,
            stored,
            ..
        } = self.pace;
        let (false, false, Some(won)) = (self.quest.adopts(), self.trusted, won) else {
            return;
        };
        let counts = &mut cx.out.counts;
        counts.phase(AddPhase::Queue, self.queued);
        offered
            .into_iter()
            .for_each(|at| counts.phase(AddPhase::Offer, at.saturating_since(self.since)));
        counts.phase(
            AddPhase::Ack,
            won.saturating_since(offered.unwrap_or(self.since)),
        );
        if let (Some(began), Some(ended)) = stored {
            counts.phase(AddPhase::Store, ended.saturating_since(began));
        }
    }
}
