//! Acquiring: from a link that is up to a durable lease, within an ADD's time-out.
//!
//! permit → exchange → Persist → MTU → held. Given up before REQUEST, the exchange just closes; after it, a RELEASE goes
//! out on the same sockets; once the lease is being made durable, it is given back like any other. Where somebody else is
//! known to use the address it is a DECLINE in either case.

use std::net::Ipv4Addr;
use std::time::Duration;

use super::hold::Hold;
use super::persistence::Want;
use super::release::{Owed, Release};
use super::{Binding, Cx, Holder, Leave, Life, Reason, Report};
use crate::conflict;
use crate::dhcpv4::accept::Refusal;
use crate::dhcpv4::lease::Lease;
use crate::dhcpv4::timing::Timer;
use crate::dhcpv4::{Client, Event, Loss, Output, Refused, Verdict};
use crate::effect::{Failure, StoreCause, Why};
use crate::event::EventKind;
use crate::identity::{Attachment, Lan};
use crate::link::{Hears, LinkCause, Sockets, Target};
use crate::record::BindingId;
use crate::time::{Instant, whole_millis};
use crate::wire::Mac;
use crate::wire::frame::Frame;

/// An ADD that waits for its lease.
#[derive(Debug)]
pub(crate) struct Acquire {
    /// The client, in INIT or INIT-REBOOT until there is a permit.
    pub(crate) client: Client,
    /// When the ADD came in.
    pub(crate) began: Instant,
    /// When it has to be answered.
    pub(crate) limit: Instant,
    /// Since when it has waited for its permit, or has had it.
    pub(crate) since: Instant,
    /// How long it waited for that.
    pub(crate) queued: Duration,
    /// The link's MTU before.
    pub(crate) mtu: u32,
    /// The bindings whose identity this one has taken over: gone once its lease is durable.
    pub(crate) replaces: Vec<BindingId>,
    /// The container ran before, with this very address: whatever becomes of this, it is not given back under it.
    pub(crate) adopts: bool,
    /// The only address that will do.
    pub(crate) insists: Option<Ipv4Addr>,
    /// Why it has no offer.
    pub(crate) reason: Reason,
    /// How far it is.
    pub(crate) stage: Stage,
}

/// How far an acquisition is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Other acquisitions of the LAN go first.
    AwaitingPermit,
    /// Talking to servers.
    Exchanging,
    /// The lease waits until it is known that nobody else uses its address.
    Probing,
    /// The lease is being made durable. `aborted`: nobody wants it any more.
    Persisting { aborted: bool },
    /// The lease is durable and no good: it has ended, or somebody else (`by`) uses its address. The store is being told.
    /// `aborted`: no other is wanted.
    Forgetting { by: Option<Mac>, aborted: bool },
    /// The link's MTU is being set.
    Sizing,
    /// It was given up; the registry is about to hear of it.
    Over,
}

/// Whether the caller of an acquisition that is given up still waits for an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Abort {
    /// It went away, or was answered already.
    Silent,
    /// It is told why.
    Because(Failure),
}

impl Acquire {
    /// Tells whether somebody still wants the lease.
    pub(super) fn is_wanted(&self) -> bool {
        match self.stage {
            Stage::AwaitingPermit | Stage::Exchanging | Stage::Probing | Stage::Sizing => true,
            Stage::Persisting { aborted } | Stage::Forgetting { aborted, .. } => !aborted,
            Stage::Over => false,
        }
    }

    pub(super) fn deadline(&self) -> Option<(Instant, Why)> {
        let own = match self.stage {
            Stage::Exchanging => self.client.deadline().map(|(at, timer)| (at, Why::Dhcp(timer))),
            Stage::Probing => self.client.lease().and_then(Lease::expires).map(|at| (at, Why::Dhcp(Timer::Expire))),
            Stage::AwaitingPermit
            | Stage::Persisting { .. }
            | Stage::Forgetting { .. }
            | Stage::Sizing
            | Stage::Over => None,
        };
        let limit = self.is_limited().then_some((self.limit, Why::Call));
        [own, self.survey_at(), limit].into_iter().flatten().min_by_key(|(at, _)| *at)
    }

    /// Tells whether the lease that there is has ended.
    pub(super) fn has_ended(&self, now: Instant) -> bool {
        self.client.lease().is_some_and(|lease| lease.expired(now))
    }

