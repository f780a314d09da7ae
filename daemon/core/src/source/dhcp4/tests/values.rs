//! What comes with a lease, what of it stays, and the way to its server.

use std::net::Ipv4Addr;
use std::num::NonZeroU16;
use std::sync::Arc;

use fastrand::Rng;

use super::super::lease::{Lease, LeaseRoute};
use super::super::release::{ReleaseAction, ReleaseExchange};
use super::super::timing;
use super::super::{Client, Verdict};
use super::answers::won;
use super::script::{ACK, Bench, LEASED, OFFER, Reply, SERVER, at, lease, plain};
use crate::wire::frame::{self, Frame, FrameMeta};

const FAR: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 1);

/// Returns the gateway and the routes, as text.
pub(super) fn shown(lease: &Lease) -> (Option<Ipv4Addr>, Vec<String>) {
    let via = |r: &LeaseRoute| match r.via {
        Some(via) => format!("{} via {via}", r.destination),
        None => r.destination.to_string(),
    };
    (lease.gateway, lease.routes.iter().map(via).collect())
}

#[test]
fn the_network_or_broadcast_address_is_no_router() {
    let to = |width: u8, via: [u8; 4]| {
        [&[width, 10][..usize::from(width).div_ceil(8) + 1], &via].concat()
    };
    for none in [[192, 0, 2, 0], [192, 0, 2, 255]] {
        let routers = |r: Reply| r.with(3, &[&none[..], &[192, 0, 2, 9]].concat());
        // The next one of the list.
        assert_eq!(won(routers).gateway, Some([192, 0, 2, 9].into()));
        let statics = |r: Reply| r.with(33, &[&[10, 0, 0, 0][..], &none].concat());
        assert_eq!(shown(&won(statics)), (None, vec![]));
        for code in [121, 249] {
            let some = won(|r| r.with(code, &[to(0, none), to(8, [192, 0, 2, 9])].concat()));
            let found = shown(&some);
            assert_eq!(found, (None, vec!["10.0.0.0/8 via 192.0.2.9".to_owned()]));
            let nothing_left = won(|r| routers(r).with(code, &to(8, none)));
            assert_eq!(
                nothing_left.gateway,
                Some([192, 0, 2, 9].into()),
                "as if {code} were absent"
            );
        }
    }
    let pair = won(|r| r.with(1, &[255, 255, 255, 254]).with(3, &[192, 0, 2, 51]));
    // A /31 has neither.
    assert_eq!(pair.gateway, Some([192, 0, 2, 51].into()));
}

/// A lease that has all values that a lease can have.
fn full() -> Lease {
    let times = timing::times(1000, Some(500), Some(900));
    let default = LeaseRoute {
        destination: "0.0.0.0/0".parse().expect("a subnet"),
        via: Some(SERVER),
    };
    Lease {
        address: "192.0.2.50/20".parse().expect("an address"),
        times,
        gateway: default.via,
        routes: vec![default],
        dns: vec![SERVER],
        domain: Some("example.org".to_owned()),
        search: vec!["example.org".to_owned()],
        mtu: NonZeroU16::new(1400),
        ..lease()
    }
}

/// An ACK with nothing but what it must have (RFC 2131 table 3).
fn bare(xid: u32) -> Reply {
    Reply::new(ACK, xid, 1000).without(1)
}

