//! The steps on a link from what an interface carries to what a grant says. Pure.
//!
//! Whatever a grant named is ours, whoever put it on the interface; everything else stays. Every step is idempotent, so a plan
//! that was carried out in part, or that a crash cut short, is carried out again from the start.
//!
//! The order never leaves the interface without the valid address: the new one is on before the old one goes. If both are in one
//! subnet, the kernel makes the second one secondary, and deletes it with the first (`promote_secondaries` is 0). So the new one
//! is first added as a /32, which is in no subnet.

use std::collections::BTreeSet;
use std::net::IpAddr;

use ipnet::IpNet;

use crate::grant::{Grant, MAIN_TABLE, Route};
use crate::link::{LinkRoute, Step};

/// How many of others' addresses are replaced by a /32 while they are gone: a namespace's owner may put any number there.
const MAX_MEANWHILE: usize = 16;

/// What an interface carries before it is changed.
#[derive(Clone, Copy, Debug)]
pub struct Before<'a> {
    /// The grants of one family that may have something on it. What they have in common is certainly on it, unless `bare`.
    pub grants: &'a [Grant],
    /// Whether nothing on it is certain.
    pub bare: bool,
    /// Whether no route on it is certain.
    pub unrouted: bool,
    /// The router of a grant that has nothing else on it.
    pub router: Option<IpAddr>,
    /// The addresses that were seen on it.
    pub addresses: &'a [IpNet],
}

/// Returns the routes that the daemon itself keeps in step with a grant: those of its addresses' family, in the main table or
/// wherever the daemon puts them.
pub fn link_routes(grant: &Grant) -> Vec<LinkRoute> {
    own_routes(grant).map(link_route).collect()
}

/// Returns those of them that the daemon puts on.
pub fn late_routes(grant: &Grant) -> Vec<LinkRoute> {
    own_routes(grant)
        .filter(|route| route.late)
        .map(link_route)
        .collect()
}

/// Returns the destinations, each with its table, of which none of them is there: somebody has removed or replaced it.
pub fn removed(grant: &Grant, seen: &[LinkRoute]) -> Vec<(IpNet, u32)> {
    let of = |route: &LinkRoute| (route.destination, route.table.unwrap_or(MAIN_TABLE));
    let seen: BTreeSet<_> = seen.iter().map(LinkRoute::key).collect();
    let own = link_routes(grant);
    let there = own.iter().filter(|route| seen.contains(&route.key()));
    let there: BTreeSet<_> = there.map(of).collect();
    let all = own.iter().map(of);
    all.filter(|route| !there.contains(route)).collect()
}

fn own_routes(grant: &Grant) -> impl Iterator<Item = &Route> {
    let has_family = |is_v4: bool| {
        grant
            .addresses
            .iter()
            .any(|address| address.addr().is_ipv4() == is_v4)
    };
    grant.routes.iter().filter(move |route| {
        let is_v4 = route.destination.addr().is_ipv4();
        (route.is_main() || route.late)
            && has_family(is_v4)
            && route.via.is_none_or(|via| via.is_ipv4() == is_v4)
    })
}

fn link_route(route: &Route) -> LinkRoute {
    LinkRoute {
        destination: route.destination.trunc(),
        via: route.via,
        metric: route.metric.filter(|metric| *metric != 0),
        mtu: route.mtu,
        advmss: route.advmss,
        table: route.other_table(),
        scope: route.scope,
    }
}

/// Returns whether two grants require the same of an interface.
pub fn same(a: &Grant, b: &Grant) -> bool {
    (&a.addresses, a.mtu, a.router) == (&b.addresses, b.mtu, b.router)
        && link_routes(a) == link_routes(b)
}

/// Returns the steps from what the interface carries to what `next` says, or to nothing.
pub fn difference(before: &Before<'_>, next: Option<&Grant>) -> Vec<Step> {
    let mut steps = Vec::new();
    let wanted = next
        .map(|next| next.addresses.as_slice())
        .unwrap_or_default();
    let old: BTreeSet<IpNet> = before
        .grants
        .iter()
        .flat_map(|grant| &grant.addresses)
        .copied()
        .collect();
    // A change that was cut short may have left its temporary address behind.
    let meanwhile = old
        .iter()
        .filter(|address| address.addr().is_ipv4())
        .map(|address| IpNet::from(address.addr()));
    let left: BTreeSet<IpNet> = meanwhile
        .filter(|address| before.addresses.contains(address))
        .collect();
    let mut leaving: Vec<IpNet> = old
        .union(&left)
        .copied()
        .filter(|address| !wanted.contains(address))
        .collect();
    let is_other = |address: &IpNet| {
        !old.contains(address) && !left.contains(address) && !wanted.contains(address)
    };
    let others: Vec<IpNet> = before.addresses.iter().copied().filter(is_other).collect();
    // Without an earlier grant, the addresses are those that are there.
    let is_there = |address: &IpNet| {
        !before.bare
            && before
                .grants
                .iter()
                .all(|grant| grant.addresses.contains(address))
    };
    for address in wanted.iter().filter(|address| !is_there(address)) {
        let (first, later) = leaving
            .into_iter()
            .partition(|gone| of_one_subnet(gone, address));
        leaving = later;
        arrive(*address, first, &others, &mut steps);
    }
    reroute(before, next, &mut steps);
    steps.extend(redirect(before, next));
    for address in leaving {
        leave(address, &others, &mut steps);
    }
    steps
}

