//! The server: payloads in, and at most one answer to each out (RFC 2131 §4.3).

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

use super::config::Config;
use super::frame::{BROADCAST, Datagram, Mac};
use super::judge::Judge;
use super::message::{ClientKey, Kind, Message, code};
use super::purpose::Purpose;
use super::violation::Violation;

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// Its bytes.
    pub payload: Vec<u8>,
    /// Its destination: the limited broadcast address, or the client's.
    pub destination: SocketAddrV4,
    /// The Ethernet destination; `None` if the server leaves it to its kernel's ARP.
    pub ethernet: Option<Mac>,
    /// How long it is held back.
    pub delay: Duration,
}

/// What a server did with a datagram.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Handled {
    /// What happened.
    pub event: Event,
    /// The answer, if there is one.
    pub reply: Option<Reply>,
    /// What is sent through a relay just before it.
    pub relayed: Option<Reply>,
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// It offered an address.
    Offered(Ipv4Addr),
    /// It granted or extended a lease.
    Granted(Ipv4Addr, Purpose),
    /// It answered NAK to a claim of this address.
    Refused(Ipv4Addr, Purpose),
    /// A lease was given back.
    Released(Ipv4Addr),
    /// An address was declined.
    Declined(Ipv4Addr),
    /// It did nothing.
    Silent(Silence),
}

/// Why a server did nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Silence {
    /// Not a message, or not one that a client sends.
    NotForServers,
    /// The client has no address, and does not ask for an answer by broadcast.
    NoFlag,
    /// The pool is used up.
    NoAddress,
    /// The client chose or addresses another server.
    OtherServer,
    /// The client is unknown, and the server is not authoritative.
    Unknown,
    /// The address is not this client's, and the server is not authoritative.
    NotItsOwn,
    /// It never acknowledges anything.
    Deaf,
    /// A RELEASE or DECLINE of an address that this client does not have.
    NothingToGiveBack,
    /// A RELEASE that did not come from the leased address.
    WrongSource,
}

/// A lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// Its holder, as the server knows its clients.
    pub client: ClientKey,
    /// The name that the client used to which it was last granted.
    pub name: ClientKey,
    /// The hardware address to which it was last granted.
    pub hardware: [u8; 6],
    /// When it ends; `None` never.
    pub until: Option<Duration>,
}

impl Lease {
    fn active(&self, now: Duration) -> bool {
        self.until.is_none_or(|until| now < until)
    }
}

/// A server. All its times count from the same moment as `now`.
#[derive(Debug)]
pub struct Server {
    config: Config,
    /// Leases by address. An ended lease stays until its address is reused, so that its client gets it back.
    leases: BTreeMap<Ipv4Addr, Lease>,
    /// The address that a client has or last had.
    by_client: BTreeMap<ClientKey, Ipv4Addr>,
    offers: BTreeMap<Ipv4Addr, Lease>,
    declined: BTreeMap<Ipv4Addr, Duration>,
    /// Where the search for an unused address begins.
    fresh: u32,
    /// Until when it is busy with answers.
    busy: Duration,
    judge: Option<Judge>,
    violations: Vec<Violation>,
}

/// The most violations that are kept.
const VIOLATIONS: usize = 1000;

impl Server {
    /// Returns a server that judges what it receives.
    pub fn new(config: Config) -> Self {
        Self {
            judge: Some(Judge::default()),
            ..Self::unjudged(config)
        }
    }

    /// Returns a server that judges nothing, for a wire that delays, duplicates and loses messages, where a [`Judge`] has to sit
    /// at the sender.
    pub fn unjudged(config: Config) -> Self {
        let fresh = config.pool.0.to_bits();
        Self {
            config,
            leases: BTreeMap::new(),
            by_client: BTreeMap::new(),
            offers: BTreeMap::new(),
            declined: BTreeMap::new(),
            fresh,
            busy: Duration::ZERO,
            judge: None,
            violations: Vec::new(),
        }
    }

    /// Returns the configuration.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Changes the configuration; leases stay.
    pub fn config_mut(&mut self) -> &mut Config {
        &mut self.config
    }

    /// Returns what clients did wrong so far.
    pub fn violations(&self) -> &[Violation] {
        &self.violations
    }

    /// Returns the leases that have not ended by `now`.
    pub fn leases(&self, now: Duration) -> impl Iterator<Item = (Ipv4Addr, &Lease)> {
        self.leases
            .iter()
            .filter(move |(_, lease)| lease.active(now))
            .map(|(address, lease)| (*address, lease))
    }

