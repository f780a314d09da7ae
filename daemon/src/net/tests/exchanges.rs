//! Opening, sending, receiving, closing.

use std::io;
use std::net::{Ipv4Addr, UdpSocket};
use std::process::Command;
use std::sync::Arc;

use leasehold_core::effect::{ExchangeId, Outcome};
use leasehold_core::link::{Hears, KernelMessage, Link, LinkCause, Sockets, Step, Target};
use leasehold_core::wire::Mac;

use super::frames::{Answer, ArpFrame, arp};
use super::lab::{Lab, MAC, Netns, PEER, PLAIN, in_lab, index_of, ip};
use crate::net::NetReport;

const OTHER: Mac = Mac([0x02, 0, 0, 0, 0, 0x0c]);
/// The address that `arp` asks for.
const ASKED: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 9);
const WITH_ARP: Sockets = Sockets {
    arp: Hears::About(ASKED),
    ..PLAIN
};

#[test]
fn only_what_is_ours_comes_in() {
    in_lab(async |mut lab: Lab| {
        let (_netns, inside, outside) = lab.pair().await;
        let sender = lab.open(outside, PLAIN).await.unwrap();
        let plain = lab.open(inside.clone(), PLAIN).await.unwrap();
        let with_arp = lab.open(inside, WITH_ARP).await.unwrap();

        let good = Answer::PLAIN;
        let foreign = [
            Answer::but(|it| it.chaddr = OTHER),
            Answer::but(|it| it.chaddr = Mac([0x02, 0, 0, 0, 0, 0x1a])),
            Answer::but(|it| it.chaddr = Mac([0x02, 1, 0, 0, 0, 0x0a])),
            Answer::but(|it| it.port = 69),
            Answer::but(|it| {
                it.port = 67;
                it.chaddr = OTHER;
                it.to = MAC;
            }),
            Answer::but(|it| it.protocol = 6),
            Answer::but(|it| it.fragment = 1),
            good.frame()[..70].to_vec(),
        ];
        let ours = [
            good.frame(),
            Answer::but(|it| it.options = 8),
            Answer::but(|it| it.options = 40),
            Answer::but(|it| it.fragment = 0x4000),
            Answer::but(|it| it.to = MAC),
        ];
        for frame in foreign.iter().chain([&arp()]).chain(&ours) {
            lab.send(sender, frame.clone());
        }
        // What one socket gets keeps its order, so nothing foreign came before or between.
        assert_eq!(lab.frame(with_arp).await.0, arp());
        for exchange in [plain, with_arp] {
            for frame in &ours {
                assert_eq!(lab.frame(exchange).await.0, *frame);
            }
        }
    });
}

#[test]
fn what_is_wrong_with_an_answer_comes_in_too() {
    in_lab(async |mut lab: Lab| {
        let (_netns, inside, outside) = lab.pair().await;
        let sender = lab.open(outside, PLAIN).await.unwrap();
        let exchange = lab.open(inside, PLAIN).await.unwrap();
        let wrong = [
            Answer::but(|it| it.port = 67),
            Answer::but(|it| it.fragment = 0x2000),
            Answer::but(|it| {
                it.chaddr = OTHER;
                it.to = MAC;
            }),
        ];
        for frame in &wrong {
            lab.send(sender, frame.clone());
        }
        for frame in &wrong {
            assert_eq!(lab.frame(exchange).await.0, *frame);
        }
    });
}

