//! Ethernet, IPv4, UDP and ARP: whole frames, strictly.

use std::net::{Ipv4Addr, SocketAddrV4};

/// An Ethernet address.
pub type Mac = [u8; 6];

/// The Ethernet broadcast address.
pub const BROADCAST: Mac = [0xff; 6];

/// A parsed frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// The Ethernet source.
    pub source: Mac,
    /// The Ethernet destination.
    pub destination: Mac,
    /// What it carries.
    pub packet: Packet<'a>,
}

/// What a frame carries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Packet<'a> {
    /// A UDP datagram in IPv4.
    Udp {
        /// Its source.
        source: SocketAddrV4,
        /// Its destination.
        destination: SocketAddrV4,
        /// The datagram's bytes.
        payload: &'a [u8],
    },
    /// ARP for IPv4 on Ethernet.
    Arp(Arp),
    /// Anything else, by its EtherType (0x0800: IPv4 that is not UDP).
    Other(u16),
}

/// A received datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram<'a> {
    /// Its bytes.
    pub payload: &'a [u8],
    /// Its source.
    pub source: SocketAddrV4,
    /// Its destination; `None` if the socket cannot tell.
    pub destination: Option<SocketAddrV4>,
    /// The Ethernet source and destination, where known.
    pub ethernet: Option<(Mac, Mac)>,
}

/// An ARP packet (RFC 826).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arp {
    /// Whether it is a request or a reply.
    pub request: bool,
    /// The sender's Ethernet address.
    pub sender_mac: Mac,
    /// The sender's address; 0.0.0.0 in a probe (RFC 5227).
    pub sender: Ipv4Addr,
    /// The target's Ethernet address; zero in a request.
    pub target_mac: Mac,
    /// The address asked for, or answered to.
    pub target: Ipv4Addr,
}

/// Why a frame is not what a careful sender sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum BadFrame {
    #[error("the frame ends within its headers")]
    Short,
    #[error("the IPv4 header's version or length is wrong")]
    IpHeader,
    #[error("the IPv4 checksum is wrong")]
    IpChecksum,
    #[error("the IPv4 length is not the frame's")]
    IpLength,
    #[error("a fragment")]
    Fragment,
    #[error("a time to live of 0")]
    Ttl,
    #[error("the UDP length is not the packet's")]
    UdpLength,
    #[error("the UDP checksum is wrong or missing")]
    UdpChecksum,
    #[error("not ARP for IPv4 on Ethernet")]
    Arp,
}

const ETHERNET: usize = 14;
const IPV4: usize = 20;

/// Parses a frame.
pub fn decode(bytes: &[u8]) -> Result<Frame<'_>, BadFrame> {
    let (header, rest) = bytes.split_at_checked(ETHERNET).ok_or(BadFrame::Short)?;
    let packet = match u16::from_be_bytes([header[12], header[13]]) {
        0x0800 => ipv4(rest)?,
        0x0806 => Packet::Arp(decode_arp(rest)?),
        other => Packet::Other(other),
    };
    Ok(Frame {
        destination: mac(header, 0),
        source: mac(header, 6),
        packet,
    })
}

fn ipv4(bytes: &[u8]) -> Result<Packet<'_>, BadFrame> {
    let (header, rest) = bytes.split_at_checked(IPV4).ok_or(BadFrame::Short)?;
    if header[0] != 0x45 {
        return Err(BadFrame::IpHeader);
    }
    if sum(0, header) != 0xffff {
        return Err(BadFrame::IpChecksum);
    }
    let total = usize::from(u16::from_be_bytes([header[2], header[3]]));
    // Ethernet pads to 60 bytes; more padding is the sender's mistake.
    if total < IPV4 || total > bytes.len() || (bytes.len() > total && bytes.len() + ETHERNET > 60) {
        return Err(BadFrame::IpLength);
    }
    if u16::from_be_bytes([header[6], header[7]]) & 0x3fff != 0 {
        return Err(BadFrame::Fragment);
    }
    if header[8] == 0 {
        return Err(BadFrame::Ttl);
    }
    if header[9] != 17 {
        return Ok(Packet::Other(0x0800));
    }
    let (source, destination) = (ip(header, 12), ip(header, 16));
    let datagram = &rest[..total - IPV4];
    let (udp, payload) = datagram.split_at_checked(8).ok_or(BadFrame::Short)?;
    if usize::from(u16::from_be_bytes([udp[4], udp[5]])) != datagram.len() {
        return Err(BadFrame::UdpLength);
    }
    if udp[6..8] == [0, 0] || sum(pseudo(source, destination, datagram.len()), datagram) != 0xffff {
        return Err(BadFrame::UdpChecksum);
    }
    let port = |at: usize| u16::from_be_bytes([udp[at], udp[at + 1]]);
    Ok(Packet::Udp {
        source: SocketAddrV4::new(source, port(0)),
        destination: SocketAddrV4::new(destination, port(2)),
        payload,
    })
}

/// Reads an ARP packet.
pub(crate) fn decode_arp(bytes: &[u8]) -> Result<Arp, BadFrame> {
    let bytes = bytes.get(..28).ok_or(BadFrame::Short)?;
    if bytes[..6] != [0, 1, 8, 0, 6, 4] || bytes[6] != 0 || !(1..=2).contains(&bytes[7]) {
        return Err(BadFrame::Arp);
    }
    Ok(Arp {
        request: bytes[7] == 1,
        sender_mac: mac(bytes, 8),
        sender: ip(bytes, 14),
        target_mac: mac(bytes, 18),
        target: ip(bytes, 24),
    })
}

