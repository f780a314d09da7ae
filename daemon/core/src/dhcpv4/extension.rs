//! The tries to extend a lease that is held: how far they are, and under which xid.
//!
//! A server may be late: dnsmasq pings each address that it offers for 3 s, and does nothing else meanwhile. All REQUESTs of
//! a phase bear one xid (RFC 2131 §4.1), so that an answer to any of them counts, and each is listened for longer than the
//! one before.

use std::net::Ipv4Addr;

use fastrand::Rng;

use super::resolve::Resolver;
use super::timing;
use crate::time::Instant;

/// The tries to extend one lease, from T1 on.
#[derive(Clone, Debug)]
pub(crate) struct Extension {
    /// How far the next try is, or the last one.
    pub(super) step: Step,
    /// The xid of the phase, and when its first REQUEST was sent. The lease counts from there: an ACK may answer any of
    /// them.
    pub(super) asked: Option<(u32, Instant)>,
    /// When the first REQUEST of both phases was sent: `secs` counts from there (RFC 2131 table 1).
    began: Option<Instant>,
    /// REQUESTs sent in both phases.
    sent: u32,
    /// The next try has its turn.
    pub(super) turn: bool,
}

/// One try to extend a lease.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// Begins at this instant.
    Due(Instant),
    /// The server's Ethernet address is looked for.
    Resolving(Resolver),
    /// REQUEST is out.
    Sent {
        /// Until when an answer is listened for.
        until: Instant,
        /// When the next try begins.
        next: Instant,
        /// In REBINDING: what another server than the lease's said, until then.
        nak: Option<Box<Nak>>,
    },
}

/// A NAK of another server than the one that granted the lease, which waits for that one's answer.
#[derive(Clone, Debug)]
pub(crate) struct Nak {
    pub(crate) server: Ipv4Addr,
    /// Its message (56), escaped.
    pub(crate) message: Option<String>,
}

impl Extension {
    /// Returns one whose first try begins at `at`.
    pub(super) fn due(at: Instant) -> Box<Self> {
        Box::new(Self { step: Step::Due(at), asked: None, began: None, sent: 0, turn: false })
    }

    /// Returns the same in REBINDING, where another server may answer: under another xid.
    pub(super) fn rebinding(&self, now: Instant) -> Box<Self> {
        Box::new(Self { step: Step::Due(now), asked: None, turn: false, ..*self })
    }

    /// Lets the next try begin at `at`, for which it needs another turn.
    pub(super) fn put_off(&mut self, at: Instant) {
        (self.step, self.turn) = (Step::Due(at), false);
    }

    /// Returns whether as many tries as there are before T1 have had their time to be answered.
    pub(super) fn was_in_vain(&self, now: Instant) -> bool {
        self.sent >= timing::MAX_EARLY && matches!(self.step, Step::Sent { until, .. } if now >= until)
    }

    /// Sends REQUEST, in the phase of a lease from one instant until another; `None`: before T1. Returns its xid and secs.
    pub(super) fn request(&mut self, now: Instant, phase: Option<(Instant, Instant)>, rng: &mut Rng) -> (u32, u16) {
        let (xid, _) = *self.asked.get_or_insert_with(|| (rng.u32(..), now));
        (self.sent, self.turn) = (self.sent + 1, false);
        let heard_out = now + timing::extension_window(self.sent);
        let next = phase.map_or(heard_out, |(from, until)| timing::next_extension(now, from, until));
        self.step = Step::Sent { until: next.min(heard_out), next, nak: None };
        (xid, timing::secs(*self.began.get_or_insert(now), now))
    }
}
