//! A station claims the address under watch. Before anything comes of that it is asked for an address that nobody can have: who
//! answers for that claims every address, and is not heard any more.
//!
//! Meanwhile the lease waits: an ADD is not answered, and one for which nobody waits is not used. Where the question cannot be
//! asked the claim stands.

use std::net::Ipv4Addr;

use super::super::hold::Before;
use super::super::{Binding, Cx, Life, Report, Stage};
use super::{Waits, Way};
use crate::conflict::control::{self, Control, Turn, Verdict};
use crate::dhcpv4::lease::Lease;
use crate::event::EventKind;
use crate::time::Instant;
use crate::wire::Mac;
use crate::wire::frame::{Arp, ArpOp};

impl Binding {
    /// Returns whether a station claims the address under watch, and what that is worth is not known yet.
    pub(in crate::binding) fn is_in_doubt(&self) -> bool {
        self.guard.as_ref().is_some_and(|guard| guard.control.is_some())
    }

    /// Returns whether that goes for this address.
    pub(in crate::binding) fn doubts(&self, address: Ipv4Addr) -> bool {
        self.is_in_doubt() && self.guards(address)
    }

    /// Returns the address under watch and who uses it, or claims it, as far as is known.
    pub(in crate::binding) fn claim(&self) -> Option<(Ipv4Addr, Mac)> {
        let guard = self.guard.as_ref()?;
        let by = guard.heard.or_else(|| guard.control.as_ref()?.claimant())?;
        Some((guard.window.address(), by))
    }

    /// Keeps an ADD waiting until that is known. The sockets stay open.
    pub(in crate::binding) fn await_control(&mut self, cx: &mut Cx<'_>) {
        let Life::Acquiring(acquire) = &mut self.life else { return };
        acquire.stage = Stage::Probing;
        cx.out.report(self.id, Report::ExchangeOver);
        if let Some(guard) = &mut self.guard {
            guard.waits = Waits::Add;
        }
    }

    /// Keeps a lease for which nobody waits from being used until that is known. The sockets of its exchange are about to close.
    pub(in crate::binding) fn hold_for_control(&mut self, before: Before, cx: &mut Cx<'_>) {
        if let Some(guard) = &mut self.guard {
            guard.waits = Waits::Lease(before);
            guard.way = Way::Own { at: cx.now.boot };
        }
        self.guard_on_clock(cx);
    }

    /// Returns when the control next has something to do, where there is one.
    pub(super) fn control_deadline(&self) -> Option<Instant> {
        let guard = self.guard.as_ref()?;
        let (can_send, opens) = match guard.way {
            Way::Own { at } if guard.exchange.is_closed() => (false, Some(at)),
            Way::Own { .. } => (guard.exchange.can_send(), None),
            Way::Shared => (self.exchange.can_send(), None),
        };
        let due = guard.control.as_ref()?.deadline(can_send);
        Some(opens.map_or(due, |at| at.min(due)))
    }

    /// Goes on with the control as the clock says; false where it waits.
    pub(super) fn control_on_clock(&mut self, can_send: bool, cx: &mut Cx<'_>) -> bool {
        let Some(guard) = &mut self.guard else { return false };
        let Some(control) = &mut guard.control else { return true };
        match control.on_clock(cx.now.boot, can_send) {
            Turn::Ask(frame) => self.guard_send(vec![frame], cx),
            Turn::Wait => return false,
            Turn::Over(Verdict::Has(_)) => self.believe_claim(cx),
            Turn::Over(Verdict::Nobody(proxies)) => self.clear(&proxies, cx),
        }
        true
    }

