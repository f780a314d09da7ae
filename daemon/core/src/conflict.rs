//! Address conflict detection (RFC 5227): does somebody else use the leased address?
//!
//! A [`Window`] is the time for which one address is watched: three probes, a wait, and two announcements from when the
//! address is on the interface. It knows no sockets and no lease; what a conflict leads to is its caller's.
//!
//! | ARP of somebody else | address not on the interface yet | address on the interface |
//! |---|---|---|
//! | a reply to us with the address as sender | conflict (§2.1.1) | while a new lease is probed for: conflict (§2.1.1), it answers our probes; else as the next |
//! | any other with the address as sender | conflict (§2.1.1) | defended; the second in ten seconds is a conflict (§2.4 b) |
//! | a probe for the address | conflict where the window is strict (§2.1.1) | nothing: the kernel answers it |
//!
//! Before anything comes of a conflict, who claims the address is asked for one that nobody can have ([`control`]).
//!
//! A lease that was in use before gives way only as §2.4 has it, also where its address is probed for again because carrier was
//! away: a newcomer that got the same address, from a server that lost its leases, is not to drive it out.
//!
//! Probes of others count in a strict window only: switches that track devices send such probes for every address that
//! they see, from 0.0.0.0 as RFC 5227 itself asks them to.
//!
//! Whoever has one of our own Ethernet addresses is not somebody else; nor is the interface that held the address before
//! under the same identity: that of a sandbox whose end the kernel is still at work on answers ARP until it is gone. On
//! ipvlan all containers of a parent share one, so a conflict between two of them cannot be seen here; one with a host
//! beyond the parent can, over the parent's link.
//! On macvlan a conflict with an address of the parent itself cannot be seen: the two do not hear each other.

pub mod control;
pub mod lans;
pub mod stations;

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

/// From the last probe to when the address counts as free (RFC 5227 §1.1).
pub const ANNOUNCE_WAIT: Duration = Duration::from_secs(2);

/// The longest time from the beginning of a strict window to when the address counts as free.
pub const PROBING: Duration =
    Duration::from_secs(PROBE_WAIT.as_secs() + (PROBE_NUM as u64 - 1) * PROBE_MAX.as_secs() + ANNOUNCE_WAIT.as_secs());

/// Announcements of an address (RFC 5227 §1.1).
pub const ANNOUNCE_NUM: u32 = 2;

/// From one announcement to the next (RFC 5227 §1.1). The window stays open for as long after the last.
pub const ANNOUNCE_INTERVAL: Duration = Duration::from_secs(2);

/// An address is defended once in this time (RFC 5227 §1.1).
pub const DEFEND_INTERVAL: Duration = Duration::from_secs(10);

/// How long a strict window waits, after its probes, for the address to appear on the interface.
pub const APPEARANCE: Duration = Duration::from_secs(4);

/// One address under watch.
#[derive(Clone, Debug)]
pub struct Window {
    address: Ipv4Addr,
    /// The Ethernet address that our frames bear, then all others that are not somebody else's.
    own: Box<[Mac]>,
    strict: bool,
    /// The lease was in use before.
    established: bool,
    probes: u32,
    /// When the next probe is due or, after the last, the probing is over; `None` when it is.
    probe_at: Option<Instant>,
    present: bool,
    announcements: u32,
    /// When the next announcement is due.
    announce_at: Option<Instant>,
    defended: Option<Instant>,
    /// Until when the window stays open once nothing is left to be sent.
    until: Instant,
}

/// What a window wants next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Turn {
    /// Send this frame, then ask again.
    Send(Vec<u8>),
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
    /// Somebody else claims the address: send this frame, which defends it.
    Defend(Vec<u8>),
    /// Somebody else uses the address: it is not to be used any more.
    Conflict {
        /// Who, by Ethernet address.
        by: Mac,
    },
}

impl Window {
    /// Returns a window that begins with a probe at once. `own` begins with the Ethernet address that our frames bear;
    /// the others that it names are not somebody else's.
    ///
    /// RFC 5227 wants a random wait before the first one, so that the hosts of a building that gets its power back do
    /// not probe as one. Here the first probe goes with a REQUEST, and those take permits.
    pub fn optimistic(address: Ipv4Addr, own: Box<[Mac]>, now: Instant) -> Self {
        Self {
            address,
            own,
            strict: false,
            established: false,
            probes: 0,
            probe_at: Some(now),
            present: false,
            announcements: 0,
            announce_at: None,
            defended: None,
            until: now,
        }
    }

