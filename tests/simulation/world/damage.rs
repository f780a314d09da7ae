//! A store that is set aside: the daemon starts with the store's copy, which holds Docker's records, and adopts the other
//! containers.

use std::time::Duration;

use leasehold_core::effect::{Add, Adoptee};
use leasehold_core::record::{Record, RecordState};
use netns_fixtures::model::Knows;

use super::World;
use super::actor::{Phase, Role};
use super::ledger::Excuse;
use super::seen::Seen;
use crate::plan::happens;
use crate::watch::Rule;

/// How long an adoption may take.
const PATIENCE: Duration = Duration::from_secs(30);

impl World {
    /// Damages the store now and then, for the next start to find. Returns whether it did.
    pub(super) fn damage(&mut self) -> bool {
        if !happens(&mut self.rng, self.plan.damages) || self.store.durable.is_empty() {
            return false;
        }
        self.note(|| "STORE DAMAGED".to_owned());
        self.stats.count("damaged stores");
        let plan = &self.plan;
        let sure = !plan.may_lapse()
            && plan.store_faults == 0
            && plan.store_full.is_none()
            && self.crashes.is_empty();
        for actor in self
            .actors
            .iter_mut()
            .filter(|actor| actor.phase == Phase::Live && !actor.is_told_once())
        {
            // Without its address on the interface nothing shows that it runs, and its runtime does not know an address that
            // came after its ADD.
            let told = actor.told.as_ref().map(|told| told.address);
            let known = |record: &Record| {
                record.state == RecordState::Bound && Some(record.lease.address) == told
            };
            let is_known = |record: &Record| record.attachment == actor.attachment && known(record);
            let must = sure && !actor.meddled && self.store.durable.values().any(is_known);
            actor.stranded = Some(must && actor.stranded != Some(false));
            // A container that is not adopted gets another lease by its next ADD.
            actor.excused |= actor.stranded == Some(false);
        }
        // An answer that is still on its way also reports a lease that is lost: nobody will know of its end.
        let on_its_way = self
            .requests
            .values()
            .filter(|asked| matches!(asked.role, Role::Add) && asked.answered);
        for (index, generation) in on_its_way.filter_map(|asked| asked.by) {
            let Some(actor) = self
                .actors
                .get_mut(index)
                .filter(|actor| !actor.is_told_once())
            else {
                continue;
            };
            if (actor.generation, actor.phase) == (generation, Phase::Adding) {
                (actor.stranded, actor.excused) = (Some(false), true);
            }
        }
        if self.plan.sharers > 1 || self.plan.knows != Knows::ClientId {
            // Until it is adopted, nobody knows that its identity is held: another may take it, and give it back. So may another
            // that is the same client to a server.
            self.show(&Seen::StoreLost);
        }
        let (lost, copied) = self.store.lose();
        self.stats
            .count_many("bindings that were lost with their store", lost);
        self.stats
            .count_many("bindings that outlived their store", copied);
        self.was_damaged = true;
        self.leave_all(Excuse::StoreLost, true);
        true
    }

    /// Handles a reboot of the host before a start finds the store damaged: the store's copy is lost too. Links with the alias of
    /// the store that was set aside belong to a stranger.
    pub(super) fn copy_is_lost(&mut self) {
        self.store.durable.clear();
        self.store.docker = Default::default();
        self.store.number += 1;
        for index in (0..self.actors.len())
            .filter(|index| self.actors[*index].is_told_once())
            .collect::<Vec<_>>()
        {
            self.nobody_has(index);
        }
        self.networks
            .iter_mut()
            .for_each(|network| *network = super::Network::default());
        self.wired.store_lost();
        self.docker_was_lost = true;
        self.leave_all(Excuse::StoreLost, true);
    }

    /// Returns the containers that run with an address, for a daemon that knows no lease.
    pub(super) fn adoptees(&self) -> Vec<Adoptee> {
        if self
            .store
            .durable
            .values()
            .any(|record| record.attachment.container().is_some())
        {
            return Vec::new();
        }
        let runs = self
            .actors
            .iter()
            .filter(|actor| actor.phase == Phase::Live && !actor.is_told_once());
        let adoptee = |actor: &super::Actor| {
            let address = actor.told.as_ref()?.address;
            let on_link = actor
                .at
                .and_then(|at| self.kernel.link(at))?
                .addresses()
                .contains(&address);
            let add: Add = actor.add(self.segments[actor.lan].lan.clone(), PATIENCE, &self.plan);
            on_link.then(|| Adoptee {
                add: Box::new(add),
                address,
                mac: None,
            })
        };
        runs.filter_map(adoptee).collect()
    }

    /// Handles that records went. A daemon that sees no namespace takes a container for gone once its lease has ended, and so does one
    /// that last looked for Docker's interface while that was unplugged.
    pub(super) fn ended_unseen(&mut self, going: &[Record]) {
        let (now, unseen) = (self.clock().boot, self.kernel.unseen.is_some());
        for record in going.iter().filter(|record| record.lease.expired(now)) {
            let is_it = |actor: &&mut super::Actor| {
                let there = actor.at.is_some_and(|at| self.kernel.link(at).is_some());
                let is_away = actor.is_found_later() && !there;
                actor.attachment == record.attachment && (unseen || is_away)
            };
            if let Some(actor) = self.actors.iter_mut().find(is_it) {
                (actor.excused, actor.stranded) = (true, Some(false));
                // Its link is nobody's once dockerd moves it back.
                let endpoint = actor.endpoint.as_ref();
                endpoint.map(|id| self.wired.end(id));
            }
        }
    }

    /// Excuses an actor that the daemon does not know, which may happen only if its adoption could fail.
    pub(super) fn not_adopted(&mut self, index: usize) {
        let actor = &self.actors[index];
        if actor.stranded == Some(false) {
            return self.stats.count("not adopted");
        }
        let detail = format!(
            "{} was told {:?}, but the daemon does not know it",
            actor.attachment, actor.told
        );
        self.fail(Rule::LeaseLost, detail);
    }
}
