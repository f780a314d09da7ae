//! The messages of a client, as whole frames. Each is one column of RFC 2131 table 5, in one state.
//!
//! | | ciaddr | requested (50) | server (54) | 55, 57 | IP from, to |
//! |---|---|---|---|---|---|
//! | DISCOVER | 0 | may | no | yes | 0, broadcast |
//! | REQUEST in REQUESTING | 0 | yes | yes | yes | 0, broadcast |
//! | REQUEST in REBOOTING | 0 | yes | no | yes | 0, broadcast |
//! | REQUEST in RENEWING | leased | no | no | yes | leased, server |
//! | REQUEST in REBINDING | leased | no | no | yes | leased, broadcast |
//! | RELEASE | leased | no | yes | no | leased, server |
//! | DECLINE | 0 | yes | yes | no | 0, broadcast |
//!
//! The client identifier is in all of them, or in none (RFC 2131 §2: a client that uses one uses it in all messages). DISCOVER and REQUEST
//! also bear what the profile says. The profile sets the broadcast flag: our packet socket hears a unicast answer before the
//! address is configured. It does not hear answers to a chaddr that the interface no longer has, so in that case the flag is
//! set too. Kea nevertheless answers to the Ethernet source, so every second unanswered try then leaves from the interface's
//! own address. Some servers and networks lose answers to a station without an address: after two unanswered messages, a
//! client that asks for a lease sets the flag, and keeps it if that helped.

use std::net::Ipv4Addr;
use std::sync::Arc;

use super::profile::ClientProfile;
use crate::identity::ClientId;
use crate::wire::Mac;
use crate::wire::frame::Udp;
use crate::wire::message::{ClientMessage, MessageType};
use crate::wire::option::{self, REQUEST_LIST, code};

/// How many messages in a row ask for a lease before the broadcast flag is set.
const WITHOUT_FLAG: u8 = 2;

const SERVER_PORT: u16 = 67;
pub(super) const CLIENT_PORT: u16 = 68;

/// What every message of a client bears, and the messages themselves, as frames.
#[derive(Clone, Debug)]
pub struct Sender {
    /// The client's hardware address: chaddr, and usually the Ethernet source, because switches with DHCP snooping compare
    /// the two.
    pub chaddr: Mac,
    /// The Ethernet address that ARP gives for the client's address: the same, unless the interface's has changed.
    pub station: Mac,
    /// Whether `station` is the Ethernet source of requests: some servers answer to that, whatever the broadcast flag says.
    by_station: bool,
    /// How many messages in a row have no answer yet. Above [`WITHOUT_FLAG`] the broadcast flag is set; if that helped, the
    /// number stays.
    unanswered: u8,
    /// The client identifier (61), by which the daemon knows the client; the profile says whether servers get it.
    pub client_id: ClientId,
    /// What else the client says and wants.
    pub profile: Arc<ClientProfile>,
}

/// Where an IP unicast goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hop {
    /// The server.
    pub server: Ipv4Addr,
    /// The Ethernet address of the server or of the router to it; broadcast if it was not found.
    pub mac: Mac,
}

impl Sender {
    /// Returns the sender of a client's messages.
    pub fn new(chaddr: Mac, client_id: &ClientId, profile: Arc<ClientProfile>) -> Self {
        let client_id = client_id.clone();
        Self {
            chaddr,
            station: chaddr,
            by_station: false,
            unanswered: 0,
            client_id,
            profile,
        }
    }

    /// Returns the sender of a client whose interface has got another Ethernet address.
    pub fn from_station(self, station: Mac) -> Self {
        Self { station, ..self }
    }

    /// Returns the client identifier as it is sent; empty: none is.
    pub(super) fn sent_client_id(&self) -> &[u8] {
        match self.profile.without_client_id {
            true => &[],
            false => self.client_id.as_bytes(),
        }
    }

    /// Records that a request is about to be sent, from the other Ethernet address if the last message had no answer.
    pub fn asks(&mut self) {
        self.by_station ^= self.unanswered > 0;
        self.unanswered = self.unanswered.saturating_add(1);
    }

    /// Records that a lease is about to be extended from its address, in the same way; the answer needs no flag.
    pub fn extends(&mut self) {
        self.by_station ^= self.unanswered > 0;
        self.unanswered = self.unanswered.max(1);
    }

    /// Records an answer.
    pub fn is_answered(&mut self) {
        self.unanswered = if self.flag_helped() {
            WITHOUT_FLAG + 1
        } else {
            0
        };
    }

    /// Returns, once there is an answer, whether it came only with the broadcast flag set.
    pub fn flag_helped(&self) -> bool {
        self.is_flagged() && !self.wants_broadcast()
    }

    /// Returns whether the broadcast flag is set because there was no answer without it.
    fn is_flagged(&self) -> bool {
        self.unanswered > WITHOUT_FLAG
    }

    /// Returns whether the broadcast flag is set in every message that asks.
    fn wants_broadcast(&self) -> bool {
        self.profile.broadcast || self.station != self.chaddr
    }

    /// Looks for servers (RFC 2131 §4.4.1), asking for the address `wanted` if any.
    pub fn discover(&self, xid: u32, secs: u16, wanted: Option<Ipv4Addr>) -> Vec<u8> {
        let mut message = ClientMessage {
            requested: wanted,
            ..self.asking(MessageType::Discover, xid, secs)
        };
        if self.profile.rapid_commit {
            message.extra.push((code::RAPID_COMMIT, Vec::new()));
        }
        self.broadcast(Ipv4Addr::UNSPECIFIED, &message)
    }

