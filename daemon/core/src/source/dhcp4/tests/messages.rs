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

/// A BOOTREQUEST of table 5: fixed fields, magic cookie, options in their order, end, zeros up to 300 bytes.
fn expected(secs: u16, ciaddr: Ipv4Addr, options: &[(u8, &[u8])]) -> Vec<u8> {
    let mut bytes = vec![1, 1, 6, 0];
    bytes.extend(XID.to_be_bytes());
    bytes.extend(secs.to_be_bytes());
    bytes.extend([0, 0]);
    bytes.extend(ciaddr.octets());
    bytes.extend([0; 12]);
    bytes.extend(MAC.0);
    bytes.extend([0; 10 + 64 + 128]);
    bytes.extend([99, 130, 83, 99]);
    for (code, value) in options {
        bytes.extend([*code, value.len() as u8]);
        bytes.extend(*value);
    }
    bytes.push(255);
    bytes.resize(bytes.len().max(300), 0);
    bytes
}

const LIST: [u8; 13] = [1, 121, 249, 3, 33, 6, 15, 26, 51, 54, 58, 59, 119];
const SIZE: [u8; 2] = [0x05, 0xc0];

#[track_caller]
fn check(frame: &[u8], to: Mac, source: Ipv4Addr, destination: Ipv4Addr, payload: &[u8]) {
    assert_eq!(
        sent(frame),
        Sent {
            to,
            source,
            destination,
            payload: payload.to_vec()
        }
    );
}

#[test]
fn discover_is_a_broadcast_from_nowhere() {
    let id = client_id();
    let options: [(u8, &[u8]); 4] = [(53, &[1]), (61, id.as_bytes()), (57, &SIZE), (55, &LIST)];
    let frame = sender().discover(XID, 3, None);
    check(
        &frame,
        Mac::BROADCAST,
        NONE,
        Ipv4Addr::BROADCAST,
        &expected(3, NONE, &options),
    );
}

#[test]
fn the_largest_message_follows_the_mtu_within_bounds() {
    for (mtu, size) in [
        (68, 576),
        (604, 576),
        (605, 577),
        (1280, 1252),
        (1499, 1471),
        (1500, 1472),
        (65_536, 1472),
    ] {
        let mut sender = sender();
        sender.set_mtu(mtu);
        let (id, size) = (client_id(), u16::to_be_bytes(size));
        let options: [(u8, &[u8]); 4] = [(53, &[1]), (61, id.as_bytes()), (57, &size), (55, &LIST)];
        check(
            &sender.discover(XID, 0, None),
            Mac::BROADCAST,
            NONE,
            Ipv4Addr::BROADCAST,
            &expected(0, NONE, &options),
        );
    }
}

#[test]
fn discover_may_wish_for_an_address() {
    let id = client_id();
    let wish = LEASED.octets();
    let options: [(u8, &[u8]); 5] = [
        (53, &[1]),
        (61, id.as_bytes()),
        (50, &wish),
        (57, &SIZE),
        (55, &LIST),
    ];
    let frame = sender().discover(XID, 0, Some(LEASED));
    check(
        &frame,
        Mac::BROADCAST,
        NONE,
        Ipv4Addr::BROADCAST,
        &expected(0, NONE, &options),
    );
}

#[test]
fn request_in_requesting_names_server_and_address() {
    let id = client_id();
    let (wish, server) = (LEASED.octets(), SERVER.octets());
    let options: [(u8, &[u8]); 6] = [
        (53, &[3]),
        (61, id.as_bytes()),
        (50, &wish),
        (54, &server),
        (57, &SIZE),
        (55, &LIST),
    ];
    let frame = sender().select(XID, 3, LEASED, SERVER);
    check(
        &frame,
        Mac::BROADCAST,
        NONE,
        Ipv4Addr::BROADCAST,
        &expected(3, NONE, &options),
    );
}