    /// Returns the lease of an address, if it has not ended by `now`.
    pub fn lease(&self, now: Duration, address: Ipv4Addr) -> Option<&Lease> {
        self.leases.get(&address).filter(|lease| lease.active(now))
    }

    /// Returns the key for the leases of a message's client.
    fn key(&self, message: &Message) -> ClientKey {
        self.config.knows.key(message.key(), message.hardware())
    }

    /// Ends a lease, as an operator would.
    pub fn revoke(&mut self, address: Ipv4Addr) {
        self.end(address);
    }

    /// Restarts: forgets offers, and leases too unless the database was kept.
    pub fn restart(&mut self, database_kept: bool) {
        self.offers.clear();
        if !database_kept {
            self.leases.clear();
            self.by_client.clear();
            self.declined.clear();
            self.fresh = self.config.pool.0.to_bits();
        }
    }

    /// Takes a datagram that came to port 67.
    pub fn receive(&mut self, now: Duration, datagram: &Datagram<'_>) -> Handled {
        if let Some(judge) = &mut self.judge {
            let found = judge.client(now, datagram);
            let room = VIOLATIONS.saturating_sub(self.violations.len());
            self.violations.extend(found.into_iter().take(room));
        }
        let handled = self.serve(now, datagram);
        for reply in handled.relayed.iter().chain(&handled.reply) {
            self.judge
                .iter_mut()
                .for_each(|judge| judge.server(now, &reply.payload));
        }
        handled
    }

    fn serve(&mut self, now: Duration, datagram: &Datagram<'_>) -> Handled {
        let silent = |silence| Handled {
            event: Event::Silent(silence),
            reply: None,
            relayed: None,
        };
        let Ok(message) = Message::decode(datagram.payload) else {
            return silent(Silence::NotForServers);
        };
        if message.op != 1 {
            return silent(Silence::NotForServers);
        }
        let destination = datagram.destination.map(|to| *to.ip());
        let Some(purpose) = Purpose::of(&message, destination) else {
            return silent(Silence::NotForServers);
        };
        let event = match purpose {
            Purpose::Discover | Purpose::Select | Purpose::Reboot
                if self.config.flag_only && !message.wants_broadcast() =>
            {
                Event::Silent(Silence::NoFlag)
            }
            Purpose::Select | Purpose::Reboot | Purpose::Renew | Purpose::Rebind
                if self.config.refuses =>
            {
                self.storm(now, &message, purpose)
            }
            Purpose::Select | Purpose::Reboot if self.config.deaf => Event::Silent(Silence::Deaf),
            Purpose::Discover => self.discover(now, &message),
            Purpose::Select => self.select(now, &message),
            Purpose::Reboot => self.reboot(now, &message),
            Purpose::Renew | Purpose::Rebind => self.extend(now, &message, purpose),
            Purpose::Decline => self.decline(now, &message),
            Purpose::Release => self.release(now, &message, *datagram.source.ip()),
        };
        let reply = self.reply(now, &message, event);
        let relayed = reply
            .as_ref()
            .and_then(|reply| self.relayed(&message, event, destination, reply.delay));
        Handled {
            event,
            reply,
            relayed,
        }
    }

    /// Returns the NAK to a REQUEST that also came through the relay of another subnet.
    fn relayed(
        &self,
        request: &Message,
        event: Event,
        destination: Option<Ipv4Addr>,
        delay: Duration,
    ) -> Option<Reply> {
        let relay = self
            .config
            .relay
            .filter(|_| matches!(event, Event::Granted(..)))?;
        destination.filter(Ipv4Addr::is_broadcast)?;
        let mut nak = Message {
            giaddr: relay,
            ..Message::answer_to(request, Kind::Nak)
        };
        nak.options
            .push((code::SERVER, self.config.id.octets().to_vec()));
        nak.options.push((code::MESSAGE, b"wrong network".to_vec()));
        let destination = SocketAddrV4::new(Ipv4Addr::BROADCAST, 68);
        Some(Reply {
            payload: nak.encode(),
            destination,
            ethernet: Some(BROADCAST),
            delay,
        })
    }

    /// Refuses any REQUEST, unless the client means another server.
    fn storm(&mut self, now: Duration, message: &Message, purpose: Purpose) -> Event {
        if message
            .address(code::SERVER)
            .is_some_and(|server| server != self.config.id)
        {
            return Event::Silent(Silence::OtherServer);
        }
        let address = message.address(code::REQUESTED).unwrap_or(message.ciaddr);
        if self.has(now, &self.key(message), address) {
            self.end(address);
        }
        Event::Refused(address, purpose)
    }

