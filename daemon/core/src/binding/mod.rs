//! One holder of a lease, from the moment its link is known: it acquires, holds, and gives back.
//!
//! A binding knows nothing of other bindings. It works through a [`Cx`], and tells the registry of turning points by
//! [`Report`]s. At any time it has at most one Persist, one Open and one Apply or Inspect that counts under way.

mod acquire;
mod decline;
mod exchange;
mod guard;
mod hold;
mod holders;
mod journal;
mod leavings;
mod note;
pub(crate) mod outbox;
mod persistence;
mod release;
mod routes;
mod sizing;
mod survey;
mod tenancy;
mod told;
mod work;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;

pub(crate) use self::acquire::{Abort, Acquire, Again, Stage};
use self::exchange::Exchange;
use self::guard::Guard;
pub(crate) use self::hold::Hold;
pub(crate) use self::holders::Holders;
pub(crate) use self::leavings::without;
pub(crate) use self::outbox::{Outbox, Owner, Purpose, Report};
use self::persistence::Persistence;
pub(crate) use self::release::{Owed, Release};
pub(crate) use self::survey::Reason;
use self::told::Told;
use self::work::Work;

use crate::conflict::lans::Lans;
use crate::dhcpv4::lease::Lease;
use crate::dhcpv4::message::Sender;
use crate::dhcpv4::profile::Profile;
use crate::effect::{ExchangeId, Outcome, Row, Why};
use crate::event::EventKind;
use crate::identity::{Attachment, Identity};
use crate::link::{Cookie, Link, LinkCause, LinkView, Sockets};
use crate::record::{BindingId, Former, Record, RecordState};
use crate::time::{BootId, Instant, Now};
use crate::wire::Mac;
use crate::wire::frame::{BadFrame, Frame};

/// What a binding works with while it handles one event.
pub(crate) struct Cx<'a> {
    pub(crate) now: Now,
    pub(crate) boot: &'a BootId,
    pub(crate) out: &'a mut Outbox,
    pub(crate) rng: &'a mut Rng,
    pub(crate) holders: &'a Holders,
    pub(crate) by_netns: &'a ByNetns,
    /// What conflicts have taught of each LAN.
    pub(crate) conflicts: &'a mut Lans,
}

/// The bindings of each namespace, with the Ethernet addresses of their interfaces.
pub(crate) type ByNetns = BTreeMap<(Cookie, BindingId), Mac>;

/// Returns those of one namespace.
pub(crate) fn of_netns(by_netns: &ByNetns, cookie: Cookie) -> impl Iterator<Item = (BindingId, Mac)> {
    let all = (cookie, BindingId(0))..=(cookie, BindingId(u64::MAX));
    by_netns.range(all).map(|((_, id), mac)| (*id, *mac))
}

/// One holder of a lease.
#[derive(Debug)]
pub(crate) struct Binding {
    pub(crate) id: BindingId,
    pub(crate) attachment: Arc<Attachment>,
    pub(crate) identity: Identity,
    pub(crate) profile: Arc<Profile>,
    pub(crate) link: Link,
    pub(crate) life: Life,
    /// The host's link that broadcasts go over, where the profile wants that and it was found.
    parent: Option<Box<Link>>,
    exchange: Exchange,
    persistence: Persistence,
    /// What is to be done at the interface; mostly nothing.
    work: Option<Box<Work>>,
    permit: Permit,
    /// The leased address under watch, for a few seconds.
    guard: Option<Box<Guard>>,
    /// The Ethernet addresses of those that held the identity before and that this binding took it over from.
    predecessors: Box<[Mac]>,
    /// What was refused or dropped of answers, as far as it was told.
    told: Told,
}

/// How an exchange for which no caller waits stands to the permits of its LAN.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Permit {
    /// It has none and waits for none.
    #[default]
    None,
    /// It waits for its turn.
    Asked,
    /// It has one.
    Held,
}

/// Who a binding is for, and where.
#[derive(Clone, Debug)]
pub(crate) struct Holder {
    pub(crate) attachment: Arc<Attachment>,
    pub(crate) identity: Identity,
    pub(crate) profile: Arc<Profile>,
    pub(crate) link: Link,
}

