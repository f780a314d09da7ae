//! Containers that no server answers: which address of a local range each gets, and whether one was heard since.
//!
//! Such a container keeps its address until its DEL, whatever servers say later. When one is heard on its LAN again, an event says so.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use super::tables::Tables;
use crate::binding::Binding;
use crate::effect::RangeRow;
use crate::identity::{Attachment, Lan};
use crate::range::{Fallback, FallbackAllocator, NoAddress, RangeAddress};
use crate::record::BindingId;
use crate::time::Instant;

/// What is known about the fallbacks of networks.
#[derive(Debug, Default)]
pub(super) struct Fallbacks {
    /// The last address that was given on each LAN: the next search begins after it.
    last: BTreeMap<Lan, IpAddr>,
    /// The fallback that each network's ADDs have named last, and its LAN.
    named: BTreeMap<String, (Lan, Fallback)>,
    /// Whether a container of an earlier daemon has an address of a fallback.
    pub(super) recovered: bool,
}

impl Fallbacks {
    /// Records that an ADD has named a fallback.
    pub(super) fn enter(&mut self, network: &str, lan: &Lan, fallback: &Fallback) {
        let named = (lan.clone(), fallback.clone());
        self.named.insert(network.to_owned(), named);
    }

    /// Gives an acquisition an address of a local range that nobody on this host has or is about to get, and that no other station
    /// is known to use. The last address of its identity comes first.
    pub(super) fn fall_back(
        &mut self,
        tables: &mut Tables,
        id: BindingId,
        fallback: &Fallback,
        used: &BTreeSet<Ipv4Addr>,
        last: Option<IpAddr>,
    ) {
        let given = self.address_of_range(tables, id, fallback, used, last);
        tables.with(id, |life, cx| life.on_resort(given, cx));
    }

    fn address_of_range(
        &mut self,
        tables: &Tables,
        id: BindingId,
        fallback: &Fallback,
        used: &BTreeSet<Ipv4Addr>,
        last: Option<IpAddr>,
    ) -> Result<RangeAddress, NoAddress> {
        let Some(own) = tables.bindings.get(id) else {
            return fallback.allocator(None).peek();
        };
        let lan = own.identity.lan.clone();
        let mut allocator = self.allocator_of(tables, &lan, fallback, Some(id));
        let stranger = Arc::new(Attachment::cni("another station", "", ""));
        let hosts = tables.bindings.holders().hosts_on(&lan).into_iter();
        let hosts = hosts.map(IpAddr::V4);
        for address in used.iter().copied().map(IpAddr::V4).chain(hosts) {
            allocator.occupy(address, stranger.clone());
        }
        if let Some(given) = last
            .filter(|last| allocator.is_free(*last))
            .and_then(|last| fallback.take_over(last))
        {
            return Ok(given);
        }
        let given = allocator.peek()?;
        let lans = tables.bindings.iter().map(|binding| &binding.identity.lan);
        let lans: BTreeSet<_> = lans.collect();
        self.last.retain(|lan, _| lans.contains(lan));
        self.last.insert(lan, given.address.addr());
        Ok(given)
    }

    /// Returns the ranges of a fallback with all addresses taken on a LAN, except by the binding `but`.
    fn allocator_of(
        &self,
        tables: &Tables,
        lan: &Lan,
        fallback: &Fallback,
        but: Option<BindingId>,
    ) -> FallbackAllocator {
        let now = tables.now;
        let mut allocator = fallback.allocator(self.last.get(lan).copied());
        let is_other = |it: &&Binding| Some(it.id) != but && it.identity.lan == *lan;
        for other in tables.bindings.iter().filter(is_other) {
            if let Some(claim) = other.standing(now.boot).claim {
                allocator.occupy(claim.address.into(), other.attachment.clone());
            }
        }
        allocator
    }

    /// Returns the ranges of all fallbacks, with what is taken of each on its LAN.
    pub(super) fn rows(&self, tables: &Tables) -> Vec<RangeRow> {
        let of_fallback = |(network, (lan, fallback)): (&String, &(Lan, Fallback))| {
            let allocator = self.allocator_of(tables, lan, fallback, None);
            let row = |usage| RangeRow {
                network: network.clone(),
                lan: lan.clone(),
                usage,
            };
            allocator.usage().map(row).collect::<Vec<_>>()
        };
        self.named.iter().flat_map(of_fallback).collect()
    }

    /// Returns whether a container on a LAN has an address of a local range, and no server was heard there since.
    pub(super) fn awaits_server(&self, tables: &Tables, lan: &Lan) -> bool {
        let is_unserved = |it: &Binding| {
            let lease = it
                .lease(tables.now.boot)
                .filter(|lease| !lease.source.is_asked());
            it.identity.lan == *lan
                && lease.is_some_and(|lease| !tables.lans.heard_since(lan, lease.start))
        };
        let may_be = self.recovered || !self.named.is_empty();
        may_be && tables.bindings.iter().any(is_unserved)
    }
}

pub(in crate::registry) fn is_of_range(binding: &Binding, now: Instant) -> bool {
    binding
        .lease(now)
        .is_some_and(|lease| !lease.source.is_asked())
}
