use proptest::prelude::*;

use super::*;
use crate::wire::frame::{BadFrame, Frame, FrameMeta, decode};
use crate::wire::option::LeaseRoute;
use crate::wire::tests::{Reply, hex, option};

const CHADDR: Mac = Mac([2, 0, 0, 0, 0, 1]);

fn ip(text: &str) -> Ipv4Addr {
    text.parse().unwrap()
}

fn route(destination: &str, via: Option<&str>) -> LeaseRoute {
    LeaseRoute {
        destination: destination.parse().unwrap(),
        via: via.map(ip),
    }
}

fn client(kind: MessageType) -> ClientMessage<'static> {
    ClientMessage {
        kind,
        xid: 0x1234_5678,
        secs: 0,
        broadcast: false,
        ciaddr: Ipv4Addr::UNSPECIFIED,
        chaddr: CHADDR,
        client_id: b"\0web/lan/eth0",
        requested: None,
        server_id: None,
        request_list: &[],
        max_size: None,
        message: None,
        extra: Vec::new(),
    }
}

/// Returns a client's message as RFC 2131 figure 1 draws it: what differs, then the options.
fn expected(secs_flags: &str, ciaddr: &str, options: &str) -> Vec<u8> {
    let header = format!(
        "01 01 06 00 12345678 {secs_flags} {ciaddr} 00000000 00000000 00000000 020000000001"
    );
    let mut bytes = hex(&header);
    bytes.resize(236, 0);
    bytes.extend(hex("63825363"));
    bytes.extend(hex(options));
    bytes.resize(300, 0);
    bytes
}

#[test]
fn a_discover_is_the_bytes_of_its_rfc() {
    let message = ClientMessage {
        secs: 3,
        broadcast: true,
        requested: Some(ip("192.0.2.7")),
        request_list: &[1, 121, 249, 3, 33, 6],
        max_size: Some(1472),
        ..client(MessageType::Discover)
    };
    let options = "
        35 01 01
        3d 0d 00 7765622f6c616e2f65746830
        32 04 c0000207
        39 02 05c0
        37 06 01 79 f9 03 21 06
        ff";
    assert_eq!(message.encode(), expected("0003 8000", "00000000", options));
}

#[test]
fn an_empty_client_identifier_is_absent() {
    let mut message = client(MessageType::Release);
    message.client_id = &[];
    let found = message.encode();
    assert_eq!(found, expected("0000 0000", "00000000", "35 01 07 ff"));
}

#[test]
fn further_options_are_sent_unless_they_are_ours_to_set() {
    let own = [0, 50, 52, 53, 54, 55, 56, 57, 61, 82, 255].map(|code| (code, vec![9]));
    let further = [
        (60, b"leasehold".to_vec()),
        (80, vec![]),
        (12, b"web".to_vec()),
    ];
    let extra = [own.as_slice(), &further].concat();
    let mut message = client(MessageType::Discover);
    message.extra = extra;
    let options = "
        35 01 01
        3d 0d 00 7765622f6c616e2f65746830
        3c 09 6c65617365686f6c64
        50 00
        0c 03 776562
        ff";
    assert_eq!(message.encode(), expected("0000 0000", "00000000", options));
}

#[test]
fn a_further_option_that_does_not_fit_a_frame_is_left_out() {
    let extra = vec![(43, vec![1; 2000]), (60, vec![2; 300]), (77, vec![3; 200])];
    let bytes = ClientMessage {
        extra,
        ..client(MessageType::Discover)
    }
    .encode();
    let options = &bytes[240..];
    // 60 in two instances (RFC 3396), 77 no more: 440 bytes are for further options.
    let class = [option(60, &[2; 255]), option(60, &[2; 45])].concat();
    let id = option(61, b"\0web/lan/eth0");
    assert_eq!(options, [option(53, &[1]), id, class, vec![255]].concat());
}

#[test]
fn a_long_text_is_cut_between_characters() {
    let text = "ä".repeat(200);
    let bytes = ClientMessage {
        client_id: &[],
        message: Some(&text),
        ..client(MessageType::Decline)
    }
    .encode();
    assert_eq!(bytes[240..245], [53, 1, 4, 56, 254]);
}

proptest! {
    #[test]
    fn further_options_never_outgrow_a_frame(
        client_id in prop::collection::vec(any::<u8>(), 0..600),
        list in prop::collection::vec(any::<u8>(), 0..600),
        extra in prop::collection::vec((any::<u8>(), prop::collection::vec(any::<u8>(), 0..700)), 0..20),
    ) {
        let some = Some(Ipv4Addr::BROADCAST);
        let text = "x".repeat(600);
        let message = ClientMessage {
            client_id: &client_id,
            requested: some,
            server_id: some,
            request_list: &list,
            max_size: Some(1472),
            message: Some(&text),
            extra,
            ..client(MessageType::Request)
        };
        let bytes = message.encode();
        prop_assert!((ClientMessage::MIN..=ClientMessage::MAX).contains(&bytes.len()));
    }
}

