//! The DHCPv4 client of RFC 2131: one lease of one interface.
//!
//! A [`Client`] gets signals and the time, and returns what to send, whether it wants sockets, and, when its lease
//! changes, a [`Verdict`]. It knows no ids, no namespaces and no store. The caller owns its sockets: they should be
//! open while [`Output::listen`] is true, else closed; the client sends only after [`Signal::Opened`].

pub(super) mod accept;
mod answer;
mod extend;
mod extension;
pub(super) mod form;
pub(super) mod inquiry;
pub(super) mod message;
pub(super) mod profile;
pub(super) mod reach;
pub(super) mod release;
mod state;
mod tally;
#[cfg(test)]
mod tests;
pub(super) mod timing;

use std::net::Ipv4Addr;
use std::sync::Arc;

use fastrand::Rng;
use ipnet::Ipv4Net;

pub use self::answer::Refused;
pub(crate) use self::extend::RECENT;
use self::extension::Extension;
pub use self::extension::InVain;
use self::form::Form;
use self::message::Sender;
use self::profile::Wanted;
pub use self::state::StateName;
use self::state::{State, Transaction, Unanswered};
pub use self::tally::Tally;
use self::tally::UNTRIED;
use self::timing::{LeasePhase, Timer};
use super::lease::{self, Lease};
use super::{Loss, Miss, Missed, Output, Signal, Verdict};
use crate::rules::{Rule, cut};
use crate::time::Instant;
use crate::wire::Mac;

/// The sockets as the client knows them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SocketState {
    Closed,
    Opening,
    Open,
}

/// A DHCPv4 client.
#[derive(Clone, Debug)]
pub struct Client {
    sender: Sender,
    state: State,
    sockets: SocketState,
    waited_for: bool,
    /// Until when a first message is repeated soon.
    repeats_first: Option<Instant>,
    /// The only acceptable address, until there is a lease.
    insists: Option<Ipv4Addr>,
    /// What a server was asked to commit, as long as it may have done so without our knowledge.
    asked: Option<Arc<Lease>>,
    /// Boxed: a client that holds a lease has none.
    tally: Option<Box<Tally>>,
    rng: Rng,
    /// Whether the leased address is on the interface, or is about to be.
    addressed: bool,
    /// Whether the interface is out of sight, and the client speaks from the host's link, where an answer to the interface may go
    /// unheard.
    out_of_sight: bool,
    /// DECLINEs in a row.
    declines: u8,
}

impl Client {
    /// Returns a client in INIT that looks for a lease at once, because a caller waits for it.
    pub fn acquire(sender: Sender, wanted: Option<Wanted>, now: Instant, rng: Rng) -> Self {
        let state = State::Init {
            at: now,
            wanted: wanted.map(|wanted| wanted.address),
        };
        let mut client = Self::new(sender, state, true, rng);
        if let Some(only) = wanted.filter(|wanted| !wanted.preferred) {
            client.insist(only.address);
        }
        client
    }

    /// Returns a client in INIT-REBOOT that takes over an address about which it knows nothing else. No other address is
    /// acceptable.
    pub fn adopt(sender: Sender, address: Ipv4Net, now: Instant, rng: Rng) -> Self {
        let lease = Arc::new(Lease::unknown(address, now));
        let mut client = Self::reacquire(sender, lease, now, rng);
        client.insist(address.addr());
        client
    }

    /// Returns a client in INIT-REBOOT that takes over an earlier lease, because a caller waits for it.
    pub fn reacquire(sender: Sender, lease: Arc<Lease>, now: Instant, rng: Rng) -> Self {
        let state = State::InitReboot {
            at: now,
            lease,
            unanswered: Unanswered::Discover,
        };
        Self::new(sender, state, true, rng)
    }

    /// Returns a client that goes on with a lease where it was. What is overdue waits a little: a restart resumes many clients.
    pub fn resume(sender: Sender, lease: Arc<Lease>, now: Instant, mut rng: Rng) -> Self {
        let mut due = |limit| now + timing::overdue_delay(now, limit, &mut rng);
        let state = match timing::phase(&lease, now) {
            LeasePhase::Held => State::Bound { lease },
            LeasePhase::Renewing => State::Extending {
                extension: Extension::due(due(lease.t2())),
                lease,
            },
            LeasePhase::Rebinding => {
                let mut extension = Extension::due(now);
                extension.rebind(due(lease.expires()));
                State::Extending { lease, extension }
            }
            LeasePhase::Over => State::Init {
                at: due(None),
                wanted: Some(lease.ip()),
            },
        };
        Self::new(sender, state, false, rng)
    }