    fn discover(&mut self, now: Duration, message: &Message) -> Event {
        let key = self.key(message);
        let Some(address) = self.choose(now, &key, message.address(code::REQUESTED)) else {
            return Event::Silent(Silence::NoAddress);
        };
        let until = Some(now + self.config.offer_delay + self.config.offer_hold);
        let (name, hardware) = (message.key(), message.hardware());
        self.offers.insert(
            address,
            Lease {
                client: key,
                name,
                hardware,
                until,
            },
        );
        Event::Offered(address)
    }

    fn select(&mut self, now: Duration, message: &Message) -> Event {
        let key = self.key(message);
        if message.address(code::SERVER) != Some(self.config.id) {
            self.offers.retain(|_, offer| offer.client != key);
            return Event::Silent(Silence::OtherServer);
        }
        let address = message
            .address(code::REQUESTED)
            .unwrap_or(Ipv4Addr::UNSPECIFIED);
        if self.serves(address) && self.free_for(now, &key, address) {
            self.grant(now, message, address, Purpose::Select)
        } else {
            Event::Refused(address, Purpose::Select)
        }
    }

    fn reboot(&mut self, now: Duration, message: &Message) -> Event {
        let key = self.key(message);
        let address = message
            .address(code::REQUESTED)
            .unwrap_or(Ipv4Addr::UNSPECIFIED);
        match self.has(now, &key, address) && self.free_for(now, &key, address) {
            true => self.grant(now, message, address, Purpose::Reboot),
            false => self.refuse(now, &key, address, Purpose::Reboot),
        }
    }

    fn extend(&mut self, now: Duration, message: &Message, purpose: Purpose) -> Event {
        let key = self.key(message);
        let address = message.ciaddr;
        match self.has(now, &key, address) && self.free_for(now, &key, address) {
            true => self.grant(now, message, address, purpose),
            // A RENEW is for this server alone, so no other will correct the client.
            false if purpose == Purpose::Renew => Event::Refused(address, purpose),
            false => self.refuse(now, &key, address, purpose),
        }
    }

    /// Refuses a claim that may be meant for another server: only if this one is authoritative, and in INIT-REBOOT only if it
    /// knows something against the claim (RFC 2131 §4.3.2).
    fn refuse(&self, now: Duration, key: &ClientKey, address: Ipv4Addr, purpose: Purpose) -> Event {
        let other = self
            .by_client
            .get(key)
            .is_some_and(|held| self.lease(now, *held).is_some());
        let known = other || !self.config.subnet.contains(&address);
        let taken = !self.free_for(now, key, address);
        match self.config.authoritative {
            true if known || taken || purpose == Purpose::Rebind => {
                Event::Refused(address, purpose)
            }
            false if known || taken => Event::Silent(Silence::NotItsOwn),
            _ => Event::Silent(Silence::Unknown),
        }
    }

    fn decline(&mut self, now: Duration, message: &Message) -> Event {
        if message.address(code::SERVER) != Some(self.config.id) {
            return Event::Silent(Silence::OtherServer);
        }
        let Some(address) = message
            .address(code::REQUESTED)
            .filter(|a| self.has(now, &self.key(message), *a))
        else {
            return Event::Silent(Silence::NothingToGiveBack);
        };
        self.end(address);
        if self.config.stubborn {
            return Event::Declined(address);
        }
        self.by_client.remove(&self.key(message));
        self.leases.remove(&address);
        self.declined
            .insert(address, now + self.config.decline_hold);
        Event::Declined(address)
    }

    fn release(&mut self, now: Duration, message: &Message, source: Ipv4Addr) -> Event {
        let address = message.ciaddr;
        if message.address(code::SERVER) != Some(self.config.id) {
            Event::Silent(Silence::OtherServer)
        } else if source != address {
            Event::Silent(Silence::WrongSource)
        } else if self.has(now, &self.key(message), address) {
            self.end(address);
            Event::Released(address)
        } else {
            Event::Silent(Silence::NothingToGiveBack)
        }
    }

    fn grant(
        &mut self,
        now: Duration,
        message: &Message,
        address: Ipv4Addr,
        purpose: Purpose,
    ) -> Event {
        let key = self.key(message);
        self.offers.retain(|_, offer| offer.client != key);
        if let Some(old) = self
            .by_client
            .insert(key.clone(), address)
            .filter(|old| *old != address)
        {
            self.leases.remove(&old);
        }
        let until = (self.config.lease != u32::MAX)
            .then(|| now + Duration::from_secs(self.config.lease.into()));
        let lease = Lease {
            client: key.clone(),
            name: message.key(),
            hardware: message.hardware(),
            until,
        };
        if let Some(old) = self
            .leases
            .insert(address, lease)
            .filter(|old| old.client != key)
        {
            self.by_client.remove(&old.client);
        }
        Event::Granted(address, purpose)
    }

