//! Holding: a lease is renewed, rebound, lost and looked for again, for as long as its attachment lives.

mod presence;

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use super::persistence::Persistence;
use super::{Binding, Cx, Holder, Life, Permit, Report, Work, told};
use crate::dhcpv4::lease::Lease;
use crate::dhcpv4::message::Sender;
use crate::dhcpv4::profile::OnChange;
use crate::dhcpv4::{Client, Event, Loss, Output, Verdict};
use crate::event::EventKind;
use crate::link::{Hears, LinkCause, Sockets};
use crate::record::{BindingId, Former};
use crate::time::Instant;
use crate::wire::Mac;
use crate::wire::frame::{BadFrame, Frame};

/// Carrier that was away for longer than this may have come back on another network (RFC 2131 §3.7).
const CARRIER_LOSS: Duration = Duration::from_secs(3);

/// A lease this old was told to its main plugin long ago: that its address is not on the interface is no longer a matter
/// of time.
const CONFIGURED: Duration = Duration::from_secs(60);

/// How often it is told that the leased address was taken off: whoever does that again and again is not to fill the journal.
const REMOVALS: Duration = Duration::from_secs(60);

/// A lease that is held.
#[derive(Debug)]
pub(crate) struct Hold {
    /// The client, in BOUND and beyond.
    pub(crate) client: Client,
    /// The last lease there was.
    pub(crate) last: Arc<Lease>,
    /// Since when the link has no carrier. Boxed: hardly any lease is without.
    carrier_lost: Option<Box<Instant>>,
    /// The interface got another Ethernet address, by which nobody knows the leased address yet.
    moved: bool,
    presence: Presence,
    /// When it was last told that the leased address was taken off. Boxed: hardly any lease has one.
    removal_told: Option<Box<Instant>>,
}

/// Whether the leased address is on the interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Presence {
    /// It was not looked at, or the main plugin may not have put it there yet.
    Unknown,
    /// The daemon is to put it there, which may have to wait for the store.
    Awaited,
    /// It is.
    There,
    /// It is not, and nobody here puts it there.
    Missing,
    /// Somebody took it off: what the container's owner wants there is not ours to say. It stays off until the next ADD, and so
    /// does that of any later lease, unless it is seen there again. KubeVirt takes it for its virtual machine.
    TakenOff,
}

/// How a held lease stood before an event.
#[derive(Clone, Copy, Debug)]
pub(super) struct Before {
    /// The client's state, by its RFC 2131 name.
    state: &'static str,
    /// The address that was used.
    pub(super) used: Option<Ipv4Addr>,
}

impl Hold {
    fn before(&self) -> Before {
        Before { state: self.client.state(), used: self.client.lease().map(Lease::ip) }
    }

    pub(super) fn new(client: Client, last: impl Into<Arc<Lease>>) -> Self {
        let (carrier_lost, moved, presence, removal_told) = (None, false, Presence::Unknown, None);
        Self { client, last: last.into(), carrier_lost, moved, presence, removal_told }
    }

    /// Tells whether the link has carrier, as far as is known.
    pub(super) fn has_carrier(&self) -> bool {
        self.carrier_lost.is_none()
    }

    /// Takes note that the interface got another Ethernet address. One that a restart finds so is old news.
    pub(super) fn moves(&mut self) {
        self.moved |= self.presence == Presence::There;
    }

    /// Tells whether the interface moved to another Ethernet address, and has carrier there.
    pub(super) fn has_moved(&self) -> bool {
        self.moved && self.has_carrier()
    }

    /// Returns the address that is to be announced because of that.
    pub(super) fn take_moved(&mut self) -> Option<Ipv4Addr> {
        let moved = self.has_moved() && std::mem::take(&mut self.moved);
        let there = moved && self.presence == Presence::There;
        self.client.lease().filter(|_| there).map(Lease::ip)
    }

    /// Tells whether the leased address is on the interface, or is expected to be.
    pub(super) fn on_link(&self) -> bool {
        !matches!(self.presence, Presence::Missing | Presence::TakenOff)
    }

    /// Returns whether the leased address is known to be on the interface.
    pub(super) fn is_there(&self) -> bool {
        self.presence == Presence::There
    }

    /// Tells whether servers can answer to the leased address.
    fn is_addressed(&self) -> bool {
        !matches!(self.presence, Presence::Missing | Presence::TakenOff | Presence::Awaited)
    }

    /// Returns whether somebody took the leased address off, so that none is put on.
    pub(super) fn is_taken_off(&self) -> bool {
        self.presence == Presence::TakenOff
    }

