//! The end of Docker's networks of our own driver: what is left of them after a quiet time, and once dockerd has deleted them.

use leasehold_core::effect::{
    Answer, Call, EndpointAddress, EndpointRequest, NetworkAnswer, NetworkCall,
};
use leasehold_core::link::own::LinkOwner;
use leasehold_core::network::{AddressSource, EndpointRecord};
use leasehold_core::wire::Mac;

use super::networks::SLOW_START;
use super::wired::Stage;
use crate::watch::Rule;
use crate::world::actor::Phase;
use crate::world::{SECOND, World};

impl World {
    /// Ends Docker's networks. If the store refused to forget endpoints, the next daemon makes it forget them.
    pub(in crate::world) fn end_networks(&mut self) {
        if self.plan.wires.is_none() {
            return;
        }
        self.delete_networks();
        self.examine_links();
        self.examine_strangers();
        if self.store_fails {
            self.crash();
        }
        if self.settle() && self.until(self.now + 10 * SECOND, |_| false) {
            self.examine_kept_of_networks();
        }
    }

    /// Checks that after a quiet time each link in the host's namespace belongs to an endpoint that dockerd has and is about to
    /// move, or to a network, and that each running container has its endpoint.
    pub(in crate::world) fn examine_links(&mut self) {
        if self.plan.wires.is_none() {
            return;
        }
        // Dockerd may have been told that a network was not created, though another call about it has kept it.
        let has_vlan = !self.store.docker.networks.is_empty();
        let left = self
            .kernel
            .own()
            .filter(|(own, _)| own.store == self.store.number)
            .find(|(own, _)| match &own.owner {
                LinkOwner::Endpoint(id) => {
                    self.wired.has(id).is_none() || own.came + SLOW_START < self.now
                }
                LinkOwner::Vlan { .. } => !has_vlan,
            });
        if let Some((own, wire)) = left {
            let detail = format!(
                "{} has been there for {} s, of {}",
                wire.ifname,
                (self.now - own.came) / SECOND,
                own.owner
            );
            return self.fail(Rule::Wired, detail);
        }
        self.stats.count("looks for links without an endpoint");
        for actor in self
            .actors
            .iter()
            .filter(|actor| actor.phase == Phase::Live && actor.network.is_some())
        {
            let known = actor
                .endpoint
                .as_ref()
                .is_some_and(|id| self.record_of_endpoint(id).is_some());
            if !known && actor.stranded.is_none() {
                let detail = format!(
                    "{} runs, and its endpoint {:?} is not known",
                    actor.attachment, actor.endpoint
                );
                return self.fail(Rule::Wired, detail);
            }
            self.stats.count("live at the end with our network driver");
        }
    }

    /// Checks that LIST names the links that a daemon with another store has left, as they were when last listed.
    pub(in crate::world) fn examine_strangers(&mut self) {
        // What was listed a moment ago counts for a while.
        if !self.until(self.now + 10 * SECOND, |_| false) {
            return;
        }
        self.inquire(Call::List);
        if !self.until(self.now + SECOND, |_| false) {
            return;
        }
        let there = self.kernel.list_own(self.store.number).strangers;
        let listed = self.inquire(Call::List);
        let Some(Answer::Bindings { strangers, .. }) = listed else {
            return self.fail(Rule::Unanswered, "LIST of links in quiet");
        };
        self.stats
            .count_many("links of another store at the end", there.len());
        if strangers != there {
            let detail = format!("another store has left {there:?}, listed {strangers:?}");
            self.fail(Rule::Wired, detail);
        }
    }

    /// Lets an operator delete the networks that Docker has forgotten. None of them has an endpoint.
    fn delete_forgotten(&mut self) {
        for id in std::mem::take(&mut self.wired.forgotten) {
            if !self.store.docker.networks.contains_key(&id) {
                continue;
            }
            if self
                .store
                .docker
                .endpoints
                .values()
                .any(|endpoint| endpoint.network == id)
            {
                let detail = format!("dockerd never had network {}, which is used", id.as_str());
                return self.fail(Rule::Wired, detail);
            }
            self.stats.count("networks that only the daemon knew");
            self.inquire(Call::Network(NetworkCall::Delete(id)));
        }
    }

    /// Checks that each network can still give out addresses, whatever has happened to it. Then dockerd deletes it.
    pub(in crate::world) fn delete_networks(&mut self) {
        self.delete_forgotten();
        let lans = if self.plan.wires.is_some() {
            self.segments.len()
        } else {
            0
        };
        for lan in 0..lans {
            if self.wired.networks[lan] == (Stage::There, false) {
                self.try_network(lan);
            }
            let call = Call::Network(NetworkCall::Delete(self.wired.network_id(lan)));
            let answer = self.inquire(call);
            if answer != Some(Answer::Network(NetworkAnswer::Done)) {
                return self.fail(Rule::Wired, format!("DeleteNetwork in quiet: {answer:?}"));
            }
            self.wired.networks[lan] = (Stage::Absent, false);
        }
    }

    fn try_network(&mut self, lan: usize) {
        let id = self.wired.new_endpoint();
        let mac = Mac([2, 0xab, 0, 0, 0, lan as u8]);
        let address =
            EndpointAddress::Ipam("192.0.2.7/24".parse().expect("an address with a prefix"));
        let request = EndpointRequest {
            id: id.clone(),
            network: self.wired.network_id(lan),
            mac,
            address,
        };
        let create = NetworkCall::CreateEndpoint(Box::new(request));
        for call in [create, NetworkCall::DeleteEndpoint(id)] {
            let answer = self.inquire(Call::Network(call.clone()));
            if !matches!(answer, Some(Answer::Network(_))) {
                return self.fail(Rule::Wired, format!("{call:?} in quiet: {answer:?}"));
            }
        }
        self.stats.count("networks that are good to the end");
    }

    /// Checks that the store keeps nothing of networks or of endpoints that had a lease.
    pub(in crate::world) fn examine_kept_of_networks(&mut self) {
        let docker = &self.store.docker;
        let is_left = |record: &&EndpointRecord| matches!(record.source, AddressSource::Leased(_));
        let left = (
            docker.networks.values().next(),
            docker.endpoints.values().find(is_left),
        );
        if left != (None, None) {
            self.fail(Rule::Residue, format!("in the store {left:?}"));
        }
    }
}
