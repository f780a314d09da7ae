//! The eight states of RFC 2131 figure 5, each with what it needs. RENEWING and REBINDING need the same.

use std::net::Ipv4Addr;
use std::sync::Arc;

use fastrand::Rng;

use super::extension::{Attempt, Extension, Nak};
use super::lease::Lease;
use super::timing::{self, Timer};
use crate::names::named;
use crate::time::Instant;
use crate::wire::Mac;

/// A state of the client. What few leases have is boxed.
#[derive(Clone, Debug)]
pub(crate) enum State {
    /// No lease; discovery begins at `at`, asking for `wanted`.
    Init {
        at: Instant,
        wanted: Option<Ipv4Addr>,
    },
    /// DISCOVER is out. `second`: an offer that is not the best, and until when it waits for a better one.
    Selecting {
        tx: Transaction,
        wanted: Option<Ipv4Addr>,
        second: Option<(Box<Lease>, Instant)>,
    },
    /// An offer was taken, REQUEST is out. `taken`: another station uses the address, so an ACK is declined. `meanwhile`: what else
    /// came.
    Requesting {
        tx: Transaction,
        offer: Arc<Lease>,
        taken: Option<Mac>,
        meanwhile: Box<Meanwhile>,
    },
    /// An earlier lease will be confirmed, from `at` on.
    InitReboot {
        at: Instant,
        lease: Arc<Lease>,
        unanswered: Unanswered,
    },
    /// REQUEST in INIT-REBOOT form is out. `nak`: a NAK from a server other than the lease's.
    Rebooting {
        tx: Transaction,
        lease: Arc<Lease>,
        unanswered: Unanswered,
        nak: Option<Box<Nak>>,
    },
    /// A lease is held.
    Bound { lease: Arc<Lease> },
    /// T1 has passed (RENEWING), or T2 (REBINDING).
    Extending {
        lease: Arc<Lease>,
        extension: Box<Extension>,
    },
}

/// What else has arrived while a REQUEST is out.
#[derive(Clone, Debug)]
pub(crate) struct Meanwhile {
    /// The address that was wished for.
    pub(crate) wanted: Option<Ipv4Addr>,
    /// Another server's offer, in case the one that is being requested comes to nothing.
    pub(crate) spare: Option<Box<Lease>>,
    /// A NAK that came through a relay.
    pub(crate) nak: Option<Box<Nak>>,
}

named! {
    /// The name of a state (RFC 2131 figure 5).
    StateName {
        /// INIT.
        Init = "INIT",
        /// SELECTING.
        Selecting = "SELECTING",
        /// REQUESTING.
        Requesting = "REQUESTING",
        /// INIT-REBOOT.
        InitReboot = "INIT-REBOOT",
        /// REBOOTING.
        Rebooting = "REBOOTING",
        /// BOUND.
        Bound = "BOUND",
        /// RENEWING.
        Renewing = "RENEWING",
        /// REBINDING.
        Rebinding = "REBINDING",
    }
}

/// What a client does when nobody answers its INIT-REBOOT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unanswered {
    /// Goes back to INIT: a caller waits for an address that is certain.
    Discover,
    /// Uses the lease for the rest of its time (RFC 2131 §3.2 step 4), and goes on asking.
    Keep,
}

/// One message and its retransmissions, under one xid.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Transaction {
    pub(crate) xid: u32,
    /// When its first message was sent. A lease counts from then: an ACK may answer any of the messages.
    pub(crate) began: Instant,
    /// How many seconds earlier the client began to ask, under earlier transactions.
    pub(crate) late: u16,
    /// The secs field of its last message.
    pub(crate) secs: u16,
    /// Messages sent, not counting one that is repeated soon.
    pub(crate) sent: u32,
    /// Which of the waits in [`timing::SOON`] follows, from 1 on, if all messages so far are repeated soon; else 0.
    pub(crate) soon: u8,
    /// When the next is due.
    pub(crate) next: Instant,
    /// Until when the client listens for an answer.
    pub(crate) until: Instant,
}

impl Transaction {
    /// Returns the transaction of the DISCOVER that leaves now: the same, or its successor.
    pub(crate) fn going_on(self, now: Instant, rng: &mut Rng) -> Self {
        let late = self.late.saturating_add(timing::secs(self.began, now));
        match now >= self.began + timing::LONGEST_WINDOW {
            true => Self {
                xid: rng.u32(..),
                began: now,
                late,
                ..self
            },
            false => self,
        }
    }
}

