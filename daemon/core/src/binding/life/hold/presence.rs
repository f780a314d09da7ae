//! What it means for a held lease that its interface is gone, has carrier again or another Ethernet address, and that the leased
//! address is there or not.

use std::net::{IpAddr, Ipv4Addr};
use std::ops::ControlFlow::Break;
use std::sync::Arc;
use std::time::Duration;

use super::{CONFIGURED, Came, Hold, REMOVALS};
use crate::binding::{Common, Cx, Leave, Living, Next, SAME};
use crate::dhcpv4::lease::Lease;
use crate::event::EventKind;
use crate::interface::{Interfaces, Presence, Seat, Work};
use crate::link::{LinkCause, LinkRoute, LinkView};
use crate::outbox::Report;
use crate::plan;
use crate::time::Instant;
use crate::wire::Mac;

/// After this time nobody looks what the ADD's caller made of its answer: the link may stay down.
const SETTLED: Duration = Duration::from_secs(600);

/// Carrier that was away longer than this may have come back on another network (RFC 2131 §3.7).
const CARRIER_LOSS: Duration = Duration::from_secs(3);

impl Hold {
    /// Goes on after the interface was found gone for good. A lease that came before its interface outlives it.
    pub(super) fn on_gone(&mut self, common: &mut Common, cause: LinkCause, cx: &mut Cx<'_>) -> Next {
        let stays = common.profile.wants.is_found_later();
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

    /// Goes on when the link's carrier is back. After a long absence the lease is confirmed, or the search for another starts
    /// soon.
    pub(super) fn on_carrier_back(&mut self, common: &mut Common, lost: Duration, cx: &mut Cx<'_>) {
        if lost <= CARRIER_LOSS {
            return;
        }
        if self.client.lease().is_some() {
            return self.confirm(common, "carrier is back", cx);
        }
        if self.client.seek_anew(cx.now.boot) {
            common.end_exchange(cx);
        }
    }

    /// Has the lease confirmed by INIT-REBOOT, soon. `why`: what makes it doubtful.
    pub(in crate::binding) fn confirm(&mut self, common: &mut Common, why: &str, cx: &mut Cx<'_>) {
        // Only the clock ends it. One that no server granted, none can confirm.
        let may = |lease: &&Lease| lease.source.is_asked() && !lease.expired(cx.now.boot);
        let Some(lease) = self.client.lease().filter(may) else { return };
        tracing::info!(attachment = %common.attachment, address = %lease.address, "{why}, confirming the lease");
        self.client.confirm(cx.now.boot);
        common.end_exchange(cx);
        self.record_again();
        // What was heard on the previous network says nothing about this one.
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

    /// Returns the address that the interface should carry by now, of the lease or of the last one if that is kept: `None` while
    /// there is none, while it is probed for, or while the daemon itself is changing that, or is about to.
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
        self.on_found_again(common, cx)?;
        self.client.set_mtu(view.mtu);
        back.into_iter().for_each(|lost| self.on_carrier_back(common, lost, cx));
        // The message about one may be lost.
        for there in &view.addresses {
            self.on_address_added(common, there.addr(), cx)?;
            self.on_outdated(common, *there, cx);
        }
        if let Some(address) = self.expected_address(common, cx.interfaces) {
            self.on_address(common, view.addresses.iter().any(|there| there.addr() == IpAddr::V4(address)), cx);
        }
        self.settle_interface(common, view, cx);
        match view.up {
            true => {
                self.on_set_up(cx.now.boot);
                self.has_work();
            }
            false => self.on_down(common, cx),
        }
        self.go_on_seen(common, cx);
        self.announce_moved(common, cx)
    }

    /// Records that an address is on the interface.
    pub(super) fn on_address_added(&mut self, common: &mut Common, address: IpAddr, cx: &mut Cx<'_>) -> Next {
        let IpAddr::V4(address) = address else { return SAME };
        if common.guard_on_address(address, cx) {
            self.watch(common, cx)?;
        }
        self.on_address_late(common, address, cx);
        SAME
    }

    /// Handles an address that a main plugin puts on after it is lost: it goes again.
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

    /// Records whether the leased address is on the interface. An address that somebody took off is not put back; without it
    /// servers cannot answer a renewal, so the lease is from then on extended by INIT-REBOOT. Nobody loses an address that is
    /// only kept there after its lease.
    pub(super) fn on_address(&mut self, common: &mut Common, there: bool, cx: &mut Cx<'_>) {
        let lease = self.client.shared();
        let settles = self.is_settling();
        let since = |lease: &Arc<Lease>| match self.came.as_deref() {
            Some(came) if settles => came.at,
            Some(came) => lease.start.max(came.at),
            None => lease.start,
        };
        let configured = lease.as_ref().map(since);
        let configured = configured.is_some_and(|since| cx.now.boot.saturating_since(since) >= CONFIGURED);
        let Some(seat) = cx.interfaces.seat(&common.link, common.id) else { return };
        let (was, is) = match seat.see(there, configured) {
            // Its main plugin has time to put it on. Nobody took off what never came.
            (Presence::Unknown, Presence::Missing) if settles => (Presence::Unknown, Presence::Unknown),
            (Presence::Unknown, Presence::TakenOff) if settles => (Presence::Unknown, Presence::Elsewhere),
            seen => seen,
        };
        seat.expect(is);
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
            tracing::warn!(attachment = %common.attachment, %address, "somebody took the leased address off the interface");
            common.note(
                EventKind::AddressRemoved,
                &lease,
                "somebody took it off the interface: it is not put back",
                cx,
            );
            self.record_again();
        }
        if is == Presence::Elsewhere {
            tracing::info!(attachment = %common.attachment, %address, "the leased address never came onto the interface: it is extended without ARP, and nothing is put there");
            self.record_again();
        }
        if there {
            return self.has_work();
        }
        common.guard_off_address(address.addr());
        if is.is_left() {
            // Whoever took the address off decides about its routes, too.
            common.work_mut(cx).into_iter().for_each(Work::route_no_more);
        }
    }

