//! Addresses of Docker's endpoints.

use super::*;

/// Each is in its network's pool, is not reserved, and is the one that was asked for.
pub(super) fn fit(world: &World, seen: &Seen<'_>, says: &mut Says) {
    let Seen::Answered(
        index,
        Asked {
            lease: Some(lease), ..
        },
        _,
    ) = seen
    else {
        return;
    };
    let actor = &world.actors[*index];
    if let Some(pool) = &actor.pool {
        judge(world, actor.lan, pool, lease.ip(), says);
        judge_chosen(actor, lease.ip(), says);
    }
}

/// Checks that an endpoint is told no address that its network cannot have, or that was reserved.
fn judge(world: &World, lan: usize, pool: &PoolId, address: Ipv4Addr, says: &mut Says) {
    let reserved = world.networks[lan].reserved.contains(&address);
    if reserved || !pool.subnet.contains(&address) {
        let detail = format!("an endpoint has {address}, reserved: {reserved}");
        says.broken(Rule::Unfit, detail);
    }
}

/// Checks that an endpoint that asks for an address gets that address or none.
fn judge_chosen(actor: &Actor, address: Ipv4Addr, says: &mut Says) {
    let Some(wanted) = actor.wanted else { return };
    says.count("addresses that were chosen");
    if wanted != address {
        let detail = format!("an endpoint has {address}, and asked for {wanted}");
        says.broken(Rule::Unfit, detail);
    }
}
