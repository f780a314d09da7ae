//! The tries to extend a held lease: how far they are, and under which xid.
//!
//! A server may be late: dnsmasq pings each address that it offers for 3 s, and does nothing else meanwhile. All REQUESTs of a
//! phase bear one xid (RFC 2131 §4.1), so that an answer to any of them counts, and the client listens longer after each than
//! after the last.

use std::net::Ipv4Addr;

use fastrand::Rng;

use super::timing;
use crate::question::Question;
use crate::time::Instant;

/// Requests to extend or confirm a lease that nobody answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InVain {
    /// How many there were.
    pub times: u32,
    /// When the first was sent; `None`: unknown.
    pub since: Option<Instant>,
}

/// The tries to extend one lease, from T1 on.
#[derive(Clone, Debug)]
pub(crate) struct Extension {
    /// Whether T2 has passed, and all servers are asked.
    pub(super) rebinds: bool,
    /// How far the next or the last try is.
    pub(super) attempt: Attempt,
    /// The xid of the phase, and when its first REQUEST was sent. The lease counts from there: an ACK may answer any of them.
    pub(super) asked: Option<(u32, Instant)>,
    /// When the first REQUEST of both phases was sent: `secs` counts from there (RFC 2131 table 1).
    began: Option<Instant>,
    /// REQUESTs sent in both phases.
    sent: u32,
    /// Whether the lease is still to be confirmed, which goes on if no server answers before T1.
    pub(super) unconfirmed: bool,
}

/// One attempt to extend a lease.
#[derive(Clone, Debug)]
pub(crate) enum Attempt {
    /// Begins at this instant.
    Due(Instant),
    /// The server's Ethernet address is being looked for.
    Resolving(Question),
    /// REQUEST is out.
    Sent {
        /// Until when the client listens for an answer.
        until: Instant,
        /// When the next try begins.
        next: Instant,
        /// In REBINDING: a NAK from a server other than the lease's, kept until the lease's own server has had its time.
        nak: Option<Box<Nak>>,
    },
}

/// A NAK from a server that did not grant the lease, kept until the one that did has had its time to answer.
#[derive(Clone, Debug)]
pub(crate) struct Nak {
    pub(crate) server: Ipv4Addr,
    /// Its message (56), escaped.
    pub(crate) message: Option<String>,
}

impl Extension {
    /// Returns an extension whose first try begins at `at`.
    pub(super) fn due(at: Instant) -> Box<Self> {
        Box::new(Self {
            rebinds: false,
            attempt: Attempt::Due(at),
            asked: None,
            began: None,
            sent: 0,
            unconfirmed: false,
        })
    }

    /// Goes on in REBINDING, under another xid, because another server may answer.
    pub(super) fn rebind(&mut self, at: Instant) {
        (self.rebinds, self.attempt, self.asked) = (true, Attempt::Due(at), None);
    }

    /// Puts the next try off until `at`.
    pub(super) fn put_off(&mut self, at: Instant) {
        self.attempt = Attempt::Due(at);
    }

    pub(super) fn is_out(&self) -> bool {
        matches!(self.attempt, Attempt::Sent { .. })
    }

    /// Returns how many REQUESTs had their time to be answered.
    pub(super) fn asked_in_vain(&self, now: Instant) -> Option<InVain> {
        let is_open = matches!(self.attempt, Attempt::Sent { until, .. } if now < until);
        let times = self.sent - u32::from(is_open);
        let since = self.began;
        (times > 0).then_some(InVain { times, since })
    }

    /// Returns whether all tries that may be made before T1 have had their time to be answered.
    pub(super) fn was_in_vain(&self, now: Instant) -> bool {
        self.sent >= timing::MAX_EARLY
            && matches!(self.attempt, Attempt::Sent { until, .. } if now >= until)
    }

    /// Returns when the try after one at `now` begins, in the phase of a lease from one instant until another.
    pub(super) fn next_after(&self, now: Instant, phase: (Instant, Instant)) -> Instant {
        timing::next_extension(now, phase, self.unconfirmed)
    }

    /// Sends REQUEST, in the phase of a lease from one instant until another; `None`: before T1. Returns its xid and secs.
    pub(super) fn request(
        &mut self,
        now: Instant,
        phase: Option<(Instant, Instant)>,
        rng: &mut Rng,
    ) -> (u32, u16) {
        let (xid, _) = *self.asked.get_or_insert_with(|| (rng.u32(..), now));
        self.sent += 1;
        let heard_out = now + timing::extension_window(self.sent);
        let next = phase.map_or(heard_out, |phase| self.next_after(now, phase));
        self.attempt = Attempt::Sent {
            until: next.min(heard_out),
            next,
            nak: None,
        };
        (xid, timing::secs(*self.began.get_or_insert(now), now))
    }
}
