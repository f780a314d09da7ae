//! Calls about Docker's pools: what is asked for an endpoint is an ADD, and comes back by its address.
//!
//! What Docker counts is not counted here: some of its paths give back fewer pools than they asked for. A pool is forgotten
//! when it is given back, no endpoint has a lease in it and no address of it is reserved.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::time::Duration;

use crate::binding::{Binding, Life};
use crate::dhcpv4::lease::Lease;
use crate::effect::{Answer, Failure, PoolRequest, RequestId};
use crate::identity::{Attachment, Lan};
use crate::network::NetworkRecord;
use crate::pool::{Limits, MOST_RESERVED, PoolFault, PoolId, PoolRecord, Pools};
use crate::record::{BindingId, Change, DockerKey, DockerRecord};
use crate::registry::Registry;
use crate::registry::jobs::{Leaving, Looking, Next, PoolChange, Undo};
use crate::time::{Instant, Now};

/// How often a pool whose subnet nobody asked for is answered within [`AGAIN`]. Dockerd asks without a pause and without end where
/// the answer overlaps a route of the host; several networks of one LAN may be made at once.
const OFTEN: u32 = 10;

/// For how long that is counted.
const AGAIN: Duration = Duration::from_secs(10);

/// The pools, and how often they were asked for.
#[derive(Debug, Default)]
pub(in crate::registry) struct Ipam {
    pools: Pools,
    /// Since when, and how often, an automatic pool was asked for.
    answered: BTreeMap<PoolId, (Instant, u32)>,
}

impl Ipam {
    /// Takes over a pool that the store holds.
    pub(in crate::registry) fn recover(&mut self, record: PoolRecord) {
        self.pools.add(record);
    }

    /// Returns all pools, in order.
    pub(in crate::registry) fn pools(&self) -> Vec<PoolRecord> {
        self.pools.iter().cloned().collect()
    }

    /// Returns the addresses that an endpoint of a pool may have.
    pub(in crate::registry) fn limits(&self, id: &PoolId) -> Limits {
        self.pools.limits(id)
    }

