//! Containers that run without a lease.

use super::*;

/// How long a container may be without a lease while a server can hear it: its client asks once a minute, and a LAN in conflict
/// may wait for another. A container that could not be sought is sought again after five minutes; until then its client asks
/// where a server in a sibling does not hear it.
const LONGEST: Micros = 360 * SECOND;
/// The same, if a server offered it what another container had: after each DECLINE its client pauses for longer, in the end for
/// ten minutes.
const PAUSED: Micros = 660 * SECOND;
/// How long ten DECLINEs on a LAN may keep a container there from a lease: for ten minutes nobody declines what it is offered, then
/// its pause ends, and after its own DECLINE it pauses once more (seed 7,319,399).
const HELD_BACK: Micros = 1800 * SECOND;
/// How often containers are looked at.
const OFTEN: Micros = SECOND;
/// The most frames in a million that a wire may lose if a client is to get through in time.
const LOSSY: u32 = 10_000;

/// No container is without a lease for long while a willing server can hear it.
#[derive(Default)]
pub(super) struct Bare {
    /// Since when containers have been without a lease although nothing keeps them from one, by actor.
    since: BTreeMap<usize, Micros>,
    next: Micros,
    /// What a server offered each client last.
    offered: BTreeMap<(usize, ClientKey), Ipv4Addr>,
}

impl Oracle for Bare {
    fn sees(&mut self, world: &World, seen: &Seen<'_>, says: &mut Says) {
        if matches!(seen, Seen::Started) {
            // Without a daemon nobody asked for one.
            self.since.clear();
        }
        if let Seen::Heard(lan, bytes, message) = seen
            && message.kind() == Some(Kind::Offer)
            && !world.segments[*lan].is_of_rogue(bytes)
        {
            self.offered.insert((*lan, message.key()), message.yiaddr);
        }
        if !matches!(seen, Seen::Passed) || world.now < self.next {
            return;
        }
        self.next = world.now + OFTEN;
        if is_hindered(world) {
            return self.since.clear();
        }
        let longest = if world.plan.stubborn { PAUSED } else { LONGEST };
        for (index, actor) in world.actors.iter().enumerate() {
            if !is_bare(world, actor)
                || is_out_of_reach(world, actor)
                || self.is_offered_anothers(world, actor)
                || is_held_back(world, actor.lan)
            {
                let was_bare = self.since.remove(&index).is_some();
                says.counts.extend(
                    was_bare.then_some(("containers that were without a lease for a while", 1)),
                );
                continue;
            }
            let since = *self.since.entry(index).or_insert(world.now);
            if world.now > since.max(world.clocks.resumed) + longest {
                let detail = format!(
                    "{} is without a lease for {} s",
                    actor.attachment,
                    (world.now - since) / SECOND
                );
                return says.broken(Rule::Bare, detail);
            }
        }
    }
}

/// Returns whether something keeps all clients from a lease, or may do so.
pub(super) fn is_hindered(world: &World) -> bool {
    let plan = &world.plan;
    let host = world.daemon.is_none() || world.disk_full || world.kernel.unseen.is_some();
    let faults =
        plan.link_faults > 0 || plan.store_faults > 0 || plan.loss > LOSSY || plan.missed > 0;
    // Others may have whatever is offered.
    let claimed = plan.claimer > 0 || world.claims_heard() > 0;
    let others = claimed || !plan.squatters.is_empty() || plan.proxy || plan.overlap;
    // Another's interface may keep it, and its server offers it again and again: the pauses grow to ten minutes.
    let kept =
        plan.stubborn && (plan.on_change == OnChange::Keep || plan.on_expiry == OnExpiry::Keep);
    // Clients with one Ethernet address are too alike for a judge: seed 14690.
    let twins = plan.knows != Knows::ClientId || plan.sharers > 1 || plan.ipvlan;
    host || faults || others || kept || twins
}

/// Returns whether a container runs that the daemon knows and that has no lease.
fn is_bare(world: &World, actor: &Actor) -> bool {
    let now = world.clock().boot;
    let held = |record: &&Record| record.state == RecordState::Bound && !record.lease.expired(now);
    actor.phase == Phase::Live
        && actor.stranded.is_none()
        && world.record_of(actor).filter(held).is_none()
}

impl Bare {
    /// Returns whether a server that has forgotten its leases offers a container what another has. The offer is refused until that
    /// one's lease ends.
    fn is_offered_anothers(&self, world: &World, actor: &Actor) -> bool {
        let offered = self.offered.get(&(actor.lan, actor.client_key()));
        let is_offered = |address| {
            let is_declined = world.ledger.declined.contains_key(&(actor.lan, address));
            offered == Some(&address) || world.plan.stubborn && is_declined
        };
        let holds = |record: &Record| {
            record.state == RecordState::Bound && record.attachment != actor.attachment
        };
        let mut records = world.store.durable.values();
        records.any(|record| holds(record) && is_offered(record.lease.ip()))
    }
}

/// Returns whether a LAN had its DECLINEs, so that a client there is offered the same address again and again, which another uses.
fn is_held_back(world: &World, lan: usize) -> bool {
    let last = (lan, Ipv4Addr::BROADCAST);
    let declined = world
        .ledger
        .declined
        .range((lan, Ipv4Addr::UNSPECIFIED)..=last);
    let lately = declined.filter(|(_, at)| world.now < **at + HELD_BACK);
    lately.count() >= 10
}

/// Returns whether a container's link carries nothing, or no server on its LAN is willing to grant it what it asks for.
fn is_out_of_reach(world: &World, actor: &Actor) -> bool {
    let segment = &world.segments[actor.lan];
    let is_willing = |(index, station): (usize, &Station)| {
        let can_hear = world.now >= segment.away[index].max(segment.mute[index]);
        can_hear
            && station
                .server()
                .is_some_and(|server| !server.config().deaf && !server.config().refuses)
    };
    let carries = actor.at.is_some_and(|at| world.carries(at));
    !carries || world.is_unrelayed() || !segment.honest().iter().enumerate().any(is_willing)
}
