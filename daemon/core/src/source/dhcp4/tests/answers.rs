//! Which answers are believed, and what happens to them.

use std::net::Ipv4Addr;
use std::num::NonZeroU16;
use std::sync::Arc;

use fastrand::Rng;
use ipnet::Ipv4Net;

use super::super::accept::Refusal;
use super::super::lease::{Lease, LeaseRoute};
use super::super::release::{ReleaseAction, ReleaseExchange};
use super::super::timing::Timer;
use super::super::{Loss, Refused, StateName, Verdict};
use super::script::{
    ACK, Bench, LEASED, NAK, OFFER, Reply, SERVER, SERVER_MAC, Sent, at, lease, plain, sent,
};
use super::values::shown;
use crate::wire::Mac;
use crate::wire::message::MessageType;

/// Brings a client to REQUESTING; returns its xid.
pub(super) fn requesting() -> (Bench, u32) {
    let mut bench = Bench::acquiring();
    let xid = bench.begin();
    let request = bench.offer(at(0.0), xid);
    // The OFFER's xid (RFC 2131 table 5).
    assert_eq!(request.sent().xid(), xid);
    (bench, xid)
}

pub(super) fn won(reply: impl Fn(Reply) -> Reply) -> Arc<Lease> {
    let (mut bench, xid) = requesting();
    let output = bench.answer(at(0.0), &reply(Reply::new(ACK, xid, 600)));
    match output.verdict {
        Some(Verdict::Granted(lease)) => lease,
        other => panic!("{other:?}, {:?}", output.refused),
    }
}

/// A server other than the one that is asked answers.
const OTHER_SERVER: Refusal = Refusal::OtherServer {
    server: Ipv4Addr::new(192, 0, 2, 9),
    asked: SERVER,
};

#[test]
fn a_lease_may_name_the_client_as_boot_server_or_router() {
    let mut bench = Bench::acquiring();
    let xid = bench.begin();
    let mut offer = Reply::new(OFFER, xid, 600).with(3, &LEASED.octets());
    offer.siaddr = LEASED;
    let output = bench.answer(at(0.0), &offer);
    let found = (output.refused, bench.client.state());
    assert_eq!(found, (None, StateName::Requesting));
}

#[test]
fn each_refusal_has_its_cause() {
    use Refusal::*;
    let unexpected = |kind| Unexpected {
        kind,
        state: StateName::Selecting,
    };
    let bad = |address: [u8; 4]| BadAddress(address.into());
    let network = |address: [u8; 4]| NetworkAddress(Ipv4Net::new_assert(address.into(), 24));
    let other = Mac([2, 0, 0, 0, 0, 8]);
    let table: [(&dyn Fn(Reply) -> Reply, Refusal); 17] = [
        (
            &|r| Reply {
                xid: r.xid ^ 1,
                ..r
            },
            OtherXid,
        ),
        (&|r| Reply { chaddr: other, ..r }, OtherChaddr),
        (&|r| r.with(61, b"\0other"), OtherClientId),
        (&|r| r.without(54), NoServerId),
        (&|r| r.without(51), NoLeaseTime),
        (&|r| r.with(51, &[0; 4]), ShortLease(0)),
        (&|r| r.with(51, &[0, 0, 0, 5]), ShortLease(5)),
        (&|r| Reply { kind: ACK, ..r }, unexpected(MessageType::Ack)),
        (&|r| Reply { kind: NAK, ..r }, unexpected(MessageType::Nak)),
        (&|r| r.giving([0; 4].into()), bad([0; 4])),
        (&|r| r.giving([127, 0, 0, 1].into()), bad([127, 0, 0, 1])),
        (&|r| r.giving([224, 0, 0, 5].into()), bad([224, 0, 0, 5])),
        (&|r| r.giving([255; 4].into()), bad([255; 4])),
        (
            &|r| r.giving([192, 0, 2, 0].into()),
            network([192, 0, 2, 0]),
        ),
        (
            &|r| r.giving([192, 0, 2, 255].into()),
            network([192, 0, 2, 255]),
        ),
        (&|r| r.giving(SERVER), OfServer(SERVER)),
        (
            &|r| Reply {
                giaddr: LEASED,
                ..r
            },
            OfRelay(LEASED),
        ),
    ];
    for (change, refusal) in table {
        let mut bench = Bench::acquiring();
        let xid = bench.begin();
        let output = bench.answer(at(0.0), &change(Reply::new(OFFER, xid, 600)));
        assert_eq!(output.refused, Some(Refused::Unbelieved(refusal)));
        assert!(output.frames.is_empty() && bench.client.state() == StateName::Selecting);
        let output = bench.offer(at(0.0), xid);
        let found = output.frames.len();
        assert_eq!(found, 1, "after {refusal:?} the next offer is taken");
    }
}

