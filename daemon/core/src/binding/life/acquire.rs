//! Acquiring: from a link that is up to a durable lease, within an ADD's time-out.
//!
//! permit → exchange → Persist → MTU → held. If an ADD is abandoned before REQUEST, the exchange just closes; after REQUEST,
//! a RELEASE leaves on the same sockets; once the lease is being made durable, it is given back like any other. If another
//! station is known to use the address, a DECLINE replaces the RELEASE.

mod begin;
mod failed;
mod fallback;
mod judge;
mod pace;
mod phase;
mod take;
mod won;

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

pub(crate) use self::begin::Known;
use self::failed::timed_out;
use self::fallback::Resort;
use self::judge::Misses;
use self::pace::Pace;
use self::phase::Phase;
use crate::binding::common::tenancy::{claim_of, claim_of_user};
use crate::binding::common::{siblings, tenancy, warnings};
use crate::binding::holders::{Claim, Stand};
use crate::binding::{Common, Cx, Found, Living, Next, Quest, Report, SAME, Task, Waiter, Want};
use crate::effect::{ExchangeId, Failure, Outcome, StoreCause, Why};
use crate::interface::News;
use crate::link::{Hears, LinkCause, Sockets, Target};
use crate::record::{BindingId, Record, RecordState};
use crate::silence::{Reason, Survey};
use crate::source::{Client, Fate, Lease, Loss, Output, Signal, Timer, Verdict};
use crate::time::Instant;
use crate::wire::Mac;
use crate::wire::frame::{Arp, Frame};

/// An ADD that waits for its lease.
#[derive(Debug)]
pub(crate) struct Acquire {
    /// The client, in INIT or INIT-REBOOT until there is a permit.
    client: Client,
    /// What is asked for.
    quest: Quest,
    /// When it must be answered: sooner once another address than the wanted one was offered.
    limit: Instant,
    /// Since when it has waited for its permit, or has had it.
    since: Instant,
    /// How long it waited for the permit.
    queued: Duration,
    /// The link's name.
    ifname: String,
    /// Its MTU before.
    mtu: u32,
    /// The bindings whose identity this one has taken over: gone once its lease is durable.
    replaces: Vec<BindingId>,
    /// Whether somebody has taken the address of an adopted container off its interface since.
    taken_off: bool,
    /// Whether the only acceptable address, which was kept, is given back for it.
    unblocked: bool,
    /// Why it has no offer.
    reason: Reason,
    /// Whether the MTU that its record calls due was set.
    sized: bool,
    /// The lease of its identity that is still good, and when to use it even if nobody confirms it.
    trusts: Option<(Arc<Lease>, Instant)>,
    /// Whether it uses that lease, because no server answered.
    trusted: bool,
    /// The address of a local range that it gets if no server answers.
    resort: Option<Box<Resort>>,
    /// The offers that came to nothing.
    misses: Misses,
    /// How fast it went.
    pace: Pace,
    /// How far it is.
    phase: Phase,
    /// Whether somebody still wants the lease.
    wanted: bool,
}

impl Acquire {
    /// Goes on to another phase.
    fn enter(&mut self, phase: Phase) {
        debug_assert!(self.phase.leads_to(phase), "{:?} to {phase:?}", self.phase);
        self.phase = phase;
        self.wanted &= phase != Phase::Over;
    }

    fn has_ended(&self, now: Instant) -> bool {
        self.client.lease().is_some_and(|lease| lease.expired(now))
    }

    /// Returns whether it ends at its limit. A lease that a server has confirmed to a running container is kept.
    fn is_limited(&self) -> bool {
        let confirmed = self.quest.adopts() && self.phase.is_won();
        self.wanted && !confirmed
    }

