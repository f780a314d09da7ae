//! Calls about Docker's pools: an endpoint's address is requested by an ADD, and given back by the address.
//!
//! Pools are not reference-counted as in Docker: some of its paths give back fewer pools than they asked for. A pool is
//! forgotten when it is given back, no endpoint has a lease in it and no address in it is reserved.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::time::Duration;

use super::Desk;
use super::jobs::{LanInquiry, Next, PoolChange, Undo};
use super::record::{DockerKey, DockerRecord};
use crate::effect::{Add, Answer, Failure, PoolRequest, RequestId};
use crate::identity::{Attachment, Lan};
use crate::limits::Limits;
use crate::network::NetworkRecord;
use crate::pool::{self, MOST_POOLS, MOST_RESERVED, PoolFault, PoolId, PoolRecord};
use crate::record::{BindingId, Change};
use crate::registry::PortHolding;
use crate::time::{Instant, Now};

/// How often a request for an automatic subnet is answered within [`AGAIN`]. dockerd asks again and again without a pause if the
/// answer overlaps a route of the host; several networks on one LAN may be made at once.
const OFTEN: u32 = 10;

/// The time within which such requests are counted.
const AGAIN: Duration = Duration::from_secs(10);

/// The pools that are known, and how often they were asked for.
#[derive(Debug, Default)]
pub(super) struct Pools {
    by_id: BTreeMap<PoolId, PoolRecord>,
    /// Since when, and how often, an automatic pool was asked for.
    answered: BTreeMap<PoolId, (Instant, u32)>,
}

impl Pools {
    /// Returns all of them, in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &PoolRecord> {
        self.by_id.values()
    }

    fn get(&self, id: &PoolId) -> Option<&PoolRecord> {
        self.by_id.get(id)
    }

    fn get_mut(&mut self, id: &PoolId) -> Option<&mut PoolRecord> {
        self.by_id.get_mut(id)
    }

    /// Returns the pool with a definition whose subnet a server offered.
    fn automatic(&self, definition: &str) -> Option<&PoolRecord> {
        self.iter()
            .find(|record| record.automatic && record.id.definition == definition)
    }

    /// Returns the pool that is another only by its LAN's link, if that was found by the subnet both times: the link may have lost its
    /// address meanwhile, and Docker goes on to ask for the pool.
    fn found(&self, asked: &PoolId) -> Option<&PoolRecord> {
        let (_, others) = pool::found(&asked.definition)?;
        self.iter().find(|record| {
            (record.id.subnet, record.id.range) == (asked.subnet, asked.range)
                && pool::found(&record.id.definition).is_some_and(|(_, its)| its == others)
        })
    }

    /// Adds a pool. Returns the one that is forgotten instead, if there are too many.
    pub(super) fn add(&mut self, record: PoolRecord) -> Option<PoolId> {
        let added = record.id.clone();
        self.by_id.insert(added.clone(), record);
        let others = self
            .iter()
            .filter(|_| self.by_id.len() > MOST_POOLS)
            .filter(|record| record.id != added);
        let oldest = others.min_by_key(|record| (!record.reserved.is_empty(), record.since));
        let oldest = oldest.map(|record| record.id.clone())?;
        self.by_id.remove(&oldest);
        Some(oldest)
    }

    fn remove(&mut self, id: &PoolId) -> bool {
        self.by_id.remove(id).is_some()
    }

    /// Returns the addresses that an endpoint of a pool may have, whether the pool is known or not.
    fn limits(&self, id: &PoolId) -> Limits {
        let reserved = self
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
            self.iter()
                .filter(|pool| network.leases && pool.id.subnet == network.pool)
        };
        let may_be = |lan: Option<&Lan>| lan.is_none_or(|lan| network.wiring.is_on(lan));
        let elsewhere = !of_subnet().any(|pool| may_be(pool.lan.as_ref()));
        of_subnet()
            .find_map(|pool| pool.lan.as_ref())
            .filter(|_| elsewhere)
    }

    /// Counts a request for an automatic pool. Returns whether there are too many.
    fn is_asked_too_often(&mut self, id: &PoolId, now: Instant) -> bool {
        self.answered
            .retain(|_, (since, _)| now.saturating_since(*since) < AGAIN);
        let (_, times) = self.answered.entry(id.clone()).or_insert((now, 0));
        *times += 1;
        *times > OFTEN
    }
}

