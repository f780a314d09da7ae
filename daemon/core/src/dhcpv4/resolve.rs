//! Finding the Ethernet address of a server, or of the router before it, by ARP of our own.
//!
//! The kernel's neighbour table belongs to the container; a remembered address goes stale without anyone noticing.

use std::net::Ipv4Addr;
use std::time::Duration;

use crate::time::Instant;
use crate::wire::Mac;
use crate::wire::frame::Arp;

/// ARP requests before a next hop counts as unresolved.
const TRIES: u32 = 3;

/// From one ARP request to the next. A DEL waits at most for all of them.
const INTERVAL: Duration = Duration::from_millis(200);

/// One next hop being looked for.
#[derive(Clone, Debug)]
pub(crate) struct Resolver {
    own: (Mac, Ipv4Addr),
    target: Ipv4Addr,
    sent: u32,
    /// When the next request, or the end, is due.
    pub(crate) next: Instant,
}

/// How far the search is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Search {
    /// Send this and wait.
    Ask(Vec<u8>),
    /// Wait.
    Wait,
    /// Nobody answered.
    Unresolved,
}

impl Resolver {
    /// Begins to look for `target` from the Ethernet and IP address `own`; the first request is due at `now`.
    pub(crate) fn new(own: (Mac, Ipv4Addr), target: Ipv4Addr, now: Instant) -> Self {
        Self { own, target, sent: 0, next: now }
    }

    /// Goes on as the clock says.
    pub(crate) fn on_clock(&mut self, now: Instant) -> Search {
        if now < self.next {
            return Search::Wait;
        }
        if self.sent == TRIES {
            return Search::Unresolved;
        }
        self.sent += 1;
        self.next = now + INTERVAL;
        Search::Ask(Arp::request(self.own.0, self.own.1, self.target).encode())
    }

    /// Returns the Ethernet address, if this is the answer.
    pub(crate) fn on_arp(&self, arp: &Arp) -> Option<Mac> {
        let answers = arp.sender == self.target && arp.sender_mac != self.own.0;
        let usable = arp.sender_mac.0[0] & 1 == 0 && arp.sender_mac != Mac::default();
        (answers && usable).then_some(arp.sender_mac)
    }
}
