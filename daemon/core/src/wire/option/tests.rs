use super::*;
use crate::wire::message::Message;
use crate::wire::tests::{Reply, option};

fn ip(text: &str) -> Ipv4Addr {
    text.parse().unwrap()
}

fn route(destination: &str, via: Option<&str>) -> LeaseRoute {
    LeaseRoute {
        destination: destination.parse().unwrap(),
        via: via.map(ip),
    }
}

fn read(options: &[u8]) -> Options {
    read_reply(Reply::ack(options))
}

fn read_reply(reply: Reply) -> Options {
    Message::decode(&reply.bytes()).unwrap().options
}

/// Reads options without message type and end.
fn read_bare(options: &[&[u8]]) -> Options {
    read_reply(Reply {
        options: options.concat(),
        ..Reply::bare()
    })
}

/// Reads one option of any length (RFC 3396) with a good one behind it, which must be read whatever happens to the first.
fn read_one(code: u8, value: &[u8]) -> Options {
    let mut bytes = match value {
        [] => option(code, &[]),
        _ => value
            .chunks(255)
            .flat_map(|piece| option(code, piece))
            .collect(),
    };
    bytes.extend(option(51, &[0, 0, 0, 60]));
    let options = read(&bytes);
    let next = options.lease_time;
    assert_eq!(next, Some(60), "what follows option {code} was lost");
    options
}

/// Asserts that an option is as if absent, for one cause.
fn assert_dropped(code: u8, value: &[u8], cause: BadOption) {
    let mut expected = only_dropped(code, cause);
    expected.lease_time = Some(60);
    assert_eq!(read_one(code, value), expected);
}

fn causes(options: &Options) -> Vec<BadOption> {
    let dropped = options.dropped.iter();
    dropped.map(|dropped| dropped.cause.clone()).collect()
}

/// Returns what nothing but one option has that was dropped.
fn only_dropped(code: u8, cause: BadOption) -> Options {
    Options {
        dropped: vec![DroppedOption { code, cause }],
        ..Options::default()
    }
}

// The fields of a message.

#[test]
fn pads_are_skipped_and_the_end_marker_ends() {
    let bytes = [
        &[0, 0][..],
        &option(26, &[5, 220]),
        &[0, 0, 0],
        &option(51, &[0, 0, 0, 9]),
        &[255],
        &option(54, &[1; 4]),
    ];
    let options = read(&bytes.concat());
    let found = (options.mtu, options.lease_time, options.server_id);
    assert_eq!(found, (Some(1500), Some(9), None));
    assert_eq!(options.dropped, []);
}

#[test]
fn an_end_marker_is_not_needed() {
    let options = read_bare(&[&option(53, &[5]), &option(26, &[5, 220])]);
    assert_eq!((options.mtu, options.dropped), (Some(1500), vec![]));
}

#[test]
fn an_option_past_the_end_ends_its_field_and_is_noted() {
    for tail in [&[6, 8, 192, 0, 2, 53][..], &[6], &[6, 1]] {
        let options = read_bare(&[&option(53, &[5]), &option(26, &[5, 220]), tail]);
        let mut expected = only_dropped(6, BadOption::Truncated);
        expected.mtu = Some(1500);
        assert_eq!(options, expected);
    }
}

#[test]
fn an_option_with_a_cut_piece_is_dropped_whole() {
    let default_route = [0, 192, 0, 2, 1];
    let options = [
        &option(53, &[5]),
        &option(121, &default_route),
        &option(52, &[1]),
        &[121, 200, 0][..],
    ]
    .concat();
    let file = [option(121, &default_route), option(26, &[5, 220])].concat();
    let options = read_reply(Reply {
        options,
        file,
        ..Reply::bare()
    });
    assert_eq!((options.classless_routes, options.mtu), (None, Some(1500)));
}

#[test]
fn an_overload_that_is_cut_short_overloads_nothing() {
    let options = [&option(53, &[5]), &option(52, &[1]), &[52, 9][..]].concat();
    let options = read_reply(Reply {
        options,
        file: option(26, &[5, 220]),
        ..Reply::bare()
    });
    assert_eq!(options.mtu, None);
}

