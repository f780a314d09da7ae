//! Asking a LAN by ARP who has an address (RFC 826): three times, 0.2 s apart.
//!
//! What an answer means is for those who ask: a client looks for its server, a lease on its way back for another holder. The probes
//! and announcements of RFC 5227 have times of their own (`conflict`).

use std::net::Ipv4Addr;
use std::time::Duration;

use crate::time::Instant;
use crate::wire::Mac;
use crate::wire::frame::Arp;

/// How often to ask.
const TRIES: u32 = 3;

/// From one question to the next, and from the last to the end. A DEL waits at most for all of them.
const INTERVAL: Duration = Duration::from_millis(200);

/// Questions under way.
#[derive(Clone, Debug)]
pub(crate) struct Asking {
    from: (Mac, Ipv4Addr),
    asked: u32,
    next: Instant,
}

/// What they want next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// Ask, then wait.
    Ask,
    /// Wait.
    Wait,
    /// Nothing: no more answers are waited for.
    Over,
}

impl Asking {
    /// Begins to ask from an Ethernet and an IP address, at once.
    pub(crate) fn new(from: (Mac, Ipv4Addr), now: Instant) -> Self {
        Self { from, asked: 0, next: now }
    }

    /// Goes on as the clock says.
    pub(crate) fn on_clock(&mut self, now: Instant) -> Turn {
        match () {
            () if now < self.next => Turn::Wait,
            () if self.asked == TRIES => Turn::Over,
            () => {
                (self.asked, self.next) = (self.asked + 1, now + INTERVAL);
                Turn::Ask
            }
        }
    }

    /// Returns the question who has an address.
    pub(crate) fn question(&self, target: Ipv4Addr) -> Vec<u8> {
        Arp::request(self.from.0, self.from.1, target).encode()
    }

    /// Returns the station that says it has this address, if one does other than who asks.
    pub(crate) fn answer(&self, arp: &Arp, target: Ipv4Addr) -> Option<Mac> {
        let by = arp.sender_mac;
        let is_station = by.0[0] & 1 == 0 && by != Mac::default() && by != self.from.0;
        (arp.sender == target && is_station).then_some(by)
    }

    /// Returns when the clock next matters.
    pub(crate) fn deadline(&self) -> Instant {
        self.next
    }
}
