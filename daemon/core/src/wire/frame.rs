//! Ethernet frames: UDP over IPv4, and ARP.
//!
//! It does not read UDP payloads, nor decide whether a frame is for us: callers compare ports and addresses. Fragments are
//! refused, not collected: no DHCP server that answers a client on its wire sends them, and a stranger could make collected
//! fragments grow.

use std::net::Ipv4Addr;

use super::Mac;
use super::read::Reader;

#[cfg(test)]
mod tests;

/// What the kernel said about a frame besides its bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FrameMeta {
    /// Whether the frame never was on a wire and its UDP checksum is not finished (`TP_STATUS_CSUMNOTREADY`).
    pub checksum_not_ready: bool,
    /// The VLAN id that the kernel took out of the frame, 0 for none (or a priority tag).
    pub vlan: u16,
    /// Whether the frame was addressed to another host's Ethernet address (`PACKET_OTHERHOST`).
    pub other_host: bool,
    /// Whether the frame was longer than any that is accepted, so that its end is missing.
    pub cut: bool,
}

/// A frame that was understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame<'a> {
    /// A complete UDP datagram.
    Udp(Udp<'a>),
    /// An ARP packet for IPv4 on Ethernet.
    Arp(Arp),
}

/// A UDP datagram with the addresses of all its headers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Udp<'a> {
    /// The Ethernet source. Never a group address when decoded.
    pub source_mac: Mac,
    /// The Ethernet destination.
    pub destination_mac: Mac,
    /// The IPv4 source.
    pub source: Ipv4Addr,
    /// The IPv4 destination.
    pub destination: Ipv4Addr,
    /// The UDP source port.
    pub source_port: u16,
    /// The UDP destination port.
    pub destination_port: u16,
    /// What follows the UDP header, [`Udp::MAX_PAYLOAD`] bytes at most.
    pub payload: &'a [u8],
}

/// Whether an ARP packet asks or answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArpOp {
    /// Who has the target address?
    Request = 1,
    /// The sender has the sender address.
    Reply = 2,
}

/// An ARP packet (RFC 826). Decoding checks its form, not its claims: the sender's Ethernet address need not be the
/// frame's source, nor any address a host's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arp {
    /// Request or reply.
    pub op: ArpOp,
    /// The Ethernet source of the frame. Never a group address when decoded.
    pub source_mac: Mac,
    /// The Ethernet destination of the frame.
    pub destination_mac: Mac,
    /// The Ethernet address that the sender claims.
    pub sender_mac: Mac,
    /// The IPv4 address that the sender claims; 0.0.0.0 in a probe (RFC 5227 §2.1.1).
    pub sender: Ipv4Addr,
    /// The Ethernet address of the target; without meaning in a request.
    pub target_mac: Mac,
    /// The IPv4 address that is asked for.
    pub target: Ipv4Addr,
}

/// Why a frame was refused: the cause, and after a colon the value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, thiserror::Error)]
pub enum BadFrame {
    /// No whole Ethernet header.
    #[error("frame too short for an Ethernet header")]
    TooShort,
    /// Longer than any message for a client.
    #[error("frame too long")]
    TooLong,
    /// The kernel took a VLAN tag out of it.
    #[error("frame of another VLAN: {0}")]
    Vlan(u16),
    /// A tag is in its bytes: 802.1Q, or a second one behind the one that the kernel took out.
    #[error("frame with a VLAN tag inside")]
    Tagged,
    /// Its source is a group address, which no station sends from (IEEE 802.3 §3.2.3).
    #[error("frame from a group address: {0}")]
    GroupSource(Mac),
    /// Neither IPv4 nor ARP.
    #[error("neither IPv4 nor ARP: EtherType {0:#06x}")]
    EtherType(u16),
    /// No whole ARP request or reply for IPv4 on Ethernet.
    #[error("unreadable ARP packet")]
    Arp,
    /// No whole IPv4 header, or one whose version or lengths are impossible.
    #[error("malformed IPv4 header")]
    Ipv4Header,
    /// The IPv4 header checksum is wrong.
    #[error("wrong IPv4 header checksum")]
    Ipv4Checksum,
    /// A fragment of a datagram.
    #[error("IPv4 fragment")]
    Fragment,
    /// A protocol other than UDP.
    #[error("not UDP: IP protocol {0}")]
    Protocol(u8),
    /// No whole UDP header, or an impossible length in it.
    #[error("malformed UDP header")]
    UdpHeader,
    /// The UDP checksum is wrong.
    #[error("wrong UDP checksum")]
    UdpChecksum,
}

