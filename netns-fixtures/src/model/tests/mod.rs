//! The server and the judge, seen from a client written out by hand.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

use super::*;

mod judge;
mod server;

const MAC: Mac = [2, 0, 0, 0, 0, 7];
const ID: &[u8] = b"\0one";

fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn ip(last: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 9, 0, last)
}

fn config() -> Config {
    Config::new("10.9.0.0/24".parse().unwrap())
}

/// Returns a server that differs in this from a plain one.
fn server(change: impl FnOnce(&mut Config)) -> Server {
    let mut config = config();
    change(&mut config);
    Server::new(config)
}

/// A client that does everything right until a test spoils its message.
struct Client {
    id: &'static [u8],
    mac: Mac,
    xid: u32,
}

impl Client {
    fn new(id: &'static [u8], mac: Mac) -> Self {
        Self { id, mac, xid: 1 }
    }

    fn message(&self, kind: Kind, more: &[(u8, &[u8])]) -> Message {
        let mut message = Message::answer_to(&blank(), kind);
        message.op = 1;
        message.xid = self.xid;
        message.chaddr[..6].copy_from_slice(&self.mac);
        message.options.push((code::CLIENT_ID, self.id.to_vec()));
        if kind == Kind::Discover || kind == Kind::Request {
            message
                .options
                .push((code::PARAMETERS, vec![1, 121, 3, 6, 26]));
            message.options.push((code::MAX_SIZE, vec![5, 220]));
        }
        message
            .options
            .extend(more.iter().map(|(code, value)| (*code, value.to_vec())));
        message
    }

    fn discover(&self) -> Message {
        self.message(Kind::Discover, &[])
    }

    fn select(&self, address: Ipv4Addr) -> Message {
        self.of_server(Kind::Request, address)
    }

    fn reboot(&self, address: Ipv4Addr) -> Message {
        self.message(Kind::Request, &[(code::REQUESTED, &address.octets())])
    }

    fn extend(&self, address: Ipv4Addr) -> Message {
        let mut message = self.message(Kind::Request, &[]);
        message.ciaddr = address;
        message
    }

    fn release(&self, address: Ipv4Addr) -> Message {
        let mut message = self.message(Kind::Release, &[(code::SERVER, &ip(1).octets())]);
        message.ciaddr = address;
        message
    }

    fn decline(&self, address: Ipv4Addr) -> Message {
        self.of_server(Kind::Decline, address)
    }

    /// Returns a message about an address of the first server's.
    fn of_server(&self, kind: Kind, address: Ipv4Addr) -> Message {
        let (address, server) = (address.octets(), ip(1).octets());
        self.message(
            kind,
            &[(code::REQUESTED, &address), (code::SERVER, &server)],
        )
    }

    /// Gets a lease, and returns its address.
    fn acquire(&self, server: &mut Server, now: Duration) -> Ipv4Addr {
        let Event::Offered(address) = broadcast(server, now, &self.discover()).event else {
            panic!("no offer")
        };
        let handled = broadcast(server, now, &self.select(address));
        assert_eq!(handled.event, Event::Granted(address, Purpose::Select));
        address
    }
}

/// Returns a second client.
fn other() -> Client {
    Client {
        xid: 2,
        ..Client::new(b"\0two", [2, 0, 0, 0, 0, 8])
    }
}

fn blank() -> Message {
    let mut bytes = [&[1, 1, 6, 0][..], &[0; 232], &[99, 130, 83, 99, 255]].concat();
    bytes.resize(300, 0);
    Message::decode(&bytes).unwrap()
}

impl Server {
    /// Asserts what follows a message, which is by unicast if it has the client's address.
    fn expect(&mut self, now: Duration, message: &Message, event: Event) {
        let handled = match message.ciaddr.is_unspecified() {
            true => broadcast(self, now, message),
            false => unicast(self, now, message),
        };
        assert_eq!(handled.event, event);
    }
}

fn broadcast(server: &mut Server, now: Duration, message: &Message) -> Handled {
    let (nobody, all) = (Ipv4Addr::UNSPECIFIED, Ipv4Addr::BROADCAST);
    send(server, now, message, nobody, all)
}

fn unicast(server: &mut Server, now: Duration, message: &Message) -> Handled {
    send(server, now, message, message.ciaddr, ip(1))
}

fn send(
    server: &mut Server,
    now: Duration,
    message: &Message,
    from: Ipv4Addr,
    to: Ipv4Addr,
) -> Handled {
    server.receive(now, &datagram(&message.encode(), from, to))
}

fn datagram(payload: &[u8], from: Ipv4Addr, to: Ipv4Addr) -> Datagram<'_> {
    let ethernet = if to == Ipv4Addr::BROADCAST {
        BROADCAST
    } else {
        [2; 6]
    };
    let from_mac = payload[28..34].try_into().expect("six bytes");
    Datagram {
        payload,
        source: SocketAddrV4::new(from, 68),
        destination: Some(SocketAddrV4::new(to, 67)),
        ethernet: Some((from_mac, ethernet)),
    }
}
