//! What goes wrong with servers and on the wire: servers go away, restart, forget or refuse everything, and rogues join them.

use std::net::Ipv4Addr;
use std::time::Duration;

use ipnet::Ipv4Net;
use leasehold_core::link::LinkCause;
use netns_fixtures::model::{Kind, Message, Packet, code, decode, udp};

use super::{Event, SECOND, World};
use crate::plan::{HIDDEN, Rogue, happens, pick};
use crate::trace::Brief;

/// An outage lasts at most this many quarters of a lease.
const QUARTERS: u64 = 5;

impl World {
    /// Returns the length of an outage, in microseconds.
    fn outage(&mut self) -> u64 {
        let lease = u64::from(self.plan.lease.min(86_400)) * SECOND;
        self.rng.u64(..lease * QUARTERS / 4)
    }

    /// Makes something happen to a server.
    pub(super) fn server_fault(&mut self, lan: usize) {
        let Some(every) = self.plan.server_faults else {
            return;
        };
        self.sometime(every, Event::Server(lan));
        let station = self.rng.usize(..self.segments[lan].honest().len());
        let what = pick(
            &mut self.rng,
            &["away", "away", "restarts", "forgets", "revokes", "moves"],
        );
        self.note(|| format!("SERVER {lan}.{station} {what}"));
        self.stats.count("server faults");
        let now = self.model_time();
        match what {
            "away" => self.segments[lan].away[station] = self.now + self.outage(),
            "moves" => {
                let mac = [2, 0xbb, lan as u8, 1, self.rng.u8(..), station as u8];
                self.segments[lan].stations[station].set_mac(mac);
            }
            _ => {
                let Some(server) = self.segments[lan].stations[station].server_mut() else {
                    return;
                };
                let held = server
                    .leases(now)
                    .map(|(address, _)| address)
                    .collect::<Vec<_>>();
                match what {
                    "restarts" => server.restart(true),
                    "forgets" => server.restart(false),
                    _ => held
                        .first()
                        .into_iter()
                        .for_each(|address| server.revoke(*address)),
                }
                let gone = match what {
                    "restarts" => &[][..],
                    "forgets" => &held,
                    _ => &held[..held.len().min(1)],
                };
                self.stats.count(match what {
                    "restarts" => "servers that restarted with their database",
                    "forgets" => "servers that restarted without it",
                    _ => "leases that the operator ended",
                });
                gone.iter()
                    .for_each(|address| self.excuse(lan, *address, what));
            }
        }
    }

    /// Cuts servers off for a while: one or all, in both directions, or so that only their answers are lost.
    pub(super) fn partition(&mut self, lan: usize) {
        let Some(every) = self.plan.partitions else {
            return;
        };
        self.sometime(every, Event::Partition(lan));
        let servers = self.segments[lan].honest().len();
        let cut = match self.rng.bool() {
            true => 0..servers,
            false => pick(
                &mut self.rng,
                &(0..servers).map(|one| one..one + 1).collect::<Vec<_>>(),
            ),
        };
        self.stats.count_which(
            cut.len() == servers,
            "partitions of all servers",
            "partitions of one of two",
        );
        let (mute, until) = (self.rng.u32(..3) == 0, self.now + self.outage());
        self.note(|| format!("PARTITION of {lan}.{cut:?}, only answers: {mute}"));
        let segment = &mut self.segments[lan];
        let way = if mute {
            &mut segment.mute
        } else {
            &mut segment.away
        };
        way[cut].iter_mut().for_each(|end| *end = until);
    }

    /// Makes a server begin or end to refuse every REQUEST.
    pub(super) fn storm(&mut self, lan: usize, station: usize, begins: bool) {
        let every = self.plan.storms;
        let Some(server) = self.segments[lan].stations[station].server_mut() else {
            return;
        };
        server.config_mut().refuses = begins && every.is_some();
        self.note(|| format!("STORM of {lan}.{station}: {begins}"));
        let Some(every) = every else { return };
        if begins {
            self.stats.count("NAK storms");
            let end = self.now + self.outage().min(600 * SECOND);
            self.at(end, Event::Storm(lan, station, false));
        } else {
            let next = self.rng.usize(..self.segments[lan].honest().len());
            self.sometime(every, Event::Storm(lan, next, true));
        }
    }

