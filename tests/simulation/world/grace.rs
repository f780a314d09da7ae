//! Identities that can return: by the time of their DEL they may live on another host.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use leasehold_core::effect::ExchangeId;
use leasehold_core::event::Event;
use leasehold_core::record::Record;
use leasehold_core::wire::Mac;
use leasehold_core::wire::frame::FrameMeta;
use netns_fixtures::model::{Arp, arp};

use super::ledger::Excuse;
use super::seen::Seen;
use super::wire::answer_to;
use super::{Micros, SECOND, World};
use crate::plan::happens;
use crate::subject::key_of;

/// Stations on other hosts.
#[derive(Debug, Default)]
pub(super) struct Elsewhere {
    /// The stations that have a client's address, and since when.
    pub(super) there: BTreeMap<(usize, Ipv4Addr), (Mac, Micros)>,
    /// The addresses that were ever on another host: they are not given back once found there.
    ever: BTreeSet<(usize, Ipv4Addr)>,
}

impl World {
    /// Returns how long an actor's lease is kept.
    pub(super) fn grace_of(&self, index: usize) -> Micros {
        let seconds = self.plan.grace.filter(|_| self.actors[index].returns());
        u64::from(seconds.unwrap_or(0)) * SECOND
    }

    /// Handles another container of an actor: the one on the other host is gone, and the lease is requested again.
    pub(super) fn comes_back(&mut self, index: usize) {
        let lan = self.actors[index].lan;
        self.show(&Seen::Begins(index));
        let told = self.actors[index].told.as_ref().map(|lease| lease.ip());
        if let Some(address) = told {
            self.elsewhere.there.remove(&(lan, address));
        }
    }

    /// Now and then, before a DEL, gives another host the container, its address, and perhaps its Ethernet address.
    pub(super) fn goes_elsewhere(&mut self, index: usize, counted: &'static str) {
        let actor = &self.actors[index];
        let Some(address) = actor.told.as_ref().map(|lease| lease.ip()) else {
            return;
        };
        if !actor.returns() || self.plan.sharers > 1 || !happens(&mut self.rng, self.plan.elsewhere)
        {
            return;
        }
        let (lan, own) = (self.actors[index].lan, self.actors[index].mac);
        let mac = if self.rng.bool() {
            own
        } else {
            Mac([2, 0xee, own.0[2], own.0[3], own.0[4], own.0[5]])
        };
        self.note(|| format!("{address} is on another host by now, with {mac}"));
        self.stats.count(counted);
        self.elsewhere.there.insert((lan, address), (mac, self.now));
        self.elsewhere.ever.insert((lan, address));
    }

    /// Returns whether a station on another host, or a squatter, has an address.
    pub(super) fn is_elsewhere(&self, lan: usize, address: Ipv4Addr) -> bool {
        self.elsewhere.ever.contains(&(lan, address)) || self.squatters.has(lan, address)
    }

    /// Records leases that stay at their server: those not given back because another station has the address, and perhaps those
    /// kept until their end because a renewal was under way when their container ended. `going` are the records that went with
    /// these events.
    pub(super) fn note_left(&mut self, events: &[Event], going: &[Record]) {
        let is_left = |event: &&Event| {
            ["not given back", "was kept"]
                .iter()
                .any(|why| event.cause.starts_with(why))
        };
        let told = events.iter().filter(is_left);
        let is_it = |record: &Record, event: &Event| {
            record.attachment == event.attachment
                && Some(record.lease.address.into()) == event.address
        };
        let past = told.filter_map(|event| {
            self.store
                .past
                .values()
                .chain(going)
                .find(|record| is_it(record, event))
        });
        for record in past.cloned().collect::<Vec<_>>() {
            let lan = self
                .segments
                .iter()
                .position(|segment| segment.lan == record.identity.lan)
                .unwrap_or(0);
            let key = key_of(&record.identity.client_id);
            // A REQUEST that arrives late may be granted after that.
            self.ledger.speaking.insert((lan, key.clone()), None);
            self.ledger.left.insert(
                (lan, record.lease.server, record.lease.ip(), key),
                Excuse::LeftToEnd,
            );
        }
    }

    /// Ends the containers on other hosts.
    pub(super) fn elsewhere_ends(&mut self) {
        self.elsewhere.there.clear();
    }

    /// Lets a station on another host answer a question about its address, unless the question has its own Ethernet address.
    pub(super) fn elsewhere_hears(&mut self, lan: usize, exchange: ExchangeId, question: &Arp) {
        let station = self
            .elsewhere
            .there
            .get(&(lan, question.target))
            .map(|(mac, _)| *mac);
        let station = station.filter(|mac| question.request && mac.0 != question.sender_mac);
        let Some(mac) = station else { return };
        let reply = arp(mac.0, question.sender_mac, &answer_to(question, mac));
        self.stats.count("heard of other hosts");
        self.ledger
            .claimed
            .insert((lan, question.target, mac), self.now);
        self.deliver(exchange, reply, FrameMeta::default());
    }
}