    /// Records that somebody took the leased address off.
    pub(super) fn take_off(&mut self) {
        self.presence = Presence::TakenOff;
        self.client.set_addressed(false);
    }

    /// Takes note that there is an address which the daemon is to put on the interface.
    pub(super) fn await_address(&mut self) {
        self.presence = Presence::Awaited;
        self.client.set_addressed(false);
    }

    /// Takes note that the daemon put an address on the interface. Tells whether this run of it began that.
    pub(super) fn put_on(&mut self, address: Ipv4Addr) -> bool {
        let was_awaited = self.presence == Presence::Awaited && self.client.lease().map(Lease::ip) == Some(address);
        if was_awaited {
            self.presence = Presence::There;
            self.client.set_addressed(true);
        }
        was_awaited
    }

    /// Takes note of what a record says of the interface: where it keeps an earlier address, the last one was never there.
    fn recall(&mut self, former: Option<&Former>, taken_off: bool, holder: &Holder) {
        if taken_off {
            return self.take_off();
        }
        let kept = former.filter(|former| holder.profile.on_change == OnChange::Keep && !former.bare);
        if kept.and_then(|former| former.leases.first()).is_some_and(|kept| kept.ip() != self.last.ip()) {
            self.expect_address(false);
        }
    }

    /// Takes note that there is another address, which is on the interface already, or is not to be.
    pub(super) fn expect_address(&mut self, there: bool) {
        self.presence = if there { Presence::Unknown } else { Presence::Missing };
        self.client.set_addressed(there);
    }
}

impl Binding {
    /// Returns a binding that goes on with a lease where it stands.
    pub(crate) fn resumed(
        id: BindingId,
        holder: Holder,
        lease: Lease,
        (former, taken_off): (Option<Box<Former>>, bool),
        cx: &mut Cx<'_>,
    ) -> Self {
        let lease = Arc::new(lease);
        let mut hold = Hold::new(resume(holder.sender(), lease.clone(), cx), lease.clone());
        hold.recall(former.as_deref(), taken_off, &holder);
        let (persistence, work) = (Persistence::recovered(lease.clone()), Work::recovered(former));
        let lost = hold.client.lease().is_none();
        let mut binding = Self { persistence, work, ..Self::new(id, holder, Life::Held(Box::new(hold))) };
        binding.know_station();
        if lost {
            tracing::warn!(attachment = %binding.attachment, address = %lease.address, "lease ended meanwhile, looking for another");
            binding.note(EventKind::Expired, &lease, "it ended while no daemon ran", cx);
            binding.lease_lost(&lease, false);
            binding.work.iter_mut().for_each(|work| work.await_turn());
            binding.record_again(cx);
        }
        binding
    }

    /// Returns a binding that goes on looking for a lease where it lost the last one.
    pub(crate) fn seeking(
        id: BindingId,
        holder: Holder,
        last: Lease,
        (former, taken_off): (Option<Box<Former>>, bool),
        cx: &mut Cx<'_>,
    ) -> Self {
        let mut hold = Hold::new(seek(holder.sender(), cx), last);
        hold.recall(former.as_deref(), taken_off, &holder);
        let work = Work::recovered(former);
        let mut binding = Self { work, ..Self::new(id, holder, Life::Held(Box::new(hold))) };
        binding.know_station();
        binding
    }

    fn know_station(&mut self) {
        let station = self.station();
        if let Life::Held(hold) = &mut self.life {
            hold.client.set_station(station);
        }
    }

    /// Returns the lease that callers may hear of: what is new in it beside its times is durable (invariant 1). Another
    /// address means that the one before is no more, even while the store still has it.
    pub(super) fn told(&self, now: Instant) -> Option<&Lease> {
        let Life::Held(hold) = &self.life else { return None };
        let (lease, durable) = (hold.client.lease()?, self.persistence.durable()?);
        let told = if lease.grants_the_same(durable) { Some(lease) } else { self.persistence.still_good() };
        told.filter(|told| told.address == lease.address && !told.expired(now) && !self.probes_after_loss())
    }

    /// Tells whether there is a lease of which nobody may hear yet, because the store has not written it.
    pub(crate) fn waits_for_store(&self, now: Instant) -> bool {
        let Life::Held(hold) = &self.life else { return false };
        let lease = hold.client.lease().filter(|lease| !lease.expired(now) && !self.is_probing());
        lease.is_some() && self.told(now).is_none()
    }