#[test]
fn a_reply_is_read_field_by_field() {
    let message = Message::decode(&Reply::ack(&option(54, &[192, 0, 2, 1])).bytes()).unwrap();
    let options = Options {
        server_id: Some(ip("192.0.2.1")),
        ..Options::default()
    };
    let expected = Message {
        kind: MessageType::Ack,
        xid: 0x1234_5678,
        yiaddr: ip("192.0.2.11"),
        giaddr: ip("192.0.2.13"),
        chaddr: CHADDR,
        options,
    };
    assert_eq!(message, expected);
}

#[test]
fn each_cause_has_its_name() {
    let good = || Reply::ack(&[]);
    let of_type = |value: &[u8]| Reply {
        options: option(53, value),
        ..Reply::bare()
    };
    let cases = [
        (Reply { op: 1, ..good() }, BadMessage::NotAReply(1)),
        (Reply { op: 0, ..good() }, BadMessage::NotAReply(0)),
        (Reply { htype: 6, ..good() }, BadMessage::Hardware),
        (Reply { hlen: 16, ..good() }, BadMessage::Hardware),
        (
            Reply {
                hlen: 255,
                ..good()
            },
            BadMessage::Hardware,
        ),
        (
            Reply {
                cookie: [0x63, 0x82, 0x53, 0x64],
                ..good()
            },
            BadMessage::Cookie,
        ),
        (Reply::bare(), BadMessage::NoMessageType),
        (of_type(&[]), BadMessage::NoMessageType),
        (of_type(&[5, 0]), BadMessage::NoMessageType),
        (of_type(&[0]), BadMessage::MessageType(0)),
        (of_type(&[3]), BadMessage::MessageType(3)),
        (of_type(&[9]), BadMessage::MessageType(9)),
    ];
    for (reply, cause) in cases {
        assert_eq!(Message::decode(&reply.bytes()), Err(cause));
    }
    let found = Message::decode(&good().bytes()[..239]);
    assert_eq!(found, Err(BadMessage::TooShort));
    assert_eq!(Message::decode(&[]), Err(BadMessage::TooShort));
    for (byte, kind) in [
        (2, MessageType::Offer),
        (5, MessageType::Ack),
        (6, MessageType::Nak),
    ] {
        assert_eq!(
            Message::decode(&of_type(&[byte]).bytes()).unwrap().kind,
            kind
        );
    }
}

#[test]
fn a_message_type_in_an_overloaded_field_counts() {
    let reply = Reply {
        options: option(52, &[2]),
        sname: option(53, &[2]),
        ..Reply::bare()
    };
    assert_eq!(
        Message::decode(&reply.bytes()).unwrap().kind,
        MessageType::Offer
    );
}

/// A server's frame, captured on a veth, from its Ethernet header on.
struct Capture {
    bytes: Vec<u8>,
    checksum_not_ready: bool,
}

impl Capture {
    fn message(&self) -> Message {
        let meta = FrameMeta {
            checksum_not_ready: self.checksum_not_ready,
            ..FrameMeta::default()
        };
        match decode(&self.bytes, meta).unwrap() {
            Frame::Udp(udp) => {
                assert_eq!((udp.source_port, udp.destination_port), (67, 68));
                let found = (udp.source, udp.source_mac);
                assert_eq!(found, (ip("192.0.2.1"), Mac([2, 0, 0, 0, 0, 0xfe])));
                Message::decode(udp.payload).unwrap()
            }
            Frame::Arp(_) => panic!("an ARP packet"),
        }
    }
}

/// From the kernel's UDP socket: its checksum is unfinished on a veth.
fn dnsmasq(text: &str) -> Capture {
    Capture {
        bytes: hex(text),
        checksum_not_ready: true,
    }
}

/// From a packet socket, with Kea's own checksum.
fn kea(text: &str) -> Capture {
    Capture {
        bytes: hex(text),
        checksum_not_ready: false,
    }
}

