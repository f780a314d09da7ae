//! The state of interfaces after a quiet time.

use super::*;

/// The interface of a running container carries its lease.
pub(super) fn carried(world: &World, seen: &Seen<'_>, says: &mut Says) {
    if let Seen::Quiet(_) = seen {
        world
            .actors
            .iter()
            .for_each(|actor| examine(world, actor, says));
    }
}

/// Checks that the interface of a live attachment carries what its durable lease says and what others put there, and nothing
/// else.
fn examine(world: &World, actor: &Actor, says: &mut Says) {
    let applies =
        (world.plan.on_change, world.plan.on_expiry) == (OnChange::Apply, OnExpiry::Remove);
    if actor.phase != Phase::Live || actor.meddled || actor.stranded == Some(false) || !applies {
        return;
    }
    // A lease that an endpoint of Docker's got while the daemon was blind: dockerd is to put it on.
    let is_of_docker = matches!(actor.attachment, Attachment::Docker { .. });
    if world.is_out_of_reach(actor) || world.goes_blind && is_of_docker {
        return;
    }
    let (Some(wire), Some(record)) = (
        actor.at.and_then(|at| world.kernel.link(at)),
        world.record_of(actor),
    ) else {
        return;
    };
    let lease = Some(&record.lease).filter(|_| record.state == RecordState::Bound);
    let ours = lease.map(|lease| actor.as_told(lease).address);
    let there = wire.addresses();
    let wanted: BTreeSet<_> = ours
        .into_iter()
        .chain(actor.foreign.iter().copied())
        .collect();
    // An address of others in the lease's subnet goes with that one. A change that is cut short leaves a /32 in its place, or
    // beside it.
    let cut_short = world.stats.crashes > 0 || world.links_fail;
    let stands_in = |there: &Ipv4Net| {
        let is_for = |own: &&Ipv4Net| own.addr() == there.addr() && there.prefix_len() == 32;
        actor
            .foreign
            .iter()
            .filter(|_| cut_short)
            .find(is_for)
            .copied()
    };
    let there: BTreeSet<_> = there
        .into_iter()
        .map(|there| stands_in(&there).unwrap_or(there))
        .collect();
    let metric = actor.profile.policy.metric;
    let routes = lease
        .map(|lease| routes_of(&actor.as_told(lease), metric))
        .unwrap_or_default();
    let routes: Vec<_> = routes
        .into_iter()
        .chain(actor.foreign_routes.iter().cloned())
        .collect();
    // A default route that its engine chooses is there or not, and goes with the router.
    let (defaults, carried): (Vec<_>, Vec<_>) = wire
        .routes
        .iter()
        .partition(|there| actor.chooses_default_route() && there.destination.prefix_len() == 0);
    let router = lease
        .and_then(|lease| lease.gateway)
        .filter(|router| ours.is_some_and(|ours| ours.contains(router)));
    let astray = router.filter(|_| !world.links_fail).map(default_by);
    let astray = astray.and_then(|led| defaults.into_iter().find(|there| !is_route(there, &led)));
    let missing = routes
        .iter()
        .find(|route| !wire.routes.iter().any(|there| is_route(there, route)));
    let excess = carried
        .into_iter()
        .find(|there| !routes.iter().any(|route| is_route(there, route)));
    // A route that the kernel refused to put on or take off is not tried again, and an MTU perhaps not for minutes. If an
    // adopted container lacked something, somebody may have removed it.
    let missing = missing.filter(|_| !world.links_fail && actor.stranded.is_none());
    let excess = excess.filter(|_| !world.links_fail);
    let mtu = lease
        .and_then(|lease| lease.mtu)
        .filter(|mtu| u32::from(mtu.get()) <= 1500 && !world.links_fail);
    let wrong_mtu = mtu.filter(|mtu| u32::from(mtu.get()) != wire.mtu);
    let who = format!("{}, {:?}", actor.attachment, record.state);
    // What an extension leaves unsaid stays as it was.
    let lost = lease.filter(|lease| {
        lease.source.is_asked()
            && world.plan.renumbers.is_none()
            && (lease.dns.is_empty() || lease.gateway.is_none())
    });
    let wrong = if let Some(lease) = lost {
        format!("nothing of what only the first ACK said: {lease:?}")
    } else if there != wanted {
        format!("{there:?}, not {wanted:?}")
    } else if let Some(route) = missing {
        format!("no route {route:?}, but {:?}", wire.routes)
    } else if let Some(route) = excess {
        format!("an earlier route, {route:?}")
    } else if let Some(route) = astray {
        format!("a default route by an earlier router, {route:?}")
    } else if let Some(mtu) = wrong_mtu {
        format!("an MTU of {}, not {mtu}", wire.mtu)
    } else {
        return says.count("interfaces that are as they should be");
    };
    says.broken(Rule::Interface, format!("{who}: its interface has {wrong}"));
}
