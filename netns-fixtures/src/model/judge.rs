//! The judge: checks what clients send against RFC 2131, and remembers what that takes.

use std::collections::{BTreeMap, VecDeque};
use std::net::Ipv4Addr;
use std::time::Duration;

use super::frame::{Datagram, Packet, decode};
use super::message::{ClientKey, Kind, LEAST, Message, code};
use super::purpose::Purpose;
use super::table5;
use super::violation::Violation;

/// Judges everything sent on a wire. What depends on time or on earlier messages is judged when a message is *sent*, so on a wire
/// that delays or loses messages the judge has to sit at the sender.
#[derive(Debug, Default)]
pub struct Judge {
    exchanges: BTreeMap<u32, Exchange>,
    /// The xids of these exchanges, oldest first.
    order: VecDeque<u32>,
    clients: BTreeMap<ClientKey, Client>,
    grants: BTreeMap<(ClientKey, Ipv4Addr), Grant>,
}

/// How many exchanges, clients and grants are remembered; older ones are forgotten.
const REMEMBERED: usize = 1 << 14;

/// How many of one client's choices are remembered.
const SELECTED: usize = 4;

/// How long after its last message an xid still belongs to one exchange. A client that sends a DISCOVER under it later has drawn
/// the same number.
const OVER: Duration = Duration::from_secs(3600);

/// How long after its last message an xid may come from another client, which has drawn the same number.
const MINUTE: Duration = Duration::from_secs(60);

/// How soon what a client does is written down.
const MOMENT: Duration = Duration::from_secs(2);

/// What was sent under one xid.
#[derive(Debug)]
struct Exchange {
    /// When the last message was sent.
    spoke: Duration,
    key: ClientKey,
    hardware: [u8; 6],
    /// The values of secs in its DISCOVERs.
    secs: VecDeque<u16>,
    offers: Vec<(Ipv4Addr, Ipv4Addr)>,
    /// The last claim of an address: INIT-REBOOT, RENEW, REBIND.
    claim: Option<Ipv4Addr>,
    /// Whether an ACK reached the client.
    acknowledged: bool,
}

/// What stays the same in all messages of a client.
#[derive(Debug, Default)]
struct Client {
    latest: Option<u32>,
    /// What its last REQUESTs in SELECTING asked for: each may be granted before the client learns of it.
    selected: VecDeque<(Ipv4Addr, Ipv4Addr)>,
    list: Option<Vec<u8>>,
}

/// A lease as seen on the wire.
#[derive(Debug, Default)]
struct Grant {
    /// The servers that granted it: several servers with one pool may.
    servers: Vec<Ipv4Addr>,
    /// The server whose ACK the client heard last: the client should not believe another server's NAK.
    known: Option<Ipv4Addr>,
    until: Option<Duration>,
    /// How it was given back, and when.
    given_back: Option<(Purpose, Duration)>,
    refused: bool,
}

impl Judge {
    /// Takes a client's datagram, and returns what is wrong with it.
    pub fn client(&mut self, now: Duration, datagram: &Datagram<'_>) -> Vec<Violation> {
        let mut found = Vec::new();
        let message = match Message::decode(datagram.payload) {
            Ok(message) => message,
            Err(cause) => return vec![Violation::Malformed(cause)],
        };
        if datagram.payload.len() < LEAST {
            found.push(Violation::TooShort(datagram.payload.len()));
        }
        let Some(purpose) = Purpose::of(&message, datagram.destination.map(|to| *to.ip())) else {
            found.push(Violation::NoPurpose);
            return found;
        };
        table5::fixed_fields(purpose, &message, &mut found);
        table5::options(purpose, &message, &mut found);
        table5::envelope(purpose, &message, datagram, &mut found);
        self.constant(purpose, &message, &mut found);
        self.exchange(now, purpose, &message, &mut found);
        self.granted(now, purpose, &message, datagram, &mut found);
        found
    }

    /// Takes a frame from a client's host, and returns what is wrong with it.
    pub fn client_frame(&mut self, now: Duration, bytes: &[u8]) -> Vec<Violation> {
        let frame = match decode(bytes) {
            Ok(frame) => frame,
            Err(cause) => return vec![Violation::Frame(cause)],
        };
        match frame.packet {
            Packet::Udp {
                source,
                destination,
                payload,
            } if destination.port() == 67 => {
                let ethernet = Some((frame.source, frame.destination));
                let datagram = Datagram {
                    payload,
                    source,
                    destination: Some(destination),
                    ethernet,
                };
                self.client(now, &datagram)
            }
            Packet::Arp(arp) if arp.sender_mac == frame.source => Vec::new(),
            Packet::Arp(_) => vec![Violation::ArpSender],
            Packet::Udp { .. } => vec![Violation::Unexpected(0x0800)],
            Packet::Other(ethertype) => vec![Violation::Unexpected(ethertype)],
        }
    }

