//! Holding: a lease is renewed, rebound, lost and looked for again, as long as its attachment lives.

mod inside;
mod moves;

use std::net::Ipv4Addr;
use std::sync::Arc;

use crate::binding::common::guard::decline;
use crate::binding::common::note::extension;
use crate::binding::common::tenancy::claim_of;
use crate::binding::common::{Permit, tenancy, warnings};
use crate::binding::holders::{Claim, Stand};
use crate::binding::{Common, Cx, Found, Living, Next, Report, SAME, Want};
use crate::effect::{ExchangeId, Outcome, StoreCause, Why};
use crate::event::EventKind;
use crate::grant::Grant;
use crate::interface::{News, Seat};
use crate::link::{Hears, LinkCause, Sockets};
use crate::outbox::Stake;
use crate::patience::REMEMBERED;
use crate::plan;
use crate::record::{Former, Record, RecordState};
use crate::source::{Client, Fate, Lease, Loss, Output, Signal, StateName, UNREACHED, Verdict};
use crate::time::Instant;
use crate::wire::Mac;

/// A lease that is held.
#[derive(Debug)]
pub(crate) struct Hold {
    /// The client, in BOUND and beyond.
    pub(crate) client: Client,
    /// The last lease.
    pub(crate) last: Arc<Lease>,
    /// What few leases have; boxed for that reason.
    rare: Option<Box<Rare>>,
    after: After,
}

/// What few leases have.
#[derive(Debug, Default)]
struct Rare {
    /// When the journal last told that the leased address was taken off: repeated removals must not fill it.
    removal_told: Option<Instant>,
    /// What the interface carried, or what its runtime was given to put there, if the lease has changed since then and the
    /// interface was not known.
    carried: Option<Grant>,
    /// Whether only broadcasts reach the container.
    is_unreached: bool,
}

/// What follows from what happened, after everything else.
#[derive(Clone, Copy, Debug, Default)]
struct After {
    /// Whether the record must be written again.
    record: bool,
    /// Whether there may be work at the interface.
    work: bool,
    /// Whether the record must say what stays on the interface, unless more is done there first.
    note: bool,
    /// Whether sockets should be open, or closed.
    sockets: Option<bool>,
}

/// The state of a held lease before an event.
#[derive(Clone, Copy, Debug)]
struct HeldBefore {
    /// The client's state.
    state: StateName,
    /// The address that was used.
    used: Option<Ipv4Addr>,
}

impl Rare {
    /// Returns, once in a while, whether the journal is to tell that the leased address was taken off.
    fn tells_removal(&mut self, now: Instant) -> bool {
        let is_news = self
            .removal_told
            .is_none_or(|told| now.saturating_since(told) >= REMEMBERED);
        if is_news {
            self.removal_told = Some(now);
        }
        is_news
    }
}

impl Hold {
    fn before(&self) -> HeldBefore {
        HeldBefore {
            state: self.client.state(),
            used: self.client.lease().map(Lease::ip),
        }
    }

    pub(in crate::binding) fn new(client: Client, last: impl Into<Arc<Lease>>) -> Self {
        Self {
            client,
            last: last.into(),
            rare: None,
            after: After::default(),
        }
    }

    /// Tells the client whether servers can answer to the leased address. They cannot if it is not there. Messages to all servers may then leave over another link than a message to one server.
    fn tell_addressed(&mut self, cx: &mut Cx<'_>) {
        let broadcast = self.client.broadcasts();
        self.client.set_addressed(self.is_addressed(cx));
        self.client.set_out_of_sight(cx.own.is_pathless);
        if broadcast != self.client.broadcasts() && !cx.own.exchange.is_closed() {
            cx.end_exchange();
            self.client.begin_again(cx.now.boot);
        }
    }

    /// Returns what the interface, which is not known, carries although the lease has changed.
    fn carried(&self) -> Option<Box<Former>> {
        let grants = vec![self.rare.as_ref()?.carried.clone()?];
        Some(Box::new(Former {
            grants,
            ..Former::default()
        }))
    }

    /// Returns whether servers can answer to the leased address.
    fn is_addressed(&self, cx: &Cx<'_>) -> bool {
        cx.own.seat(cx.interfaces).is_some_and(Seat::is_addressed) && !cx.own.is_pathless
    }
}

impl Hold {
    /// Returns whether there is a lease that is not reported yet, because the store has not written it.
    pub(in crate::binding) fn waits_for_store(&self, common: &Common, now: Instant) -> bool {
        let lease = self.client.lease().filter(|lease| !lease.expired(now));
        lease.is_some() && self.lease(common, now).is_none()
    }

