//! Asking a LAN by ARP who has an address (RFC 826): three times, 0.2 s apart.
//!
//! The asker decides what an answer means: a client looks for its server, or for the router to it; a lease that is being given
//! back looks for another holder; conflict detection examines a claim. The kernel is not asked: its neighbour table belongs to the
//! container, and an Ethernet address that is remembered goes stale without anyone noticing.
//!
//! Three ask otherwise. RFC 5227's probes and announcements have their own timing (`conflict`). Whether anything but broadcasts
//! arrives is asked with the frames of whoever wants to know, and any answer will do (`source`). Whether a server is on the wire,
//! or there at all, is asked once, and nobody waits for the answer.
//!
//! Some routers and access controllers answer ARP for every address, or for each that they have a route to. The control, an address
//! that nobody can have (RFC 5737), distinguishes them from a station that really has the address. Many addresses behind one
//! Ethernet address prove nothing: containers on ipvlan share one, and so do the virtual addresses of a load balancer.

use std::net::Ipv4Addr;
use std::time::Duration;

use fastrand::Rng;
use ipnet::Ipv4Net;

use crate::time::Instant;
use crate::wire::Mac;
use crate::wire::frame::Arp;

/// How often to ask.
const TRIES: u32 = 3;

/// The time from one question to the next, and from the last one to the end without a control. A DEL waits for all of them at most.
const INTERVAL: Duration = Duration::from_millis(200);

/// How long to wait for an answer for the control. A proxy may delay its answers by up to 0.8 s (Linux, `proxy_delay`).
const CONTROL: Duration = Duration::from_secs(1);

/// How many stations are examined at most. Any further one that claims the address is believed.
pub(crate) const MOST: usize = 8;

/// The question of who has one address.
#[derive(Clone, Debug)]
pub(crate) struct Question {
    /// The asker's Ethernet and IP address.
    from: (Mac, Ipv4Addr),
    /// The address; `None`: who claims it is known.
    address: Option<Ipv4Addr>,
    /// An address that nobody can have.
    control: Option<Ipv4Addr>,
    asked: u32,
    next: Instant,
    until: Instant,
    /// The stations that have the address, as they say.
    claimants: Vec<Mac>,
    /// The stations that have the control, as they say.
    proxies: Vec<Mac>,
}

/// What a question wants next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum QuestionAction {
    /// Send these frames, then wait.
    Ask(Vec<Vec<u8>>),
    /// Wait until the deadline, or for an ARP packet.
    Wait,
    /// It waits for no more answers.
    Over,
}

impl Question {
    /// Asks who has an address, at once.
    pub(crate) fn new(from: (Mac, Ipv4Addr), address: Ipv4Addr, now: Instant) -> Self {
        Self {
            from,
            address: Some(address),
            control: None,
            asked: 0,
            next: now,
            until: now + INTERVAL * TRIES,
            claimants: Vec::new(),
            proxies: Vec::new(),
        }
    }

    /// Asks for the control too, and waits longer.
    pub(crate) fn with_control(self, control: Ipv4Addr) -> Self {
        Self {
            control: Some(control),
            until: self.next + CONTROL,
            ..self
        }
    }

    /// Asks for the control only, because `by` claims an address.
    pub(crate) fn of_claim(by: Mac, control: Ipv4Addr, from: Mac, now: Instant) -> Self {
        Self {
            address: None,
            claimants: vec![by],
            ..Self::new((from, Ipv4Addr::UNSPECIFIED), control, now).with_control(control)
        }
    }

    /// Returns the address that nobody can have, if that is asked for.
    pub(crate) fn control(&self) -> Option<Ipv4Addr> {
        self.control
    }

    /// Does what is due by the clock. `can_send`: whether frames reach the wire.
    pub(crate) fn on_clock(&mut self, now: Instant, can_send: bool) -> QuestionAction {
        match () {
            () if now >= self.until => QuestionAction::Over,
            () if now < self.deadline(can_send) => QuestionAction::Wait,
            () => {
                (self.asked, self.next) = (self.asked + 1, now + INTERVAL);
                self.until = self.until.max(now + INTERVAL);
                let ask = |target| Arp::request(self.from.0, self.from.1, target).encode();
                QuestionAction::Ask(
                    self.address
                        .into_iter()
                        .chain(self.control)
                        .map(ask)
                        .collect(),
                )
            }
        }
    }

    /// Handles an ARP packet. Returns a station that has the address, as far as is known.
    pub(crate) fn on_arp(&mut self, arp: &Arp) -> Option<Mac> {
        let by = arp.sender_mac;
        if by.is_station() && by != self.from.0 {
            if Some(arp.sender) == self.address {
                self.claims(by);
            }
            if Some(arp.sender) == self.control {
                note(&mut self.proxies, by);
            }
        }
        self.by()
    }

    /// Records that a station claims the address.
    pub(crate) fn claims(&mut self, by: Mac) {
        note(&mut self.claimants, by);
    }

    /// Returns all stations that claim the address.
    pub(crate) fn claimants(&self) -> &[Mac] {
        &self.claimants
    }

    /// Returns a station that claims the address and has not answered for the control so far.
    pub(crate) fn by(&self) -> Option<Mac> {
        let has_it = |mac: &&Mac| !self.proxies.contains(mac);
        self.claimants.iter().find(has_it).copied()
    }

