//! The lives of a binding: what each does when something happens, and what comes after it.

pub(super) mod acquire;
pub(super) mod hold;
pub(super) mod release;

use std::ops::ControlFlow;

use super::holders::{Claim, Stand};
use super::{Acquire, Common, Cx, Found, Hold, Leave, Release, Want};
use crate::effect::{BindingState, ExchangeId, Failure, Outcome, StoreCause, Why};
use crate::interface::News;
use crate::limits::Limits;
use crate::link::{LinkCause, LinkView};
use crate::outbox::{Report, Task};
use crate::range::{NoAddress, RangeAddress};
use crate::record::Record;
use crate::rules::{Rule, cut};
use crate::source::{Client, Lease, Signal};
use crate::time::Instant;
use crate::wire::Mac;
use crate::wire::frame::{Arp, ArpOp, BadFrame, Frame};

/// The life of a binding.
#[derive(Debug)]
pub(crate) enum Life {
    /// An ADD waits for a lease.
    Acquiring(Box<Acquire>),
    /// A lease is held, or looked for again.
    Held(Box<Hold>),
    /// The lease is being given back.
    Releasing(Box<Release>),
}

impl Life {
    /// Applies other limits to an ADD that waits for a lease.
    pub(crate) fn limit(&mut self, limits: &Limits) {
        match self {
            Self::Acquiring(acquire) => acquire.limit(limits),
            Self::Held(_) | Self::Releasing(_) => {}
        }
    }

    /// Returns the life, for queries.
    pub(super) fn get(&self) -> &dyn Living {
        match self {
            Self::Acquiring(acquire) => &**acquire,
            Self::Held(hold) => &**hold,
            Self::Releasing(release) => &**release,
        }
    }

    /// Returns the life, mutably. This is the only place that finds the life to which something happens.
    pub(super) fn get_mut(&mut self) -> &mut dyn Living {
        match self {
            Self::Acquiring(acquire) => &mut **acquire,
            Self::Held(hold) => &mut **hold,
            Self::Releasing(release) => &mut **release,
        }
    }
}

// What happens to it.
impl Life {
    /// Does what is due by the clock.
    pub(crate) fn on_clock(&mut self, cx: &mut Cx<'_>) {
        if cx.own.persistence.take_retry(cx.now.boot) {
            self.get_mut().write(cx);
        }
        if let Self::Held(hold) = self {
            hold.on_time(cx);
            hold.settle(cx);
        }
        self.happens(cx, |life, cx| life.watch(cx));
        self.happens(cx, |life, cx| life.on_clock(cx));
    }

    /// Has its record written again, which gives the lease's age by the wall clock: somebody set that clock. `may_be_late`:
    /// time may have passed that the boot clock has not counted.
    pub(crate) fn on_wall_set(&mut self, may_be_late: bool, cx: &mut Cx<'_>) {
        let records = !cut(Rule::WallSet);
        self.keeps(cx, |hold, cx| {
            if records {
                hold.record_again();
            }
            if may_be_late {
                hold.confirm("the wall clock was set forward", cx);
            }
        });
        if records {
            self.gives_back(cx, |release, cx| release.record_again(cx));
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
            (Task::Work, outcome) => self.happens(cx, |life, cx| life.on_worked(outcome, cx)),
            (Task::Survey, Outcome::Surveyed(survey)) => {
                if let Self::Acquiring(acquire) = self {
                    acquire.on_surveyed(survey);
                }
            }
            (Task::ListInside, Outcome::Inside(macs)) => {
                self.happens(cx, |life, cx| life.on_inside(macs, cx))
            }
            (Task::Release, Outcome::Sent(result)) => {
                self.gives_back(cx, |release, cx| release.on_sent(result, cx))
            }
            (Task::FindAddress, Outcome::Inspected(result)) => {
                self.gives_back(cx, |release, cx| release.on_inside(result, cx));
            }
            (Task::FindLine, Outcome::Inspected(result)) => self.on_line(result, cx),
            (Task::Close(_), Outcome::Closed) => self.happens(cx, |life, cx| life.on_parted(cx)),
            (task, outcome) => {
                tracing::warn!(?task, ?outcome, "outcome of another kind of effect")
            }
        }
    }

