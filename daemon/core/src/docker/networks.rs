//! Calls about networks with our driver: what dockerd says once, when it creates them, and never again.
//!
//! `jobs` creates and deletes them, and `endpoints` has their endpoints.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::Desk;
use super::jobs::{NetworkChange, Next};
use super::record::DockerKey;
use crate::effect::{NetworkAnswer, NetworkCall, OpId, RequestId};
use crate::identity::DoorId;
use crate::link::own::LinkOwner;
use crate::network::{MOST_NETWORKS, NetworkFault, NetworkRecord, Wiring};
use crate::outbox::DoorWaiter;
use crate::time::Now;

/// How many answers that may not have reached their callers are remembered: they cross within a moment.
const MOST_ANSWERED: usize = 16;

/// The networks that are known.
#[derive(Debug, Default)]
pub(super) struct Networks {
    by_id: BTreeMap<DoorId, NetworkRecord>,
    /// Those that are durable.
    kept: BTreeSet<DoorId>,
    /// The keys of what could not be read from the store.
    pub(super) unread: BTreeSet<DockerKey>,
    /// The last answered calls that made a network, with that network. Such an answer may cross its caller's hang-up.
    answered: VecDeque<(RequestId, DoorId)>,
}

impl Networks {
    /// Adds a network that the store holds.
    pub(super) fn recover(&mut self, record: NetworkRecord) {
        let id = record.id.clone();
        if self.add(record).is_ok() {
            self.kept.insert(id);
        }
    }

    /// Returns a network, or that it is not known.
    pub(super) fn get(&self, id: &DoorId) -> Result<&NetworkRecord, NetworkFault> {
        self.by_id.get(id).ok_or_else(|| NetworkFault::Unknown(id.clone()))
    }

    /// Adds a network, unless there are too many.
    pub(super) fn add(&mut self, record: NetworkRecord) -> Result<(), NetworkFault> {
        if self.by_id.len() >= MOST_NETWORKS && !self.by_id.contains_key(&record.id) {
            let mut unused: Vec<_> = self.by_id.values().filter(|network| network.unused).collect();
            unused.sort_by_key(|network| network.since);
            let unused = unused.into_iter().map(|network| network.id.clone()).collect();
            return Err(NetworkFault::Full { most: MOST_NETWORKS, unused });
        }
        self.by_id.insert(record.id.clone(), record);
        Ok(())
    }

    /// Records that a network has an endpoint. Returns it if that is its first.
    pub(super) fn use_first(&mut self, id: &DoorId) -> Option<NetworkRecord> {
        let network = self.by_id.get_mut(id).filter(|network| network.unused)?;
        network.unused = false;
        Some(network.clone())
    }

    /// Returns whether there are endpoints of which only the name could be read.
    pub(super) fn has_unread_endpoints(&self) -> bool {
        self.unread.iter().any(|key| matches!(key, DockerKey::Endpoint(_)))
    }

    /// Records that the store has a network; the call that made it is answered now.
    pub(super) fn is_kept(&mut self, id: RequestId, network: &DoorId) {
        if !self.kept.insert(network.clone()) {
            // Another call about it was answered before.
            return self.docker_knows(network);
        }
        self.answered.push_back((id, network.clone()));
        if self.answered.len() > MOST_ANSWERED {
            self.answered.pop_front();
        }
    }

    /// Forgets a network.
    pub(super) fn forget(&mut self, network: &DoorId) {
        self.by_id.remove(network);
        self.kept.remove(network);
    }

    /// Records that Docker knows a network: it has mentioned it, or has had another answer.
    fn docker_knows(&mut self, network: &DoorId) {
        self.answered.retain(|(_, answered)| answered != network);
    }
}

