//! Leases that are kept for identities that can return.

use super::*;
use crate::subject::key_of as key_of_client;
use crate::world::wire::Segment;

/// How much earlier than its runtime's DEL a daemon may notice a container's end.
const SLACK: Micros = SECOND;
/// How soon a kept lease is released after the DISCOVER of an ADD that insists on its address.
const UNBLOCKS: Micros = 5 * SECOND;

/// None is given back before its time or while another host has its address, and none is kept longer.
#[derive(Default)]
pub(super) struct Grace {
    /// The address that no RELEASE may give back, and until when, by LAN and client. An expired entry stays until its container
    /// is made again, because a late DEL does not begin a new time.
    kept: BTreeMap<(usize, ClientKey), (Ipv4Addr, Micros)>,
    /// When the LAN was last asked who has each address.
    asked: BTreeMap<(usize, Ipv4Addr), Micros>,
    /// When an ADD that insists on an address last asked for it.
    insisted: BTreeMap<(usize, Ipv4Addr), Micros>,
}

impl Oracle for Grace {
    fn sees(&mut self, world: &World, seen: &Seen<'_>, says: &mut Says) {
        match seen {
            Seen::Begins(index) => {
                self.kept.remove(&key_of(&world.actors[*index]));
            }
            Seen::Leaves(index) => self.keeps(world, *index, says),
            Seen::Collects(lan) => self.collected(world, *lan),
            // A kept lease makes way before the DISCOVER.
            Seen::Requested(Call::Add(add)) => {
                let is_its = |actor: &&Actor| actor.attachment == add.attachment;
                let lan = world.actors.iter().find(is_its).map(|actor| actor.lan);
                if let (Some(lan), Some(wanted)) = (lan, add.wanted) {
                    self.insisted.insert((lan, wanted.address), world.now);
                }
            }
            Seen::Requested(Call::Order(order))
                if order.verb == (Verb::Release { force: true }) =>
            {
                let named = |actor: &&Actor| order.which.name == Some(actor.attachment.to_string());
                self.ended(world.actors.iter().filter(named));
            }
            Seen::Left { lan, frame, .. } => {
                let probe = arp_of(frame).filter(|arp| arp.request && arp.sender.is_unspecified());
                self.asked
                    .extend(probe.map(|arp| ((*lan, arp.target), world.now)));
            }
            Seen::Sends(lan, exchange, frame) => {
                self.insists(world, *lan, frame);
                self.judge_release(world, (*lan, *exchange), frame, says)
            }
            Seen::Listed(rows) => Self::examine(world, rows, says),
            Seen::Rebooted => self.rebooted(world),
            _ => {}
        }
    }
}

impl Grace {
    /// Records that the leases of containers that ended with a boot are kept for these.
    fn rebooted(&mut self, world: &World) {
        self.kept.clear();
        let plan = &world.plan;
        if plan.wall_jumps.is_some() || plan.sharers > 1 || !plan.squatters.is_empty() {
            return;
        }
        let grace = Config::default().reboot_grace.as_micros() as Micros;
        let bound =
            |record: &&Record| record.state == RecordState::Bound && record.lease.source.is_asked();
        for record in world.store.durable.values().filter(bound) {
            let is_its = |segment: &Segment| segment.lan == record.identity.lan;
            if let Some(lan) = world.segments.iter().position(is_its) {
                let key = (lan, key_of_client(&record.identity.client_id));
                let until = world.now + grace - SLACK;
                self.kept.insert(key, (record.lease.ip(), until));
            }
        }
    }

    /// Handles a GC on a LAN, which ends all grace there. Containers that are ending get none either.
    fn collected(&mut self, world: &World, lan: usize) {
        self.kept
            .iter_mut()
            .filter(|((at, _), _)| *at == lan)
            .for_each(|(_, (_, until))| *until = 0);
        let ends = |actor: &&Actor| actor.lan == lan && actor.phase == Phase::Ending;
        let ending = world.actors.iter().filter(ends);
        self.ended(ending);
    }