    /// Ends a lease but remembers its holder. A lease without an end must be ended at zero.
    fn end(&mut self, address: Ipv4Addr) {
        if let Some(lease) = self.leases.get_mut(&address) {
            lease.until = Some(Duration::ZERO);
        }
    }

    fn has(&self, now: Duration, key: &ClientKey, address: Ipv4Addr) -> bool {
        self.lease(now, address)
            .is_some_and(|lease| lease.client == *key)
    }

    fn serves(&self, address: Ipv4Addr) -> bool {
        (self.config.pool.0..=self.config.pool.1).contains(&address)
    }

    /// Returns whether an address may go to this client: nobody else has a lease or an offer of it, and it is not declined.
    fn free_for(&self, now: Duration, key: &ClientKey, address: Ipv4Addr) -> bool {
        let others = |lease: &Lease| lease.active(now) && lease.client != *key;
        !self.leases.get(&address).is_some_and(others)
            && !self.offers.get(&address).is_some_and(others)
            && self
                .declined
                .get(&address)
                .is_none_or(|until| now >= *until)
            && address != self.config.id
            && !self.config.routers.contains(&address)
    }

    /// Chooses an address: the client's previous one, the one that it asks for, one that nobody ever had, or else one whose lease
    /// has ended (RFC 2131 §4.3.1).
    fn choose(
        &mut self,
        now: Duration,
        key: &ClientKey,
        wish: Option<Ipv4Addr>,
    ) -> Option<Ipv4Addr> {
        let offered = self
            .offers
            .iter()
            .find(|(_, offer)| offer.client == *key)
            .map(|(address, _)| *address);
        let own = self.by_client.get(key).copied();
        let good = |address: &Ipv4Addr| self.serves(*address) && self.free_for(now, key, *address);
        if let Some(address) = [own, offered, wish].into_iter().flatten().find(good) {
            return Some(address);
        }
        let last = self.config.pool.1.to_bits();
        while self.fresh <= last {
            let address = Ipv4Addr::from_bits(self.fresh);
            self.fresh += 1;
            if !self.leases.contains_key(&address) && self.free_for(now, key, address) {
                return Some(address);
            }
        }
        self.any_for(now, key)
    }

    /// Returns an address of the pool that may go to this client, if one is left.
    pub fn any_for(&self, now: Duration, key: &ClientKey) -> Option<Ipv4Addr> {
        let (first, last) = self.config.pool;
        let mut pool = (first.to_bits()..=last.to_bits()).map(Ipv4Addr::from_bits);
        pool.find(|address| self.free_for(now, key, *address))
    }

    fn reply(&mut self, now: Duration, request: &Message, event: Event) -> Option<Reply> {
        let (kind, address) = match event {
            Event::Offered(address) => (Kind::Offer, address),
            Event::Granted(address, _) => (Kind::Ack, address),
            Event::Refused(address, _) => (Kind::Nak, address),
            Event::Released(_) | Event::Declined(_) | Event::Silent(_) => return None,
        };
        let mut answer = Message::answer_to(request, kind);
        answer
            .options
            .push((code::SERVER, self.config.id.octets().to_vec()));
        if kind == Kind::Nak {
            let text = format!("{address} is not yours");
            answer.options.push((code::MESSAGE, text.into_bytes()));
        } else {
            answer.yiaddr = address;
            answer.ciaddr = if kind == Kind::Ack {
                request.ciaddr
            } else {
                Ipv4Addr::UNSPECIFIED
            };
            self.config.parameters(request, &mut answer);
        }
        if let Some(id) = request.option(code::CLIENT_ID) {
            answer.options.push((code::CLIENT_ID, id.to_vec()));
        }
        let (ip, ethernet) = match kind {
            Kind::Nak => (Ipv4Addr::BROADCAST, Some(BROADCAST)),
            _ if !request.ciaddr.is_unspecified() => (request.ciaddr, None),
            _ if request.wants_broadcast() => (Ipv4Addr::BROADCAST, Some(BROADCAST)),
            _ => (address, Some(request.hardware())),
        };
        self.busy = self.busy.max(now) + self.config.answer_time;
        let thinks = match event {
            Event::Offered(_) => self.config.offer_delay,
            Event::Granted(_, purpose) | Event::Refused(_, purpose) if purpose.extends() => {
                self.config.extend_delay
            }
            _ => Duration::ZERO,
        };
        let delay = self.busy - now + thinks;
        Some(Reply {
            payload: answer.encode(),
            destination: SocketAddrV4::new(ip, 68),
            ethernet,
            delay,
        })
    }
}