#[test]
fn overload_names_the_fields_that_hold_options() {
    for (value, mtu, lease) in [
        (1, Some(1500), None),
        (2, None, Some(60)),
        (3, Some(1500), Some(60)),
    ] {
        let options = read_reply(Reply {
            file: option(26, &[5, 220]),
            sname: option(51, &[0, 0, 0, 60]),
            ..Reply::ack(&option(52, &[value]))
        });
        let found = (options.mtu, options.lease_time, options.dropped);
        assert_eq!(found, (mtu, lease, vec![]), "overload {value}");
    }
}

#[test]
fn file_and_sname_hold_no_options_unless_overloaded() {
    let options = read_reply(Reply {
        file: option(26, &[5, 220]),
        sname: option(1, &[255; 4]),
        ..Reply::ack(&[])
    });
    assert_eq!(options, Options::default());
}

#[test]
fn an_unknown_overload_is_dropped() {
    for (value, cause) in [
        (&[0][..], BadOption::Overload(0)),
        (&[4], BadOption::Overload(4)),
        (&[], BadOption::Length(0)),
        (&[1, 1], BadOption::Length(2)),
    ] {
        let file = option(26, &[5, 220]);
        let options = read_reply(Reply {
            sname: file.clone(),
            file,
            ..Reply::ack(&option(52, value))
        });
        assert_eq!(options, only_dropped(52, cause));
    }
}

#[test]
fn an_overload_inside_file_does_not_open_sname() {
    let options = read_reply(Reply {
        file: option(52, &[2]),
        sname: option(26, &[5, 220]),
        ..Reply::ack(&option(52, &[1]))
    });
    assert_eq!(options, only_dropped(52, BadOption::Misplaced));
}

#[test]
fn an_overload_behind_all_other_options_still_opens_file() {
    let bytes = [option(26, &[5, 220]), option(52, &[1])].concat();
    let options = read_reply(Reply {
        file: option(51, &[0, 0, 0, 60]),
        ..Reply::ack(&bytes)
    });
    assert_eq!((options.mtu, options.lease_time), (Some(1500), Some(60)));
}

#[test]
fn the_end_of_options_is_not_the_end_of_file_and_sname() {
    let end_then = |rest: &[u8]| [&[255], rest].concat();
    let options = read_reply(Reply {
        file: end_then(&option(26, &[5, 220])),
        sname: option(51, &[0, 0, 0, 60]),
        ..Reply::ack(&option(52, &[3]))
    });
    assert_eq!((options.mtu, options.lease_time), (None, Some(60)));
}

#[test]
fn pieces_that_are_not_adjacent_are_joined() {
    // Cut inside an address, with other options between.
    let bytes = [
        option(6, &[192, 0]),
        option(26, &[5, 220]),
        option(6, &[2, 53, 198]),
        option(6, &[51, 100, 53]),
    ];
    assert_eq!(
        read(&bytes.concat()).dns,
        [ip("192.0.2.53"), ip("198.51.100.53")]
    );
}

#[test]
fn pieces_are_joined_in_the_order_options_file_sname() {
    let options = read_reply(Reply {
        sname: option(15, b"example"),
        file: option(15, b"lan."),
        ..Reply::ack(&[option(15, b"web."), option(52, &[3])].concat())
    });
    assert_eq!(options.domains, ["web.lan.example"]);
}

#[test]
fn an_option_longer_than_255_bytes_is_joined() {
    // 60 routes of 8 bytes, 480 in all: the cut at 255 falls inside the 32nd.
    let routes: Vec<u8> = (0..60).flat_map(|n| [24, 10, 0, n, 192, 0, 2, 1]).collect();
    let options = read_one(121, &routes);
    assert_eq!(options.dropped, []);
    let routes = options.classless_routes.unwrap();
    let found = (routes.len(), routes[59]);
    assert_eq!(found, (60, route("10.0.59.0/24", Some("192.0.2.1"))));
}

