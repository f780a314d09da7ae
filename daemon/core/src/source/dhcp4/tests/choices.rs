//! How a network's configuration shapes a client: options, servers, addresses, rapid commit.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;

use super::super::accept::Refusal;
use super::super::message::{Hop, Sender};
use super::super::profile::{ClientProfile, Servers, Wanted};
use super::super::timing::Timer;
use super::super::{Client, Miss, Missed, Output, StateName, Verdict};
use super::script::{
    ACK, Bench, LEASED, MAC, OFFER, Reply, SERVER, SERVER_MAC, Sent, at, client_id, lease, plain,
    sent,
};
use crate::wire::message::MessageType;

const OTHER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 60);

/// Another server.
const GOOD: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 9);

fn with(profile: ClientProfile, wanted: Option<Wanted>) -> Bench {
    let sender = Sender::new(MAC, &client_id(), Arc::new(profile));
    Bench::new(Client::acquire(sender, wanted, at(0.0), Rng::with_seed(7)))
}

/// A client that takes a lease in two messages where it may.
fn rapid(rapid_commit: bool, wanted: Option<Wanted>) -> Bench {
    let profile = ClientProfile {
        rapid_commit,
        ..ClientProfile::default()
    };
    with(profile, wanted)
}

/// A client without wishes.
fn any() -> Bench {
    with(ClientProfile::default(), None)
}

fn discover(bench: &mut Bench) -> Sent {
    bench.clock(at(0.0)).sent()
}

fn wants(address: Ipv4Addr, preferred: bool) -> Option<Wanted> {
    Some(Wanted { address, preferred })
}

#[test]
fn the_profile_is_in_discover_and_request_not_in_release() {
    let text = |text: &str| Some(text.to_owned());
    let profile = ClientProfile {
        hostname: text("web-0"),
        fqdn: text("web-0.example.org"),
        vendor_class: text("plc"),
        user_class: text("line-4"),
        provide: vec![(43, vec![1, 2, 3])],
        request: Some(vec![1, 3]),
        broadcast: true,
        ..ClientProfile::default()
    };
    let mut bench = with(profile, None);
    let first = discover(&mut bench);
    let request = bench.offer(at(0.0), first.xid()).sent();
    for message in [&first, &request] {
        assert_eq!(message.option(12), Some(&b"web-0"[..]));
        assert_eq!(
            message.option(81),
            Some(&b"\x05\0\0\x05web-0\x07example\x03org\0"[..]),
            "RFC 4702 wire form"
        );
        assert_eq!(message.option(60), Some(&b"plc"[..]));
        // RFC 3004: each class after its length.
        assert_eq!(message.option(77), Some(&b"\x06line-4"[..]));
        assert_eq!(message.option(43), Some(&[1, 2, 3][..]));
        assert_eq!(message.option(55), Some(&[1, 3][..]));
        assert_eq!(message.payload[10] & 0x80, 0x80, "the broadcast flag");
    }
    let release = sent(&bench.client.abort(at(0.0)).expect("a RELEASE"));
    let found = (release.option(12), release.option(81), release.option(55));
    assert_eq!(found, (None, None, None));
    assert_eq!(release.payload[10], 0, "flags are 0 (RFC 2131 table 5)");
}

#[test]
fn a_name_of_one_label_is_a_partial_one() {
    let value = |name: &str| crate::wire::option::fqdn(name);
    assert_eq!(value("web").as_deref(), Some(&b"\x05\0\0\x03web"[..]));
    assert_eq!(value("web.").as_deref(), Some(&b"\x05\0\0\x03web\0"[..]));
    for bad in ["", ".", "a..b", "m\u{fc}ller.example"] {
        assert_eq!(value(bad), None, "{bad:?}");
    }
    assert_eq!(value(&"a".repeat(64)), None);
    // Longer than a name may be.
    assert_eq!(value(&["abcdefg"; 40].join(".")), None);
}

#[test]
fn a_server_that_is_not_allowed_is_refused_by_name() {
    for (allow, deny) in [(Vec::new(), vec![SERVER]), (vec![OTHER], Vec::new())] {
        let servers = Servers { allow, deny };
        let mut bench = with(
            ClientProfile {
                servers,
                ..ClientProfile::default()
            },
            None,
        );
        let xid = bench.begin();
        let output = bench.offer(at(0.0), xid);
        assert_eq!(output.refused, Some(Refusal::Untrusted(SERVER).into()));
        let found = (bench.client.tally().refused, bench.client.state());
        assert_eq!(found, (1, StateName::Selecting));
        let allowed = Reply::new(OFFER, xid, 600).with(54, &OTHER.octets());
        // Another server is taken.
        assert_eq!(bench.answer(at(0.0), &allowed).frames.len(), 1);
    }
}

