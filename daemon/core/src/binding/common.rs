//! What all lives of a binding share: who it is for, where it lives, its sockets and its record.

pub(super) mod change;
pub(super) mod cx;
pub(super) mod guard;
pub(super) mod note;
pub(super) mod persistence;
pub(super) mod siblings;
pub(super) mod tenancy;
pub(super) mod warnings;

use std::fmt;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use ipnet::Ipv4Net;

use self::cx::Cx;
use self::guard::Guard;
pub(crate) use self::note::Leave;
use self::persistence::Persistence;
use self::warnings::Warnings;
use super::Report;
use super::holders::Standing;
use crate::effect::StoreCause;
use crate::event::{Event, EventKind};
use crate::grant::{Dns, Grant};
use crate::identity::{Attachment, Identity};
use crate::interface::{Holding, Interfaces, Presence, Seat, Work};
use crate::link::{Line, Link, LinkCause, LinkView, Sockets, Step};
use crate::outbox::{Exchange, Owner, Stake, Waiter};
use crate::plan;
use crate::profile::Profile;
use crate::record::{BindingId, Former, Record, RecordState};
use crate::rules::{Rule, cut};
use crate::source::{Client, Lease, Sender};
use crate::time::{Instant, WallTime};
use crate::wire::Mac;

/// What all lives of a binding share.
#[derive(Debug)]
pub(crate) struct Common {
    pub(crate) id: BindingId,
    pub(crate) attachment: Arc<Attachment>,
    pub(crate) identity: Identity,
    pub(crate) profile: Arc<Profile>,
    pub(crate) link: Link,
    /// The address that its caller was given, or is about to be given, if the caller cannot be told about a later one.
    pub(crate) told: Option<Ipv4Net>,
    /// Whether no path leads to where it lives: then it speaks from the LAN's link.
    pub(crate) is_pathless: bool,
    /// Where on the host broadcasts, or all messages, go; set once it is found.
    pub(super) line: Option<Box<Line>>,
    pub(super) exchange: Exchange,
    pub(super) persistence: Persistence,
    pub(super) permit: Permit,
    /// The leased address under watch, for a few seconds.
    pub(super) guard: Option<Box<Guard>>,
    /// What was reported about refused or dropped answers.
    pub(super) warnings: Warnings,
}

/// Whether an exchange that no caller waits for has a permit of its LAN, or its turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Permit {
    /// It has none and waits for none.
    #[default]
    None,
    /// It waits for it.
    Asked,
    /// It has one.
    Held,
}

impl Common {
    pub(super) fn grant(&self, lease: &Lease) -> Grant {
        lease.grant(&self.profile.policy)
    }

    pub(crate) fn new(
        id: BindingId,
        attachment: Arc<Attachment>,
        identity: Identity,
        profile: Arc<Profile>,
        link: Link,
    ) -> Self {
        Self {
            id,
            attachment,
            identity,
            profile,
            link,
            told: None,
            is_pathless: false,
            line: None,
            exchange: Exchange::default(),
            persistence: Persistence::default(),
            permit: Permit::default(),
            guard: None,
            warnings: Warnings::default(),
        }
    }

    /// Returns this holder with its link as just found: a host link need not be looked for again.
    pub(super) fn found(self, view: &LinkView) -> Self {
        let over = |link| Box::new(Line::over(link, view, self.profile.on_parent));
        let line = self.is_on_host().then(|| over(self.link.clone()));
        Self { line, ..self }
    }

    /// Returns the sender of its messages, which learns its station later.
    pub(super) fn sender(&self) -> Sender {
        Sender::new(
            self.identity.chaddr,
            &self.identity.client_id,
            self.profile.client.clone(),
        )
    }

    /// Returns the Ethernet address that the leased address belongs to. While the address is being requested, that is the
    /// chaddr, which the interface may still have to get.
    pub(super) fn station(&self) -> Mac {
        match &self.link {
            Link::InNetns { mac, .. } => *mac,
            Link::Parent { .. } => self.identity.chaddr,
        }
    }

    pub(crate) fn record_is_due(&self) -> bool {
        self.persistence.is_due()
    }

    /// Returns until when to keep a lease whose attachment goes now, if its identity can return.
    ///
    /// It is not renewed meanwhile: servers check for the address, which nobody has, and a lease that was renewed at T1 has
    /// half of its time left. A shorter one just ends. Whoever returns confirms it (INIT-REBOOT), or asks for its address.
    pub(super) fn grace_from(&self, now: Instant) -> Option<Instant> {
        let seconds = self.profile.grace.filter(|seconds| *seconds > 0)?;
        Some(now + Duration::from_secs(seconds.into()))
    }

    /// Records the lease that is given to a caller that cannot be told about a later address. Returns whether the caller was
    /// given another before.
    pub(super) fn answers(&mut self, lease: &Lease) -> bool {
        let told = self
            .profile
            .wants
            .told_once
            .then(|| self.profile.policy.address(lease.address));
        std::mem::replace(&mut self.told, told) != told
    }

