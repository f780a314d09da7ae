//! Address conflict detection (RFC 5227): does another station use the leased address?
//!
//! A [`Window`] watches one address for a time: three probes, a wait, and two announcements once the address is on the
//! interface. It knows no sockets and no lease; its caller decides what follows from a conflict.
//!
//! | ARP from another station | address not on the interface yet | address on the interface |
//! |---|---|---|
//! | a reply to us with the address as sender | conflict (§2.1.1) | during the probes for a new lease: conflict (§2.1.1), it answers them; else as the next row |
//! | any other ARP with the address as sender | conflict (§2.1.1) | defended; the second in ten seconds is a conflict (§2.4 b) |
//! | a probe for the address | conflict if the window is strict (§2.1.1) | nothing: the kernel answers it |
//!
//! With each extension of a lease, its address is asked about once, where it is on the interface: somebody may have taken it
//! meanwhile. Whoever answers is told off by an announcement, and asked once more within ten seconds; a second answer is a
//! conflict (§2.4 b).
//!
//! Before a conflict has any effect, the claimant is asked for an address that nobody can have (`question`).
//!
//! A lease that was in use before gives way only as in §2.4, even if its address is probed for again because carrier was
//! away: a newcomer that got the same address from a server that lost its leases must not drive it out.
//!
//! Others' probes count only in a strict window: switches that track devices send such probes for every address they see, from
//! 0.0.0.0, as RFC 5227 requires.
//!
//! A station with one of our own Ethernet addresses does not count as another: nor does any other interface of the container,
//! leased or not (RFC 5227 §2.4), because the kernel answers ARP on each for the addresses of all. Neither does the interface that held the address
//! before ([`departed`]): it answers ARP until it is gone. On ipvlan all containers of a parent share one Ethernet address, so a
//! conflict between two of them cannot be seen here; a conflict with a host beyond the parent can, over the parent's link. On
//! macvlan a conflict with the parent's own address cannot be seen: the two do not hear each other.

pub mod departed;

use std::net::Ipv4Addr;
use std::time::Duration;

use fastrand::Rng;

use crate::time::Instant;
use crate::wire::Mac;
use crate::wire::frame::{Arp, ArpOp};

/// The longest wait before the first probe of a strict window (RFC 5227 §1.1).
pub const PROBE_WAIT: Duration = Duration::from_secs(1);

/// Probes of a window (RFC 5227 §1.1).
pub const PROBE_NUM: u32 = 3;

/// The shortest time from one probe to the next (RFC 5227 §1.1).
pub const PROBE_MIN: Duration = Duration::from_secs(1);

/// The longest time from one probe to the next (RFC 5227 §1.1).
pub const PROBE_MAX: Duration = Duration::from_secs(2);

/// The time from the last probe until the address counts as free (RFC 5227 §1.1).
pub const ANNOUNCE_WAIT: Duration = Duration::from_secs(2);

/// The longest time from the start of a strict window until the address counts as free.
pub const PROBING: Duration = Duration::from_secs(
    PROBE_WAIT.as_secs() + (PROBE_NUM as u64 - 1) * PROBE_MAX.as_secs() + ANNOUNCE_WAIT.as_secs(),
);

/// Announcements of an address (RFC 5227 §1.1).
pub const ANNOUNCE_NUM: u32 = 2;

/// The time from one announcement to the next (RFC 5227 §1.1). The window stays open as long after the last one.
pub const ANNOUNCE_INTERVAL: Duration = Duration::from_secs(2);

/// The shortest time from one defence of an address to the next (RFC 5227 §1.1).
pub const DEFEND_INTERVAL: Duration = Duration::from_secs(10);

/// How long a strict window waits, after its probes, for the address to appear on the interface.
pub const APPEARANCE: Duration = Duration::from_secs(4);

/// One address under watch.
#[derive(Clone, Debug)]
pub struct Window {
    address: Ipv4Addr,
    /// The Ethernet address of our frames, then all others that do not count as another station.
    own: Box<[Mac]>,
    strict: bool,
    /// Whether the lease was in use before.
    established: bool,
    /// Whether it asks but once, and once more if somebody answers.
    once: bool,
    probes: u32,
    /// When the next probe is due or, after the last, the probing ends; `None` once it has ended.
    probe_at: Option<Instant>,
    /// Whether the address has been on the interface since the window began, or before: from then on it is defended (§2.4).
    in_use: bool,
    announcements: u32,
    /// When the next announcement is due.
    announce_at: Option<Instant>,
    defended: Option<Instant>,
    /// Until when the window stays open after everything has been sent.
    until: Instant,
}

