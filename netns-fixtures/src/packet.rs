//! What a capture saw: ARP and DHCP, whose checksums a kernel may not have finished yet.

use std::fmt;
use std::net::Ipv4Addr;
use std::ops::Deref;

use crate::link::{Mac, mac_text};
use crate::model::{Arp, Kind, Message, decode_arp};

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
    /// The client's hardware address.
    pub chaddr: Mac,
    /// All of it.
    message: Message,
}

impl Deref for Dhcp {
    type Target = Message;

    fn deref(&self) -> &Message {
        &self.message
    }
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
            0x0806 => decode_arp(payload).ok().map(Self::Arp),
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

fn parse_dhcp(eth_destination: Mac, eth_source: Mac, packet: &[u8]) -> Option<Dhcp> {
    let header = usize::from(packet.first()? & 15) * 4;
    let is_udp = *packet.get(9)? == 17;
    let udp = packet.get(header..)?;
    let (source_port, destination_port) = (be16(udp, 0)?, be16(udp, 2)?);
    if !is_udp || ![67, 68].contains(&destination_port) {
        return None;
    }
    let message = Message::decode(udp.get(8..)?).ok()?;
    Some(Dhcp {
        eth_source,
        eth_destination,
        source: array::<4>(packet, 12)?.into(),
        destination: array::<4>(packet, 16)?.into(),
        source_port,
        destination_port,
        kind: message.kind()?,
        chaddr: message.hardware(),
        message,
    })
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at + N)?.try_into().ok()
}

fn be16(bytes: &[u8], at: usize) -> Option<u16> {
    array(bytes, at).map(u16::from_be_bytes)
}