#[test]
fn of_a_fixed_option_given_twice_the_first_counts() {
    let options = read(
        &[
            option(54, &[192, 0, 2, 1]),
            option(26, &[5, 220]),
            option(54, &[192, 0, 2, 2]),
        ]
        .concat(),
    );
    let found = (options.server_id, options.mtu, options.dropped);
    assert_eq!(found, (Some(ip("192.0.2.1")), Some(1500), vec![]));
}

#[test]
fn a_fixed_option_in_pieces_is_joined() {
    let options = read(&[option(51, &[0, 0]), option(51, &[14]), option(51, &[16])].concat());
    assert_eq!(options.lease_time, Some(3600));
}

#[test]
fn what_is_dropped_is_counted_only_so_far() {
    let options = read(&option(3, &[127; 252]));
    let found = (options.routers.len(), options.dropped.len());
    assert_eq!(found, (0, MAX_DROPPED));
}

#[test]
fn unknown_options_are_skipped() {
    let found = read_one(43, &[1, 2, 3]);
    assert_eq!(
        found,
        Options {
            lease_time: Some(60),
            ..Options::default()
        }
    );
}

// The rows of the module's table.

#[test]
fn every_option_of_fixed_length_refuses_other_lengths() {
    for (code, length) in [(1, 4), (26, 2), (51, 4), (54, 4), (58, 4), (59, 4), (80, 0)] {
        let lengths = [0, 1, 2, 3, 4, 5, 8].into_iter();
        for wrong in lengths.filter(|wrong| *wrong != length) {
            let options = read(&option(code, &vec![9; wrong]));
            assert_eq!(options, only_dropped(code, BadOption::Length(wrong)));
        }
    }
}

#[test]
fn masks_are_prefixes_of_ones_and_never_empty() {
    for (mask, prefix) in [
        ("255.255.255.0", 24),
        ("128.0.0.0", 1),
        ("255.255.255.255", 32),
        ("255.255.254.0", 23),
    ] {
        assert_eq!(read_one(1, &ip(mask).octets()).subnet_mask, Some(prefix));
    }
    for mask in "0.0.0.0 255.0.255.0 0.0.0.255 255.255.255.1 127.255.255.255".split(' ') {
        assert_dropped(1, &ip(mask).octets(), BadOption::Mask(ip(mask)));
    }
}

#[test]
fn a_server_identifier_is_a_hosts_address() {
    for address in
        "0.0.0.0 0.1.2.3 127.0.0.1 224.0.0.1 239.255.255.255 240.0.0.1 255.255.255.255".split(' ')
    {
        assert_dropped(54, &ip(address).octets(), BadOption::NotAHost(ip(address)));
    }
    assert_eq!(read_one(54, &[10, 0, 0, 1]).server_id, Some(ip("10.0.0.1")));
}

#[test]
fn addresses_that_no_host_has_are_left_out_of_lists() {
    let none = "0.0.0.0 0.0.0.1 127.0.0.53 224.0.0.251 240.0.0.1 255.255.255.255";
    let none: Vec<_> = none.split(' ').map(ip).collect();
    let list = [&[ip("192.0.2.53")], &none[..], &[ip("198.51.100.53")]].concat();
    let bytes: Vec<u8> = list.iter().flat_map(Ipv4Addr::octets).collect();
    for code in [3, 6] {
        let options = read_one(code, &bytes);
        let found = [&options.routers[..], &options.dns].concat();
        assert_eq!(found, [ip("192.0.2.53"), ip("198.51.100.53")]);
        let expected = none.iter().copied().map(BadOption::NotAHost);
        assert_eq!(causes(&options), expected.collect::<Vec<_>>());
    }
}

#[test]
fn a_router_outside_any_subnet_is_passed_on() {
    assert_eq!(read_one(3, &[169, 254, 1, 1]).routers, [ip("169.254.1.1")]);
}

#[test]
fn an_address_that_a_list_names_twice_is_there_once() {
    let list = [2, 1, 2, 3, 1].map(|n| [10, 0, 0, n]).concat();
    let bytes = list.repeat(8);
    for code in [3, 6] {
        let options = read_one(code, &bytes);
        let found = [&options.routers[..], &options.dns].concat();
        assert_eq!(found, [ip("10.0.0.2"), ip("10.0.0.1"), ip("10.0.0.3")]);
        assert_eq!(causes(&options), []);
    }
}

