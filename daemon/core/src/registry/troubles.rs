//! The troubles that the registry knows about: with LANs, and with leases.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use ipnet::Ipv4Net;

use super::Registry;
use super::servers::Unextended;
use super::tables::Tables;
use crate::binding::{Binding, row};
use crate::effect::BindingState;
use crate::identity::Lan;
use crate::source::{UNREACHED, UNREACHED_REMEDY};
use crate::time::Now;
use crate::trouble::{Subject, Trouble, TroubleKind};

/// How many leases a sentence names.
const NAMED: usize = 3;

/// Returns what is wrong with LANs and leases.
pub(crate) fn troubles(core: &Registry, now: Now) -> Vec<Trouble> {
    let tables = &core.tables;
    let mut found = tables.lans.troubles(subnets(tables, now), now.boot);
    found.extend(without_address(tables, now));
    found.extend(unreached(tables, now));
    found.extend(unextended(tables, now));
    found.extend(routers_on_host(tables, now));
    found.extend(of_host(core, now));
    found
}

pub(crate) fn parents(core: &Registry) -> impl Iterator<Item = &str> {
    let bindings = core.tables.bindings.iter();
    let live = bindings.filter(|binding| binding.is_live());
    live.filter_map(|binding| binding.identity.lan.parent())
}

/// Returns bindings by LAN.
fn by_lan(tables: &Tables, is_one: impl Fn(&Binding) -> bool) -> BTreeMap<&Lan, Vec<&Binding>> {
    let mut by_lan: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for binding in tables.bindings.iter().filter(|binding| is_one(binding)) {
        by_lan
            .entry(&binding.identity.lan)
            .or_default()
            .push(binding);
    }
    by_lan
}

fn without_address(tables: &Tables, now: Now) -> Vec<Trouble> {
    let lost = by_lan(tables, |binding| binding.lacks_lease(now.boot));
    let trouble = |(lan, lost): (&Lan, Vec<&Binding>)| {
        let have = if lost.len() == 1 { "has" } else { "have" };
        let (who, names) = (counted(lost.len(), "container"), names(&lost, now));
        let sentence = format!("{who} on {lan} {have} no address: {names}");
        let remedy = format!(
            "`leasehold events` says how it was lost, and `leasehold probe {}` whether a server answers",
            lan.parent().unwrap_or("LINK")
        );
        let on_lan = Subject::Lan(lan.clone());
        Trouble::new(TroubleKind::NoAddress, on_lan, lost.len(), sentence, remedy)
    };
    lost.into_iter().map(trouble).collect()
}

fn unreached(tables: &Tables, now: Now) -> Vec<Trouble> {
    let unreached = by_lan(tables, Binding::is_unreached);
    let trouble = |(lan, unreached): (&Lan, Vec<&Binding>)| {
        let sentence = format!("{} on {lan}: {UNREACHED}", names(&unreached, now));
        let on_lan = Subject::Lan(lan.clone());
        let (kind, count) = (TroubleKind::Unreachable, unreached.len());
        Trouble::new(kind, on_lan, count, sentence, UNREACHED_REMEDY.to_owned())
    };
    unreached.into_iter().map(trouble).collect()
}

fn unextended(tables: &Tables, now: Now) -> Vec<Trouble> {
    let mut servers: BTreeMap<(&Lan, Ipv4Addr), Unextended> = BTreeMap::new();
    for binding in tables.bindings.iter() {
        if let Some(lease) = binding
            .lease(now.boot)
            .filter(|lease| lease.source.is_asked())
        {
            servers
                .entry((&binding.identity.lan, lease.server))
                .or_default()
                .add(binding, now.boot);
        }
    }
    let waits = servers.into_iter().filter(|(_, waiting)| waiting.count > 0);
    let trouble = |((lan, server), waiting): ((&Lan, Ipv4Addr), Unextended)| {
        let silent = tables.lans.silent_since(lan, server);
        let what = match silent {
            Some(_) => "does not extend leases",
            None => "extends other leases, but not all",
        };
        let since = silent
            .map(|silent| silent.wall)
            .or_else(|| waiting.since.map(|since| now.wall_at(since)));
        let link = lan.parent().unwrap_or("LINK");
        let sentence = format!(
            "server {server} on {lan} {what}: {}",
            waiting.text(now.boot)
        );
        let remedy = format!(
            "see that it runs, and that nothing blocks UDP port 67 on the way; `leasehold probe {link}` asks it, and \
             `leasehold list` marks the leases"
        );
        let (kind, on_lan) = (TroubleKind::RenewalsUnanswered, Subject::Lan(lan.clone()));
        Trouble {
            since,
            ..Trouble::new(kind, on_lan, waiting.count, sentence, remedy)
        }
    };
    waits.map(trouble).collect()
}