#[test]
fn a_bare_ack_changes_no_configuration() {
    let held = || Bench::holding(full());
    let renewed = |answer: &dyn Fn(Reply) -> Reply| {
        let mut bench = held();
        bench.clock(at(500.0));
        let xid = bench.resolved(at(500.0)).sent().xid();
        bench.answer(at(500.0), &answer(bare(xid))).verdict
    };
    let mut rebinding = held();
    let xid = rebinding.clock(at(900.0)).sent().xid();
    let rebound = rebinding
        .answer(at(900.0), &bare(xid).with(54, &[192, 0, 2, 9]))
        .verdict;
    let mut rebooting = Bench::new(Client::reacquire(
        plain(),
        Arc::new(full()),
        at(0.0),
        Rng::with_seed(7),
    ));
    let xid = rebooting.clock(at(0.0)).sent().xid();
    let rebooted = rebooting.answer(at(0.0), &bare(xid)).verdict;
    let broken = |r: Reply| r.with(6, &[192, 0, 2, 53, 1]);
    for verdict in [renewed(&|r| r), renewed(&broken), rebound, rebooted] {
        let Some(Verdict::Granted(lease)) = verdict else {
            panic!("{verdict:?}")
        };
        assert!(
            Lease {
                server: SERVER,
                ..(*lease).clone()
            }
            .grants_the_same(&full()),
            "{lease:?}"
        );
    }
    let Some(Verdict::Granted(lease)) = renewed(&|r| r.with(3, &[192, 0, 2, 8])) else {
        panic!("not extended")
    };
    let mut by_itself = Lease::unknown(full().address, at(500.0));
    by_itself.gateway = Some([192, 0, 2, 8].into());
    assert_eq!(
        (lease.address, lease.gateway),
        (full().address, by_itself.gateway),
        "the mask is kept"
    );
    let found = (lease.routes.len(), &lease.dns, lease.mtu);
    assert_eq!(found, (1, &by_itself.dns, None), "withdrawn");
    let elsewhere = renewed(&|r| r.giving([10, 0, 0, 7].into()));
    let Some(Verdict::Granted(lease)) = elsewhere else {
        panic!("{elsewhere:?}")
    };
    // Another address has nothing of the first.
    assert_eq!((lease.address.prefix_len(), lease.gateway), (8, None));
}

/// The answer with everything that [`full`] has, in the order of the wire.
fn whole(reply: Reply) -> Reply {
    let search = [&[7][..], b"example", &[3], b"org", &[0]].concat();
    let names = reply.with(15, b"example.org").with(119, &search);
    names
        .with(1, &[255, 255, 240, 0])
        .with(6, &SERVER.octets())
        .with(26, &[5, 120])
}

/// Returns what that lease becomes by such an answer to its RENEW, apart from its times.
fn renewed(answer: impl Fn(Reply) -> Reply) -> Lease {
    let mut bench = Bench::holding(full());
    bench.clock(at(500.0));
    let xid = bench.resolved(at(500.0)).sent().xid();
    let output = bench.answer(
        at(500.0),
        &answer(whole(bare(xid)).with(3, &SERVER.octets())),
    );
    let lease = output.won();
    Lease {
        start: full().start,
        times: full().times,
        ..(*lease).clone()
    }
}

#[test]
fn an_option_that_cannot_be_read_stays_as_it_was() {
    for (code, value) in [
        (3, &[192, 0, 2][..]),
        (6, &[192, 0, 2, 53, 1]),
        (26, &[0, 0, 5, 120]),
        (6, &[]),
        (119, &[0xc0, 0]),
        (33, &[10, 0, 0, 0]),
        (121, &[8, 10]),
        (121, &[60, 10, 0, 0, 0, 0, 0, 0, 0, 192, 0, 2, 9]),
        (249, &[8, 10]),
    ] {
        let found = renewed(|reply| reply.with(code, value));
        assert_eq!(found, full(), "{code}: {value:?}");
    }
    let other = Ipv4Addr::new(192, 0, 2, 9);
    let by_121 = renewed(|reply| {
        reply
            .with(3, &[192])
            .with(249, &[8])
            .with(121, &[&[0], &other.octets()[..]].concat())
    });
    // 121 says all that the others could.
    assert_eq!(by_121.gateway, Some(other));
}

#[test]
fn an_option_that_is_whole_and_of_no_use_is_withdrawn() {
    let default = Lease {
        gateway: None,
        routes: vec![],
        ..full()
    };
    for (code, value, lease) in [
        (3, &[127, 0, 0, 1][..], default.clone()),
        (3, &[192, 0, 0, 0], default),
        (
            6,
            &[127, 0, 0, 1],
            Lease {
                dns: vec![],
                ..full()
            },
        ),
        (
            15,
            b"no/name",
            Lease {
                domain: None,
                ..full()
            },
        ),
        (
            26,
            &[0, 60],
            Lease {
                mtu: None,
                ..full()
            },
        ),
    ] {
        let found = renewed(|reply| reply.with(code, value));
        assert_eq!(found, lease, "{code}: {value:?}");
    }
}

#[test]
fn what_a_cut_answer_does_not_say_stays() {
    // The last option is 3, and behind it is the end.
    // Cut inside of option 3.
    assert_eq!(renewed(|reply| Reply { cut: 3, ..reply }), full());
    let few = |reply: Reply| {
        Reply {
            options: reply.options[..2].to_vec(),
            ..reply
        }
        .with(6, &[192, 0, 2, 53])
    };
    let lease = renewed(|reply| Reply {
        cut: 3,
        ..few(reply).with(3, &SERVER.octets())
    });
    assert_eq!(
        lease,
        Lease {
            dns: vec![[192, 0, 2, 53].into()],
            ..full()
        },
        "what it does say counts"
    );
    assert_eq!(
        renewed(|reply| few(reply).with(52, &[9])).routes,
        full().routes,
        "the rest may be where 52 should say"
    );
    assert_eq!(renewed(few).routes, vec![], "this one is whole");
}