impl Desk<'_> {
    /// Handles RequestPool: a known pool is answered as before.
    pub(super) fn request_pool(
        &mut self,
        now: Now,
        id: RequestId,
        request: Box<PoolRequest>,
    ) -> Next {
        let PoolRequest {
            definition,
            subnet,
            range,
            ..
        } = &*request;
        let fail = |fault| Answer::Failed(Failure::Pool(fault));
        if let (Some(subnet), Some(range)) = (subnet, range)
            && !subnet.contains(range)
        {
            return Next::Answers(fail(PoolFault::RangeBeyond {
                range: *range,
                subnet: *subnet,
            }));
        }
        let asked = subnet.map(|subnet| PoolId::new(definition, subnet, *range));
        let known = match &asked {
            Some(pool) => self
                .docker
                .pools
                .get(pool)
                .or_else(|| self.docker.pools.found(pool)),
            None => self.docker.pools.automatic(definition),
        };
        if let Some(record) = known {
            let pool = record.id.clone();
            let gateway = record.gateway;
            let subnet = pool.subnet;
            let answer =
                match asked.is_none() && self.docker.pools.is_asked_too_often(&pool, now.boot) {
                    true => fail(PoolFault::Overlaps {
                        subnet,
                        times: OFTEN,
                        within: AGAIN,
                    }),
                    false => Answer::Pool { id: pool, gateway },
                };
            return Next::Answers(answer);
        }
        if let (Some(subnet), Some(links)) = (*subnet, &request.unclear) {
            let links = links.clone();
            return Next::Answers(fail(PoolFault::NoParent { subnet, links }));
        }
        if let Some((parent, _)) = pool::found(definition) {
            tracing::info!(%parent, ?subnet, "the one link with an address of the subnet is a network's parent: none was named");
        }
        LanInquiry::begin(self, now, id, request)
    }

    /// Adds a pool, and answers when that is durable.
    pub(super) fn add_pool(
        &mut self,
        now: Now,
        id: RequestId,
        pool: PoolId,
        lan: Lan,
        gateway: Option<Ipv4Addr>,
        automatic: bool,
    ) -> Next {
        if automatic {
            self.docker.pools.is_asked_too_often(&pool, now.boot);
        }
        // It may have become known meanwhile, through the same request or a reservation.
        let known = self.docker.pools.get(&pool).cloned();
        let undo = if known.is_some() {
            Undo::Nothing
        } else {
            Undo::Pool(pool.clone())
        };
        let lan = Some(lan);
        let new = PoolRecord {
            id: pool.clone(),
            lan: lan.clone(),
            gateway,
            reserved: BTreeSet::new(),
            automatic,
            since: now.wall,
        };
        let record = known.map_or(new, |known| PoolRecord {
            lan,
            gateway: known.gateway.or(gateway),
            ..known
        });
        let gateway = record.gateway;
        let forgotten = self.docker.pools.add(record.clone());
        let mut changes = vec![put(record)];
        changes.extend(forgotten.map(remove));
        PoolChange::begin(
            self,
            now,
            id,
            changes,
            (Answer::Pool { id: pool, gateway }, undo),
        )
    }

    /// Handles ReleasePool: forgets the pool, unless it belongs to another network too. In that case an endpoint may have a lease
    /// in it, or an address may be reserved: Docker gives a network's own addresses back before its pool.
    pub(super) fn release_pool(&mut self, pool: &PoolId) -> Next {
        self.docker.pools.answered.remove(pool);
        let is_reserved = self
            .docker
            .pools
            .get(pool)
            .is_some_and(|record| !record.reserved.is_empty());
        if !is_reserved
            && self
                .registry
                .holdings_in(&pool.to_string())
                .next()
                .is_none()
        {
            self.forget_pool(pool);
        }
        Next::Answers(Answer::PoolReleased)
    }

    pub(super) fn forget_pool(&mut self, pool: &PoolId) {
        if self.docker.pools.remove(pool) {
            self.registry.out.write_alone(remove(pool.clone()));
        }
    }

    /// Reserves an address, or the gateway. An address that is reserved already is answered again.
    pub(super) fn reserve(
        &mut self,
        now: Now,
        id: RequestId,
        pool: &PoolId,
        address: Option<Ipv4Addr>,
    ) -> Next {
        let fail = |fault| Next::Answers(Answer::Failed(Failure::Pool(fault)));
        let gateway = || self.docker.pools.get(pool)?.gateway;
        let Some(address) = address.or_else(gateway) else {
            return fail(PoolFault::NoGateway {
                subnet: pool.subnet,
            });
        };
        // Docker will give back the address it was told, whatever the lease is by then.
        let has = |holding: &PortHolding<'_>| {
            [
                holding.leased(now.boot),
                holding.told().map(|told| told.addr()),
            ]
            .contains(&Some(address))
        };
        let gets = |holding: &PortHolding<'_>| holding.claimed(now.boot) == Some(address);
        let text = pool.to_string();
        let holder = self.registry.holdings_in(&text).find(has);
        let holder = holder.or_else(|| self.registry.asking_in(&text).find(gets));
        if let Some(holder) = holder.map(|holder| holder.attachment().clone()) {
            return fail(PoolFault::Leased { address, holder });
        }
        // The store may have lost it.
        let mut changes = Vec::new();
        if self.docker.pools.get(pool).is_none() {
            let since = now.wall;
            let record = PoolRecord {
                id: pool.clone(),
                lan: None,
                gateway: None,
                reserved: BTreeSet::new(),
                automatic: false,
                since,
            };
            changes.extend(self.docker.pools.add(record).map(remove));
        }
        let Some(record) = self.docker.pools.get_mut(pool) else {
            return Next::Nothing;
        };
        if record.reserved.contains(&address) {
            return Next::Answers(Answer::Reserved(address));
        }
        if record.reserved.len() >= MOST_RESERVED {
            return fail(PoolFault::Full {
                subnet: pool.subnet,
            });
        }
        record.reserved.insert(address);
        changes.push(put(record.clone()));
        self.limit_asking(now, pool);
        let undo = Undo::Reserved(pool.clone(), address);
        PoolChange::begin(self, now, id, changes, (Answer::Reserved(address), undo))
    }

    /// Ends the reservation of an address. Returns what to write, if it was reserved.
    pub(super) fn unreserve(
        &mut self,
        now: Now,
        pool: &PoolId,
        address: Ipv4Addr,
    ) -> Option<Change> {
        let record = self.docker.pools.get_mut(pool)?;
        let change = record
            .reserved
            .remove(&address)
            .then(|| put(record.clone()));
        self.limit_asking(now, pool);
        change
    }

    /// Tells the ADDs of a pool that have no lease yet which addresses they may get.
    fn limit_asking(&mut self, now: Now, pool: &PoolId) {
        let limits = self.docker.pools.limits(pool);
        self.registry.limit(now, &pool.to_string(), &limits);
    }

    /// Adds what is known about an ADD's pool: its reservations to the limits, its gateway to the fallback.
    pub(crate) fn limit(&self, add: &mut Add) {
        let Attachment::Docker { pool, .. } = &add.attachment else {
            return;
        };
        let Ok(pool) = pool.parse() else { return };
        if let Some(limits) = &mut add.limits {
            *limits = self.docker.pools.limits(&pool);
        }
        let gateway = self
            .docker
            .pools
            .get(&pool)
            .and_then(|record| record.gateway);
        if let (Some(fallback), Some(gateway)) = (&mut add.fallback, gateway) {
            fallback.go_by(gateway.into());
        }
    }

    /// Handles ReleaseAddress: drops a reservation, or gives back the lease of the endpoint that got this address from Docker. It
    /// is answered when that is durable: otherwise the next daemon would hold the lease again.
    pub(super) fn release_address(
        &mut self,
        now: Now,
        id: RequestId,
        pool: &PoolId,
        address: Ipv4Addr,
    ) -> Next {
        if let Some(change) = self.unreserve(now, pool, address) {
            return PoolChange::begin(
                self,
                now,
                id,
                vec![change],
                (Answer::Released, Undo::Nothing),
            );
        }
        match self.released(now, pool, address) {
            Some(binding) => {
                self.registry.release_for(now, id, binding);
                Next::Nothing
            }
            None => Next::Answers(Answer::Released),
        }
    }

    /// Returns whose lease an address that Docker gives back stands for.
    fn released(&self, now: Now, pool: &PoolId, address: Ipv4Addr) -> Option<BindingId> {
        let told =
            |holding: &PortHolding<'_>| holding.told().is_some_and(|told| told.addr() == address);
        let text = pool.to_string();
        if let Some(again) = self.registry.leaving_in(&text).find(told) {
            return Some(again.id());
        }
        let told: Vec<_> = self.registry.holdings_in(&text).filter(told).collect();
        match &told[..] {
            [only] => Some(only.id()),
            // One endpoint's lease has changed, and another got its old address. Docker takes an interface away before it
            // gives the address back. If both have their interfaces, nobody knows which is meant; when one goes later, its
            // lease is given up then.
            several => {
                let has = |holding: &PortHolding<'_>| holding.leased(now.boot) == Some(address);
                let without = several
                    .iter()
                    .copied()
                    .filter(|holding| holding.is_on_host());
                without.min_by_key(has).map(PortHolding::id)
            }
        }
    }
}

