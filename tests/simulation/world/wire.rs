//! Segments: the wires between the host's links and the servers, which lose, double and delay frames.

use std::net::Ipv4Addr;
use std::time::Duration;

use ipnet::Ipv4Net;
use leasehold_core::effect::ExchangeId;
use leasehold_core::identity::Lan;
use leasehold_core::link::{Link, LinkCause};
use leasehold_core::testbed::kernel::{At, host_mac};
use leasehold_core::testbed::lan;
use leasehold_core::wire::Mac;
use leasehold_core::wire::frame::FrameMeta;
use netns_fixtures::model::{
    Arp, BROADCAST, Config, Event as Served, Frame, Judge, Packet, Purpose, Server, Silence,
    Station, arp, decode,
};

use super::daemon::is_dhcp;
use super::seen::Seen;
use super::shell::Sock;
use super::{Event, MILLI, Micros, SECOND, World};
use crate::plan::{Plan, ROGUE, Rogue, VLAN, Wires, happens};
use crate::subject::{answer_of, message_of};

/// The server identifier of a rogue that nothing denies, and that has no address to give.
const STRAY: Ipv4Addr = Ipv4Addr::new(192, 168, 77, 1);

/// One LAN: its stations, and the judge that reads everything that the daemon sends on it.
pub(crate) struct Segment {
    /// Its name.
    pub(crate) lan: Lan,
    /// Servers, and routers without one.
    pub(crate) stations: Vec<Station>,
    /// Whether the last station is a rogue, and which.
    pub(crate) rogue: Option<Rogue>,
    /// When a server last got a new configuration.
    pub(super) changed: Option<Micros>,
    /// Until when each station is away.
    pub(super) away: Vec<Micros>,
    /// Until when nobody hears each station.
    pub(super) mute: Vec<Micros>,
    /// The judge.
    pub(crate) judge: Judge,
}

impl Segment {
    /// Returns the segment of a plan.
    pub(crate) fn new(plan: &Plan, lan: usize) -> Self {
        let subnet =
            Ipv4Net::new(Ipv4Addr::new(10, lan as u8, 0, 0), 22).expect("22 is a prefix length");
        let at = |offset: u32| Ipv4Addr::from_bits(subnet.network().to_bits() + offset);
        let config = |index: usize| Config {
            pool: plan.pool(lan, index),
            knows: plan.knows,
            lease: plan.lease,
            t1: plan.times.map(|(t1, _)| t1),
            t2: plan.times.map(|(_, t2)| t2),
            mtu: plan.mtu,
            terse: plan.terse,
            cut: plan.cut,
            flag_only: plan.flag_only,
            authoritative: plan.authoritative && plan.servers == 1,
            offer_delay: plan.offer_delay,
            // On a wire that also loses frames, nobody could say which answer a client has heard.
            extend_delay: if plan.loss > 0 {
                Duration::ZERO
            } else {
                plan.extend_delay
            },
            decline_hold: Duration::from_secs(60),
            // The NAK is obeyed where it is all that is heard in time: on a wire that loses frames, and of a server that is slow to
            // extend.
            relay: (plan.relay && plan.loss == 0 && plan.extend_delay.is_zero())
                .then_some(at(1021)),
            stubborn: plan.stubborn,
            ..Config::new(subnet)
        };
        let mac = |index: u8| [2, 0xbb, lan as u8, 0, 0, index];
        let id = match plan.off_link {
            true => Ipv4Addr::new(172, 16, 0, 1 + lan as u8),
            false => at(1),
        };
        let mut stations = Vec::new();
        let mut add = |number, address, config| {
            let server = Server::unjudged(config);
            stations.push(Station::with_server(mac(number), address, server));
        };
        add(1, at(1), Config { id, ..config(0) });
        if plan.servers > 1 {
            let id = at(2);
            add(2, id, Config { id, ..config(1) });
        }
        let none = Duration::ZERO;
        if plan.deaf {
            let (id, pool) = (at(3), (at(1016), at(1020)));
            let config = Config {
                id,
                pool,
                deaf: true,
                authoritative: false,
                offer_delay: none,
                offer_hold: none,
                relay: None,
                ..config(0)
            };
            add(4, id, config);
        }
        let foreign = |id| Config {
            id,
            ..Config::new(Ipv4Net::new(id, 24).expect("24 is a prefix length"))
        };
        match plan.rogue {
            None => {}
            Some(Rogue::Denied) => add(3, ROGUE, foreign(ROGUE)),
            Some(Rogue::Refuses) => {
                let pool = (Ipv4Addr::from_bits(STRAY.to_bits() + 1), STRAY);
                let nothing = foreign(STRAY);
                add(3, STRAY, Config { pool, ..nothing });
            }
            Some(Rogue::Nonsense) => {
                let (id, pool) = (at(9), (at(990), at(1015)));
                let config = Config {
                    id,
                    pool,
                    offer_delay: none,
                    authoritative: false,
                    ..config(0)
                };
                add(3, id, config);
            }
        }
        let [away, mute] = [(); 2].map(|()| vec![0; stations.len()]);
        let vlan = if plan.wires == Some(Wires::Vlan) {
            VLAN
        } else {
            0
        };
        let lan = Lan::Link {
            parent: format!("eth{lan}").into(),
            vlan,
        };
        Self {
            lan,
            stations,
            rogue: plan.rogue,
            changed: None,
            away,
            mute,
            judge: Judge::default(),
        }
    }

