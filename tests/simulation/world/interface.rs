//! A container's interface: what its main plugin and others put there, and what the daemon may do with it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use ipnet::{IpNet, Ipv4Net};
use leasehold_core::dhcpv4::lease::Lease;
use leasehold_core::event::{Event, EventKind};
use leasehold_core::grant::policy::{OnChange, OnExpiry};
use leasehold_core::identity::Attachment;
use leasehold_core::link::{LinkRoute, Step, Target};
use leasehold_core::record::{Record, RecordState};
use leasehold_core::time::WallTime;

use super::actor::{Actor, Phase};
use super::{SECOND, World};
use crate::kernel::{Applied, At};
use crate::link::is_route;
use crate::watch::Rule;

/// How soon work at an interface is done, if no operation on links fails.
const A_WHILE: u64 = 20 * SECOND;

impl World {
    /// Others put something on an interface before anybody asks for a lease.
    pub(super) fn furnish(&mut self, index: usize, at: At) {
        if self.rng.u32(..4) > 0 {
            return;
        }
        let host = self.rng.u32(1..0xffff);
        let address = Ipv4Net::new((0xac14_0000 + host).into(), 16).expect("16 is a prefix length");
        self.meddle(index, at, &[Step::AddAddress(address.into())]);
    }

    /// The main plugin puts ADD's answer on the interface; then others may add to it.
    pub(super) fn configure(&mut self, index: usize, at: At, lease: &Lease) {
        self.plug(at, lease);
        if !self.actors[index].foreign.is_empty() {
            let via = Some(Ipv4Addr::new(172, 20, 0, 1).into());
            let destination = "192.0.2.0/24".parse().expect("a network");
            self.meddle(index, at, &[Step::AddRoute(LinkRoute { destination, via, ..LinkRoute::default() })]);
        }
        if self.rng.u32(..8) == 0 {
            // It belongs to the lease's own subnet, so that it goes with the lease's address.
            let host = lease.address.network().to_bits() | (0x3f0 - index as u32 % 16);
            let address = Ipv4Net::new(host.into(), lease.address.prefix_len()).expect("a lease has a prefix length");
            let via = Some(Ipv4Addr::from(lease.address.network().to_bits() | 0x3e0).into());
            let destination = "198.51.100.0/24".parse().expect("a network");
            let route = LinkRoute { destination, via, ..LinkRoute::default() };
            self.meddle(index, at, &[Step::AddAddress(address.into()), Step::AddRoute(route)]);
        }
    }

    /// Lets the main plugin put a lease on an interface.
    pub(super) fn plug(&mut self, at: At, lease: &Lease) {
        let plugged = self.clock().wall;
        for actor in self.actors.iter_mut().filter(|actor| actor.at == Some(at)) {
            (actor.stays_off, actor.plugged) = (false, plugged);
        }
        let subnet = IpNet::from(lease.address);
        let steps = [Step::AddAddress(subnet)];
        let docker = self.actors.iter().any(|actor| actor.docker && actor.at == Some(at));
        let late = self.plan.late_routes;
        let is_plain = |route: &LinkRoute| route.metric.is_none() && route.via.is_some_and(|via| subnet.contains(&via));
        let is_told = |route: &LinkRoute| !docker && (!late || is_plain(route));
        let told = routes_of(lease, self.plan.metric).into_iter().filter(is_told).map(Step::AddRoute);
        let joined = self.actors.iter().find(|actor| docker && actor.at == Some(at)).map(|actor| actor.routes.clone());
        let told = told.chain(joined.into_iter().flatten().map(Step::AddRoute)).collect::<Vec<_>>();
        // Docker's gateway is that of the network. Nobody can tell the daemon what it was before.
        let chosen = self.actors.iter().find(|actor| docker && actor.at == Some(at));
        let router = chosen.and_then(|actor| self.record_of(actor)).and_then(|record| record.lease.gateway);
        let default = router.map(|router| Step::AddRoute(default_by(router)));
        for step in steps.into_iter().chain(told).chain(default) {
            self.change(at, &step);
        }
    }