    /// Tells whether it is given up at its limit. What a server has confirmed to a container that runs is held on to.
    fn is_limited(&self) -> bool {
        let confirmed = match self.stage {
            Stage::Persisting { .. } | Stage::Forgetting { .. } | Stage::Sizing => self.adopts,
            Stage::AwaitingPermit | Stage::Exchanging | Stage::Probing | Stage::Over => false,
        };
        self.is_wanted() && !confirmed
    }

    /// Returns why there is no lease although the time is up.
    fn timed_out(&self, lan: &Lan, now: Instant) -> Failure {
        let waited = whole_millis(now.saturating_since(self.began));
        let waiting_for = match self.stage {
            Stage::AwaitingPermit | Stage::Over => "its turn: other ADDs on the same LAN wait for the DHCP server",
            Stage::Probing => "the probes of strict conflict detection, which take up to 7 s",
            Stage::Persisting { .. } => "the store to write the lease",
            Stage::Forgetting { by: Some(_), .. } => "the store to forget an address that is in use by somebody else",
            Stage::Forgetting { by: None, .. } => "the store to forget a lease that has ended",
            Stage::Sizing => "the interface's MTU to be set",
            Stage::Exchanging => return self.unanswered(lan, now),
        };
        Failure::TimedOut { waiting_for, waited }
    }

    fn unanswered(&self, lan: &Lan, now: Instant) -> Failure {
        let (tally, waited, queued) =
            (self.client.tally(), whole_millis(now.saturating_since(self.since)), whole_millis(self.queued));
        if let Some((server, address, message)) = tally.nak.clone() {
            let in_vain = if tally.requested.is_none() { tally.discovers } else { 0 };
            return Failure::Nak { server, address, message, in_vain };
        }
        if let Some((address, by)) = tally.declined {
            return Failure::Conflict { address, by };
        }
        if let Some((server, address, sent)) = tally.requested {
            // A late offer of another server is no answer to a REQUEST.
            let refusal = tally.last_refusal.as_ref().filter(|r| **r != Refused::Unbelieved(Refusal::Unexpected));
            let last_refusal = refusal.map(ToString::to_string);
            return Failure::NoAck { server, address, sent, waited, queued, last_refusal };
        }
        Failure::NoOffer {
            lan: lan.clone(),
            sent: tally.discovers,
            waited,
            queued,
            answers: tally.answers,
            refused: tally.refused,
            last_refusal: tally.last_refusal.as_ref().map(ToString::to_string),
            silence: match &self.reason {
                Reason::Found(silence) => Some(silence.clone()),
                Reason::NotLookedFor(_) | Reason::LookedFor(_) | Reason::None => None,
            },
        }
    }
}

impl Binding {
    /// Returns a binding that will acquire once it has a permit.
    ///
    /// `predecessors`: the Ethernet addresses of those that it takes the identity over from.
    pub(crate) fn acquiring(id: BindingId, holder: Holder, acquire: Acquire, predecessors: Box<[Mac]>) -> Self {
        Self { predecessors, ..Self::new(id, holder, Life::Acquiring(Box::new(acquire))) }
    }

    /// Begins the exchange: there is a permit.
    pub(crate) fn on_permit(&mut self, cx: &mut Cx<'_>) {
        let Life::Acquiring(acquire) = &mut self.life else { return self.hold_on_permit(cx) };
        if acquire.stage != Stage::AwaitingPermit {
            return;
        }
        acquire.stage = Stage::Exchanging;
        acquire.queued = cx.now.boot.saturating_since(acquire.since);
        acquire.since = cx.now.boot;
        self.acquire_event(Event::Clock, cx);
    }

    pub(super) fn acquire_on_clock(&mut self, cx: &mut Cx<'_>) {
        let Life::Acquiring(acquire) = &self.life else { return };
        if cx.now.boot < acquire.limit || !acquire.is_limited() {
            if acquire.stage == Stage::Probing && acquire.has_ended(cx.now.boot) {
                return self.seek_another(None, cx);
            }
            self.survey(cx);
            return self.acquire_event(Event::Clock, cx);
        }
        let failure = acquire.timed_out(&self.identity.lan, cx.now.boot);
        self.abort(Abort::Because(failure), cx);
    }

    pub(super) fn acquire_on_opened(&mut self, cx: &mut Cx<'_>) {
        self.acquire_event(Event::Opened, cx);
    }