impl Holder {
    /// Returns the sender of its messages.
    pub(crate) fn sender(&self) -> Sender {
        Sender::new(self.identity.chaddr, &self.identity.client_id, self.profile.clone())
    }
}

/// What a binding is at.
#[derive(Debug)]
pub(crate) enum Life {
    /// An ADD waits for a lease.
    Acquiring(Box<Acquire>),
    /// A lease is held, or looked for again.
    Held(Box<Hold>),
    /// The lease is on its way back.
    Releasing(Box<Release>),
}

impl Binding {
    fn new(id: BindingId, holder: Holder, life: Life) -> Self {
        let Holder { attachment, identity, profile, link } = holder;
        let (exchange, persistence) = (Exchange::default(), Persistence::default());
        let (work, permit) = (None, Permit::default());
        let (parent, guard, predecessors) = (None, None, Box::default());
        Self {
            id,
            attachment,
            identity,
            profile,
            link,
            life,
            parent,
            exchange,
            persistence,
            work,
            permit,
            guard,
            predecessors,
            told: Told::default(),
        }
    }

    /// Returns the sender of the messages of a binding that has, or had, a lease.
    fn sender(&self) -> Sender {
        let sender = Sender::new(self.identity.chaddr, &self.identity.client_id, self.profile.clone());
        sender.from_station(self.station())
    }

    /// Returns the Ethernet address that the leased address belongs to. While it is asked for that is the chaddr, which
    /// the interface may have to get yet.
    fn station(&self) -> Mac {
        match (&self.link, &self.life) {
            (_, Life::Releasing(release)) if release.speaks_from_host() => self.identity.chaddr,
            (Link::InNetns { mac, .. }, _) => *mac,
            (Link::Parent { .. }, _) => self.identity.chaddr,
        }
    }

    /// Returns the lease that the binding holds, as far as callers may hear of it, or gives back.
    pub(crate) fn lease(&self, now: Instant) -> Option<&Lease> {
        match &self.life {
            Life::Acquiring(_) => None,
            Life::Held(_) => self.told(now),
            Life::Releasing(release) => Some(&release.lease),
        }
    }

    /// Tells whether the binding's sockets are, or will be, on a link of the host.
    pub(crate) fn speaks_from_host(&self) -> bool {
        match &self.life {
            Life::Acquiring(_) | Life::Held(_) => self.profile.on_parent,
            Life::Releasing(release) => release.speaks_from_host(),
        }
    }

    /// Returns the path of the container's namespace.
    pub(crate) fn netns_path(&self) -> Option<PathBuf> {
        match &self.link {
            Link::InNetns { path, .. } => Some(path.clone()),
            Link::Parent { .. } => None,
        }
    }

    /// Tells whether the binding is the live holder of its identity. One that was given up is not.
    pub(crate) fn is_live(&self) -> bool {
        match &self.life {
            Life::Acquiring(acquire) => acquire.is_wanted(),
            Life::Held(_) => true,
            Life::Releasing(_) => false,
        }
    }

    /// Tells whether the binding's record is still to be written.
    pub(crate) fn record_is_due(&self) -> bool {
        self.persistence.is_due()
    }

    /// Tells whether there is a lease that the store knows nothing of.
    pub(crate) fn is_unwritten(&self) -> bool {
        let held = matches!(&self.life, Life::Held(hold) if hold.client.lease().is_some());
        held && self.persistence.durable().is_none()
    }

    fn held_by_other(&self, cx: &Cx<'_>) -> bool {
        cx.holders.of(&self.identity.key()).is_some_and(|holder| holder != self.id)
    }

    /// Returns when the clock next matters, and why.
    pub(crate) fn deadline(&self) -> Option<(Instant, Why)> {
        let own = match &self.life {
            Life::Acquiring(acquire) => acquire.deadline(),
            Life::Held(hold) => hold.client.deadline().map(|(at, timer)| (at, Why::Dhcp(timer))),
            Life::Releasing(release) => release.deadline(),
        };
        let store = self.persistence.retry_at().map(|at| (at, Why::Store));
        let work = self.work.as_ref().and_then(|work| work.retry_at()).map(|at| (at, Why::Work));
        [own, store, self.guard_deadline(), work.filter(|_| matches!(self.life, Life::Held(_)))]
            .into_iter()
            .flatten()
            .min_by_key(|(at, _)| *at)
    }