/// Returns the steps that take one address off an interface that has these.
pub fn without(address: IpNet, addresses: &[IpNet]) -> Vec<Step> {
    let mut steps = Vec::new();
    let others: Vec<IpNet> = addresses
        .iter()
        .copied()
        .filter(|other| *other != address)
        .collect();
    leave(address, &others, &mut steps);
    steps
}

/// Puts an address on. `first` are the old ones to which it would be secondary.
fn arrive(address: IpNet, first: Vec<IpNet>, others: &[IpNet], steps: &mut Vec<Step>) {
    if first.is_empty() {
        return steps.push(Step::AddAddress(address));
    }
    let meanwhile = IpNet::from(address.addr());
    steps.push(Step::AddAddress(meanwhile));
    replace(&first, Some(address), others, steps);
    steps.push(Step::RemoveAddress(meanwhile));
}

fn leave(address: IpNet, others: &[IpNet], steps: &mut Vec<Step>) {
    replace(&[address], None, others, steps);
}

/// Takes addresses of one subnet off, and puts `next` on, which is in that subnet too. Others' addresses, which disappear with
/// the first one of their subnet, are put on again. Until then each is there as a /32, for others' routes: routes with a source
/// address disappear with it, and all routes disappear with the last address.
fn replace(gone: &[IpNet], next: Option<IpNet>, others: &[IpNet], steps: &mut Vec<Step>) {
    let goes_too = |other: &&IpNet| gone.iter().any(|gone| of_one_subnet(gone, other));
    let back: Vec<IpNet> = others.iter().filter(goes_too).copied().collect();
    let meanwhile: Vec<IpNet> = back
        .iter()
        .take(MAX_MEANWHILE)
        .map(|other| other.addr().into())
        .collect();
    steps.extend(meanwhile.iter().copied().map(Step::AddAddress));
    steps.extend(gone.iter().copied().map(Step::RemoveAddress));
    steps.extend(next.into_iter().chain(back).map(Step::AddAddress));
    steps.extend(
        meanwhile
            .into_iter()
            .filter(|address| !others.contains(address))
            .map(Step::RemoveAddress),
    );
}

/// Returns whether the kernel makes the second of two addresses a secondary one (`__inet_insert_ifa`). IPv6 has none.
fn of_one_subnet(a: &IpNet, b: &IpNet) -> bool {
    a.addr().is_ipv4() && a.trunc() == b.trunc()
}

/// Changes routes. New routes are added before old ones are removed, except if the kernel cannot distinguish them: then the
/// old one is removed first.
fn reroute(before: &Before<'_>, next: Option<&Grant>, steps: &mut Vec<Step>) {
    let old: Vec<Vec<LinkRoute>> = before.grants.iter().map(link_routes).collect();
    let new = next.map(link_routes).unwrap_or_default();
    let certain = !before.bare && !before.unrouted && !old.is_empty();
    let there = |route: &LinkRoute| certain && old.iter().all(|old| old.contains(route));
    let mut going: Vec<LinkRoute> = Vec::new();
    // A route that needs another is removed before it.
    for route in old.iter().flat_map(|old| old.iter().rev()) {
        if !new.contains(route) && !going.contains(route) {
            going.push(route.clone());
        }
    }
    let taken: BTreeSet<_> = new.iter().map(LinkRoute::key).collect();
    let (first, later): (Vec<_>, Vec<_>) = going
        .into_iter()
        .partition(|route| taken.contains(&route.key()));
    let replaced: BTreeSet<_> = first.iter().map(LinkRoute::key).collect();
    steps.extend(first.into_iter().map(Step::RemoveRoute));
    let coming = new
        .into_iter()
        .filter(|route| !there(route) || replaced.contains(&route.key()));
    steps.extend(coming.map(Step::AddRoute));
    steps.extend(later.into_iter().map(Step::RemoveRoute));
}

/// Returns the steps that point others' default route to the router of `next`, if it uses that of an earlier grant.
fn redirect(before: &Before<'_>, next: Option<&Grant>) -> Vec<Step> {
    let Some(to) = next.and_then(|next| next.router) else {
        return Vec::new();
    };
    let old: BTreeSet<IpAddr> = before
        .grants
        .iter()
        .filter_map(|grant| grant.router)
        .chain(before.router)
        .collect();
    old.into_iter()
        .filter(|from| *from != to)
        .map(|from| Step::ReplaceDefault { from, to })
        .collect()
}

#[cfg(test)]
mod tests;
