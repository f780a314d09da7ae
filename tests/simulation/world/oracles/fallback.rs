//! Addresses from a fallback.

use leasehold_core::conflict::PROBE_WAIT;
use leasehold_core::effect::Add;
use leasehold_core::source::Source;
use netns_fixtures::model::Arp;

use super::*;

/// How long a server may ping an address before it offers it.
const PING: Micros = 4 * SECOND;
/// The probes before an address is used (RFC 5227 §1.1).
const PROBES: usize = 3;

/// What a client has said and heard since it began to look for a lease.
#[derive(Default)]
struct Search {
    /// When its ADD came.
    came: Option<Micros>,
    /// When its first DISCOVER left.
    first: Option<Micros>,
    xids: BTreeSet<u32>,
    /// When a server was last heard before the first probe.
    heard: Option<Micros>,
    /// Whether one said NAK.
    refused: bool,
    /// Whether the client asks for what was offered: then no other offer counts.
    requests: bool,
    /// When it first asked for an address of the ranges by ARP, and when a server had last been heard on its LAN.
    probed: Option<(Micros, Option<Micros>)>,
    /// How often it asked for each address by ARP while it had no address of its own.
    probes: BTreeMap<Ipv4Addr, usize>,
}

/// Only silence and probes lead to one; no server ever hears its address, and none is asked while it is used.
#[derive(Default)]
pub(super) struct Fallbacks {
    searches: BTreeMap<(usize, ClientKey), Search>,
    /// When a server was last heard on a LAN.
    heard: BTreeMap<usize, Micros>,
}

impl Oracle for Fallbacks {
    fn sees(&mut self, world: &World, seen: &Seen<'_>, says: &mut Says) {
        if world.plan.fallback.is_none() {
            return;
        }
        match seen {
            Seen::Sends(lan, exchange, frame) => {
                if let Some(message) = message_of(frame) {
                    self.says(world, *lan, &message, says);
                } else if let Some(client) = world
                    .socks
                    .get(exchange)
                    .and_then(|sock| sock.client.clone())
                {
                    self.probes(world, (*lan, client), frame);
                }
            }
            // What a rogue says counts as silence.
            Seen::Heard(lan, bytes, message) if !world.segments[*lan].is_of_rogue(bytes) => {
                self.heard.insert(*lan, world.now);
                let search = self.searches.get_mut(&(*lan, message.key()));
                let is_its = |search: &&mut Search| {
                    let counts = !search.requests || message.kind() != Some(Kind::Offer);
                    search.probed.is_none() && search.xids.contains(&message.xid) && counts
                };
                if let Some(search) = search.filter(is_its) {
                    search.heard = Some(world.now);
                    search.refused |= message.kind() == Some(Kind::Nak);
                }
            }
            Seen::Begins(index) => {
                let actor = &world.actors[*index];
                self.searches.remove(&(actor.lan, actor.client_key()));
            }
            Seen::Requested(call) => {
                if let Some(add) = add_of(call) {
                    self.adds(world, add);
                }
                let ends = |actor: &&Actor| match call {
                    Call::Del { attachment, .. } => actor.attachment == *attachment,
                    Call::Collect { network, keep } => {
                        is_collected(&actor.attachment, network, keep)
                    }
                    _ => false,
                };
                for actor in world.actors.iter().filter(ends) {
                    self.searches.remove(&(actor.lan, actor.client_key()));
                }
            }
            Seen::Emitted(Effect::Persist { changes, .. }) => {
                for change in changes {
                    if let Change::Put(_, record) = change {
                        self.records(world, record, says);
                    }
                }
            }
            Seen::Noted(events) => {
                let back = events
                    .iter()
                    .filter(|event| event.kind == EventKind::ServerBack)
                    .count();
                says.counts
                    .extend((back > 0).then_some(("servers that were back", back)));
            }
            Seen::Ended => *self = Self::default(),
            _ => {}
        }
    }
}

impl Fallbacks {
    /// Judges a message of a client.
    fn says(&mut self, world: &World, lan: usize, message: &Message, says: &mut Says) {
        let fallback = world.plan.fallback.expect("there is one");
        let who = (lan, message.key());
        let names = [Some(message.ciaddr), message.address(code::REQUESTED)];
        let of_range = names
            .into_iter()
            .flatten()
            .find(|address| fallback.has(lan, *address));
        if let Some(address) = of_range.filter(|_| message.kind() != Some(Kind::Discover)) {
            let kind = message.kind();
            let detail = format!("{kind:?} of {address}, which no server gave");
            return says.broken(Rule::Fallback, detail);
        }
        if message.kind() != Some(Kind::Discover) {
            let search = self.searches.get_mut(&who);
            search.into_iter().for_each(|search| search.requests = true);
            return;
        }
        let is_sought = self
            .searches
            .get(&who)
            .is_some_and(|search| search.came.is_some())
            || world.calls.waits_for(world.now, &who.1);
        if is_sought || !world.has_fallback(&who) {
            let search = self.searches.entry(who).or_default();
            search.first.get_or_insert(world.now);
            search.requests = false;
            search.xids.insert(message.xid);
            return;
        }
        says.broken(
            Rule::Fallback,
            format!("LAN {lan} is asked for a container that has an address of a fallback"),
        );
    }

