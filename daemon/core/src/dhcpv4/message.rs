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
//! The client identifier is in all of them (RFC 2131 §2: a client that uses one uses it in all messages). The broadcast
//! flag is never set: our packet socket hears a unicast answer before the address is configured.

use std::net::Ipv4Addr;

use crate::wire::Mac;
use crate::wire::frame::Udp;
use crate::wire::message::{ClientMessage, MessageType};

/// The options that a client asks for (55), in this order on the wire: 121 before 249 before 3 and 33 (RFC 3442).
pub const REQUEST_LIST: [u8; 16] = [1, 121, 249, 3, 33, 6, 15, 26, 28, 42, 51, 54, 58, 59, 119, 12];

/// The largest DHCP message that a client takes (57): what fits a frame of 1,500 bytes after IP and UDP headers.
const MAX_SIZE: u16 = 1472;

const SERVER_PORT: u16 = 67;
const CLIENT_PORT: u16 = 68;

/// What every message of one client bears, and the messages themselves, as frames.
#[derive(Clone, Debug)]
pub struct Sender {
    /// The client's hardware address: chaddr and Ethernet source.
    pub chaddr: Mac,
    /// The client identifier (61).
    pub client_id: Vec<u8>,
}

/// Where an IP unicast goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hop {
    /// The server.
    pub server: Ipv4Addr,
    /// The Ethernet address of the server or of the router before it; broadcast when it could not be found.
    pub mac: Mac,
}

impl Sender {
    /// Looks for servers (RFC 2131 §4.4.1), asking for the address `wanted` if any.
    pub fn discover(&self, xid: u32, secs: u16, wanted: Option<Ipv4Addr>) -> Vec<u8> {
        let message = ClientMessage { requested: wanted, ..self.asking(MessageType::Discover, xid, secs) };
        self.broadcast(Ipv4Addr::UNSPECIFIED, &message)
    }

    /// Takes an offer (RFC 2131 §4.3.2, SELECTING; §4.4.1 wants the DISCOVER's xid and secs).
    pub fn select(&self, xid: u32, secs: u16, offered: Ipv4Addr, server: Ipv4Addr) -> Vec<u8> {
        let asking = self.asking(MessageType::Request, xid, secs);
        let message = ClientMessage { requested: Some(offered), server_id: Some(server), ..asking };
        self.broadcast(Ipv4Addr::UNSPECIFIED, &message)
    }

    /// Asks whether an address is still this client's (RFC 2131 §4.3.2, INIT-REBOOT).
    pub fn reboot(&self, xid: u32, secs: u16, address: Ipv4Addr) -> Vec<u8> {
        let message = ClientMessage { requested: Some(address), ..self.asking(MessageType::Request, xid, secs) };
        self.broadcast(Ipv4Addr::UNSPECIFIED, &message)
    }

    /// Extends a lease at the server that granted it (RFC 2131 §4.3.2, RENEWING).
    pub fn renew(&self, xid: u32, secs: u16, leased: Ipv4Addr, hop: Hop) -> Vec<u8> {
        let message = ClientMessage { ciaddr: leased, ..self.asking(MessageType::Request, xid, secs) };
        self.unicast(leased, hop, &message)
    }

    /// Extends a lease at any server (RFC 2131 §4.3.2, REBINDING).
    pub fn rebind(&self, xid: u32, secs: u16, leased: Ipv4Addr) -> Vec<u8> {
        let message = ClientMessage { ciaddr: leased, ..self.asking(MessageType::Request, xid, secs) };
        self.broadcast(leased, &message)
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

    /// Refuses an address that somebody else uses (RFC 2131 §4.4.1; broadcast: §4.4.4).
    pub fn decline(&self, xid: u32, address: Ipv4Addr, server: Ipv4Addr) -> Vec<u8> {
        let message = ClientMessage {
            requested: Some(address),
            server_id: Some(server),
            message: Some("address in use"),
            ..self.plain(MessageType::Decline, xid)
        };
        self.broadcast(Ipv4Addr::UNSPECIFIED, &message)
    }

    /// A DISCOVER or REQUEST: it says what the client wants to hear.
    fn asking(&self, kind: MessageType, xid: u32, secs: u16) -> ClientMessage<'_> {
        ClientMessage { secs, request_list: &REQUEST_LIST, max_size: Some(MAX_SIZE), ..self.plain(kind, xid) }
    }

    fn plain(&self, kind: MessageType, xid: u32) -> ClientMessage<'_> {
        ClientMessage {
            kind,
            xid,
            secs: 0,
            broadcast: false,
            ciaddr: Ipv4Addr::UNSPECIFIED,
            chaddr: self.chaddr,
            client_id: &self.client_id,
            requested: None,
            server_id: None,
            request_list: &[],
            max_size: None,
            message: None,
            extra: &[],
        }
    }

    fn broadcast(&self, from: Ipv4Addr, message: &ClientMessage<'_>) -> Vec<u8> {
        self.frame(from, Ipv4Addr::BROADCAST, Mac::BROADCAST, message)
    }

    fn unicast(&self, from: Ipv4Addr, hop: Hop, message: &ClientMessage<'_>) -> Vec<u8> {
        self.frame(from, hop.server, hop.mac, message)
    }

    fn frame(&self, source: Ipv4Addr, destination: Ipv4Addr, mac: Mac, message: &ClientMessage<'_>) -> Vec<u8> {
        Udp {
            source_mac: self.chaddr,
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