    /// Returns a window by the letter of the RFC: free four to seven seconds from `now`, and others' probes count.
    pub fn strict(address: Ipv4Addr, own: Box<[Mac]>, now: Instant, rng: &mut Rng) -> Self {
        let first = now + between(Duration::ZERO, PROBE_WAIT, rng);
        Self { strict: true, probe_at: Some(first), ..Self::optimistic(address, own, now) }
    }

    /// Returns a window of an address that has been in use, and is to be once more: it is probed for, announced and defended.
    pub fn established(address: Ipv4Addr, own: Box<[Mac]>, now: Instant) -> Self {
        Self { established: true, present: true, announce_at: Some(now), ..Self::optimistic(address, own, now) }
    }

    /// Returns a window of an address that is on the interface from `now` on: it is announced, and not probed for.
    pub fn announcing(address: Ipv4Addr, own: Box<[Mac]>, now: Instant) -> Self {
        Self { probe_at: None, ..Self::established(address, own, now) }
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
    pub fn is_strict(&self) -> bool {
        self.strict
    }

    /// Returns whether an ARP packet is of somebody else.
    pub fn is_of_another(&self, arp: &Arp) -> bool {
        let by = arp.sender_mac;
        by.0[0] & 1 == 0 && by != Mac::default() && !self.own.contains(&by)
    }

    /// Goes on as the clock says, one thing at a time.
    pub fn on_clock(&mut self, now: Instant, rng: &mut Rng) -> Turn {
        if self.probe_at.is_some_and(|at| now >= at) {
            return self.probe(now, rng);
        }
        if self.announce_at.is_some_and(|at| now >= at) {
            return self.announce(now);
        }
        let done = self.probe_at.is_none() && self.announce_at.is_none() && now >= self.until;
        if done { Turn::Over } else { Turn::Wait }
    }

    /// Returns when the clock next matters.
    pub fn deadline(&self) -> Instant {
        [self.probe_at, self.announce_at].into_iter().flatten().min().unwrap_or(self.until)
    }

    /// Records that the address is on the interface now: it is announced, the first time.
    pub fn appeared(&mut self, now: Instant) {
        if !std::mem::replace(&mut self.present, true) {
            self.announce_at = Some(now);
        }
    }

    /// Records that the address is not on the interface any more: it is not announced.
    pub fn disappeared(&mut self) {
        self.announce_at = None;
    }

    /// Lets frames bear another Ethernet address from here on. `own` as at the beginning.
    pub fn bear(&mut self, own: Box<[Mac]>) {
        self.own = own;
    }

    /// Announces an address that is on the interface once more.
    pub fn announce_again(&mut self, now: Instant) {
        if self.present {
            (self.announcements, self.announce_at) = (0, Some(now));
        }
    }

    /// Takes an ARP packet in.
    pub fn on_arp(&mut self, now: Instant, arp: &Arp) -> Heard {
        let by = arp.sender_mac;
        if !self.is_of_another(arp) {
            return Heard::Nothing;
        }
        let probes = arp.op == ArpOp::Request && arp.sender.is_unspecified() && arp.target == self.address;
        if probes && self.strict && !self.present {
            return Heard::Conflict { by };
        }
        if arp.sender != self.address {
            return Heard::Nothing;
        }
        let is_probing = self.probe_at.is_some() && !self.established;
        let answers_probe = is_probing && arp.op == ArpOp::Reply && self.own.contains(&arp.target_mac);
        if answers_probe || !self.present { Heard::Conflict { by } } else { self.defend(now, by) }
    }

    fn probe(&mut self, now: Instant, rng: &mut Rng) -> Turn {
        if self.probes == PROBE_NUM {
            self.probe_at = None;
            if self.strict {
                self.until = self.until.max(now + APPEARANCE);
            }
            return Turn::Free;
        }
        self.probes += 1;
        let wait = if self.probes == PROBE_NUM { ANNOUNCE_WAIT } else { between(PROBE_MIN, PROBE_MAX, rng) };
        self.probe_at = Some(now + wait);
        Turn::Send(Arp::request(self.own[0], Ipv4Addr::UNSPECIFIED, self.address).encode())
    }

    fn announce(&mut self, now: Instant) -> Turn {
        self.announcements += 1;
        self.announce_at = (self.announcements < ANNOUNCE_NUM).then(|| now + ANNOUNCE_INTERVAL);
        self.until = self.until.max(now + ANNOUNCE_INTERVAL);
        Turn::Send(self.announcement())
    }

    /// The first defence keeps the window open, to hear whether it helped; further ones do not, or a neighbour could
    /// keep it open for ever.
    fn defend(&mut self, now: Instant, by: Mac) -> Heard {
        match self.defended.replace(now) {
            Some(last) if now < last + DEFEND_INTERVAL => return Heard::Conflict { by },
            Some(_) => {}
            None => self.until = self.until.max(now + DEFEND_INTERVAL),
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
mod tests {
    use super::*;
    use crate::wire::frame::{self, Frame, FrameMeta};

    const ADDRESS: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 50);
    const OTHER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 51);
    const LINK: Mac = Mac([2, 0, 0, 0, 0, 7]);
    const CHADDR: Mac = Mac([2, 0, 0, 0, 0, 8]);
    const NEIGHBOUR: Mac = Mac([2, 0, 0, 0, 0, 9]);
    const STEP: Duration = Duration::from_micros(1);

    fn at(seconds: f64) -> Instant {
        Instant::from_boot(Duration::from_secs_f64(seconds))
    }

    fn arp(bytes: &[u8]) -> Arp {
        match frame::decode(bytes, FrameMeta::default()) {
            Ok(Frame::Arp(arp)) => arp,
            other => panic!("no ARP: {other:?}"),
        }
    }

    fn reply(by: Mac, address: Ipv4Addr, to: Mac) -> Arp {
        Arp {
            op: ArpOp::Reply,
            target_mac: to,
            destination_mac: to,
            ..Arp::request(by, address, Ipv4Addr::UNSPECIFIED)
        }
    }

    /// A window and its random source; what is sent is read as it would be on the wire.
    struct Stage {
        window: Window,
        rng: Rng,
    }

    impl Stage {
        fn optimistic(now: f64) -> Self {
            Self { window: Window::optimistic(ADDRESS, Box::new([LINK, CHADDR]), at(now)), rng: Rng::with_seed(3) }
        }

        /// An optimistic window whose address appeared a moment before it is known to be free, and when that is.
        fn before_free() -> (Self, Instant) {
            let mut stage = Self::optimistic(0.0);
            stage.now(at(0.0), "probe");
            (0..2).for_each(|_| _ = stage.next("probe"));
            let free = stage.window.deadline();
            stage.window.appeared(free - STEP);
            stage.now(free - STEP, "announcement");
            (stage, free)
        }

        fn strict(seed: u64) -> Self {
            let mut rng = Rng::with_seed(seed);
            Self { window: Window::strict(ADDRESS, Box::new([LINK, CHADDR]), at(0.0), &mut rng), rng }
        }

        fn turn(&mut self, now: Instant) -> Turn {
            self.window.on_clock(now, &mut self.rng)
        }

        /// Moves to the next deadline: nothing just before it, `probe`, `announcement`, `free` or `over` at it.
        fn next(&mut self, what: &str) -> Instant {
            let when = self.window.deadline();
            assert_eq!(self.turn(when - STEP), Turn::Wait, "{what} not early");
            self.now(when, what);
            when
        }

        fn now(&mut self, when: Instant, what: &str) {
            let turn = self.turn(when);
            let name = match &turn {
                Turn::Free => "free",
                Turn::Wait => "wait",
                Turn::Over => "over",
                Turn::Send(frame) => {
                    let arp = arp(frame);
                    assert_eq!((arp.op, arp.sender_mac, arp.target), (ArpOp::Request, LINK, ADDRESS));
                    assert_eq!((arp.source_mac, arp.destination_mac), (LINK, Mac::BROADCAST));
                    assert!([Ipv4Addr::UNSPECIFIED, ADDRESS].contains(&arp.sender));
                    if arp.sender.is_unspecified() { "probe" } else { "announcement" }
                }
            };
            assert_eq!(name, what, "at {when:?}");
        }
    }

    #[test]
    fn an_optimistic_window_probes_at_once_and_is_over_with_its_probes() {
        let mut stage = Stage::optimistic(10.0);
        stage.now(at(10.0), "probe");
        let second = stage.next("probe");
        assert!((at(11.0)..=at(12.0)).contains(&second), "{second:?}");
        let third = stage.next("probe");
        assert!((second + PROBE_MIN..=second + PROBE_MAX).contains(&third), "{third:?}");
        assert_eq!(stage.next("free"), third + ANNOUNCE_WAIT);
        stage.now(third + ANNOUNCE_WAIT, "over");
    }

    #[test]
    fn a_strict_window_is_free_after_four_to_seven_seconds_and_waits_for_the_address() {
        for seed in 0..200 {
            let mut stage = Stage::strict(seed);
            let first = stage.next("probe");
            assert!(first <= at(1.0), "{first:?}");
            stage.next("probe");
            let last = stage.next("probe");
            let free = stage.next("free");
            assert_eq!(free, last + ANNOUNCE_WAIT);
            assert!((at(4.0)..=at(0.0) + PROBING).contains(&free), "{free:?}");
            assert_eq!(stage.next("over"), free + APPEARANCE);
        }
    }

    #[test]
    fn an_address_is_announced_twice_from_when_it_appears_and_only_once_for_all_its_appearances() {
        let mut stage = Stage::strict(1);
        (0..3).for_each(|_| _ = stage.next("probe"));
        let free = stage.next("free");
        stage.window.appeared(free + STEP);
        stage.now(free, "wait");
        stage.now(free + STEP, "announcement");
        stage.window.appeared(free + STEP * 2);
        assert_eq!(stage.next("announcement"), free + STEP + ANNOUNCE_INTERVAL);
        stage.window.appeared(free + ANNOUNCE_INTERVAL * 2);
        assert_eq!(stage.next("over"), free + STEP + ANNOUNCE_INTERVAL * 2);
    }

    #[test]
    fn announcements_and_probes_go_on_side_by_side() {
        let mut stage = Stage::optimistic(0.0);
        stage.now(at(0.0), "probe");
        stage.window.appeared(at(0.5));
        stage.now(at(0.5), "announcement");
        stage.next("probe");
        assert_eq!(stage.next("announcement"), at(2.5));
        let last = stage.next("probe");
        assert_eq!(stage.next("free"), last + ANNOUNCE_WAIT);
        stage.next("over");
    }

    #[test]
    fn the_window_stays_open_for_a_while_after_the_last_announcement() {
        let (mut stage, free) = Stage::before_free();
        assert_eq!(stage.next("free"), free);
        let last = stage.next("announcement");
        assert_eq!(last, free - STEP + ANNOUNCE_INTERVAL);
        assert_eq!(stage.next("over"), last + ANNOUNCE_INTERVAL);
    }

    #[test]
    fn what_is_a_conflict_before_the_address_is_used() {
        let claim = Arp::request(NEIGHBOUR, ADDRESS, OTHER);
        let probe = Arp::request(NEIGHBOUR, Ipv4Addr::UNSPECIFIED, ADDRESS);
        for (what, arp, optimistic, strict) in [
            ("a reply to our probe", reply(NEIGHBOUR, ADDRESS, LINK), true, true),
            ("a reply to somebody else", reply(NEIGHBOUR, ADDRESS, Mac([2, 1, 1, 1, 1, 1])), true, true),
            ("a request from the address", claim, true, true),
            ("an announcement", Arp::request(NEIGHBOUR, ADDRESS, ADDRESS), true, true),
            ("a probe", probe, false, true),
            ("a probe for another address", Arp { target: OTHER, ..probe }, false, false),
            ("a request for the address", Arp::request(NEIGHBOUR, OTHER, ADDRESS), false, false),
            ("a reply about another address", reply(NEIGHBOUR, OTHER, LINK), false, false),
            ("our own announcement come back", Arp::request(LINK, ADDRESS, ADDRESS), false, false),
            ("our own probe come back", Arp::request(LINK, Ipv4Addr::UNSPECIFIED, ADDRESS), false, false),
            ("one by our hardware address", Arp::request(CHADDR, ADDRESS, ADDRESS), false, false),
            ("one by a group address", Arp::request(Mac::BROADCAST, ADDRESS, ADDRESS), false, false),
            ("one by nobody", Arp::request(Mac::default(), ADDRESS, ADDRESS), false, false),
        ] {
            for (mut stage, wanted) in [(Stage::optimistic(0.0), optimistic), (Stage::strict(1), strict)] {
                let heard = stage.window.on_arp(at(0.5), &arp);
                let expected = if wanted { Heard::Conflict { by: NEIGHBOUR } } else { Heard::Nothing };
                assert_eq!(heard, expected, "{what}, strict: {}", stage.window.strict);
            }
        }
    }

    #[test]
    fn an_address_in_use_is_defended_once_in_ten_seconds() {
        let claim = Arp::request(NEIGHBOUR, ADDRESS, OTHER);
        for (second, expected) in [(11.0 - 1e-6, "conflict"), (11.0, "defended")] {
            let mut stage = Stage::optimistic(0.0);
            stage.window.appeared(at(0.0));
            let Heard::Defend(frame) = stage.window.on_arp(at(1.0), &claim) else { panic!("not defended") };
            assert_eq!(arp(&frame), Arp::request(LINK, ADDRESS, ADDRESS));
            let heard = match stage.window.on_arp(at(second), &claim) {
                Heard::Conflict { by: NEIGHBOUR } => "conflict",
                Heard::Defend(_) => "defended",
                other => panic!("{other:?}"),
            };
            assert_eq!(heard, expected, "at {second}");
        }
    }

    #[test]
    fn whoever_answers_the_probes_for_a_new_lease_has_the_address_even_while_we_use_it() {
        let mut stage = Stage::optimistic(0.0);
        stage.window.appeared(at(0.0));
        let heard = stage.window.on_arp(at(1.5), &reply(NEIGHBOUR, ADDRESS, LINK));
        assert_eq!(heard, Heard::Conflict { by: NEIGHBOUR });
    }

    /// Returns what comes of a reply to us, then of another one.
    fn replies(stage: &mut Stage, now: Instant, again: Instant) -> [&'static str; 2] {
        [now, again].map(|when| match stage.window.on_arp(when, &reply(NEIGHBOUR, ADDRESS, LINK)) {
            Heard::Nothing => "nothing",
            Heard::Defend(_) => "defended",
            Heard::Conflict { .. } => "conflict",
        })
    }

    #[test]
    fn a_reply_to_us_is_defended_against_once_the_probes_are_over() {
        for (over, expected) in [(false, "conflict"), (true, "defended")] {
            let (mut stage, free) = Stage::before_free();
            if over {
                stage.now(free, "free");
            }
            assert_eq!(replies(&mut stage, free, free + STEP), [expected, "conflict"]);
        }
    }

    #[test]
    fn a_lease_that_was_in_use_before_is_defended_from_the_first_probe_on() {
        let ten = at(0.0) + DEFEND_INTERVAL;
        for (again, expected) in [(ten - STEP, "conflict"), (ten, "defended")] {
            for window in [Window::established, Window::announcing] {
                let window = window(ADDRESS, Box::new([LINK, CHADDR]), at(0.0));
                let mut stage = Stage { window, rng: Rng::with_seed(3) };
                assert_eq!(replies(&mut stage, at(0.0), again), ["defended", expected]);
            }
        }
    }

    #[test]
    fn a_lease_that_was_in_use_before_is_probed_for_and_announced() {
        let window = Window::established(ADDRESS, Box::new([LINK]), at(0.0));
        let mut stage = Stage { window, rng: Rng::with_seed(3) };
        stage.now(at(0.0), "probe");
        stage.now(at(0.0), "announcement");
        stage.window.appeared(at(0.5));
        stage.next("probe");
        assert_eq!(stage.next("announcement"), at(2.0));
        stage.next("probe");
        stage.next("free");
    }

    #[test]
    fn a_probe_for_an_address_in_use_is_left_to_the_kernel() {
        let mut stage = Stage::strict(1);
        stage.window.appeared(at(0.0));
        let probe = Arp::request(NEIGHBOUR, Ipv4Addr::UNSPECIFIED, ADDRESS);
        assert_eq!(stage.window.on_arp(at(0.5), &probe), Heard::Nothing);
    }

    #[test]
    fn only_the_first_defence_keeps_the_window_open() {
        let claim = Arp::request(NEIGHBOUR, ADDRESS, OTHER);
        let mut stage = Stage::optimistic(0.0);
        stage.window.appeared(at(0.0));
        for now in [3.0, 13.0, 23.0] {
            assert!(matches!(stage.window.on_arp(at(now), &claim), Heard::Defend(_)));
        }
        while !matches!(stage.turn(stage.window.deadline()), Turn::Over) {}
        assert_eq!(stage.window.deadline(), at(13.0));
    }
}
