//! Holding: a lease is renewed, rebound, lost and looked for again, for as long as its attachment lives.

use std::net::Ipv4Addr;
use std::time::Duration;

use super::persistence::{Persistence, Want};
use super::{Binding, Cx, Holder, Life};
use crate::dhcpv4::lease::Lease;
use crate::dhcpv4::message::Sender;
use crate::dhcpv4::{Client, Event, Loss, Output, Verdict};
use crate::event::EventKind;
use crate::link::{Hears, LinkCause, Sockets};
use crate::record::BindingId;
use crate::time::Instant;
use crate::wire::Mac;
use crate::wire::frame::Frame;

/// Carrier that was away for longer than this may have come back on another network (RFC 2131 §3.7).
const CARRIER_LOSS: Duration = Duration::from_secs(3);

/// A lease that is held.
#[derive(Debug)]
pub(crate) struct Hold {
    /// The client, in BOUND and beyond.
    pub(crate) client: Client,
    /// The last lease there was.
    pub(crate) last: Lease,
    /// Since when the link has no carrier.
    carrier_lost: Option<Instant>,
}

impl Hold {
    pub(super) fn new(client: Client, last: Lease) -> Self {
        Self { client, last, carrier_lost: None }
    }
}

impl Binding {
    /// Returns a binding that goes on with a lease where it stands.
    pub(crate) fn resumed(id: BindingId, holder: Holder, lease: Lease, cx: &mut Cx<'_>) -> Self {
        let hold = Hold::new(resume(holder.sender(), &lease, cx), lease.clone());
        let persistence = Persistence::recovered(lease);
        Self { persistence, ..Self::new(id, holder, Life::Held(Box::new(hold))) }
    }

    /// Returns a binding that goes on looking for a lease where it lost the last one.
    pub(crate) fn seeking(id: BindingId, holder: Holder, last: Lease, cx: &mut Cx<'_>) -> Self {
        let hold = Hold::new(seek(holder.sender(), cx), last);
        Self::new(id, holder, Life::Held(Box::new(hold)))
    }

