//! What the judge finds.

use super::*;

/// What is changed in a correct message, and what the judge must say about it.
type Spoiled = (fn(&mut Message), Violation);

#[test]
fn each_field_that_table_5_forbids_is_a_violation() {
    use Purpose::*;
    let address = ip(9);
    let one = |code: u8| (code, vec![10, 9, 0, 9]);
    assert_eq!(one(50).1, address.octets());
    let discovers: [Spoiled; 16] = [
        (|m| m.op = 2, Violation::Op(2)),
        (|m| m.hlen = 16, Violation::Hardware(1, 16)),
        (|m| m.hops = 1, Violation::Hops(1)),
        (|m| m.flags = 0x8001, Violation::Flags(Discover, 0x8001)),
        (
            |m| m.ciaddr = ip(9),
            Violation::Address(Discover, "ciaddr", address),
        ),
        (
            |m| m.yiaddr = ip(9),
            Violation::Address(Discover, "yiaddr", address),
        ),
        (
            |m| m.siaddr = ip(9),
            Violation::Address(Discover, "siaddr", address),
        ),
        (
            |m| m.giaddr = ip(9),
            Violation::Address(Discover, "giaddr", address),
        ),
        (|m| m.chaddr[15] = 1, Violation::ChaddrPadding),
        (
            |m| m.options.push((54, vec![10, 9, 0, 9])),
            Violation::Forbidden(Discover, 54),
        ),
        (
            |m| m.options.push((50, vec![10, 9, 0])),
            Violation::Length(50, 3),
        ),
        (
            |m| m.options.push((52, vec![1])),
            Violation::Forbidden(Discover, 52),
        ),
        (
            |m| m.options[2].1 = vec![1, 3, 121],
            Violation::ListOrder(3),
        ),
        (
            |m| m.options[2].1 = vec![1, 121, 1],
            Violation::ListTwice(1),
        ),
        (|m| m.options[3].1 = vec![2, 0], Violation::MaxSize(512)),
        (|m| m.options.swap(0, 1), Violation::TypeNotFirst(61)),
    ];
    let client = Client::new(ID, MAC);
    for (spoil, violation) in discovers {
        let mut message = client.discover();
        spoil(&mut message);
        let mut server = Server::new(config());
        broadcast(&mut server, at(0), &message);
        assert_eq!(server.violations(), [violation]);
    }
    let releases: [Spoiled; 5] = [
        (|m| m.secs = 1, Violation::Secs(Release, 1)),
        (|m| m.flags = 0x8000, Violation::Flags(Release, 0x8000)),
        (
            |m| m.options.retain(|(code, _)| *code != 54),
            Violation::Missing(Release, 54),
        ),
        (
            |m| m.options.push((50, vec![10, 9, 0, 9])),
            Violation::Forbidden(Release, 50),
        ),
        (
            |m| m.options.push((55, vec![1])),
            Violation::Forbidden(Release, 55),
        ),
    ];
    for (spoil, violation) in releases {
        let mut server = Server::new(config());
        let mut message = client.release(client.acquire(&mut server, at(0)));
        message.xid = 2;
        spoil(&mut message);
        unicast(&mut server, at(1), &message);
        assert_eq!(server.violations(), [violation]);
    }
}

#[test]
fn each_rule_between_messages_is_judged() {
    use Purpose::*;
    let mut client = Client::new(ID, MAC);
    let mut run = |spoil: &dyn Fn(&mut Client, &mut Server, Ipv4Addr)| {
        let mut server = Server::new(config());
        client.xid = 1;
        let address = client.acquire(&mut server, at(0));
        client.xid = 2;
        spoil(&mut client, &mut server, address);
        server.violations().to_vec()
    };
    let offered = ip(10);
    let never = run(&|client, server, _| drop(broadcast(server, at(1), &client.select(ip(44)))));
    assert_eq!(
        never,
        [Violation::NotOffered {
            server: ip(1),
            address: ip(44)
        }]
    );
    let late =
        run(&|client, server, address| drop(unicast(server, at(3600), &client.extend(address))));
    assert_eq!(late, [Violation::Ended(Renew, offered)]);
    let strange = run(&|client, server, _| drop(unicast(server, at(1), &client.extend(ip(44)))));
    assert_eq!(strange, [Violation::NeverGranted(Renew, ip(44))]);
    let wrong_server = run(&|client, server, address| {
        send(server, at(1), &client.extend(address), address, ip(2));
    });
    assert_eq!(wrong_server, [Violation::WrongServer(Renew, ip(2))]);
    let xid = run(&|client, server, address| {
        let mut message = client.extend(address);
        message.xid = 1;
        message.options[1].1 = b"\0other".to_vec();
        unicast(server, at(1), &message);
    });
    assert_eq!(
        xid,
        [
            Violation::ClientChanged,
            Violation::NeverGranted(Renew, offered)
        ]
    );
    let list = run(&|client, server, address| {
        let mut message = client.extend(address);
        message.options[2].1 = vec![1];
        unicast(server, at(1), &message);
    });
    assert_eq!(list, [Violation::ListChanged]);
    let secs = run(&|client, server, address| {
        let mut message = client.select(address);
        (message.xid, message.secs) = (1, 7);
        broadcast(server, at(1), &message);
    });
    assert_eq!(secs, [Violation::SecsChanged(7)]);
}

