//! A container's interface: what its main plugin and others put there, and what the daemon may do with it.

use std::net::{IpAddr, Ipv4Addr};

use ipnet::{IpNet, Ipv4Net};
use leasehold_core::event::{Event, EventKind};
use leasehold_core::link::{LinkRoute, Step};
use leasehold_core::record::{Record, RecordState};
use leasehold_core::source::Lease;
use leasehold_core::testbed::kernel::At;

use super::World;
use super::actor::{Actor, Phase};

impl World {
    /// Lets others put something on an interface before anybody asks for a lease.
    pub(super) fn furnish(&mut self, index: usize, at: At) {
        if self.rng.u32(..4) > 0 {
            return;
        }
        let host = self.rng.u32(1..0xffff);
        let address = Ipv4Net::new((0xac14_0000 + host).into(), 16).expect("16 is a prefix length");
        self.meddle(index, at, &[Step::AddAddress(address.into())]);
    }

    /// Lets the main plugin put ADD's answer on the interface; then others may add to it.
    pub(super) fn configure(&mut self, index: usize, at: At, lease: &Lease) {
        self.plug(index, at, lease);
        if !self.actors[index].foreign.is_empty() {
            let via = Some(Ipv4Addr::new(172, 20, 0, 1).into());
            let destination = "192.0.2.0/24".parse().expect("a network");
            self.meddle(
                index,
                at,
                &[Step::AddRoute(LinkRoute {
                    destination,
                    via,
                    ..LinkRoute::default()
                })],
            );
        }
        if self.rng.u32(..8) == 0 {
            // It belongs to the lease's own subnet, so that it goes with the lease's address.
            let host = lease.address.network().to_bits() | (0x3f0 - index as u32 % 16);
            let address = Ipv4Net::new(host.into(), lease.address.prefix_len())
                .expect("a lease has a prefix length");
            let via = Some(Ipv4Addr::from(lease.address.network().to_bits() | 0x3e0).into());
            let destination = "198.51.100.0/24".parse().expect("a network");
            let route = LinkRoute {
                destination,
                via,
                ..LinkRoute::default()
            };
            self.meddle(
                index,
                at,
                &[Step::AddAddress(address.into()), Step::AddRoute(route)],
            );
        }
    }

    /// Lets the main plugin put a lease on an interface.
    pub(super) fn plug(&mut self, index: usize, at: At, lease: &Lease) {
        let plugged = self.clock().wall;
        let actor = &mut self.actors[index];
        (actor.stays_off, actor.plugged) = (false, plugged);
        let actor = &self.actors[index];
        let routes = actor.door.routes(self, actor, lease);
        self.change(at, &Step::AddAddress(lease.address.into()));
        for route in routes {
            self.change(at, &Step::AddRoute(route));
        }
    }

    /// Lets somebody other than plugins and the daemon change an interface.
    fn meddle(&mut self, index: usize, at: At, steps: &[Step]) {
        for step in steps {
            self.change(at, step);
            match step {
                Step::AddAddress(IpNet::V4(address)) => self.actors[index].foreign.push(*address),
                Step::AddRoute(route) => self.actors[index].foreign_routes.push(route.clone()),
                Step::AddAddress(IpNet::V6(_)) => {}
                Step::Up
                | Step::Mtu(_)
                | Step::RemoveAddress(_)
                | Step::RemoveRoute(_)
                | Step::ReplaceDefault { .. }
                | Step::Abandon => {}
            }
        }
    }

    fn change(&mut self, at: At, step: &Step) {
        let told = self.kernel.change(at, step);
        told.into_iter().for_each(|told| self.tell(Some(told)));
    }

    /// Lets an operator take the leased address off the interface.
    pub(super) fn strip(&mut self, index: usize) {
        let actor = &self.actors[index];
        let (Some(at), Some(record)) = (actor.at, self.record_of(actor)) else {
            return;
        };
        let address = record.lease.address;
        self.actors[index].meddled = true;
        self.stats.count("addresses removed by hand");
        self.note(|| format!("actor {index} loses {address} by hand"));
        self.change(at, &Step::RemoveAddress(address.into()));
    }

    /// Returns whether nobody can tell which interface is an actor's, because Docker does not say and all have one Ethernet
    /// address.
    pub(super) fn is_out_of_reach(&self, actor: &Actor) -> bool {
        actor.is_found_later() && self.plan.ipvlan
    }

    pub(super) fn record_of(&self, actor: &Actor) -> Option<&Record> {
        let held = |record: &&Record| {
            record.state != RecordState::Releasing && record.attachment == actor.attachment
        };
        self.store.durable.values().find(held)
    }

    /// Records what the daemon reports in `events`: where somebody took an address off, it puts none on the interface any more.
    pub(super) fn note_removals(&mut self, events: &[Event]) {
        for event in events
            .iter()
            .filter(|event| event.kind == EventKind::AddressRemoved)
        {
            // The store may record it only after the next ADD has put the address back. A wall clock that jumps gives no order.
            let is_off = |actor: &&mut Actor| {
                actor.phase == Phase::Live && actor.attachment == event.attachment
            };
            for actor in self.actors.iter_mut().filter(is_off) {
                actor.stays_off |= event.wall > actor.plugged && self.plan.wall_jumps.is_none();
                actor.meddled |= self.stats.crashes > 0 && self.store_fails;
            }
        }
    }
}

/// Returns a default route through a router.
pub(super) fn default_by(router: Ipv4Addr) -> LinkRoute {
    LinkRoute {
        destination: Ipv4Net::default().into(),
        via: Some(router.into()),
        ..LinkRoute::default()
    }
}

/// Returns the routes of a lease: those that it names, preceded by a route to a router outside its subnet.
pub(super) fn routes_of(lease: &Lease, metric: Option<u32>) -> Vec<LinkRoute> {
    let mtu = lease.mtu.map(|mtu| mtu.get().into());
    let route = |destination: Ipv4Net, via: Option<Ipv4Addr>| LinkRoute {
        destination: destination.into(),
        via: via.map(IpAddr::V4),
        metric,
        mtu,
        ..LinkRoute::default()
    };
    let mut routes: Vec<_> = lease
        .routes
        .iter()
        .filter(|r| r.via.is_none())
        .map(|r| route(r.destination, None))
        .collect();
    for via in lease.routes.iter().filter_map(|route| route.via) {
        if !lease.address.contains(&via)
            && !routes
                .iter()
                .any(|route| route.destination.contains(&IpAddr::V4(via)))
        {
            routes.push(route(Ipv4Net::from(via), None));
        }
    }
    routes.extend(
        lease
            .routes
            .iter()
            .filter(|r| r.via.is_some())
            .map(|r| route(r.destination, r.via)),
    );
    routes
}
