//! Squatters: neighbours outside all containers that use an address of a server's pool without asking, and answer ARP for it. No
//! attachment that looks for conflicts goes on with such an address, if it could hear of it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use leasehold_core::dhcpv4::lease::Lease;
use leasehold_core::effect::{ExchangeId, Row};
use leasehold_core::event::EventKind;
use leasehold_core::grant::policy::Detection;
use leasehold_core::identity::Attachment;
use leasehold_core::record::{Record, RecordState};
use leasehold_core::tenure::Tenure;
use leasehold_core::wire::Mac;
use leasehold_core::wire::frame::FrameMeta;
use netns_fixtures::model::{Arp, Kind, arp, code};

use super::actor::{Actor, Phase};
use super::ledger::is_leaving;
use super::wire::answer_to;
use super::{Micros, SECOND, World};
use crate::plan::{Plan, Wires};
use crate::subject::message_of;
use crate::watch::Rule;

/// How soon a window is over, and what it heard has been acted on: seven seconds of probes, then two announcements.
const WINDOW: Micros = 20 * SECOND;

/// The squatters, and who could hear of them.
#[derive(Debug, Default)]
pub(super) struct Squatted {
    /// By LAN and address.
    squatters: BTreeMap<(usize, Ipv4Addr), Mac>,
    /// The address that an attachment got while nothing kept it from looking for conflicts, and when.
    watched: BTreeMap<Attachment, (Ipv4Addr, Micros)>,
    /// Exchanges over which a sleepy squatter was asked.
    asked: BTreeSet<ExchangeId>,
}

impl Squatted {
    /// Returns the squatters of a plan: the same on each LAN.
    pub(super) fn new(plan: &Plan) -> Self {
        let lans = (0..plan.lans).flat_map(|lan| plan.squatters.iter().map(move |squatter| (lan, *squatter)));
        let squatters = lans.map(|(lan, (server, nth))| {
            let (first, _) = plan.pool(lan, server);
            let address = Ipv4Addr::from_bits(first.to_bits() + nth);
            ((lan, address), Mac([2, 0xdd, lan as u8, server as u8, 0, nth as u8]))
        });
        Self { squatters: squatters.collect(), ..Self::default() }
    }

    /// Returns whether a squatter uses an address.
    pub(super) fn has(&self, lan: usize, address: Ipv4Addr) -> bool {
        self.squatters.contains_key(&(lan, address))
    }

    /// Records that the link of an attachment came: its address is checked from there on.
    pub(super) fn appeared(&mut self, who: &Attachment, now: Micros) {
        self.watched.get_mut(who).into_iter().for_each(|(_, since)| *since = now);
    }

    /// The daemon ended, with the windows that were open.
    pub(super) fn daemon_ended(&mut self, now: Micros) {
        self.watched.retain(|_, (_, since)| *since + WINDOW < now);
        self.asked.clear();
    }

    /// Returns whether the squatter with this Ethernet address answers. Every other squatter is sleepy: it misses the first
    /// question of each exchange, so that it is heard of only when its address is in use.
    fn is_awake(&mut self, mac: Mac, exchange: ExchangeId) -> bool {
        mac.0[5] & 1 == 0 || !self.asked.insert(exchange)
    }
}

impl World {
    /// A squatter answers a question about its address.
    pub(super) fn squatters_hear(&mut self, lan: usize, exchange: ExchangeId, question: &Arp) {
        let squatter = self.squatted.squatters.get(&(lan, question.target)).copied();
        let squatter = squatter.filter(|mac| question.request && self.squatted.is_awake(*mac, exchange));
        let Some(mac) = squatter else { return };
        let reply = arp(mac.0, question.sender_mac, &answer_to(question, mac));
        self.stats.count("heard of squatters");
        self.claimed.insert((lan, question.target, mac), self.now);
        self.deliver(exchange, reply, FrameMeta::default());
    }

    /// Returns whether a frame declines an address that is in use, or of which the store has a lease.
    pub(super) fn declines_in_use(&self, frame: &[u8]) -> bool {
        let message = message_of(frame).filter(|message| message.kind() == Some(Kind::Decline));
        let Some(address) = message.and_then(|message| message.address(code::REQUESTED)) else { return false };
        let is_it = |lease: &Lease| lease.ip() == address;
        let told = |actor: &Actor| actor.phase == Phase::Live && actor.told.as_ref().is_some_and(is_it);
        let bound = |record: &Record| record.state == RecordState::Bound && is_it(&record.lease);
        self.actors.iter().any(told) || self.store.durable.values().any(bound)
    }

    /// Records who has got which address, by the events from `first` on.
    pub(super) fn note_leases(&mut self, first: usize) {
        let (mut ended, mut declined) = (Vec::new(), Vec::new());
        let hears = self.plan.link_faults == 0 && self.plan.flapping == 0 && self.plan.blindness == 0;
        for event in &self.store.events[first..] {
            let (who, now) = (&event.attachment, self.now);
            if event.kind == EventKind::DetectionOff {
                self.stats.count("attachments with a station that is not heard");
            }
            if event.kind == EventKind::Declined {
                let lan = self.actors.iter().find(|actor| actor.attachment == *who).map(|actor| actor.lan);
                declined.extend(lan.zip(event.v4().map(|address| address.addr())));
            }
            let another = match event.kind {
                EventKind::Acquired | EventKind::Adopted => true,
                EventKind::Changed => ["new lease", "address was"].iter().any(|cause| event.cause.contains(cause)),
                _ => false,
            };
            if let Some(address) = event.v4().filter(|_| another) {
                self.squatted.watched.remove(who);
                ended.extend(self.actors.iter().find(|actor| actor.attachment == *who).map(|actor| actor.lan));
                if hears {
                    self.squatted.watched.insert(who.clone(), (address.addr(), now));
                }
            }
        }
        ended.into_iter().for_each(|lan| self.row_ends(lan));
        declined.into_iter().for_each(|(lan, address)| self.note_declined(lan, address));
    }

    /// Checks that nobody goes on with a squatter's address.
    pub(super) fn examine_squatted(&mut self, rows: &[Row]) {
        if self.plan.detection == Detection::Off || self.squatted.squatters.is_empty() {
            return;
        }
        for row in rows.iter().filter(|row| !is_leaving(row)) {
            let Some(address) = row.tenure.as_ref().and_then(Tenure::v4).map(|net| net.addr()) else { continue };
            let lives = |actor: &&Actor| actor.phase == Phase::Live && actor.attachment == row.attachment;
            let Some(actor) = self.actors.iter().find(lives) else { continue };
            let Some(squatter) = self.squatted.squatters.get(&(actor.lan, address)) else { continue };
            // A port of a bridge would have the Ethernet address of a link that is to come: nobody uses the address before that,
            // and it is checked then.
            let hears = actor.at.is_some() || self.plan.wires != Some(Wires::Bridge);
            let watched = self.squatted.watched.get(&row.attachment).filter(|(got, _)| *got == address && hears);
            match watched.filter(|(_, since)| (*since).max(self.resumed) + WINDOW < self.now) {
                Some(_) => {
                    let detail = format!("{} goes on with {address}, which {squatter} uses", row.attachment);
                    return self.fail(Rule::Squatted, detail);
                }
                None => self.stats.count("squatters' addresses held by who could not hear"),
            }
        }
        self.stats.count("looks for squatters' addresses");
    }
}
