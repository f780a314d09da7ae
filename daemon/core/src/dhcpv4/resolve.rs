//! Finding the Ethernet address of a server, or of the router to it, by ARP of our own.
//!
//! The kernel's neighbour table belongs to the container; a remembered address goes stale without anyone noticing.

use std::net::Ipv4Addr;

use crate::asking::{Action, Asking};
use crate::time::Instant;
use crate::wire::Mac;
use crate::wire::frame::Arp;

/// One next hop being looked for.
#[derive(Clone, Debug)]
pub(crate) struct Resolver {
    asking: Asking,
    target: Ipv4Addr,
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
        Self { asking: Asking::new(own, now), target }
    }

    /// Goes on as the clock says.
    pub(crate) fn on_clock(&mut self, now: Instant) -> Search {
        match self.asking.on_clock(now) {
            Action::Ask => Search::Ask(self.asking.question(self.target)),
            Action::Wait => Search::Wait,
            Action::Over => Search::Unresolved,
        }
    }

    /// Returns the Ethernet address, if this is the answer.
    pub(crate) fn on_arp(&self, arp: &Arp) -> Option<Mac> {
        self.asking.answer(arp, self.target)
    }

    /// Returns when the clock next matters.
    pub(crate) fn deadline(&self) -> Instant {
        self.asking.deadline()
    }
}