    /// Gives a server a new configuration. A new pool or subnet ends its leases; new options come with the next extension.
    pub(super) fn renumber(&mut self, lan: usize) {
        let Some(every) = self.plan.renumbers else {
            return;
        };
        self.sometime(every, Event::Renumber(lan));
        let station = self.rng.usize(..self.segments[lan].honest().len());
        let what = pick(
            &mut self.rng,
            &["pool", "subnet", "mask", "options", "options"],
        );
        let (draw, off_link) = (self.rng.u32(..), self.plan.off_link && station == 0);
        let first = 1 + station as u32;
        let now = self.model_time();
        let station = &mut self.segments[lan].stations[station];
        let station_address = station.address();
        let Some(server) = station.server_mut() else {
            return;
        };
        let held = server
            .leases(now)
            .map(|(address, _)| address)
            .collect::<Vec<_>>();
        let config = server.config_mut();
        let at =
            |subnet: Ipv4Net, offset: u32| Ipv4Addr::from_bits(subnet.network().to_bits() + offset);
        let mut address = None;
        match what {
            "pool" => {
                let subnet = Ipv4Net::new(config.routers[0], 22).expect("22 is a prefix length");
                // There must be room for all.
                let first = 10 + draw % 8 * 90;
                config.pool = (at(subnet, first), at(subnet, first + 330));
            }
            "subnet" => {
                let subnet = Ipv4Net::new(Ipv4Addr::new(10, lan as u8, draw as u8 & 0xfc, 0), 22);
                config.subnet = subnet.expect("22 is a prefix length");
                config.pool = (at(config.subnet, 10), at(config.subnet, 480));
                config.routes.clear();
                let router = at(config.subnet, first);
                (config.routers, config.dns) = (vec![router], vec![router]);
                address = Some(router);
                if !off_link && draw & 0x100 == 0 || config.subnet.contains(&config.id) {
                    config.id = router;
                }
            }
            "mask" => {
                // An address that a host can have in one is one in the other.
                let prefix = if config.subnet.prefix_len() == 22 {
                    21
                } else {
                    22
                };
                let subnet = Ipv4Net::new(config.routers[0], prefix)
                    .expect("a prefix length")
                    .trunc();
                // A server beyond a router must not seem to be on the link.
                if config.id == station_address || !subnet.contains(&config.id) {
                    config.subnet = subnet;
                }
            }
            _ => {
                let router = config.routers[0];
                let on_link = Ipv4Addr::UNSPECIFIED;
                let more = [
                    ("0.0.0.0/0", router),
                    ("198.51.100.0/24", router),
                    ("203.0.113.0/24", on_link),
                ];
                let routes = more.map(|(to, via)| (to.parse().expect("a network"), via));
                config.routes = routes[..draw as usize % 4].to_vec();
                config.mtu = [None, Some(1400), Some(1300)][draw as usize / 4 % 3];
            }
        }
        if matches!(what, "pool" | "subnet") {
            server.restart(false);
        }
        if let Some(address) = address {
            station.set_address(address);
        }
        self.segments[lan].changed = Some(self.now);
        self.note(|| format!("SERVER of {lan} has another {what}"));
        self.stats.count(match what {
            "pool" => "servers with another pool",
            "subnet" => "servers with another subnet",
            "mask" => "servers with another mask",
            _ => "servers with other options",
        });
        held.iter()
            .for_each(|address| self.excuse(lan, *address, "renumbered"));
    }

    /// Handles a frame that reaches a rogue. Neither the judge nor anybody else needs to know its contents.
    pub(super) fn at_rogue(&mut self, lan: usize, frame: &[u8]) {
        let now = self.model_time();
        let rogue = self.segments[lan].rogue;
        let Some(station) = self.segments[lan].stations.last_mut() else {
            return;
        };
        let (out, _) = station.receive(now, frame);
        for out in out {
            let is_message = matches!(decode(&out.frame), Ok(frame) if matches!(frame.packet, Packet::Udp { .. }));
            let frame = match rogue {
                Some(Rogue::Nonsense) if is_message => self.nonsense(&out.frame),
                _ => out.frame,
            };
            if is_message {
                self.note(|| format!("    rogue of {lan}: {}", Brief(&frame)));
                self.stats.count(match rogue {
                    Some(Rogue::Nonsense) => "nonsense of rogues",
                    Some(Rogue::Refuses) => "refusals of rogues",
                    Some(Rogue::Denied) | None => "answers of denied rogues",
                });
            }
            for delay in self.fates().into_iter().flatten() {
                self.at(self.now + delay, Event::Host(lan, frame.clone()));
            }
        }
    }

