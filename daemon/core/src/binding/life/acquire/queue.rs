//! The permit of an acquisition that no server answers: it is returned after two messages, and each further message takes
//! another.
//!
//! A server may know some clients of its LAN and ignore the rest, which would otherwise keep all permits as long as they ask.
//! Their sockets stay open, because a slow server may still answer.

use std::time::Duration;

use super::{Acquire, Stage};
use crate::binding::{Common, Cx, Next, Report, SAME};
use crate::dhcpv4::Output;
use crate::dhcpv4::form::{Fate, Form};
use crate::link::Beside;
use crate::time::Instant;

/// How many messages in a row go out under one permit, whether they are answered or not.
const UNDER_ONE_PERMIT: u32 = 2;

/// The most that counts of the time that an offer takes: a client waits twice as long, and RFC 2131 §4.1 has every client wait 4 s.
const MOST_OF_OFFER: Duration = Duration::from_secs(2);

/// The same of an acknowledgement: a server that has made its offer may be gone, and after three REQUESTs another is asked.
const MOST_OF_ACK: Duration = Duration::from_secs(1);

impl Acquire {
    /// Waits for another permit before the next message, if the previous ones had no answer.
    pub(super) fn queue_again(&mut self, common: &Common, cx: &mut Cx<'_>) {
        let asks = self.stage == Stage::Exchanging && self.queues.is_none();
        if asks && self.client.asked_in_vain(cx.now.boot) >= UNDER_ONE_PERMIT {
            self.queues = Some(cx.now.boot);
            self.client.waits();
            cx.out.report(
                common.id,
                Report::AsksAgain {
                    waited_for: !self.adopts,
                },
            );
        }
    }

    /// Has the client wait longer where answers take long, if it is one of a crowd, which makes a server slow; but not while it has
    /// a lease that it would use without an answer.
    pub(super) fn expect_answers(&mut self, common: &Common, cx: &Cx<'_>) {
        if !self.queued.is_zero() && self.trusts.is_none() {
            let [offer, ack] = cx.conflicts.takes(&common.identity.lan, cx.now.boot);
            self.client
                .expect_after([offer.min(MOST_OF_OFFER), ack.min(MOST_OF_ACK)]);
        }
    }

    /// Records how long a server took for an answer to what was first asked at `began`. A server that does not hear the LAN's link
    /// answers the second message.
    pub(super) fn learn(
        &self,
        common: &Common,
        began: Option<Instant>,
        output: &Output,
        cx: &mut Cx<'_>,
    ) {
        if let (Some(began), Some((form, Fate::Answered))) = (began, output.settled)
            && self.beside != Beside::Now
            && let Some(took) = self.pace.took(began, cx.now.boot)
        {
            cx.conflicts.took(
                &common.identity.lan,
                form == Form::Discover,
                took,
                cx.now.boot,
            );
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
        let Some(began) = self.queues.take() else {
            return false;
        };
        let waited = now.saturating_since(began);
        (self.queued, self.since) = (self.queued + waited, self.since + waited);
        true
    }
}
