//! Stations that claim addresses which they do not have: one that answers for every address, and one that claims what is
//! offered. An ADD never succeeds with an address that a station was heard to claim, unless that station answered for one that
//! nobody can have (RFC 5737).

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use leasehold_core::effect::{Answer, Call, ExchangeId, OpId, Outcome, RequestId};
use leasehold_core::grant::policy::Detection;
use leasehold_core::identity::Attachment;
use leasehold_core::network::LinkOwner;
use leasehold_core::record::Change;
use leasehold_core::wire::Mac;
use leasehold_core::wire::frame::FrameMeta;
use netns_fixtures::model::{Arp, ClientKey, Message, arp, code};

use super::actor::{Actor, Form, Phase};
use super::wire::answer_to;
use super::{MILLI, Micros, SECOND, World};
use crate::subject::{add_of, arp_of, granted, is_nobodys};
use crate::watch::Rule;

/// How many DECLINEs an ADD may send, and how many addresses of a LAN in a row before new tries are held back (RFC 5227 §1.1).
const MOST: usize = 10;
/// How many DECLINEs of what one server offers an ADD again and again.
const MOST_OF_ONE: usize = 3;
/// From one try to the next then.
const PAUSE: Micros = 60 * SECOND;
/// DECLINEs are in a row if the next comes within this time.
const ROW: Micros = 1200 * SECOND;
/// An ADD that the host slept through ends within this time.
const AWAKE: Micros = 60 * SECOND;

/// How the Ethernet addresses of stations outside containers begin, by kind.
const SQUATTER: u8 = 0xdd;
const PROXY: u8 = 0xee;
const CLAIMER: u8 = 0xcc;

/// A client, with its LAN and its Ethernet address.
pub(super) type Who = (usize, Mac, ClientKey);

/// What was heard from stations.
#[derive(Debug, Default)]
pub(super) struct Claims {
    /// What a client heard of an address, and from whom, since it last asked for that: the claims of stations outside containers,
    /// until they are declined.
    heard: BTreeMap<(Who, Ipv4Addr), Mac>,
    /// What its ADD was told, until it is declined: later claims to it are about a lease that is held.
    told: BTreeSet<(Who, Ipv4Addr)>,
    /// Stations that answered for an address that nobody can have.
    proxies: BTreeSet<(usize, Mac)>,
    /// Addresses that were claimed as they were offered.
    claimed: BTreeSet<(usize, Ipv4Addr)>,
    /// The attachments whose leases a transaction under way holds.
    writing: BTreeMap<OpId, Vec<Attachment>>,
    /// The attachments whose leases the store has refused at this very moment: their ADDs are undone.
    refused: Vec<Attachment>,
    /// What an ADD under way has declined.
    declines: BTreeMap<Who, Vec<Ipv4Addr>>,
    /// What was declined on a LAN since somebody last got an address there, and when the last one was.
    row: BTreeMap<usize, (BTreeSet<Ipv4Addr>, Micros)>,
    /// What was declined on a LAN.
    declined: BTreeSet<(usize, Ipv4Addr)>,
}

impl World {
    /// The stations that claim what they do not have answer a probe.
    pub(super) fn claimants_hear(&mut self, lan: usize, exchange: ExchangeId, question: &Arp) {
        if !question.request || !question.sender.is_unspecified() {
            return;
        }
        let mac = |kind| Mac([2, kind, lan as u8, 0, 0, 0]);
        if self.plan.proxy {
            // If a control may be cut short, its claim stands.
            let faults = self.plan.link_faults > 0 || self.plan.flapping > 0 || self.plan.suspends.is_some();
            // The same goes if an ADD has slept through the rest of its time.
            let awoke = self.resumed > 0 && self.now < self.resumed + AWAKE;
            if faults || awoke || self.plan.storms.is_some() || self.plan.partitions.is_some() {
                self.claimed.insert((lan, question.target, mac(PROXY)), self.now);
            }
            let reply = arp(mac(PROXY).0, question.sender_mac, &answer_to(question, mac(PROXY)));
            self.deliver(exchange, reply, FrameMeta::default());
        }
        if is_nobodys(question.target) || self.plan.claimer == 0 {
            return;
        }
        if self.claims.claimed.insert((lan, question.target)) {
            self.plan.claimer -= 1;
            self.stats.count("addresses claimed as they were offered");
        }
        self.claimed.insert((lan, question.target, mac(CLAIMER)), self.now);
        let reply = arp(mac(CLAIMER).0, question.sender_mac, &answer_to(question, mac(CLAIMER)));
        self.deliver(exchange, reply, FrameMeta::default());
    }

    /// Returns how many addresses a station has claimed as they were offered.
    pub(super) fn claims_heard(&self) -> u32 {
        self.claims.claimed.len() as u32
    }