    /// Somebody other than plugins and the daemon changes an interface.
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
                | Step::ReplaceDefault { .. } => {}
            }
        }
    }

    fn change(&mut self, at: At, step: &Step) {
        let told = self.kernel.change(at, step);
        told.into_iter().for_each(|told| self.tell(Some(told)));
    }

    /// An operator takes the leased address off the interface.
    pub(super) fn strip(&mut self, index: usize) {
        let actor = &self.actors[index];
        let (Some(at), Some(record)) = (actor.at, self.record_of(actor)) else { return };
        let address = record.lease.address;
        self.actors[index].meddled = true;
        self.stats.count("addresses removed by hand");
        self.note(|| format!("actor {index} loses {address} by hand"));
        self.change(at, &Step::RemoveAddress(address.into()));
    }

    /// Returns whether nobody can tell which interface is an actor's: Docker does not say, and all have one Ethernet address.
    fn is_out_of_reach(&self, actor: &Actor) -> bool {
        actor.docker && self.plan.ipvlan
    }

    pub(super) fn record_of(&self, actor: &Actor) -> Option<&Record> {
        let held = |record: &&Record| record.state != RecordState::Releasing && record.attachment == actor.attachment;
        self.store.durable.values().find(held)
    }

    /// Judges steps as the kernel took them: none may leave the interface without its valid address. Taking a lost lease's
    /// address off is another matter.
    pub(super) fn judge_applied(&mut self, done: &Applied, steps: &[Step]) {
        let Some((first, rest)) = done.addresses.split_first().filter(|(_, rest)| !rest.is_empty()) else { return };
        let Some(actor) = self.actors.iter().find(|actor| actor.at == done.at && actor.at.is_some()) else { return };
        if first == rest.last().unwrap_or(first) && rest.iter().all(|addresses| addresses == first) {
            return;
        }
        self.stats.count("changed addresses");
        let Some(record) = self.record_of(actor).filter(|record| record.state == RecordState::Bound) else { return };
        if !steps.contains(&Step::AddAddress(record.lease.address.into())) {
            return;
        }
        let former = record.former.iter().flat_map(|former| &former.grants).flat_map(|grant| &grant.addresses);
        let own = [IpAddr::V4(record.lease.ip())];
        let valid: Vec<_> = former.map(|address| address.addr()).chain(own).collect();
        let has_valid = |addresses: &Vec<Ipv4Net>| addresses.iter().any(|a| valid.contains(&a.addr().into()));
        let bare = rest.iter().find(|addresses| has_valid(first) && !has_valid(addresses)).cloned();
        if let Some(bare) = bare {
            let detail = format!("{} was left with {bare:?} while {valid:?} are valid", actor.attachment);
            self.fail(Rule::Interface, detail);
        }
    }

    /// Judges the events from `first` on: none may report that somebody took an address off an interface that nobody touched.
    /// The next daemon may think so if the last one took an address off and died before recording it.
    pub(super) fn judge_removals(&mut self, first: usize) {
        for event in self.store.events[first..].iter().filter(|event| event.kind == EventKind::AddressRemoved) {
            // The store may hear of it only after the next ADD has put the address back. A wall clock that jumps orders nothing.
            let is_off = |actor: &&mut Actor| actor.phase == Phase::Live && actor.attachment == event.attachment;
            for actor in self.actors.iter_mut().filter(is_off) {
                actor.stays_off |= event.wall > actor.plugged && self.plan.wall_jumps.is_none();
                actor.meddled |= self.stats.crashes > 0 && self.store_fails;
            }
        }
        if self.stats.crashes > 0 && self.store_fails {
            return;
        }
        let untouched = |actor: &Actor| actor.phase == Phase::Live && !actor.meddled;
        // An event that the store could not take before may be about the previous container, which had the same attachment.
        let is_of = |actor: &&Actor, event: &Event| {
            let began = WallTime::from_epoch(Duration::from_micros(1_800_000_000 * SECOND + actor.began));
            actor.attachment == event.attachment && (event.wall >= began || self.plan.wall_jumps.is_some())
        };
        let about = |event: &Event| self.actors.iter().find(|actor| is_of(actor, event));
        let mut removals = self.store.events[first..].iter().filter(|event| event.kind == EventKind::AddressRemoved);
        if let Some(event) = removals.find(|event| about(event).is_some_and(untouched)) {
            self.fail(Rule::Removed, format!("{event:?}"));
        }
    }

    /// Judges what the daemon is about to do at an interface: it puts no address there before its lease is durable, and none
    /// after it has reported that somebody took one off.
    pub(super) fn judge_steps(&mut self, target: &Target, steps: &[Step]) {
        let Target::Known(link) = target else { return };
        let new = steps.iter().filter_map(|step| match step {
            Step::AddAddress(address) => Some(*address),
            _ => None,
        });
        for address in new {
            let durable = self.store.durable.values().any(|record| {
                // It may still have to be recorded that it has moved onto its interface.
                let is_docker = matches!(record.attachment, Attachment::Docker { .. });
                let moves = is_docker && record.link.mac() == link.mac();
                let here = record.link.in_netns() == link.in_netns() || moves;
                here && record.state == RecordState::Bound && record.lease.ip() == address.addr()
            });
            // Addresses of others go with another address for a moment, and are put back. Meanwhile they are there as a /32.
            let Some(wire) = link.in_netns().and_then(|at| self.kernel.link(at)) else { return };
            let there = wire.addresses().iter().any(|there| there.addr() == address.addr());
            let actor = self.actors.iter().find(|actor| actor.at.is_some() && actor.at == link.in_netns());
            let foreign = actor.is_some_and(|actor| actor.foreign.iter().any(|own| own.addr() == address.addr()));
            if actor.is_some_and(|actor| actor.stays_off) && !foreign && !there && !self.was_damaged {
                self.fail(Rule::Interface, format!("{address} is put on {target}, where somebody took one off"));
                return;
            }
            if !durable && !there && !foreign {
                self.fail(Rule::NotDurable, format!("{address} is put on {target} before its lease is durable"));
            }
        }
    }

    /// Checks that no interface carries the address of an ended lease, allowing for what takes a while.
    pub(super) fn examine_expired(&mut self) {
        let fresh = self.started.max(self.resumed) + A_WHILE > self.now;
        let keeps = self.plan.on_expiry == OnExpiry::Keep || self.plan.on_change == OnChange::Keep;
        if self.plan.link_faults > 0 || self.plan.blindness > 0 || keeps || fresh {
            return;
        }
        let lives = |actor: &&Actor| actor.phase == Phase::Live && actor.stranded != Some(false);
        for actor in self.actors.iter().filter(lives).filter(|actor| !self.is_out_of_reach(actor)) {
            let Some(wire) = actor.at.and_then(|at| self.kernel.link(at)) else { continue };
            for address in wire.addresses().iter().map(Ipv4Net::addr) {
                let until = self.heard.get(&(actor.lan, address, Some(actor.client_key()))).copied().flatten();
                // Docker puts it on each interface that it moves in, and the daemon waits until Docker is through with it.
                if let Some(until) = until.filter(|until| (*until).max(actor.appeared) + A_WHILE < self.now) {
                    let since = (self.now - until) / SECOND;
                    let detail = format!("{} carries {address}, whose lease ended {since} s ago", actor.attachment);
                    return self.fail(Rule::Interface, detail);
                }
            }
        }
        self.stats.count("looks for addresses whose lease has ended");
    }

    /// Checks that the name servers that the host's programs read are those of each attachment's durable lease.
    pub(super) fn examine_published(&mut self) {
        let held = |record: &&Record| record.state != RecordState::Releasing;
        let bound = |record: &Record| record.lease.resolver().filter(|_| record.state == RecordState::Bound);
        let said = self.store.durable.values().filter(held).filter_map(|r| Some((r.attachment.clone(), bound(r)?)));
        let said: BTreeMap<_, _> = said.collect();
        if said != self.published {
            let detail = format!("published is {:?}, and leases say {said:?}", self.published);
            self.fail(Rule::Published, detail);
        }
    }

    /// Checks that the interface of a live attachment carries what its durable lease says, and what others put there; nothing
    /// else.
    pub(super) fn examine_interface(&mut self, index: usize) {
        let actor = &self.actors[index];
        let applies = (self.plan.on_change, self.plan.on_expiry) == (OnChange::Apply, OnExpiry::Remove);
        if actor.phase != Phase::Live || actor.meddled || actor.stranded == Some(false) || !applies {
            return;
        }
        if self.is_out_of_reach(actor) {
            return;
        }
        let (Some(wire), Some(record)) = (actor.at.and_then(|at| self.kernel.link(at)), self.record_of(actor)) else {
            return;
        };
        let lease = Some(&record.lease).filter(|_| record.state == RecordState::Bound);
        let ours = lease.map(|lease| actor.as_told(lease).address);
        let there = wire.addresses();
        let wanted: BTreeSet<_> = ours.into_iter().chain(actor.foreign.iter().copied()).collect();
        // An address of others in the lease's subnet goes with that one. A change that is cut short leaves a /32 in its place.
        let stands_in = |there: &Ipv4Net| {
            let cut_short = self.stats.crashes > 0 || self.links_fail;
            let shorter = actor.foreign.iter().find(|own| own.addr() == there.addr() && there.prefix_len() == 32);
            shorter.filter(|own| cut_short && !wire.addresses().contains(own)).copied()
        };
        let there: BTreeSet<_> = there.into_iter().map(|there| stands_in(&there).unwrap_or(there)).collect();
        let metric = actor.metric(&self.plan);
        let routes = lease.map(|lease| routes_of(&actor.as_told(lease), metric)).unwrap_or_default();
        let routes: Vec<_> = routes.into_iter().chain(actor.foreign_routes.iter().cloned()).collect();
        // Docker's default route is there or not, as it chose, and goes with the router.
        let (defaults, carried): (Vec<_>, Vec<_>) =
            wire.routes().iter().partition(|there| actor.docker && there.destination.prefix_len() == 0);
        let router =
            lease.and_then(|lease| lease.gateway).filter(|router| ours.is_some_and(|ours| ours.contains(router)));
        let astray = router.filter(|_| !self.links_fail).map(default_by);
        let astray = astray.and_then(|led| defaults.into_iter().find(|there| !is_route(there, &led)));
        let missing = routes.iter().find(|route| !wire.routes().iter().any(|there| is_route(there, route)));
        let excess = carried.into_iter().find(|there| !routes.iter().any(|route| is_route(there, route)));
        // A route that the kernel refused to put on or take off is not tried again, and an MTU perhaps not for an hour. If an
        // adopted container lacked something, somebody may have removed it.
        let missing = missing.filter(|_| !self.links_fail && actor.stranded.is_none());
        let excess = excess.filter(|_| !self.links_fail);
        let mtu = lease.and_then(|lease| lease.mtu).filter(|mtu| u32::from(*mtu) <= 1500 && !self.links_fail);
        let wrong_mtu = mtu.filter(|mtu| u32::from(*mtu) != wire.mtu);
        let who = format!("{}, {:?}", actor.attachment, record.state);
        // What an extension leaves unsaid stays as it was.
        let lost =
            lease.filter(|lease| self.plan.renumbers.is_none() && (lease.dns.is_empty() || lease.gateway.is_none()));
        let wrong = if let Some(lease) = lost {
            format!("nothing of what only the first ACK said: {lease:?}")
        } else if there != wanted {
            format!("{there:?}, not {wanted:?}")
        } else if let Some(route) = missing {
            format!("no route {route:?}, but {:?}", wire.routes())
        } else if let Some(route) = excess {
            format!("an earlier route, {route:?}")
        } else if let Some(route) = astray {
            format!("a default route by an earlier router, {route:?}")
        } else if let Some(mtu) = wrong_mtu {
            format!("an MTU of {}, not {mtu}", wire.mtu)
        } else {
            return self.stats.count("interfaces that are as they should be");
        };
        self.fail(Rule::Interface, format!("{who}: its interface has {wrong}"));
    }
}

/// Returns a default route by a router.
fn default_by(router: Ipv4Addr) -> LinkRoute {
    LinkRoute { destination: Ipv4Net::default().into(), via: Some(router.into()), ..LinkRoute::default() }
}

/// Returns the routes of a lease: those that it names, and first a route to a router outside its subnet.
fn routes_of(lease: &Lease, metric: Option<u32>) -> Vec<LinkRoute> {
    let mtu = lease.mtu.map(u32::from);
    let route = |destination: Ipv4Net, via: Option<Ipv4Addr>| LinkRoute {
        destination: destination.into(),
        via: via.map(IpAddr::V4),
        metric,
        mtu,
        ..LinkRoute::default()
    };
    let mut routes: Vec<_> =
        lease.routes.iter().filter(|r| r.via.is_none()).map(|r| route(r.destination, None)).collect();
    for via in lease.routes.iter().filter_map(|route| route.via) {
        if !lease.address.contains(&via) && !routes.iter().any(|route| route.destination.contains(&IpAddr::V4(via))) {
            routes.push(route(Ipv4Net::from(via), None));
        }
    }
    routes.extend(lease.routes.iter().filter(|r| r.via.is_some()).map(|r| route(r.destination, r.via)));
    routes
}