    /// Returns when the clock next matters. `can_send` as above.
    pub(crate) fn deadline(&self, can_send: bool) -> Instant {
        if can_send && self.asked < TRIES {
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
pub(crate) fn control(beside: Ipv4Net, server: Ipv4Addr, rng: &mut Rng) -> Ipv4Addr {
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
    const FROM: Mac = Mac([2, 0, 0, 0, 0, 3]);
    const ADDRESS: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 50);
    const NOBODYS: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 7);
    const ANY: Ipv4Addr = Ipv4Addr::UNSPECIFIED;

    fn at(millis: u64) -> Instant {
        Instant::from_boot(Duration::from_millis(millis))
    }

    fn answer(by: Mac, address: Ipv4Addr) -> Arp {
        Arp::request(by, address, ANY)
    }

    fn question() -> Question {
        Question::new((FROM, ANY), ADDRESS, at(0))
    }

    #[test]
    fn an_address_is_asked_for_three_times() {
        let control = || question().with_control(NOBODYS);
        for (mut question, targets, over) in [
            (question(), &[ADDRESS][..], 600),
            (control(), &[ADDRESS, NOBODYS], 1000),
            (
                Question::of_claim(STATION, NOBODYS, FROM, at(0)),
                &[NOBODYS],
                1000,
            ),
        ] {
            for asked in [0, 200, 400] {
                assert_eq!(question.deadline(true), at(asked));
                let frames = targets
                    .iter()
                    .map(|to| Arp::request(FROM, ANY, *to).encode());
                let action = question.on_clock(at(asked), true);
                assert_eq!(action, QuestionAction::Ask(frames.collect()));
                let action = question.on_clock(at(asked + 199), true);
                assert_eq!(action, QuestionAction::Wait);
            }
            assert_eq!(question.deadline(true), at(over));
            assert_eq!(question.on_clock(at(over - 1), true), QuestionAction::Wait);
            assert_eq!(question.on_clock(at(over), true), QuestionAction::Over);
        }
    }

    #[test]
    fn without_sockets_nothing_is_asked_and_the_claim_stands() {
        let mut question = Question::of_claim(STATION, NOBODYS, FROM, at(0));
        assert_eq!(question.deadline(false), at(1000));
        assert_eq!(question.on_clock(at(0), false), QuestionAction::Wait);
        let action = question.on_clock(at(500), true);
        // As soon as there are some.
        assert!(matches!(action, QuestionAction::Ask(_)));
        assert_eq!(question.on_clock(at(1000), false), QuestionAction::Over);
        assert_eq!(question.by(), Some(STATION));
    }

    #[test]
    fn who_answers_for_the_control_has_no_address() {
        for (has_it, has_all, by) in [
            (&[][..], &[][..], None),
            (&[STATION], &[], Some(STATION)),
            (&[STATION], &[PROXY], Some(STATION)),
            (&[PROXY], &[PROXY], None),
            (&[PROXY, STATION], &[PROXY], Some(STATION)),
            (&[STATION, PROXY], &[PROXY], Some(STATION)),
            (&[PROXY, STATION], &[STATION, PROXY], None),
            (&[FROM], &[], None),
            (&[Mac::BROADCAST], &[], None),
            (&[Mac::default()], &[], None),
        ] {
            let mut question = question().with_control(NOBODYS);
            for mac in has_all {
                question.on_arp(&answer(*mac, NOBODYS));
            }
            for mac in has_it {
                question.on_arp(&answer(*mac, ADDRESS));
            }
            let other = Ipv4Addr::from_bits(ADDRESS.to_bits() + 1);
            assert_eq!(
                question.on_arp(&answer(STATION, other)),
                by,
                "{has_it:?} {has_all:?}"
            );
        }
    }

    #[test]
    fn a_claim_counts_only_once_it_was_examined() {
        let mut question = Question::of_claim(PROXY, NOBODYS, FROM, at(0));
        question.on_arp(&answer(PROXY, NOBODYS));
        assert_eq!(question.on_arp(&answer(STATION, ADDRESS)), None);
        question.claims(STATION);
        assert_eq!(question.by(), Some(STATION));
        assert_eq!(question.claimants(), [PROXY, STATION]);
    }

    #[test]
    fn many_stations_cost_no_more_than_eight() {
        let mut question = Question::of_claim(STATION, NOBODYS, FROM, at(0));
        for n in 0..100 {
            question.claims(Mac([2, 0, 0, 0, 1, n]));
            question.on_arp(&answer(Mac([2, 0, 0, 0, 2, n]), NOBODYS));
        }
        assert_eq!(
            (question.claimants.len(), question.proxies.len()),
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
                let octets = control(subnet.parse().unwrap(), server.into(), &mut rng).octets();
                assert!((1..255).contains(&octets[3]), "{octets:?} is no host's");
                if subnet != "128.0.0.1/1" {
                    assert_eq!(octets[..3], net, "{subnet}, server {server:?}");
                }
            }
        }
        let mut hosts = (0..50).map(|_| {
            control(
                "10.7.0.5/24".parse().unwrap(),
                Ipv4Addr::LOCALHOST,
                &mut rng,
            )
        });
        let first = hosts.next();
        // Nobody can foresee it.
        assert!(hosts.any(|host| Some(host) != first));
    }
}
