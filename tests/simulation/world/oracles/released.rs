//! Leases that were given back.

use super::*;

/// The servers soon know of them.
pub(super) fn released(world: &World, seen: &Seen<'_>, says: &mut Says) {
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
