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
use crate::pool::{MOST_RESERVED, PoolFault, PoolId, PoolRecord, Pools};
use crate::record::{BindingId, Change};
use crate::registry::Holding;
use crate::time::{Instant, Now};

/// How often a request for an automatic subnet is answered within [`AGAIN`]. dockerd asks again and again without a pause if the
/// answer overlaps a route of the host; several networks on one LAN may be made at once.
const OFTEN: u32 = 10;

/// For how long that is counted.
const AGAIN: Duration = Duration::from_secs(10);

/// The pools, and how often they were asked for.
#[derive(Debug, Default)]
pub(super) struct Ipam {
    pools: Pools,
    /// Since when, and how often, an automatic pool was asked for.
    answered: BTreeMap<PoolId, (Instant, u32)>,
}

impl Ipam {
    /// Takes over a pool that the store holds.
    pub(super) fn recover(&mut self, record: PoolRecord) {
        self.pools.add(record);
    }

    /// Returns all pools, in order.
    pub(super) fn pools(&self) -> Vec<PoolRecord> {
        self.pools.iter().cloned().collect()
    }

    /// Returns the addresses that an endpoint of a pool may have.
    pub(super) fn limits(&self, id: &PoolId) -> Limits {
        self.pools.limits(id)
    }

    /// Returns where a network's pool is, if it is not on its LAN. Docker does not say which pool it is, only its subnet.
    pub(super) fn is_elsewhere(&self, network: &NetworkRecord) -> Option<&Lan> {
        let of_subnet = || self.pools.iter().filter(|pool| network.leases && pool.id.subnet == network.pool);
        let may_be = |lan: Option<&Lan>| lan.is_none_or(|lan| network.wiring.is_on(lan));
        let elsewhere = !of_subnet().any(|pool| may_be(pool.lan.as_ref()));
        of_subnet().find_map(|pool| pool.lan.as_ref()).filter(|_| elsewhere)
    }

    /// Counts a request for an automatic pool. Returns whether there are too many.
    fn is_asked_too_often(&mut self, id: &PoolId, now: Instant) -> bool {
        self.answered.retain(|_, (since, _)| now.saturating_since(*since) < AGAIN);
        let (_, times) = self.answered.entry(id.clone()).or_insert((now, 0));
        *times += 1;
        *times > OFTEN
    }
}