    /// Handles another station's use of the address. If the address is only requested so far, it is declined after its ACK.
    fn on_conflict(&mut self, by: Mac, cx: &mut Cx<'_>) -> Next {
        match self.phase {
            Phase::Ask => self.signal(Signal::Conflict { by }, cx),
            Phase::Probe => self.seek_another(Some(by), cx),
            Phase::Fit => self.make_fit(cx),
            // The write must end first.
            Phase::Write => SAME,
            Phase::Queue | Phase::Forget { .. } | Phase::Over => SAME,
        }
    }

    /// Looks for another lease, on the sockets that are already open if there are any.
    fn seek(&mut self, cx: &mut Cx<'_>) -> Next {
        let signal = if cx.own.exchange.can_send() {
            Signal::Opened
        } else {
            Signal::Clock
        };
        self.signal(signal, cx)
    }

    /// Holds the lease back until its address has been probed for. The sockets stay open in case it must be given back.
    fn probe_first(&mut self, lease: &Lease, cx: &mut Cx<'_>) -> Next {
        self.enter(Phase::Probe);
        cx.out.report(cx.own.id, Report::ExchangeOver);
        cx.guard_first(lease.ip());
        self.watch(cx)
    }

    /// Goes on after every station that claims the address was found to claim every address, or can no longer be heard.
    fn cleared(&mut self, cx: &mut Cx<'_>) -> Next {
        match self.phase {
            Phase::Probe => self.make_durable(cx),
            Phase::Fit => self.make_fit(cx),
            Phase::Queue | Phase::Ask | Phase::Write | Phase::Forget { .. } | Phase::Over => SAME,
        }
    }

    /// Abandons the acquisition. `why`: what its caller is told, unless it hung up or already has its answer.
    pub(in crate::binding) fn abort(&mut self, why: Option<Failure>, cx: &mut Cx<'_>) -> Next {
        let link_gone = matches!(&why, Some(Failure::Link { cause, .. }) if cause.is_gone());
        let cancelled = matches!(why, Some(Failure::Cancelled(_)));
        // Nothing is owed, or only the address that the container has.
        let only_its_own = self
            .client
            .owed(cx.now.boot)
            .is_none_or(|lease| self.quest.insists() == Some(lease.ip()));
        let runs_on = self.quest.adopts() && !link_gone && !cancelled && only_its_own;
        if let Some(failure) = why {
            cx.out.report(cx.own.id, Report::Failed(failure));
        }
        self.wanted = false;
        match self.phase {
            Phase::Over => {}
            Phase::Queue | Phase::Ask | Phase::Probe => {
                self.enter(Phase::Over);
                cx.out
                    .counts
                    .settled(self.client.out().map(|form| (form, Fate::Unanswered)));
                cx.out.report(cx.own.id, Report::ExchangeOver);
                match runs_on {
                    true => cx.close(),
                    false if self.owes_unsaid(link_gone, cx) => {
                        return self.give_back(link_gone, cx);
                    }
                    false => self.undo_exchange(cx),
                }
                cx.out.report(cx.own.id, Report::Over);
            }
            Phase::Write | Phase::Forget { .. } => {}
            // Nothing can be declined over a link that is gone.
            Phase::Fit => match cx.own.claim().filter(|_| !link_gone) {
                Some((_, by)) => self.forget_won(Some(by), cx),
                None => return self.give_back(link_gone, cx),
            },
        }
        // The answer waits for the macvlan's end, not for the store: what is left to send goes another way.
        if self.phase.is_won() && cx.own.is_aside() {
            cx.own.exchange.close(cx.out);
        }
        SAME
    }

    /// Returns when to look for the reason why it has no offer.
    fn survey_at(&self) -> Option<Instant> {
        let at = self.reason.due_at(self.quest.began, self.limit);
        at.filter(|_| self.phase == Phase::Ask)
    }

