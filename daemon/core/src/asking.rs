//! Asking a LAN by ARP who has an address (RFC 826): three times, 0.2 s apart.
//!
//! The asker decides what an answer means: a client looks for its server, or for the router to it; a lease that is being given
//! back looks for another holder. The kernel is not asked: its neighbour table belongs to the container, and an Ethernet address
//! that is remembered goes stale without anyone noticing. RFC 5227's probes and announcements have their own timing (`conflict`).

use std::net::Ipv4Addr;
use std::time::Duration;

use crate::time::Instant;
use crate::wire::Mac;
use crate::wire::frame::Arp;

/// How often to ask.
const TRIES: u32 = 3;

/// The time between questions, and from the last one to the end. A DEL waits for all of them at most.
const INTERVAL: Duration = Duration::from_millis(200);

/// Questions under way about one address.
#[derive(Clone, Debug)]
pub(crate) struct Asking {
    from: (Mac, Ipv4Addr),
    target: Ipv4Addr,
    asked: u32,
    next: Instant,
}

/// What they want next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AskingAction {
    /// Send this frame, then wait.
    Ask(Vec<u8>),
    /// Wait.
    Wait,
    /// Nothing: it waits for no more answers.
    Over,
}

impl Asking {
    /// Begins to ask who has `target`, from an Ethernet and an IP address, at once.
    pub(crate) fn new(from: (Mac, Ipv4Addr), target: Ipv4Addr, now: Instant) -> Self {
        Self {
            from,
            target,
            asked: 0,
            next: now,
        }
    }

    /// Does what is due by the clock.
    pub(crate) fn on_clock(&mut self, now: Instant) -> AskingAction {
        match () {
            () if now < self.next => AskingAction::Wait,
            () if self.asked == TRIES => AskingAction::Over,
            () => {
                (self.asked, self.next) = (self.asked + 1, now + INTERVAL);
                AskingAction::Ask(self.question(self.target))
            }
        }
    }

    /// Returns the Ethernet address of the station that has the address, if this is the answer.
    pub(crate) fn on_arp(&self, arp: &Arp) -> Option<Mac> {
        self.answer(arp, self.target)
    }

    /// Returns the frame that asks who has an address, this one or another.
    pub(crate) fn question(&self, target: Ipv4Addr) -> Vec<u8> {
        Arp::request(self.from.0, self.from.1, target).encode()
    }

    /// Returns the station that says it has this address, if it is not the asker itself.
    pub(crate) fn answer(&self, arp: &Arp, target: Ipv4Addr) -> Option<Mac> {
        let by = arp.sender_mac;
        let is_station = by.0[0] & 1 == 0 && by != Mac::default() && by != self.from.0;
        (arp.sender == target && is_station).then_some(by)
    }

    pub(crate) fn deadline(&self) -> Instant {
        self.next
    }
}
