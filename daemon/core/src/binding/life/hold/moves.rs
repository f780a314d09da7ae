//! Where a held lease lives. It comes there with an ADD, or from a record; it moves from the LAN's link onto its interface, once
//! that is found, and back when the interface goes, and to the LAN's link while no path leads to the interface's namespace; and
//! it goes.
//!
//! When it moves, lease, timers and identity stay. An exchange that was under way over the old sockets begins again in the new
//! place.

use std::sync::Arc;

use ipnet::IpNet;

use super::Hold;
use crate::binding::common::Permit;
use crate::binding::common::guard::decline;
use crate::binding::common::persistence::Persistence;
use crate::binding::life::release::LEFT;
use crate::binding::{Cx, Leave, Life, Living, Next, Owed, Release, SAME};
use crate::event::EventKind;
use crate::link::{Link, LinkCause, LinkView};
use crate::outbox::{Stake, Task, Waiter};
use crate::record::Former;
use crate::source::{Client, Lease, Signal};

impl Hold {
    /// Goes on with a lease where it was.
    pub(crate) fn resumed(
        lease: Lease,
        unconfirmed: bool,
        former: Option<Box<Former>>,
        cx: &mut Cx<'_>,
    ) -> Life {
        let lease = Arc::new(lease);
        let client = Client::resume(cx.own.sender(), lease.clone(), cx.now.boot, cx.rng.fork());
        let mut hold = Self::recalled(client, lease.clone(), former, cx);
        if unconfirmed {
            hold.client.confirm(cx.now.boot);
        }
        cx.own.persistence = Persistence::recovered(lease.clone());
        if hold.client.lease().is_none() {
            tracing::warn!(attachment = %cx.own.attachment, address = %lease.address, "lease ended meanwhile: looking for another");
            let cause = "it ended while no daemon ran";
            cx.note(EventKind::Expired, &lease, cause);
            hold.leaves_lost(&lease, false, cx);
            hold.record_again();
        }
        hold.settle(cx);
        Life::Held(Box::new(hold))
    }

    /// Goes on looking for a lease after the loss of the previous one.
    pub(crate) fn seeking(last: Lease, former: Option<Box<Former>>, cx: &mut Cx<'_>) -> Life {
        let client = Client::seek(cx.own.sender(), cx.now.boot, cx.rng.fork());
        let hold = Self::recalled(client, last.into(), former, cx);
        Life::Held(Box::new(hold))
    }

    /// Takes over what a record says about the interface.
    fn recalled(
        client: Client,
        last: Arc<Lease>,
        former: Option<Box<Former>>,
        cx: &mut Cx<'_>,
    ) -> Self {
        let grant = cx.own.grant(&last);
        let mut hold = Self::new(client, last);
        hold.client.set_station(cx.own.station());
        if let Some(seat) = cx.own.seat_mut(cx.interfaces) {
            seat.recall(&cx.own.profile.policy, &grant, former);
        } else if let Some(former) = former {
            hold.rare.get_or_insert_default().carried = former.grants.into_iter().next();
        }
        hold
    }

    /// Goes on at the lease's interface, as found.
    pub(crate) fn move_in(&mut self, link: Link, view: &LinkView, cx: &mut Cx<'_>) -> Next {
        let ifname = &view.ifname;
        let netns = link.netns().map(|path| path.display().to_string());
        tracing::info!(attachment = %cx.own.attachment, %ifname, netns, "interface found");
        let next = self.move_to(link, cx);
        let holding = self.holding(cx.own);
        let now = cx.now.boot;
        if let Some(seat) = cx.own.seat_mut(cx.interfaces) {
            seat.is_found(holding.grant.as_ref(), view, now);
        }
        let is_there = |own: &IpNet| view.has(own.addr());
        let grant = holding.grant.as_ref();
        let is_on = grant.is_some_and(|grant| grant.addresses.iter().any(is_there));
        match holding.outdated() {
            // An address that is not there yet is replaced when it comes: others may come with it.
            Some(outdated) => self.replaces(Some(outdated).filter(is_there), cx),
            None if is_on => self.on_address(true, cx),
            None => {}
        }
        self.has_work();
        next
    }

