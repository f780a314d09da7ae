//! A held lease that moves: from the LAN's link onto its interface, once that is found, and back when that goes; and to the
//! LAN's link while no path leads to the interface's namespace.
//!
//! Lease, timers and identity stay. What was under way over the old sockets begins anew in the new place.

use std::net::IpAddr;

use ipnet::{IpNet, Ipv4Net};

use super::{Came, Hold, SETUP, Setup};
use crate::binding::common::Permit;
use crate::binding::{Common, Cx, Next, SAME};
use crate::dhcpv4::Signal;
use crate::dhcpv4::lease::Lease;
use crate::grant::Grant;
use crate::grant::policy::{OnChange, OnExpiry};
use crate::interface::Presence;
use crate::link::{Link, LinkCause, LinkView};
use crate::outbox::{Task, Waiter};
use crate::time::Instant;

impl Hold {
    /// Goes on at the lease's interface, as found. Its runtime puts the address and the default route there, perhaps later; it
    /// does not know what else the lease gives.
    pub(in crate::binding) fn move_in(
        &mut self,
        common: &mut Common,
        (link, view): (Link, &LinkView),
        cx: &mut Cx<'_>,
    ) -> Next {
        let (ifname, netns) = (&view.ifname, link.netns().map(|path| path.display().to_string()));
        tracing::info!(attachment = %common.attachment, %ifname, netns, "interface found");
        let next = self.move_to(common, link, cx);
        self.client.set_mtu(view.mtu);
        self.came = Some(Box::new(Came { at: cx.now.boot, look_at: None, setup: Some(Setup::Down) }));
        let lease = self.client.shared();
        if let Some(grant) = lease.as_ref().map(|lease| common.grant(lease)) {
            if grant.mtu.is_some() {
                common.due(cx, |work| work.size_later());
            }
            if !grant.routes.is_empty() {
                common.due(cx, |work| work.lacks_routes(false));
            }
        }
        if view.up {
            self.on_set_up(cx.now.boot);
        }
        let is_there = |address| view.addresses.iter().any(|there| there.addr() == IpAddr::V4(address));
        match self.outdated(common) {
            // What is not there yet is replaced when it comes: others may come with it.
            Some(outdated) => self.replaces(common, Some(outdated).filter(|told| is_there(told.addr())), cx),
            None if lease.is_some_and(|lease| is_there(lease.ip())) => self.on_address(common, true, cx),
            None => {}
        }
        self.has_work();
        next
    }

    /// Records that the interface is up, which Docker may be setting up.
    pub(super) fn on_set_up(&mut self, now: Instant) {
        if let Some(setup @ Setup::Down) = self.setup() {
            *setup = Setup::Up(now + SETUP);
        }
    }

    /// Records that it is down.
    pub(super) fn on_set_down(&mut self) {
        self.setup().into_iter().for_each(|setup| *setup = Setup::Down);
    }

    fn setup(&mut self) -> Option<&mut Setup> {
        self.came.as_deref_mut()?.setup.as_mut()
    }

    /// Returns whether Docker is setting the interface up.
    pub(super) fn is_being_set_up(&self) -> bool {
        self.came.as_deref().is_some_and(|came| came.setup.is_some())
    }

    /// Returns when Docker counts as through with the interface.
    pub(super) fn setup_ends(&self) -> Option<Instant> {
        match self.came.as_deref()?.setup? {
            Setup::Down => None,
            Setup::Up(at) => Some(at),
        }
    }

    /// Goes on at the interface when Docker is through with it. What the lease has changed since that was last known, or told, is
    /// changed there too.
    pub(super) fn end_setup(&mut self, common: &Common, cx: &mut Cx<'_>) {
        if self.setup_ends().is_none_or(|at| cx.now.boot < at) {
            return;
        }
        self.came.as_deref_mut().into_iter().for_each(|came| came.setup = None);
        let follows = self.client.lease().is_some() && common.profile.policy.on_change == OnChange::Apply;
        if let Some(carried) = self.rare.as_mut().and_then(|rare| rare.carried.take_if(|_| follows)) {
            common.due(cx, |work| work.leave_behind(carried, false));
            self.record_again();
        }
        self.has_work();
    }

