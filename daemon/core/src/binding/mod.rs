//! One holder of a lease, from the moment its link is known: it acquires, holds, and gives back.
//!
//! A binding knows nothing about other bindings. It works through a [`Cx`], and reports what matters to the registry
//! by [`Report`]s. At any time at most one Persist, one Open and one Apply or Inspect that counts is under way.
//!
//! It has one life at a time ([`Life`]), which handles what happens: `acquire`, `hold` and `release` each say what they do, and
//! which life comes after ([`Next`]). All lives share [`Common`].
//!
//! | phase | may become |
//! |---|---|
//! | of an ADD, in `acquire` | as `acquire::phase` (`leads_to`) lists: Queue, Ask, Probe, Write and Fit in this order, back to Ask over Forget, and to Over |
//! | Fit | held. An adopted container's lease is held from Write on, even if the store refuses it |
//! | Ask to Fit | released, if nobody wants the lease any more |
//! | held | released. A lease that is lost is looked for as held |
//! | released | forgotten |

mod common;
mod cx;
mod holders;
mod life;
mod quest;
mod row;

use std::net::IpAddr;
use std::ops::{ControlFlow, Deref};
use std::sync::Arc;

use fastrand::Rng;
use ipnet::IpNet;

use self::common::guard::Found;
use self::common::persistence::Want;
pub(crate) use self::common::{Common, Leave};
pub(crate) use self::cx::{Cx, change};
pub(crate) use self::holders::Holders;
use self::holders::Standing;
pub(crate) use self::life::Life;
pub(crate) use self::life::acquire::{Abort, Acquire, Known};
pub(crate) use self::life::hold::Hold;
pub(crate) use self::life::release::{Owed, Release};
use self::life::{Living, Next, SAME};
pub(crate) use self::quest::Quest;
pub(crate) use self::row::row;

use crate::effect::{BindingState, ExchangeId, Outcome, StoreCause, Why};
use crate::event::EventKind;
use crate::interface::{At, Interfaces, News, Seat};
use crate::link::{LinkCause, LinkRoute, LinkView, Step};
use crate::outbox::{Report, Task, Waiter};
use crate::profile::Profile;
use crate::range::{NoAddress, RangeAddress};
use crate::rules::{Rule, cut};
use crate::source::{Client, InVain, Lease, Signal};
use crate::time::Instant;
use crate::wire::Mac;
use crate::wire::frame::{ArpOp, BadFrame, Frame};

/// One holder of a lease. It dereferences to what all its lives share.
#[derive(Debug)]
pub(crate) struct Binding {
    common: Common,
    pub(crate) life: Life,
}

impl Deref for Binding {
    type Target = Common;

    fn deref(&self) -> &Common {
        &self.common
    }
}

impl Binding {
    /// Returns a binding that will acquire once it has a permit.
    pub(crate) fn acquiring(common: Common, known: Known<'_>, now: Instant, rng: Rng) -> Self {
        let common = common.found(known.view);
        let acquire = known.acquire(&common, now, rng);
        Self {
            common,
            life: Life::Acquiring(Box::new(acquire)),
        }
    }

    /// Returns a binding that a record describes.
    pub(crate) fn of(common: Common, life: Life) -> Self {
        Self { common, life }
    }

    /// Returns the binding's standing: how far it is, and its claim on an address.
    pub(crate) fn standing(&self, now: Instant) -> Standing {
        self.life.get().standing(now)
    }

    /// Returns its interface, if that can be looked at: a host link shows nothing about the binding's container.
    pub(crate) fn watched(&self) -> Option<At> {
        let is_leaving = matches!(self.life, Life::Releasing(_));
        self.link.in_netns().filter(|_| !is_leaving)
    }

    /// Returns whether the binding is the live holder of its identity. An abandoned binding is not.
    pub(crate) fn is_live(&self) -> bool {
        self.life.get().is_live()
    }

    /// Returns the lease that the binding holds, if callers may hear about it, or gives back.
    pub(crate) fn lease(&self, now: Instant) -> Option<&Lease> {
        self.life.get().lease(&self.common, now)
    }

    /// Returns whether the binding's sockets are, or will be, on a host link.
    pub(crate) fn speaks_from_host(&self) -> bool {
        match &self.life {
            Life::Acquiring(_) | Life::Held(_) => self.broadcasts_on_host(),
            Life::Releasing(release) => release.speaks_from_host(),
        }
    }

    pub(crate) fn state(&self) -> BindingState {
        self.life.get().state()
    }

