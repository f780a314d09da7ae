//! DHCP messages (RFC 2131 §2): reading a server's, writing a client's.
//!
//! It does not know which message may be sent when, nor which reply is believed.

use std::collections::BTreeMap;
use std::fmt;
use std::net::Ipv4Addr;

use super::Mac;
use super::option::{Fields, MAX_TEXT, Options, code};
use super::read::Reader;

#[cfg(test)]
mod tests;

/// What a message is (option 53).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MessageType {
    /// Client to all servers: who has an address for me?
    Discover = 1,
    /// Server: this one.
    Offer = 2,
    /// Client: that one please, or still that one.
    Request = 3,
    /// Client: that address is in use.
    Decline = 4,
    /// Server: it is yours.
    Ack = 5,
    /// Server: it is not, begin again.
    Nak = 6,
    /// Client: have it back.
    Release = 7,
}

impl fmt::Display for MessageType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Discover => "DISCOVER",
            Self::Offer => "OFFER",
            Self::Request => "REQUEST",
            Self::Decline => "DECLINE",
            Self::Ack => "ACK",
            Self::Nak => "NAK",
            Self::Release => "RELEASE",
        })
    }
}

/// A server's message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Offer, Ack or Nak.
    pub kind: MessageType,
    /// The transaction that it answers.
    pub xid: u32,
    /// The address that is offered or granted. Any value: its user checks it.
    pub yiaddr: Ipv4Addr,
    /// The relay that it went through.
    pub giaddr: Ipv4Addr,
    /// The client's hardware address.
    pub chaddr: Mac,
    /// Its options.
    pub options: Options,
}

/// Why bytes are not a server's message to a client on Ethernet: the cause, and after a colon the value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, thiserror::Error)]
pub enum BadMessage {
    /// No whole header with its cookie.
    #[error("DHCP message too short")]
    TooShort,
    /// A client's message, or neither side's.
    #[error("not a reply: op {0}")]
    NotAReply(u8),
    /// A hardware address other than Ethernet's.
    #[error("hardware address other than Ethernet's")]
    Hardware,
    /// BOOTP without DHCP, or something else.
    #[error("no DHCP magic cookie")]
    Cookie,
    /// Option 53 is absent or not one byte long.
    #[error("message type missing")]
    NoMessageType,
    /// A type that no server sends to a client of RFC 2131 alone.
    #[error("message type that no server sends: {0}")]
    MessageType(u8),
}

const BOOT_REQUEST: u8 = 1;
const BOOT_REPLY: u8 = 2;
const ETHERNET: u8 = 1;
const ETHERNET_LENGTH: u8 = 6;
const BROADCAST: u16 = 0x8000;
const COOKIE: [u8; 4] = [99, 130, 83, 99];
/// The length from op to the cookie, in bytes.
const HEADER: usize = 240;

impl Message {
    /// Returns every option of a message as it was sent, by its code: for people. Empty if it is too short to have any.
    pub fn options_as_sent(bytes: &[u8]) -> BTreeMap<u8, Vec<u8>> {
        let fields = split(bytes)
            .map(|(header, options)| Fields::as_sent(options, header.file, header.sname));
        fields.unwrap_or_default()
    }

    /// Reads a server's message, a UDP payload.
    pub fn decode(bytes: &[u8]) -> Result<Self, BadMessage> {
        let (header, options) = split(bytes).ok_or(BadMessage::TooShort)?;
        match (header.op, header.htype, header.hlen, header.cookie) {
            (BOOT_REPLY, ETHERNET, ETHERNET_LENGTH, COOKIE) => {}
            (BOOT_REPLY, ETHERNET, ETHERNET_LENGTH, _) => return Err(BadMessage::Cookie),
            (BOOT_REPLY, ..) => return Err(BadMessage::Hardware),
            (op, _, _, _) => return Err(BadMessage::NotAReply(op)),
        }
        let fields = Fields::split(options, header.file, header.sname);
        let byte = fields.message_type().ok_or(BadMessage::NoMessageType)?;
        let from_servers = [MessageType::Offer, MessageType::Ack, MessageType::Nak];
        let kind = from_servers.into_iter().find(|kind| *kind as u8 == byte);
        let kind = kind.ok_or(BadMessage::MessageType(byte))?;
        Ok(Self {
            kind,
            xid: header.xid,
            yiaddr: header.yiaddr,
            giaddr: header.giaddr,
            chaddr: header.chaddr,
            options: Options::read(fields),
        })
    }
}