const ETHERTYPE_IPV4: u16 = 0x0800;
const ETHERTYPE_ARP: u16 = 0x0806;
/// 802.1Q, 802.1ad, and the stacking tag from before 802.1ad.
const ETHERTYPES_TAG: [u16; 3] = [0x8100, 0x88a8, 0x9100];
const PROTOCOL_UDP: u8 = 17;
/// What an ARP packet begins with (RFC 826): hardware and protocol, and the lengths of their addresses.
const IPV4_OVER_ETHERNET: [u8; 6] = [0, 1, 8, 0, 6, 4];
const IPV4_HEADER: usize = 20;
const UDP_HEADER: usize = 8;

/// DSCP CS6, network control, as systemd-networkd marks DHCP: a congested uplink must not cost a lease. (ISC dhclient's
/// 0x10 is "low delay" of the TOS octet that RFC 2474 replaced.)
const TOS: u8 = 0xc0;
/// The Internet's default (RFC 1700, IP parameters). Relays and unicast to an off-link server need more than 1.
const TTL: u8 = 64;
/// Don't fragment, offset 0, as the kernel's own UDP sockets send. With it the identification may always be 0: a datagram that
/// cannot be fragmented needs none (RFC 6864 §4.1). Ours fit every link that carries DHCP.
const FLAGS_DF: u16 = 0x4000;
const MORE_FRAGMENTS_OR_OFFSET: u16 = 0x3fff;

/// Reads a frame, from its Ethernet header on.
///
/// Whatever follows the IPv4 or ARP packet is padding and ignored; IPv4 options are accepted and skipped.
///
/// Two values of `meta` matter here: an unfinished checksum skips the UDP check, and a VLAN is refused, because it is not the
/// wire that the socket is on. A frame to another host is *not* refused: in a namespace it should be ignored (a promiscuous link
/// shows what others get) unless it goes to an address that the link had before; on a parent link it is the wanted one (the
/// container's own address is not the parent's). So the caller looks at [`FrameMeta::other_host`], or at `destination_mac`.
pub fn decode(bytes: &[u8], meta: FrameMeta) -> Result<Frame<'_>, BadFrame> {
    if meta.vlan != 0 {
        return Err(BadFrame::Vlan(meta.vlan));
    }
    if meta.cut {
        return Err(BadFrame::TooLong);
    }
    let mut reader = Reader(bytes);
    let mut header = || Some((reader.mac()?, reader.mac()?, reader.u16()?));
    let (destination_mac, source_mac, ethertype) = header().ok_or(BadFrame::TooShort)?;
    if source_mac.0[0] & 1 != 0 {
        return Err(BadFrame::GroupSource(source_mac));
    }
    match ethertype {
        ETHERTYPE_IPV4 => {
            let (source, destination, udp) = decode_ipv4(reader.0)?;
            let (source_port, destination_port, payload) =
                decode_udp(udp, source, destination, meta)?;
            Ok(Frame::Udp(Udp {
                source_mac,
                destination_mac,
                source,
                destination,
                source_port,
                destination_port,
                payload,
            }))
        }
        ETHERTYPE_ARP => decode_arp(reader, source_mac, destination_mac).map(Frame::Arp),
        tag if ETHERTYPES_TAG.contains(&tag) => Err(BadFrame::Tagged),
        other => Err(BadFrame::EtherType(other)),
    }
}

/// Returns the Ethernet source of a frame that bears IPv4, readable or not.
pub fn ipv4_source(bytes: &[u8]) -> Option<Mac> {
    let mut reader = Reader(bytes);
    let _ = reader.mac()?;
    let source = reader.mac()?;
    let ethertype = reader.u16()?;
    (ethertype == ETHERTYPE_IPV4).then_some(source)
}