    /// Returns whether a station has claimed an address that it does not have.
    pub(super) fn is_claimed(&self, lan: usize, address: Ipv4Addr) -> bool {
        self.claims.claimed.contains(&(lan, address))
    }

    /// Handles an ARP packet that the core hears on a LAN, for a client if one still has the socket.
    pub(super) fn hear_claim(&mut self, lan: usize, who: Option<Who>, bytes: &[u8]) {
        let Some(arp) = arp_of(bytes).filter(|arp| !arp.request) else { return };
        let by = Mac(arp.sender_mac);
        if is_nobodys(arp.sender) {
            self.claims.proxies.insert((lan, by));
            return;
        }
        let Some(about) = who.map(|who| (who, arp.sender)) else { return };
        if [SQUATTER, PROXY, CLAIMER].contains(&by.0[1]) && !self.claims.told.contains(&about) {
            let heard = self.claims.heard.entry(about).or_insert(by);
            // A station that has the address counts more than one that answers for all.
            *heard = if heard.0[1] == PROXY { by } else { *heard };
        }
    }

    /// A client asks for an address: it probes anew, and earlier claims to that address do not count.
    pub(super) fn claims_asked_for(&mut self, lan: usize, message: &Message) {
        let (client, asked) = (message.key(), message.address(code::REQUESTED));
        self.claims.heard.retain(|((at, _, key), about), _| (*at, key, Some(*about)) != (lan, &client, asked));
    }

    /// A client declines an address.
    pub(super) fn count_decline(&mut self, who: Who, address: Ipv4Addr) {
        let lan = who.0;
        self.claims.heard.retain(|((at, ..), declined), _| (*at, *declined) != (lan, address));
        self.claims.told.retain(|((at, ..), declined)| (*at, *declined) != (lan, address));
        self.judge_pace(lan, address);
        if !self.adds(&who) {
            self.claims.declines.remove(&who);
            return;
        }
        let mac = who.1;
        let declined = self.claims.declines.entry(who).or_default();
        declined.push(address);
        let (count, again) = (declined.len(), declined.iter().filter(|before| **before == address).count());
        if count > MOST || again > MOST_OF_ONE * self.plan.servers {
            let detail = format!("{mac} declines {address}, for the {again}th time, the {count}th DECLINE of its ADD");
            self.fail(Rule::Declines, detail);
        }
        if again == MOST_OF_ONE {
            self.stats.count("addresses declined three times by an ADD");
        }
    }

    /// Judges the pace: after ten addresses in a row that were in use, one address a minute is tried on a LAN. Tries under way
    /// at the tenth go on.
    fn judge_pace(&mut self, lan: usize, address: Ipv4Addr) {
        let under_way = self.actors.iter().filter(|actor| actor.lan == lan).count();
        self.note_declined(lan, address);
        let row = self.claims.row.remove(&lan).filter(|(_, last)| self.now < last + ROW);
        let (mut declined, last) = row.unwrap_or_default();
        let before = declined.len();
        declined.insert(address);
        self.claims.row.insert(lan, (declined, self.now));
        if before >= MOST + under_way && self.now < last + PAUSE {
            let after = (self.now - last) / MILLI;
            self.fail(Rule::Pace, format!("{address} is declined, after {before} others in a row, after {after} ms"));
        }
    }

    /// Judges an ADD that fails because a LAN is held up. That takes as many addresses in use as RFC 5227 says; the addresses of
    /// one client alone, which its server offers it again and again, do not concern the others.
    pub(super) fn judge_held_up(&mut self, lan: usize) {
        self.stats.count("ADDs that a LAN in conflict held back");
        let many = self.claims.declined.iter().filter(|(at, _)| *at == lan).count();
        if many < MOST {
            self.fail(Rule::HeldUp, format!("an ADD is held back, and {many} addresses were in use"));
        }
    }

    /// An address of a LAN counts as in use, with or without a DECLINE on the wire.
    pub(super) fn note_declined(&mut self, lan: usize, address: Ipv4Addr) {
        self.claims.declined.insert((lan, address));
    }

    /// Somebody got an address on a LAN.
    pub(super) fn row_ends(&mut self, lan: usize) {
        self.claims.row.remove(&lan);
    }

    /// Returns whether an ADD of a client is under way, and nobody has cut it short.
    fn adds(&self, who: &Who) -> bool {
        let adds = |actor: &&Actor| actor.phase == Phase::Adding && self.who(actor).as_ref() == Some(who);
        self.actors.iter().any(|actor| adds(&actor))
    }

    /// Returns the client of an actor whose link is there.
    fn who(&self, actor: &Actor) -> Option<Who> {
        let link = actor.at.and_then(|at| self.kernel.link(at)).map(|wire| wire.mac);
        Some((actor.lan, link.or(actor.docker.then_some(actor.mac))?, actor.client_key()))
    }

