//! Clients whose link is back.

use super::*;

/// Servers hear about their leases soon after the ports forward.
pub(super) fn confirmed(world: &World, seen: &Seen<'_>, says: &mut Says) {
    let Seen::HeardBy { at, lost, forwards } = *seen else {
        return;
    };
    let Some(back) = world.ports.back.get(&at).copied() else {
        return;
    };
    let has_changed = world.ports.lost.contains_key(&at) || back > forwards;
    let lived =
        |actor: &&Actor| actor.at == Some(at) && actor.phase == Phase::Live && actor.told_at < lost;
    // Where links fail, so may the tries in these two minutes.
    let is_hindered = has_changed || world.plan.link_faults > 0;
    let asks = |actor: &&Actor| !is_hindered && !actor.is_found_later() && !actor.has_fallback();
    let Some(actor) = world.actors.iter().find(lived).filter(asks) else {
        return;
    };
    let heard = world.ports.taken.get(&(actor.lan, actor.client_key()));
    says.count("clients that are to be heard after a loss of carrier");
    // Frames that leave by the LAN's link are heard before this port forwards.
    if heard.is_none_or(|heard| *heard < back) {
        let since = (world.now - forwards) / SECOND;
        let detail = format!(
            "{}: no server has heard it for {since} s, since its port forwards",
            actor.attachment
        );
        says.broken(Rule::Unconfirmed, detail);
    }
}