    /// Looks for a reason once it is time, if there is no offer by then.
    fn survey(&mut self, cx: &mut Cx<'_>) {
        while self.survey_at().is_some_and(|at| cx.now.boot >= at) {
            if self.client.tally().requested.is_some() {
                self.reason = Reason::None;
                return;
            }
            let (lan, link) = (&cx.own.identity.lan, &cx.own.link);
            let server = cx.lans.last_server(lan);
            let counts = self.reason.look(server);
            if let Some(server) = server.filter(|_| !counts) {
                let asks = Arp::request(link.mac(), Ipv4Addr::UNSPECIFIED, server);
                cx.own.exchange.send(vec![asks.encode()], cx.out);
            }
            let waiter = Waiter::Binding(cx.own.id, Task::Survey);
            cx.out.survey(waiter, link.clone(), lan, counts);
        }
    }

    pub(in crate::binding) fn on_surveyed(&mut self, survey: Survey) {
        let asks = (self.quest.began, self.limit);
        self.reason
            .found(survey, &self.ifname, asks, self.quest.came_up);
    }

    /// Sends the first message that must be sent again, and all later ones, from a temporary macvlan beside the LAN's link, with the
    /// Ethernet address that the interface will have (see `link::Line`): nobody has answered on the link itself.
    ///
    /// The macvlan must be gone before the ADD is answered with a lease: Docker's own macvlan gets that address, and the kernel does
    /// not set two with the same address up (EADDRINUSE). If it cannot be made, or fails, the ADD goes on from the LAN's link.
    fn go_aside(&mut self, cx: &mut Cx<'_>) {
        let asks = self.phase == Phase::Ask && self.client.retransmits(cx.now.boot);
        if asks && cx.go_aside() {
            tracing::debug!(attachment = %cx.own.attachment, "no answer on the LAN's link: asking from a macvlan beside it");
            self.client.reopens();
        }
    }

    fn fail_link(&mut self, cause: LinkCause, cx: &mut Cx<'_>) -> Next {
        let target = Target::Known(cx.own.link.clone()).to_string();
        self.abort(Some(Failure::Link { target, cause }), cx)
    }
}

impl Living for Acquire {
    fn signal(&mut self, signal: Signal<'_>, cx: &mut Cx<'_>) -> Next {
        // An address of a range that a station uses is about to be replaced by another: no server is asked.
        if self.phase != Phase::Ask || self.of_range().is_some() {
            return SAME;
        }
        if cx.own.exchange.is_closed()
            && self.client.is_to_discover(cx.now.boot)
            && self.holds_back(cx)
        {
            return SAME;
        }
        let from = signal.sender();
        let mut output = self.client.handle(cx.now.boot, signal);
        cx.out.counts.settled(output.settled);
        if let Some(resort) = &mut self.resort {
            let (lan, asks) = (&cx.own.identity.lan, self.client.tally().discovers > 0);
            resort.hear(lan, asks, output.heard.is_some(), cx);
        }
        warnings::tell(from, &output, cx);
        self.pace.goes_on(output.settled, cx.now.boot);
        if self.judge(&mut output, cx)? {
            return SAME;
        }
        tenancy::limit_declines(&mut output, cx);
        let asked = self.client.requesting();
        let Output {
            mut frames,
            verdict,
            listen,
            ..
        } = output;
        if !cx.own.probes_first() {
            cx.guard_request(asked, &mut frames);
        }
        siblings::send(&self.client, frames, cx);
        match verdict {
            Some(Verdict::Granted(lease)) if cx.own.probes_first() => self.probe_first(&lease, cx),
            // It is held back until it is known whether the station's claim counts. The sockets stay open.
            Some(Verdict::Granted(lease)) if cx.own.doubts(lease.ip()) => {
                self.enter(Phase::Probe);
                cx.out.report(cx.own.id, Report::ExchangeOver);
                SAME
            }
            Some(Verdict::Granted(_)) => self.make_durable(cx),
            Some(Verdict::Lost(lease, Loss::Conflict { by })) => {
                self.declined(&lease, by, cx)?;
                self.seek(cx)
            }
            Some(Verdict::Lost(..)) | None if listen => {
                cx.open(Sockets::new(cx.own.identity.chaddr, Hears::Answers), true);
                SAME
            }
            Some(Verdict::Lost(..)) | None => {
                cx.own.exchange.close(cx.out);
                SAME
            }
        }
    }

