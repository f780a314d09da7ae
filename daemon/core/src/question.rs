//! Asking a LAN by ARP who has an address (RFC 826): three times.
//!
//! The asker decides what an answer means: a client looks for its server, or for the router to it; a lease that is being given
//! back looks for another holder; conflict detection examines a claim. The kernel is not asked: its neighbour table belongs to the
//! container, and an Ethernet address that is remembered goes stale without anyone noticing. RFC 5227's probes and announcements
//! have their own timing (`conflict`).
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

/// The time from one question to the next, and from the last one to the end. A DEL waits for all of them at most.
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
    interval: Duration,
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
            interval: INTERVAL,
            asked: 0,
            next: now,
            until: now + INTERVAL * TRIES,
            claimants: Vec::new(),
            proxies: Vec::new(),
        }
    }

    /// Asks for the control too.
    pub(crate) fn with_control(self, control: Ipv4Addr) -> Self {
        Self {
            control: Some(control),
            ..self
        }
    }

    /// Asks for the control only, because `by` claims an address.
    pub(crate) fn of_claim(by: Mac, control: Ipv4Addr, from: Mac, now: Instant) -> Self {
        Self {
            address: None,
            claimants: vec![by],
            interval: Duration::from_millis(300),
            until: now + CONTROL,
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
                (self.asked, self.next) = (self.asked + 1, now + self.interval);
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

/// TEMP
pub(crate) fn fixed(beside: Ipv4Net) -> Ipv4Addr {
    let nets = [[203, 0, 113, 253], [198, 51, 100, 253], [192, 0, 2, 253]].map(Ipv4Addr::from);
    nets.into_iter()
        .find(|address| !beside.contains(address))
        .unwrap_or(nets[0])
}