/// Writes a frame with a UDP datagram in it.
pub fn udp(
    from: Mac,
    to: Mac,
    source: SocketAddrV4,
    destination: SocketAddrV4,
    payload: &[u8],
) -> Vec<u8> {
    let length = 8 + payload.len();
    let mut out = Vec::with_capacity(ETHERNET + IPV4 + length);
    out.extend(to);
    out.extend(from);
    out.extend([0x08, 0x00, 0x45, 0]);
    out.extend(((IPV4 + length) as u16).to_be_bytes());
    out.extend([0, 0, 0, 0, 64, 17, 0, 0]);
    out.extend(source.ip().octets());
    out.extend(destination.ip().octets());
    let check = !sum(0, &out[ETHERNET..]);
    out[ETHERNET + 10..ETHERNET + 12].copy_from_slice(&check.to_be_bytes());
    out.extend(source.port().to_be_bytes());
    out.extend(destination.port().to_be_bytes());
    out.extend((length as u16).to_be_bytes());
    out.extend([0, 0]);
    out.extend(payload);
    let check = match !sum(
        pseudo(*source.ip(), *destination.ip(), length),
        &out[ETHERNET + IPV4..],
    ) {
        0 => 0xffff,
        check => check,
    };
    out[ETHERNET + IPV4 + 6..ETHERNET + IPV4 + 8].copy_from_slice(&check.to_be_bytes());
    out
}

/// Writes a frame with an ARP packet in it, padded to Ethernet's minimum.
pub fn arp(from: Mac, to: Mac, arp: &Arp) -> Vec<u8> {
    let mut out = Vec::with_capacity(60);
    out.extend(to);
    out.extend(from);
    let operation = if arp.request { 1 } else { 2 };
    out.extend([0x08, 0x06, 0, 1, 8, 0, 6, 4, 0, operation]);
    out.extend(arp.sender_mac);
    out.extend(arp.sender.octets());
    out.extend(arp.target_mac);
    out.extend(arp.target.octets());
    out.resize(60, 0);
    out
}

fn mac(bytes: &[u8], at: usize) -> Mac {
    std::array::from_fn(|nth| bytes[at + nth])
}

fn ip(bytes: &[u8], at: usize) -> Ipv4Addr {
    Ipv4Addr::new(bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3])
}

/// The sum of the pseudo header (RFC 768).
fn pseudo(source: Ipv4Addr, destination: Ipv4Addr, length: usize) -> u32 {
    let halves = |address: Ipv4Addr| (address.to_bits() >> 16) + (address.to_bits() & 0xffff);
    halves(source) + halves(destination) + 17 + length as u32
}

/// The Internet checksum before its complement (RFC 1071): all ones over data that includes a correct checksum.
fn sum(start: u32, bytes: &[u8]) -> u16 {
    let pairs = bytes.chunks_exact(2);
    let odd = pairs
        .remainder()
        .first()
        .map_or(0, |byte| u32::from(*byte) << 8);
    let mut sum = pairs.fold(start + odd, |sum, pair| {
        sum + u32::from(u16::from_be_bytes([pair[0], pair[1]]))
    });
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Mac = [2, 0, 0, 0, 0, 1];

    fn sample(payload: &[u8]) -> Vec<u8> {
        let source = SocketAddrV4::new(Ipv4Addr::new(10, 1, 2, 3), 68);
        udp(
            A,
            BROADCAST,
            source,
            SocketAddrV4::new(Ipv4Addr::BROADCAST, 67),
            payload,
        )
    }

    #[test]
    fn what_is_written_reads_the_same() {
        for payload in [&b"even"[..], b"odd", b""] {
            let bytes = sample(payload);
            let frame = decode(&bytes).unwrap();
            assert_eq!((frame.source, frame.destination), (A, BROADCAST));
            let Packet::Udp {
                source,
                destination,
                payload: read,
            } = frame.packet
            else {
                panic!("{frame:?}")
            };
            assert_eq!((source.port(), destination.port(), read), (68, 67, payload));
        }
        let packet = Arp {
            request: true,
            sender_mac: A,
            sender: Ipv4Addr::new(10, 0, 0, 1),
            target_mac: [0; 6],
            target: Ipv4Addr::new(10, 0, 0, 2),
        };
        assert_eq!(
            decode(&arp(A, BROADCAST, &packet)).unwrap().packet,
            Packet::Arp(packet)
        );
    }

    #[test]
    fn any_flipped_bit_of_an_ip_packet_is_noticed() {
        let good = sample(b"payload");
        for bit in ETHERNET * 8..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            let read = decode(&bad).map(|frame| frame.packet);
            assert!(!matches!(read, Ok(Packet::Udp { .. })), "bit {bit}");
        }
    }

    #[test]
    fn no_truncation_panics() {
        let good = sample(b"payload");
        for length in 0..good.len() {
            assert!(decode(&good[..length]).is_err(), "{length}");
        }
    }

    #[test]
    fn a_checksum_of_a_known_packet_is_right() {
        // The IPv4 header of RFC 1071 style examples found in textbooks: 4500 0073 0000 4000 4011 b861 c0a8 0001 c0a8 00c7.
        let header = [
            0x45, 0x00, 0x00, 0x73, 0x00, 0x00, 0x40, 0x00, 0x40, 0x11, 0xb8, 0x61, 0xc0, 0xa8,
            0x00, 0x01, 0xc0, 0xa8, 0x00, 0xc7,
        ];
        assert_eq!(sum(0, &header), 0xffff);
    }
}
