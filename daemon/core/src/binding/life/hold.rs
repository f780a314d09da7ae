//! Holding: a lease is renewed, rebound, lost and looked for again, as long as its attachment lives.

mod inside;
mod moves;

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use crate::binding::common::guard::decline;
use crate::binding::common::note::extension;
use crate::binding::common::tenancy::claim_of;
use crate::binding::common::{Permit, tenancy, warnings};
use crate::binding::holders::{Stand, Standing};
use crate::binding::{Common, Cx, Found, Living, Next, Report, SAME, Want};
use crate::effect::{ExchangeId, Outcome, StoreCause, Why};
use crate::event::EventKind;
use crate::grant::Grant;
use crate::interface::{News, Seat};
use crate::link::{Hears, LinkCause, Sockets};
use crate::outbox::Stake;
use crate::plan;
use crate::record::{Former, Record, RecordState};
use crate::rules::{Rule, cut};
use crate::source::{Client, Fate, Lease, Loss, Output, Signal, StateName, UNREACHED, Verdict};
use crate::time::Instant;
use crate::wire::Mac;

/// How often the removal of the leased address is reported at most: repeated removals must not fill the journal.
const REMOVALS: Duration = Duration::from_secs(60);

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
    /// When the removal of the leased address was last reported.
    removal_reported: Option<Instant>,
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
    /// Returns, once, whether the removal of the leased address should be reported by now.
    fn reports_removal(&mut self, now: Instant) -> bool {
        let is_news = self
            .removal_reported
            .is_none_or(|told| now.saturating_since(told) >= REMOVALS);
        if is_news {
            self.removal_reported = Some(now);
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
    fn tell_addressed(&mut self, common: &mut Common, cx: &mut Cx<'_>) {
        let broadcast = self.client.broadcasts();
        self.client.set_addressed(self.is_addressed(common, cx));
        if broadcast != self.client.broadcasts() && !common.exchange.is_closed() {
            common.end_exchange(cx);
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
    fn is_addressed(&self, common: &Common, cx: &Cx<'_>) -> bool {
        common.seat(cx.interfaces).is_some_and(Seat::is_addressed) && !common.is_pathless
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
    pub(crate) fn renew_early(&mut self, common: &mut Common, cx: &mut Cx<'_>) -> Next {
        self.client.renew_early(cx.now.boot);
        self.signal(common, Signal::Clock, cx)
    }

    /// Refuses an address that a server gives although another holder has it. `used`: the binding's own address. Returns the loss,
    /// if the server has replaced the lease with that address.
    fn refuses(
        &mut self,
        common: &mut Common,
        output: &mut Output,
        used: Option<Ipv4Addr>,
        cx: &mut Cx<'_>,
    ) -> Option<Loss> {
        let taken = tenancy::taken(common, &self.client, output, used, cx)?;
        tenancy::tell_taken(common, &taken, cx);
        let pause = self.client.pause();
        output.replace(self.client.refuse(cx.now.boot, pause));
        cx.out
            .report(common.id, Report::WantsRenewed(taken.tenant.id));
        let server = taken.lease.server;
        let address = taken.lease.ip();
        used.map(|_| Loss::Misplaced { server, address })
    }

    /// Handles another station's use of the address. Once the store has recorded the loss, the DECLINE leaves over the
    /// sockets that heard it.
    fn on_conflict(&mut self, common: &mut Common, by: Mac, cx: &mut Cx<'_>) -> Next {
        let before = self.before();
        let mut output = self.client.handle(cx.now.boot, Signal::Conflict { by });
        tenancy::limit_declines(common, &mut output, cx);
        let frames = std::mem::take(&mut output.frames);
        match &output.verdict {
            Some(Verdict::Lost(lease, Loss::Conflict { .. })) if !cut(Rule::DeclineAfterStore) => {
                common.decline_later((**lease).clone(), frames)
            }
            _ => common.guard_send(frames, cx),
        }
        self.on_output(common, before, output, cx)
    }

    /// Handles the client's output, except for its frames.
    fn on_output(
        &mut self,
        common: &mut Common,
        before: HeldBefore,
        output: Output,
        cx: &mut Cx<'_>,
    ) -> Next {
        let Output {
            verdict,
            listen,
            anew,
            ..
        } = output;
        if anew {
            common.end_exchange(cx);
        }
        match verdict {
            Some(Verdict::Won(lease) | Verdict::Kept(lease)) => {
                self.extended(common, before, lease, cx)
            }
            Some(Verdict::Lost(lease, loss)) => self.lose(common, &lease, &loss, cx),
            None => {}
        }
        self.after.sockets = Some(listen);
        SAME
    }

    /// Opens sockets, once there is a permit; for a lease that is extended or confirmed, once it has its turn.
    fn open(&mut self, common: &mut Common, cx: &mut Cx<'_>) {
        if common.exchange.is_closed() && common.permit != Permit::Held {
            if std::mem::replace(&mut common.permit, Permit::Asked) == Permit::None {
                cx.out.report(common.id, Report::WantsPermit);
            }
            return;
        }
        self.tell_addressed(common, cx);
        let leased = self.client.lease().map(Lease::ip);
        let arp = leased.map_or(Hears::Answers, Hears::About);
        let want = Sockets {
            chaddr: common.identity.chaddr,
            arp,
            hold_port: leased
                .filter(|_| common.presence(cx.interfaces).on_link() && !common.is_pathless),
        };
        common.open(want, self.client.broadcasts(), cx);
    }

    /// Goes on with a lease that was extended, or is new, and may be used.
    fn extended(
        &mut self,
        common: &mut Common,
        before: HeldBefore,
        lease: Arc<Lease>,
        cx: &mut Cx<'_>,
    ) {
        // The answer to a RENEW is no broadcast.
        if before.state == StateName::Renewing && self.is_addressed(common, cx) {
            self.rare
                .iter_mut()
                .for_each(|rare| rare.is_unreached = false);
        }
        let last = std::mem::replace(&mut self.last, lease.clone());
        let attachment = &common.attachment;
        let was = last.address;
        let address = lease.address;
        let server = lease.server;
        let had = before.used.is_some();
        let unchanged = before.state == StateName::Renewing && lease.grants_the_same(&last);
        match (had, was == address) {
            // Not worth a line: every lease does that as long as it lives.
            (true, true) if unchanged => {
                tracing::debug!(%attachment, %address, %server, "lease extended")
            }
            (true, true) => tracing::info!(%attachment, %address, %server, "lease extended"),
            (true, false) => tracing::warn!(%attachment, %was, %address, %server, "lease changed"),
            (false, _) => tracing::warn!(%attachment, %was, %address, %server, "leased again"),
        }
        let is_taken_off = common.presence(cx.interfaces).is_left();
        if is_taken_off && (!had || was != address) {
            tracing::warn!(attachment = %common.attachment, %address, "not put on the interface: the previous address was not there, and no ADD has come since");
        }
        let holding = self.holding(common);
        let before_it = common.grant(&last);
        match common.seat_mut(cx) {
            Some(seat) if had => seat.changed(&holding, &before_it),
            Some(seat) => seat.returned(&holding, &before_it),
            None if common.profile.wants.is_found_later()
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
        let (kind, cause) = extension(before.state, &last, &lease, is_taken_off);
        common.note_with(Stake::Bound, kind, &lease, cause, cx);
        // A confirmed lease may now be on another network, where another station has its address (RFC 5227 §2.1).
        let confirmed = before.used == Some(lease.ip());
        if !confirmed || before.state == StateName::Rebooting {
            common.guard_lease(lease.ip(), confirmed && self.is_addressed(common, cx), cx);
        } else if self.is_addressed(common, cx) {
            common.guard_extended(lease.ip(), cx);
        }
        self.record_again();
        self.has_work();
    }

    /// Reports that only broadcasts reach the container. The lease is kept.
    fn report_unreached(&mut self, common: &mut Common, cx: &mut Cx<'_>) {
        let Some(lease) = self.client.shared() else {
            return;
        };
        self.rare.get_or_insert_default().is_unreached = true;
        let attachment = &common.attachment;
        let lan = &common.identity.lan;
        tracing::warn!(%attachment, %lan, address = %lease.address, UNREACHED);
        common.note(EventKind::Unreachable, &lease, UNREACHED, cx);
    }

    /// Handles the loss of the lease.
    fn lose(&mut self, common: &mut Common, lease: &Lease, loss: &Loss, cx: &mut Cx<'_>) {
        tracing::warn!(attachment = %common.attachment, address = %lease.address, %loss, "lease lost: looking for another");
        let seat = common.seat(cx.interfaces);
        let was_used =
            seat.is_some_and(|seat| seat.may_carry(lease.ip().into(), &common.grant(&self.last)));
        let taken = was_used && matches!(loss, Loss::Conflict { .. });
        common.let_guard_decline(cx);
        match loss {
            Loss::Expired { reason } => {
                let reason = reason
                    .as_ref()
                    .map(|reason| format!(": {reason}"))
                    .unwrap_or_default();
                common.note(
                    EventKind::Expired,
                    lease,
                    format_args!("no server had extended it{reason}"),
                    cx,
                );
            }
            Loss::Nak { .. } | Loss::Misplaced { .. } => {
                common.note(EventKind::Lost, lease, loss, cx)
            }
            Loss::Conflict { by } => _ = decline::declined(common, lease, *by, cx),
        }
        common.end_exchange(cx);
        common.persistence.lost();
        self.leaves_lost(common, lease, taken, cx);
        if !matches!(loss, Loss::Expired { .. }) {
            let now = cx.now.boot;
            let work = common.seat_mut(cx).and_then(Seat::work_mut);
            work.into_iter().for_each(|work| work.await_note(now));
        }
        self.record_again();
        self.has_work();
    }
}

impl Living for Hold {
    fn signal(&mut self, common: &mut Common, signal: Signal<'_>, cx: &mut Cx<'_>) -> Next {
        let before = self.before();
        let from = signal.sender();
        self.tell_addressed(common, cx);
        let mut output = self.client.handle(cx.now.boot, signal);
        warnings::tell(common, from, &output, cx);
        count(&output, cx);
        let loss = self.refuses(common, &mut output, before.used, cx);
        let asked = self.client.requesting();
        let last = self.last.clone();
        common.guard_request(asked, &mut output.frames, cx);
        tenancy::limit_declines(common, &mut output, cx);
        common
            .exchange
            .send(std::mem::take(&mut output.frames), cx.out);
        if let Some(loss) = loss {
            output.listen = false;
            self.lose(common, &last, &loss, cx);
        }
        self.on_output(common, before, output, cx)
    }

    fn settle(&mut self, common: &mut Common, cx: &mut Cx<'_>) {
        while self.after.record || self.after.work {
            if std::mem::take(&mut self.after.record) {
                let replaces = common.persistence.take_replaced();
                self.persist(common, Want::Bound { replaces }, cx);
            }
            if std::mem::take(&mut self.after.work) {
                self.work(common, cx);
            }
        }
        let work = common.seat(cx.interfaces).and_then(Seat::work);
        if std::mem::take(&mut self.after.note) && work.is_some_and(|work| !work.busy()) {
            self.after.record = true;
            return self.settle(common, cx);
        }
        match self.after.sockets.take() {
            Some(true) => self.open(common, cx),
            Some(false) => common.end_exchange(cx),
            None => {}
        }
    }

    fn is_live(&self) -> bool {
        true
    }

    fn standing(&self, now: Instant) -> Standing {
        Standing {
            stage: Stand::Held,
            claim: claim_of(&self.client, now),
        }
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

    fn record(&self, common: &Common, cx: &Cx<'_>) -> Option<Record> {
        let record = match self.client.lease() {
            Some(lease) => common.record(lease, RecordState::Bound, cx),
            None => common.record(&self.last, RecordState::Seeking, cx),
        };
        Some(Record {
            former: common.former(cx.interfaces).or_else(|| self.carried()),
            unconfirmed: self.client.is_unconfirmed(),
            ..record
        })
    }

    /// Leaves a namespace that was not seen to the registry, which knows whether others are seen.
    fn is_lost(&self, common: &Common, cause: &LinkCause, cx: &mut Cx<'_>) -> bool {
        if cause.is_unseen() {
            cx.out.report(common.id, Report::WantsLook);
        }
        cause.is_gone() && !cause.is_unseen()
    }

    fn on_clock(&mut self, common: &mut Common, cx: &mut Cx<'_>) -> Next {
        self.signal(common, Signal::Clock, cx)
    }

    fn on_unopened(&mut self, common: &mut Common, cause: LinkCause, cx: &mut Cx<'_>) -> Next {
        if self.is_lost(common, &cause, cx) {
            return self.on_gone(common, cause, cx);
        }
        match cause.is_unseen() {
            true => {
                tracing::debug!(attachment = %common.attachment, %cause, "no sockets: trying again later")
            }
            false => {
                tracing::warn!(attachment = %common.attachment, %cause, "no sockets: trying again later")
            }
        }
        self.signal(common, Signal::Unopened, cx)
    }

    fn on_no_line(&mut self, common: &mut Common, cause: LinkCause, cx: &mut Cx<'_>) -> Next {
        self.on_unopened(common, LinkCause::refused("use the parent link", cause), cx)
    }

    /// Goes on with what the store already holds, even after a failed write.
    fn on_persisted(
        &mut self,
        common: &mut Common,
        result: Result<(), StoreCause>,
        cx: &mut Cx<'_>,
    ) -> Next {
        if let Err(cause) = result {
            common.persistence.try_later(&common.attachment, &cause, cx);
        }
        self.has_work();
        SAME
    }

    fn on_worked(&mut self, common: &mut Common, outcome: Outcome, cx: &mut Cx<'_>) -> Next {
        self.on_looked_or_changed(common, outcome, cx)
    }

    fn on_news(&mut self, common: &mut Common, news: News<'_>, cx: &mut Cx<'_>) -> Next {
        match news {
            News::Gone(cause) => return self.on_gone(common, cause, cx),
            News::Down => self.on_down(common, cx),
            News::Free => self.has_work(),
            News::CarrierBack(lost) => self.on_carrier_back(common, lost, cx),
            News::Ethernet(mac) => self.client.set_station(mac),
            News::AddressAdded(address) => {
                if self.expected_address(common, cx.interfaces) == Some(address) {
                    self.on_address(common, true, cx);
                }
                return self.on_address_added(common, address, cx);
            }
            News::Seen { view, back } => return self.on_seen(common, view, back, cx),
        }
        SAME
    }

    fn on_found(&mut self, common: &mut Common, found: Found, cx: &mut Cx<'_>) -> Next {
        match found {
            Found::Free => self.client.is_free(),
            Found::Cleared | Found::Unwatched(_) => {}
            Found::Unreached => self.report_unreached(common, cx),
            Found::Conflict { by } => {
                common.note_conflict(&self.client, by, cx);
                return self.on_conflict(common, by, cx);
            }
        }
        SAME
    }

    fn on_permit(
        &mut self,
        common: &mut Common,
        _sockets: Option<ExchangeId>,
        cx: &mut Cx<'_>,
    ) -> Next {
        if common.permit != Permit::Asked {
            return SAME;
        }
        common.permit = Permit::Held;
        self.signal(common, Signal::Clock, cx)
    }
}

/// Counts the outcome of the client's message, and how long it took if it extended the lease.
fn count(output: &Output, cx: &mut Cx<'_>) {
    cx.out.counts.settled(output.settled);
    if let (Some(Verdict::Won(lease) | Verdict::Kept(lease)), Some((form, Fate::Answered))) =
        (&output.verdict, output.settled)
        && form.extends()
    {
        cx.out
            .counts
            .extended(form, cx.now.boot.saturating_since(lease.start));
    }
}
