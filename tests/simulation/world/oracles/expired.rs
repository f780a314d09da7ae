//! Addresses whose lease has ended.

use super::*;

/// How soon work at an interface is done if no operation on links fails.
const A_WHILE: u64 = 20 * SECOND;

/// These addresses leave their interface.
pub(super) fn expired(world: &World, seen: &Seen<'_>, says: &mut Says) {
    let Seen::Listed(_) = seen else { return };
    let fresh = world.clocks.started.max(world.clocks.resumed) + A_WHILE > world.now;
    let keeps = world.plan.on_expiry == OnExpiry::Keep || world.plan.on_change == OnChange::Keep;
    if world.plan.link_faults > 0 || world.plan.blindness > 0 || keeps || fresh {
        return;
    }
    let lives = |actor: &&Actor| actor.phase == Phase::Live && actor.stranded != Some(false);
    for actor in world
        .actors
        .iter()
        .filter(lives)
        .filter(|actor| !world.is_out_of_reach(actor))
    {
        let Some(wire) = actor.at.and_then(|at| world.kernel.link(at)) else {
            continue;
        };
        for address in wire.addresses().iter().map(Ipv4Net::addr) {
            let until = world
                .ledger
                .heard
                .get(&(actor.lan, address, Some(actor.client_key())))
                .copied()
                .flatten();
            // Docker puts it on each interface that it moves in, and the daemon waits until Docker is through with it.
            if let Some(until) =
                until.filter(|until| (*until).max(actor.appeared) + A_WHILE < world.now)
            {
                let since = (world.now - until) / SECOND;
                let detail = format!(
                    "{} carries {address}, whose lease ended {since} s ago",
                    actor.attachment
                );
                return says.broken(Rule::Interface, detail);
            }
        }
    }
    says.count("looks for addresses whose lease has ended");
}
