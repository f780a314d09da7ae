//! Docker, as a user of the registry: its pools, and what its network driver makes.
//!
//! A lease is acquired by an ADD, and given back by its address. `pools` are those of the IPAM driver; `networks` and `endpoints`
//! are those of the network driver, and `strays` sees which of their links exist. What each call waits for is in `jobs`. `desk`
//! joins this with the registry.

mod desk;
mod endpoints;
mod jobs;
mod networks;
mod pools;
mod record;
mod strays;

use std::collections::BTreeMap;

pub(crate) use self::desk::Desk;
use self::desk::{Key, Waiter};
use self::endpoints::Endpoints;
use self::jobs::Jobs;
use self::networks::Networks;
use self::pools::Pools;
pub(crate) use self::record::complete;
pub use self::record::{DockerKey, DockerRecord, TABLES};
use self::strays::Strays;
use crate::effect::{OpId, Why};
use crate::registry::Kept;
use crate::time::Instant;
use crate::timers::Timers;

/// What is known about Docker.
#[derive(Debug, Default)]
pub(crate) struct Docker {
    pools: Pools,
    networks: Networks,
    endpoints: Endpoints,
    strays: Strays,
    jobs: Jobs,
    /// Who waits for the effects under way.
    waiters: BTreeMap<OpId, Waiter>,
    timers: Timers<Key>,
}

impl Docker {
    /// Returns the deadlines that have come and whose they are, in order of time.
    pub(crate) fn due(&self, now: Instant) -> Vec<(Instant, Key)> {
        self.timers.due(now)
    }

    /// Returns when the clock next matters, and why.
    pub(crate) fn poll_timeout(&self) -> Option<(Instant, Why)> {
        self.timers.next()
    }

    /// Returns how much is kept of each kind whose size depends on what was asked.
    pub(crate) fn kept(&self) -> [Kept; 4] {
        let under_way = |what, count| Kept { what, count, of_bindings: false };
        [
            under_way("calls of Docker", self.jobs.len()),
            under_way("addresses that are leased for endpoints", self.endpoints.leasing.len()),
            under_way("effects for Docker", self.waiters.len()),
            Kept { what: "deadlines of Docker", count: self.timers.len(), of_bindings: true },
        ]
    }
}
