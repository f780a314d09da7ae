//! Whole frames.

use super::*;

#[test]
fn a_station_asks_arp_before_it_answers_a_renewal() {
    let (mac, to) = ([2, 0, 0, 0, 1, 1], SocketAddrV4::new(ip(1), 67));
    let mut station = Station::with_server(mac, ip(1), Server::new(config()));
    let mut client = Client::new(ID, MAC);
    let address = client.acquire(station.server_mut().unwrap(), at(0));
    client.xid = 2;
    let renew = udp(
        MAC,
        mac,
        SocketAddrV4::new(address, 68),
        to,
        &client.extend(address).encode(),
    );
    let (out, event) = station.receive(at(1800), &renew);
    assert_eq!(event, Some(Event::Granted(address, Purpose::Renew)));
    let [Out { frame, .. }] = &out[..] else {
        panic!("{out:?}")
    };
    let Packet::Arp(question) = decode(frame).unwrap().packet else {
        panic!("not ARP")
    };
    let found = (question.request, question.target, question.sender);
    assert_eq!(found, (true, address, ip(1)));
    let answer = Arp {
        request: false,
        sender_mac: MAC,
        sender: address,
        target_mac: mac,
        target: ip(1),
    };
    let (out, _) = station.receive(at(1800), &arp(MAC, mac, &answer));
    let [Out { frame, .. }] = &out[..] else {
        panic!("{out:?}")
    };
    let frame = decode(frame).unwrap();
    let Packet::Udp {
        destination,
        payload,
        ..
    } = frame.packet
    else {
        panic!("not UDP")
    };
    assert_eq!((frame.destination, *destination.ip()), (MAC, address));
    assert_eq!(Message::decode(payload).unwrap().kind(), Some(Kind::Ack));
    assert_eq!(station.server().unwrap().violations(), []);
}

#[test]
fn a_station_answers_arp_for_its_own_address_alone() {
    let mac = [2, 0, 0, 0, 1, 1];
    let mut station = Station::new(mac, ip(1));
    let question = |target| Arp {
        request: true,
        sender_mac: MAC,
        sender: ip(9),
        target_mac: [0; 6],
        target,
    };
    let (out, _) = station.receive(at(0), &arp(MAC, BROADCAST, &question(ip(1))));
    let answer = Arp {
        request: false,
        sender_mac: mac,
        sender: ip(1),
        target_mac: MAC,
        target: ip(9),
    };
    assert_eq!(
        out,
        [Out {
            delay: Duration::ZERO,
            frame: arp(mac, MAC, &answer)
        }]
    );
    assert_eq!(
        station
            .receive(at(0), &arp(MAC, BROADCAST, &question(ip(2))))
            .0,
        []
    );
}

#[test]
fn a_router_forwards_to_its_server_what_came_to_it_alone() {
    let (mac, off_link) = ([2, 0, 0, 0, 1, 1], Ipv4Addr::new(172, 16, 0, 1));
    for (ethernet, expected) in [(mac, Some(Event::Released(ip(10)))), (BROADCAST, None)] {
        let mut config = config();
        config.id = off_link;
        let mut station = Station::with_server(mac, ip(1), Server::new(config));
        let client = Client::new(ID, MAC);
        let to_off_link = |mut message: Message| {
            message.options.retain(|(code, _)| *code != code::SERVER);
            message
                .options
                .push((code::SERVER, off_link.octets().to_vec()));
            message
        };
        let server = station.server_mut().unwrap();
        broadcast(server, at(0), &client.discover());
        broadcast(server, at(0), &to_off_link(client.select(ip(10))));
        let release = to_off_link(client.release(ip(10))).encode();
        let from = SocketAddrV4::new(ip(10), 68);
        let to = SocketAddrV4::new(off_link, 67);
        let (_, event) = station.receive(at(1), &udp(MAC, ethernet, from, to, &release));
        assert_eq!(event, expected);
    }
}