    /// Goes on with a frame of the binding's exchange.
    pub(crate) fn on_frame(&mut self, exchange: ExchangeId, frame: &Frame<'_>, cx: &mut Cx<'_>) {
        let is_own = cx.own.exchange.is_open(exchange);
        let guard_hears = if is_own {
            cx.own.guard_shares()
        } else {
            cx.own.guard_hears(exchange)
        };
        if let Frame::Arp(arp) = frame {
            // It may be a server's answer from the wire. An answer to a question of the container's may come from a sibling.
            if arp.op == ArpOp::Reply && arp.target.is_unspecified() {
                cx.lans.answered(&cx.own.identity.lan, arp.sender);
            }
            if guard_hears {
                self.happens(cx, |life, cx| life.hear(arp, cx));
            }
        }
        if is_own {
            self.happens(cx, |life, cx| life.on_frame(frame, cx));
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
        match cx.own.exchange.is_open(exchange) && self.get().client().is_some() {
            true => self.happens(cx, |life, cx| {
                life.signal(Signal::Unreadable { cause, from }, cx)
            }),
            false => cx.out.counts.refused(cause),
        }
    }

    /// Records that the link did not take one of the client's messages, and reports it once.
    pub(crate) fn on_unsent(&mut self, exchange: ExchangeId, cause: &LinkCause, cx: &mut Cx<'_>) {
        let client = self.get_mut().client_mut();
        if let Some(client) = client.filter(|_| cx.own.exchange.is_open(exchange)) {
            client.on_unsent(cause.to_string());
            if cx.own.warnings.is_new(&cause.to_string()) {
                tracing::warn!(attachment = %cx.own.attachment, %cause, "message not sent");
            }
        }
    }

    fn on_opened(&mut self, exchange: ExchangeId, cx: &mut Cx<'_>) {
        if cx.own.exchange.opened(exchange) {
            self.happens(cx, |life, cx| life.on_opened(cx));
        } else if cx.own.guard_opened(exchange) {
            self.happens(cx, |life, cx| life.watch(cx));
        }
    }

    /// Goes on after the sockets of an exchange could not be opened, or failed.
    pub(crate) fn on_broken(&mut self, exchange: ExchangeId, cause: LinkCause, cx: &mut Cx<'_>) {
        if cx.own.is_guards(exchange) {
            return self.happens(cx, |life, cx| {
                let is_lost = !cx.own.broadcasts_on_host() && life.is_lost(&cause, cx);
                match cx.unwatch(cause.clone(), is_lost) {
                    Some(_) if is_lost => life.on_news(News::Gone(cause), cx),
                    Some(found) => life.on_found(found, cx),
                    None => SAME,
                }
            });
        }
        if cx.own.exchange.is(exchange) {
            let cause = cx.lose_sockets(cause);
            self.happens(cx, |life, cx| life.on_unopened(cause, cx));
        }
    }

    fn on_line(&mut self, result: Result<LinkView, LinkCause>, cx: &mut Cx<'_>) {
        if cx.own.exchange.found() {
            self.happens(cx, |life, cx| life.on_line(result, cx));
        }
    }

    /// Goes on after a write. If there is more to write, this outcome is out of date, and the life waits for that of the next
    /// write.
    fn on_persisted(&mut self, result: Result<(), StoreCause>, cx: &mut Cx<'_>) {
        cx.written(result.is_ok());
        self.get_mut().write(cx);
        if cx.own.persistence.busy() {
            return;
        }
        cx.own.persistence.settled(result.is_ok());
        if result.is_ok() {
            let replaced = cx.own.persistence.take_replaced();
            // If the first write fails, an adoption is held before its record is written.
            if matches!(*self, Self::Held(_)) && !replaced.is_empty() {
                cx.out.report(cx.own.id, Report::Replaced(replaced));
            }
        }
        self.happens(cx, |life, cx| life.on_persisted(result, cx));
    }

    /// Goes on with what happened at the interface.
    pub(crate) fn on_news(&mut self, news: News<'_>, cx: &mut Cx<'_>) {
        if let News::Ethernet(mac) = news {
            cx.own.on_ethernet(mac);
        }
        self.happens(cx, |life, cx| life.on_news(news, cx));
    }

    pub(crate) fn on_permit(&mut self, sockets: Option<ExchangeId>, cx: &mut Cx<'_>) {
        self.happens(cx, |life, cx| life.on_permit(sockets, cx));
    }

    /// Goes on with an address of a local range, or without one.
    pub(crate) fn on_resort(&mut self, given: Result<RangeAddress, NoAddress>, cx: &mut Cx<'_>) {
        if let Self::Acquiring(acquire) = self {
            let next = acquire.on_resort(given, cx);
            self.enter(next, cx);
        }
    }

    /// Abandons the acquisition, and tells its caller why if it still waits.
    pub(crate) fn abort(&mut self, why: Option<Failure>, cx: &mut Cx<'_>) {
        if let Self::Acquiring(acquire) = self {
            let next = acquire.abort(why, cx);
            self.enter(next, cx);
        }
    }

    /// Ends a held binding: gives back the lease, or whatever a server may hold for it.
    pub(crate) fn give_back(&mut self, why: Leave, cx: &mut Cx<'_>) {
        match self {
            Self::Held(hold) => {
                let life = hold.give_back(why, cx);
                self.enter(ControlFlow::Break(life), cx);
            }
            Self::Releasing(release) if matches!(why, Leave::Deleted | Leave::Released) => {
                release.hurry(cx)
            }
            Self::Acquiring(_) | Self::Releasing(_) => {}
        }
    }

    /// Ends, because a successor's write removed this record. Returns whether that is all; a later write of its own is undone.
    pub(crate) fn replaced(&mut self, cx: &mut Cx<'_>) -> bool {
        let Self::Releasing(release) = self else {
            return true;
        };
        release.replaced(cx)
    }

    /// Lets the life go on with what happened.
    fn happens(
        &mut self,
        cx: &mut Cx<'_>,
        what: impl FnOnce(&mut dyn Living, &mut Cx<'_>) -> Next,
    ) {
        let next = what(self.get_mut(), cx);
        self.enter(next, cx);
    }

    /// Lets a lease that is held go on with what happened.
    pub(crate) fn holds(
        &mut self,
        cx: &mut Cx<'_>,
        what: impl FnOnce(&mut Hold, &mut Cx<'_>) -> Next,
    ) {
        if let Self::Held(hold) = self {
            let next = what(hold, cx);
            self.enter(next, cx);
        }
    }

    /// Lets a lease that is held go on with something that ends no life.
    pub(crate) fn keeps(&mut self, cx: &mut Cx<'_>, what: impl FnOnce(&mut Hold, &mut Cx<'_>)) {
        self.holds(cx, |hold, cx| {
            what(hold, cx);
            SAME
        });
    }

    /// Lets a release go on with what happened.
    pub(crate) fn gives_back(
        &mut self,
        cx: &mut Cx<'_>,
        what: impl FnOnce(&mut Release, &mut Cx<'_>),
    ) {
        if let Self::Releasing(release) = self {
            what(release, cx);
        }
    }

    /// Enters the next life, if any, and does what follows. Once a lease is no longer held, nothing is left to do at its interface.
    fn enter(&mut self, next: Next, cx: &mut Cx<'_>) {
        if let ControlFlow::Break(life) = next {
            let before = std::mem::replace(self, life);
            if let (Self::Releasing(_), Self::Held(_)) = (&*self, &before) {
                cx.has_done();
            }
        }
        self.get_mut().settle(cx);
    }
}

/// The life that follows if this one has ended; `Continue`: it goes on.
pub(super) type Next = ControlFlow<Life>;

/// The life goes on.
pub(super) const SAME: Next = ControlFlow::Continue(());

/// What every life can be asked, and is told. What happens to only one life belongs to that life.
pub(super) trait Living {
    /// Returns how far the binding is.
    fn stand(&self) -> Stand;

    /// Returns its claim on an address.
    fn claim(&self, now: Instant) -> Option<Claim>;

    /// Returns the lease that the binding holds, if callers may hear about it, or gives back.
    fn lease<'a>(&'a self, common: &'a Common, now: Instant) -> Option<&'a Lease>;

    /// Returns the client, if there is one.
    fn client(&self) -> Option<&Client>;

    /// Returns the client, if there is one, mutably.
    fn client_mut(&mut self) -> Option<&mut Client>;

    /// Returns the state for `list`: the client's, if there is one.
    fn state(&self) -> BindingState {
        self.client().map_or(BindingState::Releasing, |client| {
            BindingState::Client(client.state())
        })
    }

    /// Returns when the clock next matters to it, and why.
    fn deadline(&self) -> Option<(Instant, Why)>;

    /// Returns what the store should hold now.
    fn record(&self, cx: &Cx<'_>) -> Option<Record>;

    fn may_write(&self, _cx: &Cx<'_>) -> bool {
        true
    }

    /// Returns whether the link that could not be used no longer exists, as far as this binding can say.
    fn is_lost(&self, cause: &LinkCause, _cx: &mut Cx<'_>) -> bool {
        cause.is_gone()
    }

    /// Does what is due by the clock.
    fn on_clock(&mut self, cx: &mut Cx<'_>) -> Next;

    /// Handles a signal to its client, if there is one, and the client's output.
    fn signal(&mut self, _signal: Signal<'_>, _cx: &mut Cx<'_>) -> Next {
        SAME
    }

    /// Goes on when its sockets are open.
    fn on_opened(&mut self, cx: &mut Cx<'_>) -> Next {
        self.signal(Signal::Opened, cx)
    }

    /// Goes on after its sockets could not be opened, or failed.
    fn on_unopened(&mut self, cause: LinkCause, cx: &mut Cx<'_>) -> Next;

    /// Goes on after the LAN's link was looked for.
    fn on_line(&mut self, result: Result<LinkView, LinkCause>, cx: &mut Cx<'_>) -> Next {
        match result {
            Ok(view) => {
                cx.own.found_line(&view);
                self.on_clock(cx)
            }
            Err(cause) => self.on_no_line(cause, cx),
        }
    }

    /// Goes on after the LAN's link could not be found.
    fn on_no_line(&mut self, cause: LinkCause, cx: &mut Cx<'_>) -> Next {
        self.on_unopened(cause, cx)
    }

    /// Goes on with a frame from its sockets.
    fn on_frame(&mut self, frame: &Frame<'_>, cx: &mut Cx<'_>) -> Next {
        self.signal(frame.into(), cx)
    }

    /// Goes on after a write.
    fn on_persisted(&mut self, result: Result<(), StoreCause>, cx: &mut Cx<'_>) -> Next;

    /// Goes on after a look at the interface, or a change of it.
    fn on_worked(&mut self, outcome: Outcome, cx: &mut Cx<'_>) -> Next;

    /// Goes on with what happened at the interface.
    fn on_news(&mut self, news: News<'_>, cx: &mut Cx<'_>) -> Next;

    /// Goes on with what conflict detection found out.
    fn on_found(&mut self, found: Found, cx: &mut Cx<'_>) -> Next;

    /// Begins the exchange that waited for its permit, over `sockets` if some were opened for it.
    fn on_permit(&mut self, _sockets: Option<ExchangeId>, _cx: &mut Cx<'_>) -> Next {
        SAME
    }

    /// Goes on after a temporary link of its exchange is gone.
    fn on_parted(&mut self, _cx: &mut Cx<'_>) -> Next {
        SAME
    }

    /// Does what follows, after everything else.
    fn settle(&mut self, _cx: &mut Cx<'_>) {}

    /// Wants the store to hold this; nothing is durable before [`Living::on_persisted`].
    fn persist(&mut self, want: Want, cx: &mut Cx<'_>) {
        cx.own.persistence.want(want);
        self.write(cx);
    }

    /// Writes what the store should hold, unless a write is under way.
    fn write(&mut self, cx: &mut Cx<'_>) {
        if !cx.own.persistence.may_begin() || !self.may_write(cx) {
            return;
        }
        let record = self.record(cx);
        let own = self.client().and_then(Client::shared);
        cx.write(record, own);
    }

    /// Goes on with conflict detection, as far as possible now.
    fn watch(&mut self, cx: &mut Cx<'_>) -> Next {
        while let Some(found) = self.client().and_then(|client| cx.watch(client)) {
            self.on_found(found, cx)?;
            self.settle(cx);
        }
        SAME
    }

    /// Handles an ARP packet that conflict detection heard.
    fn hear(&mut self, arp: &Arp, cx: &mut Cx<'_>) -> Next {
        let found = self.client().and_then(|client| cx.hear(client, arp));
        self.goes_on(found, cx)
    }

    /// Goes on once it is known which links the container's namespace has, or cannot be.
    fn on_inside(&mut self, macs: Result<Vec<Mac>, LinkCause>, cx: &mut Cx<'_>) -> Next {
        let found = self
            .client()
            .and_then(|client| cx.heard_inside(client, macs));
        self.goes_on(found, cx)?;
        self.watch(cx)
    }

    /// Goes on with what conflict detection found out, if it did.
    fn goes_on(&mut self, found: Option<Found>, cx: &mut Cx<'_>) -> Next {
        let Some(found) = found else {
            return SAME;
        };
        self.on_found(found, cx)?;
        self.settle(cx);
        self.watch(cx)
    }
}