    pub(in crate::binding) fn is_unwritten(&self, common: &Common) -> bool {
        self.client.lease().is_some() && common.persistence.durable().is_none()
    }

    /// Returns whether only broadcasts reach the container, as far as is known.
    pub(crate) fn is_unreached(&self) -> bool {
        self.rare.as_ref().is_some_and(|rare| rare.is_unreached)
    }

    /// Extends the lease now, because another client was offered its address.
    pub(crate) fn renew_early(&mut self, cx: &mut Cx<'_>) -> Next {
        self.client.renew_early(cx.now.boot);
        self.signal(Signal::Clock, cx)
    }

    /// Refuses an address that a server gives although another holder has it. `used`: the binding's own address. Returns the loss,
    /// if the server has replaced the lease with that address.
    fn refuses(
        &mut self,
        output: &mut Output,
        used: Option<Ipv4Addr>,
        cx: &mut Cx<'_>,
    ) -> Option<Loss> {
        let (lease, _) = tenancy::given(&self.client, output, used, cx.now.boot)?;
        let tenant = tenancy::tenant(lease.ip(), cx)?;
        let lease = lease.clone();
        tenancy::tell_taken(&tenant, &lease, cx);
        let pause = self.client.pause();
        output.replace(self.client.refuse(cx.now.boot, pause));
        cx.out.report(cx.own.id, Report::WantsRenewed(tenant.id));
        let (server, address) = (lease.server, lease.ip());
        used.map(|_| Loss::Misplaced { server, address })
    }

    /// Handles another station's use of the address. The DECLINE leaves over the sockets that heard it.
    fn on_conflict(&mut self, by: Mac, cx: &mut Cx<'_>) -> Next {
        let before = self.before();
        let mut output = self.client.handle(cx.now.boot, Signal::Conflict { by });
        tenancy::limit_declines(&mut output, cx);
        cx.guard_send(std::mem::take(&mut output.frames));
        self.on_output(before, output, cx)
    }

    /// Handles the client's output, except for its frames.
    fn on_output(&mut self, before: HeldBefore, output: Output, cx: &mut Cx<'_>) -> Next {
        let Output {
            verdict,
            listen,
            anew,
            ..
        } = output;
        if anew {
            cx.end_exchange();
        }
        match verdict {
            Some(Verdict::Granted(lease)) => self.extended(before, lease, cx),
            Some(Verdict::Lost(lease, loss)) => self.lose(&lease, &loss, cx),
            None => {}
        }
        self.after.sockets = Some(listen);
        SAME
    }

    /// Opens sockets, once there is a permit; for a lease that is extended or confirmed, once it has its turn.
    fn open(&mut self, cx: &mut Cx<'_>) {
        if cx.own.exchange.is_closed() && cx.own.permit != Permit::Held {
            if std::mem::replace(&mut cx.own.permit, Permit::Asked) == Permit::None {
                cx.out.report(cx.own.id, Report::WantsPermit);
            }
            return;
        }
        self.tell_addressed(cx);
        let leased = self.client.lease().map(Lease::ip);
        let arp = leased.map_or(Hears::Answers, Hears::About);
        let want = Sockets {
            chaddr: cx.own.identity.chaddr,
            arp,
            hold_port: leased
                .filter(|_| cx.own.presence(cx.interfaces).on_link() && !cx.own.is_pathless),
        };
        cx.open(want, self.client.broadcasts());
    }

    /// Goes on with a lease that was extended, or is new, and may be used.
    fn extended(&mut self, before: HeldBefore, lease: Arc<Lease>, cx: &mut Cx<'_>) {
        // The answer to a RENEW is no broadcast.
        if before.state == StateName::Renewing && self.is_addressed(cx) {
            self.rare
                .iter_mut()
                .for_each(|rare| rare.is_unreached = false);
        }
        let last = std::mem::replace(&mut self.last, lease.clone());
        let had = before.used.is_some();
        let is_taken_off = cx.own.presence(cx.interfaces).is_left();
        let (kind, cause) = extension(before.state, &last, &lease, is_taken_off);
        let (attachment, server) = (&cx.own.attachment, lease.server);
        let address = lease.address;
        let confirmed = before.used == Some(lease.ip());
        match confirmed {
            // Not worth a line: every lease does that as long as it lives.
            true if before.state == StateName::Renewing && lease.grants_the_same(&last) => {
                tracing::debug!(%attachment, %address, %server, "lease extended")
            }
            true => tracing::info!(%attachment, %address, %server, cause, "lease extended"),
            false => tracing::warn!(%attachment, %address, %server, cause, "leased anew"),
        }
        let holding = self.holding(cx.own);
        let before_it = cx.own.grant(&last);
        match cx.own.seat_mut(cx.interfaces) {
            Some(seat) if had => seat.changed(&holding, &before_it),
            Some(seat) => seat.returned(&holding, &before_it),
            None if cx.own.profile.wants.is_found_later()
                && !plan::same(&before_it, &holding.last) =>
            {
                _ = self
                    .rare
                    .get_or_insert_default()
                    .carried
                    .get_or_insert(before_it)
            }
            None => {}
        }
        cx.note_with(Stake::Bound, kind, &lease, cause);
        // A confirmed lease may now be on another network, where another station has its address (RFC 5227 §2.1).
        if !confirmed || before.state == StateName::Rebooting {
            cx.guard_lease(lease.ip(), confirmed && self.is_addressed(cx));
        } else if self.is_addressed(cx) {
            cx.guard_extended(lease.ip());
        }
        self.record_again();
        self.has_work();
    }

