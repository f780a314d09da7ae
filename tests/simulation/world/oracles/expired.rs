//! Addresses whose lease has ended.

use super::*;

/// How soon work at an interface is done if no operation on links fails.
const A_WHILE: u64 = 20 * SECOND;

/// How often interfaces are looked at.
const OFTEN: u64 = SECOND;

/// An address that a main plugin puts on although its lease was lost meanwhile does not stay.
#[derive(Default)]
pub(super) struct Late {
    /// Since when interfaces have carried one, by actor.
    since: BTreeMap<usize, Micros>,
    next: Micros,
}

impl Oracle for Late {
    fn sees(&mut self, world: &World, seen: &Seen<'_>, says: &mut Says) {
        if !world.plan.plugs_late || !matches!(seen, Seen::Passed) || world.now < self.next {
            return;
        }
        self.next = world.now + OFTEN;
        for (index, actor) in world.actors.iter().enumerate() {
            let told = actor.told.as_ref().map(|told| told.ip());
            let wire = actor.at.and_then(|at| world.kernel.link(at));
            let is_lost = world
                .record_of(actor)
                .is_some_and(|record| record.state == RecordState::Seeking);
            let carries = told.is_some_and(|told| wire.is_some_and(|wire| wire.has(told)));
            if actor.phase != Phase::Live || !is_lost || !carries {
                self.since.remove(&index);
                continue;
            }
            let since = *self.since.entry(index).or_insert(world.now);
            if since + A_WHILE < world.now {
                let detail = format!("{} carries {told:?}, which it has lost", actor.attachment);
                return says.broken(Rule::Interface, detail);
            }
        }
    }
}

/// These addresses leave their interface.
pub(super) fn expired(world: &World, seen: &Seen<'_>, says: &mut Says) {
    let Seen::Listed(_) = seen else { return };
    let fresh = world.clocks.started.max(world.clocks.resumed) + A_WHILE > world.now;
    let keeps = world.plan.on_expiry == OnExpiry::Keep || world.plan.on_change == OnChange::Keep;
    if world.plan.link_faults > 0
        || world.plan.blindness > 0
        || world.clocks.outdated
        || keeps
        || fresh
    {
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

/// By how much a wall clock may be off unnoticed, how long events may wait for the store, and how long before the REQUEST that was
/// granted the first one under its xid may have left: a lease counts from that.
const NEAR: u64 = 120 * SECOND;
/// How long after its server granted it the store may not have a lease yet: it is not written before its address was probed.
const UNWRITTEN: Duration = Duration::from_secs(1);

/// No lease is said to have ended while its server has it, whatever the wall clock shows.
pub(super) fn ended(world: &World, seen: &Seen<'_>, says: &mut Says) {
    let Seen::Noted(events) = seen else { return };
    let is_slow = !world.plan.extend_delay.is_zero();
    if world.store_fails || world.may_lapse || world.clocks.outdated || is_slow {
        return;
    }
    let ends = |event: &&Event| event.kind == EventKind::Expired;
    for (event, address) in events
        .iter()
        .filter(ends)
        .filter_map(|event| Some((event, event.v4()?)))
    {
        let soon = Duration::from_micros(world.now + NEAR);
        let granted =
            |until: Duration| until.saturating_sub(Duration::from_secs(world.plan.lease.into()));
        // The daemon ended before the store had it.
        let strict = world.plan.detection == Detection::Strict;
        let probing = Duration::from_micros(if strict { PROBING } else { 0 });
        let is_unwritten = |until| {
            let unwritten = granted(until)..granted(until) + probing + UNWRITTEN;
            let mut ends = world.clocks.ended.iter().copied();
            ends.any(|end| unwritten.contains(&Duration::from_micros(end)))
        };
        // A later container of the identity has it.
        let is_anothers = |lan, name: &ClientKey, until| {
            let is_its = |actor: &Actor| {
                let began = Duration::from_micros(actor.began);
                (actor.lan, &actor.client_key()) == (lan, name)
                    && actor.attachment != event.attachment
                    && began <= granted(until)
            };
            world.actors.iter().any(is_its)
        };
        let runs = |lan| {
            let mut leases = world.leases_of(lan, address.addr());
            leases.any(|lease| {
                let goes_on = |until| {
                    until > soon && !is_unwritten(until) && !is_anothers(lan, &lease.name, until)
                };
                lease.until.is_none_or(goes_on)
            })
        };
        says.count("leases that ended");
        if (0..world.segments.len()).any(runs) {
            let detail = format!(
                "{} is said to have lost {address} at its end",
                event.attachment
            );
            says.broken(Rule::LeaseLost, detail);
        }
    }
}