#[test]
fn an_ack_to_discover_needs_rapid_commit() {
    for rapid_commit in [true, false] {
        let mut bench = rapid(rapid_commit, None);
        let first = discover(&mut bench);
        assert_eq!(first.option(80), rapid_commit.then_some(&[][..]));
        let plain = bench.ack(at(0.0), first.xid());
        let refusal = Refusal::Unexpected {
            kind: MessageType::Ack,
            state: StateName::Selecting,
        };
        // Without option 80 it is no rapid commit.
        assert_eq!(plain.refused, Some(refusal.into()));
        let output = bench.answer(at(0.1), &Reply::new(ACK, first.xid(), 600).with(80, &[]));
        match output.verdict {
            Some(Verdict::Granted(lease)) => {
                assert_eq!((rapid_commit, lease.start), (true, at(0.0)))
            }
            other => assert_eq!((rapid_commit, other), (false, None)),
        }
    }
}

#[test]
fn a_rapid_commit_server_is_believed_when_it_is_back() {
    for (waited_for, lease) in [(true, 6), (true, 60), (false, 6), (false, 60)] {
        let mut bench = rapid(true, None);
        if !waited_for {
            bench.client.not_waited_for();
        }
        let (mut answers, mut now) = (0, at(0.0));
        let won = loop {
            let output = bench.clock(now);
            let Some(discover) = output.frames.first().map(|frame| sent(frame)) else {
                now = bench.deadline().0;
                continue;
            };
            let (said, passed) = (u64::from(discover.secs()), now.since_boot().as_secs());
            assert!(
                said <= passed && said + 4 > passed,
                "it has looked for {passed} s, and says {said}"
            );
            if now >= at(100.0) {
                answers += 1;
                let ack = Reply::new(ACK, discover.xid(), lease).with(80, &[]);
                match bench.answer(now, &ack) {
                    output if output.refused == Some(Refusal::Ended.into()) => {}
                    output => break output.verdict,
                }
            }
            assert!(
                answers < 6,
                "waited for {waited_for}, {lease} s: refused for ever"
            );
            now = bench.deadline().0;
        };
        assert!(
            matches!(won, Some(Verdict::Granted(_))),
            "waited for {waited_for}, {lease} s: {won:?}"
        );
        // A transaction that went on through the silence would have begun before the lease's time.
        assert!(
            answers <= if lease < 10 { 5 } else { 1 },
            "waited for {waited_for}, {lease} s: after {answers} answers"
        );
    }
}

#[test]
fn who_insists_on_an_address_has_no_rapid_commit() {
    for preferred in [false, true] {
        let mut bench = rapid(true, wants(OTHER, preferred));
        let first = discover(&mut bench);
        assert_eq!(first.option(80).is_some(), preferred);
        let ack = Reply::new(ACK, first.xid(), 600).with(80, &[]);
        let won = bench.answer(at(0.0), &ack).verdict;
        assert_eq!(
            matches!(won, Some(Verdict::Granted(_))),
            preferred,
            "{won:?}"
        );
    }
}

#[test]
fn an_unlike_first_offer_waits_for_a_better_one() {
    let mut bench = with(ClientProfile::default(), wants(LEASED, true));
    let first = discover(&mut bench);
    assert_eq!(first.address(50), Some(LEASED));
    let unlike = Reply::new(OFFER, first.xid(), 600).giving(OTHER);
    assert!(bench.answer(at(0.0), &unlike).frames.is_empty());
    let (when, _) = bench.clone().next(Timer::Choose, &["REQUEST"]);
    assert_eq!(when, at(0.2), "there is no better one");
    let better = Reply::new(OFFER, first.xid(), 600).with(54, &[192, 0, 2, 9]);
    let request = bench.answer(at(0.1), &better).sent();
    assert_eq!(request.address(50), Some(LEASED));
    assert_eq!(bench.client.state(), StateName::Requesting);
}