    /// Returns whether it lives on a host link, on behalf of an interface about which nothing is known here.
    pub(crate) fn is_on_host(&self) -> bool {
        self.link.in_netns().is_none()
    }

    /// Returns whether everything it sends goes over a host link.
    pub(super) fn is_outside(&self) -> bool {
        self.is_on_host() || self.is_pathless
    }

    /// Returns whether its broadcasts go over a host link.
    pub(crate) fn broadcasts_on_host(&self) -> bool {
        self.profile.on_parent || self.is_outside()
    }

    /// Goes on over the LAN's link itself. Returns whether it spoke from beside it.
    pub(super) fn come_back(&mut self) -> bool {
        self.line.as_mut().is_some_and(|line| line.come_back())
    }

    /// Returns whether it speaks from a macvlan beside the LAN's link.
    pub(super) fn is_aside(&self) -> bool {
        self.line.as_ref().is_some_and(|line| line.is_beside())
    }

    /// Records the LAN's link, as found.
    pub(super) fn found_line(&mut self, view: &LinkView) {
        let mac = if self.is_outside() {
            self.link.mac()
        } else {
            view.mac
        };
        let found = Link::parent_of(&self.identity.lan, view, mac);
        if self.is_on_host() {
            self.link = found.clone();
        }
        self.line = Some(Box::new(Line::over(found, view, self.profile.on_parent)));
    }

    /// Returns the name servers of the lease that the store certainly holds.
    pub(crate) fn resolver(&self) -> Option<Dns> {
        self.persistence.durable.as_deref()?.resolver()
    }

    /// Returns what the binding has at its interface; on a link of the host it has nothing.
    pub(super) fn seat<'a>(&self, interfaces: &'a Interfaces) -> Option<&'a Seat> {
        interfaces.seat(&self.link, self.id)
    }

    pub(super) fn seat_mut<'a>(&self, interfaces: &'a mut Interfaces) -> Option<&'a mut Seat> {
        interfaces.seat_mut(&self.link, self.id)
    }

    /// Returns whether the leased address is on the interface, as far as is known.
    pub(super) fn presence(&self, interfaces: &Interfaces) -> Presence {
        interfaces.presence(&self.link, self.id)
    }

    /// Returns what the interface may carry of earlier grants, for the record.
    pub(super) fn former(&self, interfaces: &Interfaces) -> Option<Box<Former>> {
        self.seat(interfaces)?.work().and_then(Work::recorded)
    }

    /// Returns what the interface must know of what the binding holds. `last`: the last lease in use.
    pub(super) fn holding(&self, client: &Client, last: &Lease) -> Holding {
        let grant = client.lease().map(|lease| self.grant(lease));
        let is_same = |held: &Lease| {
            grant
                .as_ref()
                .is_some_and(|next| plan::same(&self.grant(held), next))
        };
        Holding {
            has_parent: self.identity.lan.parent().is_some(),
            on_change: self.profile.policy.on_change,
            on_expiry: self.profile.policy.on_expiry,
            last: self.grant(last),
            is_durable: self.persistence.holds(is_same),
            is_writing: self.persistence.busy(),
            told: self.told.map(Into::into),
            grant,
        }
    }
}