#[test]
fn an_ack_of_another_address_or_server_is_refused() {
    let (mut bench, xid) = requesting();
    let other = Reply::new(ACK, xid, 600).giving(Ipv4Addr::new(192, 0, 2, 51));
    assert_eq!(
        bench.answer(at(0.0), &other).refused,
        Some(
            Refusal::OtherAddress {
                acknowledged: other.yiaddr,
                asked: LEASED
            }
            .into()
        )
    );
    for other in [Reply::new(ACK, xid, 600), Reply::nak(xid)] {
        let output = bench.answer(at(0.0), &other.with(54, &[192, 0, 2, 9]));
        assert_eq!(output.refused, Some(OTHER_SERVER.into()));
    }
    assert_eq!(bench.client.state(), StateName::Requesting);
}

#[test]
fn a_nak_to_a_renewal_starts_a_search_at_once() {
    let mut bench = Bench::bound(500, 900, 1000);
    bench.clock(at(500.0));
    let xid = bench.resolved(at(500.0)).sent().xid();
    let output = bench.nak(at(500.0), xid);
    let discover = output.sent();
    let Some(Verdict::Lost(lost, Loss::Nak { server, message })) = output.verdict else {
        panic!("{output:?}")
    };
    assert_eq!((lost.ip(), server), (LEASED, SERVER));
    assert!(!message.expect("a message").contains('"') || bench.client.lease().is_none());
    // Not the address that was refused.
    assert_eq!((discover.kind(), discover.address(50)), ("DISCOVER", None));
}

#[test]
fn a_missing_or_bad_mask_is_replaced_by_the_classs() {
    for (yiaddr, prefix) in [
        ([10, 1, 2, 3], 8),
        ([172, 16, 2, 3], 16),
        ([192, 0, 2, 3], 24),
    ] {
        for mask in [None, Some([255, 0, 255, 0])] {
            let mut bench = Bench::acquiring();
            let xid = bench.begin();
            let with_mask = |r: Reply| match mask {
                Some(mask) => r.with(1, &mask),
                None => r.without(1),
            };
            let reply = |kind| with_mask(Reply::new(kind, xid, 600)).giving(yiaddr.into());
            bench.answer(at(0.0), &reply(OFFER));
            let output = bench.answer(at(0.0), &reply(ACK));
            let lease = output.won();
            assert_eq!(lease.address.prefix_len(), prefix);
        }
    }
}

#[test]
fn option_121_replaces_249_replaces_33_and_3() {
    let routers = |r: Reply| {
        r.with(3, &[192, 0, 2, 1])
            .with(33, &[198, 51, 100, 7, 192, 0, 2, 2])
    };
    let lease = won(routers);
    let both = ["0.0.0.0/0 via 192.0.2.1", "198.51.100.7/32 via 192.0.2.2"].map(str::to_owned);
    assert_eq!(shown(&lease), (Some(SERVER), both.to_vec()));
    let lease = won(|r| routers(r).with(249, &[8, 10, 192, 0, 2, 3]));
    let found = shown(&lease);
    assert_eq!(found, (None, vec!["10.0.0.0/8 via 192.0.2.3".to_owned()]));
    let lease = won(|r| {
        routers(r)
            .with(249, &[8, 10, 192, 0, 2, 3])
            .with(121, &[0, 192, 0, 2, 4, 8, 11, 0, 0, 0, 0])
    });
    let classless = ["0.0.0.0/0 via 192.0.2.4", "11.0.0.0/8"].map(str::to_owned);
    assert_eq!(
        shown(&lease),
        (Some(Ipv4Addr::new(192, 0, 2, 4)), classless.to_vec())
    );
    let lease = won(|r| routers(r).with(121, &[60, 10, 192, 0, 2, 3]));
    // A broken 121 is no reason to lose the gateway.
    assert_eq!(lease.gateway, Some(SERVER));
}

#[test]
fn an_mtu_that_would_stop_ipv6_is_dropped_and_told_of() {
    assert_eq!(
        won(|r| r.with(26, &1280u16.to_be_bytes())).mtu,
        NonZeroU16::new(1280)
    );
    assert_eq!(won(|r| r.with(26, &[0, 0, 5, 220])).mtu, None, "four bytes");
    let (mut bench, xid) = requesting();
    let ack = Reply::new(ACK, xid, 600)
        .with(26, &1279u16.to_be_bytes())
        .with(3, &[192, 0, 2, 255]);
    let output = bench.answer(at(0.0), &ack);
    let lease = output.won();
    assert_eq!((lease.mtu, lease.gateway), (None, None));
    let told: Vec<_> = output.dropped.iter().map(ToString::to_string).collect();
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(
        told[0].contains("1279") && told[1].contains("192.0.2.255"),
        "{told:?}"
    );
}

