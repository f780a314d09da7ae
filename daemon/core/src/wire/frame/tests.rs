use proptest::prelude::*;

use super::*;
use crate::wire::tests::hex;

const CLIENT: Mac = Mac([2, 0, 0, 0, 0, 1]);
const SERVER: Mac = Mac([2, 0, 0, 0, 0, 0xfe]);
const CLIENT_IP: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 100);
const SERVER_IP: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const META: FrameMeta = FrameMeta {
    checksum_not_ready: false,
    vlan: 0,
    other_host: false,
    cut: false,
};

/// A request of five bytes; the checksums come from another program.
const REQUEST: &str = "
    0200000000fe 020000000001 0800
    45 c0 0021 0000 4000 40 11 b5a6 c0000264 c0000201
    0044 0043 000d d24e
    4448435021";

/// The answer: IPv4 options, another DSCP, no DF, an identification, nine bytes of padding.
const ANSWER: &str = "
    0200000000fe 020000000001 0800
    46 00 0025 0007 0000 40 11 6157 c0000201 c0000264 94040000
    0043 0044 000d d24e
    4448435021 eeeeeeeeeeeeeeeeee";

/// An ARP probe for 192.0.2.100 (RFC 5227 §2.1.1).
const PROBE: &str = "
    ffffffffffff 020000000001 0806
    0001 0800 06 04 0001
    020000000001 00000000
    000000000000 c0000264";

fn request() -> Udp<'static> {
    Udp {
        source_mac: CLIENT,
        destination_mac: SERVER,
        source: CLIENT_IP,
        destination: SERVER_IP,
        source_port: 68,
        destination_port: 67,
        payload: b"DHCP!",
    }
}

fn bad(bytes: &[u8]) -> BadFrame {
    decode(bytes, META).unwrap_err()
}

/// Returns REQUEST with some bytes replaced and the IPv4 header checksum corrected.
fn edited(at: usize, with: &[u8]) -> Vec<u8> {
    let mut frame = hex(REQUEST);
    frame[at..at + with.len()].copy_from_slice(with);
    frame[24..26].fill(0);
    let sum = checksum(&[&frame[14..34]]);
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
    frame
}

#[test]
fn a_datagram_is_the_bytes_of_its_rfcs() {
    assert_eq!(request().encode(), hex(REQUEST));
    assert_eq!(decode(&hex(REQUEST), META), Ok(Frame::Udp(request())));
}

#[test]
fn ipv4_options_and_padding_are_skipped() {
    let answer = Udp {
        source: SERVER_IP,
        destination: CLIENT_IP,
        source_port: 67,
        destination_port: 68,
        ..request()
    };
    assert_eq!(decode(&hex(ANSWER), META), Ok(Frame::Udp(answer)));
}

#[test]
fn a_checksum_of_zero_is_sent_as_ones() {
    let frame = Udp {
        payload: &[0x7a, 0xed],
        ..request()
    }
    .encode();
    assert_eq!(frame[40..42], [0xff, 0xff]);
    assert!(decode(&frame, META).is_ok());
}

#[test]
fn an_arp_probe_is_the_bytes_of_its_rfc() {
    let probe = Arp::request(CLIENT, Ipv4Addr::UNSPECIFIED, CLIENT_IP);
    assert_eq!(probe.encode(), hex(PROBE));
    assert_eq!(decode(&hex(PROBE), META), Ok(Frame::Arp(probe)));
    let padded = [hex(PROBE), vec![0; 18]].concat();
    assert_eq!(decode(&padded, META), Ok(Frame::Arp(probe)));
}

#[test]
fn an_arp_reply_keeps_all_its_addresses() {
    let reply = Arp {
        op: ArpOp::Reply,
        source_mac: SERVER,
        destination_mac: CLIENT,
        sender_mac: Mac([3; 6]),
        sender: SERVER_IP,
        target_mac: CLIENT,
        target: CLIENT_IP,
    };
    assert_eq!(reply.encode()[20..22], [0, 2]);
    assert_eq!(decode(&reply.encode(), META), Ok(Frame::Arp(reply)));
}

#[test]
fn a_vlan_frame_is_refused_and_one_for_others_passed_on() {
    let frame = hex(REQUEST);
    assert_eq!(
        decode(&frame, FrameMeta { vlan: 7, ..META }),
        Err(BadFrame::Vlan(7))
    );
    assert_eq!(
        decode(&frame, FrameMeta { cut: true, ..META }),
        Err(BadFrame::TooLong)
    );
    assert!(
        decode(
            &frame,
            FrameMeta {
                other_host: true,
                ..META
            }
        )
        .is_ok()
    );
}

