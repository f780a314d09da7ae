//! What it means to a held lease that its interface is gone, has carrier again, or another Ethernet address, and that the leased
//! address is there or not.

use std::net::{IpAddr, Ipv4Addr};
use std::ops::ControlFlow::Break;
use std::time::Duration;

use super::{CONFIGURED, Hold, REMOVALS};
use crate::binding::{Common, Cx, Leave, Living, Next, SAME};
use crate::dhcpv4::Client;
use crate::dhcpv4::lease::Lease;
use crate::event::EventKind;
use crate::interface::{Interfaces, Presence, Seat, Work};
use crate::link::{LinkCause, LinkView};
use crate::outbox::Report;
use crate::wire::Mac;

/// Carrier that was away for longer than this may have come back on another network (RFC 2131 §3.7).
const CARRIER_LOSS: Duration = Duration::from_secs(3);

impl Hold {
    /// Goes on after the interface was found gone for good. A lease that came before its interface outlives it.
    pub(super) fn on_gone(&mut self, common: &mut Common, cause: LinkCause, cx: &mut Cx<'_>) -> Next {
        let stays = common.attachment.is_found_later();
        let what = if stays { "waiting for the lease's release" } else { "giving the lease back" };
        tracing::info!(attachment = %common.attachment, %cause, "link gone, {what}");
        let lease = self.client.lease().unwrap_or(&self.last);
        let event = common.event(EventKind::OrphanFound, lease, &cause, cx);
        cx.out.report(common.id, Report::Orphaned(Box::new(event)));
        match stays {
            true => self.move_back(common, cx),
            false => Break(self.give_back(common, Leave::LinkGone, cx)),
        }
    }