fn put(pool: PoolRecord) -> Change {
    DockerRecord::Pool(pool).put()
}

fn remove(pool: PoolId) -> Change {
    DockerKey::Pool(pool).remove()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::WallTime;

    #[test]
    fn of_too_many_pools_the_oldest_is_forgotten() {
        let mut pools = Pools::default();
        let record = |n: usize, second: u64| PoolRecord {
            id: PoolId::new(
                format!("parent=eth{n}"),
                "10.0.0.0/24".parse().unwrap(),
                None,
            ),
            lan: None,
            gateway: None,
            reserved: BTreeSet::new(),
            automatic: n.is_multiple_of(2),
            since: WallTime::from_epoch(Duration::from_secs(second)),
        };
        for n in 0..MOST_POOLS {
            assert_eq!(pools.add(record(n, 100 + n as u64)), None);
        }
        assert_eq!(pools.add(record(3, 500)), None, "it was there");
        assert_eq!(
            pools.add(record(1000, 1)),
            Some(record(0, 0).id),
            "the new one stays"
        );
        assert_eq!(
            (
                pools.automatic("parent=eth0"),
                pools.automatic("parent=eth1")
            ),
            (None, None)
        );
        assert!(pools.automatic("parent=eth2").is_some() && pools.get(&record(1, 0).id).is_some());
    }

    #[test]
    fn the_pool_without_a_reservation_is_forgotten_first() {
        let mut pools = Pools::default();
        let record = |n: usize, reserved: &[Ipv4Addr]| PoolRecord {
            id: PoolId::new(
                format!("parent=eth{n}"),
                "10.0.0.0/24".parse().unwrap(),
                None,
            ),
            lan: None,
            gateway: None,
            reserved: reserved.iter().copied().collect(),
            automatic: false,
            since: WallTime::from_epoch(Duration::from_secs(n as u64)),
        };
        let router = [Ipv4Addr::new(10, 0, 0, 1)];
        for n in 0..MOST_POOLS {
            pools.add(record(n, if n == 2 { &[] } else { &router }));
        }
        assert_eq!(pools.add(record(1000, &router)), Some(record(2, &[]).id));
        assert_eq!(
            pools.add(record(1001, &router)),
            Some(record(0, &[]).id),
            "all have some"
        );
    }
}