/// What a window wants next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WindowAction {
    /// Send this frame, then ask again. All stations of the LAN should hear it.
    Send(Vec<u8>),
    /// Send this frame, then ask again. It repeats an earlier one, in case the wire lost that.
    Repeat(Vec<u8>),
    /// The probes are over, and nobody else uses the address. Said once; then ask again.
    Free,
    /// Wait until the deadline, or for an ARP packet.
    Wait,
    /// The window is over.
    Over,
}

/// What an ARP packet means for the address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Heard {
    /// Nothing.
    Nothing,
    /// Another station claims the address: send this frame, which defends it.
    Defend(Vec<u8>),
    /// Another station uses the address: it must not be used any more.
    Conflict {
        /// Its Ethernet address.
        by: Mac,
    },
}

impl Window {
    /// Returns a window that begins with a probe at once. `own` begins with the Ethernet address that our frames bear; the
    /// others in it do not count as another station.
    ///
    /// RFC 5227 wants a random wait before the first probe, so that hosts do not all probe at once when a building's
    /// power returns. Here the first probe leaves with a REQUEST, which needs a permit.
    pub fn optimistic(address: Ipv4Addr, own: Box<[Mac]>, now: Instant) -> Self {
        Self {
            address,
            own,
            strict: false,
            established: false,
            once: false,
            probes: 0,
            probe_at: Some(now),
            in_use: false,
            announcements: 0,
            announce_at: None,
            defended: None,
            until: now,
        }
    }

    /// Returns a window that follows the RFC to the letter: the address is free four to seven seconds from `now`, and others'
    /// probes count.
    pub fn strict(address: Ipv4Addr, own: Box<[Mac]>, now: Instant, rng: &mut Rng) -> Self {
        let first = now + between(Duration::ZERO, PROBE_WAIT, rng);
        Self {
            strict: true,
            probe_at: Some(first),
            ..Self::optimistic(address, own, now)
        }
    }

    /// Returns a window for an address that has been in use, and will be again: it is probed for, announced and defended.
    pub fn established(address: Ipv4Addr, own: Box<[Mac]>, now: Instant) -> Self {
        Self {
            established: true,
            in_use: true,
            announce_at: Some(now),
            ..Self::optimistic(address, own, now)
        }
    }

    /// Returns a window for an address that has been in use all along: it is asked about once. Whoever answers is told off by an
    /// announcement, and asked once more.
    pub fn extended(address: Ipv4Addr, own: Box<[Mac]>, now: Instant) -> Self {
        Self {
            once: true,
            probes: PROBE_NUM - 1,
            announce_at: None,
            ..Self::established(address, own, now)
        }
    }

    /// Returns a window for an address that is on the interface from `now` on: it is announced, and not probed for.
    pub fn announcing(address: Ipv4Addr, own: Box<[Mac]>, now: Instant) -> Self {
        Self {
            probe_at: None,
            ..Self::established(address, own, now)
        }
    }

    /// Returns the address.
    pub fn address(&self) -> Ipv4Addr {
        self.address
    }

    /// Returns the Ethernet address that frames bear.
    pub fn from(&self) -> Mac {
        self.own[0]
    }

    /// Returns whether the address waits for the end of the probes.
    pub fn is_pending(&self) -> bool {
        self.strict && self.probe_at.is_some()
    }

    /// Returns whether the address has been on the interface.
    pub fn is_in_use(&self) -> bool {
        self.in_use
    }

    /// Returns whether an ARP packet is from another station.
    pub fn is_of_another(&self, arp: &Arp) -> bool {
        arp.sender_mac.is_station() && !self.own.contains(&arp.sender_mac)
    }

    /// Does what is due by the clock, one thing at a time.
    pub fn on_clock(&mut self, now: Instant, rng: &mut Rng) -> WindowAction {
        if self.probe_at.is_some_and(|at| now >= at) {
            return self.probe(now, rng);
        }
        if self.announce_at.is_some_and(|at| now >= at) {
            return self.announce(now);
        }
        let done = self.probe_at.is_none() && self.announce_at.is_none() && now >= self.until;
        if done {
            WindowAction::Over
        } else {
            WindowAction::Wait
        }
    }

    /// Returns when the clock next matters.
    pub fn deadline(&self) -> Instant {
        [self.probe_at, self.announce_at]
            .into_iter()
            .flatten()
            .min()
            .unwrap_or(self.until)
    }