impl Desk<'_> {
    /// A call about a network or an endpoint.
    pub(super) fn network_call(&mut self, now: Now, id: RequestId, call: NetworkCall) -> Next {
        match &call {
            NetworkCall::Delete(network) | NetworkCall::Find(network) | NetworkCall::Join { network, .. } => {
                self.docker.networks.docker_knows(network);
            }
            NetworkCall::CreateEndpoint(request) => self.docker.networks.docker_knows(&request.network),
            NetworkCall::Started => {}
            NetworkCall::Create(_) | NetworkCall::DeleteEndpoint(_) => {}
        }
        match call {
            NetworkCall::Started => {
                self.abandon_strays(now);
                self.registry.await_all_interfaces_soon(now);
                Ok(NetworkAnswer::Done).into()
            }
            NetworkCall::Create(record) => self.create_network(now, id, record),
            NetworkCall::Delete(network) => self.delete_network(now, id, &network),
            NetworkCall::Find(network) => {
                let found = self.docker.networks.get(&network).cloned();
                found.map(|record| NetworkAnswer::Found(Box::new(record))).into()
            }
            NetworkCall::CreateEndpoint(request) => self.create_endpoint(now, id, *request),
            NetworkCall::DeleteEndpoint(endpoint) => self.delete_endpoint(now, id, &endpoint),
            NetworkCall::Join { network, endpoint, sandbox } => self.join(now, (&network, &endpoint), &sandbox).into(),
        }
    }

    fn create_network(&mut self, now: Now, id: RequestId, record: Box<NetworkRecord>) -> Next {
        if let Ok(known) = self.docker.networks.get(&record.id) {
            let same = *known == NetworkRecord { since: known.since, unused: known.unused, ..(*record).clone() };
            match same {
                true if self.docker.networks.kept.contains(&record.id) => {
                    self.docker.networks.docker_knows(&record.id);
                    return Ok(NetworkAnswer::Done).into();
                }
                // It is being written, and may not get into the store.
                true => {}
                false => return Err(NetworkFault::Differs(record.id.clone())).into(),
            }
        }
        if let Some(fault) = self.cannot_lease(&record) {
            return Err(fault).into();
        }
        NetworkChange::make(self, now, id, record)
    }

    /// Returns why no address could be leased for a network's endpoints; otherwise Docker would only learn that when it makes
    /// one.
    fn cannot_lease(&self, network: &NetworkRecord) -> Option<NetworkFault> {
        let leased = self.docker.pools.is_elsewhere(network)?.clone();
        Some(NetworkFault::Elsewhere { leased, own: network.wiring.lan() })
    }

    /// Forgets a network. dockerd deletes none that has endpoints.
    fn delete_network(&mut self, now: Now, id: RequestId, network: &DoorId) -> Next {
        let Ok(record) = self.docker.networks.get(network).cloned() else {
            self.forget_unread(now, DockerKey::Network(network.clone()));
            return Ok(NetworkAnswer::Done).into();
        };
        NetworkChange::forget(self, now, id, Box::new(record))
    }

    /// Deletes a VLAN's link if no network is in it any more.
    pub(super) fn unmake_vlan(&mut self, wiring: &Wiring, waiter: DoorWaiter) -> Option<OpId> {
        let vlan = wiring.vlan().filter(|_| !self.has_vlan(&wiring.on, wiring.vlan))?;
        Some(self.registry.out.unmake(waiter, vlan.owner))
    }

    /// Forgets a network that was not kept, unless another call has kept it or may still do so.
    pub(super) fn take_back(&mut self, record: &NetworkRecord) {
        let writes = |call: &NetworkChange| call.record().id == record.id && call.is_writing();
        if self.docker.networks.kept.contains(&record.id) || self.docker.jobs.networks().any(writes) {
            return;
        }
        self.docker.networks.forget(&record.id);
        self.registry.out.write_alone(DockerKey::Network(record.id.clone()).remove());
        self.unmake_vlan(&record.wiring, DoorWaiter::Nobody);
    }

    /// Forgets a network that was made by a call whose caller hung up as it was answered: Docker never heard about it. False if
    /// there is none.
    pub(super) fn take_back_unheard(&mut self, id: RequestId) -> bool {
        let Some(at) = self.docker.networks.answered.iter().position(|(answered, _)| *answered == id) else {
            return false;
        };
        let Some((_, network)) = self.docker.networks.answered.remove(at) else { return false };
        let another = self.docker.jobs.networks().any(|call| call.record().id == network);
        if let Some(record) = self.docker.networks.get(&network).ok().filter(|_| !another).cloned() {
            tracing::info!(%network, "Docker gave up on a network that was just created: forgetting it");
            self.docker.networks.kept.remove(&network);
            self.take_back(&record);
        }
        true
    }

    /// Returns whether a network, known or about to be, is in this VLAN, or may be: not all could be read.
    pub(super) fn has_vlan(&self, on: &str, vlan: u16) -> bool {
        let is_in = |wiring: &Wiring| wiring.on == on && wiring.vlan == vlan;
        let comes = |call: &NetworkChange| call.is_making() && is_in(&call.record().wiring);
        let may_be = |key: &DockerKey| matches!(key, DockerKey::Network(_));
        let mut known = self.docker.networks.by_id.values();
        let unread = self.docker.networks.unread.iter().any(may_be);
        known.any(|network| is_in(&network.wiring)) || self.docker.jobs.networks().any(comes) || unread
    }

    /// A VLAN's link is there: it is deleted if it has no network.
    pub(super) fn vlan_is_there(&mut self, on: &str, vlan: u16) {
        if !self.has_vlan(on, vlan) {
            self.registry.out.unmake(DoorWaiter::Nobody, LinkOwner::Vlan { on: on.to_owned(), vlan });
        }
    }
}

#[cfg(test)]
mod tests {
    use ipnet::Ipv4Net;

    use super::*;
    use crate::network::Mode;
    use crate::time::WallTime;

    #[test]
    fn no_network_is_forgotten_for_another() {
        let id = |text: &str| DoorId::try_from(text.to_owned()).expect("an id");
        let mut networks = Networks::default();
        let record = |n: usize| NetworkRecord {
            id: id(&format!("n{n}")),
            definition: String::new(),
            wiring: Wiring { mode: Mode::Bridge, on: "eth0".to_owned(), vlan: 0, mtu: None },
            gateway: None,
            pool: Ipv4Net::default(),
            leases: false,
            since: WallTime::from_epoch(std::time::Duration::from_secs(1000 - n as u64)),
            unused: n % 100 == 7,
        };
        for n in 0..MOST_NETWORKS {
            assert_eq!(networks.add(record(n)), Ok(()));
        }
        assert_eq!(networks.add(record(3)), Ok(()), "it was there");
        let unused = [207, 107, 7].map(|n| id(&format!("n{n}"))).to_vec();
        assert_eq!(networks.add(record(1000)), Err(NetworkFault::Full { most: MOST_NETWORKS, unused }));
        assert!(networks.get(&id("n0")).is_ok());
        assert_eq!(networks.get(&id("n1000")), Err(NetworkFault::Unknown(id("n1000"))));
    }
}