    /// Goes on as the clock says.
    pub(crate) fn on_clock(&mut self, cx: &mut Cx<'_>) {
        self.retry_persist(cx);
        self.retry_work(cx);
        self.guard_on_clock(cx);
        match &self.life {
            Life::Acquiring(_) => self.acquire_on_clock(cx),
            Life::Held(_) => self.hold_on_clock(cx),
            Life::Releasing(_) => self.release_on_clock(cx),
        }
    }

    /// Goes on with the outcome of an effect.
    pub(crate) fn on_done(&mut self, purpose: Purpose, outcome: Outcome, cx: &mut Cx<'_>) {
        match (purpose, outcome) {
            (Purpose::Open(exchange), Outcome::Opened(result)) => self.on_opened(exchange, result, cx),
            (Purpose::Persist, Outcome::Persisted(result)) => self.on_persisted(result, cx),
            (Purpose::Work, outcome) => self.on_worked(outcome, cx),
            (Purpose::Survey, Outcome::Surveyed(survey)) => self.on_surveyed(survey),
            (Purpose::Release, Outcome::Sent(result)) => self.release_on_sent(result, cx),
            (Purpose::FindParent, Outcome::Inspected(result)) => self.on_parent(result, cx),
            (Purpose::FindLine, Outcome::Inspected(result)) => self.on_line(result, cx),
            (purpose, outcome) => {
                tracing::warn!(?purpose, ?outcome, "outcome of another kind of effect")
            }
        }
    }

    /// Goes on with a frame of the binding's exchange.
    pub(crate) fn on_frame(&mut self, exchange: ExchangeId, frame: &Frame<'_>, cx: &mut Cx<'_>) {
        if !self.exchange.is_open(exchange) {
            return self.guard_on_frame(exchange, frame, cx);
        }
        if let Frame::Arp(arp) = frame {
            self.guard_on_shared(arp, cx);
        }
        match &self.life {
            Life::Acquiring(_) => self.acquire_on_frame(frame, cx),
            Life::Held(_) => self.hold_on_frame(frame, cx),
            Life::Releasing(_) => self.release_on_frame(frame, cx),
        }
    }

    /// Goes on after the sockets of an exchange could not be opened, or failed.
    /// Goes on after a frame that could not be read, and that bears what an answer does.
    pub(crate) fn on_unreadable(&mut self, exchange: ExchangeId, cause: BadFrame, from: Mac, cx: &mut Cx<'_>) {
        match &self.life {
            Life::Acquiring(_) if self.exchange.is_open(exchange) => self.acquire_on_unreadable(cause, from, cx),
            Life::Held(_) if self.exchange.is_open(exchange) => self.hold_on_unreadable(cause, from, cx),
            Life::Acquiring(_) | Life::Held(_) | Life::Releasing(_) => cx.out.refused(&cause),
        }
    }

    pub(crate) fn on_broken(&mut self, exchange: ExchangeId, cause: LinkCause, cx: &mut Cx<'_>) {
        if self.is_guards(exchange) {
            return self.guard_on_broken(cause, cx);
        }
        if !self.exchange.is(exchange) {
            return;
        }
        self.exchange.close(cx);
        let cause = match self.parent.take() {
            Some(_) => not_gone(cause),
            None => cause,
        };
        match &self.life {
            Life::Acquiring(_) => self.acquire_on_unopened(cause, cx),
            Life::Held(_) => self.hold_on_unopened(cause, cx),
            Life::Releasing(_) => self.release_on_unopened(cause, cx),
        }
    }

    /// Opens sockets on the binding's own link, or on the LAN's where the profile wants broadcasts to go over that.
    fn open(&mut self, want: Sockets, broadcasts: bool, cx: &mut Cx<'_>) {
        let parent = self.identity.lan.parent().filter(|_| self.profile.on_parent && broadcasts);
        match (parent, &self.parent) {
            (None, _) => self.exchange.open(self.id, &self.link, want, cx),
            (Some(_), Some(link)) => self.exchange.open(self.id, link, want, cx),
            (Some(ifname), None) => self.exchange.find(self.id, ifname, cx),
        }
    }

