//! Keeping a lease: RENEWING and REBINDING (RFC 2131 §4.4.5), and INIT-REBOOT while it is used. And what a client gives up: an
//! abandoned acquisition, and an address that, as its caller reports, another station or another client of this host has.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use super::extension::{Attempt, Extension, InVain};
use super::lease::Lease;
use super::message::Hop;
use super::state::{State, Transaction, Unanswered};
use super::timing::{self, LeasePhase, RECEIVE_WINDOW};
use super::{Client, Loss, Output, Signal, SocketState};
use crate::question::{Question, QuestionAction};
use crate::rules::{Rule, cut};
use crate::time::Instant;
use crate::wire::Mac;

/// A lease that its server granted or extended this recently is not extended again.
pub(crate) const RECENT: Duration = Duration::from_secs(10);

impl Client {
    /// Asks soon whether the lease is still this client's, over other sockets. Until a server answers, the lease is used (RFC
    /// 2131 §3.2) and the question repeated: a switch port may not forward yet, and a server may be away. Only the clock ends
    /// the lease. A lease that no server granted cannot be confirmed. Returns whether it asks; if so, the sockets should be
    /// closed.
    pub fn confirm(&mut self, now: Instant) -> bool {
        let may = |lease: &&Arc<Lease>| lease.source.is_asked() && !lease.expired(now);
        let Some(lease) = self.state.lease().filter(may).cloned() else {
            return false;
        };
        let at = now + timing::overdue_delay(now, lease.expires(), &mut self.rng);
        (self.sockets, self.tally) = (SocketState::Closed, None);
        self.state = State::InitReboot {
            at,
            lease,
            unanswered: Unanswered::Keep,
        };
        true
    }

    /// Uses this lease although no server answers (RFC 2131 §3.2), and keeps asking for it over other sockets.
    pub fn trust(&mut self, lease: Arc<Lease>, now: Instant) {
        let at = now + timing::acquisition_wait(3, false, &mut self.rng);
        (self.sockets, self.waited_for, self.tally, self.insists) =
            (SocketState::Closed, false, None, None);
        self.state = State::InitReboot {
            at,
            lease,
            unanswered: Unanswered::Keep,
        };
    }

    /// Holds a lease that no server granted. The sockets should be closed.
    pub fn hold(&mut self, lease: Arc<Lease>) {
        (self.sockets, self.tally, self.insists, self.asked) =
            (SocketState::Closed, None, None, None);
        self.state = State::Bound { lease };
    }

    /// Returns whether the lease is used although no server has confirmed it yet.
    pub fn is_unconfirmed(&self) -> bool {
        match &self.state {
            State::Extending { extension, .. } => extension.unconfirmed,
            state => state.lease().is_some() && self.acquires(),
        }
    }

