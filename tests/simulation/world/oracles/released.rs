//! Leases that were given back.

use super::*;

/// The servers soon know of them.
pub(super) fn released(world: &World, seen: &Seen<'_>, says: &mut Says) {
    if let Seen::Noted(events) = seen {
        return events.iter().for_each(|event| left(world, event, says));
    }
    let Seen::ReleasedBy {
        index,
        generation,
        address,
    } = *seen
    else {
        return;
    };
    let actor = &world.actors[index];
    let elsewhere = world.is_elsewhere(actor.lan, address) || world.is_claimed(actor.lan, address);
    if world.plan.sharers > 1 || actor.generation != generation || elsewhere {
        return;
    }
    // A kept lease ends by the daemon's clock, though a server with late answers had extended it.
    if world.plan.grace.is_some() && !world.plan.extend_delay.is_zero() {
        return;
    }
    let key = actor.client_key();
    if world
        .leases_of(actor.lan, address)
        .any(|lease| lease.name == key)
    {
        says.broken(
            Rule::NotReleased,
            format!("{address} of {}", actor.attachment),
        );
    }
}

/// Checks that a lease is left to its end only if another station has its address: the container's own link may still answer.
fn left(world: &World, event: &Event, says: &mut Says) {
    let Some(address) = event.v4().map(|net| net.addr()) else {
        return;
    };
    let is_used = |lan| world.is_elsewhere(lan, address) || world.is_claimed(lan, address);
    let is_free = world.plan.lingers && !(0..world.segments.len()).any(is_used);
    if is_free && event.cause.starts_with("not given back") {
        let detail = format!("{address} of {}: {}", event.attachment, event.cause);
        says.broken(Rule::NotReleased, detail);
    }
}