    /// Goes on as before a DEL that came to nothing. What was going on with servers begins anew. `probing`: how the binding stood
    /// before the lease that was probed for.
    pub(super) fn hold_again(&mut self, mut hold: Box<Hold>, probing: Option<Before>, cx: &mut Cx<'_>) {
        let sender = self.sender();
        let lease = hold.client.shared();
        hold.client = match &lease {
            // That it has ended is the clock's.
            Some(lease) if lease.expired(cx.now.boot) => hold.client,
            Some(lease) if hold.client.acquires() => Client::confirm(sender, lease.clone(), cx.now.boot, cx.rng.fork()),
            Some(lease) => resume(sender, lease.clone(), cx),
            None => seek(sender, cx),
        };
        hold.client.set_addressed(hold.is_addressed());
        self.life = Life::Held(hold);
        if let (Some(before), Some(lease)) = (probing, lease) {
            self.hold_verdict(before, Verdict::Won(lease), cx);
        }
    }

    pub(super) fn hold_on_clock(&mut self, cx: &mut Cx<'_>) {
        self.hold_event(Event::Clock, cx);
    }

    pub(super) fn hold_on_opened(&mut self, cx: &mut Cx<'_>) {
        self.hold_event(Event::Opened, cx);
    }

    pub(super) fn hold_on_frame(&mut self, frame: &Frame<'_>, cx: &mut Cx<'_>) {
        match frame {
            Frame::Udp(udp) => self.hold_event(Event::Udp(udp), cx),
            Frame::Arp(arp) => self.hold_event(Event::Arp(arp), cx),
        }
    }

    pub(super) fn hold_on_unreadable(&mut self, cause: BadFrame, from: Mac, cx: &mut Cx<'_>) {
        self.hold_event(Event::Unreadable { cause, from }, cx);
    }

    pub(super) fn hold_on_unopened(&mut self, cause: LinkCause, cx: &mut Cx<'_>) {
        if self.is_lost(&cause, cx) {
            return self.on_link_gone(cause, cx);
        }
        match cause.is_unseen() {
            true => tracing::debug!(attachment = %self.attachment, %cause, "no sockets, trying again later"),
            false => tracing::warn!(attachment = %self.attachment, %cause, "no sockets, trying again later"),
        }
        self.hold_event(Event::Unopened, cx);
    }

    /// Takes note of the link's carrier. Back after a loss, the lease is confirmed by INIT-REBOOT, or another looked for soon.
    pub(crate) fn on_carrier(&mut self, up: bool, cx: &mut Cx<'_>) {
        let Life::Held(hold) = &mut self.life else { return };
        if !up {
            hold.carrier_lost.get_or_insert_with(|| Box::new(cx.now.boot));
            return;
        }
        let lost = hold.carrier_lost.take().map(|since| cx.now.boot.saturating_since(*since));
        if lost.is_none_or(|lost| lost <= CARRIER_LOSS) {
            return;
        }
        let Some(lease) = hold.client.shared() else {
            if hold.client.seek_anew(cx.now.boot) {
                self.end_exchange(cx);
            }
            return;
        };
        if lease.expired(cx.now.boot) {
            // The clock's.
            return;
        }
        tracing::info!(attachment = %self.attachment, address = %lease.address, lost = lost.map(tracing::field::debug), "carrier is back, confirming the lease");
        let (rng, sender) = (cx.rng.fork(), self.sender());
        let Life::Held(hold) = &mut self.life else { return };
        hold.client = Client::confirm(sender, lease, cx.now.boot, rng);
        hold.client.set_addressed(hold.is_addressed());
        self.end_exchange(cx);
        // What was heard on the wire of before says nothing of this one.
        if !self.is_probing() {
            self.close_guard(cx);
        }
    }

    /// Goes on with an exchange that waited for its permit.
    pub(super) fn hold_on_permit(&mut self, cx: &mut Cx<'_>) {
        if self.permit != Permit::Asked {
            return;
        }
        self.permit = Permit::Held;
        self.hold_event(Event::Clock, cx);
    }

    /// Goes on with a try to extend the lease, at its turn.
    pub(crate) fn hold_on_turn(&mut self, at: Option<Instant>, cx: &mut Cx<'_>) {
        let Life::Held(hold) = &mut self.life else { return };
        hold.client.extend_at(cx.now.boot, at);
        self.hold_event(Event::Clock, cx);
    }

    /// Closes the sockets and gives the permit back, or the wish for one.
    pub(super) fn end_exchange(&mut self, cx: &mut Cx<'_>) {
        self.exchange.close(cx);
        if std::mem::take(&mut self.permit) != Permit::None {
            cx.out.report(self.id, Report::ExchangeOver);
        }
    }