#[test]
fn of_arp_an_exchange_hears_what_it_wants_and_no_more() {
    in_lab(async |mut lab: Lab| {
        let (_netns, inside, outside) = lab.pair().await;
        let sender = lab.open(outside, PLAIN).await.unwrap();
        let answers = lab.open(inside.clone(), PLAIN).await.unwrap();
        let about = lab.open(inside, WITH_ARP).await.unwrap();

        let other = Ipv4Addr::new(192, 0, 2, 77);
        let question = ArpFrame {
            target: other,
            ..ArpFrame::QUESTION
        };
        let answer = ArpFrame {
            operation: 2,
            target_mac: MAC,
            ..question
        };
        let foreign = [
            question,
            ArpFrame {
                target_mac: OTHER,
                ..answer
            },
            ArpFrame {
                target_mac: Mac([0x02, 0, 0, 0, 0, 0x1a]),
                ..answer
            },
            ArpFrame {
                target_mac: Mac([0x02, 1, 0, 0, 0, 0x0a]),
                ..answer
            },
            ArpFrame {
                operation: 1,
                ..answer
            },
            ArpFrame {
                protocol: 0x86dd,
                target: ASKED,
                ..answer
            },
        ];
        let of_the_address = [
            ArpFrame::QUESTION,
            ArpFrame {
                sender: ASKED,
                ..question
            },
            ArpFrame {
                sender: ASKED,
                target_mac: OTHER,
                ..answer
            },
            ArpFrame {
                target: ASKED,
                target_mac: OTHER,
                ..answer
            },
        ];
        for told in foreign.iter().chain(&of_the_address).chain([&answer]) {
            lab.send(sender, told.frame());
        }
        lab.send(sender, Answer::PLAIN.frame());
        // What one socket gets keeps its order, so nothing foreign came before or between.
        for told in of_the_address {
            assert_eq!(lab.frame(about).await.0, told.frame());
        }
        for exchange in [about, answers] {
            assert_eq!(lab.frame(exchange).await.0, answer.frame());
            assert_eq!(lab.frame(exchange).await.0, Answer::PLAIN.frame());
        }
    });
}

#[test]
fn the_kernel_says_of_a_frame_what_its_bytes_do_not() {
    in_lab(async |mut lab: Lab| {
        let (_netns, inside, outside) = lab.pair().await;
        let sender = lab.open(outside, PLAIN).await.unwrap();
        let exchange = lab.open(inside, PLAIN).await.unwrap();
        let plain = Answer::PLAIN.frame();
        let mut tagged = plain.clone();
        tagged.splice(12..12, [0x81, 0x00, 0x60, 0x07]);

        lab.send(sender, plain.clone());
        let (bytes, meta) = lab.frame(exchange).await;
        assert_eq!(
            (bytes, meta.vlan, meta.other_host),
            (plain.clone(), 0, false)
        );
        lab.send(sender, tagged);
        let (bytes, meta) = lab.frame(exchange).await;
        // The tag is out of the frame.
        assert_eq!((bytes, meta.vlan, meta.other_host), (plain, 7, false));
        lab.send(sender, Answer::but(|it| it.to = OTHER));
        assert!(lab.frame(exchange).await.1.other_host);
    });
}

#[test]
fn a_checksum_that_the_kernel_left_open_is_told() {
    in_lab(async |mut lab: Lab| {
        let (netns, inside, _) = lab.pair().await;
        netns.ip("addr add 192.0.2.7/24 dev eth0");
        ip("addr add 192.0.2.1/24 dev host0");
        let exchange = lab.open(inside, PLAIN).await.unwrap();
        let server = UdpSocket::bind((Ipv4Addr::new(192, 0, 2, 1), 67)).unwrap();
        let answer = Answer::PLAIN.frame();
        server
            .send_to(&answer[42..], (Ipv4Addr::new(192, 0, 2, 7), 68))
            .unwrap();
        let (bytes, meta) = lab.frame(exchange).await;
        assert_eq!(bytes[42..], answer[42..]);
        assert!(meta.checksum_not_ready);
    });
}

#[test]
fn a_parent_hears_for_an_address_that_is_not_its_own() {
    in_lab(async |mut lab: Lab| {
        let (_netns, inside, outside) = lab.pair().await;
        let ifindex = index_of(&outside);
        let parent = lab.open(Link::parent(ifindex, OTHER), PLAIN).await.unwrap();
        let sender = lab.open(inside, PLAIN).await.unwrap();
        let answer = Answer::but(|it| {
            it.to = OTHER;
            it.chaddr = OTHER;
        });
        lab.send(
            sender,
            Answer::but(|it| {
                it.to = PEER;
                it.chaddr = PEER;
            }),
        );
        lab.send(sender, answer.clone());
        let (bytes, meta) = lab.frame(parent).await;
        assert_eq!((bytes, meta.other_host), (answer, true));
    });
}

#[test]
fn a_macvlan_sends_and_hears_as_soon_as_it_has_carrier() {
    in_lab(async |mut lab: Lab| {
        let (netns, wire, _) = lab.pair().await;
        let server = lab.open(wire, WITH_ARP).await.unwrap();
        for last in 0..20 {
            let container = Netns::new();
            let mac = Mac([0x02, 0, 0, 0, 1, last]);
            container.macvlan(mac);
            let view = lab.raised(container.eth0()).await;
            let client = lab.open(container.link(&view), PLAIN).await.unwrap();
            lab.send(client, arp());
            assert_eq!(lab.frame(server).await.0, arp());
            let answer = Answer::but(|it| {
                it.chaddr = mac;
                it.to = mac;
            });
            lab.send(server, answer.clone());
            let (bytes, meta) = lab.frame(client).await;
            assert_eq!((bytes, meta.other_host), (answer, false));
            lab.net.close(None, client);
        }
        drop(netns);
    });
}

