//! The server's answers.

use super::*;

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
    let other = other();
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
fn a_stubborn_server_offers_a_declined_address_again() {
    let mut server = server(|it| it.stubborn = true);
    let client = Client::new(ID, MAC);
    let address = client.acquire(&mut server, at(0));
    server.expect(at(0), &client.decline(address), Event::Declined(address));
    let other = other();
    assert_ne!(other.acquire(&mut server, at(1)), address);
    let again = Client { xid: 3, ..client };
    assert_eq!(again.acquire(&mut server, at(2)), address);
}
