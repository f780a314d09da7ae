//! A change of a Docker pool, or of its reservations, that waits for the store.
//!
//! Pools are not reference-counted as in Docker: some of its paths give back fewer pools than they asked for. A pool is
//! forgotten when it is given back, no endpoint has a lease in it and no address in it is reserved.

use std::net::Ipv4Addr;

use super::{DockerJob, Next};
use crate::docker::{Desk, DockerKey, DockerRecord};
use crate::effect::{Answer, Failure, Outcome, RequestId};
use crate::identity::Lan;
use crate::job::LIMIT;
use crate::outbox::DoorWaiter;
use crate::pool::{MOST_RESERVED, PoolFault, PoolId, PoolRecord};
use crate::record::{BindingId, Change};
use crate::registry::{Binding, asking_in, held_in, leave, leaving_in, limit};
use crate::source::Lease;

/// A call that waits for the store.
#[derive(Debug)]
pub(in crate::docker) struct PoolChange {
    answer: Answer,
    undo: Undo,
}

/// What is undone if the store fails, or the caller hangs up.
#[derive(Debug)]
enum Undo {
    /// Nothing.
    Nothing,
    /// The pool was not known.
    Pool(PoolId),
    /// The address was not reserved.
    Reserved(PoolId, Ipv4Addr),
}

impl PoolChange {
    /// Answers when the store has taken these changes.
    fn begin(
        desk: &mut Desk<'_>,
        id: RequestId,
        changes: Vec<Change>,
        (answer, undo): (Answer, Undo),
    ) -> Next {
        desk.write(DoorWaiter::Call(id), changes);
        desk.time_call(id, desk.now().boot + LIMIT);
        Next::Waits(DockerJob::Pool(Self { answer, undo }))
    }

    /// Adds a pool, and answers when that is durable.
    pub(super) fn add(
        desk: &mut Desk<'_>,
        id: RequestId,
        pool: PoolId,
        lan: Lan,
        gateway: Option<Ipv4Addr>,
        automatic: bool,
    ) -> Next {
        if automatic {
            desk.docker.pools.is_asked_too_often(&pool, desk.now().boot);
        }
        // It may have become known meanwhile, through the same request or a reservation.
        let known = desk.docker.pools.by_id.get(&pool).cloned();
        let undo = match known {
            Some(_) => Undo::Nothing,
            None => Undo::Pool(pool.clone()),
        };
        let record = known.unwrap_or_else(|| PoolRecord {
            automatic,
            ..PoolRecord::new(pool.clone(), desk.now().wall)
        });
        let gateway = record.gateway.or(gateway);
        let record = PoolRecord {
            lan: Some(lan),
            gateway,
            ..record
        };
        let forgotten = desk.docker.pools.add(record.clone());
        let mut changes = vec![put(record)];
        changes.extend(forgotten.map(remove));
        Self::begin(
            desk,
            id,
            changes,
            (Answer::Pool { id: pool, gateway }, undo),
        )
    }