#[test]
fn a_client_waits_for_the_address_that_it_insists_on() {
    let mut bench = with(ClientProfile::default(), wants(LEASED, false));
    let xid = bench.begin();
    let unlike =
        |bench: &mut Bench, when| bench.answer(when, &Reply::new(OFFER, xid, 600).giving(OTHER));
    let missed = Some(missed(SERVER, OTHER, Miss::Unwanted { wanted: LEASED }));
    assert!(unlike(&mut bench, at(0.0)).frames.is_empty());
    for _ in 0..2 {
        let (when, _) = bench.next(Timer::Retransmit, &["DISCOVER"]);
        let output = unlike(&mut bench, when);
        // For who has to say why there is no lease.
        assert_eq!((output.frames.len(), &output.missed), (0, &missed));
    }
    let right = bench.answer(
        at(3.5),
        &Reply::new(OFFER, xid, 600).with(54, &[192, 0, 2, 9]),
    );
    assert_eq!(right.sent().address(50), Some(LEASED));
}

#[test]
fn an_adopted_address_is_confirmed_and_no_other_is_taken() {
    let adopt = || {
        let rng = Rng::with_seed(7);
        Bench::new(Client::adopt(plain(), lease().address, at(0.0), rng))
    };
    let mut bench = adopt();
    let request = bench.clock(at(0.0)).sent();
    let found = (request.kind(), request.address(50), request.address(54));
    assert_eq!(found, ("REQUEST", Some(LEASED), None));
    let output = bench.ack(at(0.0), request.xid());
    output.won();

    let mut bench = adopt();
    let xid = bench.begin();
    // Which server granted it nobody knows.
    assert!(bench.nak(at(0.0), xid).frames.is_empty());
    let (refused, output) = bench.next(Timer::Retransmit, &["DISCOVER"]);
    let xid = output.sent().xid();
    let other = bench.answer(refused, &Reply::new(OFFER, xid, 600).giving(OTHER));
    let missed = missed(SERVER, OTHER, Miss::Unwanted { wanted: LEASED });
    assert_eq!((other.frames.len(), other.missed), (0, Some(missed)));
    // Nothing is known to be granted, so nothing is released.
    assert_eq!(bench.client.owed(refused), None);
}

fn missed(server: Ipv4Addr, address: Ipv4Addr, miss: Miss) -> Missed {
    Missed {
        server,
        address,
        miss,
    }
}

/// Returns a message of the good server, which gives OTHER.
fn of_good(kind: u8, xid: u32) -> Reply {
    Reply::new(kind, xid, 600)
        .giving(OTHER)
        .with(54, &GOOD.octets())
}

/// Returns the servers whose offers are requested.
fn asked(output: &Output) -> Vec<Ipv4Addr> {
    let requests = output
        .frames
        .iter()
        .map(|frame| sent(frame))
        .filter(|sent| sent.kind() == "REQUEST");
    requests
        .filter_map(|sent| Some(<[u8; 4]>::try_from(sent.option(54)?).ok()?.into()))
        .collect()
}

#[test]
fn a_second_offer_is_requested_if_the_first_fails() {
    for refused in [true, false] {
        let mut bench = any();
        let xid = bench.begin();
        assert_eq!(asked(&bench.offer(at(0.0), xid)), [SERVER]);
        assert!(
            bench
                .answer(at(0.1), &of_good(OFFER, xid))
                .frames
                .is_empty(),
            "the first is asked for"
        );
        let (now, output) = if refused {
            (at(0.2), bench.nak(at(0.2), xid))
        } else {
            bench.next(Timer::Retransmit, &["REQUEST"]);
            bench.next(Timer::Retransmit, &["REQUEST"]);
            bench.next(Timer::Retransmit, &["REQUEST"])
        };
        assert_eq!(asked(&output), [GOOD], "refused {refused}");
        let told = output.missed.expect("nothing came of the first");
        assert_eq!((told.server, told.address), (SERVER, LEASED));
        assert_eq!(matches!(told.miss, Miss::Nak { .. }), refused);
        assert_eq!(told.miss == Miss::Unacknowledged, !refused);
        let won = bench.answer(now, &of_good(ACK, xid)).verdict;
        assert!(
            matches!(won, Some(Verdict::Granted(lease)) if (lease.ip(), lease.server) == (OTHER, GOOD))
        );
    }
}

#[test]
fn of_two_spare_offers_the_better_one_is_requested() {
    let third = Ipv4Addr::new(192, 0, 2, 8);
    for better_first in [true, false] {
        let mut bench = with(ClientProfile::default(), wants(LEASED, true));
        let xid = bench.begin();
        let offer = |server: Ipv4Addr| Reply::new(OFFER, xid, 600).with(54, &server.octets());
        assert_eq!(asked(&bench.answer(at(0.0), &offer(third))), [third]);
        let better = offer(SERVER);
        let spares = match better_first {
            true => [better, of_good(OFFER, xid)],
            false => [of_good(OFFER, xid), better],
        };
        for spare in &spares {
            assert!(bench.answer(at(0.1), spare).frames.is_empty());
        }
        let output = bench.answer(at(0.2), &Reply::nak(xid).with(54, &third.octets()));
        assert_eq!(asked(&output), [SERVER], "it offers what is wished for");
    }
}