    /// Goes on after the LAN's link was looked for.
    fn on_line(&mut self, result: Result<LinkView, LinkCause>, cx: &mut Cx<'_>) {
        if !self.exchange.found() {
            return;
        }
        match (result, &self.life) {
            (Ok(view), life) => {
                self.parent = Some(Box::new(Link::parent(view.ifindex, view.mac)));
                match life {
                    Life::Acquiring(_) => self.acquire_on_clock(cx),
                    Life::Held(_) => self.hold_on_clock(cx),
                    Life::Releasing(_) => {}
                }
            }
            (Err(cause), Life::Acquiring(_)) => self.acquire_on_unopened(cause, cx),
            (Err(cause), Life::Held(_)) => {
                self.hold_on_unopened(LinkCause::refused("use the parent link", cause), cx);
            }
            (Err(_), Life::Releasing(_)) => {}
        }
    }

    fn on_opened(&mut self, exchange: ExchangeId, result: Result<(), LinkCause>, cx: &mut Cx<'_>) {
        if let Err(cause) = result {
            return self.on_broken(exchange, cause, cx);
        }
        if !self.exchange.opened(exchange) {
            return self.guard_on_opened(exchange, cx);
        }
        match &self.life {
            Life::Acquiring(_) => self.acquire_on_opened(cx),
            Life::Held(_) => self.hold_on_opened(cx),
            Life::Releasing(_) => self.release_on_opened(cx),
        }
    }

    /// Returns whether the binding's own link is gone for good, where it could not be used. Of a held binding whose namespace was
    /// not seen the registry decides that, which knows whether others are.
    fn is_lost(&self, cause: &LinkCause, cx: &mut Cx<'_>) -> bool {
        let is_doubtful = cause.is_unseen() && matches!(self.life, Life::Held(_));
        if is_doubtful {
            cx.out.report(self.id, Report::Unseen);
        }
        cause.is_gone() && !is_doubtful
    }

    /// Goes on after the binding's link was found gone for good.
    pub(crate) fn on_link_gone(&mut self, cause: LinkCause, cx: &mut Cx<'_>) {
        match &self.life {
            Life::Acquiring(_) => self.fail_link(cause, cx),
            Life::Held(_) => {
                tracing::info!(attachment = %self.attachment, %cause, "link gone, giving the lease back");
                if let Life::Held(hold) = &self.life {
                    let lease = hold.client.lease().unwrap_or(&hold.last);
                    let event = self.event(EventKind::OrphanFound, lease, &cause, cx);
                    cx.out.report(self.id, Report::Orphaned(Box::new(event)));
                }
                self.give_back(Leave::LinkGone, cx);
            }
            Life::Releasing(_) => self.release_on_link_gone(cx),
        }
    }

    /// Closes the binding's sockets, whatever it is at.
    pub(crate) fn close(&mut self, cx: &mut Cx<'_>) {
        self.exchange.close(cx);
        self.close_guard(cx);
    }

    /// Ends a held binding: the lease is given back, or all that a server may hold for it.
    pub(crate) fn give_back(&mut self, why: Leave, cx: &mut Cx<'_>) {
        if matches!(self.life, Life::Releasing(_)) && why == Leave::Deleted {
            return self.hurry(cx);
        }
        if !matches!(self.life, Life::Held(_)) {
            return;
        }
        let probing = self.probing();
        if matches!(&self.life, Life::Held(hold) if hold.client.lease().is_none()) {
            self.decline_owed(cx);
        }
        self.end_exchange(cx);
        if !self.is_declining() {
            self.close_guard(cx);
        }
        let Life::Held(hold) = &self.life else { return };
        let (lease, owed) = match (hold.client.lease(), hold.client.owed(cx.now.boot)) {
            // A network may want its leases to end by themselves.
            (Some(lease), _) if !self.profile.release => {
                self.note_gone(EventKind::Released, lease, release::LEFT, cx);
                (lease, Owed::Left)
            }
            (Some(lease), _) => (lease, Owed::Leased),
            (None, Some(asked)) => (asked, Owed::Asked),
            (None, None) => (&*hold.last, Owed::Nothing),
        };
        let returns = owed == Owed::Leased && matches!(why, Leave::Deleted | Leave::LinkGone | Leave::Yielded);
        let kept = self.grace_from(cx.now.boot).filter(|_| returns);
        let release = Release::new(lease.clone(), owed, why).muted(!hold.has_carrier()).kept(kept);
        let before = std::mem::replace(&mut self.life, Life::Releasing(Box::new(release)));
        if let (Life::Releasing(release), Life::Held(hold)) = (&mut self.life, before) {
            release.held_before(hold, probing);
        }
        self.release_begin(cx);
    }

