//! What the judge finds.

use super::*;

/// What is changed in a correct message, and what the judge must say about it.
type Spoiled = (fn(&mut Message), Violation);

/// An address as an option's value.
const NINE: [u8; 4] = [10, 9, 0, 9];

#[test]
fn each_field_that_table_5_forbids_is_a_violation() {
    use Purpose::*;
    use Violation as V;
    let nine = ip(9);
    let discovers: [Spoiled; 16] = [
        (|m| m.op = 2, V::Op(2)),
        (|m| m.hlen = 16, V::Hardware(1, 16)),
        (|m| m.hops = 1, V::Hops(1)),
        (|m| m.flags = 0x8001, V::Flags(Discover, 0x8001)),
        (|m| m.ciaddr = ip(9), V::Address(Discover, "ciaddr", nine)),
        (|m| m.yiaddr = ip(9), V::Address(Discover, "yiaddr", nine)),
        (|m| m.siaddr = ip(9), V::Address(Discover, "siaddr", nine)),
        (|m| m.giaddr = ip(9), V::Address(Discover, "giaddr", nine)),
        (|m| m.chaddr[15] = 1, V::ChaddrPadding),
        (
            |m| m.options.push((54, NINE.into())),
            V::Forbidden(Discover, 54),
        ),
        (|m| m.options.push((50, vec![10, 9, 0])), V::Length(50, 3)),
        (
            |m| m.options.push((52, vec![1])),
            V::Forbidden(Discover, 52),
        ),
        (|m| m.options[2].1 = vec![1, 3, 121], V::ListOrder(3)),
        (|m| m.options[2].1 = vec![1, 121, 1], V::ListTwice(1)),
        (|m| m.options[3].1 = vec![2, 0], V::MaxSize(512)),
        (|m| m.options.swap(0, 1), V::TypeNotFirst(61)),
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
        (|m| m.secs = 1, V::Secs(Release, 1)),
        (|m| m.flags = 0x8000, V::Flags(Release, 0x8000)),
        (
            |m| m.options.retain(|(code, _)| *code != 54),
            V::Missing(Release, 54),
        ),
        (
            |m| m.options.push((50, NINE.into())),
            V::Forbidden(Release, 50),
        ),
        (|m| m.options.push((55, vec![1])), V::Forbidden(Release, 55)),
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

/// A server and a judge that hear the same.
struct Court {
    judge: Judge,
    server: Server,
}

impl Court {
    fn new() -> Self {
        Self {
            judge: Judge::default(),
            server: Server::unjudged(config()),
        }
    }

    /// Returns what the judge finds in a client's message, which is by unicast if it has an address; and the server's answer.
    fn hears(&mut self, message: &Message) -> (Vec<Violation>, Option<Reply>) {
        let (payload, from) = (message.encode(), message.ciaddr);
        let to = if from.is_unspecified() {
            Ipv4Addr::BROADCAST
        } else {
            ip(1)
        };
        let datagram = datagram(&payload, from, to);
        let found = self.judge.client(at(1), &datagram);
        let reply = self.server.receive(at(1), &datagram).reply;
        if let Some(reply) = &reply {
            self.judge.server(at(1), &reply.payload);
        }
        (found, reply)
    }
}

#[test]
fn going_on_after_a_nak_was_heard_is_a_violation() {
    // A client that restarted in between does not know what it asked before.
    for (heard, restarted) in [(true, false), (false, false), (true, true)] {
        let (mut court, mut client) = (Court::new(), Client::new(ID, MAC));
        let mut go = |message: &Message, revoked| {
            if revoked {
                court.server.revoke(ip(10));
            }
            let (found, reply) = court.hears(message);
            if let Some(reply) = reply {
                if restarted {
                    court.judge.clients_restarted(Duration::ZERO, false);
                }
                if heard {
                    court.judge.heard(&reply.payload);
                }
            }
            found
        };
        assert_eq!(go(&client.discover(), false), []);
        assert_eq!(go(&client.select(ip(10)), false), []);
        client.xid = 2;
        assert_eq!(go(&client.extend(ip(10)), true), []);
        let again = go(&client.extend(ip(10)), false);
        let expected =
            (heard && !restarted).then_some(Violation::NakIgnored(Purpose::Renew, ip(10)));
        assert_eq!(again, expected.into_iter().collect::<Vec<_>>());
    }
}

#[test]
fn a_release_may_follow_a_request_that_was_not_answered() {
    let (mut court, client) = (Court::new(), Client::new(ID, MAC));
    assert_eq!(court.hears(&client.discover()).0, []);
    assert_eq!(court.hears(&client.select(ip(10))).0, []);
    assert_eq!(court.hears(&client.release(ip(10))).0, []);
    let never = court.hears(&client.release(ip(11))).0;
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
        let mut datagram = datagram(&release, ip(10), ip(1));
        datagram.ethernet = Some((MAC, ethernet));
        server.receive(at(1), &datagram);
        assert_eq!(server.violations(), expected);
    }
}

#[test]
fn two_clients_may_draw_one_xid() {
    let mut server = Server::new(config());
    let (one, two) = (Client::new(ID, MAC), Client { xid: 1, ..other() });
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
    // The other is in the middle of it.
    assert_eq!(server.violations(), [Violation::ClientChanged]);
}