    /// Returns a client in INIT that looks for a lease soon; nobody is waiting.
    pub fn seek(sender: Sender, now: Instant, mut rng: Rng) -> Self {
        let at = now + timing::overdue_delay(now, None, &mut rng);
        Self::new(sender, State::Init { at, wanted: None }, false, rng)
    }

    /// Begins discovery again soon, for the same address: silent servers may answer now. An offer that is being requested takes
    /// precedence, and so does the wait after a DECLINE. Returns whether it begins; if so, the sockets should be closed.
    pub fn seek_anew(&mut self, now: Instant) -> bool {
        let declined = self.tally().declined.is_some();
        let begins = self.state.seek_anew(
            now + timing::overdue_delay(now, None, &mut self.rng),
            declined,
        );
        if begins {
            (self.sockets, self.count().in_vain) = (SocketState::Closed, 0);
        }
        begins
    }

    fn new(sender: Sender, state: State, waited_for: bool, rng: Rng) -> Self {
        Self {
            sender,
            state,
            sockets: SocketState::Closed,
            waited_for,
            repeats_first: None,
            insists: None,
            asked: None,
            tally: None,
            rng,
            addressed: true,
            out_of_sight: false,
            declines: 0,
        }
    }

    /// Has the first message repeated soon, if it leaves shortly after this instant, when the link got carrier: the way to the
    /// servers may not be open yet.
    pub fn repeat_first(&mut self, carrier: Instant) {
        self.repeats_first = Some(carrier + timing::OPENS);
    }

    /// Tells the client that it is one of many who ask at once: it waits for 4 s before it asks again (RFC 2131 §4.1).
    pub fn is_one_of_many(&mut self) {
        self.count().crowded = true;
    }

    /// Handles a signal.
    pub fn handle(&mut self, now: Instant, signal: Signal<'_>) -> Output {
        let mut out = Output::default();
        let before = (self.state.name(), form::out(&self.state));
        match signal {
            Signal::Clock => {}
            Signal::Opened => self.sockets = SocketState::Open,
            Signal::Unopened => self.on_unopened(now),
            Signal::Udp(udp) => self.on_udp(now, udp, &mut out),
            Signal::Unreadable { cause, from: _ } => self.on_refused(cause.into(), &mut out),
            Signal::Arp(arp) => {
                // After a suspend, a signal may arrive before the clock is served: no RENEW may follow the lease's end, or
                // T2.
                self.on_lease_clock(now, &mut out);
                self.on_arp(now, arp, &mut out);
            }
            Signal::Conflict { by } => self.on_conflict(now, by, &mut out),
        }
        self.advance(now, &mut out);
        out.settled = form::settled(before, &self.state, &out);
        out.listen = self.state.listens(now);
        self.sockets = match (out.listen, self.sockets) {
            (true, SocketState::Closed) => SocketState::Opening,
            (true, sockets) => sockets,
            (false, _) => SocketState::Closed,
        };
        out
    }

    /// Returns the next deadline, and what it is for.
    pub fn deadline(&self) -> Option<(Instant, Timer)> {
        self.state.deadline(
            self.sockets == SocketState::Open,
            self.sockets == SocketState::Opening,
        )
    }

    /// Returns the state's name.
    pub fn state(&self) -> StateName {
        self.state.name()
    }

    /// Returns whether the client now sends broadcasts, rather than messages to one server.
    pub fn broadcasts(&self) -> bool {
        self.state.name() != StateName::Renewing || !self.addressed
    }

    /// Returns whether the client's current or next exchange may lead to another address.
    pub fn acquires(&self) -> bool {
        match self.state {
            State::Init { .. }
            | State::Selecting { .. }
            | State::Requesting { .. }
            | State::InitReboot { .. }
            | State::Rebooting { .. } => true,
            State::Bound { .. } | State::Extending { .. } => false,
        }
    }

