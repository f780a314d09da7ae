//! Answers to ADDs in a calm world.

use super::*;

/// An ADD fails only because of its caller or for lack of time, and one that succeeds has a ready link.
pub(super) fn failures(world: &World, seen: &Seen<'_>, says: &mut Says) {
    match seen {
        Seen::Answered(
            index,
            Asked {
                lease: Some(lease), ..
            },
            _,
        ) if world.calm => {
            judge_link(world, *index, lease.source.is_asked(), says);
        }
        Seen::Answered(index, asked, Answer::Failed(failure)) => {
            judge(world, *index, asked, failure, says)
        }
        _ => {}
    }
}

/// Checks that in a calm world an ADD fails only because of its caller, or for lack of time.
fn judge(world: &World, index: usize, asked: &Asked, failure: &Failure, says: &mut Says) {
    let actor = &world.actors[index];
    let intact =
        actor.is_found_later() || actor.at.is_some_and(|at| world.kernel.link(at).is_some());
    let recent = world.actors.iter().any(|other| {
        other.group == actor.group
            && other
                .died
                .is_some_and(|died| world.now < died + world.noticed())
    });
    let chosen = actor.wanted.is_some();
    let is_in_use =
        world.claims_heard() > 0 || world.plan.stubborn && !world.plan.squatters.is_empty();
    let explained = match failure {
        // Another has the requested address, or had it.
        Failure::NotWanted { .. } | Failure::AddressHeld { .. } | Failure::Conflict { .. }
            if chosen =>
        {
            !is_kept(world, actor) || is_offered_to_another(world, actor)
        }
        // A second CreateEndpoint, which comes when dockerd has given up on the first, makes one that nobody deletes.
        Failure::Held { .. } => {
            world.plan.sharers > 1 || recent || actor.network.is_some() && world.plan.unruly > 0
        }
        Failure::Attached { .. } => recent,
        Failure::Link { .. } => !intact,
        Failure::AddressHeld { .. } => has_namesake(world, index),
        Failure::Conflict { address, .. } | Failure::NotDeclined { address, .. }
            if world.elsewhere.there.contains_key(&(actor.lan, *address)) =>
        {
            true
        }
        Failure::Unfit { .. } => actor.pool.is_some(),
        // Containers and claims may take all addresses of the ranges.
        Failure::NoAddress(_) => {
            let size = world.plan.fallback.map_or(0, |ranges| ranges.size);
            size <= world.plan.actors as u32 + world.claims_heard()
        }
        // An ADD ends after three addresses that stations use, or when no more DECLINEs may be sent.
        Failure::Conflicts { .. } | Failure::NotDeclined { .. }
            if !world.plan.squatters.is_empty() =>
        {
            true
        }
        // Its server may offer it nothing else.
        Failure::Conflict { .. } | Failure::Conflicts { .. } | Failure::NotDeclined { .. }
            if is_in_use =>
        {
            true
        }
        // Its time is over. Another's address may become free in the last moment.
        Failure::Conflict { .. }
        | Failure::Conflicts { .. }
        | Failure::Nak { .. }
        | Failure::NoOffer { .. }
        | Failure::NoAck { .. }
        | Failure::TimedOut(..) => {
            let had = add_of(&asked.call)
                .map(|add| add.timeout)
                .filter(|_| !asked.behind);
            let elsewhere = world.elsewhere.there.keys();
            let used = elsewhere.filter(|(lan, _)| *lan == actor.lan).count() as u32;
            let tries = world.claims_heard() + used;
            let needs = world.plan.needs() + world.plan.one_try() * tries;
            had.is_none_or(|had| had < needs)
                || has_namesake(world, index)
                || was_unfit(world, actor)
        }
        _ => false,
    };
    let doing = actor.attachment.to_string();
    if world.calm && !explained && !world.winding_down {
        says.broken(Rule::Failed, format!("ADD of {doing}: {failure}"));
    }
    if let Failure::Held { .. } = failure {
        says.count("held by another");
    }
}

/// Returns whether a server offered an actor's container an address that Docker has reserved.
fn was_unfit(world: &World, actor: &Actor) -> bool {
    let reserved = &world.networks[actor.lan].reserved;
    let key = actor.client_key();
    let mut offers = world.offers_to(actor.lan, &key, actor.began);
    actor.pool.is_some() && offers.any(|address| reserved.contains(&address))
}

/// Returns whether the only address that an actor takes has been kept, since before its container began, for one that may return.
fn is_kept(world: &World, actor: &Actor) -> bool {
    let lan = &world.segments[actor.lan].lan;
    let is_it = |record: &Record| {
        let grace = u64::from(world.plan.grace.unwrap_or(0)) * SECOND;
        // Whoever has returned since is kept for longer.
        let was_kept = |kept| world.world_time(record.lease.start + kept) <= actor.began + grace;
        let kept = record.kept.is_some_and(was_kept) && record.state == RecordState::Releasing;
        let is_wanted = actor.wanted == Some(record.lease.ip());
        kept && is_wanted && record.identity.lan == *lan
    };
    world.store.durable.values().any(is_it)
}

/// Returns whether a server may have held the only address that an actor takes for another client since its container began:
/// it keeps what it offered for a minute.
fn is_offered_to_another(world: &World, actor: &Actor) -> bool {
    let own = world.known_as(&actor.client_id, actor.mac);
    let offers = actor.wanted.into_iter();
    let mut offers = offers.flat_map(|wanted| world.offers_of(actor.lan, wanted));
    let held = world.plan.offer_delay.as_micros() as Micros + 60 * SECOND;
    offers.any(|(to, at)| *to != own && at + held >= actor.began)
}

/// Checks that in a calm world the link is as the server wants it by the time of the answer.
///
/// A local range says nothing about the MTU.
fn judge_link(world: &World, index: usize, of_server: bool, says: &mut Says) {
    let actor = &world.actors[index];
    let Some(wire) = actor
        .at
        .filter(|_| !actor.is_found_later())
        .and_then(|at| world.kernel.link(at))
    else {
        return;
    };
    let is_sized = !of_server || wire.mtu == world.plan.mtu.map_or(1500, u32::from);
    let (good, state) = (wire.up && wire.carrier && is_sized, wire.mtu);
    if !good {
        says.broken(
            Rule::Failed,
            format!("actor {index} got a lease on a link that is not ready, MTU {state}"),
        );
    }
}

/// Returns whether another actor has, or had since this one's container began, a container that servers do not distinguish from
/// this one's. A container that has ended since had its address for part of that time, and an ADD that is refused the address
/// again and again asks with growing pauses.
fn has_namesake(world: &World, index: usize) -> bool {
    let known = |actor: &Actor| (actor.lan, world.known_as(&actor.client_id, actor.mac));
    let began = world.actors[index].began;
    let lives = |actor: &Actor| {
        let died = actor
            .died
            .is_some_and(|died| world.now < died + world.noticed());
        actor.phase != Phase::Idle || died || actor.ended.is_some_and(|ended| ended >= began)
    };
    let own = known(&world.actors[index]);
    let mut others = world
        .actors
        .iter()
        .enumerate()
        .filter(|(other, _)| *other != index);
    others.any(|(_, other)| lives(other) && known(other) == own)
}