    pub(super) fn acquire_on_frame(&mut self, frame: &Frame<'_>, cx: &mut Cx<'_>) {
        match frame {
            Frame::Udp(udp) => self.acquire_event(Event::Udp(udp), cx),
            Frame::Arp(arp) => self.acquire_event(Event::Arp(arp), cx),
        }
    }

    /// Sockets that cannot be had fail the ADD at once: its caller can do more about it than waiting can.
    pub(super) fn acquire_on_unopened(&mut self, cause: LinkCause, cx: &mut Cx<'_>) {
        let Life::Acquiring(acquire) = &self.life else { return };
        if acquire.stage == Stage::Exchanging {
            self.fail_link(cause, cx);
        }
    }

    fn acquire_event(&mut self, event: Event<'_>, cx: &mut Cx<'_>) {
        let Life::Acquiring(acquire) = &mut self.life else { return };
        if acquire.stage != Stage::Exchanging {
            return;
        }
        let Output { mut frames, verdict, listen, refused } = acquire.client.handle(cx.now.boot, event);
        let asked = acquire.client.requesting();
        if let Some(refused) = refused {
            cx.out.refused(&refused);
        }
        self.guard_request(asked, &mut frames, cx);
        self.exchange.send(frames, cx);
        match verdict {
            Some(Verdict::Won(lease)) if self.probes_first() => self.probe_first(&lease, cx),
            Some(Verdict::Won(_)) => self.make_durable(cx),
            Some(Verdict::Lost(lease, Loss::Conflict { by })) => {
                self.acquire_declined(&lease, by, cx);
                self.acquire_again(cx);
            }
            Some(Verdict::Unwanted { wanted, offered }) => {
                self.abort(Abort::Because(Failure::NotWanted { wanted, offered }), cx);
            }
            Some(Verdict::Kept(_) | Verdict::Lost(..)) | None if listen => {
                self.open(Sockets { chaddr: self.identity.chaddr, arp: Hears::Answers, hold_port: None }, true, cx);
            }
            Some(Verdict::Kept(_) | Verdict::Lost(..)) | None => self.exchange.close(cx),
        }
    }

    /// Somebody else uses the address. One that is only asked for is declined with its ACK.
    pub(super) fn acquire_on_conflict(&mut self, by: Mac, cx: &mut Cx<'_>) {
        let Life::Acquiring(acquire) = &self.life else { return };
        match acquire.stage {
            Stage::Exchanging => self.acquire_event(Event::Conflict { by }, cx),
            Stage::Probing => self.seek_another(Some(by), cx),
            // The write, or the change of the link, has to be over first.
            Stage::Persisting { .. } | Stage::Sizing => {}
            Stage::AwaitingPermit | Stage::Forgetting { .. } | Stage::Over => {}
        }
    }

    /// Looks for another lease, on the sockets that are open already if there are any.
    pub(super) fn acquire_again(&mut self, cx: &mut Cx<'_>) {
        let event = if self.exchange.can_send() { Event::Opened } else { Event::Clock };
        self.acquire_event(event, cx);
    }

    /// Keeps the lease waiting until its address is probed for, unless it would end before. The sockets stay open in case it
    /// has to go back.
    fn probe_first(&mut self, lease: &Lease, cx: &mut Cx<'_>) {
        let (server, address, probing) = (lease.server, lease.ip(), conflict::PROBING);
        if let Some(times) = lease.times.filter(|_| lease.expired(cx.now.boot + probing)) {
            let failure = Failure::TooShort { server, address, lease: times.end, probing };
            return self.abort(Abort::Because(failure), cx);
        }
        let Life::Acquiring(acquire) = &mut self.life else { return };
        acquire.stage = Stage::Probing;
        cx.out.report(self.id, Report::ExchangeOver);
        self.guard_first(address, None, cx);
    }

    /// The lease is there; the sockets stay open in case it has to go back.
    pub(super) fn make_durable(&mut self, cx: &mut Cx<'_>) {
        let Life::Acquiring(acquire) = &mut self.life else { return };
        if acquire.has_ended(cx.now.boot) {
            return self.seek_another(None, cx);
        }
        acquire.stage = Stage::Persisting { aborted: false };
        let replaces = acquire.replaces.clone();
        // An address that was offered before is not this one's: rapid commit may bring another.
        if let Some(address) = acquire.client.lease().map(Lease::ip) {
            self.guard_only(address, cx);
        }
        cx.out.report(self.id, Report::ExchangeOver);
        self.note_acquired(cx);
        self.persist(Want::Bound { replaces }, cx);
    }

