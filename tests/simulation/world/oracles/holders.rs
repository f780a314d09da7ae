//! Clients that were told a lease and still have it.

use super::*;

/// A client that was told a lease and still has it.
#[derive(Clone, Debug)]
struct Holder {
    /// The LAN.
    lan: usize,
    /// The client identifier.
    client_id: ClientId,
    /// Its link's Ethernet address.
    mac: Mac,
    /// The address.
    address: Ipv4Addr,
}

/// Nobody gives back or declines what another holds.
#[derive(Default)]
pub(super) struct Holders(BTreeMap<Attachment, Holder>);

impl Oracle for Holders {
    fn sees(&mut self, world: &World, seen: &Seen<'_>, says: &mut Says) {
        match seen {
            Seen::Sends(lan, _, frame) => self.sends(world, *lan, frame, says),
            Seen::Emitted(Effect::Reply { id, answer }) => {
                self.0.extend(Self::told(world, *id, answer))
            }
            // It has lost its lease, and need not say so to a server that has granted the address to another.
            Seen::Emitted(Effect::Persist { changes, .. }) => {
                for change in changes {
                    if let Change::Put(_, record) = change
                        && record.state == RecordState::Seeking
                    {
                        self.0.remove(&record.attachment);
                    }
                }
            }
            Seen::Requested(Call::Del { attachment, .. }) => _ = self.0.remove(attachment),
            Seen::Requested(Call::Collect { network, keep }) => {
                self.0
                    .retain(|attachment, _| !is_collected(attachment, network, keep));
            }
            Seen::Requested(Call::Order(order))
                if order.verb == (Verb::Release { force: true }) =>
            {
                self.0
                    .retain(|attachment, _| order.which.name != Some(attachment.to_string()));
            }
            Seen::Gone(attachment) => _ = self.0.remove(*attachment),
            Seen::Served(lan, station, Served::Granted(address, _)) => {
                self.granted(world, (*lan, *station), *address)
            }
            Seen::Heard(lan, bytes, message)
                if is_final(message) && !world.segments[*lan].is_of_rogue(bytes) =>
            {
                let key = message.key();
                self.0
                    .retain(|_, holder| holder.lan != *lan || key_of(&holder.client_id) != key);
            }
            Seen::Rebooted | Seen::StoreLost => self.0.clear(),
            _ => {}
        }
    }
}

impl Holders {
    /// Returns the holder that an answer tells a lease, with its attachment.
    fn told(world: &World, id: RequestId, answer: &Answer) -> Option<(Attachment, Holder)> {
        let address = match answer {
            Answer::Leased { tenures } => granted(tenures)?.0,
            answer => world.lease_of(answer)?.ip(),
        };
        // An intruder goes as soon as it has its answer, or none.
        let asked = world
            .requests
            .get(&id)
            .filter(|asked| !matches!(asked.role, Role::Intruder(_)))?;
        let add = add_of(&asked.call)?;
        // Nobody holds anything in a namespace that is gone, nor does an actor that has begun another container since.
        let (actor, generation) = asked.by?;
        let actor = &world.actors[actor];
        let here = actor.generation == generation && actor.phase != Phase::Ending;
        let link = actor
            .at
            .filter(|_| here)
            .and_then(|at| world.kernel.link(at));
        // Its link may be still to come.
        let to_come = actor.is_found_later() && here && actor.netns.is_some();
        let mac = link.map(|wire| wire.mac).or(to_come.then_some(actor.mac))?;
        let lan = world
            .segments
            .iter()
            .position(|segment| segment.lan == add.lan)?;
        let holder = Holder {
            lan,
            mac,
            client_id: add.client_id.resolve(mac),
            address,
        };
        Some((add.attachment.clone(), holder))
    }

    /// Judges a message that a client sends.
    fn sends(&mut self, world: &World, lan: usize, frame: &[u8], says: &mut Says) {
        self.lapse(world);
        let (Some(message), Some(source)) = (message_of(frame), frame.get(6..12)) else {
            return;
        };
        let key = message.key();
        if matches!(message.kind(), Some(Kind::Discover | Kind::Decline)) {
            // A client that looks for a lease has none: it was lost. The same goes for what its holder declines.
            self.0.retain(|_, holder| {
                holder.lan != lan || holder.mac.0 != *source || key_of(&holder.client_id) != key
            });
        }
        // A DECLINE is about its client's own lease, at the server that it names; a server that knows clients by chaddr takes it
        // for the holder's.
        let ends = |holder: &Holder| match message.kind() {
            Some(Kind::Release) => holder.address == message.ciaddr,
            Some(Kind::Decline) => {
                let others = key_of(&holder.client_id) != key;
                others && message.address(code::REQUESTED) == Some(holder.address)
            }
            _ => false,
        };
        let Some((attachment, holder)) = self.0.iter().find(|(_, h)| h.lan == lan && ends(h))
        else {
            return;
        };
        let rule = match message.kind() {
            Some(Kind::Decline) => Rule::DeclineUnderHolder,
            _ => Rule::ReleaseUnderHolder,
        };
        says.broken(
            rule,
            format!("of {}, which {attachment} holds", holder.address),
        );
    }

    /// Ends the hold of holders whose lease has ended.
    fn lapse(&mut self, world: &World) {
        self.0.retain(|_, holder| {
            let until = world.ledger.heard.get(&(
                holder.lan,
                holder.address,
                Some(key_of(&holder.client_id)),
            ));
            until
                .copied()
                .flatten()
                .is_none_or(|until| world.now < until)
        });
    }

    /// Handles that a server granted an address: its last holder no longer has it.
    fn granted(&mut self, world: &World, (lan, station): (usize, usize), address: Ipv4Addr) {
        let server = world.segments[lan].stations[station].server();
        let client = server
            .and_then(|server| server.lease(world.model_time(), address))
            .map(|lease| &lease.client);
        let knows = world.plan.knows;
        self.0.retain(|_, holder| {
            let same = Some(&knows.key(key_of(&holder.client_id), holder.mac.0)) == client;
            same || (holder.lan, holder.address) != (lan, address)
        });
    }
}

/// Returns whether a message is a NAK that is final: one that came through a relay may not be.
fn is_final(message: &Message) -> bool {
    message.kind() == Some(Kind::Nak) && message.giaddr.is_unspecified()
}