fn split(bytes: &[u8]) -> Option<(Header<'_>, &[u8])> {
    let (header, options) = bytes.split_at_checked(HEADER)?;
    Some((Header::read(header)?, options))
}

/// The fixed part of a message (RFC 2131 §2, figure 1), as far as somebody reads it.
struct Header<'a> {
    op: u8,
    htype: u8,
    hlen: u8,
    xid: u32,
    yiaddr: Ipv4Addr,
    giaddr: Ipv4Addr,
    chaddr: Mac,
    sname: &'a [u8],
    file: &'a [u8],
    cookie: [u8; 4],
}

impl<'a> Header<'a> {
    fn read(bytes: &'a [u8]) -> Option<Self> {
        let mut r = Reader(bytes);
        let [op, htype, hlen, _hops] = r.array()?;
        let xid = r.u32()?;
        // Secs, flags and ciaddr.
        r.slice(8)?;
        let yiaddr = r.ipv4()?;
        // Siaddr.
        r.slice(4)?;
        let (giaddr, chaddr) = (r.ipv4()?, r.mac()?);
        r.slice(10)?;
        Some(Self {
            op,
            htype,
            hlen,
            xid,
            yiaddr,
            giaddr,
            chaddr,
            sname: r.slice(64)?,
            file: r.slice(128)?,
            cookie: r.array()?,
        })
    }
}

/// A client's message. It does not know which fields a message of its kind must bear (RFC 2131, table 5): its maker does.
#[derive(Clone, Debug)]
pub struct ClientMessage<'a> {
    /// What it is.
    pub kind: MessageType,
    /// The transaction that it begins or continues.
    pub xid: u32,
    /// Seconds since the client began.
    pub secs: u16,
    /// Whether replies should go to 255.255.255.255.
    pub broadcast: bool,
    /// The client's address, when it can answer ARP for it; else 0.0.0.0.
    pub ciaddr: Ipv4Addr,
    /// The client's hardware address.
    pub chaddr: Mac,
    /// Client identifier (61), 255 bytes at most; empty: absent.
    pub client_id: &'a [u8],
    /// Requested address (50).
    pub requested: Option<Ipv4Addr>,
    /// Server identifier (54).
    pub server_id: Option<Ipv4Addr>,
    /// Parameter request list (55), 255 codes at most, sent in this order; empty: absent.
    pub request_list: &'a [u8],
    /// The longest message that the client takes (57), in bytes of IPv4 packet.
    pub max_size: Option<u16>,
    /// A message for readers of the server's log (56), cut to 255 bytes; empty: absent.
    pub message: Option<&'a str>,
    /// Further options, as bytes, each code once. An option with a field above cannot be set here, and options that would make
    /// the message longer than [`ClientMessage::MAX`] are left out.
    pub extra: Vec<(u8, Vec<u8>)>,
}