    fn hold_event(&mut self, event: Event<'_>, cx: &mut Cx<'_>) {
        let Life::Held(hold) = &mut self.life else { return };
        let before = hold.before();
        let from = told::sender(&event);
        let mut output = hold.client.handle(cx.now.boot, event);
        self.tell_refused(from, &output, cx);
        let loss = self.hold_refuses(&mut output, before.used, cx);
        let Life::Held(hold) = &self.life else { return };
        let (asked, last) = (hold.client.requesting(), hold.last.clone());
        self.guard_request(asked, &mut output.frames, cx);
        match &output.verdict {
            Some(Verdict::Lost(lease, Loss::Conflict { .. })) if !self.may_decline(lease, cx) => output.frames.clear(),
            Some(_) | None => {}
        }
        self.exchange.send(std::mem::take(&mut output.frames), cx);
        if let Some(loss) = loss {
            output.listen = false;
            self.hold_lost(&last, &loss, cx);
        }
        self.hold_output(before, output, cx);
    }

    /// Somebody else uses the address. DECLINE leaves by the sockets that this was heard on, when the store knows.
    pub(super) fn hold_on_conflict(&mut self, by: Mac, cx: &mut Cx<'_>) {
        let Life::Held(hold) = &mut self.life else { return };
        let before = hold.before();
        let mut output = hold.client.handle(cx.now.boot, Event::Conflict { by });
        let frames = std::mem::take(&mut output.frames);
        match &output.verdict {
            Some(Verdict::Lost(lease, Loss::Conflict { .. })) if !self.may_decline(lease, cx) => {}
            Some(Verdict::Lost(_, Loss::Conflict { .. })) => self.decline_later(frames),
            _ => self.guard_send(frames, cx),
        }
        self.hold_output(before, output, cx);
    }

    /// Nobody else uses the address that waited for that: it may be used. `before`: how it was when it was granted.
    pub(super) fn hold_free(&mut self, before: Before, cx: &mut Cx<'_>) {
        let Life::Held(hold) = &mut self.life else { return };
        hold.client.set_addressed(hold.is_addressed());
        if let Some(lease) = hold.client.shared() {
            self.hold_extended(before, lease, cx);
        }
    }

    /// Goes on with what the client put out but its frames.
    fn hold_output(&mut self, before: Before, output: Output, cx: &mut Cx<'_>) {
        let Output { verdict, listen, .. } = output;
        if let Some(verdict) = verdict {
            self.hold_verdict(before, verdict, cx);
        }
        match listen {
            true => self.hold_open(cx),
            false => self.end_exchange(cx),
        }
    }

    /// Opens sockets. An exchange that may end in another address waits for a permit first, after all callers; one that
    /// extends a lease for its turn.
    fn hold_open(&mut self, cx: &mut Cx<'_>) {
        let Life::Held(hold) = &self.life else { return };
        if let Some(by) = hold.client.waits_for_turn(cx.now.boot).filter(|_| self.exchange.is_closed()) {
            return cx.out.report(self.id, Report::WantsToExtend { by });
        }
        if hold.client.acquires() && self.exchange.is_closed() && self.permit != Permit::Held {
            if std::mem::replace(&mut self.permit, Permit::Asked) == Permit::None {
                cx.out.report(self.id, Report::WantsPermit);
            }
            return;
        }
        if self.exchange.is_closed() && hold.client.is_to_discover(cx.now.boot) && !self.may_try(cx) {
            return self.end_exchange(cx);
        }
        let Life::Held(hold) = &self.life else { return };
        let leased = hold.client.lease().map(Lease::ip);
        let chaddr = self.identity.chaddr;
        let arp = leased.map_or(Hears::Answers, Hears::About);
        let want = Sockets { chaddr, arp, hold_port: leased.filter(|_| hold.on_link()) };
        let broadcasts = hold.client.broadcasts();
        self.open(want, broadcasts, cx);
    }

    /// Goes on after a turning point of the client.
    fn hold_verdict(&mut self, before: Before, verdict: Verdict, cx: &mut Cx<'_>) {
        match verdict {
            Verdict::Won(lease) | Verdict::Kept(lease) => {
                let fresh = before.used != Some(lease.ip());
                match self.is_probing() {
                    _ if fresh && self.probes_first() => self.hold_probing(lease.ip(), before, cx),
                    _ if fresh && self.doubts(lease.ip()) => self.hold_doubting(before, cx),
                    // The same lease, extended while it is probed for.
                    true => {}
                    false => self.hold_extended(before, lease, cx),
                }
            }
            // Only an ADD insists on an address.
            Verdict::Unwanted { .. } => {}
            Verdict::Lost(lease, loss) => self.hold_lost(&lease, &loss, cx),
        }
    }