    /// Records that the address is on the interface now: it is announced, if it was not before.
    pub fn appeared(&mut self, now: Instant) {
        if !std::mem::replace(&mut self.in_use, true) {
            self.announce_at = Some(now);
        }
    }

    /// Records that the address is no longer on the interface: it is not announced.
    pub fn disappeared(&mut self) {
        self.announce_at = None;
    }

    /// Has frames bear another Ethernet address from here on. `own` is as in [`Window::optimistic`].
    pub fn bear(&mut self, own: Box<[Mac]>) {
        self.own = own;
    }

    /// Announces an address that is on the interface again.
    pub fn announce_again(&mut self, now: Instant) {
        if self.in_use {
            (self.announcements, self.announce_at) = (0, Some(now));
        }
    }

    /// Has these Ethernet addresses no longer count as another station's.
    pub fn disregard(&mut self, own: Vec<Mac>) {
        self.own = self.own.iter().copied().chain(own).collect();
    }

    /// Returns whether an ARP packet claims the address for another station.
    pub fn is_claim(&self, arp: &Arp) -> bool {
        self.is_of_another(arp) && (arp.sender == self.address || self.is_rival_probe(arp))
    }

    /// Returns whether an ARP packet probes for the address while nobody has it yet.
    fn is_rival_probe(&self, arp: &Arp) -> bool {
        let probes =
            arp.op == ArpOp::Request && arp.sender.is_unspecified() && arp.target == self.address;
        probes && self.strict && !self.in_use
    }

    /// Handles an ARP packet.
    pub fn on_arp(&mut self, now: Instant, arp: &Arp) -> Heard {
        let by = arp.sender_mac;
        if !self.is_claim(arp) {
            return Heard::Nothing;
        }
        if self.is_rival_probe(arp) {
            return Heard::Conflict { by };
        }
        let is_probing = self.probe_at.is_some() && !self.established;
        let answers_probe =
            is_probing && arp.op == ArpOp::Reply && self.own.contains(&arp.target_mac);
        if answers_probe || !self.in_use {
            Heard::Conflict { by }
        } else {
            self.defend(now, by)
        }
    }

    fn probe(&mut self, now: Instant, rng: &mut Rng) -> WindowAction {
        if self.probes == PROBE_NUM {
            self.probe_at = None;
            if self.strict {
                self.until = self.until.max(now + APPEARANCE);
            }
            return WindowAction::Free;
        }
        self.probes += 1;
        let wait = if self.probes == PROBE_NUM {
            ANNOUNCE_WAIT
        } else {
            between(PROBE_MIN, PROBE_MAX, rng)
        };
        self.probe_at = Some(now + wait);
        let probe = self.probe_frame();
        if self.probes == 1 || self.once {
            WindowAction::Send(probe)
        } else {
            WindowAction::Repeat(probe)
        }
    }

    /// Returns the frame that asks whether anybody uses the address.
    pub fn probe_frame(&self) -> Vec<u8> {
        Arp::request(self.own[0], Ipv4Addr::UNSPECIFIED, self.address).encode()
    }

    fn announce(&mut self, now: Instant) -> WindowAction {
        self.announcements += 1;
        self.announce_at = (self.announcements < ANNOUNCE_NUM).then(|| now + ANNOUNCE_INTERVAL);
        self.until = self.until.max(now + ANNOUNCE_INTERVAL);
        let announcement = self.announcement();
        if self.announcements == 1 {
            WindowAction::Send(announcement)
        } else {
            WindowAction::Repeat(announcement)
        }
    }

    /// Defends the address. The first defence keeps the window open, to hear whether it helped; later ones do not, or a
    /// neighbour could keep it open for ever.
    fn defend(&mut self, now: Instant, by: Mac) -> Heard {
        match self.defended.replace(now) {
            Some(last) if now < last + DEFEND_INTERVAL => return Heard::Conflict { by },
            Some(_) => {}
            None => self.until = self.until.max(now + DEFEND_INTERVAL),
        }
        if self.once {
            // Whether the claim holds is asked well before the next defence may leave.
            (self.probes, self.probe_at) = (PROBE_NUM - 1, Some(now + DEFEND_INTERVAL / 2));
        }
        Heard::Defend(self.announcement())
    }

    fn announcement(&self) -> Vec<u8> {
        Arp::request(self.own[0], self.address, self.address).encode()
    }
}

fn between(least: Duration, most: Duration, rng: &mut Rng) -> Duration {
    Duration::from_micros(rng.u64(least.as_micros() as u64..=most.as_micros() as u64))
}

#[cfg(test)]
mod tests;