    /// Returns whether it has an offer, and waits a moment for a better one.
    pub fn compares(&self) -> bool {
        matches!(
            self.state,
            State::Selecting {
                second: Some(_),
                ..
            }
        )
    }

    /// Returns whether only the first DISCOVER of a client that would take any address has been sent.
    pub fn asks_first(&self) -> bool {
        matches!(self.state, State::Selecting { wanted: None, .. }) && self.tally().discovers == 1
    }

    /// Returns the server whose offer is being requested, if only the first REQUEST for it has been sent.
    pub fn requests_first(&self) -> Option<Ipv4Addr> {
        match &self.state {
            State::Requesting { tx, offer, .. } if tx.sent == 1 => Some(offer.server),
            _ => None,
        }
    }

    /// Returns whether the client is about to look for a new address.
    pub fn is_to_discover(&self, now: Instant) -> bool {
        matches!(self.state, State::Init { at, .. } if now >= at)
    }

    /// Puts discovery off until `at`. The sockets should be closed.
    pub fn hold_back(&mut self, at: Instant) {
        if let State::Init { at: due, .. } = &mut self.state {
            (*due, self.sockets) = (at, SocketState::Closed);
        }
    }

    /// Tells the client that no other station uses its address: the next conflict is the first in a row.
    pub fn is_free(&mut self) {
        self.declines = 0;
        self.forget_failures();
    }

    /// Tells the client whether the leased address is on the interface. If not, no server can answer to it (nobody answers ARP
    /// for it): the lease is extended by REQUESTs in INIT-REBOOT form, which servers answer like any other.
    pub fn set_addressed(&mut self, addressed: bool) {
        self.addressed = addressed;
    }

    /// Tells the client whether its interface is out of sight.
    pub fn set_out_of_sight(&mut self, out_of_sight: bool) {
        self.out_of_sight = out_of_sight;
    }

    /// Tells the client which Ethernet address its interface has. Neighbours should know the leased address by no other.
    pub fn set_station(&mut self, station: Mac) {
        self.sender.station = station;
    }

    /// Returns the lease that may be used now.
    pub fn lease(&self) -> Option<&Lease> {
        self.state.lease().map(|lease| &**lease)
    }

    /// Returns the same, shared.
    pub fn shared(&self) -> Option<Arc<Lease>> {
        self.state.lease().cloned()
    }

    /// Returns the address that a server is being asked to commit, and whether another station is known to use it.
    pub fn requesting(&self) -> Option<(Ipv4Addr, bool)> {
        let State::Requesting { offer, taken, .. } = &self.state else {
            return None;
        };
        Some((offer.ip(), taken.is_some()))
    }

    /// Returns, once there is an answer, whether it came only with the broadcast flag set.
    pub fn flag_helped(&self) -> bool {
        self.sender.flag_helped()
    }

    /// Tells the client that no caller is waiting any more: it may take its time.
    pub fn not_waited_for(&mut self) {
        self.waited_for = false;
        self.forget_failures();
    }

    /// Returns the lease that, as far as is known, a server holds for this client: the one held, or else the last one that a
    /// server was asked to commit and did not refuse. A lease that has ended is not owed: it may be another client's.
    pub fn owed(&self, now: Instant) -> Option<&Lease> {
        let lease = self.state.lease().or(self.asked.as_ref())?;
        Some(&**lease).filter(|lease| lease.source.is_asked() && !lease.expired(now))
    }

    /// Returns the lease whose address no other station may use: the one owed, or one of a local range, which no server knows.
    pub fn claimed(&self, now: Instant) -> Option<&Lease> {
        self.owed(now)
            .or_else(|| self.lease().filter(|lease| !lease.source.is_asked()))
    }

