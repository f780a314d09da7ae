//! A held lease that moves: from the LAN's link onto the interface that it is for, once that is found, and back when that goes.
//!
//! Lease, timers and identity stay. What was under way over the sockets of the previous place begins anew at the next.

use std::net::IpAddr;

use super::Hold;
use crate::binding::{Common, Cx, Next, SAME};
use crate::dhcpv4::Event;
use crate::dhcpv4::lease::Lease;
use crate::link::{Link, LinkView};
use crate::outbox::{Task, Waiter};

impl Hold {
    /// Goes on at the interface that the lease is for, as it was found. Its runtime puts the address there, which may be still to
    /// come; what else the lease gives it does not know of.
    pub(in crate::binding) fn move_in(
        &mut self,
        common: &mut Common,
        (link, view): (Link, &LinkView),
        cx: &mut Cx<'_>,
    ) -> Next {
        let (ifname, netns) = (&view.ifname, link.netns().map(|path| path.display().to_string()));
        tracing::info!(attachment = %common.attachment, %ifname, netns, "interface found");
        let next = self.move_to(common, link, cx);
        self.client.set_station(common.station());
        self.client.set_mtu(view.mtu);
        if let Some(lease) = self.client.shared() {
            let grant = common.grant(&lease);
            if grant.mtu.is_some() {
                common.due(cx, |work| work.size_later());
            }
            if !grant.routes.is_empty() {
                common.due(cx, |work| work.lacks_routes(false));
            }
            if view.addresses.iter().any(|there| there.addr() == IpAddr::V4(lease.ip())) {
                self.on_address(common, true, cx);
            }
        }
        self.has_work();
        next
    }

    /// Goes on over the LAN's link: the interface is gone. What is wanted of it may come back with another.
    pub(in crate::binding) fn move_back(&mut self, common: &mut Common, cx: &mut Cx<'_>) -> Next {
        let link = Link::of_lan(0, &common.identity.lan, common.link.mac());
        let next = self.move_to(common, link, cx);
        self.client.set_station(common.station());
        next
    }

    fn move_to(&mut self, common: &mut Common, link: Link, cx: &mut Cx<'_>) -> Next {
        let id = common.id;
        let was_talking = !common.exchange.is_closed();
        common.end_exchange(cx);
        cx.out.forget_all(|waiter| *waiter == Waiter::Binding(id, Task::Work));
        cx.interfaces.leave(&common.link, id);
        cx.interfaces.enter(&link, id);
        common.link = link;
        // It is found by its name where it is needed.
        common.parent = None;
        let leased = self.client.lease().map(Lease::ip);
        common.guard_moved(leased, cx);
        self.record_again();
        match was_talking {
            true => self.event(common, Event::Unopened, cx),
            false => SAME,
        }
    }
}