#[test]
fn long_address_lists_keep_their_beginning() {
    let bytes: Vec<u8> = (1..=63).flat_map(|n| [10, 0, 0, n]).collect();
    let options = read_one(6, &bytes);
    let found = (options.dns.len(), options.dns[15]);
    assert_eq!(found, (MAX_ADDRESSES, ip("10.0.0.16")));
    assert_eq!(causes(&options), [BadOption::TooMany(MAX_ADDRESSES)]);
}

#[test]
fn an_address_list_of_an_odd_length_is_dropped_whole() {
    for code in [3, 6] {
        for length in [0, 1, 3, 5, 7] {
            assert_dropped(code, &vec![10; length], BadOption::Length(length));
        }
    }
    assert_dropped(33, &[10; 12], BadOption::Length(12));
}

#[test]
fn classless_routes_are_those_of_the_rfc() {
    let bytes = [
        &[0, 192, 0, 2, 1][..],
        &[8, 10, 192, 0, 2, 2],
        &[23, 10, 17, 0, 192, 0, 2, 3],
        &[25, 10, 229, 0, 128, 192, 0, 2, 4],
        &[32, 169, 254, 169, 254, 0, 0, 0, 0],
        &[4, 224, 192, 0, 2, 5],
    ]
    .concat();
    let expected = vec![
        route("0.0.0.0/0", Some("192.0.2.1")),
        route("10.0.0.0/8", Some("192.0.2.2")),
        route("10.17.0.0/23", Some("192.0.2.3")),
        route("10.229.0.128/25", Some("192.0.2.4")),
        route("169.254.169.254/32", None),
        route("224.0.0.0/4", Some("192.0.2.5")),
    ];
    assert_eq!(
        read_one(121, &bytes).classless_routes,
        Some(expected.clone())
    );
    assert_eq!(read_one(249, &bytes).microsoft_routes, Some(expected));
}

#[test]
fn host_bits_of_a_destination_are_masked_off() {
    let options = read_one(
        121,
        &[9, 10, 255, 192, 0, 2, 1, 20, 172, 16, 255, 192, 0, 2, 1],
    );
    let expected = vec![
        route("10.128.0.0/9", Some("192.0.2.1")),
        route("172.16.240.0/20", Some("192.0.2.1")),
    ];
    let found = (options.classless_routes, options.dropped);
    assert_eq!(found, (Some(expected), vec![]));
}

#[test]
fn bad_classless_routes_count_as_absent() {
    let good = [0, 192, 0, 2, 1];
    for tail in [
        &[60, 1, 2, 3, 4, 192, 0, 2, 1][..],
        &[33, 1, 2, 3, 4, 5, 192, 0, 2, 1],
        &[255],
        &[24],
        &[24, 10, 0],
        &[24, 10, 0, 0, 192, 0, 2],
        &[0],
    ] {
        for code in [121, 249] {
            assert_dropped(code, tail, BadOption::Route);
            assert_dropped(code, &[&good, tail].concat(), BadOption::Route);
        }
    }
    assert_dropped(121, &[], BadOption::NoRoute);
    let both = read(&[option(121, &[60]), option(3, &good[1..])].concat());
    let found = (both.classless_routes, both.routers);
    assert_eq!(found, (None, vec![ip("192.0.2.1")]));
}

#[test]
fn routes_that_cannot_be_are_left_out() {
    let bytes = [
        &[8, 127, 192, 0, 2, 1][..],
        &[32, 127, 0, 0, 53, 192, 0, 2, 1],
        &[8, 0, 192, 0, 2, 1],
        &[32, 255, 255, 255, 255, 192, 0, 2, 1],
        &[24, 10, 0, 0, 127, 0, 0, 1],
        &[24, 10, 0, 0, 224, 0, 0, 1],
        &[24, 10, 0, 0, 240, 0, 0, 1],
        &[24, 10, 0, 0, 0, 0, 0, 1],
        &[1, 0, 192, 0, 2, 1],
    ]
    .concat();
    let options = read_one(121, &bytes);
    assert_eq!(
        options.classless_routes,
        Some(vec![route("0.0.0.0/1", Some("192.0.2.1"))])
    );
    let to = |text: &str| BadOption::Destination(text.parse().unwrap());
    let expected = [
        to("127.0.0.0/8"),
        to("127.0.0.53/32"),
        to("0.0.0.0/8"),
        to("255.255.255.255/32"),
        BadOption::NotAHost(ip("127.0.0.1")),
        BadOption::NotAHost(ip("224.0.0.1")),
        BadOption::NotAHost(ip("240.0.0.1")),
        BadOption::NotAHost(ip("0.0.0.1")),
    ];
    assert_eq!(causes(&options), expected);
}

