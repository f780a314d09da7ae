//! Docker, as a user of the registry: its pools, and what its network driver makes.
//!
//! A lease is acquired by an ADD, and given back by its address. `pools` are those of the IPAM driver; `networks` and `endpoints`
//! are those of the network driver, and `strays` sees which of their links exist. What each call waits for is in `jobs`. A
//! `Desk` joins this with the registry.

mod endpoints;
mod jobs;
mod networks;
mod pools;
mod record;
mod strays;

use std::collections::BTreeMap;

use self::endpoints::Endpoints;
use self::jobs::{DockerJob, NetworkChange};
use self::networks::Networks;
use self::pools::Pools;
pub(crate) use self::record::complete;
pub use self::record::{DockerKey, DockerRecord, TABLES};
use self::strays::Strays;
use crate::effect::{Add, RequestId};
use crate::identity::{Attachment, Lan};
use crate::network::Wiring;
use crate::registry::Registry;

/// What is known about Docker.
#[derive(Debug, Default)]
pub(crate) struct Docker {
    pools: Pools,
    networks: Networks,
    endpoints: Endpoints,
    strays: Strays,
    /// The calls that are not answered yet.
    jobs: BTreeMap<RequestId, DockerJob>,
}

/// Docker and its registry.
pub(crate) struct Desk<'a> {
    pub(crate) docker: &'a mut Docker,
    pub(crate) registry: &'a mut Registry,
}

impl Docker {
    pub(crate) fn parents(&self) -> impl Iterator<Item = &str> {
        let lans = self
            .pools
            .by_id
            .values()
            .filter_map(|pool| pool.lan.as_ref());
        let networks = self.networks.by_id.values();
        let parents = networks.map(|record| record.wiring.on.as_str());
        parents.chain(lans.filter_map(Lan::parent))
    }

    /// Adds what is known about an ADD's pool: its reservations to the limits, its gateway to the fallback.
    pub(crate) fn limit(&self, add: &mut Add) {
        let Attachment::Docker { pool, .. } = &add.attachment else {
            return;
        };
        let Ok(pool) = pool.parse() else { return };
        if let Some(limits) = &mut add.limits {
            *limits = self.pools.limits(&pool);
        }
        let gateway = self
            .pools
            .by_id
            .get(&pool)
            .and_then(|record| record.gateway);
        if let (Some(fallback), Some(gateway)) = (&mut add.fallback, gateway) {
            fallback.go_by(gateway.into());
        }
    }

    /// Returns the networks that are being created or deleted.
    fn changing_networks(&self) -> impl Iterator<Item = &NetworkChange> {
        self.jobs.values().filter_map(|job| match job {
            DockerJob::Network(change) => Some(change),
            _ => None,
        })
    }

    /// Returns whether a network, known or about to be, is in this VLAN, or may be: not all could be read.
    fn has_vlan(&self, on: &str, vlan: u16) -> bool {
        let is_in = |wiring: &Wiring| wiring.on == on && wiring.vlan == vlan;
        let comes = |call: &NetworkChange| call.is_making() && is_in(&call.record().wiring);
        let mut known = self.networks.by_id.values();
        known.any(|network| is_in(&network.wiring))
            || self.changing_networks().any(comes)
            || self.networks.is_unread
    }
}
