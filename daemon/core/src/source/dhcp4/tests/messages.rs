//! RFC 2131 table 5, byte by byte. The expected bytes are written from the RFC, not by the codec.

use std::net::Ipv4Addr;

use super::super::message::{Hop, Sender};
use super::script::{LEASED, MAC, SERVER, SERVER_MAC, STATION, Sent, client_id, plain, sent};
use crate::wire::Mac;

const XID: u32 = 0x1234_5678;
const NONE: Ipv4Addr = Ipv4Addr::UNSPECIFIED;

fn sender() -> Sender {
    plain()
}

const SERVER_ID: [u8; 4] = SERVER.octets();
const WISH: [u8; 4] = LEASED.octets();
const SIZE: [u8; 2] = [0x05, 0xc0];
const LIST: [u8; 13] = [1, 121, 249, 3, 33, 6, 15, 26, 51, 54, 58, 59, 119];

/// An option: its code and its value.
type Opt<'a> = (u8, &'a [u8]);

const WISHED: Opt<'_> = (50, &WISH);
const NAMED: Opt<'_> = (54, &SERVER_ID);
const MOST: Opt<'_> = (57, &SIZE);
const LISTED: Opt<'_> = (55, &LIST);
const HOP: Hop = Hop {
    server: SERVER,
    mac: SERVER_MAC,
};

/// A BOOTREQUEST of table 5: fixed fields, magic cookie, kind, client, options in their order, end, zeros up to 300 bytes.
fn expected(kind: u8, secs: u16, ciaddr: Ipv4Addr, options: &[Opt<'_>]) -> Vec<u8> {
    let mut bytes = vec![1, 1, 6, 0];
    bytes.extend(XID.to_be_bytes());
    bytes.extend(secs.to_be_bytes());
    bytes.extend([0, 0]);
    bytes.extend(ciaddr.octets());
    bytes.extend([0; 12]);
    bytes.extend(MAC.0);
    bytes.extend([0; 10 + 64 + 128]);
    bytes.extend([99, 130, 83, 99]);
    let (kind, id) = ([kind], client_id());
    let first: [Opt<'_>; 2] = [(53, &kind), (61, id.as_bytes())];
    for (code, value) in first.iter().chain(options) {
        bytes.extend([*code, value.len() as u8]);
        bytes.extend(*value);
    }
    bytes.push(255);
    bytes.resize(bytes.len().max(300), 0);
    bytes
}

#[track_caller]
fn is_broadcast(frame: &[u8], kind: u8, secs: u16, source: Ipv4Addr, options: &[Opt<'_>]) {
    let expected = Sent {
        to: Mac::BROADCAST,
        source,
        destination: Ipv4Addr::BROADCAST,
        payload: expected(kind, secs, source, options),
    };
    assert_eq!(sent(frame), expected);
}

#[track_caller]
fn is_unicast(frame: &[u8], kind: u8, secs: u16, options: &[Opt<'_>]) {
    let expected = Sent {
        to: SERVER_MAC,
        source: LEASED,
        destination: SERVER,
        payload: expected(kind, secs, LEASED, options),
    };
    assert_eq!(sent(frame), expected);
}

#[test]
fn each_message_is_as_table_5_says() {
    let (ours, listed) = (sender(), &[MOST, LISTED]);
    let from_nowhere: [(u8, Vec<u8>, &[Opt<'_>]); 4] = [
        (1, ours.discover(XID, 3, None), listed),
        (
            1,
            ours.discover(XID, 3, Some(LEASED)),
            &[WISHED, MOST, LISTED],
        ),
        (
            3,
            ours.select(XID, 3, LEASED, SERVER),
            &[WISHED, NAMED, MOST, LISTED],
        ),
        (3, ours.reboot(XID, 3, LEASED), &[WISHED, MOST, LISTED]),
    ];
    for (kind, frame, options) in from_nowhere {
        is_broadcast(&frame, kind, 3, NONE, options);
    }
    let in_use = [WISHED, NAMED, (56, b"address in use")];
    is_broadcast(&ours.decline(XID, LEASED, SERVER), 4, 0, NONE, &in_use);
    is_broadcast(&ours.rebind(XID, 3, LEASED), 3, 3, LEASED, listed);
    is_unicast(&ours.renew(XID, 3, LEASED, HOP), 3, 3, listed);
    let deleted = [NAMED, (56, &b"attachment deleted"[..])];
    is_unicast(&ours.release(XID, LEASED, HOP), 7, 0, &deleted);
}

#[test]
fn a_moved_interface_asks_for_broadcast_answers() {
    let moved = || sender().from_station(STATION);
    let asked: [fn(&Sender, Hop) -> Vec<u8>; 4] = [
        |sender, _| sender.discover(XID, 0, None),
        |sender, hop| sender.select(XID, 0, LEASED, hop.server),
        |sender, _| sender.reboot(XID, 0, LEASED),
        |sender, _| sender.rebind(XID, 0, LEASED),
    ];
    for ask in asked {
        assert_eq!(sent(&ask(&sender(), HOP)).payload[10..12], [0, 0]);
        let frame = ask(&moved(), HOP);
        // Behind the Ethernet, IP and UDP headers.
        let (payload, source) = (&frame[42..], &frame[6..12]);
        assert_eq!(payload[10..12], [0x80, 0], "the broadcast flag");
        // Switches compare the two.
        assert_eq!((&payload[28..34], source), (&MAC.0[..], &MAC.0[..]));
    }
}