    /// Reserves an address, or the gateway. An address that is reserved already is answered again.
    pub(super) fn reserve(
        desk: &mut Desk<'_>,
        id: RequestId,
        pool: &PoolId,
        address: Option<Ipv4Addr>,
    ) -> Next {
        let now = desk.now();
        let fail = |fault| Next::Answers(Answer::Failed(Failure::Pool(fault)));
        let gateway = || desk.docker.pools.by_id.get(pool)?.gateway;
        let Some(address) = address.or_else(gateway) else {
            return fail(PoolFault::NoGateway {
                subnet: pool.subnet,
            });
        };
        // Docker will give back the address it was told, whatever the lease is by then.
        let has = |holding: &&Binding| {
            let leased = holding.lease(now.boot).map(Lease::ip);
            [leased, holding.told.map(|told| told.addr())].contains(&Some(address))
        };
        let gets = |holding: &&Binding| {
            let claim = holding.standing(now.boot).claim;
            claim.is_some_and(|claim| claim.address == address)
        };
        let text = pool.to_string();
        let holder = held_in(desk.registry, &text).find(has);
        let holder = holder.or_else(|| asking_in(desk.registry, &text).find(gets));
        if let Some(holder) = holder.map(|holder| (*holder.attachment).clone()) {
            return fail(PoolFault::Leased { address, holder });
        }
        // The store may have lost it.
        let mut changes = Vec::new();
        if !desk.docker.pools.by_id.contains_key(pool) {
            let record = PoolRecord::new(pool.clone(), now.wall);
            changes.extend(desk.docker.pools.add(record).map(remove));
        }
        let Some(record) = desk.docker.pools.by_id.get_mut(pool) else {
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
        limit_asking(desk, pool);
        let undo = Undo::Reserved(pool.clone(), address);
        Self::begin(desk, id, changes, (Answer::Reserved(address), undo))
    }

    /// Handles ReleaseAddress: drops a reservation, or gives back the lease of the endpoint that got this address from Docker. It
    /// is answered when that is durable: otherwise the next daemon would hold the lease again.
    pub(super) fn release(
        desk: &mut Desk<'_>,
        id: RequestId,
        pool: &PoolId,
        address: Ipv4Addr,
    ) -> Next {
        match (
            released(desk, pool, address),
            unreserve(desk, pool, address),
        ) {
            // If the end of a reservation could not be written, an earlier daemon may have leased its address.
            (Some(binding), change) => {
                let changes = change.into_iter();
                changes.for_each(|change| desk.out().write_alone(change));
                leave(desk.registry, binding, Some(id));
                Next::Nothing
            }
            (None, Some(change)) => {
                Self::begin(desk, id, vec![change], (Answer::Released, Undo::Nothing))
            }
            (None, None) => Next::Answers(Answer::Released),
        }
    }

    pub(super) fn done(self, desk: &mut Desk<'_>, outcome: Outcome) -> Next {
        match outcome {
            Outcome::Persisted(Err(cause)) => {
                self.undo.carry_out(desk);
                Next::Answers(Answer::Failed(Failure::Store(cause)))
            }
            _ => Next::Answers(self.answer),
        }
    }

    pub(super) fn time_out(self, desk: &mut Desk<'_>) -> Next {
        self.undo.carry_out(desk);
        let failure = Failure::TimedOut("the store to record it", LIMIT);
        Next::Answers(Answer::Failed(failure))
    }

    pub(super) fn hang_up(self, desk: &mut Desk<'_>) {
        self.undo.carry_out(desk);
    }
}

impl Undo {
    fn carry_out(self, desk: &mut Desk<'_>) {
        match self {
            Self::Nothing => {}
            Self::Pool(pool) => forget_pool(desk, &pool),
            Self::Reserved(pool, address) => {
                let change = unreserve(desk, &pool, address);
                change
                    .into_iter()
                    .for_each(|change| desk.out().write_alone(change));
            }
        }
    }
}

/// Handles ReleasePool: forgets the pool, unless it belongs to another network too. In that case an endpoint may have a lease
/// in it, or an address may be reserved: Docker gives a network's own addresses back before its pool.
pub(super) fn release_pool(desk: &mut Desk<'_>, pool: &PoolId) -> Next {
    desk.docker.pools.answered.remove(pool);
    let is_reserved = desk
        .docker
        .pools
        .by_id
        .get(pool)
        .is_some_and(|record| !record.reserved.is_empty());
    if !is_reserved && held_in(desk.registry, &pool.to_string()).next().is_none() {
        forget_pool(desk, pool);
    }
    Next::Answers(Answer::PoolReleased)
}

fn forget_pool(desk: &mut Desk<'_>, pool: &PoolId) {
    if desk.docker.pools.by_id.remove(pool).is_some() {
        desk.out().write_alone(remove(pool.clone()));
    }
}

/// Ends the reservation of an address. Returns what to write, if it was reserved.
fn unreserve(desk: &mut Desk<'_>, pool: &PoolId, address: Ipv4Addr) -> Option<Change> {
    let record = desk.docker.pools.by_id.get_mut(pool)?;
    let was_there = record.reserved.remove(&address);
    let change = was_there.then(|| put(record.clone()));
    limit_asking(desk, pool);
    change
}

/// Tells the ADDs of a pool that have no lease yet which addresses they may get.
fn limit_asking(desk: &mut Desk<'_>, pool: &PoolId) {
    let limits = desk.docker.pools.limits(pool);
    limit(desk.registry, &pool.to_string(), &limits);
}

/// Returns whose lease an address that Docker gives back stands for.
fn released(desk: &Desk<'_>, pool: &PoolId, address: Ipv4Addr) -> Option<BindingId> {
    let now = desk.now();
    let told = |holding: &&Binding| holding.told.is_some_and(|told| told.addr() == address);
    let text = pool.to_string();
    if let Some(again) = leaving_in(desk.registry, &text).find(told) {
        return Some(again.id);
    }
    let told: Vec<_> = held_in(desk.registry, &text).filter(told).collect();
    match &told[..] {
        [only] => Some(only.id),
        // One endpoint's lease has changed, and another got its old address. Docker takes an interface away before it
        // gives the address back. If both have their interfaces, nobody knows which is meant; when one goes later, its
        // lease is given up then.
        several => {
            let has = |holding: &&Binding| holding.lease(now.boot).map(Lease::ip) == Some(address);
            let without = several
                .iter()
                .copied()
                .filter(|holding| holding.is_on_host());
            without.min_by_key(has).map(|holding| holding.id)
        }
    }
}

fn put(pool: PoolRecord) -> Change {
    DockerRecord::Pool(pool).put()
}

fn remove(pool: PoolId) -> Change {
    DockerKey::Pool(pool).remove()
}