#[test]
fn a_bare_ack_has_the_configuration_of_its_offer() {
    let mut bench = Bench::acquiring();
    let xid = bench.begin();
    let offer = Reply::new(OFFER, xid, 600)
        .with(1, &[255, 255, 240, 0])
        .with(3, &SERVER.octets());
    bench.answer(at(0.0), &offer);
    let lease = bench.answer(at(0.0), &bare(xid)).won();
    let found = (lease.ip(), lease.address.prefix_len(), lease.gateway);
    assert_eq!(found, (LEASED, 20, Some(SERVER)));
    // The times are the ACK's.
    assert_eq!(lease.times.map(|times| times.end.as_secs()), Some(1000));
}

/// The lease of a server, with routes such as `10.0.0.0/8 192.0.2.9` or, on the link, `10.0.0.0/8`.
fn of(server: Ipv4Addr, routes: &[&str]) -> Lease {
    let route = |text: &&str| {
        let (destination, via) = text
            .split_once(' ')
            .map_or((*text, None), |(to, via)| (to, Some(via)));
        let via = via.map(|via| via.parse().expect("an address"));
        LeaseRoute {
            destination: destination.parse().expect("a subnet"),
            via,
        }
    };
    Lease {
        server,
        times: timing::times(1000, None, None),
        routes: routes.iter().map(route).collect(),
        ..lease()
    }
}

#[test]
fn the_next_hop_follows_the_longest_prefix() {
    let router = |last| Some(Ipv4Addr::new(192, 0, 2, last));
    for (server, routes, hop) in [
        (SERVER, &["0.0.0.0/0 192.0.2.8"][..], Some(SERVER)),
        (SERVER, &["192.0.2.1/32 192.0.2.8"], router(8)),
        (FAR, &[], None),
        (FAR, &["172.16.0.0/12 192.0.2.8"], None),
        (FAR, &["10.0.0.0/8 192.0.2.8"], router(8)),
        (
            FAR,
            &[
                "0.0.0.0/0 192.0.2.8",
                "10.0.0.0/8 192.0.2.9",
                "10.0.0.0/9 192.0.2.7",
            ],
            router(7),
        ),
        (FAR, &["0.0.0.0/0 192.0.2.8", "10.0.0.0/8"], Some(FAR)),
        (
            FAR,
            &["10.0.0.0/8 192.0.2.8", "10.0.0.0/8 192.0.2.9"],
            router(8),
        ),
    ] {
        let lease = of(server, routes);
        let found = (lease.next_hop(), lease.on_link());
        assert_eq!(found, (hop, hop == Some(server)), "{server} by {routes:?}");
        let Some(hop) = hop else { continue };
        let asked = |frames: &[Vec<u8>]| match frame::decode(&frames[0], FrameMeta::default())
            .expect("our own frame")
        {
            Frame::Arp(arp) => arp.target,
            Frame::Udp(_) => panic!("sent without ARP"),
        };
        let rng = || Rng::with_seed(7);
        let mut renewing = Bench::holding(lease.clone());
        let found = asked(&renewing.clock(at(500.0)).frames);
        assert_eq!(found, hop, "RENEW to {server} by {routes:?}");
        let mut release =
            ReleaseExchange::new(plain(), plain().station, lease, at(0.0), &mut rng());
        let ReleaseAction::Ask(frames) = release.on_clock(at(0.0)) else {
            panic!("sent without ARP")
        };
        assert_eq!(asked(&frames), hop, "RELEASE to {server} by {routes:?}");
    }
}

#[test]
fn several_domains_are_searched_after_the_search_list() {
    let several = |reply: Reply| reply.with(15, b"lan.example, example.org");
    let both = renewed(several);
    assert_eq!(both.domain.as_deref(), Some("lan.example"));
    assert_eq!(both.search, ["example.org", "lan.example"]);
    let alone = renewed(|reply| several(reply).with(119, &[0]));
    assert_eq!(alone.search, ["lan.example", "example.org"]);
    assert_eq!(renewed(|reply| reply).search, ["example.org"]);
}
