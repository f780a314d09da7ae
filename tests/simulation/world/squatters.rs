//! Squatters: neighbours outside all containers that use an address of a server's pool without asking, and answer ARP for it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use leasehold_core::effect::ExchangeId;
use leasehold_core::wire::Mac;
use leasehold_core::wire::frame::FrameMeta;
use netns_fixtures::model::{Arp, arp};

use super::wire::answer_to;
use super::{Micros, World};
use crate::plan::{Fallback, Plan};

/// The squatters.
#[derive(Debug, Default)]
pub(super) struct Squatters {
    /// Their Ethernet addresses, by LAN and address.
    pub(super) at: BTreeMap<(usize, Ipv4Addr), Mac>,
    /// When they come.
    pub(super) from: Micros,
    /// Exchanges over which a sleepy squatter was asked.
    asked: BTreeSet<ExchangeId>,
}

impl Squatters {
    /// Returns the squatters of a plan, the same on each LAN.
    pub(super) fn new(plan: &Plan) -> Self {
        let lans = (0..plan.lans)
            .flat_map(|lan| plan.squatters.iter().map(move |squatter| (lan, *squatter)));
        let squatters = lans.map(|(lan, (server, nth))| {
            let (first, _) = plan.pool(lan, server);
            let address = Ipv4Addr::from_bits(first.to_bits() + nth);
            (
                (lan, address),
                Mac([2, 0xdd, lan as u8, server as u8, 0, nth as u8]),
            )
        });
        let from = match plan.squatters_late {
            true => plan.active.as_micros() as Micros / 4,
            false => 0,
        };
        let fallback = plan.fallback.and_then(|fallback| fallback.squatter);
        let of_fallback = (0..plan.lans).filter_map(|lan| {
            let nth = fallback?;
            Some((
                (lan, Fallback::address(lan, nth)),
                Mac([2, 0xdd, lan as u8, 9, 0, nth as u8]),
            ))
        });
        Self {
            at: squatters.chain(of_fallback).collect(),
            from,
            ..Self::default()
        }
    }

    /// Returns whether a squatter uses an address.
    pub(super) fn has(&self, lan: usize, address: Ipv4Addr) -> bool {
        self.at.contains_key(&(lan, address))
    }

    /// Handles the end of the daemon, with its exchanges.
    pub(super) fn daemon_ended(&mut self) {
        self.asked.clear();
    }

    /// Returns whether the squatter with this Ethernet address answers. Every other squatter is sleepy: it misses the first
    /// question of each exchange, so it is noticed only when its address is in use.
    fn is_awake(&mut self, mac: Mac, exchange: ExchangeId) -> bool {
        mac.0[5] & 1 == 0 || !self.asked.insert(exchange)
    }
}

impl World {
    /// Lets a squatter answer a question about its address.
    pub(super) fn squatters_hear(&mut self, lan: usize, exchange: ExchangeId, question: &Arp) {
        let is_there = self.now >= self.squatters.from;
        let squatter = self.squatters.at.get(&(lan, question.target)).copied();
        let squatter = squatter
            .filter(|mac| is_there && question.request && self.squatters.is_awake(*mac, exchange));
        let Some(mac) = squatter else { return };
        let reply = arp(mac.0, question.sender_mac, &answer_to(question, mac));
        self.stats.count("heard of squatters");
        self.ledger
            .claimed
            .insert((lan, question.target, mac), self.now);
        self.deliver(exchange, reply, FrameMeta::default());
    }
}
