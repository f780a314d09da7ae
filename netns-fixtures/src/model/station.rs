//! A host on an Ethernet, with or without a server: whole frames in and out.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

use super::frame::{Arp, BROADCAST, Datagram, Mac, Packet, arp, decode, udp};
use super::server::{Event, Server};

/// A frame to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Out {
    /// How long it is held back.
    pub delay: Duration,
    /// The frame.
    pub frame: Vec<u8>,
}

/// A host that answers ARP for its address, and DHCP if it has a server.
///
/// A server whose identifier is not the station's address is off the link: the station is then the router that relays for it. The
/// relay's own fields stay empty, because a client does not read them.
#[derive(Debug)]
pub struct Station {
    mac: Mac,
    address: Ipv4Addr,
    server: Option<Server>,
    /// What it learnt from ARP, and until when that is valid.
    neighbours: BTreeMap<Ipv4Addr, (Mac, Duration)>,
    /// Datagrams that wait for ARP, and until when.
    waiting: Vec<(Duration, SocketAddrV4, Vec<u8>)>,
}

const NEIGHBOUR: Duration = Duration::from_secs(30);
const WAIT: Duration = Duration::from_secs(3);
const MOST: usize = 4096;

impl Station {
    /// Returns a host without a server, such as a router.
    pub fn new(mac: Mac, address: Ipv4Addr) -> Self {
        Self {
            mac,
            address,
            server: None,
            neighbours: BTreeMap::new(),
            waiting: Vec::new(),
        }
    }

    /// Returns a host with a server on it, or behind it.
    pub fn with_server(mac: Mac, address: Ipv4Addr, server: Server) -> Self {
        Self {
            server: Some(server),
            ..Self::new(mac, address)
        }
    }

    /// Returns its Ethernet address.
    pub fn mac(&self) -> Mac {
        self.mac
    }

    /// Returns its address on the link.
    pub fn address(&self) -> Ipv4Addr {
        self.address
    }

    /// Returns the server.
    pub fn server(&self) -> Option<&Server> {
        self.server.as_ref()
    }

    /// Returns the server.
    pub fn server_mut(&mut self) -> Option<&mut Server> {
        self.server.as_mut()
    }

    /// Gives it another Ethernet address, as when a router fails over.
    pub fn set_mac(&mut self, mac: Mac) {
        self.mac = mac;
    }

    /// Gives it another address, as when a network is renumbered.
    pub fn set_address(&mut self, address: Ipv4Addr) {
        self.address = address;
    }

    /// Takes a frame. Returns what it sends in response, and what its server did if the frame was for the server.
    pub fn receive(&mut self, now: Duration, bytes: &[u8]) -> (Vec<Out>, Option<Event>) {
        let nothing = (Vec::new(), None);
        let Ok(frame) = decode(bytes) else {
            return nothing;
        };
        if frame.destination != self.mac && frame.destination != BROADCAST {
            return nothing;
        }
        match frame.packet {
            Packet::Arp(packet) => (self.arp(now, &packet), None),
            Packet::Udp {
                source,
                destination,
                payload,
            } if destination.port() == 67 => {
                // A router does not forward what came in a broadcast.
                if frame.destination == BROADCAST
                    && ![self.address, Ipv4Addr::BROADCAST].contains(destination.ip())
                {
                    return nothing;
                }
                let ethernet = Some((frame.source, frame.destination));
                let datagram = Datagram {
                    payload,
                    source,
                    destination: Some(destination),
                    ethernet,
                };
                self.dhcp(now, &datagram)
            }
            Packet::Udp { .. } | Packet::Other(_) => nothing,
        }
    }

    fn arp(&mut self, now: Duration, packet: &Arp) -> Vec<Out> {
        // A known neighbour that announces another Ethernet address is known by that from now on (as in Linux, even
        // with `arp_accept` at 0).
        if let Some((mac, _)) = self.neighbours.get_mut(&packet.sender) {
            *mac = packet.sender_mac;
        }
        if packet.target != self.address || packet.sender.is_unspecified() && !packet.request {
            return Vec::new();
        }
        let mut out = Vec::new();
        if !packet.sender.is_unspecified() {
            if self.neighbours.len() >= MOST {
                self.neighbours.pop_first();
            }
            self.neighbours
                .insert(packet.sender, (packet.sender_mac, now + NEIGHBOUR));
            out = self.flush(now, packet.sender, packet.sender_mac);
        }
        if packet.request {
            let answer = Arp {
                request: false,
                sender_mac: self.mac,
                sender: self.address,
                target_mac: packet.sender_mac,
                target: packet.sender,
            };
            out.insert(
                0,
                Out {
                    delay: Duration::ZERO,
                    frame: arp(self.mac, packet.sender_mac, &answer),
                },
            );
        }
        out
    }

    /// Sends what was waiting for a neighbour.
    fn flush(&mut self, now: Duration, neighbour: Ipv4Addr, mac: Mac) -> Vec<Out> {
        self.waiting.retain(|(until, ..)| now < *until);
        let ready = self
            .waiting
            .extract_if(.., |(_, to, _)| *to.ip() == neighbour)
            .collect::<Vec<_>>();
        ready
            .into_iter()
            .map(|(_, to, payload)| self.datagram(mac, to, &payload, Duration::ZERO))
            .collect()
    }

    fn dhcp(&mut self, now: Duration, datagram: &Datagram<'_>) -> (Vec<Out>, Option<Event>) {
        let Some(server) = &mut self.server else {
            return (Vec::new(), None);
        };
        let to = datagram.destination.map(|to| *to.ip());
        if to.is_some_and(|to| {
            to != Ipv4Addr::BROADCAST && to != self.address && to != server.config().id
        }) {
            return (Vec::new(), None);
        }
        let handled = server.receive(now, datagram);
        let Some(reply) = handled.reply else {
            return (Vec::new(), Some(handled.event));
        };
        let relayed = handled
            .relayed
            .map(|nak| self.datagram(BROADCAST, nak.destination, &nak.payload, nak.delay));
        let known = self
            .neighbours
            .get(reply.destination.ip())
            .filter(|(_, until)| now < *until);
        let out = match reply.ethernet.or(known.map(|(mac, _)| *mac)) {
            Some(mac) => self.datagram(mac, reply.destination, &reply.payload, reply.delay),
            None => self.ask(now, reply.destination, reply.payload),
        };
        (
            relayed.into_iter().chain([out]).collect(),
            Some(handled.event),
        )
    }

    /// Asks by ARP for a neighbour, and keeps the datagram for it.
    fn ask(&mut self, now: Duration, to: SocketAddrV4, payload: Vec<u8>) -> Out {
        self.waiting.retain(|(until, ..)| now < *until);
        if self.waiting.len() < MOST {
            self.waiting.push((now + WAIT, to, payload));
        }
        let question = Arp {
            request: true,
            sender_mac: self.mac,
            sender: self.address,
            target_mac: [0; 6],
            target: *to.ip(),
        };
        Out {
            delay: Duration::ZERO,
            frame: arp(self.mac, BROADCAST, &question),
        }
    }

    fn datagram(&self, mac: Mac, to: SocketAddrV4, payload: &[u8], delay: Duration) -> Out {
        let from = SocketAddrV4::new(self.address, 67);
        Out {
            delay,
            frame: udp(self.mac, mac, from, to, payload),
        }
    }
}
