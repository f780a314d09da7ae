//! The last resort: an address of a local range, when no server has answered for long enough.
//!
//! Only silence counts, from the first DISCOVER or the last offer on: a server that says NAK, or offers what is not acceptable, is
//! there. One that offers and then falls silent has gone. The address is probed for before it is used (RFC 5227 §2.1.1), whatever the network says about conflict detection:
//! nobody on the wire keeps a list of who has which address. If another station has it, the next one is tried.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use ipnet::IpNet;

use super::{Abort, Acquire, Phase};
use crate::binding::{Common, Cx, Living, Next, Report, SAME};
use crate::effect::Failure;
use crate::grant::policy::{Detection, Policy};
use crate::profile::Profile;
use crate::range::{Fallback, NoAddress, RangeAddress};
use crate::source::{Lease, RECEIVE_WINDOW};
use crate::time::Instant;
use crate::wire::Mac;

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

impl Awaits {
    /// Begins to wait anew: a server has just spoken.
    fn answered(&mut self, now: Instant) {
        if matches!(self, Self::Answer(_) | Self::LastAnswer { .. }) {
            *self = Self::LastAnswer {
                since: now,
                last: now,
            };
        }
    }
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
}

impl Acquire {
    /// Records what the client has done and heard. `answered`: a server that may serve it has said something.
    pub(super) fn hear(&mut self, common: &Common, answered: bool, cx: &mut Cx<'_>) {
        let Some(resort) = &mut self.resort else {
            return;
        };
        let (lan, now) = (&common.identity.lan, cx.now.boot);
        if answered {
            cx.conflicts.heard(lan, now);
            resort.awaits.answered(now);
        }
        if self.client.tally().discovers > 0
            && let Awaits::Permit(waits) = resort.awaits
        {
            let since = if cx.conflicts.was_heard(lan, waits) {
                now
            } else {
                waits
            };
            resort.awaits =
                match now >= since + resort.fallback.after.saturating_sub(RECEIVE_WINDOW) {
                    true => Awaits::LastAnswer { since, last: now },
                    false => Awaits::Answer(since),
                };
        }
    }

    /// Returns when it asks once more, or falls back, if nobody answers by then. An ADD that insists on an address gets that or
    /// none.
    pub(super) fn falls_back_at(&self) -> Option<Instant> {
        let resort = self.resort.as_ref()?;
        let after = resort.fallback.after;
        let has_offer = self.client.compares() || self.client.requesting().is_some();
        if self.quest.insists().is_some() || self.misses.show_a_server() || has_offer {
            return None;
        }
        match (self.phase, &resort.awaits) {
            // Others have asked meanwhile.
            (Phase::Queue, Awaits::Permit(since)) => Some(*since + after),
            (Phase::Ask, Awaits::Answer(since)) => Some(*since + (after - RECEIVE_WINDOW)),
            (Phase::Ask, Awaits::LastAnswer { since, last }) => {
                Some((*since + after).max(*last + RECEIVE_WINDOW.min(after)))
            }
            _ => None,
        }
    }

    fn is_due(&self, now: Instant) -> bool {
        self.falls_back_at().is_some_and(|at| now >= at)
    }

    /// Wishes for an address once it is time.
    pub(super) fn fall_back(&mut self, common: &Common, cx: &mut Cx<'_>) {
        let is_due = self.is_due(cx.now.boot);
        let Some(resort) = self.resort.as_mut().filter(|_| is_due) else {
            return;
        };
        match &mut resort.awaits {
            // Its turn may take long, but servers are there: it waits anew.
            Awaits::Permit(since) if cx.conflicts.was_heard(&common.identity.lan, *since) => {
                *since = cx.now.boot
            }
            Awaits::Permit(_) | Awaits::LastAnswer { .. } => self.wish_for_address(common, cx),
            Awaits::Answer(_) | Awaits::Address { .. } => {}
        }
    }

    /// Sends the last DISCOVER before it falls back, if it is time.
    pub(super) fn asks_once_more(&mut self, now: Instant) {
        let is_due = self.is_due(now);
        let Some(resort) = self.resort.as_mut().filter(|_| is_due) else {
            return;
        };
        let Awaits::Answer(since) = resort.awaits else {
            return;
        };
        resort.awaits = Awaits::LastAnswer { since, last: now };
        self.client.hurry(now);
    }

    fn wish_for_address(&mut self, common: &Common, cx: &mut Cx<'_>) {
        let Some(resort) = &mut self.resort else {
            return;
        };
        resort.awaits = Awaits::Address { none: None };
        let reserved = self
            .quest
            .add
            .limits
            .iter()
            .flat_map(|limits| &limits.reserved);
        let used = resort.used.iter().chain(reserved).copied().collect();
        let (fallback, last) = (Box::new(resort.fallback.clone()), resort.last);
        cx.out.report(
            common.id,
            Report::FallsBack {
                fallback,
                used,
                last,
            },
        );
    }