    /// Goes on when the link's carrier is back. Away for long, the lease is confirmed by INIT-REBOOT, or another looked for soon.
    pub(super) fn on_carrier_back(&mut self, common: &mut Common, lost: Duration, cx: &mut Cx<'_>) {
        if lost <= CARRIER_LOSS {
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
        tracing::info!(attachment = %common.attachment, address = %lease.address, ?lost, "carrier is back, confirming the lease");
        let (rng, sender) = (cx.rng.fork(), common.sender());
        self.client = Client::confirm(sender, lease, cx.now.boot, rng);
        common.end_exchange(cx);
        // What was heard on the previous network says nothing of this one.
        if !common.is_probing() {
            common.close_guard(cx);
        }
    }

    /// Records that the interface has another Ethernet address.
    pub(super) fn on_ethernet(&mut self, common: &Common, mac: Mac, cx: &mut Cx<'_>) {
        self.client.set_station(mac);
        cx.interfaces.seat(&common.link, common.id).into_iter().for_each(Seat::moves);
    }

    /// Announces the address of an interface that got another Ethernet address.
    fn announce_moved(&mut self, common: &mut Common, cx: &mut Cx<'_>) -> Next {
        let moved = cx.interfaces.take_moved(&common.link, common.id);
        let Some(address) = self.client.lease().map(Lease::ip) else { return SAME };
        match moved && common.announce_moved(address, cx) {
            true => self.watch(common, cx),
            false => SAME,
        }
    }

    /// Returns the address that the interface should carry by now, of the lease or of the last one where that is kept: `None`
    /// while there is none, while it is probed for, or while the daemon itself is changing that, or is to.
    pub(in crate::binding) fn expected_address(&self, common: &Common, interfaces: &Interfaces) -> Option<Ipv4Addr> {
        let awaited = common.presence(interfaces) == Presence::Awaited;
        let changes = self.at_work(common, interfaces) || common.is_probing() || awaited;
        let kept = || self.keeps_lost(common, interfaces).then_some(&*self.last);
        self.client.lease().or_else(kept).filter(|_| !changes).map(Lease::ip)
    }

    /// Goes on with what a look at the interface showed. `back`: for how long its carrier was away, if it is back.
    pub(super) fn on_seen(
        &mut self,
        common: &mut Common,
        view: &LinkView,
        back: Option<Duration>,
        cx: &mut Cx<'_>,
    ) -> Next {
        self.client.set_mtu(view.mtu);
        back.into_iter().for_each(|lost| self.on_carrier_back(common, lost, cx));
        for there in &view.addresses {
            if let IpAddr::V4(address) = there.addr() {
                self.on_outdated(common, address, Some(there.prefix_len()), cx);
            }
        }
        if let Some(address) = self.expected_address(common, cx.interfaces) {
            self.on_address(common, view.addresses.iter().any(|there| there.addr() == IpAddr::V4(address)), cx);
        }
        // The message that told of one may be lost.
        for there in &view.addresses {
            self.on_address_added(common, there.addr(), Some(there.prefix_len()), cx)?;
        }
        match view.up {
            true => {
                self.catch_up(common, cx);
                self.has_work();
            }
            false => self.on_down(common, cx),
        }
        self.announce_moved(common, cx)
    }

    /// Records that an address is on the interface. `prefix`: with this one, where that is known.
    pub(super) fn on_address_added(
        &mut self,
        common: &mut Common,
        address: IpAddr,
        prefix: Option<u8>,
        cx: &mut Cx<'_>,
    ) -> Next {
        let IpAddr::V4(address) = address else { return SAME };
        if common.guard_on_address(address, cx) {
            self.watch(common, cx)?;
        }
        self.on_address_late(common, address, cx);
        self.on_outdated(common, address, prefix, cx);
        SAME
    }

    /// A main plugin may put an address on that is lost already: it goes again.
    fn on_address_late(&mut self, common: &Common, address: Ipv4Addr, cx: &mut Cx<'_>) {
        if self.client.lease().is_some() || self.last.ip() != address {
            return;
        }
        let taken = self.client.tally().declined.is_some_and(|(declined, _)| declined == address);
        let last = self.last.clone();
        if self.leaves_lost(common, &last, taken, cx) {
            self.record_again();
        }
        common.work_mut(cx).into_iter().for_each(Work::stir);
        self.has_work();
    }

    /// Records whether the leased address is on the interface. One that somebody took off is not put back; without
    /// it servers cannot answer a renewal, so the lease is extended by INIT-REBOOT from there on. One that is only kept there
    /// after its lease is nobody's loss.
    pub(super) fn on_address(&mut self, common: &mut Common, there: bool, cx: &mut Cx<'_>) {
        let lease = self.client.shared();
        let configured =
            lease.as_ref().map(|lease| self.came.as_deref().map_or(lease.start, |came| lease.start.max(*came)));
        let configured = configured.is_some_and(|told| cx.now.boot.saturating_since(told) > CONFIGURED);
        let Some(seat) = cx.interfaces.seat(&common.link, common.id) else { return };
        let (was, is) = seat.see(there, configured);
        let removed = was != is && is == Presence::TakenOff;
        let Some(lease) = lease else {
            if removed {
                self.record_again();
            }
            return;
        };
        if was == is {
            return;
        }
        let address = lease.address;
        if there && !was.on_link() {
            tracing::debug!(attachment = %common.attachment, %address, "leased address is on the interface again");
        }
        let told = self.rare.as_ref().and_then(|rare| rare.removal_told);
        let is_news = told.is_none_or(|told| cx.now.boot.saturating_since(told) >= REMOVALS);
        if removed && is_news {
            self.rare().removal_told = Some(cx.now.boot);
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
        if removed {
            // What goes by it is his, too.
            common.work_mut(cx).into_iter().for_each(Work::route_no_more);
        }
    }

    /// Puts the leased address on again, which was taken off for an ADD that came to nothing.
    pub(in crate::binding) fn put_back(&mut self, common: &Common, cx: &mut Cx<'_>) {
        let probing = common.is_probing();
        if self.client.lease().is_none() || !common.presence(cx.interfaces).on_link() || probing {
            return;
        }
        common.expect(Presence::Awaited, cx);
        common.due(cx, |work| work.expect_bare(true));
        self.record_again();
        self.has_work();
    }
}