    /// A lease waits for its probes. Its address is not used before: it is extended without.
    fn hold_probing(&mut self, address: Ipv4Addr, before: Before, cx: &mut Cx<'_>) {
        if let Life::Held(hold) = &mut self.life {
            hold.client.set_addressed(false);
        }
        self.guard_first(address, Some(before), cx);
    }

    /// A lease waits for word whether a station that claims its address claims every address.
    fn hold_doubting(&mut self, before: Before, cx: &mut Cx<'_>) {
        if let Life::Held(hold) = &mut self.life {
            hold.client.set_addressed(false);
        }
        self.hold_for_control(before, cx);
    }

    /// A lease was extended, or there is one where there was none, and it may be used.
    fn hold_extended(&mut self, before: Before, lease: Arc<Lease>, cx: &mut Cx<'_>) {
        let Life::Held(hold) = &mut self.life else { return };
        let last = std::mem::replace(&mut hold.last, lease.clone());
        let (attachment, was, address, server) = (&self.attachment, last.address, lease.address, lease.server);
        let (had, unchanged) = (before.used.is_some(), before.state == "RENEWING" && lease.grants_the_same(&last));
        match (had, was == address) {
            // No news: every lease does that for as long as it lives.
            (true, true) if unchanged => tracing::debug!(%attachment, %address, %server, "lease extended"),
            (true, true) => tracing::info!(%attachment, %address, %server, "lease extended"),
            (true, false) => tracing::warn!(%attachment, %was, %address, %server, "lease changed"),
            (false, _) => tracing::warn!(%attachment, %was, %address, %server, "there is a lease again"),
        }
        if self.is_taken_off() && (!had || was != address) {
            tracing::warn!(attachment = %self.attachment, %address, "not put on the interface: somebody took the address off there, and no ADD came since");
        }
        match had {
            true => self.lease_changed(&last),
            false => self.lease_returned(&last),
        }
        self.note_extended(before.state, &last, &lease, cx);
        // One that is confirmed may have come to another wire, where somebody else has its address (RFC 5227 §2.1).
        let confirmed = before.used == Some(lease.ip());
        if !confirmed || before.state == "REBOOTING" {
            let present = matches!(&self.life, Life::Held(hold) if hold.is_addressed());
            self.guard_lease(lease.ip(), confirmed && present, cx);
        }
        self.record_again(cx);
        self.work(cx);
    }

    pub(super) fn hold_lost(&mut self, lease: &Lease, loss: &Loss, cx: &mut Cx<'_>) {
        tracing::warn!(attachment = %self.attachment, address = %lease.address, %loss, "lease lost, looking for another");
        // What waited for its probes was never used, but what was there before it may be there still.
        let (left, taken) = match &self.life {
            Life::Held(hold) => {
                let was_used = hold.last.ip() == lease.ip() && hold.on_link() || self.may_carry(lease.ip());
                let left = if self.is_probing() { hold.last.clone() } else { Arc::new(lease.clone()) };
                (left, was_used && matches!(loss, Loss::Conflict { .. }))
            }
            Life::Acquiring(_) | Life::Releasing(_) => return,
        };
        if !self.is_declining() {
            self.close_guard(cx);
        }
        match loss {
            Loss::Expired { reason } => {
                let reason = reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
                self.note(EventKind::Expired, lease, format_args!("no server had extended it{reason}"), cx);
            }
            Loss::Nak { .. } | Loss::Misplaced { .. } | Loss::Double { .. } => {
                self.note(EventKind::Lost, lease, loss, cx)
            }
            Loss::Conflict { by } => self.declined(lease, *by, cx),
        }
        self.end_exchange(cx);
        self.persistence.lost();
        self.lease_lost(&left, taken);
        if !matches!(loss, Loss::Expired { .. }) {
            self.await_note(cx.now.boot);
        }
        self.record_again(cx);
        self.work(cx);
    }
}

/// Returns a client that looks for a lease.
pub(super) fn seek(sender: Sender, cx: &mut Cx<'_>) -> Client {
    Client::seek(sender, cx.now.boot, cx.rng.fork())
}

/// Returns a client that goes on with a lease.
pub(super) fn resume(sender: Sender, lease: Arc<Lease>, cx: &mut Cx<'_>) -> Client {
    Client::resume(sender, lease, cx.now.boot, cx.rng.fork())
}