#[test]
fn an_unfinished_or_absent_udp_checksum_is_not_checked() {
    let mut frame = hex(REQUEST);
    frame[40] ^= 1;
    assert_eq!(bad(&frame), BadFrame::UdpChecksum);
    assert!(
        decode(
            &frame,
            FrameMeta {
                checksum_not_ready: true,
                ..META
            }
        )
        .is_ok()
    );
    frame[40..42].fill(0);
    assert!(decode(&frame, META).is_ok());
}

#[test]
fn an_unfinished_udp_checksum_excuses_no_ipv4_header() {
    let mut frame = hex(REQUEST);
    frame[24] ^= 1;
    assert_eq!(
        decode(
            &frame,
            FrameMeta {
                checksum_not_ready: true,
                ..META
            }
        ),
        Err(BadFrame::Ipv4Checksum)
    );
}

#[test]
fn each_cause_has_its_name() {
    let with = |at: usize, byte: &[u8]| bad(&edited(at, byte));
    let cut = |bytes: &str, length: usize| bad(&hex(bytes)[..length]);
    let cases = [
        (cut(REQUEST, 13), BadFrame::TooShort),
        (
            with(6, &[1, 0, 0x5e, 0, 0, 1]),
            BadFrame::GroupSource(Mac([1, 0, 0x5e, 0, 0, 1])),
        ),
        (with(12, &[0x81, 0x00]), BadFrame::Tagged),
        (with(12, &[0x88, 0xa8]), BadFrame::Tagged),
        (with(12, &[0x86, 0xdd]), BadFrame::EtherType(0x86dd)),
        (cut(REQUEST, 33), BadFrame::Ipv4Header),
        (with(14, &[0x65]), BadFrame::Ipv4Header),
        (with(14, &[0x44]), BadFrame::Ipv4Header),
        (with(14, &[0x4f]), BadFrame::Ipv4Header),
        (with(16, &[0, 19]), BadFrame::Ipv4Header),
        (with(16, &[0, 34]), BadFrame::Ipv4Header),
        (with(20, &[0x20, 0]), BadFrame::Fragment),
        (with(20, &[0, 1]), BadFrame::Fragment),
        (with(23, &[6]), BadFrame::Protocol(6)),
        (with(16, &[0, 27]), BadFrame::UdpHeader),
        (with(38, &[0, 7]), BadFrame::UdpHeader),
        (with(38, &[0, 14]), BadFrame::UdpHeader),
        (with(42, &[0]), BadFrame::UdpChecksum),
        (cut(PROBE, 21), BadFrame::Arp),
        (cut(PROBE, 41), BadFrame::Arp),
    ];
    for (found, expected) in cases {
        assert_eq!(found, expected);
    }
}

#[test]
fn arp_of_other_families_and_operations_is_refused() {
    for (at, cause) in [
        (15, BadFrame::Arp),
        (16, BadFrame::Arp),
        (18, BadFrame::Arp),
        (19, BadFrame::Arp),
        (21, BadFrame::Arp),
    ] {
        let mut frame = hex(PROBE);
        frame[at] = 9;
        assert_eq!(bad(&frame), cause, "byte {at}");
    }
}

#[test]
fn a_udp_datagram_may_end_before_its_packet() {
    let mut frame = edited(38, &[0, 12]);
    frame[40..42].fill(0);
    let found = decode(&frame, META);
    assert_eq!(
        found,
        Ok(Frame::Udp(Udp {
            payload: b"DHCP",
            ..request()
        }))
    );
}

#[test]
fn no_truncation_of_a_good_frame_is_good() {
    for whole in [hex(REQUEST), hex(PROBE)] {
        for length in 0..whole.len() {
            assert!(decode(&whole[..length], META).is_err(), "{length} bytes");
        }
    }
}

#[test]
fn the_longest_payload_fits() {
    let payload = vec![0xff; Udp::MAX_PAYLOAD];
    let frame = Udp {
        payload: &payload,
        ..request()
    }
    .encode();
    assert_eq!(frame[16..18], [0xff, 0xff]);
    let found = decode(&frame, META);
    assert_eq!(
        found,
        Ok(Frame::Udp(Udp {
            payload: &payload,
            ..request()
        }))
    );
}

proptest! {
    #[test]
    fn one_flipped_bit_behind_the_ethernet_header_is_seen(
        payload in prop::collection::vec(any::<u8>(), 0..64),
        at: prop::sample::Index,
        bit in 0..8_u8,
    ) {
        let mut frame = Udp { payload: &payload, ..request() }.encode();
        // Not in the UDP length: that would make another datagram, whose sum may come out right.
        let places: Vec<usize> = (14..38).chain(40..frame.len()).collect();
        frame[places[at.index(places.len())]] ^= 1 << bit;
        // A checksum of one set bit becomes "not computed".
        prop_assume!(frame[40..42] != [0, 0]);
        prop_assert!(decode(&frame, META).is_err());
    }
}