/// From when until when a lease is extended in one way.
type Period = (Instant, Instant);

impl State {
    /// Returns the state's name.
    pub(crate) fn name(&self) -> StateName {
        match self {
            Self::Init { .. } => StateName::Init,
            Self::Selecting { .. } => StateName::Selecting,
            Self::Requesting { .. } => StateName::Requesting,
            Self::InitReboot { .. } => StateName::InitReboot,
            Self::Rebooting { .. } => StateName::Rebooting,
            Self::Bound { .. } => StateName::Bound,
            Self::Extending { extension, .. } if extension.rebinds => StateName::Rebinding,
            Self::Extending { .. } => StateName::Renewing,
        }
    }

    /// Returns the lease that the client may use now.
    pub(crate) fn lease(&self) -> Option<&Arc<Lease>> {
        match self {
            Self::Init { .. } | Self::Selecting { .. } | Self::Requesting { .. } => None,
            Self::InitReboot {
                lease, unanswered, ..
            }
            | Self::Rebooting {
                lease, unanswered, ..
            } => (*unanswered == Unanswered::Keep).then_some(lease),
            Self::Bound { lease } | Self::Extending { lease, .. } => Some(lease),
        }
    }

    /// Returns whether sockets are wanted at `now`, because something must be sent or may be answered.
    pub(crate) fn listens(&self, now: Instant) -> bool {
        match self {
            Self::Init { at, .. } | Self::InitReboot { at, .. } => now >= *at,
            Self::Selecting {
                second: Some(_), ..
            } => true,
            Self::Selecting { tx, .. }
            | Self::Requesting { tx, .. }
            | Self::Rebooting { tx, .. } => now < tx.until || now >= tx.next,
            Self::Bound { .. } => false,
            Self::Extending { extension, .. } => match &extension.attempt {
                Attempt::Due(at) => now >= *at,
                Attempt::Resolving(_) => true,
                Attempt::Sent { until, next, .. } => now < *until || now >= *next,
            },
        }
    }

    /// Returns the xid of the REQUEST that is out, the time from which its lease counts, and the lease or offer that it asks for.
    pub(crate) fn asked(&self) -> Option<(u32, Instant, &Arc<Lease>)> {
        match self {
            Self::Requesting { tx, offer, .. } => Some((tx.xid, tx.began, offer)),
            Self::Rebooting { tx, lease, .. } => Some((tx.xid, tx.began, lease)),
            Self::Extending { lease, extension } => {
                extension.asked.map(|(xid, start)| (xid, start, lease))
            }
            Self::Init { .. }
            | Self::Selecting { .. }
            | Self::InitReboot { .. }
            | Self::Bound { .. } => None,
        }
    }

    /// Returns the lease that is being extended, the tries, and when their phase begins and ends; no phase: T1 is still to come.
    pub(crate) fn extending(
        &mut self,
        now: Instant,
    ) -> Option<(&Arc<Lease>, &mut Extension, Option<Period>)> {
        let Self::Extending { lease, extension } = self else {
            return None;
        };
        let phase = match extension.rebinds {
            true => lease.t2().zip(lease.expires()),
            false => timing::renewing(lease, now),
        };
        Some((lease, extension, phase))
    }

    /// Gives the next message another xid: a lease counted from the first message under this one has ended. The server's
    /// leases have become shorter, or it was away longer than they last.
    pub(crate) fn forget_xid(&mut self) {
        if let Self::Extending { extension, .. } = self {
            extension.asked = None;
        }
    }

    /// Returns where the state keeps a NAK that may not be final, if it does.
    pub(crate) fn kept_nak(&mut self) -> Option<&mut Option<Box<Nak>>> {
        match self {
            Self::Requesting { meanwhile, .. } => Some(&mut meanwhile.nak),
            Self::Rebooting { nak, .. } => Some(nak),
            Self::Extending { extension, .. } => match &mut extension.attempt {
                Attempt::Sent { nak, .. } => Some(nak),
                Attempt::Due(_) | Attempt::Resolving(_) => None,
            },
            Self::Init { .. }
            | Self::Selecting { .. }
            | Self::InitReboot { .. }
            | Self::Bound { .. } => None,
        }
    }