    /// Returns whether its container runs without a lease: it was lost, and another is looked for.
    pub(crate) fn lacks_lease(&self, now: Instant) -> bool {
        self.held_now().is_some() && self.lease(now).is_none()
    }

    /// Returns the lease that is held, if servers were asked in vain to extend or confirm it.
    pub(crate) fn unextended(&self, now: Instant) -> Option<(&Lease, InVain)> {
        let client = &self.held_now()?.client;
        client.lease().zip(client.unextended(now))
    }

    /// Returns when the clock next matters, and why.
    pub(crate) fn deadline(&self, interfaces: &Interfaces) -> Option<(Instant, Why)> {
        let seat = self.held_now().and_then(|_| self.common.seat(interfaces));
        let work = seat.and_then(Seat::wakes_at).map(|at| (at, Why::Work));
        let store = self
            .common
            .persistence
            .retry_at()
            .map(|at| (at, Why::Store));
        let all = [
            self.life.get().deadline(),
            work,
            store,
            self.common.guard_deadline(),
        ];
        all.into_iter().flatten().min_by_key(|(at, _)| *at)
    }

    /// Does what is due by the clock.
    pub(crate) fn on_clock(&mut self, cx: &mut Cx<'_>) {
        if self.common.persistence.take_retry(cx.now.boot) {
            self.life.get_mut().write(&mut self.common, cx);
        }
        if let Life::Held(hold) = &mut self.life {
            hold.on_time(&self.common, cx);
            hold.settle(&mut self.common, cx);
        }
        self.happens(cx, |life, common, cx| life.watch(common, cx));
        self.happens(cx, |life, common, cx| life.on_clock(common, cx));
    }

    /// Has its record written again, which gives the lease's age by the wall clock: somebody set that clock. `may_be_late`:
    /// time may have passed that the boot clock has not counted.
    pub(crate) fn on_wall_set(&mut self, may_be_late: bool, cx: &mut Cx<'_>) {
        let records = !cut(Rule::WallSet);
        self.keeps(cx, |hold, common, cx| {
            if records {
                hold.record_again();
            }
            if may_be_late {
                hold.confirm(common, "the wall clock was set forward", cx);
            }
        });
        if records {
            self.gives_back(cx, |release, common, cx| release.record_again(common, cx));
        }
    }

    /// Goes on with the outcome of an effect.
    pub(crate) fn on_done(&mut self, task: Task, outcome: Outcome, cx: &mut Cx<'_>) {
        match (task, outcome) {
            (Task::Open(exchange), Outcome::Opened(Ok(()))) => self.on_opened(exchange, cx),
            (Task::Open(exchange), Outcome::Opened(Err(cause))) => {
                self.on_broken(exchange, cause, cx)
            }
            (Task::Persist, Outcome::Persisted(result)) => self.on_persisted(result, cx),
            (Task::Work, outcome) => {
                self.happens(cx, |life, common, cx| life.on_worked(common, outcome, cx))
            }
            (Task::Survey, Outcome::Surveyed(survey)) => {
                if let Life::Acquiring(acquire) = &mut self.life {
                    acquire.on_surveyed(survey);
                }
            }
            (Task::ListInside, Outcome::Inside(macs)) => {
                self.happens(cx, |life, common, cx| life.on_inside(common, macs, cx))
            }
            (Task::Release, Outcome::Sent(result)) => self.gives_back(cx, |release, common, cx| {
                release.on_sent(common, result, cx)
            }),
            (Task::FindAddress, Outcome::Inspected(result)) => {
                self.gives_back(cx, |release, common, cx| {
                    release.on_inside(common, result, cx)
                });
            }
            (Task::FindLine, Outcome::Inspected(result)) => self.on_line(result, cx),
            (Task::Close(_), Outcome::Closed) => {
                self.happens(cx, |life, common, cx| life.on_parted(common, cx))
            }
            (task, outcome) => {
                tracing::warn!(?task, ?outcome, "outcome of another kind of effect")
            }
        }
    }

    /// Goes on with a frame of the binding's exchange.
    pub(crate) fn on_frame(&mut self, exchange: ExchangeId, frame: &Frame<'_>, cx: &mut Cx<'_>) {
        let is_own = self.common.exchange.is_open(exchange);
        let guard_hears = if is_own {
            self.common.guard_shares()
        } else {
            self.common.guard_hears(exchange)
        };
        if let Frame::Arp(arp) = frame {
            // It may be a server's answer from the wire. An answer to a question of the container's may come from a sibling.
            if arp.op == ArpOp::Reply && arp.target.is_unspecified() {
                cx.conflicts.answered(&self.common.identity.lan, arp.sender);
            }
            if guard_hears {
                self.happens(cx, |life, common, cx| life.hear(common, arp, cx));
            }
        }
        if is_own {
            self.happens(cx, |life, common, cx| life.on_frame(common, frame, cx));
        }
    }