impl ClientMessage<'_> {
    /// The least length: BOOTP's (RFC 951), which old relays and servers insist on.
    pub const MIN: usize = 300;
    /// The greatest length: what an Ethernet frame of 1,500 bytes holds behind the IPv4 and UDP headers.
    pub const MAX: usize = 1472;
    /// The room for further options, each with its two bytes of code and length, even if all of ours are at their longest: four
    /// short ones, three of 255 bytes, the end.
    pub const EXTRA: usize = Self::MAX - HEADER - (3 + 6 + 6 + 4) - 3 * 257 - 1;

    /// Returns the UDP payload, padded to [`ClientMessage::MIN`].
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = self.header();
        self.write_options(&mut bytes);
        bytes.push(code::END);
        bytes.resize(bytes.len().max(Self::MIN), code::PAD);
        bytes
    }

    fn header(&self) -> Vec<u8> {
        let flags = if self.broadcast { BROADCAST } else { 0 };
        let mut bytes = Vec::with_capacity(Self::MIN);
        bytes.extend([BOOT_REQUEST, ETHERNET, ETHERNET_LENGTH, 0]);
        bytes.extend(self.xid.to_be_bytes());
        bytes.extend(self.secs.to_be_bytes());
        bytes.extend(flags.to_be_bytes());
        bytes.extend(self.ciaddr.octets());
        // Servers and relays fill in yiaddr, siaddr and giaddr.
        bytes.extend([0; 12]);
        bytes.extend(self.chaddr.0);
        // The rest of chaddr, sname, file.
        bytes.resize(HEADER - COOKIE.len(), 0);
        bytes.extend(COOKIE);
        bytes
    }

    /// Writes the options. RFC 2131 asks for no order, but some servers do: one provider's server offers but never
    /// acknowledges unless the message type (53) comes first. The options that identify the client and its request follow,
    /// as in most clients.
    fn write_options(&self, bytes: &mut Vec<u8>) {
        let [requested, server_id] =
            [self.requested, self.server_id].map(|address| address.map(|a| a.octets()));
        let kind = [self.kind as u8];
        let max_size = self.max_size.map(u16::to_be_bytes);
        let text = self
            .message
            .map(|text| &text[..text.floor_char_boundary(MAX_TEXT)]);
        let own = [
            (code::MESSAGE_TYPE, &kind[..]),
            (code::CLIENT_ID, self.client_id),
            (code::REQUESTED_ADDRESS, requested.as_slice().as_flattened()),
            (code::SERVER_ID, server_id.as_slice().as_flattened()),
            (code::MAX_MESSAGE_SIZE, max_size.as_slice().as_flattened()),
            (code::PARAMETER_REQUEST_LIST, self.request_list),
            (code::MESSAGE, text.unwrap_or_default().as_bytes()),
        ];
        for (code, value) in own.into_iter().filter(|(_, value)| !value.is_empty()) {
            write_option(bytes, code, &value[..value.len().min(255)]);
        }
        for (code, value) in self.extra() {
            write_option(bytes, code, value);
        }
    }

    /// Returns the further options that may be sent. Except for rapid commit (80), an option without bytes is not sent.
    fn extra(&self) -> impl Iterator<Item = (u8, &[u8])> {
        let mut room = Self::EXTRA;
        self.extra.iter().filter_map(move |(code, value)| {
            if is_own(*code) || (value.is_empty() && *code != code::RAPID_COMMIT) {
                return None;
            }
            let length = value.len() + 2 * value.len().div_ceil(255).max(1);
            room = room.checked_sub(length)?;
            Some((*code, &**value))
        })
    }
}

/// Writes an option, a long one in instances of 255 bytes (RFC 3396 §5).
fn write_option(bytes: &mut Vec<u8>, code: u8, value: &[u8]) {
    let (first, rest) = value.split_at(value.len().min(255));
    for part in std::iter::once(first).chain(rest.chunks(255)) {
        bytes.extend([code, part.len() as u8]);
        bytes.extend(part);
    }
}

/// Returns whether an option belongs to the header, to a field of [`ClientMessage`] or to a relay (82), and so cannot be in
/// `extra`.
pub fn is_own(code: u8) -> bool {
    use code::*;
    matches!(
        code,
        PAD | REQUESTED_ADDRESS
            | OVERLOAD
            | MESSAGE_TYPE
            | SERVER_ID
            | PARAMETER_REQUEST_LIST
            | MESSAGE
            | MAX_MESSAGE_SIZE
            | CLIENT_ID
            | RELAY_AGENT
            | END
    )
}