    /// Reports that only broadcasts reach the container. The lease is kept.
    fn report_unreached(&mut self, cx: &mut Cx<'_>) {
        let Some(lease) = self.client.shared() else {
            return;
        };
        self.rare.get_or_insert_default().is_unreached = true;
        let attachment = &cx.own.attachment;
        let lan = &cx.own.identity.lan;
        tracing::warn!(%attachment, %lan, address = %lease.address, UNREACHED);
        cx.note(EventKind::Unreachable, &lease, UNREACHED);
    }

    /// Handles the loss of the lease.
    fn lose(&mut self, lease: &Lease, loss: &Loss, cx: &mut Cx<'_>) {
        tracing::warn!(attachment = %cx.own.attachment, address = %lease.address, %loss, "lease lost: looking for another");
        let seat = cx.own.seat(cx.interfaces);
        let was_used =
            seat.is_some_and(|seat| seat.may_carry(lease.ip().into(), &cx.own.grant(&self.last)));
        let taken = was_used && matches!(loss, Loss::Conflict { .. });
        cx.close_guard();
        match loss {
            Loss::Expired { .. } => cx.note(EventKind::Expired, lease, loss),
            Loss::Nak { .. } | Loss::Misplaced { .. } => cx.note(EventKind::Lost, lease, loss),
            Loss::Conflict { by } => _ = decline::declined(lease, *by, cx),
        }
        cx.end_exchange();
        cx.own.persistence.lost();
        self.leaves_lost(lease, taken, cx);
        if !matches!(loss, Loss::Expired { .. }) {
            let now = cx.now.boot;
            let work = cx.own.seat_mut(cx.interfaces).and_then(Seat::work_mut);
            work.into_iter().for_each(|work| work.await_note(now));
        }
        self.record_again();
        self.has_work();
    }
}

impl Living for Hold {
    fn signal(&mut self, signal: Signal<'_>, cx: &mut Cx<'_>) -> Next {
        let before = self.before();
        let from = signal.sender();
        self.tell_addressed(cx);
        let mut output = self.client.handle(cx.now.boot, signal);
        warnings::tell(from, &output, cx);
        count(&output, cx);
        let loss = self.refuses(&mut output, before.used, cx);
        let asked = self.client.requesting();
        let last = self.last.clone();
        cx.guard_request(asked, &mut output.frames);
        tenancy::limit_declines(&mut output, cx);
        cx.own
            .exchange
            .send(std::mem::take(&mut output.frames), cx.out);
        if let Some(loss) = loss {
            output.listen = false;
            self.lose(&last, &loss, cx);
        }
        self.on_output(before, output, cx)
    }

    fn settle(&mut self, cx: &mut Cx<'_>) {
        while self.after.record || self.after.work {
            if std::mem::take(&mut self.after.record) {
                let replaces = cx.own.persistence.take_replaced();
                self.persist(Want::Bound { replaces }, cx);
            }
            if std::mem::take(&mut self.after.work) {
                self.work(cx);
            }
        }
        let work = cx.own.seat(cx.interfaces).and_then(Seat::work);
        if std::mem::take(&mut self.after.note) && work.is_some_and(|work| !work.busy()) {
            self.after.record = true;
            return self.settle(cx);
        }
        match self.after.sockets.take() {
            Some(true) => self.open(cx),
            Some(false) => cx.end_exchange(),
            None => {}
        }
    }

    fn stand(&self) -> Stand {
        Stand::Held
    }

    fn claim(&self, now: Instant) -> Option<Claim> {
        claim_of(&self.client, now)
    }

