//! What is seen of the interface: its carrier, its Ethernet address, whether the leased address is there, and who took it off.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use super::{CONFIGURED, Hold, Presence, REMOVALS};
use crate::binding::{Common, Cx, Living, Next, SAME};
use crate::dhcpv4::Client;
use crate::dhcpv4::lease::Lease;
use crate::event::EventKind;
use crate::link::LinkView;
use crate::wire::Mac;

/// Carrier that was away for longer than this may have come back on another network (RFC 2131 §3.7).
const CARRIER_LOSS: Duration = Duration::from_secs(3);

impl Hold {
    /// Records the link's carrier. Back after a loss, the lease is confirmed by INIT-REBOOT, or another looked for soon.
    pub(in crate::binding) fn on_carrier(&mut self, common: &mut Common, up: bool, cx: &mut Cx<'_>) {
        if !up {
            self.carrier_lost.get_or_insert_with(|| Box::new(cx.now.boot));
            return;
        }
        let lost = self.carrier_lost.take().map(|since| cx.now.boot.saturating_since(*since));
        if lost.is_none_or(|lost| lost <= CARRIER_LOSS) {
            return;
        }
        let Some(lease) = self.client.shared() else {
            if self.client.seek_anew(cx.now.boot) {
                common.end_exchange(cx);
            }
            return;
        };
        if lease.expired(cx.now.boot) {
            // The clock's.
            return;
        }
        tracing::info!(attachment = %common.attachment, address = %lease.address, lost = lost.map(tracing::field::debug), "carrier is back, confirming the lease");
        let (rng, sender) = (cx.rng.fork(), common.sender());
        self.client = Client::confirm(sender, lease, cx.now.boot, rng);
        self.client.set_addressed(self.is_addressed());
        common.end_exchange(cx);
        // What was heard on the previous network says nothing of this one.
        if !common.is_probing() {
            common.close_guard(cx);
        }
    }

    /// Records that the interface has another Ethernet address.
    pub(in crate::binding) fn on_ethernet(&mut self, mac: Mac) {
        self.client.set_station(mac);
        self.moves();
    }

    /// Announces the address of an interface that got another Ethernet address.
    pub(in crate::binding) fn announce_moved(&mut self, common: &mut Common, cx: &mut Cx<'_>) -> Next {
        let Some(address) = self.take_moved() else { return SAME };
        match common.announce_moved(address, cx) {
            true => self.watch(common, cx),
            false => SAME,
        }
    }

    /// Returns the address that the interface should carry by now, of the lease or of the last one where that is kept: `None`
    /// while there is none, while it is probed for, or while the daemon itself is changing that, or is to.
    pub(in crate::binding) fn expected_address(&self, common: &Common) -> Option<Ipv4Addr> {
        let changes = self.at_work(common) || common.is_probing() || self.presence == Presence::Awaited;
        let kept = || self.keeps_lost(common).then_some(&*self.last);
        self.client.lease().or_else(kept).filter(|_| !changes).map(Lease::ip)
    }

    /// Records what a look at the interface showed.
    pub(in crate::binding) fn on_seen(&mut self, common: &mut Common, view: &LinkView, cx: &mut Cx<'_>) {
        self.client.set_mtu(view.mtu);
        self.on_carrier(common, view.carrier, cx);
        if let Some(address) = self.expected_address(common) {
            self.on_address(common, view.addresses.iter().any(|there| there.addr() == IpAddr::V4(address)), cx);
        }
    }

    /// Records that an address is on the interface.
    pub(in crate::binding) fn on_address_added(
        &mut self,
        common: &mut Common,
        address: IpAddr,
        cx: &mut Cx<'_>,
    ) -> Next {
        let IpAddr::V4(address) = address else { return SAME };
        if common.guard_on_address(address, cx) {
            self.watch(common, cx)?;
        }
        self.on_address_late(common, address);
        SAME
    }

    /// A main plugin may put an address on that is lost already: it goes again.
    fn on_address_late(&mut self, common: &Common, address: Ipv4Addr) {
        if self.client.lease().is_some() || self.last.ip() != address {
            return;
        }
        let taken = self.client.tally().declined.is_some_and(|(declined, _)| declined == address);
        let last = self.last.clone();
        if self.leaves_lost(common, &last, taken) {
            self.record_again();
        }
        self.stir();
        self.has_work();
    }

    /// Records whether the leased address is on the interface. One that somebody took off is not put back; without
    /// it servers cannot answer a renewal, so the lease is extended by INIT-REBOOT from there on. One that is only kept there
    /// after its lease is nobody's loss.
    pub(in crate::binding) fn on_address(&mut self, common: &mut Common, there: bool, cx: &mut Cx<'_>) {
        let Some(lease) = self.client.lease() else {
            let was = self.presence;
            self.presence = match (there, was) {
                (true, _) => Presence::There,
                (false, Presence::There | Presence::TakenOff) => Presence::TakenOff,
                (false, Presence::Unknown | Presence::Awaited | Presence::Missing) => Presence::Missing,
            };
            self.client.set_addressed(there);
            if self.is_taken_off() && was != Presence::TakenOff {
                self.record_again();
            }
            return;
        };
        let (was, address) = (self.presence, lease.address);
        let mut removed = None;
        let configured = was == Presence::There || cx.now.boot.saturating_since(lease.start) > CONFIGURED;
        match (there, was) {
            (true, Presence::There) | (false, Presence::Missing | Presence::TakenOff) => return,
            (true, Presence::Missing | Presence::TakenOff) => {
                tracing::debug!(attachment = %common.attachment, %address, "leased address is on the interface again");
            }
            (true, Presence::Unknown | Presence::Awaited) => {}
            (false, Presence::There | Presence::Unknown | Presence::Awaited) if configured => {
                removed = Some(lease.clone());
            }
            (false, Presence::There | Presence::Unknown | Presence::Awaited) => {}
        }
        self.presence = match (there, &removed) {
            (true, _) => Presence::There,
            (false, Some(_)) => Presence::TakenOff,
            (false, None) => Presence::Missing,
        };
        self.client.set_addressed(there);
        let is_news = self.removal_told.as_ref().is_none_or(|told| cx.now.boot.saturating_since(**told) >= REMOVALS);
        if let Some(lease) = removed.filter(|_| is_news) {
            self.removal_told = Some(Box::new(cx.now.boot));
            tracing::warn!(attachment = %common.attachment, %address, "leased address was taken off the interface, by none of ours");
            common.note(
                EventKind::AddressRemoved,
                &lease,
                "somebody took it off the interface: it is not put back",
                cx,
            );
            self.record_again();
        }
        if there {
            return self.has_work();
        }
        common.guard_off_address(address.addr());
        self.route_no_more();
    }

    /// Puts the leased address on again, which was taken off for an ADD that came to nothing.
    pub(in crate::binding) fn put_back(&mut self, common: &Common) {
        let probing = common.is_probing();
        if self.client.lease().is_none() || !self.on_link() || probing {
            return;
        }
        self.await_address();
        self.work_from_bare();
        self.record_again();
        self.has_work();
    }
}
