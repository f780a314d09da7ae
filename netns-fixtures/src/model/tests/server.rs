//! The server's answers.

use super::*;

#[test]
fn a_careful_client_commits_no_violation() {
    let mut server = Server::new(config());
    let mut client = Client::new(ID, MAC);
    let address = client.acquire(&mut server, at(0));
    client.xid = 2;
    server.expect(
        at(1800),
        &client.extend(address),
        Event::Granted(address, Purpose::Renew),
    );
    client.xid = 3;
    let handled = send(
        &mut server,
        at(5000),
        &client.extend(address),
        address,
        Ipv4Addr::BROADCAST,
    );
    assert_eq!(handled.event, Event::Granted(address, Purpose::Rebind));
    client.xid = 4;
    server.expect(
        at(5001),
        &client.reboot(address),
        Event::Granted(address, Purpose::Reboot),
    );
    client.xid = 5;
    server.expect(at(5002), &client.release(address), Event::Released(address));
    assert_eq!(server.leases(at(5002)).count(), 0);
    assert_eq!(server.violations(), []);
}

#[test]
fn an_answer_holds_what_the_client_asked_for_and_no_more() {
    let mut server = server(|it| {
        (it.t1, it.mtu, it.domain) = (Some(10), Some(1400), Some("example.org".into()));
        it.routes = vec![("10.0.0.0/9".parse().unwrap(), ip(2))];
    });
    let client = Client::new(ID, MAC);
    let reply = broadcast(&mut server, at(0), &client.discover())
        .reply
        .unwrap();
    let offer = Message::decode(&reply.payload).unwrap();
    let option = |code| offer.option(code).map(<[u8]>::to_vec);
    let found = (offer.xid, offer.yiaddr, offer.hardware());
    assert_eq!(found, (1, ip(10), MAC));
    let found = offer.address(code::SUBNET_MASK);
    assert_eq!(found, Some(Ipv4Addr::new(255, 255, 255, 0)));
    assert_eq!(offer.number(code::LEASE_TIME), Some(3600));
    let found = (offer.number(code::T1), offer.number(code::T2));
    assert_eq!(found, (Some(10), None));
    assert_eq!(option(code::MTU), Some(vec![5, 120]));
    let found = option(code::CLASSLESS_ROUTES);
    assert_eq!(found, Some(vec![9, 10, 0, 10, 9, 0, 2]));
    assert_eq!(option(code::DOMAIN), None);
    assert_eq!(option(code::CLIENT_ID), Some(ID.to_vec()));
    let found = (*reply.destination.ip(), reply.ethernet);
    assert_eq!(found, (ip(10), Some(MAC)));
}

#[test]
fn an_option_is_cut_short_only_for_an_extension() {
    let mut server = server(|it| it.cut = Some(code::ROUTERS));
    let client = Client::new(ID, MAC);
    let address = client.acquire(&mut server, at(0));
    let routers = |handled: Handled| {
        let ack = Message::decode(&handled.reply.unwrap().payload).unwrap();
        (
            ack.option(code::ROUTERS).map(<[u8]>::len),
            ack.option(code::DNS).map(<[u8]>::len),
        )
    };
    assert_eq!(
        routers(broadcast(&mut server, at(1), &client.reboot(address))),
        (Some(4), Some(4))
    );
    assert_eq!(
        routers(unicast(&mut server, at(1800), &client.extend(address))),
        (Some(3), Some(4))
    );
}

#[test]
fn a_released_address_is_the_last_to_be_given_again() {
    let mut server = server(|it| it.pool = (ip(10), ip(12)));
    let (one, two) = (Client::new(ID, MAC), other(2));
    assert_eq!(one.acquire(&mut server, at(0)), ip(10));
    assert_eq!(two.acquire(&mut server, at(0)), ip(11));
    unicast(&mut server, at(1), &one.release(ip(10)));
    let three = other(3);
    assert_eq!(three.acquire(&mut server, at(1)), ip(12));
    let four = other(4);
    assert_eq!(four.acquire(&mut server, at(1)), ip(10));
    let five = other(5);
    server.expect(at(1), &five.discover(), Event::Silent(Silence::NoAddress));
    // All leases have ended.
    assert_eq!(five.acquire(&mut server, at(3601)), ip(10));
}

#[test]
fn a_release_from_elsewhere_or_of_another_is_ignored() {
    let mut server = Server::new(config());
    let client = Client::new(ID, MAC);
    let address = client.acquire(&mut server, at(0));
    let from_nowhere = send(
        &mut server,
        at(1),
        &client.release(address),
        Ipv4Addr::UNSPECIFIED,
        ip(1),
    );
    assert_eq!(from_nowhere.event, Event::Silent(Silence::WrongSource));
    let other = other(2);
    let of_another = unicast(&mut server, at(1), &other.release(address));
    assert_eq!(of_another.event, Event::Silent(Silence::NothingToGiveBack));
    assert!(server.lease(at(1), address).is_some());
    let nowhere = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 68);
    let release = Purpose::Release;
    assert_eq!(
        server.violations(),
        [
            Violation::Source(release, nowhere),
            Violation::NeverGranted(release, address)
        ]
    );
}

