//! Identities that can return: their leases are kept for them, and they may live on another host by the time of their DEL.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::time::Duration;

use leasehold_core::effect::{ExchangeId, Row};
use leasehold_core::event::Event;
use leasehold_core::record::{Record, RecordState};
use leasehold_core::registry::Config;
use leasehold_core::wire::Mac;
use leasehold_core::wire::frame::FrameMeta;
use netns_fixtures::model::{Arp, ClientKey, Kind, arp};

use super::actor::Phase;
use super::ledger::Excuse;
use super::wire::{answer_to, is_direct};
use super::{MILLI, Micros, SECOND, World};
use crate::plan::happens;
use crate::subject::{key_of, message_of};
use crate::watch::Rule;

/// How much earlier than its runtime's DEL a daemon may notice the end of a container.
const SLACK: Micros = SECOND;
/// How soon a lease is on its way back that makes room for an ADD without an offer.
const ROOM: Micros = 5 * SECOND;

/// Clients whose leases must be kept, or that live on another host.
#[derive(Debug, Default)]
pub(super) struct Returning {
    /// The address that no RELEASE may give back, and until when, by LAN and client. An expired entry stays until its container is
    /// made again: a late DEL begins no new time.
    kept: BTreeMap<(usize, ClientKey), (Ipv4Addr, Micros)>,
    /// The stations on other hosts that have a client's address, and since when.
    elsewhere: BTreeMap<(usize, Ipv4Addr), (Mac, Micros)>,
    /// When the LAN was last asked who has an address.
    asked: BTreeMap<(usize, Ipv4Addr), Micros>,
    /// The addresses that ever were on another host: they are not given back once found there.
    ever_elsewhere: BTreeSet<(usize, Ipv4Addr)>,
    /// When an ADD last began or ended.
    added: Micros,
}

impl Returning {
    /// Ends all grace: the host rebooted.
    pub(super) fn nothing_is_kept(&mut self) {
        self.kept.clear();
    }

    /// Ends all grace on a LAN: a runtime collects there. Containers that are ending get none either, and their leases may go
    /// back only after their links.
    pub(super) fn collected(&mut self, lan: usize, ending: Vec<ClientKey>) {
        self.kept.iter_mut().filter(|((at, _), _)| *at == lan).for_each(|(_, (_, until))| *until = 0);
        self.kept.extend(ending.into_iter().map(|client| ((lan, client), (Ipv4Addr::UNSPECIFIED, 0))));
    }
}

impl World {
    /// Returns for how long an actor's lease is kept.
    pub(super) fn grace_of(&self, index: usize) -> Micros {
        let seconds = self.plan.grace.filter(|_| self.actors[index].returns());
        u64::from(seconds.unwrap_or(0)) * SECOND
    }

    fn key_of(&self, index: usize) -> (usize, ClientKey) {
        (self.actors[index].lan, self.actors[index].client_key())
    }

    /// Records that an actor's container ends: its lease is kept at least from here on.
    pub(super) fn keeps(&mut self, index: usize) {
        let (grace, key) = (self.grace_of(index), self.key_of(index));
        // A lease that is being looked for goes back at once, and so does one that was lost and is requested again.
        let certain = !self.may_lapse && !self.store_fails && self.plan.squatters.is_empty() && self.plan.sharers == 1;
        let held = self.record_of(&self.actors[index]).filter(|record| record.state != RecordState::Seeking);
        let held = held.filter(|_| grace > SLACK && certain && self.actors[index].told.is_some());
        if let Some(address) = held.map(|record| record.lease.ip()) {
            self.stats.count("kept");
            self.returning.kept.entry(key).or_insert((address, self.now + grace - SLACK));
        }
    }

    /// Handles another container of an actor: the one on the other host is gone, and the lease is requested again.
    pub(super) fn comes_back(&mut self, index: usize) {
        let (lan, key) = (self.actors[index].lan, self.key_of(index));
        self.returning.kept.remove(&key);
        self.an_add_ends();
        let told = self.actors[index].told.as_ref().map(|lease| lease.ip());
        if let Some(address) = told {
            self.returning.elsewhere.remove(&(lan, address));
        }
    }

    /// Before a DEL, now and then, lets another host have the container, its address, and perhaps its Ethernet address.
    pub(super) fn goes_elsewhere(&mut self, index: usize) {
        let actor = &self.actors[index];
        let Some(address) = actor.told.as_ref().map(|lease| lease.ip()) else { return };
        if !actor.returns() || self.plan.sharers > 1 || !happens(&mut self.rng, self.plan.elsewhere) {
            return;
        }
        let (lan, own) = (self.actors[index].lan, self.actors[index].mac);
        let mac = if self.rng.bool() { own } else { Mac([2, 0xee, own.0[2], own.0[3], own.0[4], own.0[5]]) };
        self.note(|| format!("{address} is on another host by now, with {mac}"));
        self.stats.count("clients on another host");
        self.returning.elsewhere.insert((lan, address), (mac, self.now));
        self.returning.ever_elsewhere.insert((lan, address));
    }