    /// Returns the lease that callers may hear of: what is new in it beside its times is durable (invariant 1).
    pub(super) fn told(&self, now: Instant) -> Option<&Lease> {
        let Life::Held(hold) = &self.life else { return None };
        let (lease, durable) = (hold.client.lease()?, self.persistence.durable()?);
        let told = if lease.grants_the_same(durable) { lease } else { durable };
        Some(told).filter(|lease| !lease.expired(now))
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

    pub(super) fn hold_on_unopened(&mut self, cause: LinkCause, cx: &mut Cx<'_>) {
        if cause.is_gone() {
            return self.on_link_gone(cause, cx);
        }
        tracing::warn!(attachment = %self.attachment, %cause, "no sockets, trying again later");
        self.hold_event(Event::Unopened, cx);
    }

    /// Takes note of the link's carrier. Back after a loss, the lease is confirmed by INIT-REBOOT.
    pub(crate) fn on_carrier(&mut self, up: bool, cx: &mut Cx<'_>) {
        let Life::Held(hold) = &mut self.life else { return };
        if !up {
            hold.carrier_lost.get_or_insert(cx.now.boot);
            return;
        }
        let lost = hold.carrier_lost.take().map(|since| cx.now.boot.saturating_since(since));
        if lost.is_none_or(|lost| lost <= CARRIER_LOSS) {
            return;
        }
        let Some(lease) = hold.client.lease().cloned() else { return };
        tracing::info!(attachment = %self.attachment, address = %lease.address, ?lost, "carrier is back, confirming the lease");
        let (rng, sender) = (cx.rng.fork(), self.sender());
        let Life::Held(hold) = &mut self.life else { return };
        hold.client = Client::confirm(sender, lease, cx.now.boot, rng);
        self.exchange.close(cx);
        // What was heard on the wire of before says nothing of this one.
        if !self.is_probing() {
            self.close_guard(cx);
        }
    }

    fn hold_event(&mut self, event: Event<'_>, cx: &mut Cx<'_>) {
        let Life::Held(hold) = &mut self.life else { return };
        let (state, used) = (hold.client.state(), hold.client.lease().map(Lease::ip));
        let mut output = hold.client.handle(cx.now.boot, event);
        let asked = hold.client.requesting();
        self.guard_request(asked, &mut output.frames, cx);
        self.exchange.send(std::mem::take(&mut output.frames), cx);
        self.hold_output((state, used), output, cx);
    }

    /// Somebody else uses the address. DECLINE leaves by the sockets that this was heard on.
    pub(super) fn hold_on_conflict(&mut self, by: Mac, cx: &mut Cx<'_>) {
        let Life::Held(hold) = &mut self.life else { return };
        let before = (hold.client.state(), hold.client.lease().map(Lease::ip));
        let mut output = hold.client.handle(cx.now.boot, Event::Conflict { by });
        self.guard_send(std::mem::take(&mut output.frames), cx);
        self.hold_output(before, output, cx);
    }

    /// Nobody else uses the address that waited for that: it may be used.
    pub(super) fn hold_free(&mut self, cx: &mut Cx<'_>) {
        let Life::Held(hold) = &self.life else { return };
        if let Some(lease) = hold.client.lease().cloned() {
            self.hold_extended(("REQUESTING", None), lease, cx);
        }
    }

    /// Goes on with what the client put out but its frames. `before`: its state by its RFC 2131 name, and the address that
    /// it used.
    fn hold_output(&mut self, before: (&str, Option<Ipv4Addr>), output: Output, cx: &mut Cx<'_>) {
        let Output { verdict, listen, refused, .. } = output;
        if let Some(refused) = refused {
            cx.out.refused(&refused);
        }
        if let Some(verdict) = verdict {
            self.hold_verdict(before, verdict, cx);
        }
        let Life::Held(hold) = &self.life else { return };
        if listen {
            let leased = hold.client.lease().map(Lease::ip);
            let chaddr = self.identity.chaddr;
            let want = Sockets { chaddr, arp: leased.map_or(Hears::Answers, Hears::About), hold_port: leased };
            let broadcasts = hold.client.broadcasts();
            self.open(want, broadcasts, cx);
        } else {
            self.exchange.close(cx);
        }
    }

    /// Goes on after a turning point of the client.
    fn hold_verdict(&mut self, before: (&str, Option<Ipv4Addr>), verdict: Verdict, cx: &mut Cx<'_>) {
        match verdict {
            Verdict::Won(lease) | Verdict::Kept(lease) => {
                let fresh = before.1 != Some(lease.ip());
                match (fresh && self.probes_first(), self.is_probing()) {
                    (true, _) => self.guard_first(lease.ip(), cx),
                    // The same lease, extended while it is probed for.
                    (false, true) => {}
                    (false, false) => self.hold_extended(before, lease, cx),
                }
            }
            // Only an ADD insists on an address.
            Verdict::Unwanted { .. } => {}
            Verdict::Lost(lease, loss) => {
                tracing::warn!(attachment = %self.attachment, address = %lease.address, %loss, "lease lost, looking for another");
                self.close_guard(cx);
                match loss {
                    Loss::Expired => self.note(EventKind::Expired, &lease, "no server had extended it", cx),
                    Loss::Nak { .. } => self.note(EventKind::Lost, &lease, &loss, cx),
                    Loss::Conflict { by } => self.declined(&lease, by, cx),
                }
                self.persist(Want::Bound { replaces: Vec::new() }, cx);
            }
        }
    }

    /// A lease was extended, or there is one where there was none, and it may be used.
    fn hold_extended(&mut self, before: (&str, Option<Ipv4Addr>), lease: Lease, cx: &mut Cx<'_>) {
        let (state, used) = before;
        let Life::Held(hold) = &mut self.life else { return };
        let (attachment, address, server) = (&self.attachment, lease.address, lease.server);
        if hold.last.address == address {
            tracing::info!(%attachment, %address, %server, "lease extended");
        } else {
            let was = hold.last.address;
            tracing::warn!(%attachment, %was, %address, %server, "lease changed; the interface is as it was");
        }
        let last = std::mem::replace(&mut hold.last, lease.clone());
        self.note_extended(state, &last, &lease, cx);
        self.persist(Want::Bound { replaces: Vec::new() }, cx);
        // One that is confirmed may have come to another wire, where somebody else has its address (RFC 5227 §2.1).
        let confirmed = used == Some(lease.ip());
        if !confirmed || state == "REBOOTING" {
            self.guard_lease(lease.ip(), confirmed, cx);
        }
    }
}

/// Returns a client that looks for a lease.
pub(super) fn seek(sender: Sender, cx: &mut Cx<'_>) -> Client {
    Client::seek(sender, cx.now.boot, cx.rng.fork())
}

/// Returns a client that goes on with a lease.
pub(super) fn resume(sender: Sender, lease: &Lease, cx: &mut Cx<'_>) -> Client {
    Client::resume(sender, lease.clone(), cx.now.boot, cx.rng.fork())
}