    /// Records that these get no grace: their leases may be given back as soon as their links are gone.
    fn ended<'a>(&mut self, actors: impl Iterator<Item = &'a Actor>) {
        self.kept
            .extend(actors.map(|actor| (key_of(actor), (Ipv4Addr::UNSPECIFIED, 0))));
    }

    /// Records that an actor's container ends: its lease is kept at least from then on.
    fn keeps(&mut self, world: &World, index: usize, says: &mut Says) {
        let (grace, key) = (world.grace_of(index), key_of(&world.actors[index]));
        // A lease that is being looked for goes back at once, and so does one that was lost and is requested again.
        let certain = !world.may_lapse
            && !world.store_fails
            && world.plan.squatters.is_empty()
            && world.plan.sharers == 1;
        let held = world
            .record_of(&world.actors[index])
            .filter(|record| record.state != RecordState::Seeking);
        let held = held.filter(|_| grace > SLACK && certain && world.actors[index].told.is_some());
        if let Some(address) = held.map(|record| record.lease.ip()) {
            says.count("kept");
            self.kept
                .entry(key)
                .or_insert((address, world.now + grace - SLACK));
        }
    }

    /// Records a DISCOVER of an ADD that takes no other address.
    fn insists(&mut self, world: &World, lan: usize, frame: &[u8]) {
        let discover = message_of(frame).filter(|message| message.kind() == Some(Kind::Discover));
        let Some((key, address)) =
            discover.and_then(|message| Some((message.key(), message.address(code::REQUESTED)?)))
        else {
            return;
        };
        let is_its = |actor: &Actor| {
            actor.wanted == Some(address) && (actor.lan, actor.client_key()) == (lan, key.clone())
        };
        if world.actors.iter().any(is_its) {
            self.insisted.insert((lan, address), world.now);
        }
    }

    /// Judges a RELEASE: none may be sent while another host has the address, as far as could be heard, and none before its time.
    fn judge_release(
        &self,
        world: &World,
        (lan, exchange): (usize, ExchangeId),
        frame: &[u8],
        says: &mut Says,
    ) {
        let Some(message) =
            message_of(frame).filter(|message| message.kind() == Some(Kind::Release))
        else {
            return;
        };
        let Some(sock) = world.socks.get(&exchange) else {
            return;
        };
        let (address, key) = (message.ciaddr, message.key());
        // The LAN is not asked for it if the container's own interface has it, or had it a moment ago, or if a server was asked
        // for it over these sockets a moment ago.
        let may_be_elsewhere = match sock.link.in_netns() {
            Some(at) => world.kernel.link(at).is_some_and(|wire| !wire.has(address)),
            None => !is_direct(&sock.link),
        };
        let is_asked_for = !sock.speaks && may_be_elsewhere;
        // A station with the client's own Ethernet address cannot be distinguished from its link, which is being deleted.
        let station = world.elsewhere.there.get(&(lan, address));
        // A station that came after the last question is not heard either. The server is asked for in between.
        let asked = self
            .asked
            .get(&(lan, address))
            .filter(|at| world.now < **at + 2 * SECOND);
        let elsewhere = station.is_some_and(|(mac, since)| {
            !message.chaddr.starts_with(&mac.0) && asked.is_none_or(|asked| since <= asked)
        });
        let returns = world
            .actors
            .iter()
            .any(|actor| actor.returns() && (actor.lan, actor.client_key()) == (lan, key.clone()));
        if is_asked_for && elsewhere && returns && world.plan.grace.is_some() {
            let detail = format!("RELEASE of {address}, which another host has");
            return says.broken(Rule::ReleaseElsewhere, detail);
        }
        let kept = self
            .kept
            .get(&(lan, key))
            .filter(|(kept, _)| *kept == address);
        let until = kept.map(|(_, until)| *until);
        let makes_way = self
            .insisted
            .get(&(lan, address))
            .is_some_and(|at| world.now < *at + UNBLOCKS);
        if let Some(until) = until.filter(|until| world.now < *until && !makes_way) {
            let early = (until - world.now) / MILLI;
            let detail = format!("RELEASE of {address} {early} ms before its grace is over");
            says.broken(Rule::Grace, detail);
        }
    }

    /// Checks that no lease is kept longer than its network says, or than a container takes to return after a reboot.
    fn examine(world: &World, rows: &[Row], says: &mut Says) {
        let grace = Duration::from_secs(world.plan.grace.unwrap_or(0).into());
        let most = if world.stats.reboots > 0 {
            grace.max(Config::default().reboot_grace)
        } else {
            grace
        };
        if let Some(row) = rows
            .iter()
            .find(|row| row.kept.is_some_and(|kept| kept > most))
        {
            let detail = format!("{} is kept for {:?}", row.attachment, row.kept);
            says.broken(Rule::Grace, detail);
        }
    }
}

fn key_of(actor: &Actor) -> (usize, ClientKey) {
    (actor.lan, actor.client_key())
}
