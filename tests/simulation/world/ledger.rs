//! What servers have granted, and who has to give it back. No lease stays at a server without a holder, except for these causes.
//!
//! A grant is entered under the name that its client uses. A server that knows its clients in another way has one lease for all
//! clients that it does not distinguish; whichever of them holds the address has it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};

use leasehold_core::effect::{BindingState, ExchangeId, Failure, Row};
use leasehold_core::event::{Event, EventKind};
use leasehold_core::identity::ClientId;
use leasehold_core::record::{Record, RecordState};
use leasehold_core::source::Lease;
use leasehold_core::wire::Mac;
use netns_fixtures::model::{ClientKey, Kind, Knows, Message, Purpose, code};

use super::actor::Actor;
use super::seen::Seen;
use super::{Micros, World};
use crate::subject::{granted, key_of, message_of};
use crate::watch::Rule;

/// A lease as its server knows it: LAN, server identifier, address, client.
pub(super) type Grant = (usize, Ipv4Addr, Ipv4Addr, ClientKey);

/// Why a lease may stay at a server though nobody holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Excuse {
    /// Its RELEASE or DECLINE did not reach the server.
    ReleaseLost,
    /// It was granted to a REQUEST that was late: its client had gone on.
    GrantedLate,
    /// Its client looked for another lease, and never learned of this one.
    LeftBehind,
    /// The daemon died before it could record the lease.
    DiedUnwritten,
    /// The store was lost.
    StoreLost,
    /// It is not given back, because another station has its address or because it was kept until its end.
    LeftToEnd,
    /// After a reboot the wall clock said that the lease had ended.
    WallClock,
}

/// The xid under which a client speaks, and the server that it names.
pub(super) type Said = (u32, Option<Ipv4Addr>);

/// A server's latest answer to a REQUEST that names no server (INIT-REBOOT, REBINDING).
#[derive(Clone, Copy, Debug)]
pub(super) struct Unnamed {
    xid: u32,
    /// Whether another server granted it the same address. Its client has the lease of one server, and gives back only that one.
    by_another: bool,
}

/// The relevant messages of clients and servers.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    /// How a client speaks; `None` once it has given back or ended.
    pub(super) speaking: BTreeMap<(usize, ClientKey), Option<Said>>,
    /// When somebody last claimed an address by ARP.
    pub(super) claimed: BTreeMap<(usize, Ipv4Addr, Mac), Micros>,
    /// When an address was last declined by its client.
    pub(super) declined: BTreeMap<(usize, Ipv4Addr), Micros>,
    /// Leases that may stay at their server though nobody holds them.
    pub(super) left: BTreeMap<Grant, Excuse>,
    /// What servers offered although another holder has it.
    pub(super) anothers: BTreeSet<Grant>,
    /// Clients that a server said NAK to through a relay. It may have granted what another relay forwarded.
    pub(super) refused_by_relay: BTreeSet<(usize, ClientKey)>,
    /// Leases that servers granted to REQUESTs that named no server.
    pub(super) unnamed: BTreeMap<Grant, Unnamed>,
    /// When a client's hold of an address ends at its server.
    pub(super) granted: BTreeMap<(usize, Ipv4Addr, Option<ClientKey>), Option<Micros>>,
    /// The xid of each client's last REQUEST, and when the first REQUEST with that xid was sent: a lease counts from then.
    pub(super) latest: BTreeMap<(usize, ClientKey), (Said, Micros)>,
    /// When a client was last offered or granted an address.
    pub(super) offered: BTreeMap<(usize, Ipv4Addr, ClientKey), Micros>,
    /// The same as `granted`, but as the client knows it from the ACKs to its last REQUEST.
    pub(super) heard: BTreeMap<(usize, Ipv4Addr, Option<ClientKey>), Option<Micros>>,
}

impl Excuse {
    fn name(self) -> &'static str {
        match self {
            Self::ReleaseLost => "left at a server: RELEASE lost",
            Self::GrantedLate => "left at a server: granted late",
            Self::LeftBehind => "left at a server: left behind",
            Self::DiedUnwritten => "left at a server: died unwritten",
            Self::StoreLost => "left at a server: store lost",
            Self::LeftToEnd => "left at a server: left to end",
            Self::WallClock => "left at a server: wall clock",
        }
    }
}

