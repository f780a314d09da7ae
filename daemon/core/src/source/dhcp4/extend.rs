//! Extending a held lease: RENEWING and REBINDING (RFC 2131 §4.4.5).

use std::sync::Arc;

use super::extension::{Attempt, Extension, InVain};
use super::lease::Lease;
use super::message::Hop;
use super::state::{State, Unanswered};
use super::timing::{self, LeasePhase};
use super::{Client, Loss, Output, SocketState};
use crate::question::{Question, QuestionAction};
use crate::rules::{Rule, cut};
use crate::time::Instant;
use crate::wire::Mac;

impl Client {
    /// Returns how often servers were asked to extend or confirm the held lease since one last did, if any had its time to answer; and
    /// since when, if that is known.
    pub fn unextended(&self, now: Instant) -> Option<InVain> {
        match &self.state {
            State::Renewing { extension, .. } | State::Rebinding { extension, .. } => {
                let asked = extension.asked_in_vain(now);
                let confirmed = self.confirmed_in_vain(Unanswered::Keep, None);
                match (asked, confirmed.filter(|_| extension.unconfirmed)) {
                    (Some(asked), Some(confirmed)) => Some(InVain {
                        times: asked.times + confirmed.times,
                        ..confirmed
                    }),
                    (asked, confirmed) => asked.or(confirmed),
                }
            }
            State::InitReboot { unanswered, .. } => self.confirmed_in_vain(*unanswered, None),
            State::Rebooting { tx, unanswered, .. } => {
                self.confirmed_in_vain(*unanswered, Some(tx.began))
            }
            State::Init { .. }
            | State::Selecting { .. }
            | State::Requesting { .. }
            | State::Bound { .. } => None,
        }
    }

    fn confirmed_in_vain(&self, unanswered: Unanswered, since: Option<Instant>) -> Option<InVain> {
        let times = self.tally().in_vain;
        (unanswered == Unanswered::Keep && times > 0).then_some(InVain { times, since })
    }

    /// Moves a held lease through T1, T2 and its end (RFC 2131 §4.4.5).
    pub(super) fn on_lease_clock(&mut self, now: Instant, out: &mut Output) {
        loop {
            let Some(lease) = self.state.lease() else {
                return;
            };
            let phase = timing::phase(lease, now);
            let lease = lease.clone();
            match (&mut self.state, phase) {
                (_, LeasePhase::Over) => {
                    let reason = self.tally().reason();
                    self.lose(now, lease, Loss::Expired { reason }, out);
                    return;
                }
                (
                    State::Bound { .. },
                    LeasePhase::Renewing { .. } | LeasePhase::Rebinding { .. },
                ) => {
                    self.state = State::Renewing {
                        lease,
                        extension: Extension::due(now),
                    };
                }
                // No answer to INIT-REBOOT keeps T1 and T2 from coming: a relay may be gone, though the server can be reached. What
                // begins to be confirmed after T1 is asked about in that form first.
                (
                    State::InitReboot {
                        at,
                        unanswered: Unanswered::Keep,
                        ..
                    },
                    LeasePhase::Renewing { .. } | LeasePhase::Rebinding { .. },
                ) if lease
                    .t1()
                    .is_some_and(|t1| *at <= t1 && !cut(Rule::RenewUnconfirmed)) =>
                {
                    self.extend_unconfirmed(now, lease, out)
                }
                // A message to all servers may leave over another link than a message to one server, and waits for its own turn.
                (State::Renewing { extension, .. }, LeasePhase::Rebinding { .. }) => {
                    let extension = extension.rebinding(now);
                    out.anew |= self.sockets != SocketState::Closed;
                    self.sockets = SocketState::Closed;
                    self.state = State::Rebinding { lease, extension };
                }
                // It was asked early, without an answer: now T1 comes.
                (State::Renewing { extension, .. }, LeasePhase::Held { .. })
                    if extension.was_in_vain(now) && !cut(Rule::EarlyInVain) =>
                {
                    let is_unconfirmed = extension.unconfirmed;
                    self.state = State::Bound { lease };
                    if is_unconfirmed {
                        out.anew |= self.sockets != SocketState::Closed;
                        self.confirm(now);
                    }
                }
                _ => return,
            }
        }
    }