    /// Returns whether a station that answers for all has claimed an address to an ADD that was cut short, by its caller or by
    /// the store, before its claims were found to prove nothing. Until then they count (RFC 5227 §2.1.1).
    pub(super) fn is_unproven(&self, who: &Who) -> bool {
        let refused = |actor: &&Actor| self.claims.refused.contains(&actor.attachment);
        let is_undone = self.actors.iter().filter(refused).any(|actor| self.who(actor).as_ref() == Some(who));
        self.plan.proxy && (is_undone || !self.adds(who))
    }

    /// The core hands leases to the store.
    pub(super) fn store_asked(&mut self, op: OpId, changes: &[Change]) {
        let whose = |change: &Change| match change {
            Change::Put(_, record) => Some(record.attachment.clone()),
            Change::Remove(_) | Change::Note(_) | Change::PutDocker(_) | Change::RemoveDocker(_) => None,
        };
        self.claims.writing.insert(op, changes.iter().filter_map(whose).collect());
    }

    /// The core is about to hear the outcome.
    pub(super) fn store_answers(&mut self, op: OpId, outcome: &Outcome) {
        let whose = self.claims.writing.remove(&op).unwrap_or_default();
        self.claims.refused = if let Outcome::Persisted(Err(_)) = outcome { whose } else { Vec::new() };
    }

    /// The core has heard it.
    pub(super) fn store_heard(&mut self) {
        self.claims.refused.clear();
    }

    /// An ADD begins: what was heard and declined before does not concern it.
    pub(super) fn claims_anew(&mut self, id: RequestId) {
        let by = self.requests.get(&id).and_then(|asked| asked.by).filter(|(index, _)| *index < self.actors.len());
        if let Some(who) = by.and_then(|(index, _)| self.who(&self.actors[index])) {
            self.claims.heard.retain(|(client, _), _| *client != who);
            self.claims.declines.remove(&who);
        }
    }

    /// Judges the end of an ADD: it must not succeed with an address that a station was heard to use. What is heard while the
    /// answer is on its way comes too late.
    pub(super) fn judge_claimed(&mut self, id: RequestId, answer: &Answer) {
        let failed = matches!(answer, Answer::Failed(_));
        let ends = |call: &Call| matches!(call, Call::Add(_)) || failed && add_of(call).is_some();
        let Some(asked) = self.requests.get(&id).filter(|asked| ends(&asked.call)) else { return };
        let attachment = add_of(&asked.call).map(|add| add.attachment.clone());
        let of_attachment = || self.actors.iter().position(|actor| Some(&actor.attachment) == attachment.as_ref());
        let Some(index) = asked.by.map(|(index, _)| index).or_else(of_attachment) else { return };
        let Some(actor) = self.actors.get(index) else { return };
        if asked.by != Some((index, actor.generation)) {
            // The next ADD, which waited for its turn, is not to blame for what this one declined.
            if let Some(who) = self.who(actor) {
                self.claims.declines.remove(&who);
            }
            return;
        }
        let leased = if let Answer::Leased { tenures } = answer { granted(tenures) } else { None };
        self.add_ends(index, leased.map(|(address, _)| address));
    }

    /// The core has a link made for an endpoint, whose ADD has ended with that. What it hears from here on is about a lease that is
    /// held.
    pub(super) fn judge_claimed_of_endpoint(&mut self, owner: &LinkOwner) {
        let LinkOwner::Endpoint(id) = owner else { return };
        let has_it = |actor: &Actor| actor.form == Some(Form::Leased) && actor.endpoint.as_ref() == Some(id);
        let Some(index) = self.actors.iter().position(has_it) else { return };
        let leased = self.record_of(&self.actors[index]).map(|record| record.lease.ip());
        self.add_ends(index, leased);
    }

    fn add_ends(&mut self, index: usize, leased: Option<Ipv4Addr>) {
        let Some(who) = self.who(&self.actors[index]) else { return };
        self.claims.declines.remove(&who);
        if let Some(address) = leased {
            self.row_ends(who.0);
            self.claims.told.insert((who.clone(), address));
        }
        if let (Some(address), true) = (leased, self.plan.detection != Detection::Off) {
            let heard = self.claims.heard.get(&(who.clone(), address)).copied();
            if let Some(by) = heard.filter(|by| !self.claims.proxies.contains(&(who.0, *by))) {
                let detail = format!("{} got {address}, which {by} was heard to use", self.actors[index].attachment);
                self.fail(Rule::Accepted, detail);
            }
        }
        self.claims.heard.retain(|(client, _), _| *client != who);
    }

    /// The daemon ended, and what it heard is forgotten.
    pub(super) fn claims_forgotten(&mut self) {
        self.claims.heard.clear();
        self.claims.told.clear();
        self.claims.declines.clear();
        self.claims.row.clear();
        self.claims.writing.clear();
        self.claims.refused.clear();
    }
}