#[test]
fn a_frame_over_the_parent_reaches_the_wire_alone() {
    in_lab(async |mut lab: Lab| {
        let (_netns, wire, outside) = lab.pair().await;
        let server = lab.open(wire, WITH_ARP).await.unwrap();
        let parent = index_of(&outside);
        let (mut containers, mut exchanges) = (Vec::new(), Vec::new());
        for last in 1..=2 {
            let container = Netns::new();
            container.macvlan(Mac([0x02, 0, 0, 0, 1, last]));
            let view = lab.raised(container.eth0()).await;
            assert_eq!(view.lower, Some(parent));
            exchanges.push(lab.open(container.link(&view), WITH_ARP).await.unwrap());
            containers.push(container);
        }
        let question = |last| {
            ArpFrame {
                sender: Ipv4Addr::new(192, 0, 2, last),
                ..ArpFrame::QUESTION
            }
            .frame()
        };
        // The last names a link that is not there, so it leaves from inside.
        for (last, over) in [
            (1, Some(parent)),
            (2, None),
            (3, Some(parent)),
            (4, Some(4711)),
        ] {
            lab.net.send(None, exchanges[0], question(last), over);
        }
        for last in 1..=4 {
            // On the wire, in order.
            assert_eq!(lab.frame(server).await.0, question(last));
        }
        for last in [2, 4] {
            assert_eq!(lab.frame(exchanges[1]).await.0, question(last));
        }
    });
}

#[test]
fn firewall_rules_stop_nothing_in_either_direction() {
    in_lab(async |mut lab: Lab| {
        let (netns, inside, outside) = lab.pair().await;
        netns.nft(
            "table inet t {
                chain prerouting { type filter hook prerouting priority -300; policy drop; }
                chain input { type filter hook input priority 0; policy drop; }
                chain output { type filter hook output priority 0; policy drop; }
                chain postrouting { type filter hook postrouting priority 0; policy drop; }
            }
            table arp t {
                chain input { type filter hook input priority 0; policy drop; }
                chain output { type filter hook output priority 0; policy drop; }
            }
            table netdev t {
                chain ingress { type filter hook ingress device \"eth0\" priority 0; policy drop; }
            }",
        );
        let outside = lab.open(outside, WITH_ARP).await.unwrap();
        let inside = lab.open(inside, WITH_ARP).await.unwrap();
        for frame in [Answer::PLAIN.frame(), arp()] {
            lab.send(outside, frame.clone());
            assert_eq!(lab.frame(inside).await.0, frame);
        }
        for frame in [Answer::but(|it| it.chaddr = PEER), arp()] {
            lab.send(inside, frame.clone());
            assert_eq!(lab.frame(outside).await.0, frame);
        }
    });
}

#[test]
fn what_the_kernel_refuses_to_send_is_told_to_who_asks() {
    in_lab(async |mut lab: Lab| {
        let (_netns, inside, outside) = lab.pair().await;
        let outside = lab.open(outside, WITH_ARP).await.unwrap();
        let inside = lab.open(inside, WITH_ARP).await.unwrap();
        assert_eq!(lab.sent(inside, arp()).await, Ok(()));
        assert_eq!(lab.frame(outside).await.0, arp());

        let longer_than_the_mtu = [arp(), vec![0; 2000]].concat();
        let refused = lab.sent(inside, longer_than_the_mtu).await;
        assert!(
            matches!(refused, Err(LinkCause::Refused { doing: "send", .. })),
            "{refused:?}"
        );
    });
}