    /// Goes on after an unreadable frame that looks like an answer.
    pub(crate) fn on_unreadable(
        &mut self,
        exchange: ExchangeId,
        cause: BadFrame,
        from: Mac,
        cx: &mut Cx<'_>,
    ) {
        match self.common.exchange.is_open(exchange) && self.client().is_some() {
            true => self.happens(cx, |life, common, cx| {
                life.signal(common, Signal::Unreadable { cause, from }, cx)
            }),
            false => cx.out.counts.refused(cause),
        }
    }

    /// Records that the link did not take one of the client's messages, and reports it once.
    pub(crate) fn on_unsent(&mut self, exchange: ExchangeId, cause: &LinkCause) {
        let common = &mut self.common;
        let client = self.life.get_mut().client_mut();
        if let Some(client) = client.filter(|_| common.exchange.is_open(exchange)) {
            client.on_unsent(cause.to_string());
            if common.warnings.is_new(&cause.to_string()) {
                tracing::warn!(attachment = %common.attachment, %cause, "message not sent");
            }
        }
    }

    fn on_opened(&mut self, exchange: ExchangeId, cx: &mut Cx<'_>) {
        if self.common.exchange.opened(exchange) {
            self.happens(cx, |life, common, cx| life.on_opened(common, cx));
        } else if self.common.guard_opened(exchange) {
            self.happens(cx, |life, common, cx| life.watch(common, cx));
        }
    }

    /// Goes on after the sockets of an exchange could not be opened, or failed.
    pub(crate) fn on_broken(&mut self, exchange: ExchangeId, cause: LinkCause, cx: &mut Cx<'_>) {
        if self.common.is_guards(exchange) {
            return self.happens(cx, |life, common, cx| {
                let is_lost = !common.broadcasts_on_host() && life.is_lost(common, &cause, cx);
                match common.unwatch(cause.clone(), is_lost, cx) {
                    Some(_) if is_lost => life.on_news(common, News::Gone(cause), cx),
                    Some(found) => life.on_found(common, found, cx),
                    None => SAME,
                }
            });
        }
        if self.common.exchange.is(exchange) {
            let cause = self.common.lose_sockets(cause, cx);
            self.happens(cx, |life, common, cx| life.on_unopened(common, cause, cx));
        }
    }

    fn on_line(&mut self, result: Result<LinkView, LinkCause>, cx: &mut Cx<'_>) {
        if self.common.exchange.found() {
            self.happens(cx, |life, common, cx| life.on_line(common, result, cx));
        }
    }

    /// Goes on after a write. If there is more to write, this outcome is out of date, and the life waits for that of the next
    /// write.
    fn on_persisted(&mut self, result: Result<(), StoreCause>, cx: &mut Cx<'_>) {
        self.common.written(result.is_ok(), cx);
        self.life.get_mut().write(&mut self.common, cx);
        if self.common.persistence.busy() {
            return;
        }
        self.common.persistence.settled(result.is_ok());
        if result.is_ok() {
            let replaced = self.common.persistence.take_replaced();
            // If the first write fails, an adoption is held before its record is written.
            if matches!(self.life, Life::Held(_)) && !replaced.is_empty() {
                cx.out.report(self.common.id, Report::Replaced(replaced));
            }
        }
        self.happens(cx, |life, common, cx| life.on_persisted(common, result, cx));
    }

    /// Goes on with what happened at the interface.
    pub(crate) fn on_news(&mut self, news: News<'_>, cx: &mut Cx<'_>) {
        if let News::Ethernet(mac) = news {
            self.common.on_ethernet(mac);
        }
        self.happens(cx, |life, common, cx| life.on_news(common, news, cx));
    }

    pub(crate) fn on_permit(&mut self, sockets: Option<ExchangeId>, cx: &mut Cx<'_>) {
        self.happens(cx, |life, common, cx| life.on_permit(common, sockets, cx));
    }