    /// Returns how often servers were asked to extend or confirm the held lease since one last did, if any had its time to answer; and
    /// since when, if that is known.
    pub fn unextended(&self, now: Instant) -> Option<InVain> {
        match &self.state {
            State::Extending { extension, .. } => {
                let confirmed = self.confirmed_in_vain(Unanswered::Keep, None);
                let confirmed = confirmed.filter(|_| extension.unconfirmed);
                match (extension.asked_in_vain(now), confirmed) {
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
                (State::Bound { .. }, LeasePhase::Renewing | LeasePhase::Rebinding) => {
                    self.state = State::Extending {
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
                    LeasePhase::Renewing | LeasePhase::Rebinding,
                ) if lease
                    .t1()
                    .is_some_and(|t1| *at <= t1 && !cut(Rule::RenewUnconfirmed)) =>
                {
                    self.extend_unconfirmed(now, lease, out)
                }
                // A message to all servers may leave over another link than a message to one server, and waits for its own turn.
                (State::Extending { extension, .. }, LeasePhase::Rebinding)
                    if !extension.rebinds =>
                {
                    extension.rebind(now);
                    out.anew |= self.sockets != SocketState::Closed;
                    self.sockets = SocketState::Closed;
                }
                // It was asked early, without an answer: now T1 comes.
                (State::Extending { extension, .. }, LeasePhase::Held)
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
        self.state = State::Extending { lease, extension };
    }

    /// Goes on after its sockets were closed. A try to extend the lease begins again, and answers to the last one still
    /// count. What is overdue waits a little.
    pub fn begin_again(&mut self, now: Instant) {
        self.sockets = SocketState::Closed;
        if let Some((_, extension, phase)) = self.state.extending(now) {
            let limit = phase.map(|(_, end)| end);
            extension.put_off(now + timing::overdue_delay(now, limit, &mut self.rng));
        }
    }

    /// Goes on with an extension (RFC 2131 §4.4.5). RENEWING finds the server's Ethernet address, then sends it REQUEST. REBINDING
    /// asks all servers.
    pub(super) fn extend(&mut self, now: Instant, out: &mut Output) {
        let asks_all = self.broadcasts();
        let Some((lease, extension, phase)) = self.state.extending(now) else {
            return;
        };
        if matches!(extension.attempt, Attempt::Sent { next, .. } if now < next) {
            return;
        }
        if asks_all {
            let (xid, secs) = extension.request(now, phase, &mut self.rng);
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
        let Some((lease, extension, phase)) = self.state.extending(now) else {
            return;
        };
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

    /// Takes no address but this one, until there is a lease. No server is told to grant one without asking.
    pub fn insist(&mut self, address: Ipv4Addr) {
        self.insists = Some(address);
        if self.sender.profile.rapid_commit {
            Arc::make_mut(&mut self.sender.profile).rapid_commit = false;
        }
    }

    /// Abandons an acquisition. Returns the RELEASE that undoes it, if a server was asked to commit an address; it must be sent
    /// on the same sockets at once.
    pub fn abort(&mut self, now: Instant) -> Option<Vec<u8>> {
        let lease = self.owed(now)?;
        let leased = lease.ip();
        let hop = Hop {
            server: lease.server,
            mac: lease.server_mac,
        };
        Some(self.sender.release(self.rng.u32(..), leased, hop))
    }

    /// Does the same if another station is known to use that address: returns its DECLINE. A RELEASE would tell the server that
    /// the address is free for others.
    pub fn abort_in_conflict(&mut self, now: Instant) -> Option<Vec<u8>> {
        let lease = self.owed(now)?;
        let address = lease.ip();
        let server = lease.server;
        self.asked = None;
        Some(self.sender.decline(self.rng.u32(..), address, server))
    }

    /// Silently gives up what a server offers, or has just granted, and sends DISCOVER after a pause. During the pause, another
    /// server's offer counts.
    pub fn refuse(&mut self, now: Instant, pause: Duration) -> Output {
        let next = now + pause;
        let wanted = self.insists;
        self.state = if let State::Requesting { tx, meanwhile, .. } = &mut self.state {
            // After the pause another transaction begins; until then offers to this one count.
            let tx = Transaction {
                next,
                until: next.min(now + RECEIVE_WINDOW),
                sent: 0,
                soon: 0,
                ..*tx
            };
            let spare = meanwhile.spare.take();
            let second = spare.map(|spare| (spare, now + timing::CHOICE));
            State::Selecting { tx, wanted, second }
        } else {
            State::Init { at: next, wanted }
        };
        self.asked = None;
        self.count().requested = None;
        self.handle(now, Signal::Clock)
    }

    /// Returns the pause before the next DISCOVER when no caller waits.
    pub fn pause(&mut self) -> Duration {
        let sent = self.tally().discovers.max(1);
        timing::acquisition_wait(sent, self.waited_for, &mut self.rng)
    }

    /// Extends the lease now, even before T1 or if it never ends: its server seems to have forgotten it, and RENEW says who has
    /// its address (RFC 2131 §4.3.2: servers may believe that, and need not answer INIT-REBOOT). Does nothing if the lease was
    /// extended a moment ago. Without an answer it tries a few more times, since nothing else may tell the server for a long
    /// time.
    pub fn renew_early(&mut self, now: Instant) {
        match &mut self.state {
            State::Bound { lease }
            | State::InitReboot {
                lease,
                unanswered: Unanswered::Keep,
                ..
            } if lease.source.is_asked() && now.saturating_since(lease.start) >= RECENT => {
                let lease = lease.clone();
                let mut extension = Extension::due(now);
                extension.unconfirmed = self.is_unconfirmed();
                self.state = State::Extending { lease, extension };
            }
            State::Extending { extension, .. } => {
                match extension.attempt {
                    Attempt::Sent { until, .. } if now >= until => extension.put_off(now),
                    // There were no sockets for the last try.
                    Attempt::Due(at) if at > now => extension.put_off(now),
                    Attempt::Due(_) | Attempt::Resolving(_) | Attempt::Sent { .. } => {}
                }
            }
            State::Init { .. }
            | State::Selecting { .. }
            | State::Requesting { .. }
            | State::InitReboot { .. }
            | State::Rebooting { .. }
            | State::Bound { .. } => {}
        }
    }

    /// Handles another station's use of the address. An address being requested is declined when it is granted (RFC 2131 figure
    /// 5), a held one at once.
    pub(super) fn on_conflict(&mut self, now: Instant, by: Mac, out: &mut Output) {
        if let State::Requesting { taken, .. } = &mut self.state {
            *taken = Some(by);
        }
        if let Some(lease) = self.state.lease().cloned() {
            self.decline(now, lease, by, out);
        }
    }

    /// Refuses an address that was granted, and goes back to INIT for a pause, which grows with each DECLINE in a row.
    pub(super) fn decline(&mut self, now: Instant, lease: Arc<Lease>, by: Mac, out: &mut Output) {
        let address = lease.ip();
        let server = lease.server;
        if lease.source.is_asked() {
            out.frames
                .push(self.sender.decline(self.rng.u32(..), address, server));
            // An address in use does not make the server a bad one.
            if self.declines > 0 {
                self.shun(server);
            }
        }
        self.lose(now, lease, Loss::Conflict { by }, out);
        self.declines = self.declines.saturating_add(1);
        let pause = timing::decline_wait(self.declines.into(), self.waited_for);
        self.state = State::Init {
            at: now + pause,
            wanted: None,
        };
        self.asked = None;
        self.count().declined = Some((address, by));
    }
}