    /// Returns a lease in which everything new, besides its times, is durable (invariant 1). Another address means that the
    /// previous lease is lost, even while the store still has it.
    fn lease<'a>(&'a self, common: &'a Common, now: Instant) -> Option<&'a Lease> {
        let lease = self.client.lease()?;
        let durable = common.persistence.durable()?;
        let told = if lease.grants_the_same(durable) {
            Some(lease)
        } else {
            common.persistence.still_good()
        };
        told.filter(|told| told.address == lease.address && !told.expired(now))
    }

    fn client(&self) -> Option<&Client> {
        Some(&self.client)
    }

    fn client_mut(&mut self) -> Option<&mut Client> {
        Some(&mut self.client)
    }

    fn deadline(&self) -> Option<(Instant, Why)> {
        let next = self.client.deadline();
        next.map(|(at, timer)| (at, Why::Dhcp(timer)))
    }

    fn record(&self, cx: &Cx<'_>) -> Option<Record> {
        let record = match self.client.lease() {
            Some(lease) => cx.record(lease, RecordState::Bound),
            None => cx.record(&self.last, RecordState::Seeking),
        };
        Some(Record {
            former: cx.own.former(cx.interfaces).or_else(|| self.carried()),
            unconfirmed: self.client.is_unconfirmed(),
            ..record
        })
    }

    /// Leaves a namespace that was not seen to the registry, which knows whether others are seen.
    fn is_lost(&self, cause: &LinkCause, cx: &mut Cx<'_>) -> bool {
        if cause.is_unseen() {
            cx.out.report(cx.own.id, Report::WantsLook);
        }
        cause.is_gone() && !cause.is_unseen()
    }

    fn on_clock(&mut self, cx: &mut Cx<'_>) -> Next {
        self.signal(Signal::Clock, cx)
    }

    fn on_unopened(&mut self, cause: LinkCause, cx: &mut Cx<'_>) -> Next {
        if self.is_lost(&cause, cx) {
            return self.on_gone(cause, cx);
        }
        match cause.is_unseen() {
            true => {
                tracing::debug!(attachment = %cx.own.attachment, %cause, "no sockets: trying again later")
            }
            false => {
                tracing::warn!(attachment = %cx.own.attachment, %cause, "no sockets: trying again later")
            }
        }
        self.signal(Signal::Unopened, cx)
    }

    fn on_no_line(&mut self, cause: LinkCause, cx: &mut Cx<'_>) -> Next {
        self.on_unopened(LinkCause::refused("use the parent link", cause), cx)
    }

    /// Goes on with what the store already holds, even after a failed write.
    fn on_persisted(&mut self, result: Result<(), StoreCause>, cx: &mut Cx<'_>) -> Next {
        if let Err(cause) = result {
            cx.write_later(&cause);
        }
        self.has_work();
        SAME
    }

    fn on_worked(&mut self, outcome: Outcome, cx: &mut Cx<'_>) -> Next {
        self.on_looked_or_changed(outcome, cx)
    }

    fn on_news(&mut self, news: News<'_>, cx: &mut Cx<'_>) -> Next {
        match news {
            News::Gone(cause) => return self.on_gone(cause, cx),
            News::Down => self.on_down(cx),
            News::Free => self.has_work(),
            News::CarrierBack(lost) => self.on_carrier_back(lost, cx),
            News::Ethernet(mac) => self.client.set_station(mac),
            News::AddressAdded(address) => {
                if self.expected_address(cx.own, cx.interfaces) == Some(address) {
                    self.on_address(true, cx);
                }
                return self.on_address_added(address, cx);
            }
            News::Seen { view, back } => return self.on_seen(view, back, cx),
        }
        SAME
    }

    fn on_found(&mut self, found: Found, cx: &mut Cx<'_>) -> Next {
        match found {
            Found::Free => self.client.is_free(),
            Found::Cleared | Found::Unwatched(_) => {}
            Found::Unreached => self.report_unreached(cx),
            Found::Conflict { by } => {
                cx.note_conflict(&self.client, by);
                return self.on_conflict(by, cx);
            }
        }
        SAME
    }

    fn on_permit(&mut self, _sockets: Option<ExchangeId>, cx: &mut Cx<'_>) -> Next {
        if cx.own.permit != Permit::Asked {
            return SAME;
        }
        cx.own.permit = Permit::Held;
        self.signal(Signal::Clock, cx)
    }
}

/// Counts the outcome of the client's message, and how long it took if it extended the lease.
fn count(output: &Output, cx: &mut Cx<'_>) {
    cx.out.counts.settled(output.settled);
    if let (Some(Verdict::Granted(lease)), Some((form, Fate::Answered))) =
        (&output.verdict, output.settled)
        && form.extends()
    {
        cx.out
            .counts
            .extended(form, cx.now.boot.saturating_since(lease.start));
    }
}
