//! How a held lease moves: from the LAN's link onto its interface, once that is found, and back when the interface goes;
//! and to the LAN's link while no path leads to the interface's namespace.
//!
//! Lease, timers and identity stay. An exchange that was under way over the old sockets begins again in the new place.

use ipnet::IpNet;

use super::Hold;
use crate::binding::common::Permit;
use crate::binding::{Common, Cx, Next, SAME};
use crate::grant::policy::OnChange;
use crate::link::{Link, LinkCause, LinkView};
use crate::outbox::{Task, Waiter};
use crate::source::{Lease, Signal};

impl Hold {
    /// Goes on at the lease's interface, as found.
    pub(crate) fn move_in(
        &mut self,
        common: &mut Common,
        link: Link,
        view: &LinkView,
        cx: &mut Cx<'_>,
    ) -> Next {
        let ifname = &view.ifname;
        let netns = link.netns().map(|path| path.display().to_string());
        tracing::info!(attachment = %common.attachment, %ifname, netns, "interface found");
        let next = self.move_to(common, link, cx);
        self.client.set_mtu(view.mtu);
        let holding = self.holding(common);
        let now = cx.now.boot;
        if let Some(seat) = common.seat_mut(cx) {
            seat.is_found(holding.grant.as_ref(), view, now);
        }
        let is_there = |own: &IpNet| {
            view.addresses
                .iter()
                .any(|there| there.addr() == own.addr())
        };
        let is_on = holding
            .grant
            .as_ref()
            .is_some_and(|grant| grant.addresses.iter().any(is_there));
        let keeps = holding.policy.on_change == OnChange::Keep;
        let rare = self.rare.as_mut().filter(|_| keeps);
        let was = rare.and_then(|rare| rare.carried.take());
        if let (Some(was), Some(seat)) = (was, common.seat_mut(cx))
            && was.addresses.iter().any(is_there)
        {
            seat.changed(&holding, &was);
        }
        match holding.outdated() {
            // An address that is not there yet is replaced when it comes: others may come with it.
            Some(outdated) => self.replaces(common, Some(outdated).filter(is_there), cx),
            None if is_on => self.on_address(common, true, cx),
            None => {}
        }
        self.has_work();
        next
    }

    /// Goes on over the LAN's link: the interface is gone. Another interface may take its place.
    pub(in crate::binding) fn move_back(&mut self, common: &mut Common, cx: &mut Cx<'_>) -> Next {
        let link = Link::Parent {
            ifindex: 0,
            mac: common.link.mac(),
            vlan: common.identity.lan.vlan(),
            port: false,
        };
        self.move_to(common, link, cx)
    }

    /// Speaks from the LAN's link: the interface's namespace lives, or only our own sockets keep it, but no path leads there any
    /// more. Where the LAN has no link, the lease ends by its term.
    pub(super) fn lose_path(
        &mut self,
        common: &mut Common,
        cause: LinkCause,
        cx: &mut Cx<'_>,
    ) -> Next {
        if std::mem::replace(&mut common.is_pathless, true) {
            return SAME;
        }
        tracing::info!(attachment = %common.attachment, %cause, "extending the lease from the host's link");
        self.talk_anew(common, cx)
    }

    /// Speaks inside, if a path leads to the interface's namespace again.
    pub(super) fn find_path(&mut self, common: &mut Common, cx: &mut Cx<'_>) -> Next {
        if !std::mem::take(&mut common.is_pathless) {
            return SAME;
        }
        tracing::info!(attachment = %common.attachment, "a path leads to the network namespace again");
        self.talk_anew(common, cx)
    }

    fn move_to(&mut self, common: &mut Common, link: Link, cx: &mut Cx<'_>) -> Next {
        let id = common.id;
        cx.out
            .forget_all(|waiter| *waiter == Waiter::Binding(id, Task::Work));
        cx.interfaces.leave(&common.link, id);
        cx.interfaces.enter(&link, id);
        common.link = link;
        self.client.set_station(common.station());
        self.record_again();
        self.talk_anew(common, cx)
    }

    /// Begins an interrupted exchange again, over other sockets.
    fn talk_anew(&mut self, common: &mut Common, cx: &mut Cx<'_>) -> Next {
        let was_talking = !common.exchange.is_closed() || common.permit != Permit::None;
        common.end_exchange(cx);
        // It is found by its name when needed.
        common.line = None;
        let leased = self.client.lease().map(Lease::ip);
        common.guard_moved(leased, cx);
        match was_talking && !self.client.seek_anew(cx.now.boot) {
            true => self.signal(common, Signal::Unopened, cx),
            false => SAME,
        }
    }
}
