//! Calls about networks with our driver: what dockerd says once, when it creates them, and never again.
//!
//! `jobs` creates and deletes them, and `endpoints` has their endpoints.

use std::collections::{BTreeMap, BTreeSet};

use super::Desk;
use super::jobs::{NetworkChange, Next};
use super::record::DockerKey;
use crate::effect::{NetworkAnswer, NetworkCall, OpId, RequestId};
use crate::identity::DoorId;
use crate::link::own::LinkOwner;
use crate::network::{MOST_NETWORKS, NetworkFault, NetworkRecord, Wiring};
use crate::outbox::DoorWaiter;
use crate::time::Now;

/// The networks that are known.
#[derive(Debug, Default)]
pub(super) struct Networks {
    by_id: BTreeMap<DoorId, NetworkRecord>,
    /// Those that are durable.
    kept: BTreeSet<DoorId>,
    /// Whether a record could not be read: there may be more than is known.
    pub(super) is_unread: bool,
}

impl Networks {
    /// Adds a network that the store holds.
    pub(super) fn recover(&mut self, record: NetworkRecord) {
        let id = record.id.clone();
        if self.add(record) {
            self.kept.insert(id);
        }
    }

    /// Returns a network, or that it is not known.
    /// Returns the host links that networks are on.
    pub(super) fn parents(&self) -> impl Iterator<Item = &str> {
        self.by_id.values().map(|record| record.wiring.on.as_str())
    }

    pub(super) fn get(&self, id: &DoorId) -> Result<&NetworkRecord, NetworkFault> {
        self.by_id
            .get(id)
            .ok_or_else(|| NetworkFault::Unknown(id.clone()))
    }

    /// Adds a network. Returns false if there are too many.
    fn add(&mut self, record: NetworkRecord) -> bool {
        let has_room = self.by_id.len() < MOST_NETWORKS || self.by_id.contains_key(&record.id);
        if has_room {
            self.by_id.insert(record.id.clone(), record);
        }
        has_room
    }

    /// Records that the store has a network.
    pub(super) fn is_kept(&mut self, network: &DoorId) {
        self.kept.insert(network.clone());
    }

    pub(super) fn forget(&mut self, network: &DoorId) {
        self.by_id.remove(network);
        self.kept.remove(network);
    }
}

impl Desk<'_> {
    /// Begins a call about a network or an endpoint.
    pub(super) fn network_call(&mut self, now: Now, id: RequestId, call: NetworkCall) -> Next {
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
                found
                    .map(|record| NetworkAnswer::Found(Box::new(record)))
                    .into()
            }
            NetworkCall::CreateEndpoint(request) => self.create_endpoint(now, id, *request),
            NetworkCall::DeleteEndpoint(endpoint) => self.delete_endpoint(now, id, &endpoint),
            NetworkCall::Join {
                network,
                endpoint,
                sandbox,
            } => self.join(now, &network, &endpoint, &sandbox).into(),
        }
    }

    fn create_network(&mut self, now: Now, id: RequestId, record: Box<NetworkRecord>) -> Next {
        if let Ok(known) = self.docker.networks.get(&record.id) {
            let same = *known
                == NetworkRecord {
                    since: known.since,
                    ..(*record).clone()
                };
            match same {
                true if self.docker.networks.kept.contains(&record.id) => {
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

    /// Adds a network, unless there are too many.
    pub(super) fn add_network(&mut self, record: NetworkRecord) -> Result<(), NetworkFault> {
        if self.docker.networks.add(record) {
            return Ok(());
        }
        let used = self.docker.endpoints.networks();
        let idle = self.docker.networks.by_id.values();
        let mut idle: Vec<_> = idle.filter(|own| !used.contains(&own.id)).collect();
        idle.sort_by_key(|network| network.since);
        let idle = idle.into_iter().map(|network| network.id.clone()).collect();
        Err(NetworkFault::Full {
            most: MOST_NETWORKS,
            idle,
        })
    }

    /// Returns why no address could be leased for a network's endpoints; otherwise Docker would only learn that when it makes
    /// one.
    fn cannot_lease(&self, network: &NetworkRecord) -> Option<NetworkFault> {
        let leased = self.docker.pools.is_elsewhere(network)?.clone();
        Some(NetworkFault::Elsewhere {
            leased,
            own: network.wiring.lan(),
        })
    }

    /// Forgets a network. dockerd deletes none that has endpoints.
    fn delete_network(&mut self, now: Now, id: RequestId, network: &DoorId) -> Next {
        let Ok(record) = self.docker.networks.get(network).cloned() else {
            // The store may have one that could not be read, or that it refused to delete.
            let key = DockerKey::Network(network.clone());
            self.registry.out.write_alone(key.remove());
            return Ok(NetworkAnswer::Done).into();
        };
        NetworkChange::forget(self, now, id, Box::new(record))
    }

    /// Deletes a VLAN's link if no network is in it any more.
    pub(super) fn unmake_vlan(&mut self, wiring: &Wiring, waiter: DoorWaiter) -> Option<OpId> {
        let vlan = wiring
            .vlan()
            .filter(|_| !self.has_vlan(&wiring.on, wiring.vlan))?;
        Some(self.registry.out.unmake(waiter, vlan.owner))
    }

    /// Forgets a network that was not kept, unless another call has kept it or may still do so.
    pub(super) fn take_back(&mut self, record: &NetworkRecord) {
        let writes = |call: &NetworkChange| call.record().id == record.id && call.is_writing();
        if self.docker.networks.kept.contains(&record.id)
            || self.docker.changing_networks().any(writes)
        {
            return;
        }
        self.docker.networks.forget(&record.id);
        self.registry
            .out
            .write_alone(DockerKey::Network(record.id.clone()).remove());
        self.unmake_vlan(&record.wiring, DoorWaiter::Nobody);
    }

    /// Returns whether a network, known or about to be, is in this VLAN, or may be: not all could be read.
    pub(super) fn has_vlan(&self, on: &str, vlan: u16) -> bool {
        let is_in = |wiring: &Wiring| wiring.on == on && wiring.vlan == vlan;
        let comes = |call: &NetworkChange| call.is_making() && is_in(&call.record().wiring);
        let mut known = self.docker.networks.by_id.values();
        known.any(|network| is_in(&network.wiring))
            || self.docker.changing_networks().any(comes)
            || self.docker.networks.is_unread
    }

    /// Deletes a VLAN's link that has no network, now that it is there.
    pub(super) fn vlan_is_there(&mut self, on: &str, vlan: u16) {
        if !self.has_vlan(on, vlan) {
            let on = on.to_owned();
            self.unmake_alone(LinkOwner::Vlan { on, vlan });
        }
    }
}
