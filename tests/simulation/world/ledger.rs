//! What servers have granted, and who is to give it back: no lease stays at a server without a holder, but for these causes.

use std::net::Ipv4Addr;
use std::time::Duration;

use leasehold_core::effect::Row;
use leasehold_core::record::Record;
use netns_fixtures::model::{ClientKey, Kind, Message, Purpose, code};

use super::World;
use crate::watch::Rule;

/// A lease as its server knows it: LAN, address, client.
pub(super) type Grant = (usize, Ipv4Addr, ClientKey);

/// Why a lease may stay at a server though nobody holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Excuse {
    /// Its RELEASE did not reach the server.
    ReleaseLost,
    /// It was granted to a REQUEST that was late: its client had gone on.
    GrantedLate,
    /// Its client looked for another one: it never heard of this.
    LeftBehind,
    /// The daemon died before it could write it down.
    DiedUnwritten,
    /// The store was lost.
    StoreLost,
    /// After a reboot the wall clock said that it had ended.
    WallClock,
}

impl Excuse {
    fn name(self) -> &'static str {
        match self {
            Self::ReleaseLost => "left at a server: RELEASE lost",
            Self::GrantedLate => "left at a server: granted late",
            Self::LeftBehind => "left at a server: left behind",
            Self::DiedUnwritten => "left at a server: died unwritten",
            Self::StoreLost => "left at a server: store lost",
            Self::WallClock => "left at a server: wall clock",
        }
    }
}

impl World {
    /// Takes note of a message that a client sends.
    pub(super) fn client_spoke(&mut self, lan: usize, message: &Message) {
        let (key, kind) = (message.key(), message.kind());
        let xid = matches!(kind, Some(Kind::Discover | Kind::Request)).then_some(message.xid);
        self.speaking.insert((lan, key.clone()), xid);
        match kind {
            Some(Kind::Release) if !self.winding_down => {
                self.left.insert((lan, message.ciaddr, key), Excuse::ReleaseLost);
            }
            Some(Kind::Discover) => {
                let of_client = self.granted.keys().filter(|(l, _, k)| *l == lan && k.as_ref() == Some(&key));
                let left = of_client.map(|(_, address, _)| (lan, *address, key.clone())).collect::<Vec<_>>();
                self.left.extend(left.into_iter().map(|grant| (grant, Excuse::LeftBehind)));
            }
            _ => {}
        }
    }

    /// A server took a message in: one that it was to take.
    pub(super) fn server_took(&mut self, lan: usize, station: usize, message: &Message) {
        let server = self.segments[lan].stations[station].server().map(|server| server.config().id);
        if message.kind() == Some(Kind::Release) && message.address(code::SERVER) == server {
            let grant = (lan, message.ciaddr, message.key());
            if self.left.get(&grant) == Some(&Excuse::ReleaseLost) {
                self.left.remove(&grant);
            }
        }
    }

    /// A server granted something.
    pub(super) fn server_granted(&mut self, grant: Grant, xid: u32, purpose: Purpose) {
        let (lan, address, key) = &grant;
        let current = self.speaking.get(&(*lan, key.clone())) == Some(&Some(xid));
        if current {
            self.left.remove(&grant);
        } else if matches!(purpose, Purpose::Select | Purpose::Reboot) && !self.is_written(*address, key) {
            self.left.insert(grant, Excuse::GrantedLate);
        }
    }

    /// Tells whether a record of a client's lease is durable.
    fn is_written(&self, address: Ipv4Addr, key: &ClientKey) -> bool {
        let of_client = |record: &Record| {
            *key == ClientKey::Id(record.identity.client_id.as_bytes().to_vec()) && record.lease.ip() == address
        };
        self.store.durable.values().any(of_client)
    }

    /// Excuses all leases that are granted now, or those that are not written down.
    pub(super) fn leave_all(&mut self, excuse: Excuse, unwritten_only: bool) {
        let grants = self.granted.keys().filter_map(|(lan, address, key)| Some((*lan, *address, key.clone()?)));
        let left = grants.filter(|(_, address, key)| !unwritten_only || !self.is_written(*address, key));
        let left = left.map(|grant| (grant, excuse)).collect::<Vec<_>>();
        self.left.extend(left);
        // What is still on its way is nobody's any more.
        if unwritten_only {
            self.speaking.values_mut().for_each(|xid| *xid = None);
        }
    }

    /// Finds leases at servers that nobody holds.
    pub(super) fn examine_servers(&mut self, rows: &[Row]) {
        let now = self.model_time();
        let mut found = Vec::new();
        for (lan, segment) in self.segments.iter().enumerate() {
            for (nth, server) in segment.honest().iter().filter_map(|station| station.server()).enumerate() {
                for (address, lease) in server.leases(now) {
                    let ClientKey::Id(id) = &lease.client else { continue };
                    let holds = |row: &&Row| {
                        row.identity.client_id.as_bytes() == id
                            && row.lease.as_ref().is_some_and(|held| held.ip() == address)
                    };
                    if !rows.iter().any(|row| holds(&row)) {
                        found.push((nth, (lan, address, lease.client.clone())));
                    }
                }
            }
        }
        for (nth, grant) in found {
            match self.left.get(&grant) {
                Some(excuse) => self.stats.count(excuse.name()),
                None => {
                    let (lan, address, client) = grant;
                    self.fail(Rule::Stranded, format!("server {lan}.{nth} keeps {address} for {client:?}"));
                }
            }
        }
    }

    /// No two attachments of a LAN hold one address, unless servers gave it twice.
    pub(super) fn examine_shared(&mut self, rows: &[Row]) {
        let held = |row: &&Row| row.state != "RELEASING" && row.expires != Some(Duration::ZERO);
        let held = rows.iter().filter(held).filter_map(|row| Some((row, row.lease.as_ref()?.ip())));
        let held = held.collect::<Vec<_>>();
        for (at, (row, address)) in held.iter().enumerate() {
            let others = held[at + 1..].iter();
            for (other, _) in others.filter(|(o, a)| a == address && o.identity.lan == row.identity.lan) {
                let lan = self.segments.iter().position(|segment| segment.lan == row.identity.lan).unwrap_or(0);
                let given = |row: &Row| {
                    let key = ClientKey::Id(row.identity.client_id.as_bytes().to_vec());
                    let until = self.granted.get(&(lan, *address, Some(key)));
                    until.is_some_and(|until| until.is_none_or(|until| until > self.now))
                };
                if given(row) && given(other) {
                    self.stats.count("addresses that were given twice");
                } else {
                    let detail = format!("{} and {} both hold {address}", row.attachment, other.attachment);
                    return self.fail(Rule::Twice, detail);
                }
            }
        }
    }
}