    /// Returns the address that the runtime puts on the interface although the lease now has another address or mask, or is
    /// lost: the runtime does not hear of that.
    fn outdated(&self, common: &Common) -> Option<Ipv4Net> {
        let leased = self.client.lease().map(|lease| common.profile.policy.address(lease.address));
        let (keeps_change, keeps_lost) =
            (common.profile.policy.on_change == OnChange::Keep, common.profile.policy.on_expiry == OnExpiry::Keep);
        let is_outdated = |told: &Ipv4Net| match leased {
            Some(leased) if leased.addr() == told.addr() => leased != *told && !keeps_change,
            Some(_) => true,
            None => !keeps_lost,
        };
        common.answered.filter(is_outdated)
    }

    /// Makes the interface carry the lease's address, or none, instead of the one that the runtime has put there.
    fn replaces(&mut self, common: &Common, outdated: Option<Ipv4Net>, cx: &mut Cx<'_>) {
        let has_lease = self.client.lease().is_some();
        if let Some(outdated) = outdated {
            let router = self.rare.as_ref().and_then(|rare| rare.carried.as_ref()?.router);
            let left = Grant { addresses: vec![outdated.into()], router, ..Grant::default() };
            common.due(cx, |work| {
                work.leave_behind(left, has_lease);
                work.stir();
            });
        } else if has_lease {
            common.due(cx, |work| work.expect_bare(true));
        }
        if has_lease {
            common.expect(Presence::Awaited, cx);
        }
        self.record_again();
        self.has_work();
    }

    /// Returns whether the runtime may have put this address on, which the lease no longer has, or with another mask.
    pub(in crate::binding) fn may_be_outdated(&self, common: &Common, address: IpAddr) -> bool {
        self.outdated(common).is_some_and(|told| told.addr() == address)
    }

    /// Handles an address that was seen on the interface: the runtime may have put it there, and the lease no longer has it.
    pub(super) fn on_outdated(&mut self, common: &Common, there: IpNet, cx: &mut Cx<'_>) {
        let is_kept = self.keeps_changed(common, cx.interfaces) || common.presence(cx.interfaces).is_left();
        if let Some(outdated) = self.outdated(common).filter(|told| IpNet::V4(*told) == there && !is_kept) {
            self.replaces(common, Some(outdated), cx);
        }
    }

    /// Goes on over the LAN's link: the interface is gone. What is wanted of it may come back with another.
    pub(in crate::binding) fn move_back(&mut self, common: &mut Common, cx: &mut Cx<'_>) -> Next {
        // Docker is through with that one, and begins anew with another.
        self.came = None;
        let link = Link::of_lan(0, &common.identity.lan, common.link.mac());
        self.move_to(common, link, cx)
    }

    /// Goes on from the LAN's link: no path leads any more to the interface's namespace, which lives, or which only our own
    /// sockets keep. A lease that came before its interface lives there anyway.
    pub(super) fn on_hidden(&mut self, common: &mut Common, cause: LinkCause, cx: &mut Cx<'_>) -> Next {
        if common.profile.wants.is_found_later() {
            return self.on_gone(common, cause, cx);
        }
        if std::mem::replace(&mut common.is_hidden, true) {
            return SAME;
        }
        tracing::info!(attachment = %common.attachment, %cause, "extending the lease from the host's link");
        self.talk_anew(common, cx)
    }

    /// Goes on inside, if a path leads to the interface's namespace again.
    pub(super) fn on_found_again(&mut self, common: &mut Common, cx: &mut Cx<'_>) -> Next {
        if !std::mem::take(&mut common.is_hidden) {
            return SAME;
        }
        tracing::info!(attachment = %common.attachment, "a path leads to the network namespace again");
        self.talk_anew(common, cx)
    }

    fn move_to(&mut self, common: &mut Common, link: Link, cx: &mut Cx<'_>) -> Next {
        let id = common.id;
        cx.out.forget_all(|waiter| *waiter == Waiter::Binding(id, Task::Work));
        cx.interfaces.leave(&common.link, id);
        cx.interfaces.enter(&link, id);
        common.link = link;
        self.client.set_station(common.station());
        self.record_again();
        self.talk_anew(common, cx)
    }

    /// Begins what was under way again, over other sockets.
    fn talk_anew(&mut self, common: &mut Common, cx: &mut Cx<'_>) -> Next {
        let was_talking = !common.exchange.is_closed() || common.permit != Permit::None;
        common.end_exchange(cx);
        // It is found by its name when needed.
        common.parent = None;
        let leased = self.client.lease().map(Lease::ip);
        common.guard_moved(leased, cx);
        match was_talking && !self.client.seek_anew(cx.now.boot) {
            true => self.signal(common, Signal::Unopened, cx),
            false => SAME,
        }
    }
}
