//! Docker's pools: an endpoint's address is requested by an ADD, and given back by the address. `jobs` has the calls.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::identity::Lan;
use crate::limits::Limits;
use crate::network::NetworkRecord;
use crate::pool::{self, MOST_POOLS, PoolId, PoolRecord};
use crate::time::Instant;

/// How often a request for an automatic subnet is answered within [`AGAIN`]. dockerd asks again and again without a pause if the
/// answer overlaps a route of the host; several networks on one LAN may be made at once.
pub(super) const OFTEN: u32 = 10;

/// The time within which such requests are counted.
pub(super) const AGAIN: Duration = Duration::from_secs(10);

/// The pools that are known, and how often they were asked for.
#[derive(Debug, Default)]
pub(super) struct Pools {
    pub(super) by_id: BTreeMap<PoolId, PoolRecord>,
    /// Since when, and how often, an automatic pool was asked for.
    pub(super) answered: BTreeMap<PoolId, (Instant, u32)>,
}

impl Pools {
    /// Returns the pool with a definition whose subnet a server offered.
    pub(super) fn automatic(&self, definition: &str) -> Option<&PoolRecord> {
        self.by_id
            .values()
            .find(|record| record.automatic && record.id.definition == definition)
    }

    /// Returns the pool that is another only by its LAN's link, if that was found by the subnet both times: the link may have lost its
    /// address meanwhile, and Docker goes on to ask for the pool.
    pub(super) fn found(&self, asked: &PoolId) -> Option<&PoolRecord> {
        let (_, others) = pool::found(&asked.definition)?;
        self.by_id.values().find(|record| {
            (record.id.subnet, record.id.range) == (asked.subnet, asked.range)
                && pool::found(&record.id.definition).is_some_and(|(_, its)| its == others)
        })
    }

    /// Adds a pool. Returns the one that is forgotten instead, if there are too many.
    pub(super) fn add(&mut self, record: PoolRecord) -> Option<PoolId> {
        let added = record.id.clone();
        self.by_id.insert(added.clone(), record);
        let others = self
            .by_id
            .values()
            .filter(|_| self.by_id.len() > MOST_POOLS)
            .filter(|record| record.id != added);
        let oldest = others.min_by_key(|record| (!record.reserved.is_empty(), record.since));
        let oldest = oldest.map(|record| record.id.clone())?;
        self.by_id.remove(&oldest);
        Some(oldest)
    }

    /// Returns the addresses that an endpoint of a pool may have, whether the pool is known or not.
    pub(super) fn limits(&self, id: &PoolId) -> Limits {
        let reserved = self
            .by_id
            .get(id)
            .map(|record| record.reserved.clone())
            .unwrap_or_default();
        Limits {
            reserved,
            ..id.limits()
        }
    }

    /// Returns where a network's pool is, if it is not on its LAN. Docker does not say which pool it is, only its subnet.
    pub(super) fn is_elsewhere(&self, network: &NetworkRecord) -> Option<&Lan> {
        let of_subnet = || {
            self.by_id
                .values()
                .filter(|pool| network.leases && pool.id.subnet == network.pool)
        };
        let may_be = |lan: Option<&Lan>| lan.is_none_or(|lan| network.wiring.is_on(lan));
        let elsewhere = !of_subnet().any(|pool| may_be(pool.lan.as_ref()));
        of_subnet()
            .find_map(|pool| pool.lan.as_ref())
            .filter(|_| elsewhere)
    }

    /// Counts a request for an automatic pool. Returns whether there are too many.
    pub(super) fn is_asked_too_often(&mut self, id: &PoolId, now: Instant) -> bool {
        self.answered
            .retain(|_, (since, _)| now.saturating_since(*since) < AGAIN);
        let (_, times) = self.answered.entry(id.clone()).or_insert((now, 0));
        *times += 1;
        *times > OFTEN
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;
    use crate::time::WallTime;

    fn pool(n: usize, second: u64) -> PoolRecord {
        let subnet = "10.0.0.0/24".parse().unwrap();
        let id = PoolId::new(format!("parent=eth{n}"), subnet, None);
        PoolRecord::new(id, WallTime::from_epoch(Duration::from_secs(second)))
    }

    #[test]
    fn of_too_many_pools_the_oldest_is_forgotten() {
        let mut pools = Pools::default();
        let record = |n: usize, second: u64| PoolRecord {
            automatic: n.is_multiple_of(2),
            ..pool(n, second)
        };
        for n in 0..MOST_POOLS {
            assert_eq!(pools.add(record(n, 100 + n as u64)), None);
        }
        assert_eq!(pools.add(record(3, 500)), None, "it was there");
        // The new one stays.
        assert_eq!(pools.add(record(1000, 1)), Some(record(0, 0).id));
        assert_eq!(
            (
                pools.automatic("parent=eth0"),
                pools.automatic("parent=eth1")
            ),
            (None, None)
        );
        assert!(
            pools.automatic("parent=eth2").is_some() && pools.by_id.contains_key(&record(1, 0).id)
        );
    }

    #[test]
    fn the_pool_without_a_reservation_is_forgotten_first() {
        let mut pools = Pools::default();
        let record = |n: usize, reserved: &[Ipv4Addr]| PoolRecord {
            reserved: reserved.iter().copied().collect(),
            ..pool(n, n as u64)
        };
        let router = [Ipv4Addr::new(10, 0, 0, 1)];
        for n in 0..MOST_POOLS {
            pools.add(record(n, if n == 2 { &[] } else { &router }));
        }
        assert_eq!(pools.add(record(1000, &router)), Some(record(2, &[]).id));
        // All have some.
        assert_eq!(pools.add(record(1001, &router)), Some(record(0, &[]).id));
    }
}
