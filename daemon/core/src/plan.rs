//! What a lease means to an interface, and the way from one lease to the next as steps on a link. Pure.
//!
//! Ours is what a lease named, whoever put it on the interface; what others put there stays. Every step is idempotent, so
//! a plan that was carried out in part, or that a crash cut short, is carried out again from its start.
//!
//! The order never leaves the interface without the address that is valid: the new one is on before the old one goes.
//! Where both are of one subnet the kernel makes the second one secondary, and deletes it with the first
//! (`promote_secondaries` is 0). There the new one comes as a /32 first, which is of no subnet.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};

use ipnet::{IpNet, Ipv4Net};

use crate::dhcpv4::lease::Lease;
use crate::dhcpv4::profile::{ExtraRoute, Profile};
use crate::link::{LinkRoute, Step};

/// The MTU that any Ethernet link carries.
const ETHERNET_MTU: u16 = 1500;

/// The number of the main routing table.
const MAIN_TABLE: u32 = 254;

/// Addresses of others that are there as a /32 while they are gone, at most: whose namespace it is may put any number there.
const MAX_MEANWHILE: usize = 16;

/// A route as an interface is to have it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// Where to.
    pub destination: IpNet,
    /// The next hop; `None` when the destination is on the link itself.
    pub via: Option<IpAddr>,
    /// The metric.
    pub metric: Option<u32>,
    /// The path's MTU, in bytes.
    pub mtu: Option<u32>,
    /// The greatest TCP segment to advertise, in bytes.
    pub advmss: Option<u32>,
    /// The routing table; `None` is the main one.
    pub table: Option<u32>,
    /// The scope, by the kernel's numbers.
    pub scope: Option<u8>,
}

/// What an interface carries before it is changed.
#[derive(Clone, Copy, Debug)]
pub struct Before<'a> {
    /// The leases of which something may be on it. What they have in common is on it for certain, unless `bare`.
    pub leases: &'a [Lease],
    /// Nothing is on it for certain.
    pub bare: bool,
    /// No route is on it for certain.
    pub unrouted: bool,
    /// The addresses that were seen on it.
    pub addresses: &'a [Ipv4Net],
}

/// Returns the routes of a lease's interface, each after those that its next hop needs.
///
/// The server's MTU (26) is the link's. It is said again for each route, for who reads results, but only where every link
/// can have it: a route's MTU beyond its link's would lose packets, and the link may have got less.
///
/// Each destination is there once for a metric and table, as the kernel has it (`EEXIST`): what the configuration says of it,
/// else what the server said first. The subnet's own is not among them: the kernel makes it with the address.
pub fn routes(lease: &Lease, profile: &Profile) -> Vec<Route> {
    let mtu = lease.mtu.filter(|mtu| *mtu <= ETHERNET_MTU).map(u32::from);
    let given = lease.routes.iter().filter(|r| !profile.suppress_default_route || r.destination.prefix_len() > 0);
    let given = given.map(|r| Route { mtu, ..Route::new(r.destination.into(), r.via.map(IpAddr::V4)) });
    let extra = profile.routes.iter().map(|extra| resolve(extra, lease.gateway));
    let with_metric = |route: Route| Route { metric: route.metric.or(profile.metric), ..route };
    let mut taken = BTreeSet::from([Route::new(lease.address.trunc().into(), None).key()]);
    let (extra, given) = (extra.map(with_metric), given.map(with_metric));
    let extra: Vec<_> = extra.filter(|route| taken.insert(route.key())).collect();
    let given: Vec<_> = given.filter(|route| taken.insert(route.key())).collect();
    let (mut routes, via): (Vec<_>, Vec<_>) = given.into_iter().chain(extra).partition(|route| route.via.is_none());
    // The kernel refuses a route whose next hop it cannot reach: a router outside the subnet wants its own on-link route.
    for hop in via.iter().filter(|route| route.is_main()).filter_map(|route| route.via) {
        let reachable = |r: &Route| r.is_main() && r.destination.contains(&hop);
        if let IpAddr::V4(v4) = hop
            && !lease.address.contains(&v4)
            && !routes.iter().any(reachable)
        {
            routes.push(with_metric(Route { mtu, ..Route::new(Ipv4Net::from(v4).into(), None) }));
        }
    }
    routes.extend(via);
    routes
}

/// Returns the routes that a main plugin is told of, which adds them one by one.
pub fn told(lease: &Lease, profile: &Profile) -> Vec<Route> {
    let mut told = routes(lease, profile);
    told.retain(|route| !route.is_late(lease, profile));
    told
}

/// Returns whether a main plugin is not told of all of a lease's routes.
pub fn has_late(lease: &Lease, profile: &Profile) -> bool {
    routes(lease, profile).iter().any(|route| route.is_late(lease, profile))
}