    /// Returns whether a station on another host, or a squatter, has an address.
    pub(super) fn is_elsewhere(&self, lan: usize, address: Ipv4Addr) -> bool {
        self.returning.ever_elsewhere.contains(&(lan, address)) || self.squatted.has(lan, address)
    }

    /// Records leases that stay at their server: those not given back because another station has the address, and perhaps those
    /// kept until their end while a renewal was under way when their container ended; by the events from `first` on. `going`:
    /// records that went with these.
    pub(super) fn note_left(&mut self, first: usize, going: &[Record]) {
        let is_left = |event: &&Event| ["not given back", "was kept"].iter().any(|why| event.cause.starts_with(why));
        let told = self.store.events[first..].iter().filter(is_left);
        let is_it = |record: &Record, event: &Event| {
            record.attachment == event.attachment && Some(record.lease.address.into()) == event.address
        };
        let past = told.filter_map(|event| self.store.past.values().chain(going).find(|record| is_it(record, event)));
        for record in past.cloned().collect::<Vec<_>>() {
            let lan = self.segments.iter().position(|segment| segment.lan == record.identity.lan).unwrap_or(0);
            let key = key_of(&record.identity.client_id);
            self.left.insert((lan, record.lease.server, record.lease.ip(), key), Excuse::LeftToEnd);
        }
    }

    /// Records that until a moment ago an ADD could make a kept lease go back.
    pub(super) fn an_add_ends(&mut self) {
        self.returning.added = self.now;
    }

    /// Ends the containers on other hosts.
    pub(super) fn elsewhere_ends(&mut self) {
        self.returning.elsewhere.clear();
    }

    /// Lets a station on another host answer a question about its address, unless the question bears its own Ethernet address.
    pub(super) fn elsewhere_hears(&mut self, lan: usize, exchange: ExchangeId, question: &Arp) {
        if question.request && question.sender.is_unspecified() {
            self.returning.asked.insert((lan, question.target), self.now);
        }
        let station = self.returning.elsewhere.get(&(lan, question.target)).map(|(mac, _)| *mac);
        let station = station.filter(|mac| question.request && mac.0 != question.sender_mac);
        let Some(mac) = station else { return };
        let reply = arp(mac.0, question.sender_mac, &answer_to(question, mac));
        self.stats.count("heard of other hosts");
        self.claimed.insert((lan, question.target, mac), self.now);
        self.deliver(exchange, reply, FrameMeta::default());
    }

    /// Judges a RELEASE: none while another host has the address, as far as could be heard, and none before its time.
    pub(super) fn judge_release(&mut self, lan: usize, exchange: ExchangeId, frame: &[u8]) {
        let Some(message) = message_of(frame).filter(|message| message.kind() == Some(Kind::Release)) else { return };
        let Some(sock) = self.socks.get(&exchange) else { return };
        let (address, key) = (message.ciaddr, message.key());
        // The LAN is not asked for it if the container's own interface has it, or if a server was asked for it over these sockets
        // a moment ago.
        let is_asked_for = match sock.link.in_netns() {
            Some(at) => !sock.speaks && !self.kernel.link(at).is_some_and(|wire| wire.has(address)),
            None => !is_direct(&sock.link),
        };
        // A station with the client's own Ethernet address cannot be told from its link, which is on its way out.
        let station = self.returning.elsewhere.get(&(lan, address));
        // A station that came after the last question is not heard either.
        let asked = self.returning.asked.get(&(lan, address)).filter(|at| self.now < **at + SECOND);
        let elsewhere = station.is_some_and(|(mac, since)| {
            !message.chaddr.starts_with(&mac.0) && asked.is_none_or(|asked| since <= asked)
        });
        let returns =
            self.actors.iter().any(|actor| actor.returns() && (actor.lan, actor.client_key()) == (lan, key.clone()));
        if is_asked_for && elsewhere && returns && self.plan.grace.is_some() {
            return self.fail(Rule::ReleaseElsewhere, format!("RELEASE of {address}, which another host has"));
        }
        let kept = self.returning.kept.get(&(lan, key)).filter(|(kept, _)| *kept == address);
        let until = kept.map(|(_, until)| *until);
        let adding = self.actors.iter().any(|actor| actor.phase == Phase::Adding);
        let for_room = adding || self.now < self.returning.added + ROOM;
        if let Some(until) = until.filter(|until| self.now < *until && !for_room) {
            let early = (until - self.now) / MILLI;
            self.fail(Rule::Grace, format!("RELEASE of {address} {early} ms before its grace is over"));
        }
    }

    /// Checks that no lease is kept longer than its network says, or than a container's return after a reboot takes.
    pub(super) fn examine_grace(&mut self, rows: &[Row]) {
        let grace = Duration::from_secs(self.plan.grace.unwrap_or(0).into());
        let most = if self.stats.reboots > 0 { grace.max(Config::default().reboot_grace) } else { grace };
        if let Some(row) = rows.iter().find(|row| row.kept.is_some_and(|kept| kept > most)) {
            self.fail(Rule::Grace, format!("{} is kept for {:?}", row.attachment, row.kept));
        }
    }
}