    fn stand(&self) -> Stand {
        match self.wanted {
            true => Stand::Acquiring,
            false => Stand::Leaving,
        }
    }

    /// A container that is adopted has its address, whatever its server says.
    fn claim(&self, now: Instant) -> Option<Claim> {
        let used = self
            .quest
            .adopts
            .filter(|_| !self.taken_off && self.wanted)
            .map(|address| claim_of_user(address.addr()));
        let claim =
            claim_of(&self.client, now).filter(|claim| claim.is_granted() || used.is_none());
        claim.or(used).filter(|_| self.phase != Phase::Over)
    }

    fn lease<'a>(&'a self, _common: &'a Common, _now: Instant) -> Option<&'a Lease> {
        None
    }

    fn client(&self) -> Option<&Client> {
        Some(&self.client)
    }

    fn client_mut(&mut self) -> Option<&mut Client> {
        Some(&mut self.client)
    }

    fn deadline(&self) -> Option<(Instant, Why)> {
        let own = match self.phase {
            Phase::Ask => self
                .client
                .deadline()
                .map(|(at, timer)| (at, Why::Dhcp(timer))),
            Phase::Probe => self
                .client
                .lease()
                .and_then(Lease::expires)
                .map(|at| (at, Why::Dhcp(Timer::Expire))),
            Phase::Queue | Phase::Write | Phase::Forget { .. } | Phase::Fit | Phase::Over => None,
        };
        let limit = self.is_limited().then_some((self.limit, Why::Call));
        let trusts = self.trusts_at().map(|at| (at, Why::Call));
        let resort = self.falls_back_at().map(|at| (at, Why::Call));
        let survey = self.survey_at().map(|at| (at, Why::Call));
        [own, survey, trusts, resort, limit]
            .into_iter()
            .flatten()
            .min_by_key(|(at, _)| *at)
    }

    fn record(&self, cx: &Cx<'_>) -> Option<Record> {
        let lease = self
            .client
            .lease()
            .filter(|_| *cx.own.persistence.wanted() != Want::Gone)?;
        let (taken_off, unconfirmed) = (self.taken_off, self.client.is_unconfirmed());
        let former = cx.own.former(cx.interfaces);
        Some(Record {
            former,
            taken_off,
            unconfirmed,
            ..cx.record(lease, RecordState::Bound)
        })
    }

    fn on_clock(&mut self, cx: &mut Cx<'_>) -> Next {
        if let Some(lease) = self.take_trusted(cx) {
            return self.trust(lease, cx);
        }
        if cx.now.boot < self.limit || !self.is_limited() {
            if self.phase == Phase::Probe && self.has_ended(cx.now.boot) {
                return self.seek_another(None, cx);
            }
            let falls_back = self.falls_back(cx.now.boot);
            let resort = self.resort.as_mut().filter(|_| falls_back);
            let asks_once_more = resort.is_some_and(|resort| resort.fall_back(&self.quest, cx));
            self.survey(cx);
            self.go_aside(cx);
            if asks_once_more {
                self.client.hurry(cx.now.boot);
            }
            // Its permit ends: whom a server ignores keeps no other from asking.
            if self.phase == Phase::Ask && self.client.retransmits(cx.now.boot) {
                cx.out.report(cx.own.id, Report::ExchangeOver);
            }
            return self.signal(Signal::Clock, cx);
        }
        let failure = match cx
            .own
            .claim()
            .filter(|_| matches!(self.phase, Phase::Probe | Phase::Fit))
        {
            Some((address, by)) if self.misses.in_use(&cx.own.identity.lan).is_none() => {
                Failure::Conflict { address, by }
            }
            Some(_) | None => timed_out(self, &cx.own.identity.lan, cx.now.boot),
        };
        self.abort(Some(failure), cx)
    }