impl World {
    /// Records a message that a client sends. `strays` means that nobody has the Ethernet address that it goes to.
    pub(super) fn client_spoke(&mut self, lan: usize, message: &Message, strays: bool) {
        let (key, kind) = (message.key(), message.kind());
        let named = message.address(code::SERVER);
        let said =
            matches!(kind, Some(Kind::Discover | Kind::Request)).then_some((message.xid, named));
        self.ledger.speaking.insert((lan, key.clone()), said);
        match kind {
            Some(Kind::Release) if !self.winding_down || strays => {
                if let Some(server) = message.address(code::SERVER) {
                    self.ledger
                        .left
                        .insert((lan, server, message.ciaddr, key), Excuse::ReleaseLost);
                }
            }
            Some(Kind::Decline) => {
                if let Some(address) = message.address(code::REQUESTED) {
                    let who = (lan, Mac(message.hardware()), key.clone());
                    self.show(&Seen::Declines(&who, address));
                    self.ledger.declined.insert((lan, address), self.now);
                    self.excuse(lan, address, "declined by its client");
                }
                let declined = named.zip(message.address(code::REQUESTED));
                if let Some((server, address)) = declined.filter(|_| !self.winding_down) {
                    self.ledger
                        .left
                        .insert((lan, server, address, key), Excuse::ReleaseLost);
                }
            }
            Some(Kind::Discover) => {
                let mut left = self.grants(|l, _, k| l == lan && *k == key);
                left.retain(|grant| !self.is_anothers(grant));
                self.ledger
                    .left
                    .extend(left.into_iter().map(|grant| (grant, Excuse::LeftBehind)));
            }
            // What another server was asked for before, and granted, without an answer that was heard.
            Some(Kind::Request) if let Some(named) = named => {
                let mut left = self.grants(|l, _, k| l == lan && *k == key);
                left.retain(|grant| grant.1 != named && !self.is_anothers(grant));
                self.ledger
                    .left
                    .extend(left.into_iter().map(|grant| (grant, Excuse::LeftBehind)));
            }
            _ => {}
        }
    }

    /// Handles that an ADD failed because of an address in use. An address that may not be declined stays at its server. So does what it
    /// had asked another server for before, without an answer that it heard: it never asked for the second address, and could say
    /// nothing of the first (seed 8,213,138).
    pub(super) fn gave_up(&mut self, index: usize, failure: &Failure) {
        if let Failure::NotDeclined { address, .. } = failure {
            let who = (self.actors[index].lan, self.actors[index].client_key());
            let left =
                self.grants(|lan, other, key| who == (lan, key.clone()) && other == *address);
            let left = left.into_iter().map(|grant| (grant, Excuse::LeftToEnd));
            self.ledger.left.extend(left);
        }
        let Failure::Conflict { address, .. } = failure else {
            return;
        };
        let who = (self.actors[index].lan, self.actors[index].client_key());
        if self.plan.loss > 0 {
            let mut left =
                self.grants(|lan, other, key| who == (lan, key.clone()) && other != *address);
            left.retain(|grant| !self.is_anothers(grant));
            let left = left.into_iter().map(|grant| (grant, Excuse::LeftBehind));
            self.ledger.left.extend(left);
        }
    }

    /// Handles a RELEASE that did not leave, as its client is told: it excuses nothing.
    pub(super) fn not_spoken(&mut self, exchange: ExchangeId, frame: &[u8]) {
        let Some((sock, message)) = self.socks.get(&exchange).zip(message_of(frame)) else {
            return;
        };
        if let Some(server) = message.address(code::SERVER) {
            self.stats.count("RELEASEs refused by a link");
            self.ledger
                .left
                .remove(&(sock.lan, server, message.ciaddr, message.key()));
        }
    }

    /// Records what may not be given back: a declined lease, whose link may have gone by then, and an address that another holder
    /// of the daemon's has.
    pub(super) fn note_unreturned(&mut self, events: &[Event]) {
        let mut excused = Vec::new();
        for event in events {
            let actor = self
                .actors
                .iter()
                .find(|actor| actor.attachment == event.attachment);
            let (Some(actor), Some(net), Some(IpAddr::V4(server))) =
                (actor, event.v4(), event.server)
            else {
                continue;
            };
            let grant = (actor.lan, server, net.addr(), actor.client_key());
            match event.kind {
                EventKind::Declined => _ = self.ledger.left.insert(grant, Excuse::ReleaseLost),
                EventKind::Lost if event.cause.contains("no DECLINE") => {
                    let client = (actor.lan, actor.client_key());
                    self.ledger.speaking.insert(client, None);
                    _ = self.ledger.left.insert(grant, Excuse::LeftToEnd);
                    excused.push((actor.lan, net.addr()));
                }
                EventKind::AddressHeld => _ = self.ledger.anothers.insert(grant),
                _ => {}
            }
        }
        for (lan, address) in excused {
            self.excuse(lan, address, "in use, and not declined");
        }
    }