#[test]
fn dnsmasq_2_90_is_understood() {
    let offer = dnsmasq(include_str!("../captures/dnsmasq-offer.hex"));
    let ack = dnsmasq(include_str!("../captures/dnsmasq-ack.hex"));
    let (offer_read, ack_read) = (offer.message(), ack.message());
    let routes = vec![
        route("0.0.0.0/0", Some("192.0.2.1")),
        route("198.51.100.0/24", Some("192.0.2.2")),
        route("169.254.169.254/32", None),
    ];
    let options = Options {
        subnet_mask: Some(24),
        routers: vec![ip("192.0.2.1")],
        dns: vec![ip("192.0.2.53"), ip("198.51.100.53")],
        domains: vec!["lan.example".to_owned()],
        search: vec![
            "eng.example.com".to_owned(),
            "lan.example".to_owned(),
            "sub.eng.example.com".to_owned(),
        ],
        mtu: Some(1400),
        static_routes: vec![route("203.0.113.7/32", Some("192.0.2.2"))],
        classless_routes: Some(routes),
        lease_time: Some(120),
        t1: Some(60),
        t2: Some(105),
        server_id: Some(ip("192.0.2.1")),
        ..Options::default()
    };
    let found = (offer_read.kind, ack_read.kind);
    assert_eq!(found, (MessageType::Offer, MessageType::Ack));
    let found = (offer_read.yiaddr, ack_read.yiaddr);
    assert_eq!(found, (ip("192.0.2.145"), ip("192.0.2.145")));
    let found = (&offer_read.options, &ack_read.options);
    assert_eq!(found, (&options, &options));
    // If the kernel does not say that it is unfinished, the checksum is plainly wrong.
    let found = decode(&offer.bytes, FrameMeta::default());
    assert_eq!(found, Err(BadFrame::UdpChecksum));
    // When configured as an option and asked for, the server identifier comes twice.
    let twice = dnsmasq(include_str!("../captures/dnsmasq-server-id-twice.hex"));
    assert_eq!(
        twice
            .bytes
            .windows(6)
            .filter(|w| *w == [54, 4, 192, 0, 2, 1])
            .count(),
        2
    );
    assert_eq!(twice.message().options, options);
}

#[test]
fn kea_2_2_is_understood() {
    let offer = kea(include_str!("../captures/kea-offer.hex")).message();
    let ack = kea(include_str!("../captures/kea-ack.hex")).message();
    let options = Options {
        subnet_mask: Some(24),
        routers: vec![ip("192.0.2.1")],
        dns: vec![ip("192.0.2.53"), ip("198.51.100.53")],
        domains: vec!["lan.example".to_owned()],
        search: vec!["eng.example.com".to_owned(), "lan.example".to_owned()],
        mtu: Some(1400),
        static_routes: vec![route("203.0.113.7/32", Some("192.0.2.2"))],
        classless_routes: Some(vec![
            route("0.0.0.0/0", Some("192.0.2.1")),
            route("198.51.100.0/24", Some("192.0.2.2")),
        ]),
        lease_time: Some(20),
        t1: Some(5),
        t2: Some(12),
        server_id: Some(ip("192.0.2.1")),
        client_id: Some(b"\0abc/net/e".to_vec()),
        ..Options::default()
    };
    let found = (offer.kind, ack.kind);
    assert_eq!(found, (MessageType::Offer, MessageType::Ack));
    let found = (offer.yiaddr, ack.yiaddr);
    assert_eq!(found, (ip("192.0.2.100"), ip("192.0.2.100")));
    assert_eq!((&offer.options, &ack.options), (&options, &options));
}

/// Asserts that everything in `some` is in `all`: what is cut off is lost, never changed.
fn assert_part_of(some: &Options, all: &Options) {
    assert!(some.subnet_mask.is_none() || some.subnet_mask == all.subnet_mask);
    assert!(some.routers.is_empty() || some.routers == all.routers);
    assert!(some.dns.is_empty() || some.dns == all.dns);
    assert!(some.domains.is_empty() || some.domains == all.domains);
    assert!(some.search.is_empty() || some.search == all.search);
    assert!(some.mtu.is_none() || some.mtu == all.mtu);
    assert!(some.static_routes.is_empty() || some.static_routes == all.static_routes);
    assert!(some.classless_routes.is_none() || some.classless_routes == all.classless_routes);
    assert!(some.lease_time.is_none() || some.lease_time == all.lease_time);
    assert!(some.server_id.is_none() || some.server_id == all.server_id);
    assert!(some.client_id.is_none() || some.client_id == all.client_id);
}

#[test]
fn a_truncated_message_loses_options_but_changes_none() {
    for text in [
        include_str!("../captures/dnsmasq-ack.hex"),
        include_str!("../captures/kea-ack.hex"),
    ] {
        let payload = &hex(text)[42..];
        let whole = Message::decode(payload).unwrap();
        for length in 0..payload.len() {
            match Message::decode(&payload[..length]) {
                Err(cause) if length < 240 => assert_eq!(cause, BadMessage::TooShort),
                Err(cause) => assert!(
                    length < 243 && cause == BadMessage::NoMessageType,
                    "{length}: {cause}"
                ),
                Ok(message) => assert_part_of(&message.options, &whole.options),
            }
        }
    }
}

#[test]
fn options_as_sent_hold_unknown_ones_and_join_instances() {
    let sent = [
        option(224, &[1]),
        option(6, &[10, 0, 0, 1]),
        option(224, &[2]),
        option(52, &[1]),
    ]
    .concat();
    let in_file = [option(43, b"x"), vec![255]].concat();
    let mut reply = Reply::ack(&sent);
    reply.file = in_file;
    let options = Message::options_as_sent(&reply.bytes());
    let expected = [
        (6, vec![10, 0, 0, 1]),
        (43, b"x".to_vec()),
        (53, vec![5]),
        (224, vec![1, 2]),
    ];
    assert_eq!(options.into_iter().collect::<Vec<_>>(), expected);
    assert!(Message::options_as_sent(&[2; 100]).is_empty());
}
