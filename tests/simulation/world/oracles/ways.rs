//! The links by which frames leave.

use super::*;

/// Ipvlans ask all servers over the host's link, and no macvlan of the daemon's is in anybody's way.
pub(super) fn ways(world: &World, seen: &Seen<'_>, says: &mut Says) {
    match seen {
        Seen::Left {
            exchange, frame, ..
        } => judge_link(world, *exchange, frame, says),
        Seen::Replied(id, Answer::Leased { .. }) => judge_way(world, *id, says),
        Seen::Emitted(Effect::Make { link, .. }) => {
            link.mac
                .into_iter()
                .for_each(|mac| judge_way_of(world, mac, says));
        }
        _ => {}
    }
}

/// Checks that what ipvlans send to all servers leaves by the link on the host: they share an Ethernet address, so no answer can
/// be addressed to one of them.
fn judge_link(world: &World, exchange: ExchangeId, frame: &[u8], says: &mut Says) {
    let is_inside = world
        .socks
        .get(&exchange)
        .is_some_and(|sock| sock.link.in_netns().is_some());
    let to_all = is_dhcp(frame) && frame.get(30..34) == Some(&Ipv4Addr::BROADCAST.octets()[..]);
    if world.plan.ipvlan && is_inside && to_all {
        let detail = format!("{exchange:?} broadcasts from inside");
        says.broken(Rule::WrongLink, detail);
    }
}

/// Checks that when an ADD has its lease, nothing has the Ethernet address of the interface that is about to come.
fn judge_way(world: &World, id: RequestId, says: &mut Says) {
    let Some(add) = world
        .requests
        .get(&id)
        .and_then(|asked| add_of(&asked.call))
    else {
        return;
    };
    let Place::Parent { mac, .. } = add.place else {
        return;
    };
    judge_way_of(world, mac, says);
}

/// Checks that nothing has an Ethernet address when an interface with that address is about to come.
fn judge_way_of(world: &World, mac: Mac, says: &mut Says) {
    let is_its = |sock: &Sock| {
        matches!(sock.link, Link::Parent { port: true, .. }) && sock.link.mac() == mac
    };
    let in_the_way = world.plan.wires != Some(Wires::Bridge);
    if in_the_way
        && world
            .socks
            .values()
            .any(|sock| is_its(sock) && sock.open_at.is_some())
    {
        says.broken(Rule::InTheWay, format!("{mac} is in use"));
    }
}