    /// Handles an ADD that arrives: its client begins anew, unless another of its ADDs is under way.
    fn adds(&mut self, world: &World, add: &Add) {
        let is_its = |asked: &&Asked| {
            !asked.answered
                && add_of(&asked.call).is_some_and(|other| other.attachment == add.attachment)
        };
        let Some(actor) = world
            .actors
            .iter()
            .find(|actor| actor.attachment == add.attachment)
        else {
            return;
        };
        if world.requests.values().filter(is_its).count() <= 1 {
            let search = Search {
                came: Some(world.now),
                ..Search::default()
            };
            self.searches
                .insert((actor.lan, actor.client_key()), search);
        }
    }

    /// Counts a probe of an address of the ranges. A client asks for its server's address in the same form.
    fn probes(&mut self, world: &World, who: (usize, ClientKey), frame: &[u8]) {
        let fallback = world.plan.fallback.expect("there is one");
        let is_probe = |arp: &Arp| {
            arp.request && arp.sender.is_unspecified() && fallback.has(who.0, arp.target)
        };
        let Some(arp) = arp_of(frame).filter(is_probe) else {
            return;
        };
        let heard = self.heard.get(&who.0).copied();
        let search = self.searches.entry(who).or_default();
        search.probed.get_or_insert((world.now, heard));
        *search.probes.entry(arp.target).or_default() += 1;
    }

    /// Judges a lease that is about to be recorded.
    fn records(&mut self, world: &World, record: &Record, says: &mut Says) {
        let is_new =
            |of: &&Record| of.attachment == record.attachment && of.lease.source == Source::Range;
        if record.lease.source != Source::Range
            || record.state != RecordState::Bound
            || world.store.durable.values().any(|of| is_new(&of))
        {
            return;
        }
        let fallback = world.plan.fallback.expect("there is one");
        let Some(actor) = world
            .actors
            .iter()
            .find(|actor| actor.attachment == record.attachment)
        else {
            return;
        };
        // A container that ran before has its address already.
        if actor.stranded.is_some() {
            return says.count("fallbacks that were adopted");
        }
        let who = (actor.lan, actor.client_key());
        let is_there = actor.phase == Phase::Adding;
        let Some(search) = self
            .searches
            .remove(&who)
            .filter(|search| is_there && search.came.is_some())
        else {
            return says.count("fallbacks of containers that are gone");
        };
        // Who waited for its turn counts the silence that others met.
        let (probed_at, heard) = search
            .probed
            .unwrap_or((world.now, self.heard.get(&actor.lan).copied()));
        // It decides, and waits before the first probe.
        let decided = probed_at.saturating_sub(PROBE_WAIT.as_micros() as Micros);
        let is_silent = |came: &Micros| heard.is_none_or(|heard| heard < *came || heard >= decided);
        let came = search.came.filter(is_silent);
        // Who never got its turn counts the silence since others heard a server.
        let address = record.lease.ip();
        let began = came.or(search.first).or(heard).unwrap_or(world.now);
        let waited = Duration::from_micros(world.now - began);
        let probed = search.probes.get(&address).copied().unwrap_or(0);
        let after = fallback.after.as_micros() as Micros;
        let is_heard = |heard: Micros| heard < decided && probed_at < heard + after;
        let wrong = if search.refused || search.heard.is_some_and(is_heard) {
            "though a server was heard".to_owned()
        } else if waited < fallback.after {
            format!("after {waited:?}")
        } else if world.calm && fallback.after > Duration::from_micros(PING) {
            "though servers are there".to_owned()
        } else if !fallback.has(actor.lan, address) {
            "which is in no range".to_owned()
        } else if probed < PROBES {
            format!("after {probed} probes")
        } else {
            return says.count("fallbacks");
        };
        let detail = format!("{} falls back to {address}, {wrong}", record.attachment);
        says.broken(Rule::Fallback, detail);
    }
}

impl World {
    /// Returns whether a client has a fallback address.
    pub(in crate::world) fn has_fallback(&self, (lan, client): &(usize, ClientKey)) -> bool {
        let lan = &self.segments[*lan].lan;
        let is_its = |record: &&Record| {
            record.identity.lan == *lan && key_of(&record.identity.client_id) == *client
        };
        let of_range = |record: &Record| {
            record.lease.source == Source::Range && record.state == RecordState::Bound
        };
        self.store.known().filter(is_its).any(of_range)
    }
}