#[test]
fn classless_routes_without_a_usable_one_count_as_absent() {
    let options = read_one(121, &[24, 10, 0, 0, 127, 0, 0, 1]);
    assert_eq!(options.classless_routes, None);
    assert_eq!(
        causes(&options),
        [BadOption::NotAHost(ip("127.0.0.1")), BadOption::NoRoute]
    );
}

#[test]
fn hundreds_of_routes_are_read_and_more_are_dropped() {
    let routes = |n: usize| -> Vec<u8> {
        (0..n)
            .flat_map(|n| [16, 10, n as u8, 192, 0, 2, 1])
            .collect()
    };
    assert_eq!(
        read_one(121, &routes(MAX_ROUTES))
            .classless_routes
            .unwrap()
            .len(),
        MAX_ROUTES
    );
    assert_dropped(121, &routes(MAX_ROUTES + 1), BadOption::TooMany(MAX_ROUTES));
    let pairs = |n: usize| [10, 0, 0, 1, 192, 0, 2, 1].repeat(n);
    let found = read_one(33, &pairs(MAX_ROUTES)).static_routes.len();
    assert_eq!(found, MAX_ROUTES);
    assert_dropped(33, &pairs(MAX_ROUTES + 1), BadOption::TooMany(MAX_ROUTES));
}

#[test]
fn static_routes_lead_to_hosts_and_to_networks_of_a_class() {
    for (destination, expected) in [
        ("203.0.113.7", "203.0.113.7/32"),
        ("203.0.113.0", "203.0.113.0/24"),
        ("172.16.0.0", "172.16.0.0/16"),
        ("172.16.5.0", "172.16.5.0/32"),
        ("10.0.0.0", "10.0.0.0/8"),
        ("10.1.0.0", "10.1.0.0/32"),
        ("239.1.2.3", "239.1.2.3/32"),
    ] {
        let options = read_one(33, &[ip(destination).octets(), [192, 0, 2, 1]].concat());
        assert_eq!(options.static_routes, [route(expected, Some("192.0.2.1"))]);
    }
}

#[test]
fn a_static_route_is_never_the_default_route() {
    let bytes = [
        [0, 0, 0, 0, 192, 0, 2, 1],
        [10, 0, 0, 1, 0, 0, 0, 0],
        [10, 0, 0, 2, 192, 0, 2, 2],
    ]
    .concat();
    let options = read_one(33, &bytes);
    assert_eq!(
        options.static_routes,
        [route("10.0.0.2/32", Some("192.0.2.2"))]
    );
    assert_eq!(
        causes(&options),
        [
            BadOption::Destination("0.0.0.0/8".parse().unwrap()),
            BadOption::NotAHost(Ipv4Addr::UNSPECIFIED)
        ]
    );
}

#[test]
fn names_have_letters_digits_hyphens_underscores_and_dots() {
    let longest = format!("{0}.{0}.{0}.{1}", "a".repeat(63), "b".repeat(61));
    for (sent, read) in [
        ("example.com", "example.com"),
        ("_Msdcs.Lan-1", "_Msdcs.Lan-1"),
        ("example.com.", "example.com"),
        ("example.com\0", "example.com"),
        ("example.com.\0\0", "example.com"),
        (&longest, &longest),
    ] {
        assert_eq!(read_one(15, sent.as_bytes()).domains, [read]);
    }
}

