//! Reports that somebody took an address off.

use super::*;

/// No report is about an interface that nobody touched.
///
/// The next daemon may report one if the previous daemon took an address off and died before recording it.
pub(super) fn removed(world: &World, seen: &Seen<'_>, says: &mut Says) {
    let Seen::Noted(events) = seen else { return };
    if world.stats.crashes > 0 && world.store_fails {
        return;
    }
    let untouched = |actor: &Actor| actor.phase == Phase::Live && !actor.meddled;
    // An event that the store could not take before may be about the previous container, which had the same attachment.
    let is_of = |actor: &&Actor, event: &Event| {
        let began =
            WallTime::from_epoch(Duration::from_micros(1_800_000_000 * SECOND + actor.began));
        actor.attachment == event.attachment
            && (event.wall >= began || world.plan.wall_jumps.is_some())
    };
    let about = |event: &Event| world.actors.iter().find(|actor| is_of(actor, event));
    let mut removals = events
        .iter()
        .filter(|event| event.kind == EventKind::AddressRemoved);
    if let Some(event) = removals.find(|event| about(event).is_some_and(untouched)) {
        says.broken(Rule::Removed, format!("{event:?}"));
    }
}

/// No ARP question names an address that its owner has elsewhere, such as in a virtual machine: it would mislead others.
pub(super) fn misleads(world: &World, seen: &Seen<'_>, says: &mut Says) {
    let Seen::Sends(_, exchange, frame) = seen else {
        return;
    };
    let (Some(arp), Some(sock)) = (arp_of(frame), world.socks.get(exchange)) else {
        return;
    };
    let has_it_elsewhere = |actor: &&Actor| {
        let is_its = sock.link.in_netns().is_some() && sock.link.in_netns() == actor.at;
        // While it runs, an address that was just taken off may still be defended, and its server looked for.
        is_its && actor.phase != Phase::Live && actor.stays_off
    };
    let Some(actor) = world.actors.iter().find(has_it_elsewhere) else {
        return;
    };
    says.count("ARP of containers whose address is elsewhere");
    if actor.told.as_ref().map(|told| told.ip()) == Some(arp.sender) {
        let detail = format!(
            "ARP names {}, which {} has elsewhere",
            arp.sender, actor.attachment
        );
        says.broken(Rule::Misleads, detail);
    }
}