    /// Returns the stations except for the rogue.
    pub(crate) fn honest(&self) -> &[Station] {
        &self.stations[..self.stations.len() - usize::from(self.rogue.is_some())]
    }

    /// Returns whether a frame comes from the rogue.
    pub(crate) fn is_of_rogue(&self, frame: &[u8]) -> bool {
        let rogue = self.rogue.and(self.stations.last());
        rogue.is_some_and(|station| frame.get(6..12) == Some(&station.mac()[..]))
    }

    /// Returns the server identifier of the rogue.
    pub(crate) fn rogue_id(&self) -> Option<Ipv4Addr> {
        self.rogue.and(self.stations.last()).map(Station::address)
    }
}

impl World {
    /// Sends a frame from an exchange's socket, or over the host's link, where only the wire hears it.
    pub(super) fn transmit(&mut self, exchange: ExchangeId, frame: Vec<u8>, over_host: bool) {
        let Some(sock) = self.socks.get_mut(&exchange) else {
            return;
        };
        if let Some(message) = message_of(&frame) {
            (sock.speaks, sock.client) = (true, Some(message.key()));
        }
        let Some(wire) = sock.open_at.and_then(|at| self.kernel.link(at)) else {
            return;
        };
        if !(wire.up && wire.carrier && self.now >= wire.blocked) {
            return;
        }
        let lan = sock.lan;
        let in_reach = !(self.plan.beside && (over_host || is_direct(&sock.link)));
        self.show(&Seen::Left {
            lan,
            exchange,
            frame: &frame,
        });
        self.digest.frame(self.now, lan, &frame);
        self.stats
            .count_which(is_dhcp(&frame), "messages sent", "ARP sent");
        if in_reach {
            self.reach_stations(lan, frame.clone());
        }
        if over_host {
            self.stats.count("frames over the link of macvlans");
        }
        self.neighbours_hear(lan, exchange, &frame, over_host);
    }

    /// Returns whether a frame goes to where a station was before it moved. Its link may have been deaf to the ARP answer that
    /// said so, or it may be for an address that was taken off, which ARP never names: a lease that was not extended since, such
    /// as one without end, has no other way there. Or the frame leaves where no station hears it, because no port could be made.
    pub(super) fn strays(&self, exchange: ExchangeId, frame: &[u8]) -> bool {
        let Some(sock) = self.socks.get(&exchange) else {
            return false;
        };
        if self.plan.beside
            && is_direct(&sock.link)
            && self.portless.contains(&(sock.lan, sock.link.mac()))
        {
            return true;
        }
        let deaf = is_direct(&sock.link) && !self.plan.promiscuous && !self.plan.ipvlan;
        let has = |at: At, address| self.kernel.link(at).is_some_and(|wire| wire.has(address));
        let is_off = message_of(frame).is_some_and(|message| match sock.link.in_netns() {
            Some(at) => !has(at, message.ciaddr),
            None => self
                .actors
                .iter()
                .any(|actor| actor.meddled && actor.client_key() == message.key()),
        });
        let Some(to) = frame
            .get(..6)
            .filter(|to| (deaf || is_off) && *to != BROADCAST)
        else {
            return false;
        };
        !self.segments[sock.lan]
            .stations
            .iter()
            .any(|station| station.mac() == *to)
    }