    /// Goes on with an address of a range, unless the wish for it is out of date. Without one, servers are asked until time is
    /// up.
    pub(in crate::binding) fn on_resort(
        &mut self,
        common: &mut Common,
        given: Result<RangeAddress, NoAddress>,
        cx: &mut Cx<'_>,
    ) -> Next {
        let asks = matches!(self.phase, Phase::Queue | Phase::Ask);
        let Some(resort) = self.resort.as_mut().filter(|_| asks) else {
            return SAME;
        };
        let lease = match given {
            Ok(given) => lease(&given, cx.now.boot),
            Err(none) => {
                tracing::warn!(attachment = %common.attachment, %none, "no server answers, and the fallback has no free address");
                let is_first = resort.used.is_empty();
                resort.awaits = Awaits::Address {
                    none: Some(none.clone()),
                };
                let failure = Failure::NoAddress(none);
                return if is_first {
                    SAME
                } else {
                    self.abort(common, Abort::Because(failure), cx)
                };
            }
        };
        let Some(lease) = lease else { return SAME };
        tracing::warn!(attachment = %common.attachment, address = %lease.address, "no server answers: falling back to a local range");
        // Sockets on a macvlan beside the link hear the answers to the probes.
        if !common.is_aside() {
            common.exchange.close(cx.out);
        }
        let policy = Policy {
            detection: Detection::Strict,
            ..common.profile.policy.clone()
        };
        common.profile = Arc::new(Profile {
            policy,
            ..(*common.profile).clone()
        });
        self.enter(Phase::Probe);
        let address = lease.ip();
        self.client.hold(Arc::new(lease));
        cx.out.report(common.id, Report::ExchangeOver);
        common.guard_first(address, cx);
        self.watch(common, cx)
    }

    /// Returns the address of a range that it is about to get.
    pub(super) fn of_range(&self) -> Option<Ipv4Addr> {
        self.client
            .lease()
            .filter(|lease| !lease.source.is_asked())
            .map(Lease::ip)
    }

    /// Tries another address of the ranges: a station uses this one.
    pub(super) fn next_of_range(
        &mut self,
        common: &mut Common,
        (address, by): (Ipv4Addr, Mac),
        cx: &mut Cx<'_>,
    ) -> Next {
        common.close_guard(cx);
        let tried = self.resort.as_mut().map_or(MOST, |resort| {
            resort.used.insert(address);
            resort.used.len()
        });
        if tried >= MOST {
            return self.abort(
                common,
                Abort::Because(Failure::Conflict { address, by }),
                cx,
            );
        }
        self.enter(Phase::Ask);
        self.wish_for_address(common, cx);
        SAME
    }

    /// Returns why the ranges have no address for it, if that is why it has none.
    pub(super) fn has_no_resort(&self) -> Option<NoAddress> {
        let Awaits::Address { none } = &self.resort.as_ref()?.awaits else {
            return None;
        };
        none.clone()
    }

    /// Returns the lease of a container that runs with an address of the ranges. No server knows about it.
    pub(super) fn own_of_range(&self, now: Instant) -> Option<Lease> {
        let own = self.quest.insists().filter(|_| self.quest.adopts())?;
        lease(&self.resort.as_ref()?.fallback.take_over(own.into())?, now)
    }

    /// Goes on with the address that a container has. It is not probed for: the container answers for it.
    pub(super) fn hold_as_before(
        &mut self,
        common: &mut Common,
        lease: Lease,
        cx: &mut Cx<'_>,
    ) -> Next {
        common.exchange.close(cx.out);
        self.client.hold(Arc::new(lease));
        self.make_durable(common, cx)
    }

    /// Returns why it has a lease of a range, for its event.
    pub(super) fn why_of_range(&self, lease: &Lease) -> Option<String> {
        let resort = self.resort.as_ref().filter(|_| !lease.source.is_asked())?;
        Some(match self.quest.adopts() {
            true => {
                "the container already ran, with an address of its network's fallback".to_owned()
            }
            false => format!(
                "no server answered for {} s: an address of its network's fallback",
                resort.fallback.after.as_secs()
            ),
        })
    }
}

fn lease(given: &RangeAddress, now: Instant) -> Option<Lease> {
    let (IpNet::V4(address), IpAddr::V4(gateway)) = (given.address, given.gateway) else {
        return None;
    };
    Some(Lease::of_range(address, gateway, now))
}