    /// Handles a DECLINE that reaches its server. Nobody answers it: if its client's next REQUEST overtook it and got the same
    /// address again, the DECLINE ends that lease.
    pub(super) fn end_by_late_decline(&mut self, lan: usize, address: Ipv4Addr) {
        let Some(sent) = self.ledger.declined.get(&(lan, address)).copied() else {
            return;
        };
        let since = |lease: &Lease| lease.ip() == address && self.world_time(lease.start) >= sent;
        let is_held = |actor: &Actor| actor.lan == lan && actor.told.as_ref().is_some_and(since);
        if self.actors.iter().any(is_held) {
            self.excuse(lan, address, "ended by a late DECLINE");
        }
    }

    /// Handles a message that a server took, as it should.
    pub(super) fn server_took(&mut self, lan: usize, station: usize, message: &Message) {
        let server = self.server_id(lan, station);
        let returned = match message.kind() {
            Some(Kind::Release) => Some(message.ciaddr),
            Some(Kind::Decline) => message.address(code::REQUESTED),
            _ => None,
        };
        if let Some(address) = returned.filter(|_| message.address(code::SERVER) == Some(server)) {
            let grant = (lan, server, address, message.key());
            if self.ledger.left.get(&grant) == Some(&Excuse::ReleaseLost) {
                self.ledger.left.remove(&grant);
            }
        }
    }

    /// Records that a server granted something.
    pub(super) fn server_granted(&mut self, grant: Grant, xid: u32, purpose: Purpose) {
        let (lan, server, _, key) = &grant;
        let said = self
            .ledger
            .speaking
            .get(&(*lan, key.clone()))
            .copied()
            .flatten();
        let current = said
            .is_some_and(|(said, named)| said == xid && named.is_none_or(|named| named == *server));
        if current {
            if matches!(purpose, Purpose::Reboot | Purpose::Rebind) {
                // The client asked whoever answers, and goes on with that server: at no other is the address given back now.
                let (lan, server, address, key) = &grant;
                let others = self.grants(|l, a, k| (l, a, k) == (*lan, *address, key));
                let others = others.into_iter().filter(|(_, other, ..)| other != server);
                self.ledger
                    .left
                    .extend(others.map(|other| (other, Excuse::LeftBehind)));
            }
            // A server has one lease of an address.
            let (lan, server, address, _) = &grant;
            self.ledger
                .left
                .retain(|(l, s, a, _), _| (l, s, a) != (lan, server, address));
            self.took_in(grant, xid, purpose);
        } else if matches!(purpose, Purpose::Select | Purpose::Reboot)
            && !self.is_written(&grant, &[RecordState::Seeking, RecordState::Releasing])
        {
            self.ledger.left.insert(grant, Excuse::GrantedLate);
        }
    }

    /// Records whether another server also granted a client's REQUEST that a server has granted.
    fn took_in(&mut self, grant: Grant, xid: u32, purpose: Purpose) {
        if !matches!(purpose, Purpose::Reboot | Purpose::Rebind) {
            self.ledger.unnamed.remove(&grant);
            return;
        }
        let mut by_another = false;
        for (_, other) in self
            .ledger
            .unnamed
            .iter_mut()
            .filter(|(of, other)| is_twin(of, &grant) && other.xid == xid)
        {
            (other.by_another, by_another) = (true, true);
        }
        self.ledger
            .unnamed
            .insert(grant, Unnamed { xid, by_another });
    }

    pub(super) fn server_id(&self, lan: usize, station: usize) -> Ipv4Addr {
        let server = self.segments[lan].stations[station].server();
        server.map_or(Ipv4Addr::UNSPECIFIED, |server| server.config().id)
    }

    /// Returns the leases that servers may ever have granted to a client.
    fn grants(&self, which: impl Fn(usize, Ipv4Addr, &ClientKey) -> bool) -> Vec<Grant> {
        let known = self
            .ledger
            .granted
            .keys()
            .filter_map(|(lan, address, key)| Some((*lan, *address, key.as_ref()?)));
        let known = known.filter(|(lan, address, key)| which(*lan, *address, key));
        let servers = |lan: usize| {
            (0..self.segments[lan].honest().len()).map(move |station| self.server_id(lan, station))
        };
        known
            .flat_map(|(lan, address, key)| {
                servers(lan).map(move |id| (lan, id, address, key.clone()))
            })
            .collect()
    }

    /// Returns how servers identify a client of this name.
    pub(super) fn known_as(&self, client_id: &ClientId, mac: Mac) -> ClientKey {
        self.plan.knows.key(key_of(client_id), mac.0)
    }

    /// Returns whether the server has since granted the address to another client.
    fn is_anothers(&self, (lan, server, address, client): &Grant) -> bool {
        let mut servers = self.segments[*lan]
            .honest()
            .iter()
            .filter_map(|station| station.server());
        let lease = servers
            .find(|other| other.config().id == *server)
            .and_then(|s| s.lease(self.model_time(), *address));
        lease.is_some_and(|lease| lease.name != *client)
    }