#[test]
fn an_acquisition_given_up_after_request_is_released() {
    let (mut bench, _) = requesting();
    let release = sent(&bench.client.abort(at(0.0)).expect("a RELEASE"));
    let found = (release.kind(), release.to, release.ciaddr(), release.source);
    assert_eq!(found, ("RELEASE", SERVER_MAC, LEASED, LEASED));
    assert_eq!(release.address(54), Some(SERVER));
    let (mut bench, _) = requesting();
    let owed = bench.client.owed(at(0.0)).and_then(Lease::expires);
    let ends = owed.expect("the offer has a time");
    assert_eq!(bench.client.owed(ends), None);
    // It may be another client's by now.
    assert_eq!(bench.client.abort(ends), None);
    let mut bench = Bench::acquiring();
    bench.clock(at(0.0));
    // Before REQUEST there is nothing to give back.
    assert_eq!(bench.client.abort(at(0.0)), None);
}

#[test]
fn a_server_behind_a_router_gets_no_ethernet_broadcast() {
    let routes = vec![LeaseRoute {
        destination: Ipv4Net::default(),
        via: Some(SERVER),
    }];
    let far = Lease {
        server: Ipv4Addr::new(198, 51, 100, 1),
        routes,
        ..lease()
    };
    let mut release = ReleaseExchange::new(
        plain(),
        plain().station,
        far,
        at(0.0),
        &mut Rng::with_seed(1),
    );
    let mut now = at(0.0);
    let frame = loop {
        match release.on_clock(now) {
            ReleaseAction::Send { frame, answered } => {
                assert!(!answered);
                break sent(&frame);
            }
            ReleaseAction::Ask(_) | ReleaseAction::Wait => {
                now = release.deadline().expect("it goes on")
            }
        }
    };
    let found = (now, frame.kind(), frame.to);
    assert_eq!(found, (at(0.6), "RELEASE", SERVER_MAC));
}

/// A renewal of a lease whose address is not on the interface.
fn unaddressed(t1: u32, t2: u32, end: u32) -> (Bench, Sent) {
    let mut bench = Bench::bound(t1, t2, end);
    bench.client.set_addressed(false);
    let request = bench.clock(at(t1.into())).sent();
    (bench, request)
}

#[test]
fn without_its_address_a_lease_asks_by_init_reboot() {
    let (mut bench, request) = unaddressed(500, 900, 1000);
    let none = Ipv4Addr::UNSPECIFIED;
    let found = (request.kind(), request.source, request.ciaddr());
    assert_eq!(found, ("REQUEST", none, none));
    let found = (request.address(50), request.address(54));
    assert_eq!(found, (Some(LEASED), None));
    assert!(request.destination.is_broadcast() && bench.client.broadcasts());
    let found = (bench.client.state(), bench.client.acquires());
    assert_eq!(found, (StateName::Renewing, false));
    let (when, output) = {
        bench.next(Timer::ReceiveWindow, &[]);
        bench.next(Timer::Retransmit, &["REQUEST"])
    };
    assert_eq!((when, output.sent().ciaddr()), (at(700.0), none));
    let xid = output.sent().xid();
    let other = bench.answer(
        at(700.0),
        &Reply::new(ACK, xid, 1000).with(54, &[192, 0, 2, 9]),
    );
    assert!(
        matches!(other.verdict, Some(Verdict::Granted(lease)) if lease.ip() == LEASED),
        "any server may extend it"
    );
}

#[test]
fn without_its_address_only_its_server_may_refuse_a_lease() {
    let (mut bench, request) = unaddressed(500, 900, 1000);
    let nak = Reply::nak(request.xid());
    let other = bench.answer(at(500.0), &nak.clone().with(54, &[192, 0, 2, 9]));
    assert_eq!(other.refused, Some(OTHER_SERVER.into()));
    assert!(matches!(
        bench.answer(at(500.0), &nak).verdict,
        Some(Verdict::Lost(_, Loss::Nak { .. }))
    ));
    let mut bench = Bench::bound(500, 900, 1000);
    bench.client.set_addressed(false);
    let request = bench.clock(at(900.0)).sent();
    let found = (bench.client.state(), request.ciaddr());
    assert_eq!(found, (StateName::Rebinding, Ipv4Addr::UNSPECIFIED));
    bench.client.set_addressed(true);
    bench.next(Timer::ReceiveWindow, &[]);
    let (_, output) = bench.next(Timer::Retransmit, &["REQUEST"]);
    assert_eq!(output.sent().ciaddr(), LEASED, "the address is back");
}
