//! The last resort: an address of a local range, when no server has answered for long enough.
//!
//! Only silence counts, from the first DISCOVER or the last offer on: a server that says NAK, or offers what is not acceptable, is
//! there. One that offers and then falls silent has gone. The address is probed for before it is used (RFC 5227 §2.1.1), whatever
//! the network says about conflict detection: nobody on the wire keeps a list of who has which address. If another station has it,
//! the next one is tried.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};

use ipnet::IpNet;

use super::Phase;
use crate::binding::{Cx, Quest, Report};
use crate::identity::Lan;
use crate::range::{Fallback, NoAddress, RangeAddress};
use crate::source::{Lease, RECEIVE_WINDOW};
use crate::time::Instant;

/// How many addresses that others use are tried.
const MOST: usize = 10;

/// An address of a local range, as the last resort.
#[derive(Debug)]
pub(super) struct Resort {
    fallback: Fallback,
    awaits: Awaits,
    /// The addresses that others use.
    used: BTreeSet<Ipv4Addr>,
    /// The last address of its identity, if the ranges have it.
    last: Option<IpAddr>,
}

/// What an ADD with a last resort waits for.
#[derive(Debug)]
enum Awaits {
    /// A permit to ask, since this instant.
    Permit(Instant),
    /// An answer, since this instant: its first DISCOVER, or the beginning of its wait, if all others on its LAN met silence
    /// meanwhile.
    Answer(Instant),
    /// An answer, since the same instant; its last DISCOVER was due at `last`.
    LastAnswer { since: Instant, last: Instant },
    /// An address of the ranges. `none`: why they have none.
    Address { none: Option<NoAddress> },
}

impl Resort {
    /// Returns the last resort of an ADD that waits for its turn from now on. `last`: the last address of its identity, if that has
    /// returned.
    pub(super) fn new(fallback: Fallback, last: Option<Ipv4Addr>, now: Instant) -> Self {
        let last = last
            .map(IpAddr::V4)
            .filter(|last| fallback.take_over(*last).is_some());
        Self {
            fallback,
            awaits: Awaits::Permit(now),
            used: BTreeSet::new(),
            last,
        }
    }

    /// Returns whether this was the last address of its identity, and is of the ranges.
    pub(super) fn has_last(&self, address: Ipv4Addr) -> bool {
        self.last == Some(address.into())
    }

    /// Records what the client has done and heard. `asks`: it has sent a DISCOVER; `answered`: a server that may serve it has said
    /// something.
    pub(super) fn hear(&mut self, lan: &Lan, asks: bool, answered: bool, cx: &Cx<'_>) {
        let now = cx.now.boot;
        // It waits anew.
        if answered && matches!(self.awaits, Awaits::Answer(_) | Awaits::LastAnswer { .. }) {
            let (since, last) = (now, now);
            self.awaits = Awaits::LastAnswer { since, last };
        }
        if let (true, Awaits::Permit(waits)) = (asks, &self.awaits) {
            let since = match cx.lans.heard_since(lan, *waits) {
                true => now,
                false => *waits,
            };
            let is_late = now >= since + self.fallback.after.saturating_sub(RECEIVE_WINDOW);
            self.awaits = match is_late {
                true => Awaits::LastAnswer { since, last: now },
                false => Awaits::Answer(since),
            };
        }
    }

    /// Returns when to ask once more, or to fall back, if nobody answers by then.
    pub(super) fn due_at(&self, phase: Phase) -> Option<Instant> {
        let after = self.fallback.after;
        match (phase, &self.awaits) {
            // Others have asked meanwhile.
            (Phase::Queue, Awaits::Permit(since)) => Some(*since + after),
            (Phase::Ask, Awaits::Answer(since)) => Some(*since + (after - RECEIVE_WINDOW)),
            (Phase::Ask, Awaits::LastAnswer { since, last }) => {
                Some((*since + after).max(*last + RECEIVE_WINDOW.min(after)))
            }
            _ => None,
        }
    }

    /// Wishes for an address, now that this is due. Returns whether to send the last DISCOVER before that instead.
    pub(super) fn fall_back(&mut self, quest: &Quest, cx: &mut Cx<'_>) -> bool {
        let now = cx.now.boot;
        match self.awaits {
            // Its turn may take long, but servers are there: it waits anew.
            Awaits::Permit(since) if cx.lans.heard_since(&cx.own.identity.lan, since) => {
                self.awaits = Awaits::Permit(now)
            }
            Awaits::Permit(_) | Awaits::LastAnswer { .. } => self.wish(quest, cx),
            Awaits::Answer(since) => {
                self.awaits = Awaits::LastAnswer { since, last: now };
                return true;
            }
            Awaits::Address { .. } => {}
        }
        false
    }

    /// Wishes for an address that nobody is known to use.
    fn wish(&mut self, quest: &Quest, cx: &mut Cx<'_>) {
        self.awaits = Awaits::Address { none: None };
        let limits = quest.add.limits.iter();
        let reserved = limits.flat_map(|limits| &limits.reserved);
        let used = self.used.iter().chain(reserved).copied().collect();
        let (fallback, last) = (Box::new(self.fallback.clone()), self.last);
        cx.out.report(
            cx.own.id,
            Report::FallsBack {
                fallback,
                used,
                last,
            },
        );
    }

    /// Wishes for another address: a station uses this one. Returns false after too many.
    pub(super) fn wish_again(&mut self, used: Ipv4Addr, quest: &Quest, cx: &mut Cx<'_>) -> bool {
        self.used.insert(used);
        let goes_on = self.used.len() < MOST;
        if goes_on {
            self.wish(quest, cx);
        }
        goes_on
    }

    /// Records that the ranges have no address. Returns whether it was the first that it wished for.
    pub(super) fn has_none(&mut self, none: NoAddress) -> bool {
        self.awaits = Awaits::Address { none: Some(none) };
        self.used.is_empty()
    }

    /// Returns why the ranges have no address, if that is known.
    pub(super) fn none(&self) -> Option<&NoAddress> {
        match &self.awaits {
            Awaits::Address { none } => none.as_ref(),
            Awaits::Permit(_) | Awaits::Answer(_) | Awaits::LastAnswer { .. } => None,
        }
    }

    /// Returns the lease of a container that runs with this address, if it is of the ranges. No server knows about it.
    pub(super) fn own(&self, address: Ipv4Addr, now: Instant) -> Option<Lease> {
        lease(&self.fallback.take_over(address.into())?, now)
    }

    /// Returns why an ADD has a lease of the ranges, for its event.
    pub(super) fn why(&self) -> String {
        let after = self.fallback.after.as_secs();
        format!("no server answered for {after} s: an address of its network's fallback")
    }
}

/// Returns the lease of an address of a range.
pub(super) fn lease(given: &RangeAddress, now: Instant) -> Option<Lease> {
    let (IpNet::V4(address), IpAddr::V4(gateway)) = (given.address, given.gateway) else {
        return None;
    };
    Some(Lease::of_range(address, gateway, now))
}