impl Desk<'_> {
    /// RequestPool: a known pool is answered as before.
    pub(super) fn request_pool(&mut self, now: Now, id: RequestId, request: Box<PoolRequest>) -> Next {
        let PoolRequest { definition, subnet, range, .. } = &*request;
        let fail = |fault| Answer::Failed(Failure::Pool(fault));
        if let (Some(subnet), Some(range)) = (subnet, range)
            && !subnet.contains(range)
        {
            return Next::Answers(fail(PoolFault::RangeBeyond { range: *range, subnet: *subnet }));
        }
        let asked = subnet.map(|subnet| PoolId::new(definition, subnet, *range));
        let known = match &asked {
            Some(pool) => self.docker.ipam.pools.get(pool),
            None => self.docker.ipam.pools.automatic(definition),
        };
        if let Some(record) = known {
            let (pool, gateway) = (record.id.clone(), record.gateway);
            let subnet = pool.subnet;
            let answer = match asked.is_none() && self.docker.ipam.is_asked_too_often(&pool, now.boot) {
                true => fail(PoolFault::Overlaps { subnet, times: OFTEN, within: AGAIN }),
                false => Answer::Pool { id: pool, gateway },
            };
            return Next::Answers(answer);
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
            self.docker.ipam.is_asked_too_often(&pool, now.boot);
        }
        // It may have become known meanwhile, through the same request or a reservation.
        let known = self.docker.ipam.pools.get(&pool).cloned();
        let undo = if known.is_some() { Undo::Nothing } else { Undo::Pool(pool.clone()) };
        let reserved = BTreeSet::new();
        let lan = Some(lan);
        let new = PoolRecord { id: pool.clone(), lan: lan.clone(), gateway, reserved, automatic, since: now.wall };
        let record = known.map_or(new, |known| PoolRecord { lan, gateway: known.gateway.or(gateway), ..known });
        let gateway = record.gateway;
        let forgotten = self.docker.ipam.pools.add(record.clone());
        let mut changes = vec![put(record)];
        changes.extend(forgotten.map(remove));
        PoolChange::begin(self, now, id, changes, (Answer::Pool { id: pool, gateway }, undo))
    }

    /// ReleasePool: the pool is forgotten, unless it belongs to another network too. In that case an endpoint may have a lease in
    /// it, or an address may be reserved: Docker gives a network's own addresses back before its pool.
    pub(super) fn release_pool(&mut self, pool: &PoolId) -> Next {
        self.docker.ipam.answered.remove(pool);
        let is_reserved = self.docker.ipam.pools.get(pool).is_some_and(|record| !record.reserved.is_empty());
        if !is_reserved && self.registry.holdings_in(&pool.to_string()).next().is_none() {
            self.forget_pool(pool);
        }
        Next::Answers(Answer::PoolReleased)
    }

    pub(super) fn forget_pool(&mut self, pool: &PoolId) {
        if self.docker.ipam.pools.remove(pool) {
            self.write_alone(remove(pool.clone()));
        }
    }

    /// Reserves an address, or the gateway. An address that is reserved already is answered again.
    pub(super) fn reserve(&mut self, now: Now, id: RequestId, pool: &PoolId, address: Option<Ipv4Addr>) -> Next {
        let fail = |fault| Next::Answers(Answer::Failed(Failure::Pool(fault)));
        let gateway = || self.docker.ipam.pools.get(pool)?.gateway;
        let Some(address) = address.or_else(gateway) else {
            return fail(PoolFault::NoGateway { subnet: pool.subnet });
        };
        // Docker will give back the address it was told, whatever the lease is by then.
        let has = |holding: &Holding<'_>| {
            [holding.leased(now.boot), holding.told().map(|told| told.addr())].contains(&Some(address))
        };
        let gets = |holding: &Holding<'_>| holding.claimed(now.boot) == Some(address);
        let text = pool.to_string();
        let holder = self.registry.holdings_in(&text).find(has);
        let holder = holder.or_else(|| self.registry.asking_in(&text).find(gets));
        if let Some(holder) = holder.map(|holder| holder.attachment().clone()) {
            return fail(PoolFault::Leased { address, holder });
        }
        // The store may have lost it.
        let mut changes = Vec::new();
        if self.docker.ipam.pools.get(pool).is_none() {
            let (reserved, since) = (BTreeSet::new(), now.wall);
            let record = PoolRecord { id: pool.clone(), lan: None, gateway: None, reserved, automatic: false, since };
            changes.extend(self.docker.ipam.pools.add(record).map(remove));
        }
        let Some(record) = self.docker.ipam.pools.get_mut(pool) else { return Next::Nothing };
        if record.reserved.contains(&address) {
            return Next::Answers(Answer::Reserved(address));
        }
        if record.reserved.len() >= MOST_RESERVED {
            return fail(PoolFault::Full { subnet: pool.subnet });
        }
        record.reserved.insert(address);
        changes.push(put(record.clone()));
        self.limit_asking(now, pool);
        let undo = Undo::Reserved(pool.clone(), address);
        PoolChange::begin(self, now, id, changes, (Answer::Reserved(address), undo))
    }

    /// Ends the reservation of an address. Returns what to write, if it was reserved.
    pub(super) fn unreserve(&mut self, now: Now, pool: &PoolId, address: Ipv4Addr) -> Option<Change> {
        let record = self.docker.ipam.pools.get_mut(pool)?;
        let change = record.reserved.remove(&address).then(|| put(record.clone()));
        self.limit_asking(now, pool);
        change
    }

    /// Tells the ADDs of a pool that have no lease yet which addresses they may get.
    fn limit_asking(&mut self, now: Now, pool: &PoolId) {
        let limits = self.docker.ipam.limits(pool);
        self.registry.limit(now, &pool.to_string(), &limits);
    }

    /// Adds what is known about an ADD's pool: its reservations to the limits, its gateway to the fallback.
    pub(crate) fn limit(&self, add: &mut Add) {
        let Attachment::Docker { pool, .. } = &add.attachment else { return };
        let Ok(pool) = pool.parse() else { return };
        if let Some(limits) = &mut add.limits {
            *limits = self.docker.ipam.limits(&pool);
        }
        let gateway = self.docker.ipam.pools.get(&pool).and_then(|record| record.gateway);
        if let (Some(fallback), Some(gateway)) = (&mut add.fallback, gateway) {
            fallback.go_by(gateway.into());
        }
    }

    /// ReleaseAddress: drops a reservation, or gives back the lease of the endpoint that got this address from Docker. Answered
    /// when that is durable: otherwise the next daemon would hold it again.
    pub(super) fn release_address(&mut self, now: Now, id: RequestId, pool: &PoolId, address: Ipv4Addr) -> Next {
        if let Some(change) = self.unreserve(now, pool, address) {
            return PoolChange::begin(self, now, id, vec![change], (Answer::Released, Undo::Nothing));
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
        let told = |holding: &Holding<'_>| holding.told().is_some_and(|told| told.addr() == address);
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
                let has = |holding: &Holding<'_>| holding.leased(now.boot) == Some(address);
                let without = several.iter().copied().filter(|holding| holding.is_on_host());
                without.min_by_key(has).map(Holding::id)
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