/// Reads an IPv4 packet (RFC 791 §3.1) and drops what follows it. Returns its source, its destination and the UDP in it.
fn decode_ipv4(packet: &[u8]) -> Result<(Ipv4Addr, Ipv4Addr, &[u8]), BadFrame> {
    let fixed = packet.first_chunk::<IPV4_HEADER>();
    let fixed = fixed.ok_or(BadFrame::Ipv4Header)?;
    let word = |at: usize| u16::from_be_bytes([fixed[at], fixed[at + 1]]);
    let header_length = usize::from(fixed[0] & 0x0f) * 4;
    let header = packet.get(..header_length);
    let header = header.filter(|header| fixed[0] >> 4 == 4 && header.len() >= IPV4_HEADER);
    let header = header.ok_or(BadFrame::Ipv4Header)?;
    let udp = packet.get(header_length..usize::from(word(2)));
    let udp = udp.ok_or(BadFrame::Ipv4Header)?;
    if checksum(&[header]) != 0 {
        return Err(BadFrame::Ipv4Checksum);
    }
    if word(6) & MORE_FRAGMENTS_OR_OFFSET != 0 {
        return Err(BadFrame::Fragment);
    }
    if fixed[9] != PROTOCOL_UDP {
        return Err(BadFrame::Protocol(fixed[9]));
    }
    let address =
        |at: usize| Ipv4Addr::from([fixed[at], fixed[at + 1], fixed[at + 2], fixed[at + 3]]);
    Ok((address(12), address(16), udp))
}

/// Reads a UDP datagram (RFC 768): ports and payload. Its length may end it before the IPv4 packet does.
fn decode_udp(
    udp: &[u8],
    source: Ipv4Addr,
    destination: Ipv4Addr,
    meta: FrameMeta,
) -> Result<(u16, u16, &[u8]), BadFrame> {
    let mut reader = Reader(udp);
    let mut header = || Some((reader.u16()?, reader.u16()?, reader.u16()?, reader.u16()?));
    let (source_port, destination_port, length, sum) = header().ok_or(BadFrame::UdpHeader)?;
    let whole = udp.get(..usize::from(length)).ok_or(BadFrame::UdpHeader)?;
    let payload = whole.get(UDP_HEADER..).ok_or(BadFrame::UdpHeader)?;
    let checked = sum != 0 && !meta.checksum_not_ready;
    if checked && checksum(&[&pseudo_header(source, destination, length), whole]) != 0 {
        return Err(BadFrame::UdpChecksum);
    }
    Ok((source_port, destination_port, payload))
}

/// Reads an ARP packet (RFC 826) behind its Ethernet header.
fn decode_arp(
    mut reader: Reader<'_>,
    source_mac: Mac,
    destination_mac: Mac,
) -> Result<Arp, BadFrame> {
    let op = match (reader.array(), reader.u16()) {
        (Some(IPV4_OVER_ETHERNET), Some(1)) => ArpOp::Request,
        (Some(IPV4_OVER_ETHERNET), Some(2)) => ArpOp::Reply,
        _ => return Err(BadFrame::Arp),
    };
    let mut addresses = || Some((reader.mac()?, reader.ipv4()?, reader.mac()?, reader.ipv4()?));
    let (sender_mac, sender, target_mac, target) = addresses().ok_or(BadFrame::Arp)?;
    Ok(Arp {
        op,
        source_mac,
        destination_mac,
        sender_mac,
        sender,
        target_mac,
        target,
    })
}