    /// Returns the router of a pool, if one is known.
    pub(in crate::registry) fn gateway(&self, id: &PoolId) -> Option<Ipv4Addr> {
        self.pools.get(id)?.gateway
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

impl Registry {
    /// RequestPool: a pool that is known is answered as before.
    pub(in crate::registry) fn request_pool(&mut self, now: Now, id: RequestId, request: Box<PoolRequest>) -> Next {
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
        Looking::begin(self, now, id, request)
    }

    /// Makes a pool known, and answers when that is durable.
    pub(in crate::registry) fn add_pool(
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
        // It may have become known meanwhile, by the same request or by what was reserved in it.
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

    /// ReleasePool: the pool is forgotten, unless it is another network's too. Then an endpoint may have a lease in it, or an address
    /// of it be reserved: Docker gives a network's own addresses back before its pool.
    pub(in crate::registry) fn release_pool(&mut self, pool: &PoolId) -> Next {
        self.docker.ipam.answered.remove(pool);
        let is_reserved = self.docker.ipam.pools.get(pool).is_some_and(|record| !record.reserved.is_empty());
        if !is_reserved && self.endpoints(pool).next().is_none() {
            self.forget_pool(pool);
        }
        Next::Answers(Answer::PoolReleased)
    }

    pub(in crate::registry) fn forget_pool(&mut self, pool: &PoolId) {
        if self.docker.ipam.pools.remove(pool) {
            self.out.write_alone(remove(pool.clone()));
        }
    }

    /// Reserves an address, or the gateway. One that is reserved already is answered again.
    pub(in crate::registry) fn reserve(
        &mut self,
        now: Now,
        id: RequestId,
        pool: &PoolId,
        address: Option<Ipv4Addr>,
    ) -> Next {
        let fail = |fault| Next::Answers(Answer::Failed(Failure::Pool(fault)));
        let gateway = || self.docker.ipam.pools.get(pool)?.gateway;
        let Some(address) = address.or_else(gateway) else {
            return fail(PoolFault::NoGateway { subnet: pool.subnet });
        };
        // What Docker was told is to come back by that address, whatever the lease is by then.
        let has = |binding: &&Binding| {
            let leased = binding.lease(now.boot).map(Lease::ip);
            [leased, binding.answered.map(|told| told.addr())].contains(&Some(address))
        };
        let gets = |binding: &&Binding| binding.standing(now.boot).claim.is_some_and(|claim| claim.address == address);
        let holder = self.endpoints(pool).find(has).or_else(|| self.asking(pool).find(gets));
        if let Some(holder) = holder.map(|holder| (*holder.attachment).clone()) {
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
        let asking: Vec<_> = self.asking(pool).map(|binding| binding.id).collect();
        asking.into_iter().for_each(|asking| self.with(now, asking, |binding, _| binding.life.reserve(address)));
        let undo = Undo::Reserved(pool.clone(), address);
        PoolChange::begin(self, now, id, changes, (Answer::Reserved(address), undo))
    }

    /// Reserves an address no more. Returns what the store is to write, if it was reserved.
    pub(in crate::registry) fn unreserve(&mut self, pool: &PoolId, address: Ipv4Addr) -> Option<Change> {
        let record = self.docker.ipam.pools.get_mut(pool)?;
        record.reserved.remove(&address).then(|| put(record.clone()))
    }

    /// ReleaseAddress: a reservation is dropped, or the lease given back of whom Docker told that address. Answered when that is
    /// durable: the next daemon would take it up again.
    pub(in crate::registry) fn release_address(
        &mut self,
        now: Now,
        id: RequestId,
        pool: &PoolId,
        address: Ipv4Addr,
    ) -> Next {
        if let Some(change) = self.unreserve(pool, address) {
            return PoolChange::begin(self, now, id, vec![change], (Answer::Released, Undo::Nothing));
        }
        match self.released(now, pool, address) {
            Some(binding) => Leaving::begin(self, now, id, binding),
            None => Next::Answers(Answer::Released),
        }
    }

    /// Returns whose lease an address stands for that Docker gives back.
    fn released(&self, now: Now, pool: &PoolId, address: Ipv4Addr) -> Option<BindingId> {
        let told = |binding: &&Binding| binding.answered.is_some_and(|told| told.addr() == address);
        let leaving = self.leavings.bindings().filter_map(|id| self.bindings.get(id));
        let text = pool.to_string();
        let is_its = |binding: &&Binding| is_of(&binding.attachment, &text);
        if let Some(again) = leaving.filter(is_its).find(told) {
            return Some(again.id);
        }
        let told: Vec<_> = self.endpoints(pool).filter(told).collect();
        match &told[..] {
            [only] => Some(only.id),
            // The lease of one has changed, and another got what it had. Docker takes an interface away before it gives the
            // address back. Where each has its own it cannot be known which; one that goes later is given up then.
            several => {
                let has = |binding: &&Binding| binding.lease(now.boot).is_some_and(|lease| lease.ip() == address);
                let without = several.iter().copied().filter(|binding| binding.is_on_host());
                without.min_by_key(has).map(|binding| binding.id)
            }
        }
    }

    /// Returns the endpoints of a pool for which an address is being asked.
    fn asking(&self, id: &PoolId) -> impl Iterator<Item = &Binding> {
        let id = id.to_string();
        let asking = self.bindings.iter().filter(|binding| matches!(binding.life, Life::Acquiring(_)));
        asking.filter(move |binding| is_of(&binding.attachment, &id))
    }

    /// Returns the endpoints of a pool that have a lease, or had one and look for another.
    fn endpoints(&self, id: &PoolId) -> impl Iterator<Item = &Binding> {
        let id = id.to_string();
        let holders = self.slots.iter().filter(move |(attachment, _)| is_of(attachment, &id));
        holders.filter_map(|(_, slot)| self.bindings.get(slot.holder?))
    }
}

/// Returns whether an endpoint is of a pool, by the text of that.
fn is_of(attachment: &Attachment, id: &str) -> bool {
    matches!(attachment, Attachment::Docker { pool, .. } if pool == id)
}

fn put(pool: PoolRecord) -> Change {
    Change::PutDocker(Box::new(DockerRecord::Pool(pool)))
}

fn remove(pool: PoolId) -> Change {
    Change::RemoveDocker(DockerKey::Pool(pool))
}