    /// Lets the other containers' kernels answer ARP, and lets the other sockets that listen for ARP hear it.
    fn neighbours_hear(&mut self, lan: usize, exchange: ExchangeId, bytes: &[u8], over_host: bool) {
        let Ok(frame) = decode(bytes) else { return };
        let Packet::Arp(question) = frame.packet else {
            return;
        };
        let own = Mac(frame.source);
        let owner = self
            .kernel
            .owner(lan, question.target, Some(own))
            .map(|wire| wire.mac);
        let owner = owner.or_else(|| self.still_answers(lan, question.target));
        if let Some(owner) = owner.filter(|_| question.request && !over_host) {
            let answer = answer_to(&question, owner);
            let reply = arp(owner.0, question.sender_mac, &answer);
            self.ledger
                .claimed
                .insert((lan, question.target, owner), self.now);
            self.deliver(exchange, reply, FrameMeta::default());
        }
        self.squatters_hear(lan, exchange, &question);
        self.claimants_hear(lan, exchange, &question);
        self.elsewhere_hears(lan, exchange, &question);
        if frame.destination != BROADCAST || over_host {
            return;
        }
        let address = if question.sender.is_unspecified() {
            question.target
        } else {
            question.sender
        };
        let hears = |id: &ExchangeId, sock: &Sock| {
            let other = *id != exchange && sock.lan == lan && sock.link.mac() != own;
            other && hears_of(sock, &question) && sock.open_at.is_some_and(|at| self.carries(at))
        };
        let hearing = self
            .socks
            .iter()
            .filter(|(id, sock)| hears(id, sock))
            .map(|(id, _)| *id);
        for other in hearing.collect::<Vec<_>>() {
            self.ledger.claimed.insert((lan, address, own), self.now);
            self.stats.count("ARP heard of other containers");
            self.deliver(other, bytes.to_vec(), FrameMeta::default());
        }
    }

    /// Returns which link answers for an address although the kernel is removing it.
    fn still_answers(&self, lan: usize, address: Ipv4Addr) -> Option<Mac> {
        let mut going = self.going.iter().filter(|((on, _), _)| *on == lan);
        let answers = |(until, has): &(Micros, Vec<Ipv4Net>)| {
            self.now < *until && has.iter().any(|net| net.addr() == address)
        };
        let found = going.find(|(_, going)| answers(going));
        found.map(|((_, mac), _)| *mac)
    }

    /// Returns the fate of a frame: its delay; two delays if it is doubled; none if it is lost.
    pub(super) fn fates(&mut self) -> [Option<Micros>; 2] {
        let mut fates = [None; 2];
        if happens(&mut self.rng, self.plan.loss) {
            self.stats.count("frames lost");
            return fates;
        }
        fates[0] = Some(self.delay());
        if happens(&mut self.rng, self.plan.duplicates) {
            fates[1] = Some(self.delay());
        }
        fates
    }

    fn delay(&mut self) -> Micros {
        let base = self.rng.u64(20..300);
        match self.plan.late {
            Some(late) if self.rng.u32(..4) == 0 => base + self.rng.u64(..late.as_micros() as u64),
            _ => base,
        }
    }

    /// Returns whether no relay forwards broadcasts to the servers any more.
    pub(super) fn is_unrelayed(&self) -> bool {
        self.plan.relay_dies && self.now > self.plan.active.as_micros() as Micros / 4
    }