impl Udp<'_> {
    /// The longest payload that one IPv4 packet holds.
    pub const MAX_PAYLOAD: usize = u16::MAX as usize - IPV4_HEADER - UDP_HEADER;

    /// Returns the frame, with both checksums. Not padded: the device pads short frames.
    ///
    /// # Panics
    /// If the payload is longer than [`Udp::MAX_PAYLOAD`]. No message of ours comes near it.
    pub fn encode(&self) -> Vec<u8> {
        assert!(
            self.payload.len() <= Self::MAX_PAYLOAD,
            "a payload of ours fits one IPv4 packet"
        );
        let udp_length = (UDP_HEADER + self.payload.len()) as u16;
        let mut frame = Vec::with_capacity(14 + IPV4_HEADER + usize::from(udp_length));
        ethernet(
            &mut frame,
            self.source_mac,
            self.destination_mac,
            ETHERTYPE_IPV4,
        );
        frame.extend(ipv4_header(self.source, self.destination, udp_length));
        let start = frame.len();
        for field in [self.source_port, self.destination_port, udp_length, 0] {
            frame.extend(field.to_be_bytes());
        }
        frame.extend(self.payload);
        let sum = checksum(&[
            &pseudo_header(self.source, self.destination, udp_length),
            &frame[start..],
        ]);
        // 0 on the wire means "not computed"; its other form in ones' complement stands for it (RFC 768).
        let sum = if sum == 0 { 0xffff } else { sum };
        frame[start + 6..start + 8].copy_from_slice(&sum.to_be_bytes());
        frame
    }
}

impl Arp {
    /// Returns a broadcast request: who has `target`? With 0.0.0.0 as `sender` it is a probe, with `target` as `sender` an
    /// announcement (RFC 5227 §2.1.1, §2.3).
    pub fn request(sender_mac: Mac, sender: Ipv4Addr, target: Ipv4Addr) -> Self {
        Self {
            op: ArpOp::Request,
            source_mac: sender_mac,
            destination_mac: Mac::BROADCAST,
            sender_mac,
            sender,
            target_mac: Mac::default(),
            target,
        }
    }

    /// Returns the frame, 42 bytes. Not padded.
    pub fn encode(&self) -> Vec<u8> {
        let mut frame = Vec::with_capacity(42);
        ethernet(
            &mut frame,
            self.source_mac,
            self.destination_mac,
            ETHERTYPE_ARP,
        );
        frame.extend(IPV4_OVER_ETHERNET);
        frame.extend((self.op as u16).to_be_bytes());
        frame.extend(self.sender_mac.0);
        frame.extend(self.sender.octets());
        frame.extend(self.target_mac.0);
        frame.extend(self.target.octets());
        frame
    }
}

fn ethernet(frame: &mut Vec<u8>, source: Mac, destination: Mac, ethertype: u16) {
    frame.extend(destination.0);
    frame.extend(source.0);
    frame.extend(ethertype.to_be_bytes());
}

fn ipv4_header(source: Ipv4Addr, destination: Ipv4Addr, udp_length: u16) -> [u8; IPV4_HEADER] {
    let mut header = [0; IPV4_HEADER];
    header[0] = 0x45;
    header[1] = TOS;
    header[2..4].copy_from_slice(&(udp_length + IPV4_HEADER as u16).to_be_bytes());
    header[6..8].copy_from_slice(&FLAGS_DF.to_be_bytes());
    header[8] = TTL;
    header[9] = PROTOCOL_UDP;
    header[12..16].copy_from_slice(&source.octets());
    header[16..20].copy_from_slice(&destination.octets());
    let sum = checksum(&[&header]);
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    header
}

/// Returns what the UDP checksum covers besides the datagram (RFC 768).
fn pseudo_header(source: Ipv4Addr, destination: Ipv4Addr, udp_length: u16) -> [u8; 12] {
    let mut header = [0; 12];
    header[..4].copy_from_slice(&source.octets());
    header[4..8].copy_from_slice(&destination.octets());
    header[9] = PROTOCOL_UDP;
    header[10..].copy_from_slice(&udp_length.to_be_bytes());
    header
}

/// Returns the Internet checksum (RFC 1071) of the parts as if they were one. Only the last may be of odd length.
///
/// For bytes that include their own correct checksum it is 0. Parts of 64 KiB in total cannot overflow the 32 bits.
fn checksum(parts: &[&[u8]]) -> u16 {
    let words = parts.iter().flat_map(|part| part.chunks(2));
    let mut sum: u32 = words
        .map(|word| u32::from(word[0]) << 8 | word.get(1).copied().map_or(0, u32::from))
        .sum();
    while sum > 0xffff {
        sum = (sum >> 16) + (sum & 0xffff);
    }
    !(sum as u16)
}