#[test]
fn request_in_rebooting_names_the_address_only() {
    let id = client_id();
    let wish = LEASED.octets();
    let options: [(u8, &[u8]); 5] = [
        (53, &[3]),
        (61, id.as_bytes()),
        (50, &wish),
        (57, &SIZE),
        (55, &LIST),
    ];
    let frame = sender().reboot(XID, 3, LEASED);
    check(
        &frame,
        Mac::BROADCAST,
        NONE,
        Ipv4Addr::BROADCAST,
        &expected(3, NONE, &options),
    );
}

#[test]
fn a_renewal_is_a_unicast_from_the_leased_address() {
    let id = client_id();
    let options: [(u8, &[u8]); 4] = [(53, &[3]), (61, id.as_bytes()), (57, &SIZE), (55, &LIST)];
    let frame = sender().renew(
        XID,
        3,
        LEASED,
        Hop {
            server: SERVER,
            mac: SERVER_MAC,
        },
    );
    check(
        &frame,
        SERVER_MAC,
        LEASED,
        SERVER,
        &expected(3, LEASED, &options),
    );
}

#[test]
fn a_rebinding_is_a_broadcast_from_the_leased_address() {
    let id = client_id();
    let options: [(u8, &[u8]); 4] = [(53, &[3]), (61, id.as_bytes()), (57, &SIZE), (55, &LIST)];
    let frame = sender().rebind(XID, 3, LEASED);
    check(
        &frame,
        Mac::BROADCAST,
        LEASED,
        Ipv4Addr::BROADCAST,
        &expected(3, LEASED, &options),
    );
}

#[test]
fn release_is_a_unicast_from_the_leased_address() {
    let id = client_id();
    let server = SERVER.octets();
    let options: [(u8, &[u8]); 4] = [
        (53, &[7]),
        (61, id.as_bytes()),
        (54, &server),
        (56, b"attachment deleted"),
    ];
    let frame = sender().release(
        XID,
        LEASED,
        Hop {
            server: SERVER,
            mac: SERVER_MAC,
        },
    );
    check(
        &frame,
        SERVER_MAC,
        LEASED,
        SERVER,
        &expected(0, LEASED, &options),
    );
}

#[test]
fn decline_is_a_broadcast_that_names_server_and_address() {
    let id = client_id();
    let (wish, server) = (LEASED.octets(), SERVER.octets());
    let options: [(u8, &[u8]); 5] = [
        (53, &[4]),
        (61, id.as_bytes()),
        (50, &wish),
        (54, &server),
        (56, b"address in use"),
    ];
    let frame = sender().decline(XID, LEASED, SERVER);
    check(
        &frame,
        Mac::BROADCAST,
        NONE,
        Ipv4Addr::BROADCAST,
        &expected(0, NONE, &options),
    );
}

#[test]
fn a_moved_interface_asks_for_broadcast_answers() {
    let moved = || sender().from_station(STATION);
    let hop = Hop {
        server: SERVER,
        mac: SERVER_MAC,
    };
    let asked: [fn(&Sender, Hop) -> Vec<u8>; 4] = [
        |sender, _| sender.discover(XID, 0, None),
        |sender, hop| sender.select(XID, 0, LEASED, hop.server),
        |sender, _| sender.reboot(XID, 0, LEASED),
        |sender, _| sender.rebind(XID, 0, LEASED),
    ];
    for ask in asked {
        assert_eq!(sent(&ask(&sender(), hop)).payload[10..12], [0, 0]);
        let frame = ask(&moved(), hop);
        // Behind the Ethernet, IP and UDP headers.
        let (payload, source) = (&frame[42..], &frame[6..12]);
        assert_eq!(payload[10..12], [0x80, 0], "the broadcast flag");
        assert_eq!(
            (&payload[28..34], source),
            (&MAC.0[..], &MAC.0[..]),
            "switches compare the two"
        );
    }
}
