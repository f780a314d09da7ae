//! Just enough parsing to say what a capture saw: Ethernet, ARP, IPv4, UDP, DHCP.

use std::fmt;
use std::net::Ipv4Addr;

use crate::link::{Mac, mac_text};
use crate::model::Kind;

/// A DHCP message with its headers.
#[derive(Clone, Debug)]
pub struct Dhcp {
    /// Ethernet source.
    pub eth_source: Mac,
    /// Ethernet destination.
    pub eth_destination: Mac,
    /// IP source.
    pub source: Ipv4Addr,
    /// IP destination.
    pub destination: Ipv4Addr,
    /// UDP source port.
    pub source_port: u16,
    /// UDP destination port.
    pub destination_port: u16,
    /// What it is (53).
    pub kind: Kind,
    /// The transaction.
    pub xid: u32,
    /// The client's address (ciaddr).
    pub ciaddr: Ipv4Addr,
    /// The address that the server gives (yiaddr).
    pub yiaddr: Ipv4Addr,
    /// The client's hardware address.
    pub chaddr: Mac,
    /// The options, in order.
    options: Vec<(u8, Vec<u8>)>,
}

/// An ARP message for IPv4 over Ethernet (RFC 826).
#[derive(Clone, Debug)]
pub struct Arp {
    /// Whether it asks.
    pub request: bool,
    /// Sender hardware address.
    pub sender_mac: Mac,
    /// Sender protocol address.
    pub sender: Ipv4Addr,
    /// Target protocol address.
    pub target: Ipv4Addr,
}

/// What a frame is, as far as this crate knows.
#[derive(Clone, Debug)]
pub enum Packet {
    /// DHCP for IPv4.
    Dhcp(Dhcp),
    /// ARP.
    Arp(Arp),
    /// Anything else, by its EtherType.
    Other(u16),
}

impl Packet {
    /// Reads a frame, from its Ethernet header on; `None` if it is cut short.
    pub fn parse(frame: &[u8]) -> Option<Self> {
        let ethertype = be16(frame, 12)?;
        let payload = &frame[14..];
        let known = match ethertype {
            0x0806 => parse_arp(payload).map(Self::Arp),
            0x0800 => parse_dhcp(array(frame, 0)?, array(frame, 6)?, payload).map(Self::Dhcp),
            _ => None,
        };
        Some(known.unwrap_or(Self::Other(ethertype)))
    }

    /// Returns the DHCP message, if it is one.
    pub fn dhcp(&self) -> Option<&Dhcp> {
        match self {
            Self::Dhcp(message) => Some(message),
            Self::Arp(_) | Self::Other(_) => None,
        }
    }
}

impl Dhcp {
    /// Returns an option's value, with its parts joined (RFC 3396).
    pub fn option(&self, code: u8) -> Option<Vec<u8>> {
        let parts: Vec<_> = self
            .options
            .iter()
            .filter(|(c, _)| *c == code)
            .map(|(_, value)| &value[..])
            .collect();
        (!parts.is_empty()).then(|| parts.concat())
    }

    /// Returns an option that is one address.
    pub fn address_option(&self, code: u8) -> Option<Ipv4Addr> {
        let bytes: [u8; 4] = self.option(code)?.try_into().ok()?;
        Some(bytes.into())
    }

    /// Returns whether it went to only one machine, by IP and by Ethernet.
    pub fn is_unicast(&self) -> bool {
        !self.destination.is_broadcast() && self.eth_destination[0] & 1 == 0
    }
}

impl fmt::Display for Packet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dhcp(m) => {
                write!(
                    f,
                    "{:?} xid {:08x} {} > {}",
                    m.kind, m.xid, m.source, m.destination
                )?;
                write!(
                    f,
                    " ({} > {})",
                    mac_text(m.eth_source),
                    mac_text(m.eth_destination)
                )?;
                write!(
                    f,
                    " chaddr {} ciaddr {} yiaddr {}",
                    mac_text(m.chaddr),
                    m.ciaddr,
                    m.yiaddr
                )
            }
            Self::Arp(Arp {
                request: true,
                sender,
                target,
                ..
            }) => write!(f, "ARP who has {target}? tell {sender}"),
            Self::Arp(a) => write!(f, "ARP {} is at {}", a.sender, mac_text(a.sender_mac)),
            Self::Other(ethertype) => write!(f, "frame of type {ethertype:#06x}"),
        }
    }
}

fn parse_arp(bytes: &[u8]) -> Option<Arp> {
    Some(Arp {
        request: be16(bytes, 6)? == 1,
        sender_mac: array(bytes, 8)?,
        sender: ip(bytes, 14)?,
        target: ip(bytes, 24)?,
    })
}

fn parse_dhcp(eth_destination: Mac, eth_source: Mac, packet: &[u8]) -> Option<Dhcp> {
    let header = usize::from(packet.first()? & 15) * 4;
    let is_udp = *packet.get(9)? == 17;
    let udp = packet.get(header..)?;
    let (source_port, destination_port) = (be16(udp, 0)?, be16(udp, 2)?);
    let message = udp.get(8..)?;
    if !is_udp
        || ![67, 68].contains(&destination_port)
        || message.get(236..240)? != [99, 130, 83, 99]
    {
        return None;
    }
    let options = parse_options(&message[240..]);
    let (_, kind) = options.iter().find(|(code, _)| *code == 53)?;
    Some(Dhcp {
        eth_source,
        eth_destination,
        source: ip(packet, 12)?,
        destination: ip(packet, 16)?,
        source_port,
        destination_port,
        kind: message_type(*kind.first()?)?,
        xid: u32::from_be_bytes(array(message, 4)?),
        ciaddr: ip(message, 12)?,
        yiaddr: ip(message, 16)?,
        chaddr: array(message, 28)?,
        options,
    })
}

/// Reads options until their end, or until one is cut short.
fn parse_options(mut bytes: &[u8]) -> Vec<(u8, Vec<u8>)> {
    let mut options = Vec::new();
    loop {
        match *bytes {
            [0, ref rest @ ..] => bytes = rest,
            [code, length, ref rest @ ..] if code != 255 && rest.len() >= length.into() => {
                let (value, after) = rest.split_at(length.into());
                options.push((code, value.to_vec()));
                bytes = after;
            }
            _ => return options,
        }
    }
}

fn message_type(code: u8) -> Option<Kind> {
    use Kind::*;
    [Discover, Offer, Request, Decline, Ack, Nak, Release, Inform]
        .get(usize::from(code).checked_sub(1)?)
        .copied()
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at + N)?.try_into().ok()
}

fn be16(bytes: &[u8], at: usize) -> Option<u16> {
    array(bytes, at).map(u16::from_be_bytes)
}

fn ip(bytes: &[u8], at: usize) -> Option<Ipv4Addr> {
    array::<4>(bytes, at).map(Ipv4Addr::from)
}