    fn note_acquired(&self, cx: &mut Cx<'_>) {
        let Life::Acquiring(acquire) = &self.life else { return };
        let Some(lease) = acquire.client.lease() else { return };
        match (acquire.adopts, acquire.replaces.is_empty()) {
            (true, _) => self.note_bound(EventKind::Adopted, lease, "the container ran before", cx),
            (false, true) => self.note_bound(EventKind::Acquired, lease, "ADD", cx),
            (false, false) => self.note_bound(EventKind::Acquired, lease, "ADD took an earlier attachment's place", cx),
        }
    }

    pub(super) fn acquire_on_persisted(&mut self, result: Result<(), StoreCause>, cx: &mut Cx<'_>) {
        let Life::Acquiring(acquire) = &mut self.life else { return };
        let (adopts, resizes) = (acquire.adopts, acquire.resizes());
        let aborted = match acquire.stage {
            Stage::Persisting { aborted } => aborted,
            Stage::Forgetting { by, aborted } => return self.forgot_won(result, by, aborted, cx),
            Stage::AwaitingPermit | Stage::Exchanging | Stage::Probing | Stage::Sizing | Stage::Over => return,
        };
        if result.is_ok() {
            cx.out.report(self.id, Report::Replaced(std::mem::take(&mut acquire.replaces)));
        }
        match (result, aborted) {
            (Ok(()), aborted) if let Some(by) = self.heard_conflict() => self.forget_won(Some(by), aborted, cx),
            (Ok(()), false) => {
                self.exchange.close(cx);
                self.make_fit(cx);
            }
            (Ok(()), true) => self.give_back_won(cx),
            // It is held in memory until there is room.
            (Err(cause), false) if adopts => {
                self.exchange.close(cx);
                self.held(cx);
                if resizes {
                    self.size_later();
                }
                self.persist_later(&cause, cx);
            }
            (Err(cause), _) => {
                if !aborted {
                    cx.out.report(self.id, Report::Failed(Failure::Store(cause)));
                }
                self.undo_write(cx);
            }
        }
    }

    /// Gives the acquisition up.
    pub(crate) fn abort(&mut self, abort: Abort, cx: &mut Cx<'_>) {
        let Life::Acquiring(acquire) = &mut self.life else { return };
        let link_gone = matches!(&abort, Abort::Because(Failure::Link { cause, .. }) if cause.is_gone());
        let cancelled = matches!(abort, Abort::Because(Failure::Cancelled(_)));
        // No more than the address that the container has.
        let only_its_own = acquire.client.owed(cx.now.boot).is_none_or(|lease| acquire.insists == Some(lease.ip()));
        let runs_on = acquire.adopts && !link_gone && !cancelled && only_its_own;
        if let Abort::Because(failure) = abort {
            cx.out.report(self.id, Report::Failed(failure));
        }
        match acquire.stage {
            Stage::Over => {}
            Stage::AwaitingPermit | Stage::Exchanging | Stage::Probing => {
                acquire.stage = Stage::Over;
                cx.out.report(self.id, Report::ExchangeOver);
                match runs_on {
                    true => self.close(cx),
                    false if self.owes_unsaid(link_gone, cx) => return self.give_back_unsaid(link_gone, cx),
                    false => self.undo_exchange(cx),
                }
                cx.out.report(self.id, Report::Over);
            }
            Stage::Persisting { .. } => acquire.stage = Stage::Persisting { aborted: true },
            Stage::Forgetting { by, .. } => acquire.stage = Stage::Forgetting { by, aborted: true },
            Stage::Sizing => match self.heard_conflict() {
                Some(by) => self.forget_won(Some(by), true, cx),
                None => self.give_back_won(cx),
            },
        }
    }

    /// Fails the ADD because of its link.
    pub(super) fn fail_link(&mut self, cause: LinkCause, cx: &mut Cx<'_>) {
        let target = Target::Known(self.link.clone()).to_string();
        self.abort(Abort::Because(Failure::Link { target, cause }), cx);
    }