impl Cx<'_> {
    pub(super) fn change(&mut self, waiter: Waiter, steps: Vec<Step>) {
        cx::change(self.out, self.interfaces, waiter, &self.own.link, steps);
    }

    /// Returns whether its link is being changed, for any binding.
    pub(super) fn is_changing(&self) -> bool {
        let at = self.own.link.in_netns();
        at.is_some_and(|at| self.interfaces.is_changing(at))
    }

    /// Tries the failed write again after a growing pause.
    pub(super) fn write_later(&mut self, cause: &StoreCause) {
        let pause = self.own.persistence.try_later(self.now.boot, self.rng);
        tracing::warn!(attachment = %self.own.attachment, %cause, ?pause, "record not written: trying again");
    }

    /// Returns the other live binding that has the identity, if there is one.
    fn other_holder(&self) -> Option<BindingId> {
        let holder = self.holders.of(&self.own.identity.key());
        holder.filter(|holder| *holder != self.own.id)
    }

    pub(super) fn held_by_other(&self) -> bool {
        self.other_holder().is_some()
    }

    /// Returns whether another live binding has the identity, and has or may yet get `own`, the address that this one has or will
    /// have. A holder with another address is no reason to keep this one.
    pub(super) fn is_held_over(&self, own: Option<Ipv4Addr>) -> bool {
        let Some(holder) = self.other_holder() else {
            return false;
        };
        let held = self.holders.standing(holder).and_then(Standing::held);
        held.is_none_or(|address| Some(address) == own)
    }

    /// Opens sockets on the binding's own link, or on the LAN's if it speaks from there, or if the profile sends broadcasts over
    /// that.
    pub(super) fn open(&mut self, want: Sockets, broadcasts: bool) {
        if self.own.exchange.is_closed() && !cut(Rule::WholeProbes) {
            self.end_try();
        }
        let on_host = self.own.is_outside() || self.own.profile.on_parent && broadcasts;
        let parent = self.own.identity.lan.parent().filter(|_| on_host);
        let owner = Owner::Binding(self.own.id);
        match (parent, &self.own.line) {
            (None, _) => self
                .own
                .exchange
                .open(owner, &self.own.link, want, self.out),
            (Some(_), Some(line)) => self.own.exchange.open(owner, &line.link, want, self.out),
            (Some(ifname), None) => self.own.exchange.find(owner, ifname, self.out),
        }
        if self.own.is_aside() {
            self.own.exchange.reports_close(self.own.id, self.out);
        }
    }

    /// Closes the sockets on the LAN's link, if a macvlan beside it is possible: the next ones are there, until
    /// [`Common::come_back`]. Returns whether they are.
    pub(super) fn go_aside(&mut self) -> bool {
        let goes = self.own.line.as_mut().is_some_and(|line| line.go_beside());
        if goes {
            self.own.exchange.close(self.out);
        }
        goes
    }

    pub(crate) fn close(&mut self) {
        self.own.exchange.close(self.out);
        self.close_guard();
    }

    /// Closes the sockets, and gives up the permit or turn, or the request for one.
    pub(super) fn end_exchange(&mut self) {
        self.own.exchange.close(self.out);
        if std::mem::take(&mut self.own.permit) != Permit::None {
            self.out.report(self.own.id, Report::ExchangeOver);
        }
    }

    /// Closes sockets that failed. Returns why the binding cannot use them: if the LAN's link is gone, the binding's own link may
    /// still be there. A binding that spoke from beside the LAN's link keeps its line: it returns to that link later, if it can.
    pub(super) fn lose_sockets(&mut self, cause: LinkCause) -> LinkCause {
        self.own.exchange.close(self.out);
        match self.own.line.take_if(|line| !line.is_beside()) {
            Some(_) if cause.is_gone() => LinkCause::refused("use the parent link", cause),
            Some(_) | None => cause,
        }
    }

    /// Returns a record with what all lives have in common.
    pub(super) fn record(&self, lease: &Lease, state: RecordState) -> Record {
        let age = self.now.boot.saturating_since(lease.start);
        let since = self.now.wall.since_epoch().saturating_sub(age);
        Record {
            attachment: (*self.own.attachment).clone(),
            identity: self.own.identity.clone(),
            profile: (*self.own.profile).clone(),
            link: self.own.link.clone(),
            lease: lease.clone(),
            state,
            boot: self.boot.clone(),
            since: WallTime::from_epoch(since),
            kept: None,
            former: None,
            taken_off: self.own.presence(self.interfaces) == Presence::TakenOff,
            unconfirmed: false,
            elsewhere: self.own.presence(self.interfaces) == Presence::Elsewhere,
            told: self.own.told,
        }
    }

    /// Writes what is wanted. `record`: what the store should hold now; `own`: the lease of the binding's client.
    pub(super) fn write(&mut self, record: Option<Record>, own: Option<Arc<Lease>>) {
        let is_succeeded = self.held_by_other();
        let changes = self
            .own
            .persistence
            .changes(self.own.id, record, own, is_succeeded);
        if let Some(changes) = changes {
            self.own.persistence.in_flight = Some(self.out.persist(self.own.id, changes));
        }
    }

    /// Records how a write ended.
    pub(super) fn written(&mut self, done: bool) {
        let before = self.own.resolver();
        self.own.persistence.written(done);
        if self.own.resolver() != before {
            self.out.resolvers.insert(self.own.attachment.clone());
        }
    }

    /// Notes an event about a lease. It is written with the binding's record, if that must be written.
    pub(crate) fn note(&mut self, kind: EventKind, lease: &Lease, cause: impl fmt::Display) {
        self.note_with(Stake::Nothing, kind, lease, cause);
    }

    /// Notes an event that is reported together with what is at stake, or not at all.
    pub(super) fn note_with(
        &mut self,
        stake: Stake,
        kind: EventKind,
        lease: &Lease,
        cause: impl fmt::Display,
    ) {
        self.out
            .note(self.own.id, self.event(kind, lease, cause), stake);
    }

    /// Returns an event about a lease, as it is now.
    pub(super) fn event(&self, kind: EventKind, lease: &Lease, cause: impl fmt::Display) -> Event {
        // If only the address of a lease is known, it has no server yet.
        let server = Some(lease.server)
            .filter(|server| !server.is_unspecified())
            .map(Into::into);
        let attachment = (*self.own.attachment).clone();
        let address = Some(lease.address.into());
        Event {
            wall: self.now.wall,
            attachment,
            kind,
            address,
            server,
            cause: cause.to_string(),
            run: None,
        }
    }

    /// Records that nothing is left to do on the interface for this binding.
    pub(super) fn has_done(&mut self) {
        self.own
            .seat_mut(self.interfaces)
            .into_iter()
            .for_each(Seat::has_done);
    }
}