    /// Moves on as far as the clock and the sockets allow.
    fn advance(&mut self, now: Instant, out: &mut Output) {
        // A lease just won is not used before the caller has made it durable.
        if matches!(out.verdict, Some(Verdict::Granted(_))) {
            return;
        }
        self.on_lease_clock(now, out);
        self.obey_kept_nak(now, out);
        if self.sockets != SocketState::Open || !self.state.listens(now) {
            return;
        }
        match self.state {
            State::Init { wanted, .. } => self.discover(now, wanted, None, out),
            State::Selecting {
                second: Some((_, until)),
                ..
            } if now >= until => self.choose(now, out),
            State::Selecting {
                tx,
                wanted,
                second: None,
            } if now >= tx.next => {
                let before = Some(tx).filter(|tx| tx.sent > 0 || tx.soon > 0);
                self.discover(now, wanted, before, out);
            }
            State::Requesting { tx, .. } if now >= tx.next && tx.sent >= timing::MAX_REQUESTS => {
                self.on_unacknowledged(now, out);
            }
            State::Requesting { tx, ref offer, .. } if now >= tx.next => {
                let offer = offer.clone();
                let after = self.request(now, tx, &offer, out);
                if let State::Requesting { tx, .. } = &mut self.state {
                    *tx = after;
                }
            }
            State::InitReboot {
                ref lease,
                unanswered,
                ..
            } => self.reboot(now, lease.clone(), unanswered, None, out),
            State::Rebooting {
                tx,
                ref lease,
                unanswered,
                ..
            } if now >= tx.next => self.reboot(now, lease.clone(), unanswered, Some(tx), out),
            State::Extending { .. } => self.extend(now, out),
            State::Selecting { .. }
            | State::Requesting { .. }
            | State::Rebooting { .. }
            | State::Bound { .. } => {}
        }
    }

    /// Goes on without the lease. The sockets are closed: the next exchange uses others.
    fn lose(&mut self, now: Instant, lease: Arc<Lease>, loss: Loss, out: &mut Output) {
        self.sockets = SocketState::Closed;
        self.state = State::Init {
            at: now,
            wanted: matches!(loss, Loss::Expired { .. }).then(|| lease.ip()),
        };
        self.begin_tally(self.tally().naks);
        out.verdict = Some(Verdict::Lost(lease, loss));
    }

    /// Sends DISCOVER, the first one or the one that follows `before`.
    fn discover(
        &mut self,
        now: Instant,
        wanted: Option<Ipv4Addr>,
        before: Option<Transaction>,
        out: &mut Output,
    ) {
        let before = before.map(|tx| tx.going_on(now, &mut self.rng));
        let tx = self.transact(now, before);
        self.count().discovers += 1;
        out.frames
            .push(self.sender.discover(tx.xid, tx.secs, wanted));
        self.state = State::Selecting {
            tx,
            wanted,
            second: None,
        };
    }

    /// Sends REQUEST in INIT-REBOOT form, the first one or the one that follows `before`, or stops waiting for an answer.
    fn reboot(
        &mut self,
        now: Instant,
        lease: Arc<Lease>,
        unanswered: Unanswered,
        before: Option<Transaction>,
        out: &mut Output,
    ) {
        if before.is_some_and(|tx| tx.sent >= timing::MAX_REBOOTS) {
            match unanswered {
                Unanswered::Discover => self.discover(now, Some(lease.ip()), None, out),
                Unanswered::Keep => {
                    let pause = timing::acquisition_wait(
                        3 + self.count().tried_in_vain(),
                        false,
                        &mut self.rng,
                    );
                    match lease.t1().filter(|_| !cut(Rule::RenewUnconfirmed)) {
                        Some(t1) if t1 <= now => self.extend_unconfirmed(now, lease, out),
                        t1 => {
                            let at = t1.map_or(now + pause, |t1| t1.min(now + pause));
                            self.state = State::InitReboot {
                                at,
                                lease,
                                unanswered,
                            };
                        }
                    }
                    self.on_lease_clock(now, out);
                }
            }
            return;
        }
        let tx = self.transact(now, before);
        out.frames
            .push(self.sender.reboot(tx.xid, tx.secs, lease.ip()));
        let nak = if let State::Rebooting { nak, .. } = &mut self.state {
            nak.take()
        } else {
            None
        };
        self.state = State::Rebooting {
            tx,
            lease,
            unanswered,
            nak,
        };
    }

