//! Acquiring: from a link that is up to a durable lease, within an ADD's time-out.
//!
//! permit → exchange → Persist → MTU → held. Given up before REQUEST, the exchange just closes; after it, a RELEASE goes
//! out on the same sockets; once the lease is being made durable, it is given back like any other. Where somebody else is
//! known to use the address it is a DECLINE in either case.

mod again;
mod undo;

use std::net::Ipv4Addr;
use std::time::Duration;

pub(crate) use self::again::{Again, Refused};
use super::hold::Hold;
use super::persistence::Want;
use super::{Binding, Cx, Holder, Life, Reason, Report, told};
use crate::conflict;
use crate::dhcpv4::lease::Lease;
use crate::dhcpv4::profile::Profile;
use crate::dhcpv4::timing::Timer;
use crate::dhcpv4::{Client, Event, Loss, Output, Verdict};
use crate::effect::{ExchangeId, Failure, StoreCause, Why};
use crate::event::EventKind;
use crate::identity::{Attachment, Lan};
use crate::link::{Hears, LinkCause, Sockets, Target};
use crate::plan;
use crate::record::BindingId;
use crate::time::{Instant, whole_millis};
use crate::wire::Mac;
use crate::wire::frame::{BadFrame, Frame};

/// How long an ADD waits for an offer before a lease that is kept on its LAN goes back for it: all addresses may be taken.
const ROOM_AFTER: Duration = Duration::from_secs(4);