    /// Turns an answer into one that no client may believe.
    fn nonsense(&mut self, bytes: &[u8]) -> Vec<u8> {
        let Ok(frame) = decode(bytes) else {
            return bytes.to_vec();
        };
        let Packet::Udp {
            source,
            destination,
            payload,
        } = frame.packet
        else {
            return bytes.to_vec();
        };
        let Ok(mut message) = Message::decode(payload) else {
            return bytes.to_vec();
        };
        let set = |message: &mut Message, code: u8, value: Option<Vec<u8>>| {
            message.options.retain(|(other, _)| *other != code);
            message.options.extend(value.map(|value| (code, value)));
        };
        let mut most = usize::MAX;
        match self.rng.u32(..11) {
            0 => message.yiaddr = Ipv4Addr::UNSPECIFIED,
            1 => {
                message.yiaddr =
                    pick(&mut self.rng, &[[127, 0, 0, 1], [224, 0, 0, 5], [255; 4]]).into()
            }
            2 => message.yiaddr = Ipv4Addr::from_bits(message.yiaddr.to_bits() & !0x3ff),
            3 => message.yiaddr = Ipv4Addr::from_bits(message.yiaddr.to_bits() | 0x3ff),
            4 => set(&mut message, code::LEASE_TIME, None),
            5 => set(&mut message, code::LEASE_TIME, Some(vec![0; 4])),
            6 => set(&mut message, code::SERVER, None),
            7 => set(
                &mut message,
                code::CLIENT_ID,
                Some(b"\0somebody else".to_vec()),
            ),
            8 => message.xid ^= 1,
            9 => most = payload.len() / 2,
            // An ACK to a message other than a REQUEST, or an OFFER to a REQUEST.
            _ => {
                let kind = if message.kind() == Some(Kind::Offer) {
                    Kind::Ack
                } else {
                    Kind::Offer
                };
                set(&mut message, code::TYPE, Some(vec![kind as u8]));
            }
        }
        let payload = message.encode();
        udp(
            frame.source,
            frame.destination,
            source,
            destination,
            &payload[..payload.len().min(most)],
        )
    }

    /// May make a daemon that starts see no namespace for a while, or none of one engine: its mounts are not those of the
    /// containers, or it is in another PID namespace.
    pub(super) fn go_blind(&mut self) {
        self.kernel.unseen = None;
        if !happens(&mut self.rng, self.plan.blindness) {
            return;
        }
        let ways = [
            LinkCause::NoDirectory,
            LinkCause::NoNetns,
            LinkCause::NotANetns,
            LinkCause::NetnsChanged,
        ];
        let directory = if self.plan.hides { HIDDEN } else { "/" };
        self.kernel.unseen = Some((pick(&mut self.rng, &ways), directory));
        self.stats.count("starts without sight");
        // An interface that no door names and that is seen again has moved there, for all that is known.
        self.actors
            .iter_mut()
            .filter(|actor| actor.is_found_later())
            .for_each(|actor| actor.stays_off = false);
        self.note(|| "BLIND".to_owned());
        let lasts = self.outage();
        self.at(self.now + lasts, Event::Sight(self.run));
    }

    /// Lets the daemon see namespaces again.
    pub(super) fn see_again(&mut self) {
        self.note(|| "SIGHT".to_owned());
        self.kernel.unseen = None;
    }

    /// Makes everything on the wire work from now on.
    pub(super) fn wires_heal(&mut self) {
        for segment in &mut self.segments {
            segment
                .away
                .iter_mut()
                .chain(&mut segment.mute)
                .for_each(|until| *until = 0);
            for server in segment
                .stations
                .iter_mut()
                .filter_map(|station| station.server_mut())
            {
                let config = server.config_mut();
                (config.refuses, config.extend_delay) = (false, Duration::ZERO);
            }
        }
        for at in self
            .actors
            .iter()
            .filter_map(|actor| actor.at)
            .collect::<Vec<_>>()
        {
            if self
                .kernel
                .link(at)
                .is_some_and(|wire| wire.up && !wire.carrier)
            {
                self.after(0, SECOND, Event::Carrier(at, true));
            }
        }
    }
}