#[test]
fn names_with_anything_else_are_dropped() {
    let too_long = format!("{0}.{0}.{0}.{1}", "a".repeat(63), "b".repeat(62));
    let many = "a.".repeat(2000);
    for name in [
        "",
        "\0",
        ".",
        "..",
        "..com",
        "a..b",
        "a.b..",
        "a\nb",
        "lan\nnameserver 192.0.2.66",
        "a\0b",
        "ä.de",
        "a;b",
        "$(reboot)",
        "a/b",
        "-rf",
        "a.-b",
        "a\x7fb",
        "a\x1b[2J",
        &"a".repeat(64),
        &too_long,
        &many,
    ] {
        let shown: String = name
            .bytes()
            .flat_map(|byte| byte.escape_ascii())
            .map(char::from)
            .collect();
        let shown = &shown[..shown.len().min(MAX_NO_NAME)];
        assert_dropped(15, name.as_bytes(), BadOption::Name(shown.to_owned()));
    }
    assert_dropped(15, &[0xff, 0xfe], BadOption::Name(r"\xff\xfe".to_owned()));
}

#[test]
fn option_15_may_have_several_names() {
    for (sent, read) in [
        (
            "lan.example example.com",
            &["lan.example", "example.com"][..],
        ),
        ("lan.example,example.com\0", &["lan.example", "example.com"]),
        (
            " lan.example ,\texample.com, \0",
            &["lan.example", "example.com"],
        ),
        (".lan.example", &["lan.example"]),
        (
            ".lan.example. .example.com.",
            &["lan.example", "example.com"],
        ),
        ("lan.example lan.example", &["lan.example"]),
    ] {
        assert_eq!(read_one(15, sent.as_bytes()).domains, read, "{sent:?}");
    }
    for bad in [
        "lan.example a..b",
        "lan.example,\nnameserver 192.0.2.66",
        " , ",
    ] {
        let options = read_one(15, bad.as_bytes());
        let found = (options.domains.len(), options.dropped.len());
        assert_eq!(found, (0, 1), "{bad:?}");
    }
    let many = (0..40)
        .map(|n| format!("n{n}"))
        .collect::<Vec<_>>()
        .join(" ");
    let options = read_one(15, many.as_bytes());
    let found = (options.domains.len(), causes(&options));
    assert_eq!(found, (MAX_SEARCH, vec![BadOption::TooMany(MAX_SEARCH)]));
}

#[test]
fn a_search_list_is_read_with_its_pointers_backwards() {
    // RFC 3397 §2: eng.apple.com., marketing.apple.com.
    let bytes = b"\x03eng\x05apple\x03com\x00\x09marketing\xc0\x04";
    assert_eq!(
        read_one(119, bytes).search,
        ["eng.apple.com", "marketing.apple.com"]
    );
    // The same, split by RFC 3396 inside a label and inside the pointer.
    let split = [
        option(119, &bytes[..7]),
        option(26, &[5, 220]),
        option(119, &bytes[7..25]),
        option(119, &bytes[25..]),
    ];
    assert_eq!(
        read(&split.concat()).search,
        ["eng.apple.com", "marketing.apple.com"]
    );
    // A pointer to a pointer, and one to nothing but a pointer.
    let chain = b"\x03com\x00\x01a\xc0\x00\x01b\xc0\x05\xc0\x09";
    assert_eq!(
        read_one(119, chain).search,
        ["com", "a.com", "b.a.com", "b.a.com"]
    );
}

#[test]
fn a_search_list_with_a_bad_pointer_is_dropped_whole() {
    for bytes in [
        &b"\xc0\x00"[..],                   // to itself
        b"\x01a\xc0\x00",                   // to its own beginning
        b"\x01a\xc0\x02",                   // to the pointer itself
        b"\x01a\x00\x01b\xc0\x05\x01c\x00", // to itself, further on
        b"\x01a\x00\xc0\x06\x01b\xc0\x03",  // forward
        b"\x01a\xc0\x05\x00\x01b\xc0\x00",  // two, each at the other
        b"\x01a\x00\xff\xff",               // out of the option
        b"\x01a\x00\xc0",                   // half a pointer
    ] {
        assert_dropped(119, bytes, BadOption::Compression);
    }
}

