//! The permit of an acquisition that no server answers: it is returned after two messages, and each further message takes
//! another.
//!
//! A server may know some clients of its LAN and ignore the rest, which would otherwise keep all permits as long as they ask.
//! Their sockets stay open, because a slow server may still answer.

use super::{Acquire, Stage};
use crate::binding::{Common, Cx, Next, Report, SAME};
use crate::time::Instant;

/// How many messages in a row go out under one permit, whether they are answered or not.
const UNDER_ONE_PERMIT: u32 = 2;

impl Acquire {
    /// Waits for another permit before the next message, if the previous ones had no answer.
    pub(super) fn queue_again(&mut self, common: &Common, cx: &mut Cx<'_>) {
        let asks = self.stage == Stage::Exchanging && self.queues.is_none();
        if asks && self.client.asked_in_vain(cx.now.boot) >= UNDER_ONE_PERMIT {
            self.queues = Some(cx.now.boot);
            self.client.waits();
            cx.out.report(common.id, Report::AsksAgain { waited_for: !self.adopts });
        }
    }

    /// Asks again: it has another permit.
    pub(super) fn ask_again(&mut self, common: &mut Common, cx: &mut Cx<'_>) -> Next {
        if !self.ends_queueing(cx.now.boot) {
            return SAME;
        }
        self.client.reopens();
        self.seek(common, cx)
    }

    /// Goes on without another permit if an answer has come meanwhile.
    pub(super) fn queue_no_more(&mut self, common: &Common, cx: &mut Cx<'_>) {
        if self.client.asked_in_vain(cx.now.boot) == 0 {
            self.leave_queue(common, cx);
        }
    }

    /// Goes on without another permit, if it waits for one.
    pub(super) fn leave_queue(&mut self, common: &Common, cx: &mut Cx<'_>) {
        if self.ends_queueing(cx.now.boot) {
            self.client.waits_no_more();
            cx.out.report(common.id, Report::ExchangeOver);
        }
    }

    /// Counts the time of its wait. Returns whether it waited.
    fn ends_queueing(&mut self, now: Instant) -> bool {
        let Some(began) = self.queues.take() else { return false };
        let waited = now.saturating_since(began);
        (self.queued, self.since) = (self.queued + waited, self.since + waited);
        true
    }
}