    /// Handles a frame that reaches a station.
    pub(super) fn at_station(&mut self, lan: usize, station: usize, frame: &[u8]) {
        let is_unheard =
            self.is_unrelayed() && is_dhcp(frame) && frame.get(..6) == Some(&BROADCAST[..]);
        if self.now < self.segments[lan].away[station] || is_unheard {
            return;
        }
        let now = self.model_time();
        if station >= self.segments[lan].honest().len() {
            return self.at_rogue(lan, frame);
        }
        let (out, served) = self.segments[lan].stations[station].receive(now, frame);
        if let Some(served) = served {
            self.note(|| format!("    server {lan}.{station}: {served:?}"));
            if let Some(message) = message_of(frame) {
                self.server_took(lan, station, &message);
                self.ports.taken.insert((lan, message.key()), self.now);
                if let Served::Granted(address, purpose) = served {
                    let grant = (lan, self.server_id(lan, station), address, message.key());
                    self.server_granted(grant, message.xid, purpose);
                }
            }
            self.served(lan, station, served);
        }
        let mute = self.now < self.segments[lan].mute[station];
        self.stats
            .count_if(out.len() > 1 && !mute, "NAKs beside an answer");
        for out in out.into_iter().filter(|_| !mute) {
            if let Ok(Frame {
                packet: Packet::Udp { payload, .. },
                ..
            }) = decode(&out.frame)
            {
                self.segments[lan].judge.server(now, payload);
            }
            let held = out.delay.as_micros() as Micros;
            if held > 4 * SECOND {
                self.stats.count("late answers");
            }
            for delay in self.fates().into_iter().flatten() {
                self.at(self.now + held + delay, Event::Host(lan, out.frame.clone()));
            }
        }
    }

    /// Records what a server did, and whom it excuses.
    fn served(&mut self, lan: usize, station: usize, served: Served) {
        self.show(&Seen::Served(lan, station, served));
        match served {
            Served::Granted(address, purpose) => {
                self.stats.count(match purpose {
                    Purpose::Select => "granted to REQUEST",
                    Purpose::Reboot => "granted to INIT-REBOOT",
                    Purpose::Renew => "granted to RENEW",
                    Purpose::Rebind => "granted to REBIND",
                    Purpose::Discover | Purpose::Decline | Purpose::Release => "granted",
                });
                let server = self.segments[lan].stations[station].server();
                let lease = server.and_then(|server| server.lease(self.model_time(), address));
                let name = lease.map(|lease| lease.name.clone());
                let until = lease
                    .and_then(|lease| lease.until)
                    .map(|until| until.as_micros() as Micros);
                let before = self.ledger.granted.insert((lan, address, name), until);
                if before.flatten().is_some_and(|ended| ended <= self.now) {
                    self.excuse(lan, address, "lapsed");
                }
            }
            Served::Refused(address, _) => {
                self.stats.count("NAK");
                self.excuse(lan, address, "refused");
            }
            Served::Released(address) => {
                self.stats.count("released");
                // A RELEASE that was under way for long may free what its successor has by now.
                self.excuse(lan, address, "released");
            }
            Served::Declined(address) => {
                self.stats.count("declined");
                self.end_by_late_decline(lan, address);
            }
            Served::Offered(_) => self.stats.count("offered"),
            Served::Silent(Silence::Deaf) => self.stats.count("REQUESTs to a deaf server"),
            Served::Silent(_) => self.stats.count("silence"),
        }
    }

    /// Handles a frame from a station that reaches the host: its kernels and the exchanges' sockets.
    pub(super) fn at_host(&mut self, lan: usize, bytes: &[u8]) {
        let Ok(frame) = decode(bytes) else { return };
        let (about, chaddr) = match &frame.packet {
            Packet::Arp(question) => {
                if let Some(owner) = self
                    .kernel
                    .owner(lan, question.target, None)
                    .filter(|_| question.request)
                {
                    let reply = arp(owner.mac.0, frame.source, &answer_to(question, owner.mac));
                    self.reach_stations(lan, reply);
                }
                (Some(question), frame.destination)
            }
            Packet::Udp {
                destination,
                payload,
                ..
            } if destination.port() == 68 && payload.len() >= 34 => (
                None,
                [
                    payload[28],
                    payload[29],
                    payload[30],
                    payload[31],
                    payload[32],
                    payload[33],
                ],
            ),
            Packet::Udp { .. } | Packet::Other(_) => return,
        };
        let broadcast = frame.destination == BROADCAST;
        // Beside a relay that refuses, the client hears only the NAK.
        if self.plan.relay
            && !broadcast
            && frame.destination != chaddr
            && let Some(ack) = message_of(bytes)
        {
            self.excuse(lan, ack.yiaddr, "its ACK goes to who released it");
        }
        let hears = |sock: &&Sock| {
            let own =
                !is_direct(&sock.link) || self.plan.promiscuous || sock.link.mac() == host_mac(lan);
            let for_it = broadcast || (sock.link.mac().0 == frame.destination && own);
            let wanted = match about {
                Some(arp) => hears_of(sock, arp),
                None => sock.link.mac().0 == chaddr,
            };
            sock.lan == lan && for_it && wanted && sock.open_at.is_some_and(|at| self.carries(at))
        };
        let other_host =
            |sock: &Sock| !broadcast && is_direct(&sock.link) && sock.link.mac() != host_mac(lan);
        let hearing = self
            .socks
            .iter()
            .filter(|(_, sock)| hears(sock))
            .map(|(id, sock)| (*id, other_host(sock)));
        for (exchange, other_host) in hearing.collect::<Vec<_>>() {
            self.deliver(
                exchange,
                bytes.to_vec(),
                FrameMeta {
                    other_host,
                    ..FrameMeta::default()
                },
            );
        }
    }