    /// Goes on over the LAN's link: the interface is gone. Another interface may take its place.
    pub(in crate::binding) fn move_back(&mut self, cx: &mut Cx<'_>) -> Next {
        let link = Link::Parent {
            ifindex: 0,
            mac: cx.own.link.mac(),
            vlan: cx.own.identity.lan.vlan(),
            port: false,
        };
        self.move_to(link, cx)
    }

    /// Speaks from the LAN's link: the interface's namespace lives, or only our own sockets keep it, but no path leads there any
    /// more. Where the LAN has no link, the lease ends by its term.
    pub(super) fn lose_path(&mut self, cause: LinkCause, cx: &mut Cx<'_>) -> Next {
        if std::mem::replace(&mut cx.own.is_pathless, true) {
            return SAME;
        }
        tracing::info!(attachment = %cx.own.attachment, %cause, "extending the lease from the host's link");
        self.talk_anew(cx)
    }

    /// Speaks inside, if a path leads to the interface's namespace again.
    pub(super) fn find_path(&mut self, cx: &mut Cx<'_>) -> Next {
        if !std::mem::take(&mut cx.own.is_pathless) {
            return SAME;
        }
        tracing::info!(attachment = %cx.own.attachment, "a path leads to the network namespace again");
        self.talk_anew(cx)
    }

    fn move_to(&mut self, link: Link, cx: &mut Cx<'_>) -> Next {
        let id = cx.own.id;
        cx.out
            .forget_all(|waiter| *waiter == Waiter::Binding(id, Task::Work));
        cx.interfaces.leave(&cx.own.link, id);
        cx.interfaces.enter(&link, id);
        cx.own.link = link;
        self.client.set_station(cx.own.station());
        self.record_again();
        self.talk_anew(cx)
    }

    /// Begins an interrupted exchange again, over other sockets.
    fn talk_anew(&mut self, cx: &mut Cx<'_>) -> Next {
        let was_talking = !cx.own.exchange.is_closed() || cx.own.permit != Permit::None;
        cx.end_exchange();
        // It is found by its name when needed.
        cx.own.line = None;
        let leased = self.client.lease().map(Lease::ip);
        cx.guard_moved(leased);
        match was_talking && !self.client.seek_anew(cx.now.boot) {
            true => self.signal(Signal::Unopened, cx),
            false => SAME,
        }
    }

    /// Returns the life that gives back the lease, or whatever a server may hold for the binding.
    pub(in crate::binding) fn give_back(&mut self, why: Leave, cx: &mut Cx<'_>) -> Life {
        if self.client.lease().is_none() {
            decline::owed(&mut self.client, cx);
        }
        cx.end_exchange();
        cx.close_guard();
        let (lease, owed) = match (self.client.lease(), self.client.owed(cx.now.boot)) {
            (Some(lease), _) if !lease.source.is_asked() => {
                cx.note_with(Stake::Gone, EventKind::Released, lease, why.cause());
                (lease, Owed::Nothing)
            }
            // A network may want its leases to expire.
            (Some(lease), _) if !cx.own.profile.release => {
                cx.note_with(Stake::Gone, EventKind::Released, lease, LEFT);
                (lease, Owed::Left)
            }
            (Some(lease), _) => (lease, Owed::Leased),
            (None, Some(asked)) => (asked, Owed::Asked),
            (None, None) => (&*self.last, Owed::Nothing),
        };
        let returns = owed == Owed::Leased
            && matches!(
                why,
                Leave::Deleted | Leave::Released | Leave::LinkGone | Leave::Yielded
            );
        let kept = cx.own.grace_from(cx.now.boot).filter(|_| returns);
        let release = Release::new(lease.clone(), owed, why).kept(kept);
        release.begun(cx)
    }
}