    /// Extends a lease that no server has confirmed, past its T1.
    pub(super) fn extend_unconfirmed(&mut self, now: Instant, lease: Arc<Lease>, out: &mut Output) {
        let mut extension = Extension::due(now);
        extension.unconfirmed = true;
        out.anew |= self.sockets != SocketState::Closed;
        self.sockets = SocketState::Closed;
        self.state = State::Renewing { lease, extension };
    }

    /// Goes on after its sockets were closed. A try to extend the lease begins again, and answers to the last one still
    /// count. What is overdue waits a little.
    pub fn begin_again(&mut self, now: Instant) {
        self.sockets = SocketState::Closed;
        let Some((_, limit)) = self.state.extending() else {
            return;
        };
        let at = now + timing::overdue_delay(now, limit, &mut self.rng);
        if let Some(extension) = self.state.extension() {
            extension.put_off(at);
        }
    }

    /// Goes on with a renewal: finds the server's Ethernet address, then sends it REQUEST (RFC 2131 §4.4.5).
    pub(super) fn renew(&mut self, now: Instant, out: &mut Output) {
        let State::Renewing { lease, extension } = &mut self.state else {
            return;
        };
        if matches!(extension.attempt, Attempt::Sent { next, .. } if now < next) {
            return;
        }
        if !self.addressed {
            let (xid, secs) = extension.request(now, timing::renewing(lease, now), &mut self.rng);
            self.sender.asks();
            out.frames.push(self.sender.reboot(xid, secs, lease.ip()));
            return;
        }
        if let Attempt::Due(_) | Attempt::Sent { .. } = extension.attempt {
            let Some(hop) = lease.next_hop() else {
                return self.send_renewal(now, None, out);
            };
            extension.attempt =
                Attempt::Resolving(Question::new((self.sender.station, lease.ip()), hop, now));
        }
        let Attempt::Resolving(resolver) = &mut extension.attempt else {
            return;
        };
        match resolver.on_clock(now, true) {
            QuestionAction::Ask(frames) => out.frames.extend(frames),
            QuestionAction::Wait => {}
            QuestionAction::Over => self.send_renewal(now, None, out),
        }
    }

    /// Sends REQUEST to the server. Without an Ethernet address for it, the REQUEST goes to where the last ACK came from in the
    /// first half of the phase; then, since that may be out of date, to all: every server accepts an IP unicast in an Ethernet
    /// broadcast, though no router forwards one.
    pub(super) fn send_renewal(&mut self, now: Instant, found: Option<Mac>, out: &mut Output) {
        let State::Renewing { lease, extension } = &mut self.state else {
            return;
        };
        let phase = timing::renewing(lease, now);
        let early =
            phase.is_none_or(|(t1, t2)| now.saturating_since(t1) < t2.saturating_since(now));
        let mac = found.unwrap_or(if early || !lease.on_link() {
            lease.server_mac
        } else {
            Mac::BROADCAST
        });
        let (xid, secs) = extension.request(now, phase, &mut self.rng);
        self.sender.extends();
        out.frames.push(self.sender.renew(
            xid,
            secs,
            lease.ip(),
            Hop {
                server: lease.server,
                mac,
            },
        ));
    }

    /// Asks all servers (RFC 2131 §4.4.5).
    pub(super) fn rebind(&mut self, now: Instant, out: &mut Output) {
        let State::Rebinding { lease, extension } = &mut self.state else {
            return;
        };
        let (Some(t2), Some(end)) = (lease.t2(), lease.expires()) else {
            return;
        };
        if matches!(extension.attempt, Attempt::Sent { next, .. } if now < next) {
            return;
        }
        let (xid, secs) = extension.request(now, Some((t2, end)), &mut self.rng);
        out.frames.push(match self.addressed {
            true => {
                self.sender.extends();
                self.sender.rebind(xid, secs, lease.ip())
            }
            false => {
                self.sender.asks();
                self.sender.reboot(xid, secs, lease.ip())
            }
        });
    }
}
