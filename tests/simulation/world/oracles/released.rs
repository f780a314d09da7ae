//! Leases that were given back.

use super::*;

/// The servers soon know of them.
pub(super) fn released(world: &World, seen: &Seen<'_>, says: &mut Says) {
    if let Seen::Emitted(Effect::Persist { changes, .. }) = seen {
        return left(world, changes, says);
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
        let detail = format!("{address} of {}", actor.attachment);
        says.broken(Rule::NotReleased, detail);
    }
}

/// Checks that no lease is left to its end because the container's own link still answers: no other station has its address.
fn left(world: &World, changes: &[Change], says: &mut Says) {
    let is_leaving = |event: &Event| {
        let is_it = |record: &Record| {
            record.state == RecordState::Releasing && record.attachment == event.attachment
        };
        world.store.durable.values().any(is_it)
    };
    for change in changes {
        let Change::Note(event) = change else {
            continue;
        };
        match event.kind {
            EventKind::Released if world.plan.lingers => says.count("released as links linger"),
            EventKind::Conflict if world.plan.lingers && is_leaving(event) => {
                let detail = format!("of {}: {}", event.attachment, event.cause);
                says.broken(Rule::NotReleased, detail);
            }
            _ => {}
        }
    }
}