/// Returns the server and the subnet of each lease, where the configuration does not name the server.
fn subnets(tables: &Tables, now: Now) -> impl Iterator<Item = (&Lan, Ipv4Addr, Ipv4Net)> {
    tables.bindings.iter().filter_map(move |binding| {
        let lease = binding
            .lease(now.boot)
            .filter(|lease| lease.source.is_asked())?;
        let is_named = !binding.profile.client.servers.allow.is_empty();
        (!is_named && binding.is_live())
            .then(|| (&binding.identity.lan, lease.server, lease.address))
    })
}

fn routers_on_host(tables: &Tables, now: Now) -> Vec<Trouble> {
    let behind = by_lan(tables, |binding| {
        binding.profile.is_router_on_host && binding.is_live()
    });
    let trouble = |(lan, behind): (&Lan, Vec<&Binding>)| {
        let lease = behind.iter().find_map(|binding| binding.lease(now.boot));
        let router = lease
            .and_then(|lease| lease.gateway)
            .map_or(String::new(), |router| format!(", {router}"));
        let sentence = format!(
            "this host's own bridge {lan} has the address of the LAN's router{router}, because the network says isGateway: what its \
             containers send to the router, such as renewals and RELEASEs, ends at this host"
        );
        let remedy = format!(
            "set \"isGateway\": false in the network's configuration, and take the address off {lan}"
        );
        let (kind, on_lan) = (TroubleKind::HostIsRouter, Subject::Lan(lan.clone()));
        Trouble::new(kind, on_lan, behind.len(), sentence, remedy)
    };
    behind.into_iter().map(trouble).collect()
}

/// Returns the troubles that only count leases or containers.
fn of_host(core: &Registry, now: Now) -> impl Iterator<Item = Trouble> {
    let bindings = || core.tables.bindings.iter();
    let leaves = |it: &Binding| it.state() == BindingState::Releasing;
    let held_up = bindings().filter(|it| leaves(it) && row(it, now.boot).held_up.is_some());
    let pathless = bindings().filter(|it| it.is_pathless && !leaves(it));
    let all = [
        (
            (TroubleKind::HeldUp, held_up.count(), "lease"),
            "being given back, but something holds that up",
            "`leasehold list` says what",
        ),
        (
            (TroubleKind::Pathless, pathless.count(), "lease"),
            "in a namespace without a path",
            "do not unmount what a runtime mounts under /run/netns; recreate the container",
        ),
        (
            (
                TroubleKind::NotAdopted,
                core.adoptions.failures().len(),
                "container",
            ),
            "not adopted, so nobody extends what they lease",
            "`leasehold list` says why",
        ),
    ];
    let found = all.into_iter().filter(|((_, count, _), ..)| *count > 0);
    found.map(|((kind, count, of), what, remedy)| {
        let are = if count == 1 { "is" } else { "are" };
        let sentence = format!("{} {are} {what}", counted(count, of));
        Trouble::new(kind, Subject::Host, count, sentence, remedy.to_owned())
    })
}

/// Returns the names of the first few, and how many more there are.
fn names(bindings: &[&Binding], now: Now) -> String {
    let named = bindings
        .iter()
        .take(NAMED)
        .map(|binding| row(binding, now.boot).name());
    let more = bindings.len().saturating_sub(NAMED);
    let rest = (more > 0).then(|| format!("and {more} more"));
    named.chain(rest).collect::<Vec<_>>().join(", ")
}

fn counted(count: usize, what: &str) -> String {
    match count {
        1 => format!("1 {what}"),
        _ => format!("{count} {what}s"),
    }
}