    /// Returns whether a lease's server has had its time to answer by `now`: the window of the try. In REBOOTING that means
    /// all tries, because one lost frame must not cost a lease that is in use, or one try if a caller waits for any lease.
    pub(crate) fn has_heard_out(&self, now: Instant) -> bool {
        match self {
            Self::Requesting { tx, .. } => now >= tx.next,
            Self::Rebooting { tx, unanswered, .. } => {
                let tries = if *unanswered == Unanswered::Discover {
                    1
                } else {
                    timing::MAX_REBOOTS
                };
                now >= tx.next && tx.sent >= tries
            }
            Self::Extending { extension, .. } => {
                matches!(extension.attempt, Attempt::Sent { until, .. } if now >= until)
            }
            Self::Init { .. }
            | Self::Selecting { .. }
            | Self::InitReboot { .. }
            | Self::Bound { .. } => false,
        }
    }

    /// Begins discovery again at `at`, unless something else is going on. `declined`: it waits for a good reason.
    pub(crate) fn seek_anew(&mut self, at: Instant, declined: bool) -> bool {
        let wanted = match self {
            Self::Init { wanted, .. } if !declined => *wanted,
            Self::Selecting { wanted, .. } => *wanted,
            Self::Init { .. }
            | Self::Requesting { .. }
            | Self::InitReboot { .. }
            | Self::Rebooting { .. }
            | Self::Bound { .. }
            | Self::Extending { .. } => return false,
        };
        *self = Self::Init { at, wanted };
        true
    }

    /// Puts off what waits for sockets that cannot be had: until `retry`, or an extension until its next try, which is at T1 if
    /// it is early.
    pub(crate) fn put_off(&mut self, now: Instant, retry: Instant) {
        match self {
            Self::Init { at, .. } | Self::InitReboot { at, .. } => *at = retry,
            Self::Selecting { tx, second, .. } => {
                (tx.next, tx.until) = (retry, now);
                *second = None;
            }
            Self::Requesting { tx, .. } | Self::Rebooting { tx, .. } => {
                (tx.next, tx.until) = (retry, now)
            }
            Self::Bound { .. } => {}
            Self::Extending { .. } => match self.extending(now) {
                Some((_, extension, Some(phase))) => {
                    extension.put_off(extension.next_after(now, phase))
                }
                Some((lease, _, None)) => {
                    *self = Self::Bound {
                        lease: lease.clone(),
                    }
                }
                None => {}
            },
        }
    }

    /// Returns the next deadline. `open`: the sockets are open, so the time to close them counts; `opening`: what waits for
    /// the sockets has no deadline.
    pub(crate) fn deadline(&self, open: bool, opening: bool) -> Option<(Instant, Timer)> {
        let window = |until: Instant, next: Instant, timer| match (open, opening) {
            (true, _) if until < next => Some((until, Timer::ReceiveWindow)),
            (_, true) => None,
            _ => Some((next, timer)),
        };
        let due = |at: Instant, timer| (!opening && !open).then_some((at, timer));
        let lease = self.lease();
        let t1 = lease.and_then(|lease| lease.t1());
        let t1 = t1.map(|t1| (t1, Timer::Renew));
        let end = lease.and_then(|lease| lease.expires());
        let end = end.map(|end| (end, Timer::Expire));
        let (own, limit) = match self {
            Self::Init { at, .. } => (due(*at, Timer::Discover), None),
            Self::InitReboot { at, .. } => {
                let t1 = t1.filter(|(t1, _)| at < t1);
                (due(*at, Timer::Discover), t1.or(end))
            }
            // While an offer waits, nothing is sent again; and it keeps waiting until the sockets are open.
            Self::Selecting {
                second: Some((_, at)),
                ..
            } => ((!opening).then_some((*at, Timer::Choose)), None),
            Self::Selecting { tx, .. } | Self::Requesting { tx, .. } => {
                (window(tx.until, tx.next, Timer::Retransmit), None)
            }
            Self::Rebooting { tx, .. } => (window(tx.until, tx.next, Timer::Retransmit), end),
            Self::Bound { .. } => (None, t1),
            Self::Extending { extension, lease } => {
                let own = match &extension.attempt {
                    Attempt::Due(at) => due(*at, Timer::Retransmit),
                    Attempt::Resolving(resolver) => {
                        (!opening).then_some((resolver.deadline(true), Timer::Resolve))
                    }
                    Attempt::Sent { until, next, .. } => window(*until, *next, Timer::Retransmit),
                };
                let t2 = lease.t2().filter(|_| !extension.rebinds);
                (own, t2.map(|t2| (t2, Timer::Rebind)).or(end))
            }
        };
        // If two coincide, the lease's own deadline is the reason.
        [limit, own].into_iter().flatten().min_by_key(|(at, _)| *at)
    }
}