/// Returns whether a route of a lease's interface is one that a main plugin cannot add.
pub fn is_late(route: &LinkRoute, lease: &Lease) -> bool {
    is_beyond(route.via, lease)
}

/// Returns whether a route leads onto the link, or by a router outside of the subnet.
fn is_beyond(via: Option<Ipv4Addr>, lease: &Lease) -> bool {
    via.is_none_or(|via| !lease.address.contains(&via))
}

impl Route {
    fn new(destination: IpNet, via: Option<IpAddr>) -> Self {
        Self { destination, via, metric: None, mtu: None, advmss: None, table: None, scope: None }
    }

    fn is_main(&self) -> bool {
        self.table.is_none_or(|table| table == MAIN_TABLE)
    }

    /// Returns whether the daemon adds it where the main plugin cannot: it leads onto the link, or by a router outside of the
    /// subnet.
    ///
    /// Main plugins that know of no `scope` give a route onto the link the global one, and the kernel takes no next hop
    /// behind such a route. Nor do they find it again at CHECK, where they look for the 0.0.0.0 that they were told.
    fn is_late(&self, lease: &Lease, profile: &Profile) -> bool {
        let beyond = match (self.destination, self.via) {
            (IpNet::V4(_), None) => is_beyond(None, lease),
            (IpNet::V4(_), Some(IpAddr::V4(via))) => is_beyond(Some(via), lease),
            (IpNet::V4(_), Some(IpAddr::V6(_))) | (IpNet::V6(_), _) => false,
        };
        profile.late_routes && beyond && self.is_main()
    }

    /// Returns what of it the kernel tells routes apart by.
    fn key(&self) -> (IpNet, u32, u32) {
        (self.destination.trunc(), self.metric.unwrap_or(0), self.table.unwrap_or(MAIN_TABLE))
    }
}

/// Returns a route of the configuration in a network with this gateway. Without a gateway it is on the link, as the
/// kernel has it.
fn resolve(extra: &ExtraRoute, gateway: Option<Ipv4Addr>) -> Route {
    let ExtraRoute { destination, gateway: own, metric, mtu, advmss, table, scope } = *extra;
    let gateway = gateway.map(IpAddr::V4).filter(|_| matches!(destination, IpNet::V4(_)));
    let via = own.or(gateway).filter(|via| !via.is_unspecified());
    Route { destination, via, metric, mtu, advmss, table, scope }
}

/// Returns the routes that the daemon itself keeps in step with a lease: those of IPv4 in the main table.
fn link_routes(lease: &Lease, profile: &Profile) -> Vec<LinkRoute> {
    let as_link_route = |route: &Route| match (route.destination, route.via) {
        (IpNet::V4(destination), None) => Some((destination, None)),
        (IpNet::V4(destination), Some(IpAddr::V4(via))) => Some((destination, Some(via))),
        (IpNet::V4(_), Some(IpAddr::V6(_))) | (IpNet::V6(_), _) => None,
    };
    let all = routes(lease, profile).into_iter().filter(Route::is_main).filter_map(|route| {
        let (destination, via) = as_link_route(&route)?;
        let metric = route.metric.filter(|metric| *metric != 0);
        Some(LinkRoute { destination: destination.trunc(), via, metric, mtu: route.mtu })
    });
    all.collect()
}

/// Tells whether two leases ask the same of an interface.
pub fn same(a: &Lease, b: &Lease, profile: &Profile) -> bool {
    a.address == b.address && a.mtu == b.mtu && link_routes(a, profile) == link_routes(b, profile)
}

/// Returns the MTU that the way to `next` sets, before the link's own bounds.
pub fn mtu(before: &Before<'_>, next: Option<&Lease>) -> Option<u16> {
    let wanted = next?.mtu?;
    let had = !before.bare && before.leases.iter().all(|lease| lease.mtu == Some(wanted));
    (!had).then_some(wanted)
}

/// Returns the steps from what the interface carries to what `next` says, or to nothing of any lease.
pub fn difference(before: &Before<'_>, next: Option<&Lease>, profile: &Profile) -> Vec<Step> {
    let mut steps = Vec::new();
    let old: BTreeSet<Ipv4Net> = before.leases.iter().map(|lease| lease.address).collect();
    let stays = |address: &Ipv4Net| next.is_some_and(|next| next.address == *address);
    // A change that was cut short may have left the address that it had put on meanwhile.
    let meanwhile = old.iter().map(|address| Ipv4Net::from(address.addr()));
    let left: BTreeSet<Ipv4Net> = meanwhile.filter(|address| before.addresses.contains(address)).collect();
    let mut leaving: Vec<Ipv4Net> = old.union(&left).copied().filter(|address| !stays(address)).collect();
    let is_other = |address: &Ipv4Net| !old.contains(address) && !left.contains(address) && !stays(address);
    let others: Vec<Ipv4Net> = before.addresses.iter().copied().filter(is_other).collect();
    // Where no lease is of before, the address is the one that is there.
    if let Some(next) = next
        && (before.bare || !old.is_empty() && (old.len() != 1 || !old.contains(&next.address)))
    {
        let (first, later) = leaving.into_iter().partition(|address| of_one_subnet(address, &next.address));
        leaving = later;
        arrive(next.address, first, &others, &mut steps);
    }
    reroute(before, next, profile, &mut steps);
    for address in leaving {
        leave(address, &others, &mut steps);
    }
    steps
}