#[test]
fn a_held_port_is_not_unreachable() {
    in_lab(async |mut lab: Lab| {
        let (netns, inside, _) = lab.pair().await;
        let (held, free) = (Ipv4Addr::new(192, 0, 2, 7), Ipv4Addr::new(192, 0, 2, 8));
        for address in [held, free] {
            netns.ip(&format!("addr add {address}/24 dev eth0"));
        }
        ip("addr add 192.0.2.1/24 dev host0");
        lab.open(
            inside.clone(),
            Sockets {
                hold_port: Some(held),
                ..PLAIN
            },
        )
        .await
        .unwrap();
        let none = Ipv4Addr::new(203, 0, 113, 1);
        lab.open(
            inside,
            Sockets {
                hold_port: Some(none),
                ..PLAIN
            },
        )
        .await
        .expect("it cannot be held, which is no failure");

        let [to_held, to_free] = [held, free].map(|address| {
            let server = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
            server.connect((address, 68)).unwrap();
            server.send(b"answer").unwrap();
            server
        });
        // The second was sent later and its refusal is there: so one of the first would be, too.
        assert_eq!(
            to_free.recv(&mut [0]).unwrap_err().kind(),
            io::ErrorKind::ConnectionRefused
        );
        assert!(to_held.take_error().unwrap().is_none());
    });
}

#[test]
fn an_exchange_fails_or_breaks_on_a_link_that_is_down() {
    in_lab(async |mut lab: Lab| {
        let (netns, view) = lab.known("host0").await;
        assert_eq!(
            lab.open(netns.link(&view), PLAIN).await,
            Err(LinkCause::Down)
        );

        for (end, cause) in [
            ("link set eth0 down", LinkCause::Down),
            (
                "link del eth0",
                LinkCause::NoLink(format!("with index {}", view.ifindex)),
            ),
        ] {
            lab.apply(netns.eth0(), &[Step::Up]).await.1.unwrap();
            let opened = lab.open(netns.link(&view), PLAIN).await.unwrap();
            netns.ip(end);
            let broken = lab.event(|event| match event {
                NetReport::Broken { exchange, cause } if *exchange == opened => Some(cause.clone()),
                _ => None,
            });
            assert_eq!(broken.await, cause);
            lab.send(opened, Answer::PLAIN.frame());
            lab.net.close(None, opened);
        }
    });
}

/// Runs `tc` in a namespace.
fn tc(netns: &Netns, arguments: &str) {
    let tc = || Command::new("tc").args(arguments.split(' ')).status();
    let done = netns.run(tc).expect("tc is installed");
    assert!(done.success(), "{arguments}");
}

#[test]
fn a_queue_that_takes_nothing_breaks_nothing() {
    in_lab(async |mut lab: Lab| {
        let (netns, inside, outside) = lab.pair().await;
        let server = lab.open(outside, WITH_ARP).await.unwrap();
        let exchange = lab.open(inside.clone(), PLAIN).await.unwrap();
        tc(&netns, "qdisc add dev eth0 root pfifo limit 0");
        lab.send(exchange, Answer::PLAIN.frame());
        lab.inspect(Target::Known(inside)).await.unwrap();
        tc(&netns, "qdisc del dev eth0 root");
        lab.send(exchange, arp());
        assert_eq!(lab.frame(server).await.0, arp());
        let left = lab.left_over();
        assert!(
            !left
                .iter()
                .any(|event| matches!(event, NetReport::Broken { .. })),
            "{left:?}"
        );
    });
}

#[test]
fn a_frame_waits_until_a_queue_has_room() {
    in_lab(async |mut lab: Lab| {
        let (netns, inside, outside) = lab.pair().await;
        let server = lab.open(outside, WITH_ARP).await.unwrap();
        let exchange = lab.open(inside.clone(), PLAIN).await.unwrap();
        let mut arrived = false;
        // On a busy machine the queue may be full for longer than a frame waits.
        for _ in 0..20 {
            tc(&netns, "qdisc add dev eth0 root pfifo limit 0");
            lab.send(exchange, arp());
            lab.inspect(Target::Known(inside.clone())).await.unwrap();
            tc(&netns, "qdisc del dev eth0 root");
            let outcome = lab.event(|event| match event {
                NetReport::Frame { exchange, .. } if *exchange == server => Some(true),
                NetReport::Unsent { .. } => Some(false),
                _ => None,
            });
            arrived |= outcome.await;
        }
        assert!(arrived);
    });
}

