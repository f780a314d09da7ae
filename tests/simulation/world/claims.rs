//! Stations that claim addresses which they do not have: one answers for every address, and one claims what is offered. Also
//! records which ADD is under way, so that the claims that its client hears can be judged.

use std::net::Ipv4Addr;

use leasehold_core::effect::{Answer, Call, ExchangeId, RequestId};
use leasehold_core::link::own::LinkOwner;
use leasehold_core::tenure::Tenure;
use leasehold_core::wire::Mac;
use leasehold_core::wire::frame::FrameMeta;
use netns_fixtures::model::{Arp, arp};

use super::actor::{Actor, Phase};
use super::seen::{Seen, Who};
use super::wire::answer_to;
use super::{Micros, SECOND, World};
use crate::subject::{add_of, is_nobodys};

/// An ADD during which the host slept ends within this time.
const AWAKE: Micros = 60 * SECOND;

/// The first byte of the Ethernet addresses of stations outside containers, by kind.
pub(super) const SQUATTER: u8 = 0xdd;
pub(super) const PROXY: u8 = 0xee;
pub(super) const CLAIMER: u8 = 0xcc;

impl World {
    /// Lets the stations that claim what they do not have answer a probe.
    pub(super) fn claimants_hear(&mut self, lan: usize, exchange: ExchangeId, question: &Arp) {
        if !question.request || !question.sender.is_unspecified() {
            return;
        }
        let mac = |kind| Mac([2, kind, lan as u8, 0, 0, 0]);
        if self.plan.proxy {
            // If a control may be cut short, its claim stands.
            let faults =
                self.plan.link_faults > 0 || self.plan.flapping > 0 || self.plan.suspends.is_some();
            // The same goes if an ADD has slept through the rest of its time.
            let awoke = self.clocks.resumed > 0 && self.now < self.clocks.resumed + AWAKE;
            if faults || awoke || self.plan.storms.is_some() || self.plan.partitions.is_some() {
                self.ledger
                    .claimed
                    .insert((lan, question.target, mac(PROXY)), self.now);
            }
            let reply = arp(
                mac(PROXY).0,
                question.sender_mac,
                &answer_to(question, mac(PROXY)),
            );
            self.deliver(exchange, reply, FrameMeta::default());
        }
        if is_nobodys(question.target) || self.plan.claimer == 0 {
            return;
        }
        if self.claims.insert((lan, question.target)) {
            self.plan.claimer -= 1;
            self.stats.count("addresses claimed as they were offered");
        }
        self.ledger
            .claimed
            .insert((lan, question.target, mac(CLAIMER)), self.now);
        let reply = arp(
            mac(CLAIMER).0,
            question.sender_mac,
            &answer_to(question, mac(CLAIMER)),
        );
        self.deliver(exchange, reply, FrameMeta::default());
    }

    /// Returns how many addresses a station has claimed when they were offered.
    pub(super) fn claims_heard(&self) -> u32 {
        self.claims.len() as u32
    }

    /// Returns whether a station has claimed an address that it does not have.
    pub(super) fn is_claimed(&self, lan: usize, address: Ipv4Addr) -> bool {
        self.claims.contains(&(lan, address))
    }

    /// Returns the client of an actor whose link exists.
    pub(super) fn who(&self, actor: &Actor) -> Option<Who> {
        let link = actor
            .at
            .and_then(|at| self.kernel.link(at))
            .map(|wire| wire.mac);
        Some((
            actor.lan,
            link.or(actor.is_found_later().then_some(actor.mac))?,
            actor.client_key(),
        ))
    }

    /// Returns whether an ADD of a client is under way, and nobody has cut it short.
    pub(super) fn adds(&self, who: &Who) -> bool {
        let adds =
            |actor: &&Actor| actor.phase == Phase::Adding && self.who(actor).as_ref() == Some(who);
        self.actors.iter().any(|actor| adds(&actor))
    }

    /// Handles the beginning of an ADD, for which nothing counts that was heard or declined before.
    pub(super) fn add_begins(&mut self, id: RequestId) {
        let by = self
            .requests
            .get(&id)
            .and_then(|asked| asked.by)
            .filter(|(index, _)| *index < self.actors.len());
        if let Some(who) = by.and_then(|(index, _)| self.who(&self.actors[index])) {
            self.show(&Seen::AddBegins(&who));
        }
    }

    /// Handles an answer that may end an ADD.
    pub(super) fn may_end_add(&mut self, id: RequestId, answer: &Answer) {
        let failed = matches!(answer, Answer::Failed(_));
        let ends = |call: &Call| matches!(call, Call::Add(_)) || failed && add_of(call).is_some();
        let Some(asked) = self.requests.get(&id).filter(|asked| ends(&asked.call)) else {
            return;
        };
        let attachment = add_of(&asked.call).map(|add| add.attachment.clone());
        let of_attachment = || {
            self.actors
                .iter()
                .position(|actor| Some(&actor.attachment) == attachment.as_ref())
        };
        let Some(index) = asked.by.map(|(index, _)| index).or_else(of_attachment) else {
            return;
        };
        let Some(actor) = self.actors.get(index) else {
            return;
        };
        let is_its = asked.by == Some((index, actor.generation));
        match answer {
            Answer::Leased { tenures } if is_its => {
                self.add_ends(
                    index,
                    tenures.iter().find_map(Tenure::v4).map(|told| told.addr()),
                );
            }
            // The next ADD, which waited for its turn, is not to blame for what this one declined.
            _ => self.add_ends(index, None),
        }
    }

    /// Handles that the core has a link made for an endpoint, which ends the endpoint's ADD. What the endpoint hears from then on
    /// is about a lease that it holds.
    pub(super) fn ends_add_of_endpoint(&mut self, owner: &LinkOwner) {
        let LinkOwner::Endpoint(id) = owner else {
            return;
        };
        let has_it = |actor: &Actor| actor.pool.is_none() && actor.endpoint.as_ref() == Some(id);
        let Some(index) = self.actors.iter().position(has_it) else {
            return;
        };
        let leased = self
            .record_of(&self.actors[index])
            .map(|record| record.lease.ip());
        self.add_ends(index, leased);
    }

    fn add_ends(&mut self, index: usize, leased: Option<Ipv4Addr>) {
        if let Some(who) = self.who(&self.actors[index]) {
            self.show(&Seen::AddEnds(&who, leased));
        }
    }
}