    pub(super) fn carries(&self, at: At) -> bool {
        self.kernel
            .link(at)
            .is_some_and(|wire| wire.up && wire.carrier && self.now >= wire.blocked)
    }

    fn reach_stations(&mut self, lan: usize, frame: Vec<u8>) {
        for station in 0..self.segments[lan].stations.len() {
            for delay in self.fates().into_iter().flatten() {
                self.at(
                    self.now + delay,
                    Event::Station(lan, station, frame.clone()),
                );
            }
        }
    }

    /// Delivers a frame to the core, sometimes as it comes over veth: without its UDP checksum.
    pub(super) fn deliver(
        &mut self,
        exchange: ExchangeId,
        mut frame: Vec<u8>,
        mut meta: FrameMeta,
    ) {
        if self.rng.u32(..8) == 0 && is_dhcp(&frame) {
            meta.checksum_not_ready = true;
            frame[40..42].copy_from_slice(&[0x12, 0x34]);
        }
        // Now and then noise comes with it: the same frame, damaged.
        if self.plan.loss > 0 && is_dhcp(&frame) && self.rng.u32(..16) == 0 {
            let mut noise = frame.clone();
            let at = self.rng.usize(12..noise.len());
            noise[at] ^= 1 << self.rng.u32(..8);
            self.after(10, MILLI, Event::Noise(self.run, exchange, noise));
        }
        self.after(10, MILLI, Event::Frame(self.run, exchange, frame, meta));
    }

    /// Takes a link's carrier away, or gives it back.
    pub(super) fn carrier(&mut self, at: At, carrier: bool) {
        let event = self.kernel.set_carrier(at, carrier);
        self.tell(event);
        match carrier {
            true => self.plugged_in(at),
            false => self.unplugged(at),
        }
        if !carrier {
            self.after(SECOND, 30 * SECOND, Event::Carrier(at, true));
        }
    }

    /// Sets a link down, which makes the kernel remove its routes, and lets it come up again.
    pub(super) fn lower(&mut self, at: At) {
        self.kernel
            .lower(at)
            .into_iter()
            .for_each(|told| self.tell(Some(told)));
        self.unplugged(at);
        self.after(SECOND, 30 * SECOND, Event::Raised(at));
    }

    /// Sets a link up again.
    pub(super) fn raise(&mut self, at: At) {
        self.kernel.raise(at);
        self.after(MILLI, SECOND, Event::Carrier(at, true));
    }

    /// Makes the sockets on a link that is gone fail.
    pub(super) fn break_socks(&mut self, at: At) {
        let on_it = self
            .socks
            .iter()
            .filter(|(_, sock)| sock.open_at == Some(at))
            .map(|(id, _)| *id);
        for exchange in on_it.collect::<Vec<_>>() {
            let cause = LinkCause::NoLink(at.1.to_string());
            self.after(10, 5 * MILLI, Event::Broken(self.run, exchange, cause));
        }
    }
}

/// Returns whether an exchange's packet socket hears this ARP packet.
fn hears_of(sock: &Sock, arp: &Arp) -> bool {
    let answers = !arp.request && arp.target_mac == sock.link.mac().0;
    lan::hears(sock.want.arp, answers, arp.sender, arp.target)
}

pub(super) fn answer_to(question: &Arp, mac: Mac) -> Arp {
    answer_of(question, mac.0)
}

/// Returns whether the sockets are on the host's link itself, not on a port of it, which has the container's Ethernet address.
pub(super) fn is_direct(link: &Link) -> bool {
    matches!(link, Link::Parent { port: false, .. })
}