    /// Takes a server's message.
    pub fn server(&mut self, now: Duration, payload: &[u8]) {
        let Ok(message) = Message::decode(payload) else {
            return;
        };
        let Some(server) = message.address(code::SERVER) else {
            return;
        };
        let Some(exchange) = self.exchanges.get_mut(&message.xid) else {
            return;
        };
        match message.kind() {
            Some(Kind::Offer) if exchange.offers.len() < 64 => {
                exchange.offers.push((server, message.yiaddr))
            }
            Some(Kind::Ack) => {
                let seconds = message
                    .number(code::LEASE_TIME)
                    .filter(|seconds| *seconds != u32::MAX);
                let until = seconds.map(|seconds| now + Duration::from_secs(seconds.into()));
                let key = (exchange.key.clone(), message.yiaddr);
                let (before, known) = self
                    .grants
                    .remove(&key)
                    .map(|was| (was.servers, was.known))
                    .unwrap_or_default();
                let servers = before
                    .into_iter()
                    .filter(|other| *other != server)
                    .chain([server])
                    .collect();
                let grant = Grant {
                    servers,
                    known,
                    until,
                    ..Grant::default()
                };
                self.grants.insert(key, grant);
                if self.grants.len() > REMEMBERED {
                    self.grants.pop_first();
                }
            }
            _ => {}
        }
    }

    /// Records that a server's message reached its client. Without this, an ignored NAK goes unnoticed.
    pub fn heard(&mut self, payload: &[u8]) {
        let Ok(message) = Message::decode(payload) else {
            return;
        };
        let Some(exchange) = self.exchanges.get_mut(&message.xid) else {
            return;
        };
        let latest = self
            .clients
            .get(&exchange.key)
            .is_some_and(|client| client.latest == Some(message.xid));
        match message.kind() {
            Some(Kind::Ack) => {
                exchange.acknowledged = true;
                if let Some(grant) = self.grants.get_mut(&(exchange.key.clone(), message.yiaddr)) {
                    grant.refused = false;
                    grant.known = message.address(code::SERVER);
                }
            }
            Some(Kind::Nak) if latest && !exchange.acknowledged => {
                let Some(claim) = exchange.claim else { return };
                let Some(grant) = self.grants.get_mut(&(exchange.key.clone(), claim)) else {
                    return;
                };
                grant.refused |=
                    grant.known.is_some() && message.address(code::SERVER) == grant.known;
            }
            _ => {}
        }
    }

    /// Records that the clients restarted at `now`. They need not remember a NAK, or that they declined an address a moment before.
    /// Nor need they remember what they asked before, because to them the answers belong to another client (RFC 2131 §4.4.1: the
    /// xid is not theirs); whether a server granted what they asked it to commit; or, if they could not record it, that they gave
    /// an address back.
    pub fn clients_restarted(&mut self, now: Duration, forgetful: bool) {
        for (key, client) in &self.clients {
            for (server, address) in &client.selected {
                let asked = Grant {
                    servers: vec![*server],
                    ..Grant::default()
                };
                self.grants.entry((key.clone(), *address)).or_insert(asked);
            }
        }
        for grant in self.grants.values_mut() {
            grant.refused = false;
            let unwritten = |given: (Purpose, Duration)| {
                forgetful || given.0 == Purpose::Decline && now < given.1 + MOMENT
            };
            grant.given_back = grant.given_back.filter(|given| !unwritten(*given));
        }
        self.clients
            .values_mut()
            .for_each(|client| client.latest = None);
    }

    /// Records that the clients cannot know when their leases end: the clock that they measured them by was wrong.
    pub fn clients_forgot_ends(&mut self) {
        for grant in self.grants.values_mut() {
            grant.until = None;
        }
    }

    /// Judges what must stay the same from a client's DISCOVER on (RFC 2131 §3.5).
    fn constant(&mut self, purpose: Purpose, message: &Message, found: &mut Vec<Violation>) {
        if self.clients.len() > REMEMBERED {
            self.clients.pop_first();
        }
        let client = self.clients.entry(message.key()).or_default();
        client.latest = Some(message.xid);
        if purpose.gives_back() {
            return;
        }
        // For all the client knows, a server may have committed what it was asked to commit, until the client asks for
        // more.
        if let Some(selected) = message
            .address(code::SERVER)
            .zip(message.address(code::REQUESTED))
        {
            client.selected.retain(|before| *before != selected);
            client.selected.push_back(selected);
            if client.selected.len() > SELECTED {
                client.selected.pop_front();
            }
        }
        let list = message.option(code::PARAMETERS);
        if client.list.is_some() && client.list.as_deref() != list {
            found.push(Violation::ListChanged);
        }
        client.list = list.map(<[u8]>::to_vec).or(client.list.take());
    }