#[test]
fn a_released_lease_is_not_renewed() {
    let mut server = Server::new(config());
    let mut client = Client::new(ID, MAC);
    let address = client.acquire(&mut server, at(0));
    unicast(&mut server, at(1), &client.release(address));
    client.xid = 2;
    server.expect(
        at(2),
        &client.extend(address),
        Event::Refused(address, Purpose::Renew),
    );
    let found = server.violations();
    assert_eq!(found, [Violation::GivenBack(Purpose::Renew, address)]);
}

#[test]
fn init_reboot_is_refused_only_if_known_to_be_wrong() {
    for authoritative in [true, false] {
        let mut server = server(|it| it.authoritative = authoritative);
        let mut client = Client::new(ID, MAC);
        let unknown = broadcast(&mut server, at(0), &client.reboot(ip(50)));
        assert_eq!(unknown.event, Event::Silent(Silence::Unknown));
        let elsewhere = broadcast(
            &mut server,
            at(0),
            &client.reboot(Ipv4Addr::new(192, 0, 2, 1)),
        )
        .event;
        client.xid = 2;
        let address = client.acquire(&mut server, at(0));
        let wrong = broadcast(&mut server, at(0), &client.reboot(ip(50))).event;
        if authoritative {
            assert_eq!(
                elsewhere,
                Event::Refused(Ipv4Addr::new(192, 0, 2, 1), Purpose::Reboot)
            );
            assert_eq!(wrong, Event::Refused(ip(50), Purpose::Reboot));
        } else {
            assert_eq!(
                (elsewhere, wrong),
                (
                    Event::Silent(Silence::NotItsOwn),
                    Event::Silent(Silence::NotItsOwn)
                )
            );
        }
        let right = broadcast(&mut server, at(0), &client.reboot(address)).event;
        assert_eq!(right, Event::Granted(address, Purpose::Reboot));
    }
}

#[test]
fn a_nak_is_a_broadcast_that_names_the_client() {
    let mut server = Server::new(config());
    let client = Client::new(ID, MAC);
    let handled = unicast(&mut server, at(0), &client.extend(ip(50)));
    assert_eq!(handled.event, Event::Refused(ip(50), Purpose::Renew));
    let reply = handled.reply.unwrap();
    let found = (*reply.destination.ip(), reply.ethernet);
    assert_eq!(found, (Ipv4Addr::BROADCAST, Some(BROADCAST)));
    let nak = Message::decode(&reply.payload).unwrap();
    let found = (nak.kind(), nak.option(code::CLIENT_ID));
    assert_eq!(found, (Some(Kind::Nak), Some(ID)));
    assert_eq!(nak.yiaddr, Ipv4Addr::UNSPECIFIED);
    assert_eq!(nak.number(code::LEASE_TIME), None);
}

#[test]
fn a_lease_ends_at_its_second_and_not_before() {
    let mut server = Server::new(config());
    let address = Client::new(ID, MAC).acquire(&mut server, at(0));
    assert!(
        server
            .lease(Duration::from_millis(3_599_999), address)
            .is_some()
    );
    assert!(server.lease(at(3600), address).is_none());
}

#[test]
fn a_restart_keeps_leases_only_with_the_database() {
    let mut server = Server::new(config());
    let mut client = Client::new(ID, MAC);
    let address = client.acquire(&mut server, at(0));
    server.restart(true);
    client.xid = 2;
    server.expect(
        at(1800),
        &client.extend(address),
        Event::Granted(address, Purpose::Renew),
    );
    server.restart(false);
    client.xid = 3;
    server.expect(
        at(3600),
        &client.extend(address),
        Event::Refused(address, Purpose::Renew),
    );
    assert_eq!(server.violations(), []);
}

#[test]
fn a_deaf_server_offers_and_never_acknowledges() {
    let mut server = server(|it| it.deaf = true);
    let client = Client::new(ID, MAC);
    let offer = broadcast(&mut server, at(0), &client.discover());
    let Event::Offered(address) = offer.event else {
        panic!("{offer:?}")
    };
    server.expect(at(0), &client.select(address), Event::Silent(Silence::Deaf));
}