    /// Fails the ADD at once if sockets cannot be had: its caller can do more about it than waiting can.
    fn on_unopened(&mut self, cause: LinkCause, cx: &mut Cx<'_>) -> Next {
        match self.phase {
            Phase::Ask if cx.own.come_back() => {
                tracing::info!(attachment = %cx.own.attachment, %cause, "no macvlan to ask from beside the LAN's link");
                self.client.reopens();
                self.signal(Signal::Clock, cx)
            }
            Phase::Ask => self.fail_link(cause, cx),
            // Its probes have no other sockets.
            Phase::Probe if cx.own.is_aside() && cx.own.probes_first() => self.fail_link(cause, cx),
            _ => SAME,
        }
    }

    fn on_frame(&mut self, frame: &Frame<'_>, cx: &mut Cx<'_>) -> Next {
        if let Frame::Arp(arp) = frame {
            self.reason.hear(arp);
        }
        self.signal(frame.into(), cx)
    }

    fn on_persisted(&mut self, result: Result<(), StoreCause>, cx: &mut Cx<'_>) -> Next {
        match self.phase {
            Phase::Write => self.on_written(result, cx),
            Phase::Forget { by } => self.forgot_won(result, by, cx),
            Phase::Queue | Phase::Ask | Phase::Probe | Phase::Fit | Phase::Over => SAME,
        }
    }

    fn on_worked(&mut self, outcome: Outcome, cx: &mut Cx<'_>) -> Next {
        self.on_sizing(outcome, cx)
    }

    fn on_parted(&mut self, cx: &mut Cx<'_>) -> Next {
        match self.phase == Phase::Fit {
            true => self.make_fit(cx),
            false => SAME,
        }
    }

    fn on_news(&mut self, news: News<'_>, cx: &mut Cx<'_>) -> Next {
        match news {
            News::Gone(cause) => self.fail_link(cause, cx),
            News::Free if self.phase == Phase::Fit => self.make_fit(cx),
            // What the interface carries does not belong to this binding yet.
            News::Free
            | News::Down
            | News::CarrierBack(_)
            | News::Ethernet(_)
            | News::AddressAdded(_)
            | News::Seen { .. } => SAME,
        }
    }

    fn on_found(&mut self, found: Found, cx: &mut Cx<'_>) -> Next {
        match found {
            Found::Free => {
                self.client.is_free();
                match self.phase {
                    Phase::Probe => self.make_durable(cx),
                    _ => SAME,
                }
            }
            Found::Unreached => SAME,
            Found::Unwatched(cause) if self.phase == Phase::Probe => self.fail_link(cause, cx),
            Found::Cleared | Found::Unwatched(_) => self.cleared(cx),
            Found::Conflict { by } => {
                cx.note_conflict(&self.client, by);
                self.on_conflict(by, cx)
            }
        }
    }

    fn on_permit(&mut self, sockets: Option<ExchangeId>, cx: &mut Cx<'_>) -> Next {
        if self.phase != Phase::Queue {
            return SAME;
        }
        if let Some(lease) = self.own_of_range(cx.now.boot) {
            sockets
                .into_iter()
                .for_each(|sockets| cx.out.close(sockets));
            return self.hold_as_before(lease, cx);
        }
        self.enter(Phase::Ask);
        self.queued = cx.now.boot.saturating_since(self.since);
        // A client with a lease that it would use without an answer has no time for that.
        if !self.queued.is_zero() && self.trusts.is_none() {
            self.client.is_one_of_many();
        }
        self.since = cx.now.boot;
        let discovers = self.client.is_to_discover(cx.now.boot);
        match sockets {
            None => self.signal(Signal::Clock, cx),
            Some(sockets) => {
                if discovers && self.holds_back(cx) {
                    cx.out.close(sockets);
                    return SAME;
                }
                cx.own.exchange.take(cx.own.id, sockets, cx.out);
                self.signal(Signal::Opened, cx)
            }
        }
    }
}