    /// Judges a message against the others of its xid.
    fn exchange(
        &mut self,
        now: Duration,
        purpose: Purpose,
        message: &Message,
        found: &mut Vec<Violation>,
    ) {
        let (key, hardware) = (message.key(), message.hardware());
        if !self.exchanges.contains_key(&message.xid) {
            self.order.push_back(message.xid);
            if self.order.len() > REMEMBERED {
                self.order
                    .pop_front()
                    .map(|oldest| self.exchanges.remove(&oldest));
            }
        }
        // A client that has moved on from its exchange is not affected by one that draws its number.
        let before = self
            .exchanges
            .get(&message.xid)
            .and_then(|exchange| self.clients.get(&exchange.key));
        let gone_on = before.is_none_or(|client| client.latest != Some(message.xid));
        let begin = || Exchange {
            spoke: now,
            key: key.clone(),
            hardware,
            secs: VecDeque::new(),
            offers: Vec::new(),
            claim: None,
            acknowledged: false,
        };
        let exchange = self.exchanges.entry(message.xid).or_insert_with(begin);
        let spoke = std::mem::replace(&mut exchange.spoke, now);
        if purpose == Purpose::Discover && now > spoke + OVER {
            *exchange = begin();
        }
        // If both differ it is another client that drew the same number. Clients on ipvlan share their hardware address.
        match (exchange.key != key, exchange.hardware != hardware) {
            (false, false) => {}
            _ if now > spoke + MINUTE => *exchange = begin(),
            (true, differs) if differs || gone_on => *exchange = begin(),
            (true, _) | (false, true) => found.push(Violation::ClientChanged),
        }
        match purpose {
            Purpose::Discover => {
                exchange.secs.push_back(message.secs);
                if exchange.secs.len() > 64 {
                    exchange.secs.pop_front();
                }
            }
            Purpose::Select => {
                let unset = Ipv4Addr::UNSPECIFIED;
                let server = message.address(code::SERVER).unwrap_or(unset);
                let address = message.address(code::REQUESTED).unwrap_or(unset);
                if !exchange.offers.contains(&(server, address)) {
                    found.push(Violation::NotOffered { server, address });
                } else if !exchange.secs.contains(&message.secs) {
                    found.push(Violation::SecsChanged(message.secs));
                }
            }
            Purpose::Reboot => exchange.claim = message.address(code::REQUESTED),
            Purpose::Renew | Purpose::Rebind => exchange.claim = Some(message.ciaddr),
            Purpose::Decline | Purpose::Release => {}
        }
    }

    /// Judges a claim against what was granted.
    fn granted(
        &mut self,
        now: Duration,
        purpose: Purpose,
        message: &Message,
        datagram: &Datagram<'_>,
        found: &mut Vec<Violation>,
    ) {
        let claimed = match purpose {
            Purpose::Discover | Purpose::Select => None,
            Purpose::Reboot | Purpose::Decline => message.address(code::REQUESTED),
            Purpose::Renew | Purpose::Rebind | Purpose::Release => Some(message.ciaddr),
        };
        let Some(address) = claimed else { return };
        let named = message
            .address(code::SERVER)
            .filter(|_| purpose.gives_back());
        let client = self.clients.get(&message.key());
        let selected =
            |server| client.is_some_and(|client| client.selected.contains(&(server, address)));
        if named.is_some_and(selected) {
            if let Some(grant) = self.grants.get_mut(&(message.key(), address)) {
                grant.given_back = Some((purpose, now));
            }
            return;
        }
        let Some(grant) = self.grants.get_mut(&(message.key(), address)) else {
            found.push(Violation::NeverGranted(purpose, address));
            return;
        };
        let ended = grant.until.is_some_and(|until| now >= until);
        if purpose.speaks_as_leased() && ended {
            found.push(Violation::Ended(purpose, address));
        }
        let uses = matches!(purpose, Purpose::Renew | Purpose::Rebind);
        if uses && grant.refused {
            found.push(Violation::NakIgnored(purpose, address));
        }
        if uses && grant.given_back.is_some() {
            found.push(Violation::GivenBack(purpose, address));
        }
        let to = datagram
            .destination
            .map(|to| *to.ip())
            .filter(|_| purpose.unicast());
        let named = message
            .address(code::SERVER)
            .filter(|_| purpose.gives_back());
        if let Some(other) = [to, named]
            .into_iter()
            .flatten()
            .find(|server| !grant.servers.contains(server))
        {
            found.push(Violation::WrongServer(purpose, other));
        }
        let given_back = purpose.gives_back().then_some((purpose, now));
        grant.given_back = grant.given_back.or(given_back);
    }
}