/// From there to the next one: as long as from one DISCOVER to the next at most, so that there is one after each.
const ROOM_AGAIN: Duration = Duration::from_secs(8);

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
    /// Somebody has taken that address off its interface since.
    pub(crate) taken_off: bool,
    /// The only address that will do.
    pub(crate) insists: Option<Ipv4Addr>,
    /// When the next lease goes back for it if it has no offer by then.
    pub(crate) room_at: Option<Instant>,
    /// Why it has no offer.
    pub(crate) reason: Reason,
    /// The addresses that others were heard to use, and who. An offer of one may come again before it could be declined.
    pub(crate) taken: Vec<(Ipv4Addr, Mac)>,
    /// The addresses that it has declined, and who uses each.
    pub(crate) declined: Vec<(Ipv4Addr, Mac)>,
    /// How the MTU was set, where the lease is in doubt since.
    pub(crate) sized: Option<Box<Result<u32, LinkCause>>>,
    /// What it was offered that is another's.
    pub(crate) again: Again,
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
    /// The lease is durable; a station claims its address, and is asked whether it claims every address.
    Doubting,
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
            Stage::AwaitingPermit | Stage::Exchanging | Stage::Probing | Stage::Doubting | Stage::Sizing => true,
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
            | Stage::Doubting
            | Stage::Forgetting { .. }
            | Stage::Sizing
            | Stage::Over => None,
        };
        let limit = self.is_limited().then_some((self.limit, Why::Call));
        let room = self.room_at().map(|at| (at, Why::Call));
        [own, self.survey_at(), room, limit].into_iter().flatten().min_by_key(|(at, _)| *at)
    }

    /// Tells the client what was heard before of the address that it asks for.
    fn recall_taken(&mut self, now: Instant) {
        let Some((address, false)) = self.client.requesting() else { return };
        if let Some((_, by)) = self.taken.iter().find(|(taken, _)| *taken == address) {
            self.client.handle(now, Event::Conflict { by: *by });
        }
    }

    fn room_at(&self) -> Option<Instant> {
        self.room_at.filter(|_| self.stage == Stage::Exchanging && self.client.selects())
    }

    /// Returns whether there are routes that the main plugin will not be told of. A container that ran before has what it has.
    pub(super) fn leaves_routes(&self, profile: &Profile) -> bool {
        !self.adopts && self.client.lease().is_some_and(|lease| plan::has_late(lease, profile))
    }

    /// Tells whether the lease that there is has ended.
    pub(super) fn has_ended(&self, now: Instant) -> bool {
        self.client.lease().is_some_and(|lease| lease.expired(now))
    }

    /// Tells whether it is given up at its limit. What a server has confirmed to a container that runs is held on to.
    fn is_limited(&self) -> bool {
        let confirmed = match self.stage {
            Stage::Persisting { .. } | Stage::Doubting | Stage::Forgetting { .. } | Stage::Sizing => self.adopts,
            Stage::AwaitingPermit | Stage::Exchanging | Stage::Probing | Stage::Over => false,
        };
        self.is_wanted() && !confirmed
    }

    /// Returns why there is no lease although the time is up.
    fn timed_out(&self, lan: &Lan, now: Instant) -> Failure {
        if let Some(failure) = self.in_use(lan).filter(|_| matches!(self.stage, Stage::Probing | Stage::Doubting)) {
            return failure;
        }
        let waited = whole_millis(now.saturating_since(self.began));
        let waiting_for = match self.stage {
            Stage::AwaitingPermit | Stage::Over => "its turn: other ADDs on the same LAN wait for the DHCP server",
            Stage::Probing => "the probes of strict conflict detection, which take up to 7 s: raise `timeout`",
            Stage::Persisting { .. } => "the store to write the lease",
            Stage::Forgetting { by: Some(_), .. } => "the store to forget an address that is in use by somebody else",
            Stage::Forgetting { by: None, .. } => "the store to forget a lease that has ended",
            Stage::Doubting => "word whether a station that claims the address claims every address",
            Stage::Sizing => "the interface's MTU to be set",
            Stage::Exchanging => return self.unanswered(lan, now),
        };
        Failure::TimedOut { waiting_for, waited }
    }

    /// Returns that another address was offered than the only one that will do, and by whom.
    fn not_wanted(&self) -> Option<Failure> {
        let (server, offered) = self.client.tally().unwanted?;
        self.insists.map(|wanted| Failure::NotWanted { server, wanted, offered })
    }

    /// Returns that others use what it was offered, if any was.
    pub(super) fn in_use(&self, lan: &Lan) -> Option<Failure> {
        match &self.declined[..] {
            [] => None,
            [(address, by)] => Some(Failure::Conflict { address: *address, by: *by }),
            declined => Some(Failure::Conflicts { lan: lan.clone(), declined: declined.to_vec() }),
        }
    }

    fn unanswered(&self, lan: &Lan, now: Instant) -> Failure {
        let (tally, waited, queued) =
            (self.client.tally(), whole_millis(now.saturating_since(self.since)), whole_millis(self.queued));
        if let Some(failure) = self.not_wanted().filter(|_| tally.declined.is_none()) {
            return failure;
        }
        if let Some(failure) = self.again.failure().filter(|_| tally.requested.is_none() && tally.declined.is_none()) {
            return failure;
        }
        if let Some((server, address, message)) = tally.nak.clone() {
            let in_vain = if tally.requested.is_none() { tally.discovers } else { 0 };
            return Failure::Nak { server, address, message, in_vain };
        }
        if let Some(failure) = self.in_use(lan).filter(|_| tally.declined.is_some()) {
            return failure;
        }
        if let Some((server, address, sent)) = tally.requested {
            return Failure::NoAck { server, address, sent, waited, queued, tally: Box::new(tally.clone()) };
        }
        Failure::NoOffer {
            lan: lan.clone(),
            sent: tally.discovers,
            waited,
            queued,
            tally: Box::new(tally.clone()),
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

    /// Begins the exchange, over `sockets` where some were opened for it: there is a permit.
    pub(crate) fn on_permit(&mut self, sockets: Option<ExchangeId>, cx: &mut Cx<'_>) {
        let Life::Acquiring(acquire) = &mut self.life else { return self.hold_on_permit(cx) };
        if acquire.stage != Stage::AwaitingPermit {
            return;
        }
        acquire.stage = Stage::Exchanging;
        acquire.queued = cx.now.boot.saturating_since(acquire.since);
        acquire.since = cx.now.boot;
        acquire.room_at = (!acquire.adopts).then(|| cx.now.boot + ROOM_AFTER);
        let discovers = acquire.client.is_to_discover(cx.now.boot);
        match sockets {
            None => self.acquire_event(Event::Clock, cx),
            Some(sockets) if discovers && !self.may_try(cx) => cx.out.close(sockets),
            Some(sockets) => {
                self.exchange.take(self.id, sockets, cx);
                self.acquire_event(Event::Opened, cx);
            }
        }
    }

    pub(super) fn acquire_on_clock(&mut self, cx: &mut Cx<'_>) {
        let Life::Acquiring(acquire) = &self.life else { return };
        if cx.now.boot < acquire.limit || !acquire.is_limited() {
            if acquire.stage == Stage::Probing && acquire.has_ended(cx.now.boot) {
                return self.seek_another(None, cx);
            }
            self.survey(cx);
            self.want_room(cx);
            return self.acquire_event(Event::Clock, cx);
        }
        let failure = match self.claim().filter(|_| matches!(acquire.stage, Stage::Probing | Stage::Doubting)) {
            Some((address, by)) if acquire.declined.is_empty() => Failure::Conflict { address, by },
            Some(_) | None => acquire.timed_out(&self.identity.lan, cx.now.boot),
        };
        self.abort(Abort::Because(failure), cx);
    }

    /// Has a lease go back that is kept, if there is no offer and it is time.
    fn want_room(&mut self, cx: &mut Cx<'_>) {
        let Life::Acquiring(acquire) = &mut self.life else { return };
        if acquire.room_at().is_some_and(|at| cx.now.boot >= at) {
            acquire.room_at = Some(cx.now.boot + ROOM_AGAIN);
            cx.out.report(self.id, Report::WantsRoom);
        }
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

    pub(super) fn acquire_on_unreadable(&mut self, cause: BadFrame, from: Mac, cx: &mut Cx<'_>) {
        self.acquire_event(Event::Unreadable { cause, from }, cx);
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
        if self.exchange.is_closed() && acquire.client.is_to_discover(cx.now.boot) && !self.may_try(cx) {
            return;
        }
        let Life::Acquiring(acquire) = &mut self.life else { return };
        let from = told::sender(&event);
        let mut output = acquire.client.handle(cx.now.boot, event);
        self.tell_refused(from, &output, cx);
        if self.acquire_refuses(&mut output, cx) {
            return;
        }
        let Life::Acquiring(acquire) = &mut self.life else { return };
        acquire.recall_taken(cx.now.boot);
        let asked = acquire.client.requesting();
        let unwanted = acquire.not_wanted().filter(|_| acquire.adopts);
        let Output { mut frames, verdict, listen, .. } = output;
        self.guard_request(asked, &mut frames, cx);
        if let Some(Verdict::Lost(lease, Loss::Conflict { .. })) = &verdict
            && !self.may_decline(lease, cx)
        {
            frames.clear();
        }
        self.exchange.send(frames, cx);
        match verdict {
            Some(Verdict::Won(lease)) if self.probes_first() => self.probe_first(&lease, cx),
            Some(Verdict::Won(lease)) if self.doubts(lease.ip()) => self.await_control(cx),
            Some(Verdict::Won(_)) => self.make_durable(cx),
            Some(Verdict::Lost(lease, Loss::Conflict { by })) => {
                self.acquire_declined(&lease, by, cx);
                self.acquire_again(cx);
            }
            Some(Verdict::Unwanted { server, wanted, offered }) => {
                self.abort(Abort::Because(Failure::NotWanted { server, wanted, offered }), cx);
            }
            // A container that runs is asked for again later: others wait for their turn.
            None if let Some(failure) = unwanted => self.abort(Abort::Because(failure), cx),
            Some(Verdict::Kept(_) | Verdict::Lost(..)) | None if listen => {
                self.open(Sockets { chaddr: self.identity.chaddr, arp: Hears::Answers, hold_port: None }, true, cx);
            }
            Some(Verdict::Kept(_) | Verdict::Lost(..)) | None => self.exchange.close(cx),
        }
    }

    /// Somebody else uses the address. One that is only asked for is declined with its ACK.
    pub(super) fn acquire_on_conflict(&mut self, by: Mac, cx: &mut Cx<'_>) {
        let claim = self.claim();
        let Life::Acquiring(acquire) = &mut self.life else { return };
        match acquire.stage {
            Stage::Exchanging => {
                acquire.taken.extend(claim);
                self.acquire_event(Event::Conflict { by }, cx);
            }
            Stage::Probing => self.seek_another(Some(by), cx),
            Stage::Doubting => self.forget_won(Some(by), false, cx),
            Stage::Sizing if let Some(result) = acquire.sized.take() => self.sized(*result, cx),
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
        // What was leased under the identity and is another address goes back once this one is held.
        let own = acquire.client.lease().map(Lease::ip);
        let claim = |id: &BindingId| cx.holders.standing(*id).and_then(|standing| standing.claim);
        acquire.replaces.retain(|id| claim(id).is_none_or(|claim| Some(claim.address) == own));
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
        match (acquire.adopts, self.predecessors.is_empty()) {
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
            Stage::AwaitingPermit
            | Stage::Exchanging
            | Stage::Probing
            | Stage::Doubting
            | Stage::Sizing
            | Stage::Over => return,
        };
        if result.is_ok() {
            cx.out.report(self.id, Report::Replaced(std::mem::take(&mut acquire.replaces)));
        }
        match (result, aborted) {
            (Ok(()), aborted) if let Some(by) = self.heard_conflict() => self.forget_won(Some(by), aborted, cx),
            (Ok(()), true) if let Some((_, by)) = self.claim() => self.forget_won(Some(by), true, cx),
            (Ok(()), true) => self.give_back_won(cx),
            (Ok(()), false) if self.is_in_doubt() => self.doubt_durable(),
            (Ok(()), false) => self.go_on_durable(cx),
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

    /// The lease is durable, and a station claims its address. The sockets stay open.
    fn doubt_durable(&mut self) {
        if let Life::Acquiring(acquire) = &mut self.life {
            acquire.stage = Stage::Doubting;
        }
    }

    /// The lease is durable, and nobody is known to use its address.
    fn go_on_durable(&mut self, cx: &mut Cx<'_>) {
        self.hand_over(cx);
        self.make_fit(cx);
    }

    /// Goes on after all that claim the address were found to claim every address.
    pub(super) fn acquire_cleared(&mut self, cx: &mut Cx<'_>) {
        let Life::Acquiring(acquire) = &mut self.life else { return };
        match acquire.stage {
            Stage::Doubting => self.go_on_durable(cx),
            Stage::Sizing if let Some(result) = acquire.sized.take() => self.sized(*result, cx),
            Stage::AwaitingPermit
            | Stage::Exchanging
            | Stage::Probing
            | Stage::Persisting { .. }
            | Stage::Forgetting { .. }
            | Stage::Sizing
            | Stage::Over => {}
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
            Stage::Doubting | Stage::Sizing => match self.claim() {
                Some((_, by)) => self.forget_won(Some(by), true, cx),
                None => self.give_back_won(cx),
            },
        }
    }

    /// Fails the ADD because of its link.
    pub(super) fn fail_link(&mut self, cause: LinkCause, cx: &mut Cx<'_>) {
        let target = Target::Known(self.link.clone()).to_string();
        self.abort(Abort::Because(Failure::Link { target, cause }), cx);
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
        client.set_mtu(acquire.mtu);
        cx.out.report(self.id, Report::Leased { lease: Box::new((*lease).clone()), began: acquire.began });
        let (adopts, taken_off, leaves_routes) =
            (acquire.adopts, acquire.taken_off, acquire.leaves_routes(&self.profile));
        self.guard_lease(lease.ip(), adopts && !taken_off, cx);
        let mut hold = Hold::new(client, lease);
        if taken_off {
            hold.take_off();
        }
        self.life = Life::Held(Box::new(hold));
        if leaves_routes {
            self.route_later();
        }
    }
}

fn log_acquired(attachment: &Attachment, lease: &Lease) {
    let seconds = lease.times.map(|times| times.end.as_secs());
    tracing::info!(%attachment, address = %lease.address, server = %lease.server, seconds, "lease acquired");
}