    /// Returns why a lease may stay at a server, for any of the clients that the server does not distinguish.
    fn excuse_of(&self, grant: &Grant) -> Option<Excuse> {
        let (lan, server, address, _) = grant;
        let mut of_address = self
            .ledger
            .left
            .iter()
            .filter(|((l, s, a, _), _)| (l, s, a) == (lan, server, address));
        match self.plan.knows {
            Knows::ClientId => self.ledger.left.get(grant).copied(),
            Knows::Chaddr | Knows::Nothing => of_address.next().map(|(_, excuse)| *excuse),
        }
    }

    /// Returns whether there is a durable record of a client's lease, other than in some states.
    fn is_written(&self, (_, server, address, key): &Grant, but: &[RecordState]) -> bool {
        let of_client = |record: &Record| {
            let lease = &record.lease;
            let is_its = (key_of(&record.identity.client_id), lease.server, lease.ip())
                == (key.clone(), *server, *address);
            is_its && !but.contains(&record.state)
        };
        self.store.durable.values().any(of_client)
    }

    /// Excuses all leases that are granted now, or only those that are not recorded.
    pub(super) fn leave_all(&mut self, excuse: Excuse, unwritten_only: bool) {
        let mut left = self.grants(|_, _, _| true);
        left.retain(|grant| !unwritten_only || !self.is_written(grant, &[RecordState::Seeking]));
        self.ledger
            .left
            .extend(left.into_iter().map(|grant| (grant, excuse)));
        // Messages still on their way belong to nobody any more.
        if unwritten_only {
            self.ledger
                .speaking
                .values_mut()
                .for_each(|said| *said = None);
        }
    }

    /// Finds leases at servers that nobody holds.
    pub(super) fn examine_servers(&mut self, rows: &[Row]) {
        let now = self.model_time();
        let mut found = Vec::new();
        for (lan, segment) in self.segments.iter().enumerate() {
            for server in segment
                .honest()
                .iter()
                .filter_map(|station| station.server())
            {
                for (address, lease) in server.leases(now) {
                    let holds = |row: &&Row| {
                        let by = row
                            .identity
                            .as_ref()
                            .map(|by| self.known_as(&by.client_id, by.chaddr));
                        let held = row
                            .tenure
                            .as_ref()
                            .and_then(|tenure| granted(std::slice::from_ref(tenure)));
                        by == Some(lease.client.clone())
                            && held == Some((address, server.config().id))
                    };
                    if !rows.iter().any(|row| holds(&row)) {
                        found.push((lan, server.config().id, address, lease.name.clone()));
                    }
                }
            }
        }
        let excuses = found
            .iter()
            .map(|grant| self.excuse_of(grant))
            .collect::<Vec<_>>();
        excuses
            .iter()
            .flatten()
            .for_each(|excuse| self.stats.count(excuse.name()));
        let mut excuses = excuses.into_iter();
        found.retain(|_| excuses.next().flatten().is_none());
        for grant in &found {
            let by_another = self
                .ledger
                .unnamed
                .get(grant)
                .is_some_and(|answer| answer.by_another);
            // One of the two is held, or was given back.
            if by_another && !found.iter().any(|other| is_twin(other, grant)) {
                self.stats.count("left at a server: granted by another too");
                continue;
            }
            if self.ledger.anothers.contains(grant) {
                self.stats
                    .count("left at a server: another holder had the address");
                continue;
            }
            let (lan, server, address, client) = grant;
            if self
                .ledger
                .refused_by_relay
                .contains(&(*lan, client.clone()))
            {
                self.stats
                    .count("left at a server: refused through another relay");
                continue;
            }
            // Servers that share a pool without knowing each other: nothing is given back while another client has it.
            let of_another = |(l, a, key): &(usize, Ipv4Addr, Option<ClientKey>)| {
                (l, a) == (lan, address) && key.as_ref().is_some_and(|key| key != client)
            };
            if self.segments[*lan].honest().len() > 1 && self.ledger.granted.keys().any(of_another)
            {
                self.stats
                    .count("left at a server: another server's client has the address");
                continue;
            }
            self.fail(
                Rule::Stranded,
                format!("server {server} of LAN {lan} keeps {address} for {client:?}"),
            );
        }
    }
}

/// Returns whether a binding is being released, or kept in case its container returns.
pub(super) fn is_leaving(row: &Row) -> bool {
    matches!(row.state, BindingState::Kept | BindingState::Releasing)
}

/// Returns whether two servers granted one address of a LAN to one client.
fn is_twin((lan, server, address, client): &Grant, other: &Grant) -> bool {
    (lan, address, client) == (&other.0, &other.2, &other.3) && *server != other.1
}