    fn record(&self, lease: &Lease, state: RecordState, cx: &Cx<'_>) -> Record {
        let age = cx.now.boot.saturating_since(lease.start);
        let since = cx.now.wall.since_epoch().saturating_sub(age);
        Record {
            attachment: (*self.attachment).clone(),
            identity: self.identity.clone(),
            profile: (*self.profile).clone(),
            link: self.link.clone(),
            lease: lease.clone(),
            state,
            boot: cx.boot.clone(),
            since: crate::time::WallTime::from_epoch(since),
            kept: match &self.life {
                Life::Releasing(release) => release.kept_from_start(),
                Life::Acquiring(_) | Life::Held(_) => None,
            },
            former: self.former(),
            taken_off: self.is_taken_off(),
        }
    }

    /// Returns what is still to be done at the interface, for the record.
    fn former(&self) -> Option<Box<Former>> {
        match &self.life {
            // A daemon that ends before it is done leaves that to the next one.
            Life::Acquiring(acquire) => {
                let (mtu_due, routes_due) = (acquire.resizes(), acquire.leaves_routes(&self.profile));
                (mtu_due || routes_due).then(|| Box::new(Former { mtu_due, routes_due, ..Former::default() }))
            }
            Life::Held(_) => self.work.as_ref().and_then(|work| work.former()),
            Life::Releasing(_) => None,
        }
    }

    /// Returns the binding as `list` shows it.
    pub(crate) fn row(&self, now: Instant) -> Row {
        let state = match &self.life {
            Life::Acquiring(acquire) => acquire.client.state(),
            Life::Held(hold) => hold.client.state(),
            Life::Releasing(_) if self.kept_until().is_some() => "KEPT",
            Life::Releasing(_) => "RELEASING",
        };
        let held_up = match &self.life {
            Life::Releasing(release) => release.held_up(now),
            Life::Acquiring(_) | Life::Held(_) => None,
        };
        let lease = self.lease(now);
        let until = |at: Option<Instant>| at.map(|at| at.saturating_since(now));
        let times: [Option<Duration>; 3] =
            [lease.and_then(Lease::t1), lease.and_then(Lease::t2), lease.and_then(Lease::expires)].map(until);
        Row {
            attachment: (*self.attachment).clone(),
            identity: self.identity.clone(),
            state,
            lease: lease.cloned(),
            t1: times[0],
            t2: times[1],
            expires: times[2],
            kept: until(self.kept_until()),
            held_up,
            link: self.link.clone(),
        }
    }
}

/// Returns why the LAN's link could not be used. That it is gone says nothing of the binding's own link.
fn not_gone(cause: LinkCause) -> LinkCause {
    match cause.is_gone() {
        true => LinkCause::refused("use the parent link", cause),
        false => cause,
    }
}

/// Why a lease is given back, and what that means for how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leave {
    /// A DEL waits for it. When the store fails, the binding stays as it was, and the DEL fails.
    Deleted,
    /// The ADD that got it was given up.
    Aborted,
    /// A daemon before this one had begun.
    Resumed,
    /// The ADD that got it failed at the store, and has sent its RELEASE. Nobody waits for the record to go.
    Undone,
    /// The link is gone; the RELEASE leaves from the host.
    LinkGone,
    /// An ADD of the same attachment has another identity.
    Displaced,
    /// Another binding takes the identity over. Nothing is written or sent unless that comes to nothing.
    Yielded,
}