#[test]
fn a_relay_of_another_subnet_brings_a_nak_with_the_ack() {
    let mut server = server(|it| it.relay = Some(ip(254)));
    let client = Client::new(ID, MAC);
    let offer = broadcast(&mut server, at(0), &client.discover());
    let Event::Offered(address) = offer.event else {
        panic!("{offer:?}")
    };
    assert_eq!(offer.relayed, None);
    let granted = broadcast(&mut server, at(0), &client.select(address));
    let kind = |reply: Option<Reply>| Message::decode(&reply.unwrap().payload).unwrap().kind();
    let found = (kind(granted.relayed), kind(granted.reply));
    assert_eq!(found, (Some(Kind::Nak), Some(Kind::Ack)));
    let renewed = unicast(
        &mut server,
        at(1),
        &Client { xid: 2, ..client }.extend(address),
    );
    // No relay hears that.
    assert!(renewed.relayed.is_none() && renewed.reply.is_some());
    assert_eq!(server.violations(), []);
}

#[test]
fn a_stubborn_server_offers_a_declined_address_again() {
    let mut server = server(|it| it.stubborn = true);
    let client = Client::new(ID, MAC);
    let address = client.acquire(&mut server, at(0));
    server.expect(at(0), &client.decline(address), Event::Declined(address));
    let other = other(2);
    assert_ne!(other.acquire(&mut server, at(1)), address);
    let again = Client { xid: 3, ..client };
    assert_eq!(again.acquire(&mut server, at(2)), address);
}

#[test]
fn a_declined_address_is_held_back() {
    let mut server = Server::new(config());
    let mut client = Client::new(ID, MAC);
    let address = client.acquire(&mut server, at(0));
    server.expect(at(0), &client.decline(address), Event::Declined(address));
    client.xid = 2;
    assert_eq!(client.acquire(&mut server, at(1)), ip(11));
    assert_eq!(server.violations(), []);
}

#[test]
fn a_reservation_goes_to_its_client_alone() {
    let mut server = server(|it| it.reservations = [(ClientKey::Id(ID.to_vec()), ip(10))].into());
    let other = other(2);
    assert_eq!(other.acquire(&mut server, at(0)), ip(11));
    assert_eq!(Client::new(ID, MAC).acquire(&mut server, at(0)), ip(10));
}

#[test]
fn choosing_another_server_frees_the_offer() {
    let mut server = server(|it| it.pool = (ip(10), ip(10)));
    let client = Client::new(ID, MAC);
    broadcast(&mut server, at(0), &client.discover());
    let choice = client.message(
        Kind::Request,
        &[
            (code::REQUESTED, &[10, 9, 0, 77]),
            (code::SERVER, &[10, 9, 0, 2]),
        ],
    );
    server.expect(at(0), &choice, Event::Silent(Silence::OtherServer));
    let other = other(2);
    assert_eq!(other.acquire(&mut server, at(0)), ip(10));
}

#[test]
fn a_chaddr_is_one_client_under_any_identifier() {
    let mut server = server(|it| it.knows = Knows::Chaddr);
    let one = Client::new(ID, MAC);
    let mut two = Client::new(b"\0two", MAC);
    two.xid = 2;
    let mut other = Client::new(ID, [2, 0, 0, 0, 0, 8]);
    other.xid = 3;
    assert_eq!(
        [&one, &two, &other].map(|client| client.acquire(&mut server, at(0))),
        [ip(10), ip(10), ip(11)]
    );
    let names = server
        .leases(at(0))
        .map(|(address, lease)| (address, lease.name.clone()))
        .collect::<Vec<_>>();
    assert_eq!(
        names,
        [
            (ip(10), ClientKey::Id(b"\0two".to_vec())),
            (ip(11), ClientKey::Id(ID.to_vec()))
        ]
    );
    assert_eq!(
        unicast(&mut server, at(1), &one.release(ip(10))).event,
        Event::Released(ip(10)),
        "under the other"
    );
}

#[test]
fn who_is_not_known_gets_the_address_of_all() {
    let mut server = server(|it| it.knows = Knows::Nothing);
    let (one, two) = (Client::new(ID, MAC), other(2));
    assert_eq!(
        [&one, &two].map(|client| client.acquire(&mut server, at(0))),
        [ip(10); 2]
    );
    assert_eq!(
        unicast(&mut server, at(1), &one.decline(ip(10))).event,
        Event::Declined(ip(10))
    );
    assert_eq!(server.leases(at(1)).count(), 0);
}

#[test]
fn a_flag_only_server_ignores_clients_without_the_flag() {
    let mut server = server(|it| it.flag_only = true);
    let client = Client::new(ID, MAC);
    let ignored = Event::Silent(Silence::NoFlag);
    for message in [client.discover(), client.reboot(ip(10))] {
        server.expect(at(0), &message, ignored);
    }
    let mut flagged = client.discover();
    flagged.flags = 0x8000;
    server.expect(at(1), &flagged, Event::Offered(ip(10)));
}