/// Returns the steps that take one address off an interface that has these.
pub fn without(address: Ipv4Net, addresses: &[Ipv4Net]) -> Vec<Step> {
    let mut steps = Vec::new();
    let others: Vec<Ipv4Net> = addresses.iter().copied().filter(|other| *other != address).collect();
    leave(address, &others, &mut steps);
    steps
}

/// Puts an address on. `first` are the old ones that would make it their secondary.
fn arrive(address: Ipv4Net, first: Vec<Ipv4Net>, others: &[Ipv4Net], steps: &mut Vec<Step>) {
    if first.is_empty() {
        return steps.push(Step::AddAddress(address));
    }
    let meanwhile = Ipv4Net::from(address.addr());
    steps.push(Step::AddAddress(meanwhile));
    replace(&first, Some(address), others, steps);
    steps.push(Step::RemoveAddress(meanwhile));
}

fn leave(address: Ipv4Net, others: &[Ipv4Net], steps: &mut Vec<Step>) {
    replace(&[address], None, others, steps);
}

/// Takes addresses of one subnet off, and puts `next` on, which is of that too. Addresses of others that go with the first
/// one of their subnet are put on again. Until then each is there as a /32, for the sake of others' routes: with an address
/// go those that leave from it, and with the last one all.
fn replace(gone: &[Ipv4Net], next: Option<Ipv4Net>, others: &[Ipv4Net], steps: &mut Vec<Step>) {
    let goes_too = |other: &&Ipv4Net| gone.iter().any(|gone| of_one_subnet(gone, other));
    let back: Vec<Ipv4Net> = others.iter().filter(goes_too).copied().collect();
    let meanwhile: Vec<Ipv4Net> = back.iter().take(MAX_MEANWHILE).map(|other| other.addr().into()).collect();
    steps.extend(meanwhile.iter().copied().map(Step::AddAddress));
    steps.extend(gone.iter().copied().map(Step::RemoveAddress));
    steps.extend(next.into_iter().chain(back).map(Step::AddAddress));
    steps.extend(meanwhile.into_iter().filter(|address| !others.contains(address)).map(Step::RemoveAddress));
}

/// Tells whether the kernel makes the second of two addresses a secondary one (`__inet_insert_ifa`).
fn of_one_subnet(a: &Ipv4Net, b: &Ipv4Net) -> bool {
    a.prefix_len() == b.prefix_len() && a.network() == b.network()
}

/// New routes come before old ones go, but for those that differ in MTU alone: the kernel cannot tell them apart, so the
/// old one goes first.
fn reroute(before: &Before<'_>, next: Option<&Lease>, profile: &Profile, steps: &mut Vec<Step>) {
    let old: Vec<Vec<LinkRoute>> = before.leases.iter().map(|lease| link_routes(lease, profile)).collect();
    let new = next.map(|next| link_routes(next, profile)).unwrap_or_default();
    let certain = !before.bare && !before.unrouted && !old.is_empty();
    let there = |route: &LinkRoute| certain && old.iter().all(|old| old.contains(route));
    let mut going: Vec<LinkRoute> = Vec::new();
    // What needs another route goes before it.
    for route in old.iter().flat_map(|old| old.iter().rev()) {
        // A main plugin of before 1.1.0 was not told the metric.
        let untold = route.metric.map(|_| LinkRoute { metric: None, ..route.clone() });
        for route in [Some(route.clone()), untold].into_iter().flatten() {
            if !new.contains(&route) && !going.contains(&route) {
                going.push(route);
            }
        }
    }
    let key = |route: &LinkRoute| (route.destination, route.via, route.metric);
    let taken: BTreeSet<_> = new.iter().map(key).collect();
    let (first, later): (Vec<_>, Vec<_>) = going.into_iter().partition(|route| taken.contains(&key(route)));
    let replaced: BTreeSet<_> = first.iter().map(key).collect();
    steps.extend(first.into_iter().map(Step::RemoveRoute));
    let coming = new.into_iter().filter(|route| !there(route) || replaced.contains(&key(route)));
    steps.extend(coming.map(Step::AddRoute));
    steps.extend(later.into_iter().map(Step::RemoveRoute));
}

#[cfg(test)]
mod tests;