#[test]
fn a_pointer_inside_a_label_leads_no_further_forward() {
    // The first name's label hides a pointer to byte 5; the second name begins at byte 6 and points at it.
    let options = read_one(119, b"\x04a\xc0\x05a\x00\xc0\x02");
    assert_eq!(options.search, [""; 0]);
    assert_eq!(
        causes(&options),
        [
            BadOption::Name(r"a\xc0\x05a".to_owned()),
            BadOption::Compression
        ]
    );
}

#[test]
fn a_bad_search_list_is_dropped_whole() {
    for bytes in [
        &b"\x03com"[..],
        b"\x03co",
        b"\x03",
        b"\x03com\x00\x05ab",
        b"\x40a\x00",
        b"\x80a\x00",
        b"\x03com\x00\xbf\x00",
    ] {
        assert_dropped(119, bytes, BadOption::Compression);
    }
    assert_dropped(119, b"", BadOption::Length(0));
}

#[test]
fn one_bad_name_of_a_search_list_is_left_out() {
    let options = read_one(
        119,
        b"\x03com\x00\x00\x03a\nb\x00\x01-\x00\x03a.b\x00\x03org\x00",
    );
    assert_eq!(options.search, ["com", "org"]);
    let names = ["", r"a\nb", "-", "a.b"].map(|name| BadOption::Name(name.to_owned()));
    assert_eq!(causes(&options), names);
}

#[test]
fn a_search_list_stops_at_its_limit() {
    let options = read_one(119, &b"\x01a\x00".repeat(100));
    let found = (options.search.len(), causes(&options));
    assert_eq!(found, (MAX_SEARCH, vec![BadOption::TooMany(MAX_SEARCH)]));
    // Bad names count, so that they cost no more than good ones.
    let options = read_one(119, &[0; 100]);
    let found = (options.search.len(), options.dropped.len());
    assert_eq!(found, (0, MAX_DROPPED));
}

#[test]
fn a_text_is_escaped_and_cut() {
    let read = |text: &[u8]| read_one(56, text).message.unwrap();
    assert_eq!(read(b"no such lease"), "no such lease");
    let found = read(b"a\nb\x1b[2J\0\xc3\xa4\0\0");
    assert_eq!(found, "a\\nb\\x1b[2J\\x00\\xc3\\xa4");
    let cut = read(&[7; 100]);
    assert_eq!((cut.len(), cut.ends_with("\\x07")), (252, true));
    assert_eq!(read(&[b'x'; 600]).len(), MAX_TEXT);
    assert_dropped(56, b"", BadOption::Length(0));
    assert_dropped(56, b"\0", BadOption::Length(1));
}

#[test]
fn an_mtu_has_two_bytes_and_is_68_at_least() {
    assert_dropped(26, &[0, 0, 5, 220], BadOption::Length(4));
    assert_dropped(26, &[5], BadOption::Length(1));
    assert_dropped(26, &[0, 0], BadOption::Mtu(0));
    assert_dropped(26, &[0, 67], BadOption::Mtu(67));
    for mtu in [68, 576, 1279, 1280, 9000, 65535_u16] {
        assert_eq!(read_one(26, &mtu.to_be_bytes()).mtu, Some(mtu));
    }
}

#[test]
fn times_are_passed_on_as_they_are() {
    let all = [
        option(51, &[0; 4]),
        option(58, &[255; 4]),
        option(59, &[0, 0, 0, 1]),
    ]
    .concat();
    let options = read(&all);
    let found = (options.lease_time, options.t1, options.t2);
    assert_eq!(found, (Some(0), Some(u32::MAX), Some(1)));
}

#[test]
fn an_echoed_client_identifier_is_whole() {
    let id: Vec<u8> = (0..=254).collect();
    assert_eq!(read_one(61, &id).client_id, Some(id));
    assert_dropped(61, &[], BadOption::Length(0));
}

#[test]
fn rapid_commit_is_there_or_not() {
    assert!(read_one(80, &[]).rapid_commit);
    assert!(!read(&[]).rapid_commit);
}