    /// Closes the exchange. What a server was asked to commit is released or declined first, on the same sockets, unless
    /// another binding has taken the identity over meanwhile.
    fn undo_exchange(&mut self, cx: &mut Cx<'_>) {
        if self.held_by_other(cx) {
            return self.close(cx);
        }
        let Life::Acquiring(acquire) = &mut self.life else { return };
        let owed = acquire.client.owed(cx.now.boot);
        if let Some(address) = owed.map(Lease::ip).filter(|_| self.exchange.can_send()) {
            // What this ADD had taken over went back with it.
            cx.out.report(self.id, Report::Undone(address, acquire.replaces.clone()));
        }
        if !self.decline_owed(cx) {
            let Life::Acquiring(acquire) = &mut self.life else { return };
            let release = acquire.client.abort(cx.now.boot);
            self.exchange.send(release.into_iter().collect(), cx);
        }
        self.close(cx);
    }

    /// Tells whether a server may hold a lease for this ADD, and no RELEASE can go out on the same sockets.
    fn owes_unsaid(&self, link_gone: bool, cx: &Cx<'_>) -> bool {
        let Life::Acquiring(acquire) = &self.life else { return false };
        let mute = !self.exchange.can_send() || link_gone && self.parent.is_none();
        let owed = acquire.client.owed(cx.now.boot).map(Lease::ip);
        mute && !self.held_by_other(cx) && owed.is_some_and(|address| self.conflict_over(address).is_none())
    }

    /// Gives back what a server was asked to commit, or has granted, by another way than the sockets over which it was asked:
    /// like any other lease, until it would have ended.
    fn give_back_unsaid(&mut self, link_gone: bool, cx: &mut Cx<'_>) {
        let Life::Acquiring(acquire) = &mut self.life else { return };
        let Some(lease) = acquire.client.owed(cx.now.boot).cloned() else { return };
        let owed = if acquire.client.lease().is_some() { Owed::Leased } else { Owed::Asked };
        // What this ADD had taken over goes back with it.
        cx.out.report(self.id, Report::Undone(lease.ip(), std::mem::take(&mut acquire.replaces)));
        self.close(cx);
        let why = if link_gone { Leave::LinkGone } else { Leave::Aborted };
        self.life = Life::Releasing(Box::new(Release::new(lease, owed, why)));
        self.release_begin(cx);
    }

    /// Gives a lease back that could not be made durable. A write that failed may have been done all the same, so the
    /// record is removed.
    fn undo_write(&mut self, cx: &mut Cx<'_>) {
        if self.owes_unsaid(false, cx) {
            return self.give_back_unsaid(false, cx);
        }
        self.undo_exchange(cx);
        let Life::Acquiring(acquire) = &self.life else { return };
        let Some(lease) = acquire.client.lease().cloned() else { return };
        self.life = Life::Releasing(Box::new(Release::new(lease, Owed::Nothing, Leave::Undone)));
        self.release_begin(cx);
    }

    /// Gives a durable lease back that nobody wants any more.
    fn give_back_won(&mut self, cx: &mut Cx<'_>) {
        let Life::Acquiring(acquire) = &self.life else { return };
        let Some(lease) = acquire.client.lease().cloned() else { return };
        self.close(cx);
        self.life = Life::Releasing(Box::new(Release::new(lease, Owed::Leased, Leave::Aborted)));
        self.release_begin(cx);
    }

    /// The lease is durable and its link ready: the ADD may hear of it.
    pub(super) fn held(&mut self, cx: &mut Cx<'_>) {
        let Life::Acquiring(acquire) = &self.life else { return };
        let Some(lease) = acquire.client.shared() else { return };
        if !acquire.adopts && lease.expired(cx.now.boot) {
            self.note(EventKind::Expired, &lease, "it ended before its ADD could be answered", cx);
            return self.forget_won(None, false, cx);
        }
        log_acquired(&self.attachment, &lease);
        let mut client = acquire.client.clone();
        client.not_waited_for();
        client.set_station(self.station());
        cx.out.report(self.id, Report::Leased { lease: Box::new((*lease).clone()), began: acquire.began });
        let adopts = acquire.adopts;
        self.guard_lease(lease.ip(), adopts, cx);
        self.life = Life::Held(Box::new(Hold::new(client, lease)));
    }
}

fn log_acquired(attachment: &Attachment, lease: &Lease) {
    let seconds = lease.times.map(|times| times.end.as_secs());
    tracing::info!(%attachment, address = %lease.address, server = %lease.server, seconds, "lease acquired");
}
