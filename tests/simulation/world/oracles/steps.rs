//! The daemon's changes of interfaces.

use super::*;

/// No address appears before its lease is durable, and none leaves its interface without the valid address.
pub(super) fn steps(world: &World, seen: &Seen<'_>, says: &mut Says) {
    match seen {
        Seen::Emitted(Effect::Apply { target, steps, .. }) => {
            judge_steps(world, target, steps, says)
        }
        Seen::Applied(done, steps) => judge_applied(world, done, steps, says),
        _ => {}
    }
}

/// Judges what the daemon is about to do at an interface: it puts no address there before its lease is durable, and none after it
/// has reported that somebody took one off.
fn judge_steps(world: &World, target: &Target, steps: &[Step], says: &mut Says) {
    let Target::Known(link) = target else { return };
    let new = steps.iter().filter_map(|step| match step {
        Step::AddAddress(address) => Some(*address),
        _ => None,
    });
    for address in new {
        let durable = world.store.durable.values().any(|record| {
            // It may still have to be recorded that it has moved onto its interface.
            let moves = record.profile.wants.is_found_later() && record.link.mac() == link.mac();
            let here = record.link.in_netns() == link.in_netns() || moves;
            here && record.state == RecordState::Bound && record.lease.ip() == address.addr()
        });
        // Addresses of others go with another address for a moment, and are put back. Meanwhile they are there as a /32.
        let Some(wire) = link.in_netns().and_then(|at| world.kernel.link(at)) else {
            return;
        };
        let there = wire
            .addresses()
            .iter()
            .any(|there| there.addr() == address.addr());
        let actor = world
            .actors
            .iter()
            .find(|actor| actor.at.is_some() && actor.at == link.in_netns());
        let foreign =
            actor.is_some_and(|actor| actor.foreign.iter().any(|own| own.addr() == address.addr()));
        if actor.is_some_and(|actor| actor.stays_off) && !foreign && !there && !world.was_damaged {
            let detail = format!("{address} is put on {target}, where somebody took one off");
            says.broken(Rule::Interface, detail);
            return;
        }
        if !durable && !there && !foreign {
            let detail = format!("{address} is put on {target} before its lease is durable");
            says.broken(Rule::NotDurable, detail);
        }
    }
}

/// Judges steps as the kernel took them: none may leave the interface without its valid address. Taking off a lost lease's
/// address is another matter.
fn judge_applied(world: &World, done: &Applied, steps: &[Step], says: &mut Says) {
    let Some((first, rest)) = done
        .addresses
        .split_first()
        .filter(|(_, rest)| !rest.is_empty())
    else {
        return;
    };
    let Some(actor) = world
        .actors
        .iter()
        .find(|actor| actor.at == done.at && actor.at.is_some())
    else {
        return;
    };
    if first == rest.last().unwrap_or(first) && rest.iter().all(|addresses| addresses == first) {
        return;
    }
    says.count("changed addresses");
    let Some(record) = world
        .record_of(actor)
        .filter(|record| record.state == RecordState::Bound)
    else {
        return;
    };
    if !steps.contains(&Step::AddAddress(record.lease.address.into())) {
        return;
    }
    let former = record
        .former
        .iter()
        .flat_map(|former| &former.grants)
        .flat_map(|grant| &grant.addresses);
    let own = [IpAddr::V4(record.lease.ip())];
    let valid: Vec<_> = former.map(|address| address.addr()).chain(own).collect();
    let has_valid =
        |addresses: &Vec<Ipv4Net>| addresses.iter().any(|a| valid.contains(&a.addr().into()));
    let bare = rest
        .iter()
        .find(|addresses| has_valid(first) && !has_valid(addresses))
        .cloned();
    if let Some(bare) = bare {
        let detail = format!(
            "{} was left with {bare:?} while {valid:?} are valid",
            actor.attachment
        );
        says.broken(Rule::Interface, detail);
    }
}
