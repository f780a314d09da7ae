//! Does a station that claims a leased address claim every address? Then its claim proves nothing.
//!
//! Some routers and access controllers answer ARP for every address. A control, an address that nobody can have (RFC 5737),
//! distinguishes them from a station that really has the leased one. Many addresses behind one Ethernet address prove nothing:
//! containers on ipvlan share one, and so do the virtual addresses of a load balancer.

use std::net::Ipv4Addr;
use std::time::Duration;

use fastrand::Rng;
use ipnet::Ipv4Net;

use crate::time::Instant;
use crate::wire::Mac;
use crate::wire::frame::Arp;

/// How long to wait for an answer for the control. A proxy may delay its answers by up to 0.8 s (Linux, `proxy_delay`).
pub const CONTROL: Duration = Duration::from_secs(1);

/// How often the control is asked for.
const TRIES: u32 = 3;

/// The time from one question to the next.
const INTERVAL: Duration = Duration::from_millis(300);

/// How many stations are examined at most. Any further one that claims the address is believed.
pub(crate) const MOST: usize = 8;

/// A control under way: stations claim an address, and are asked for an address that nobody can have.
#[derive(Clone, Debug)]
pub struct Control {
    from: Mac,
    address: Ipv4Addr,
    tries: u32,
    next: Instant,
    until: Instant,
    claimants: Vec<Mac>,
    answered: Vec<Mac>,
}

/// What a control wants next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ControlAction {
    /// Send this frame, then ask again.
    Ask(Vec<u8>),
    /// Wait until the deadline, or for an ARP packet.
    Wait,
    /// It is over.
    Over(ControlResult),
}

/// The result of a control.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ControlResult {
    /// This station claims the leased address, and not the control.
    Has(Mac),
    /// All stations that claim the leased address, these, answered for the control too.
    Nobody(Vec<Mac>),
}

impl Control {
    /// Asks for the address `control`, from the Ethernet address `from`, because `by` claims the leased address.
    pub fn new(control: Ipv4Addr, from: Mac, by: Mac, now: Instant) -> Self {
        let (claimants, answered) = (vec![by], Vec::new());
        Self {
            from,
            address: control,
            tries: 0,
            next: now,
            until: now + CONTROL,
            claimants,
            answered,
        }
    }

    /// Returns the address that is asked for.
    pub fn address(&self) -> Ipv4Addr {
        self.address
    }

    /// Returns a station that claims the leased address and has not answered for the control so far.
    pub fn claimant(&self) -> Option<Mac> {
        self.claimants
            .iter()
            .find(|mac| !self.answered.contains(mac))
            .copied()
    }

    /// Records that a station claims the leased address.
    pub fn claims(&mut self, by: Mac) {
        note(&mut self.claimants, by);
    }

    /// Handles an ARP packet from another station.
    pub fn on_arp(&mut self, arp: &Arp) {
        if arp.sender == self.address {
            note(&mut self.answered, arp.sender_mac);
        }
    }

    /// Does what is due by the clock. `can_send`: whether frames reach the wire now.
    pub fn on_clock(&mut self, now: Instant, can_send: bool) -> ControlAction {
        if now >= self.until {
            return ControlAction::Over(match self.claimant() {
                Some(by) => ControlResult::Has(by),
                None => ControlResult::Nobody(self.claimants.clone()),
            });
        }
        if self.tries == TRIES || now < self.next || !can_send {
            return ControlAction::Wait;
        }
        self.tries += 1;
        self.next = now + INTERVAL;
        ControlAction::Ask(Arp::request(self.from, Ipv4Addr::UNSPECIFIED, self.address).encode())
    }

    /// Returns when the clock next matters. `can_send` as above.
    pub fn deadline(&self, can_send: bool) -> Instant {
        let asks = can_send && self.tries < TRIES;
        if asks {
            self.next.min(self.until)
        } else {
            self.until
        }
    }
}

fn note(list: &mut Vec<Mac>, mac: Mac) {
    if list.len() < MOST && !list.contains(&mac) {
        list.push(mac);
    }
}