    /// Goes on with an address of a local range, or without one.
    pub(crate) fn on_resort(&mut self, given: Result<RangeAddress, NoAddress>, cx: &mut Cx<'_>) {
        if let Life::Acquiring(acquire) = &mut self.life {
            let next = acquire.on_resort(&mut self.common, given, cx);
            self.enter(next, cx);
        }
    }

    pub(crate) fn close(&mut self, cx: &mut Cx<'_>) {
        self.common.close(cx);
    }

    /// Abandons the acquisition.
    pub(crate) fn abort(&mut self, abort: Abort, cx: &mut Cx<'_>) {
        if let Life::Acquiring(acquire) = &mut self.life {
            let next = acquire.abort(&mut self.common, abort, cx);
            self.enter(next, cx);
        }
    }

    /// Ends a held binding: gives back the lease, or whatever a server may hold for it.
    pub(crate) fn give_back(&mut self, why: Leave, cx: &mut Cx<'_>) {
        match &mut self.life {
            Life::Held(hold) => {
                let life = hold.give_back(&mut self.common, why, cx);
                self.enter(ControlFlow::Break(life), cx);
            }
            Life::Releasing(release) if matches!(why, Leave::Deleted | Leave::Released) => {
                release.hurry(&mut self.common, cx)
            }
            Life::Acquiring(_) | Life::Releasing(_) => {}
        }
    }

    /// Returns whether only broadcasts reach its container, as far as is known.
    pub(crate) fn is_unreached(&self) -> bool {
        self.held_now().is_some_and(Hold::is_unreached)
    }

    /// Has it find out whether anything but broadcasts reaches its container.
    pub(crate) fn doubts_reach(&mut self, lease: &Lease) {
        self.common.doubts_reach(lease);
    }

    pub(crate) fn client(&self) -> Option<&Client> {
        self.life.get().client()
    }

    /// Returns whether it holds a lease, or looks for one again: as far as is known, its container lives.
    pub(crate) fn is_held(&self) -> bool {
        self.held_now().is_some()
    }

    /// Returns whether it is held by an interface inside its container.
    pub(crate) fn is_inside(&self) -> bool {
        self.is_held() && !self.is_on_host()
    }

    pub(crate) fn is_unwritten(&self) -> bool {
        self.held_now()
            .is_some_and(|hold| hold.is_unwritten(&self.common))
    }

    /// Returns whether there is a lease that is not reported yet, because the store has not written it.
    pub(crate) fn waits_for_store(&self, now: Instant) -> bool {
        self.held_now()
            .is_some_and(|hold| hold.waits_for_store(&self.common, now))
    }

    pub(crate) fn expected_address(&self, interfaces: &Interfaces) -> Option<IpAddr> {
        self.held_now()?.expected_address(&self.common, interfaces)
    }

    pub(crate) fn is_changing(&self, interfaces: &Interfaces, now: Instant) -> bool {
        self.held_now()
            .is_some_and(|hold| hold.is_changing(&self.common, interfaces, now))
    }

    /// Returns a route that the daemon has put on and that is not seen on the interface.
    pub(crate) fn lacks_route(
        &self,
        view: &LinkView,
        interfaces: &Interfaces,
    ) -> Option<LinkRoute> {
        let lease = self.held_now()?.client.lease()?;
        self.common
            .seat(interfaces)?
            .lacks_route(&self.common.grant(lease), view)
    }

    /// Returns whether to announce the leased address, if it is still there: the interface's Ethernet address has changed.
    pub(crate) fn is_to_announce(&self, interfaces: &Interfaces) -> bool {
        self.held_now().is_some() && interfaces.has_moved(&self.common.link, self.common.id)
    }

    /// Returns the steps that take this binding's leases off an interface with these addresses, before another takes its place.
    pub(crate) fn leavings(
        &self,
        addresses: &[IpNet],
        interfaces: &Interfaces,
        now: Instant,
    ) -> Vec<Step> {
        let Some((hold, seat)) = self.held_now().zip(self.common.seat(interfaces)) else {
            return Vec::new();
        };
        let is_held = hold.client.lease().is_some_and(|lease| !lease.expired(now));
        seat.leavings(&hold.holding(&self.common), is_held, addresses)
    }

    /// Returns the Ethernet address by which to look for the lease's interface, if the interface is not known.
    pub(crate) fn sought(&self) -> Option<Mac> {
        let is_sought =
            self.is_on_host() && !self.profile.on_parent && self.profile.wants.is_found_later();
        self.held_now()
            .filter(|_| is_sought)
            .map(|_| self.link.mac())
    }

