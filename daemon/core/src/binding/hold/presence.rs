//! Whether the leased address is on the interface, and who took it off.

use std::net::Ipv4Addr;

use super::super::{Binding, Cx, Life};
use super::{CONFIGURED, Presence, REMOVALS};
use crate::dhcpv4::lease::Lease;
use crate::event::EventKind;
use crate::link::LinkView;

impl Binding {
    /// Returns the address that the interface should carry by now, of the lease or of the last one where that is kept: `None`
    /// while there is none, while it is probed for, or while the daemon itself is changing that, or is to.
    pub(crate) fn expected_address(&self) -> Option<Ipv4Addr> {
        let Life::Held(hold) = &self.life else { return None };
        let changes = self.at_work() || self.is_probing() || hold.presence == Presence::Awaited;
        let kept = || self.keeps_lost().then_some(&*hold.last);
        hold.client.lease().or_else(kept).filter(|_| !changes).map(Lease::ip)
    }

    /// Takes note of what a look at the interface showed.
    pub(crate) fn on_seen(&mut self, view: &LinkView, cx: &mut Cx<'_>) {
        self.know_mtu(view.mtu);
        self.on_carrier(view.carrier, cx);
        if let Some(address) = self.expected_address() {
            self.on_address(view.addresses.iter().any(|there| there.addr() == address), cx);
        }
        // The message that told of it may be lost.
        for there in &view.addresses {
            self.on_address_added(there.addr(), cx);
        }
    }

    /// Takes note that an address is on the interface.
    pub(crate) fn on_address_added(&mut self, address: Ipv4Addr, cx: &mut Cx<'_>) {
        self.guard_on_address(address, cx);
        self.on_address_late(address, cx);
    }

    /// A main plugin may put an address on that is lost already: it goes again.
    fn on_address_late(&mut self, address: Ipv4Addr, cx: &mut Cx<'_>) {
        let Life::Held(hold) = &self.life else { return };
        if hold.client.lease().is_some() || hold.last.ip() != address {
            return;
        }
        let taken = hold.client.tally().declined.is_some_and(|(declined, _)| declined == address);
        let last = hold.last.clone();
        if self.lease_lost(&last, taken) {
            self.record_again(cx);
        }
        self.stir();
        self.work(cx);
    }

    /// Takes note of whether the leased address is on the interface. One that somebody took off is not put back; without
    /// it servers cannot answer a renewal, so the lease is extended by INIT-REBOOT from there on. One that is only kept there
    /// after its lease is nobody's loss.
    pub(crate) fn on_address(&mut self, there: bool, cx: &mut Cx<'_>) {
        let Life::Held(hold) = &mut self.life else { return };
        let Some(lease) = hold.client.lease() else {
            let was = hold.presence;
            hold.presence = match (there, was) {
                (true, _) => Presence::There,
                (false, Presence::There | Presence::TakenOff) => Presence::TakenOff,
                (false, Presence::Unknown | Presence::Awaited | Presence::Missing) => Presence::Missing,
            };
            hold.client.set_addressed(there);
            if hold.is_taken_off() && was != Presence::TakenOff {
                self.record_again(cx);
            }
            return;
        };
        let (was, address) = (hold.presence, lease.address);
        let mut removed = None;
        let configured = was == Presence::There || cx.now.boot.saturating_since(lease.start) > CONFIGURED;
        match (there, was) {
            (true, Presence::There) | (false, Presence::Missing | Presence::TakenOff) => return,
            (true, Presence::Missing | Presence::TakenOff) => {
                tracing::debug!(attachment = %self.attachment, %address, "leased address is on the interface again");
            }
            (true, Presence::Unknown | Presence::Awaited) => {}
            (false, Presence::There | Presence::Unknown | Presence::Awaited) if configured => {
                removed = Some(lease.clone());
            }
            (false, Presence::There | Presence::Unknown | Presence::Awaited) => {}
        }
        hold.presence = match (there, &removed) {
            (true, _) => Presence::There,
            (false, Some(_)) => Presence::TakenOff,
            (false, None) => Presence::Missing,
        };
        hold.client.set_addressed(there);
        let is_news = hold.removal_told.as_ref().is_none_or(|told| cx.now.boot.saturating_since(**told) >= REMOVALS);
        if let Some(lease) = removed.filter(|_| is_news) {
            hold.removal_told = Some(Box::new(cx.now.boot));
            tracing::warn!(attachment = %self.attachment, %address, "leased address was taken off the interface, by none of ours");
            self.note(EventKind::AddressRemoved, &lease, "somebody took it off the interface: it is not put back", cx);
            self.record_again(cx);
        }
        if there {
            return self.work(cx);
        }
        self.guard_off_address(address.addr());
        self.route_no_more();
    }

    /// Returns whether somebody took the leased address off the interface, so that none is put on.
    pub(crate) fn is_taken_off(&self) -> bool {
        match &self.life {
            Life::Acquiring(acquire) => acquire.taken_off,
            Life::Held(hold) => hold.is_taken_off(),
            Life::Releasing(_) => false,
        }
    }

    /// Puts the leased address on again, which was taken off for an ADD that came to nothing.
    pub(crate) fn put_back(&mut self, cx: &mut Cx<'_>) {
        let probing = self.is_probing();
        let Life::Held(hold) = &mut self.life else { return };
        if hold.client.lease().is_none() || !hold.on_link() || probing {
            return;
        }
        hold.await_address();
        self.work_from_bare();
        self.record_again(cx);
        self.work(cx);
    }
}
