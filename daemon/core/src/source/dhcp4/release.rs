//! Giving a lease back (RFC 2131 §4.4.6): find the server's Ethernet address, send RELEASE, done. There is no answer.

use fastrand::Rng;

use super::lease::Lease;
use super::message::{Hop, Sender};
use crate::question::{Question, QuestionAction};
use crate::time::Instant;
use crate::wire::Mac;
use crate::wire::frame::Arp;

/// One RELEASE under way, over open sockets.
#[derive(Debug)]
pub struct ReleaseExchange {
    sender: Sender,
    lease: Lease,
    resolver: Option<Question>,
    xid: u32,
}

/// What a [`ReleaseExchange`] wants next.
#[derive(Debug, PartialEq, Eq)]
pub enum ReleaseAction {
    /// Send these frames, ARP requests, and wait.
    Ask(Vec<Vec<u8>>),
    /// Wait until the deadline or an answer.
    Wait,
    /// Send this RELEASE, which ends it.
    Send {
        /// The frame.
        frame: Vec<u8>,
        /// Whether the server, or the router to it, answered ARP, or was not asked, or was not asked.
        answered: bool,
    },
}

impl ReleaseExchange {
    /// Begins to give `lease` back. `asker`: the Ethernet address that hears ARP answers.
    pub fn new(sender: Sender, asker: Mac, lease: Lease, now: Instant, rng: &mut Rng) -> Self {
        let resolver = lease
            .next_hop()
            .map(|hop| Question::new((asker, lease.ip()), hop, now));
        Self {
            sender,
            lease,
            resolver,
            xid: rng.u32(..),
        }
    }

    /// Returns the same without ARP: another station has the address, and ARP that names it from here would mislead others.
    pub fn without_arp(self) -> Self {
        Self {
            resolver: None,
            ..self
        }
    }

    /// Does what is due by the clock. A server that ARP does not find gets its RELEASE in an Ethernet broadcast. For a server behind
    /// a router, the RELEASE goes to where the last ACK came from, since no router forwards what it received in a broadcast.
    pub fn on_clock(&mut self, now: Instant) -> ReleaseAction {
        let resolver = self.resolver.as_mut();
        match resolver.map(|resolver| resolver.on_clock(now, true)) {
            Some(QuestionAction::Ask(frames)) => ReleaseAction::Ask(frames),
            Some(QuestionAction::Wait) => ReleaseAction::Wait,
            Some(QuestionAction::Over) | None => {
                let mac = match self.lease.on_link() {
                    true => Mac::BROADCAST,
                    false => self.lease.server_mac,
                };
                self.send(mac, self.resolver.is_none())
            }
        }
    }

    /// Goes on with an ARP packet.
    pub fn on_arp(&mut self, arp: &Arp) -> ReleaseAction {
        let resolver = self.resolver.as_mut();
        let found = resolver.and_then(|resolver| resolver.on_arp(arp));
        found.map_or(ReleaseAction::Wait, |mac| self.send(mac, true))
    }

    /// Returns when the clock next matters.
    pub fn deadline(&self) -> Option<Instant> {
        let resolver = self.resolver.as_ref()?;
        Some(resolver.deadline(true))
    }

    fn send(&self, mac: Mac, answered: bool) -> ReleaseAction {
        let hop = Hop {
            server: self.lease.server,
            mac,
        };
        ReleaseAction::Send {
            frame: self.sender.release(self.xid, self.lease.ip(), hop),
            answered,
        }
    }
}