    /// Takes an offer (RFC 2131 §4.3.2, SELECTING; §4.4.1 wants the DISCOVER's xid and secs).
    pub fn select(&self, xid: u32, secs: u16, offered: Ipv4Addr, server: Ipv4Addr) -> Vec<u8> {
        let message = ClientMessage {
            requested: Some(offered),
            server_id: Some(server),
            ..self.asking(MessageType::Request, xid, secs)
        };
        self.broadcast(Ipv4Addr::UNSPECIFIED, &message)
    }

    /// Asks whether an address is still this client's (RFC 2131 §4.3.2, INIT-REBOOT).
    pub fn reboot(&self, xid: u32, secs: u16, address: Ipv4Addr) -> Vec<u8> {
        let message = ClientMessage {
            requested: Some(address),
            ..self.asking(MessageType::Request, xid, secs)
        };
        self.broadcast(Ipv4Addr::UNSPECIFIED, &message)
    }

    /// Extends a lease at the server that granted it (RFC 2131 §4.3.2, RENEWING).
    pub fn renew(&self, xid: u32, secs: u16, leased: Ipv4Addr, hop: Hop) -> Vec<u8> {
        self.unicast(leased, hop, &self.extending(leased, xid, secs))
    }

    /// Extends a lease at any server (RFC 2131 §4.3.2, REBINDING).
    pub fn rebind(&self, xid: u32, secs: u16, leased: Ipv4Addr) -> Vec<u8> {
        self.broadcast(leased, &self.extending(leased, xid, secs))
    }

    /// Gives a lease back (RFC 2131 §4.4.6).
    pub fn release(&self, xid: u32, leased: Ipv4Addr, hop: Hop) -> Vec<u8> {
        let message = ClientMessage {
            ciaddr: leased,
            server_id: Some(hop.server),
            message: Some("attachment deleted"),
            ..self.plain(MessageType::Release, xid)
        };
        self.unicast(leased, hop, &message)
    }

    /// Refuses an address that another station uses (RFC 2131 §4.4.1; broadcast: §4.4.4).
    pub fn decline(&self, xid: u32, address: Ipv4Addr, server: Ipv4Addr) -> Vec<u8> {
        let message = ClientMessage {
            requested: Some(address),
            server_id: Some(server),
            message: Some("address in use"),
            ..self.plain(MessageType::Decline, xid)
        };
        self.broadcast(Ipv4Addr::UNSPECIFIED, &message)
    }

    /// Returns a DISCOVER or REQUEST, which lists the options that the client wants.
    fn asking(&self, kind: MessageType, xid: u32, secs: u16) -> ClientMessage<'_> {
        let request_list = self.profile.request.as_deref().unwrap_or(REQUEST_LIST);
        let broadcast = self.is_flagged() || self.wants_broadcast();
        ClientMessage {
            secs,
            broadcast,
            request_list,
            max_size: Some(ClientMessage::MAX as u16),
            extra: self.said(),
            ..self.plain(kind, xid)
        }
    }

    /// Returns a REQUEST from the leased address; its answer comes there by unicast whatever the flag says (RFC 2131 §4.1).
    fn extending(&self, leased: Ipv4Addr, xid: u32, secs: u16) -> ClientMessage<'_> {
        let broadcast = self.wants_broadcast();
        ClientMessage {
            ciaddr: leased,
            broadcast,
            ..self.asking(MessageType::Request, xid, secs)
        }
    }

    /// Returns the options that say more about the client.
    fn said(&self) -> Vec<(u8, Vec<u8>)> {
        let profile = &self.profile;
        let text = |code: u8, text: &Option<String>| {
            text.as_ref().map(|text| (code, text.clone().into_bytes()))
        };
        // RFC 3004 §4: each user class is preceded by its length.
        let user_class = profile.user_class.as_ref().map(|class| {
            let class = &class.as_bytes()[..class.len().min(254)];
            (
                code::USER_CLASS,
                std::iter::once(class.len() as u8)
                    .chain(class.iter().copied())
                    .collect(),
            )
        });
        let named = [
            text(code::HOST_NAME, &profile.hostname),
            text(code::VENDOR_CLASS, &profile.vendor_class),
            user_class,
            profile
                .fqdn
                .as_ref()
                .and_then(|name| Some((code::FQDN, option::fqdn(name)?))),
        ];
        named
            .into_iter()
            .flatten()
            .chain(profile.provide.iter().cloned())
            .collect()
    }

    fn plain(&self, kind: MessageType, xid: u32) -> ClientMessage<'_> {
        ClientMessage {
            kind,
            xid,
            secs: 0,
            broadcast: false,
            ciaddr: Ipv4Addr::UNSPECIFIED,
            chaddr: self.chaddr,
            client_id: self.sent_client_id(),
            requested: None,
            server_id: None,
            request_list: &[],
            max_size: None,
            message: None,
            extra: Vec::new(),
        }
    }

    fn broadcast(&self, from: Ipv4Addr, message: &ClientMessage<'_>) -> Vec<u8> {
        self.frame(from, Ipv4Addr::BROADCAST, Mac::BROADCAST, message)
    }

    fn unicast(&self, from: Ipv4Addr, hop: Hop, message: &ClientMessage<'_>) -> Vec<u8> {
        self.frame(from, hop.server, hop.mac, message)
    }

    fn frame(
        &self,
        source: Ipv4Addr,
        destination: Ipv4Addr,
        mac: Mac,
        message: &ClientMessage<'_>,
    ) -> Vec<u8> {
        let asks = matches!(message.kind, MessageType::Discover | MessageType::Request);
        Udp {
            source_mac: if asks && self.by_station {
                self.station
            } else {
                self.chaddr
            },
            destination_mac: mac,
            source,
            destination,
            source_port: CLIENT_PORT,
            destination_port: SERVER_PORT,
            payload: &message.encode(),
        }
        .encode()
    }
}