    /// Returns whether it holds a lease on the LAN's link, for which no interface of a container is known.
    pub(crate) fn holds_on_host(&self) -> bool {
        self.held_now().is_some() && self.is_on_host()
    }

    /// Returns whether its runtime may have put this address on its interface, although its lease no longer has it, or has it
    /// with another mask.
    pub(crate) fn may_be_outdated(&self, address: IpAddr) -> bool {
        let hold = self
            .held_now()
            .filter(|_| self.told.is_some_and(|told| told.addr() == address));
        hold.is_some_and(|hold| hold.holding(&self.common).outdated().is_some())
    }

    pub(crate) fn note_lease(&self, kind: EventKind, cause: &str, cx: &mut Cx<'_>) {
        self.held_now()
            .into_iter()
            .for_each(|hold| self.common.note(kind, &hold.last, cause, cx));
    }

    pub(crate) fn set_profile(&mut self, profile: Arc<Profile>, cx: &mut Cx<'_>) {
        self.common.profile = profile;
        self.keeps(cx, |hold, _, _| hold.record_again());
    }

    /// Records that a main plugin is about to put the address on again, without some of the routes.
    pub(crate) fn route_again(&mut self, cx: &mut Cx<'_>) {
        self.keeps(cx, Hold::route_again);
    }

    /// Returns until when a lease is kept for its container to return.
    pub(crate) fn kept_until(&self) -> Option<Instant> {
        self.releasing_now()?.waits_until()
    }

    pub(crate) fn is_to_remember(&self) -> bool {
        self.releasing_now()
            .is_some_and(|release| release.is_to_remember(&self.common))
    }

    /// Ends without a RELEASE if another live binding has the address by now.
    pub(crate) fn give_way(&mut self, cx: &mut Cx<'_>) {
        self.gives_back(cx, |release, common, cx| _ = release.give_way(common, cx));
    }

    /// Ends, because a successor's write removed this record. Returns whether that is all; a later write of its own is undone.
    pub(crate) fn replaced(&mut self, cx: &mut Cx<'_>) -> bool {
        let Life::Releasing(release) = &mut self.life else {
            return true;
        };
        release.replaced(&mut self.common, cx)
    }

    /// Returns the release, if the binding is in that life.
    fn releasing_now(&self) -> Option<&Release> {
        let Life::Releasing(release) = &self.life else {
            return None;
        };
        Some(release)
    }

    /// Returns how the lease is held, if it is.
    fn held_now(&self) -> Option<&Hold> {
        let Life::Held(hold) = &self.life else {
            return None;
        };
        Some(hold)
    }

    /// Lets the life go on with what happened.
    fn happens(
        &mut self,
        cx: &mut Cx<'_>,
        what: impl FnOnce(&mut dyn Living, &mut Common, &mut Cx<'_>) -> Next,
    ) {
        let next = what(self.life.get_mut(), &mut self.common, cx);
        self.enter(next, cx);
    }

    /// Lets a lease that is held go on with what happened.
    pub(crate) fn holds(
        &mut self,
        cx: &mut Cx<'_>,
        what: impl FnOnce(&mut Hold, &mut Common, &mut Cx<'_>) -> Next,
    ) {
        if let Life::Held(hold) = &mut self.life {
            let next = what(hold, &mut self.common, cx);
            self.enter(next, cx);
        }
    }

    /// Lets a lease that is held go on with something that ends no life.
    pub(crate) fn keeps(
        &mut self,
        cx: &mut Cx<'_>,
        what: impl FnOnce(&mut Hold, &mut Common, &mut Cx<'_>),
    ) {
        self.holds(cx, |hold, common, cx| {
            what(hold, common, cx);
            SAME
        });
    }

    /// Lets a release go on with what happened.
    pub(crate) fn gives_back(
        &mut self,
        cx: &mut Cx<'_>,
        what: impl FnOnce(&mut Release, &mut Common, &mut Cx<'_>),
    ) {
        if let Life::Releasing(release) = &mut self.life {
            what(release, &mut self.common, cx);
        }
    }

    /// Enters the next life, if any, and does what follows. Once a lease is no longer held, nothing is left to do at its interface.
    fn enter(&mut self, next: Next, cx: &mut Cx<'_>) {
        if let ControlFlow::Break(life) = next {
            let before = std::mem::replace(&mut self.life, life);
            if let (Life::Releasing(_), Life::Held(_)) = (&self.life, &before) {
                self.common.has_done(cx);
            }
        }
        self.life.get_mut().settle(&mut self.common, cx);
    }
}