#[test]
fn a_closed_exchange_still_sends_but_hears_nothing() {
    in_lab(async |mut lab: Lab| {
        let (_netns, inside, outside) = lab.pair().await;
        let server = lab.open(outside, WITH_ARP).await.unwrap();
        let closed = lab.open(inside.clone(), PLAIN).await.unwrap();
        lab.send(closed, arp());
        lab.net.close(None, closed);
        assert_eq!(lab.frame(server).await.0, arp());
        lab.send(closed, arp());

        let open = lab.open(inside, PLAIN).await.unwrap();
        lab.send(server, Answer::PLAIN.frame());
        lab.frame(open).await;
        let left = lab.left_over();
        assert!(
            !left
                .iter()
                .any(|event| matches!(event, NetReport::Frame { .. } | NetReport::Broken { .. })),
            "{left:?}"
        );
    });
}

#[test]
fn an_exchange_closed_while_it_opens_is_answered_once() {
    in_lab(async |mut lab: Lab| {
        let (netns, inside, _) = lab.pair().await;
        let view = lab.inspect(netns.eth0()).await.unwrap();
        let (good, bad) = (lab.op(), lab.op());
        lab.net.open(good, ExchangeId(good.0), inside, PLAIN);
        lab.net
            .open(bad, ExchangeId(bad.0), Link::parent(4711, MAC), PLAIN);
        lab.net.close(None, ExchangeId(good.0));
        lab.net.close(None, ExchangeId(bad.0));
        assert_eq!(lab.done(good).await, Outcome::Opened(Ok(())));
        assert!(matches!(
            lab.done(bad).await,
            Outcome::Opened(Err(LinkCause::NoLink(_)))
        ));
        // The socket is closed, or the namespace would live on.
        drop(netns);
        lab.kernel(KernelMessage::NetnsDied(view.cookie)).await;
        assert!(
            !lab.left_over()
                .iter()
                .any(|event| matches!(event, NetReport::Done { .. }))
        );
    });
}

#[test]
fn an_exchange_waits_for_a_free_socket_or_its_end() {
    in_lab(async |mut lab: Lab| {
        let (_netns, inside, _) = lab.pair().await;
        let places = Arc::clone(&lab.net.sockets);
        let all_but_one = places.available_permits() as u32 - 1;
        let _taken = Arc::clone(&places)
            .try_acquire_many_owned(all_but_one)
            .unwrap();
        let first = lab.open(inside.clone(), PLAIN).await.unwrap();
        let (given_up, waiting) = (lab.op(), lab.op());
        for op in [given_up, waiting] {
            lab.net.open(op, ExchangeId(op.0), inside.clone(), PLAIN);
        }
        lab.net.close(None, ExchangeId(given_up.0));
        assert_eq!(
            lab.done(given_up).await,
            Outcome::Opened(Err(LinkCause::TimedOut))
        );
        assert_eq!(places.available_permits(), 0);
        lab.net.close(None, first);
        assert_eq!(lab.done(waiting).await, Outcome::Opened(Ok(())));
    });
}

#[test]
fn many_exchanges_close_and_none_is_left() {
    in_lab(async |mut lab: Lab| {
        let (netns, inside, _) = lab.pair().await;
        let view = lab.look(netns.eth0()).await.unwrap();
        let mut open = Vec::new();
        for _ in 0..200 {
            open.push(lab.open(inside.clone(), PLAIN).await.unwrap());
        }
        for exchange in open {
            lab.net.close(None, exchange);
        }
        // The loop goes on at once; how many sockets the reaper still has then depends on the machine.
        assert_eq!(lab.look(netns.eth0()).await, Ok(view.clone()));
        // A namespace dies when its last socket is closed, so all of them were.
        drop(netns);
        lab.kernel(KernelMessage::NetnsDied(view.cookie)).await;
    });
}

#[test]
fn a_flood_waits_in_the_socket_and_not_in_the_daemon() {
    in_lab(async |mut lab: Lab| {
        let (_netns, inside, outside) = lab.pair().await;
        let sender = lab.open(outside, PLAIN).await.unwrap();
        let flooded = lab.open(inside.clone(), PLAIN).await.unwrap();
        for round in 0..40 {
            for _ in 0..16 {
                lab.send(sender, Answer::PLAIN.frame());
            }
            // A look turns the loop.
            lab.inspect(Target::Known(inside.clone()))
                .await
                .unwrap_or_else(|cause| panic!("{round}: {cause}"));
        }
        let frames = lab.left_over();
        let untaken = frames
            .iter()
            .filter(|event| matches!(event, NetReport::Frame { .. }))
            .count();
        assert_eq!(untaken, 16);
        drop(frames);
        lab.frame(flooded).await;
    });
}