#[test]
fn a_spare_offer_is_requested_as_long_as_its_xid_counts() {
    for (until, fresh) in [(32.0, true), (32.1, false), (3600.0, false)] {
        let mut bench = any();
        let xid = bench.begin();
        bench.offer(at(0.0), xid);
        bench.answer(at(0.1), &of_good(OFFER, xid));
        let output = bench.nak(at(until), xid);
        assert_eq!(asked(&output) == [GOOD], fresh, "after {until} s");
    }
}

#[test]
fn an_offer_that_the_wire_doubled_is_requested_once() {
    let mut stage = with(ClientProfile::default(), wants(OTHER, true));
    let xid = stage.begin();
    // Another address is wished for.
    assert!(stage.offer(at(0.0), xid).frames.is_empty());
    assert_eq!(asked(&stage.answer(at(0.0), &of_good(OFFER, xid))), [GOOD]);
    stage.client.refuse(at(0.0), Duration::from_secs(1));
    assert_eq!(asked(&stage.offer(at(0.05), xid)), [SERVER]);
    stage.next(Timer::Retransmit, &["REQUEST"]);
    stage.next(Timer::Retransmit, &["REQUEST"]);
    stage.next(Timer::Retransmit, &["DISCOVER"]);
}

#[test]
fn an_offer_of_a_failed_server_waits_for_a_better_one() {
    for (waited_for, another) in [(true, true), (true, false), (false, true)] {
        let mut bench = any();
        if !waited_for {
            bench.client.not_waited_for();
        }
        let xid = bench.begin();
        bench.offer(at(0.0), xid);
        let output = bench.nak(at(0.0), xid);
        let xid = output.sent().xid();
        let bad = bench.offer(at(0.1), xid);
        // Where nobody waits the next try is soon enough.
        assert_eq!(bad.frames.is_empty(), waited_for);
        if another && waited_for {
            assert_eq!(asked(&bench.answer(at(0.2), &of_good(OFFER, xid))), [GOOD]);
            let output = bench.answer(at(0.2), &Reply::nak(xid).with(54, &GOOD.octets()));
            assert_eq!(asked(&output), [SERVER], "better than none");
            // By then both have failed, and the one that answers first failed last.
            bench.nak(at(0.3), xid);
            let (now, output) = bench.next(Timer::Discover, &["DISCOVER"]);
            let xid = output.sent().xid();
            assert!(bench.offer(now, xid).frames.is_empty());
            assert!(bench.answer(now, &of_good(OFFER, xid)).frames.is_empty());
            assert_eq!(asked(&bench.next(Timer::Choose, &["REQUEST"]).1), [GOOD]);
        } else if waited_for {
            // There is no other.
            assert_eq!(bench.next(Timer::Choose, &["REQUEST"]).0, at(0.3));
            let xid = bench.client.refuse(at(0.3), Duration::ZERO).sent().xid();
            assert_eq!(asked(&bench.offer(at(0.3), xid)), [SERVER]);
        }
    }
}

#[test]
fn a_client_without_an_identifier_never_sends_one() {
    let profile = ClientProfile {
        without_client_id: true,
        ..ClientProfile::default()
    };
    let sender = Sender::new(MAC, &client_id(), Arc::new(profile.clone()));
    let hop = Hop {
        server: SERVER,
        mac: SERVER_MAC,
    };
    let frames = [
        sender.discover(1, 0, None),
        sender.select(1, 0, LEASED, SERVER),
        sender.reboot(1, 0, LEASED),
        sender.renew(1, 0, LEASED, hop),
        sender.rebind(1, 0, LEASED),
        sender.release(1, LEASED, hop),
        sender.decline(1, LEASED, SERVER),
    ];
    for frame in &frames {
        assert_eq!(sent(frame).option(61), None);
    }
    // Some servers say what they know the client by all the same.
    let mut bench = with(profile, None);
    let xid = bench.begin();
    let offer = Reply::new(OFFER, xid, 600).with(61, &[1, 2, 3]);
    let request = bench.answer(at(0.0), &offer).sent();
    assert_eq!((request.kind(), request.option(61)), ("REQUEST", None));
}