    /// Takes a claim in. The first one begins a control.
    pub(super) fn doubt(&mut self, by: Mac, arp: &Arp, cx: &mut Cx<'_>) {
        let Some(guard) = &mut self.guard else { return };
        if let Some(control) = &mut guard.control {
            return control.claims(by);
        }
        let (attachment, address, claim) = (&self.attachment, guard.window.address(), claim_of(arp));
        let client = match &self.life {
            Life::Acquiring(acquire) => &acquire.client,
            Life::Held(hold) => &hold.client,
            Life::Releasing(_) => return,
        };
        let Some(lease) = client.owed(cx.now.boot).filter(|lease| lease.ip() == address) else {
            guard.heard = Some(by);
            return self.on_conflict(by, cx);
        };
        let control = control::address(lease.address, lease.server, cx.rng);
        tracing::info!(%attachment, %address, %by, claim, %control, "somebody else claims the address, asking for one that nobody can have");
        guard.control = Some(Box::new(Control::new(control, guard.window.from(), by, cx.now.boot)));
        self.guard_on_clock(cx);
    }

    /// Acts on a claim: the control is over, or cannot be.
    pub(super) fn believe_claim(&mut self, cx: &mut Cx<'_>) {
        let Some((_, by)) = self.claim() else { return };
        if let Some(guard) = &mut self.guard {
            (guard.control, guard.heard) = (None, Some(by));
        }
        self.on_conflict(by, cx);
    }

    /// Returns whether an ARP packet of somebody else comes from a station that claims every address, as far as its claim to the
    /// address under watch goes; answers for a control are taken in.
    pub(super) fn is_of_proxy(&mut self, arp: &Arp, cx: &mut Cx<'_>) -> bool {
        let Some(guard) = self.guard.as_mut().filter(|guard| guard.window.is_of_another(arp)) else { return false };
        if let Some(control) = &mut guard.control {
            control.on_arp(arp);
        }
        let (by, address) = (arp.sender_mac, guard.window.address());
        let Some(proxy) = cx.conflicts.proxy(&self.identity.lan, by, cx.now.boot) else { return false };
        if arp.sender == address && !std::mem::replace(&mut guard.ignores, true) {
            self.note_proxy(by, proxy.control, cx);
        }
        arp.sender == address
    }

    /// Goes on after all that claim the address were found to claim every address.
    fn clear(&mut self, proxies: &[Mac], cx: &mut Cx<'_>) {
        let Some(guard) = &mut self.guard else { return };
        let Some(control) = guard.control.take() else { return };
        guard.ignores = true;
        // A strict window goes on to the end of its probes.
        let goes_on = guard.window.is_strict() && !matches!(guard.waits, Waits::Nothing);
        let (address, control, lan) = (guard.window.address(), control.address(), self.identity.lan.clone());
        for by in proxies {
            tracing::warn!(attachment = %self.attachment, %lan, %address, %by, %control, "somebody else answers for an address that nobody can have: what it claims is not heard");
            cx.conflicts.answers_for_all(&lan, *by, control, cx.now.boot);
            self.note_proxy(*by, control, cx);
        }
        if goes_on {
            return;
        }
        match self.guard.as_mut().map(|guard| std::mem::take(&mut guard.waits)).unwrap_or_default() {
            Waits::Nothing => self.acquire_cleared(cx),
            Waits::Add => self.make_durable(cx),
            Waits::Lease(before) => self.hold_free(before, cx),
        }
    }

    /// Notes for the operator that what a station claims is not heard.
    fn note_proxy(&self, by: Mac, control: Ipv4Addr, cx: &mut Cx<'_>) {
        let client = match &self.life {
            Life::Acquiring(acquire) => &acquire.client,
            Life::Held(hold) => &hold.client,
            Life::Releasing(_) => return,
        };
        let Some(lease) = client.owed(cx.now.boot) else { return };
        let address = Lease::ip(lease);
        let cause = format_args!(
            "{by} claims {address}, and answered for {control} too, which nobody can have: what it claims is not heard"
        );
        self.note(EventKind::DetectionOff, lease, cause, cx);
    }
}

/// Returns how a station claims an address, for a person.
fn claim_of(arp: &Arp) -> &'static str {
    match arp.op {
        ArpOp::Reply => "it answers for it",
        ArpOp::Request if arp.sender.is_unspecified() => "it probes for it",
        ArpOp::Request if arp.sender == arp.target => "it announces it",
        ArpOp::Request => "it asks from it",
    }
}