    /// Returns the transaction of the message that is about to be sent: a new one, or `before`, advanced by one message.
    fn transact(&mut self, now: Instant, before: Option<Transaction>) -> Transaction {
        let soon = match before {
            None => u8::from(self.repeats_first.take().is_some_and(|until| now < until)),
            Some(tx) if tx.soon == 0 || usize::from(tx.soon) == timing::SOON.len() => 0,
            Some(tx) => tx.soon + 1,
        };
        let (xid, began, late, sent) = before.map_or_else(
            || (self.rng.u32(..), now, 0, 0),
            |tx| (tx.xid, tx.began, tx.late, tx.sent),
        );
        let sent = if soon > 0 { sent } else { sent + 1 };
        let secs = timing::secs(began, now).saturating_add(late);
        let next = match soon.checked_sub(1) {
            Some(nth) => now + timing::SOON[usize::from(nth)],
            None => {
                self.sender.asks();
                let wait = timing::acquisition_wait(sent, self.waited_for, &mut self.rng);
                now + match self.tally().crowded {
                    true => wait.max(timing::crowd_wait(&mut self.rng)),
                    // A lease that is confirmed is used meanwhile.
                    false if self.state.lease().is_some() => wait.max(timing::RECEIVE_WINDOW),
                    false => wait,
                }
            }
        };
        let until = if self.waited_for {
            next
        } else {
            next.min(now + timing::RECEIVE_WINDOW)
        };
        Transaction {
            xid,
            began,
            late,
            secs,
            sent,
            soon,
            next,
            until,
        }
    }

    /// Puts off what waits for sockets that cannot be had.
    fn on_unopened(&mut self, now: Instant) {
        self.sockets = SocketState::Closed;
        let in_vain = if self.acquires() {
            self.count().tried_in_vain()
        } else {
            0
        };
        let retry = now + timing::acquisition_wait(3 + in_vain, self.waited_for, &mut self.rng);
        self.state.put_off(now, retry);
    }

    /// Returns whether a message that asks for an address is about to be sent again. First messages that are repeated soon do not
    /// count.
    pub fn retransmits(&self, now: Instant) -> bool {
        match &self.state {
            State::Selecting { tx, .. }
            | State::Requesting { tx, .. }
            | State::Rebooting { tx, .. } => tx.sent > 0 && now >= tx.next,
            State::Init { .. }
            | State::InitReboot { .. }
            | State::Bound { .. }
            | State::Extending { .. } => false,
        }
    }

    /// Makes a DISCOVER that is due later leave at once.
    pub fn hurry(&mut self, now: Instant) {
        if let State::Selecting {
            tx, second: None, ..
        } = &mut self.state
        {
            tx.next = tx.next.min(now);
        }
    }

    /// Has the client go on over other sockets: those that were open are closed.
    pub fn reopens(&mut self) {
        self.sockets = SocketState::Closed;
    }

    /// Returns the message that is out, and neither answered nor repeated yet.
    pub fn out(&self) -> Option<Form> {
        form::out(&self.state)
    }

    /// Returns what was tried since the last lease.
    pub fn tally(&self) -> &Tally {
        self.tally.as_deref().unwrap_or(&UNTRIED)
    }

    /// Records that the link did not accept a message, and why.
    pub fn on_unsent(&mut self, cause: String) {
        let tally = self.count();
        tally.unsent += 1;
        tally.last_unsent = Some(cause);
    }

    /// Starts counting again. The servers that failed the client are remembered as long as that matters.
    pub(super) fn begin_tally(&mut self, naks: u32) {
        let minds = self.minds_failures();
        let shunned = self
            .tally
            .take()
            .filter(|_| minds)
            .map_or_else(Vec::new, |tally| tally.shunned);
        let is_new = naks == 0 && shunned.is_empty();
        self.tally = (!is_new).then(|| {
            Box::new(Tally {
                naks,
                shunned,
                ..Tally::default()
            })
        });
    }

    pub(super) fn count(&mut self) -> &mut Tally {
        self.tally.get_or_insert_default()
    }

    pub(super) fn forget_failures(&mut self) {
        if !self.minds_failures() {
            self.tally
                .iter_mut()
                .for_each(|tally| tally.shunned.clear());
            self.tally.take_if(|tally| **tally == *UNTRIED);
        }
    }
}
