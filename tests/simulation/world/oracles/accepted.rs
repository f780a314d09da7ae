//! Addresses that stations were heard using.

use super::*;

/// No ADD succeeds with one, unless its station also answered for an address that nobody can have (RFC 5737).
#[derive(Default)]
pub(super) struct Accepted {
    /// What a client has heard about an address since it last asked for it, and from whom: the claims of stations outside
    /// containers, until the address is declined.
    heard: BTreeMap<(Who, Ipv4Addr), Mac>,
    /// The address that a client's ADD was told, until it is declined: later claims to it concern a held lease.
    told: BTreeSet<(Who, Ipv4Addr)>,
    /// Stations that answered for an address that nobody can have.
    proxies: BTreeSet<(usize, Mac)>,
}

impl Oracle for Accepted {
    fn sees(&mut self, world: &World, seen: &Seen<'_>, says: &mut Says) {
        match seen {
            Seen::Frame {
                lan, client, bytes, ..
            } => self.hear(*lan, client.clone(), bytes),
            // It probes anew, and earlier claims to the address that it asks for do not count.
            Seen::Requests(lan, message) => {
                let (client, asked) = (message.key(), message.address(code::REQUESTED));
                self.heard.retain(|((at, _, key), about), _| {
                    (*at, key, Some(*about)) != (*lan, &client, asked)
                });
            }
            Seen::Declines(who, address) => {
                let is_other =
                    |(at, ..): &Who, declined: &Ipv4Addr| (*at, declined) != (who.0, address);
                self.heard
                    .retain(|(client, declined), _| is_other(client, declined));
                self.told
                    .retain(|(client, declined)| is_other(client, declined));
            }
            Seen::AddBegins(who) => self.heard.retain(|(client, _), _| client != *who),
            Seen::AddEnds(who, leased) => self.judge(world, who, *leased, says),
            // What it heard is forgotten.
            Seen::Ended => {
                self.heard.clear();
                self.told.clear();
            }
            _ => {}
        }
    }
}

impl Accepted {
    /// Records an ARP packet that the core hears on a LAN, for a client if one still has the socket.
    fn hear(&mut self, lan: usize, who: Option<Who>, bytes: &[u8]) {
        let Some(arp) = arp_of(bytes).filter(|arp| !arp.request) else {
            return;
        };
        let by = Mac(arp.sender_mac);
        if is_nobodys(arp.sender) {
            self.proxies.insert((lan, by));
            return;
        }
        let Some(about) = who.map(|who| (who, arp.sender)) else {
            return;
        };
        if [SQUATTER, PROXY, CLAIMER].contains(&by.0[1]) && !self.told.contains(&about) {
            let heard = self.heard.entry(about).or_insert(by);
            // A station that has the address counts more than one that answers for all.
            *heard = if heard.0[1] == PROXY { by } else { *heard };
        }
    }

    /// Judges the end of an ADD. What is heard while the answer is on its way is too late.
    fn judge(&mut self, world: &World, who: &Who, leased: Option<Ipv4Addr>, says: &mut Says) {
        if let Some(address) = leased {
            self.told.insert((who.clone(), address));
            let heard = self
                .heard
                .get(&(who.clone(), address))
                .filter(|_| world.plan.detection != Detection::Off && !was_adopted(world, who));
            if let Some(by) = heard.filter(|by| !self.proxies.contains(&(who.0, **by))) {
                let detail = format!("{:?} got {address}, which {by} was heard to use", who.2);
                says.broken(Rule::Accepted, detail);
            }
        }
        self.heard.retain(|(client, _), _| client != who);
    }
}

/// Returns whether a client's lease was adopted: its container had the address before the ADD, and a claim concerns a held lease.
fn was_adopted(world: &World, (lan, _, key): &Who) -> bool {
    let is_its = |actor: &Actor, event: &Event| {
        (actor.lan, &actor.client_key()) == (*lan, key) && event.attachment == actor.attachment
    };
    let events = world.store.events.iter();
    let mut adopted = events.filter(|event| event.kind == EventKind::Adopted);
    adopted.any(|event| world.actors.iter().any(|actor| is_its(actor, event)))
}