    /// Records that its ADD is being told the lease: the daemon looks what the caller made of it after a time, and before T1 if
    /// the address is not seen until then.
    pub(in crate::binding) fn settles(&mut self, now: Instant) {
        let first = self.client.lease().and_then(Lease::t1).map(|t1| t1.saturating_since(now) / 2);
        let look_at = now + first.map_or(CONFIGURED, |first| first.min(CONFIGURED));
        self.came = Some(Box::new(Came { at: now, look_at: Some(look_at), setup: None }));
    }

    /// Returns whether it is still open what the ADD's caller made of its answer.
    pub(in crate::binding) fn is_settling(&self) -> bool {
        self.look_at().is_some()
    }

    /// Returns when the interface must be looked at, or Docker counts as through with it.
    pub(in crate::binding) fn wakes_at(&self) -> Option<Instant> {
        self.look_at().into_iter().chain(self.setup_ends()).min()
    }

    /// Returns when the interface must be looked at for that.
    fn look_at(&self) -> Option<Instant> {
        self.came.as_deref().and_then(|came| came.look_at)
    }

    /// Has the interface looked at when it is time.
    pub(in crate::binding) fn look(&mut self, common: &Common, cx: &mut Cx<'_>) {
        let now = cx.now.boot;
        let Some(came) = self.came.as_deref_mut().filter(|came| came.look_at.is_some_and(|at| now >= at)) else {
            return;
        };
        let is_known = common.presence(cx.interfaces) != Presence::Unknown;
        let is_over = now >= came.at + CONFIGURED;
        let from = if is_over { now } else { came.at };
        came.look_at = Some(from + CONFIGURED);
        // Nobody removed what is missing while the daemon itself is at work there.
        let is_idle = is_over && common.work(cx.interfaces).is_none();
        if is_known && now >= came.at + SETTLED {
            self.came = None;
        } else if self.client.lease().is_some() && (!is_known || is_idle) {
            cx.out.report(common.id, Report::WantsLook);
        }
    }

    /// Goes on after such a look. Routes that others have removed until then, as Multus does, are not put back.
    fn settle_interface(&mut self, common: &mut Common, view: &LinkView, cx: &Cx<'_>) {
        let is_over = |came: &Came| cx.now.boot >= came.at + CONFIGURED;
        if !self.is_settling() || !self.came.as_deref().is_some_and(is_over) {
            return;
        }
        // The routes of a lease that waits for its probes are not on the interface yet, and nobody has removed them.
        let used = self.client.lease().filter(|_| !common.is_probing());
        let (Some(lease), Some(routes)) = (used, &view.routes) else { return };
        let presence = common.presence(cx.interfaces);
        if matches!(presence, Presence::Unknown | Presence::Awaited) {
            return;
        }
        if presence == Presence::There {
            if !view.up || common.work(cx.interfaces).is_some() {
                return;
            }
            let removed = plan::removed(&common.grant(lease), routes);
            if !removed.is_empty() {
                tracing::info!(attachment = %common.attachment, ?removed, "routes were removed when the container was set up: they are not put back");
                Arc::make_mut(&mut common.profile).policy.left_out.extend(removed);
                self.record_again();
            }
        }
        self.came = None;
    }

    /// Returns a route that the daemon has put on and that is not seen there. While the container is being set up, a removed
    /// route is no fault, but one in another form is.
    pub(in crate::binding) fn lacks_route(
        &self,
        common: &Common,
        view: &LinkView,
        interfaces: &Interfaces,
    ) -> Option<LinkRoute> {
        let seen = view.routes.as_ref().filter(|_| view.up && common.work(interfaces).is_none())?;
        let is_removed = |route: &LinkRoute| {
            let of = |route: &LinkRoute| (route.destination, route.table);
            self.is_settling() && !seen.iter().any(|seen| of(seen) == of(route))
        };
        let late = plan::late_routes(&common.grant(self.client.lease()?));
        late.into_iter().find(|route| !seen.iter().any(|seen| route.is(seen)) && !is_removed(route))
    }

    /// Puts the leased address on again, which was taken off for an ADD that failed.
    pub(in crate::binding) fn put_back(&mut self, common: &Common, cx: &mut Cx<'_>) {
        // The last look was for the ADD.
        self.go_on_seen(common, cx);
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