#[test]
fn going_on_after_a_nak_was_heard_is_a_violation() {
    // A client that restarted in between does not know what it asked before.
    for (heard, restarted) in [(true, false), (false, false), (true, true)] {
        let mut judge = Judge::default();
        let mut server = Server::unjudged(config());
        let mut client = Client::new(ID, MAC);
        let go = |judge: &mut Judge, server: &mut Server, message: &Message, from, to, ethernet| {
            let payload = message.encode();
            let datagram = Datagram {
                payload: &payload,
                source: SocketAddrV4::new(from, 68),
                destination: Some(SocketAddrV4::new(to, 67)),
                ethernet: Some((MAC, ethernet)),
            };
            let found = judge.client(at(1), &datagram);
            let handled = server.receive(at(1), &datagram);
            handled.reply.inspect(|reply| {
                judge.server(at(1), &reply.payload);
                if restarted {
                    judge.clients_restarted(false);
                }
                if heard {
                    judge.heard(&reply.payload);
                }
            });
            found
        };
        let all = Ipv4Addr::BROADCAST;
        let none = Ipv4Addr::UNSPECIFIED;
        assert_eq!(
            go(
                &mut judge,
                &mut server,
                &client.discover(),
                none,
                all,
                BROADCAST
            ),
            []
        );
        assert_eq!(
            go(
                &mut judge,
                &mut server,
                &client.select(ip(10)),
                none,
                all,
                BROADCAST
            ),
            []
        );
        server.revoke(ip(10));
        client.xid = 2;
        assert_eq!(
            go(
                &mut judge,
                &mut server,
                &client.extend(ip(10)),
                ip(10),
                ip(1),
                [2; 6]
            ),
            []
        );
        let again = go(
            &mut judge,
            &mut server,
            &client.extend(ip(10)),
            ip(10),
            ip(1),
            [2; 6],
        );
        let expected =
            (heard && !restarted).then_some(Violation::NakIgnored(Purpose::Renew, ip(10)));
        assert_eq!(again, expected.into_iter().collect::<Vec<_>>());
    }
}

#[test]
fn a_release_may_follow_a_request_that_was_not_answered() {
    let mut server = Server::new(config());
    let mut client = Client::new(ID, MAC);
    broadcast(&mut server, at(0), &client.discover());
    client.xid = 1;
    let mut judge = Judge::default();
    let mut sent = |message: &Message, from, to, ethernet| {
        let datagram = Datagram {
            payload: &message.encode(),
            source: SocketAddrV4::new(from, 68),
            destination: Some(SocketAddrV4::new(to, 67)),
            ethernet: Some((MAC, ethernet)),
        };
        let found = judge.client(at(0), &datagram);
        if let Some(reply) = server.receive(at(0), &datagram).reply {
            judge.server(at(0), &reply.payload);
        }
        found
    };
    let (none, all) = (Ipv4Addr::UNSPECIFIED, Ipv4Addr::BROADCAST);
    assert_eq!(sent(&client.discover(), none, all, BROADCAST), []);
    assert_eq!(sent(&client.select(ip(10)), none, all, BROADCAST), []);
    assert_eq!(sent(&client.release(ip(10)), ip(10), ip(1), [2; 6]), []);
    let never = sent(&client.release(ip(11)), ip(11), ip(1), [2; 6]);
    assert_eq!(never, [Violation::NeverGranted(Purpose::Release, ip(11))]);
}

#[test]
fn an_ip_unicast_may_be_an_ethernet_broadcast() {
    for (ethernet, expected) in [
        ([2, 0, 0, 0, 0, 1], vec![]),
        (BROADCAST, vec![]),
        (
            [1, 0, 0x5e, 0, 0, 1],
            vec![Violation::EthernetDestination(Purpose::Release)],
        ),
    ] {
        let mut server = Server::new(config());
        let client = Client::new(ID, MAC);
        let release = client.release(client.acquire(&mut server, at(0))).encode();
        let datagram = Datagram {
            payload: &release,
            source: SocketAddrV4::new(ip(10), 68),
            destination: Some(SocketAddrV4::new(ip(1), 67)),
            ethernet: Some((MAC, ethernet)),
        };
        server.receive(at(1), &datagram);
        assert_eq!(server.violations(), expected);
    }
}

#[test]
fn two_clients_may_draw_one_xid() {
    let mut server = Server::new(config());
    let (one, two) = (
        Client::new(ID, MAC),
        Client::new(b"\0two", [2, 0, 0, 0, 0, 8]),
    );
    one.acquire(&mut server, at(0));
    two.acquire(&mut server, at(1));
    assert_eq!(server.violations(), []);
    let cuckoo = Client::new(b"\0two", MAC);
    broadcast(&mut server, at(2), &cuckoo.discover());
    assert_eq!(server.violations(), [Violation::ClientChanged]);
}

#[test]
fn clients_with_one_mac_may_reuse_an_xid_but_not_mix_it() {
    let mut server = Server::new(config());
    let (mut one, two) = (Client::new(ID, MAC), Client::new(b"\0two", MAC));
    let address = one.acquire(&mut server, at(0));
    one.xid = 2;
    unicast(&mut server, at(1), &one.extend(address));
    broadcast(&mut server, at(2), &two.discover());
    assert_eq!(server.violations(), []);
    one.xid = 1;
    unicast(&mut server, at(3), &one.extend(address));
    assert_eq!(
        server.violations(),
        [Violation::ClientChanged],
        "the other is in the middle of it"
    );
}
