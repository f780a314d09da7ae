//! The daemon's sockets, and what it waits for.

use super::*;

/// How soon the core has something to do while sockets are open, if only to close them.
const WINDOW: Micros = 35 * SECOND;
/// No exchange has sockets older than this.
const PIN: Micros = 120 * SECOND;
/// How long the daemon's sockets keep a dead namespace: if the news of its end was lost, for the duration of an ADD.
const PINNED: Micros = 40 * SECOND;

/// No socket stays open without need, none keeps a namespace, and pending work does not pile up.
pub(super) fn sockets(world: &World, seen: &Seen<'_>, says: &mut Says) {
    match seen {
        Seen::Passed => {
            judge_sockets(world, says);
            judge_rest(world, says);
        }
        Seen::Idle => {
            // Clients that look for a lease in vain take turns.
            let stays = |sock: &Sock| sock.since + WINDOW <= world.now;
            let open = world.effects.open_exchanges();
            if open > 0 && world.socks.values().any(stays) {
                let detail = format!("{open} exchanges are open in quiet: {:?}", world.socks);
                says.broken(Rule::IdleSockets, detail);
            }
        }
        _ => {}
    }
}

/// Judges sockets by their age. Exchanges are numbered in their order.
fn judge_sockets(world: &World, says: &mut Says) {
    let first = world.socks.first_key_value();
    if let Some((exchange, sock)) =
        first.filter(|(_, sock)| world.now > sock.since.max(world.clocks.resumed) + PIN)
    {
        let detail = format!("{exchange:?} on {:?}", sock.link);
        says.broken(Rule::IdleSockets, detail);
    }
    let first = world.pinned.first_key_value();
    if let Some((cookie, _)) =
        first.filter(|(_, since)| world.now > (**since).max(world.clocks.resumed) + PINNED)
    {
        let detail = format!("namespace {cookie} is gone but for the daemon's sockets");
        says.broken(Rule::PinnedNamespace, detail);
    }
}

/// Judges sockets that are open although the core waits for nothing, or for nothing soon, and what it waits for.
fn judge_rest(world: &World, says: &mut Says) {
    let (under_way, open) = (world.effects.under_way(), world.effects.open_exchanges());
    let waits = under_way > 0 || world.timer.is_some_and(|(_, at)| at < world.now + WINDOW);
    if open > 0 && !waits {
        let detail = format!("{open} exchanges are open at rest");
        says.broken(Rule::IdleSockets, detail);
    }
    if under_way > 8 * world.actors.len() + 32 {
        let detail = format!("{under_way} effects are under way");
        says.broken(Rule::Unbounded, detail);
    }
}