/// Returns a random address that nobody can have (RFC 5737), in a net that does not overlap the subnet `beside`, and that is not
/// the server's.
pub fn address(beside: Ipv4Net, server: Ipv4Addr, rng: &mut Rng) -> Ipv4Addr {
    let nets = [[203, 0, 113, 0], [198, 51, 100, 0], [192, 0, 2, 0]]
        .map(|net| Ipv4Net::new_assert(net.into(), 24));
    let is_apart = |net: &&Ipv4Net| {
        !net.contains(&server)
            && !net.contains(&beside.network())
            && !beside.contains(&net.network())
    };
    let net = nets.iter().find(is_apart).unwrap_or(&nets[0]);
    Ipv4Addr::from_bits(net.network().to_bits() + rng.u32(1..255))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROXY: Mac = Mac([2, 0, 0, 0, 0, 1]);
    const STATION: Mac = Mac([2, 0, 0, 0, 0, 2]);
    const OWN: Mac = Mac([2, 0, 0, 0, 0, 3]);
    const ADDRESS: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 7);

    fn at(millis: u64) -> Instant {
        Instant::from_boot(Duration::from_millis(millis))
    }

    fn answer(by: Mac) -> Arp {
        Arp::request(by, ADDRESS, Ipv4Addr::UNSPECIFIED)
    }

    #[test]
    fn a_control_is_asked_for_three_times_in_a_second() {
        let mut control = Control::new(ADDRESS, OWN, STATION, at(0));
        for asked in [0, 300, 600] {
            assert_eq!(control.deadline(true), at(asked));
            let ControlAction::Ask(frame) = control.on_clock(at(asked), true) else {
                panic!("not asked at {asked}")
            };
            assert_eq!(
                frame,
                Arp::request(OWN, Ipv4Addr::UNSPECIFIED, ADDRESS).encode()
            );
            assert_eq!(control.on_clock(at(asked + 299), true), ControlAction::Wait);
        }
        assert_eq!(
            (control.deadline(true), control.on_clock(at(999), true)),
            (at(1000), ControlAction::Wait)
        );
        assert_eq!(
            control.on_clock(at(1000), true),
            ControlAction::Over(ControlResult::Has(STATION))
        );
    }

    #[test]
    fn without_sockets_nothing_is_asked_and_the_claim_stands() {
        let mut control = Control::new(ADDRESS, OWN, STATION, at(0));
        assert_eq!(
            (control.deadline(false), control.on_clock(at(0), false)),
            (at(1000), ControlAction::Wait)
        );
        assert!(
            matches!(control.on_clock(at(500), true), ControlAction::Ask(_)),
            "as soon as there are some"
        );
        assert_eq!(
            control.on_clock(at(1000), false),
            ControlAction::Over(ControlResult::Has(STATION))
        );
    }

    #[test]
    fn only_who_answers_for_the_control_proves_nothing() {
        let nobody = |all: &[Mac]| ControlResult::Nobody(all.to_vec());
        for (claims, answers, verdict) in [
            (&[PROXY][..], &[][..], ControlResult::Has(PROXY)),
            (&[PROXY], &[PROXY], nobody(&[PROXY])),
            (&[PROXY], &[STATION], ControlResult::Has(PROXY)),
            (&[PROXY, STATION], &[PROXY], ControlResult::Has(STATION)),
            (&[STATION, PROXY], &[PROXY], ControlResult::Has(STATION)),
            (
                &[PROXY, STATION],
                &[STATION, PROXY],
                nobody(&[PROXY, STATION]),
            ),
        ] {
            let mut control = Control::new(ADDRESS, OWN, claims[0], at(0));
            answers.iter().for_each(|by| control.on_arp(&answer(*by)));
            claims.iter().for_each(|by| control.claims(*by));
            control.on_arp(&Arp {
                sender: Ipv4Addr::new(203, 0, 113, 8),
                ..answer(STATION)
            });
            assert_eq!(
                control.on_clock(at(1000), true),
                ControlAction::Over(verdict),
                "{claims:?} {answers:?}"
            );
        }
    }

    #[test]
    fn many_stations_cost_no_more_than_eight() {
        let mut control = Control::new(ADDRESS, OWN, STATION, at(0));
        for n in 0..100 {
            control.claims(Mac([2, 0, 0, 0, 1, n]));
            control.on_arp(&answer(Mac([2, 0, 0, 0, 2, n])));
        }
        assert_eq!(
            (control.claimants.len(), control.answered.len()),
            (MOST, MOST)
        );
    }

    #[test]
    fn the_control_is_outside_the_subnet_and_the_servers_net() {
        let mut rng = Rng::with_seed(1);
        for (subnet, server, net) in [
            ("10.7.0.50/24", [10, 7, 0, 1], [203, 0, 113]),
            ("203.0.113.50/24", [203, 0, 113, 1], [198, 51, 100]),
            ("203.0.113.50/28", [203, 0, 113, 49], [198, 51, 100]),
            ("10.7.0.50/24", [203, 0, 113, 1], [198, 51, 100]),
            ("203.0.112.50/22", [198, 51, 100, 1], [192, 0, 2]),
            ("128.0.0.1/1", [128, 0, 0, 2], [203, 0, 113]),
        ] {
            for _ in 0..500 {
                let octets = address(subnet.parse().unwrap(), server.into(), &mut rng).octets();
                assert!((1..255).contains(&octets[3]), "{octets:?} is no host's");
                if subnet != "128.0.0.1/1" {
                    assert_eq!(octets[..3], net, "{subnet}, server {server:?}");
                }
            }
        }
        let mut hosts = (0..50).map(|_| {
            address(
                "10.7.0.5/24".parse().unwrap(),
                Ipv4Addr::LOCALHOST,
                &mut rng,
            )
        });
        let first = hosts.next();
        assert!(
            hosts.any(|host| Some(host) != first),
            "nobody can foresee it"
        );
    }
}
