//! Interfaces that are about to disappear: which of them had an address of a LAN a moment ago.
//!
//! A main plugin deletes the link after the DEL, and the kernel takes some time to remove a dead namespace's links; each link
//! answers ARP for its address until it is gone. The next client with that address, under any identity, must not take it for
//! another station.

use std::collections::VecDeque;
use std::net::Ipv4Addr;

use crate::identity::Lan;
use crate::patience::NEXT_STEP;
use crate::time::Instant;
use crate::wire::Mac;

/// How many interfaces are remembered, the latest: more than come and go in the short time that most of them need.
const MOST: usize = 1024;

/// The interfaces whose leases were given up last, oldest first.
#[derive(Debug, Default)]
pub struct Departed(VecDeque<(Instant, Lan, Ipv4Addr, Mac)>);

impl Departed {
    /// Records that the interface with this Ethernet address gives up an address of a LAN.
    pub fn add(&mut self, lan: &Lan, address: Ipv4Addr, mac: Mac, now: Instant) {
        while self.0.len() == MOST
            || self
                .0
                .front()
                .is_some_and(|(at, ..)| now >= *at + NEXT_STEP)
        {
            self.0.pop_front();
        }
        self.0.push_back((now, lan.clone(), address, mac));
    }

    /// Returns whether the interface with this Ethernet address had an address of a LAN, and may still exist.
    pub fn had(&self, lan: &Lan, address: Ipv4Addr, mac: Mac, now: Instant) -> bool {
        let is_it = |(at, on, had, by): &(Instant, Lan, Ipv4Addr, Mac)| {
            (*had, *by) == (address, mac) && on == lan && now < *at + NEXT_STEP
        };
        self.0.iter().any(is_it)
    }
}
