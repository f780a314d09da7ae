//! The last resort: an address of a local range, when no server has answered for long enough.
//!
//! Only silence counts, from the first DISCOVER on: a server that was heard, even with a NAK or an unacceptable offer, is
//! there. The address is probed for before it is used (RFC 5227 §2.1.1), whatever the network says about conflict detection:
//! nobody on the wire keeps a list of who has which address. If another station has it, the next one is tried.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use ipnet::{IpNet, Ipv4Net};

use super::{Abort, Acquire, Stage};
use crate::binding::common::guard::Waits;
use crate::binding::{Common, Cx, Living, Next, Report, SAME};
use crate::dhcpv4::lease::Lease;
use crate::effect::Failure;
use crate::grant::policy::{Detection, Policy};
use crate::profile::Profile;
use crate::range::{Fallback, Given, NoAddress};
use crate::time::Instant;
use crate::wire::Mac;

/// How many addresses that others use are tried.
const MOST: usize = 10;
/// How long to listen after the last DISCOVER: a switch port may have begun to forward since the one before, and a server
/// may ping an address before it offers it (dnsmasq: 3 s).
const LAST: Duration = Duration::from_secs(4);

/// An address of a local range, as the last resort.
#[derive(Debug)]
pub(super) struct Resort {
    fallback: Fallback,
    /// Since when it waits for its turn to ask.
    waits: Instant,
    /// Since when nobody has answered: since its first DISCOVER, or since it waits, if all others on its LAN met silence meanwhile.
    asked: Option<Instant>,
    /// When the last one was due.
    once_more: Option<Instant>,
    /// Whether a server was heard.
    heard: bool,
    /// Whether an address was wished for.
    wished: bool,
    /// The addresses that others use.
    used: BTreeSet<Ipv4Addr>,
    /// Why the ranges have none.
    none: Option<NoAddress>,
    /// The address of a container that already ran, if the ranges have it.
    own: Option<Given>,
    /// The last address of its identity, if the ranges have it.
    last: Option<IpAddr>,
}

impl Resort {
    /// Returns the last resort of an ADD that waits for its turn from now on. `adopts`: the address with which a container runs;
    /// `last`: that of its identity, if it has come back.
    pub(super) fn new(fallback: Fallback, adopts: Option<Ipv4Net>, last: Option<Ipv4Addr>, now: Instant) -> Self {
        let own = adopts.and_then(|address| fallback.take_over(address.addr().into()));
        let last = last.map(IpAddr::V4).filter(|last| fallback.take_over(*last).is_some());
        Self {
            fallback,
            waits: now,
            asked: None,
            once_more: None,
            heard: false,
            wished: false,
            used: BTreeSet::new(),
            none: None,
            own,
            last,
        }
    }

    /// Returns whether this was the last address of its identity, and is of the ranges.
    pub(super) fn has_last(&self, address: Ipv4Addr) -> bool {
        self.last == Some(address.into())
    }
}

impl Acquire {
    /// Records what the client has done and heard. `answered`: something has come in.
    pub(super) fn hear(&mut self, common: &Common, answered: bool, cx: &mut Cx<'_>) {
        let Some(resort) = &mut self.resort else { return };
        let (tally, lan, now) = (self.client.tally(), &common.identity.lan, cx.now.boot);
        resort.heard |= tally.has_heard() || self.client.compares();
        if resort.heard && answered {
            cx.conflicts.heard(lan, now);
        }
        if tally.discovers > 0 && resort.asked.is_none() {
            let in_silence = !cx.conflicts.was_heard(lan, resort.waits);
            let (asked, after) = (if in_silence { resort.waits } else { now }, resort.fallback.after);
            resort.asked = Some(asked);
            resort.once_more = (now >= asked + after.saturating_sub(LAST)).then_some(now);
        }
    }

    /// Returns when it asks once more, or falls back, if nobody answers until then. An ADD that insists on an address gets that
    /// or none.
    pub(super) fn falls_back_at(&self) -> Option<Instant> {
        let resort = self.resort.as_ref().filter(|resort| !resort.heard && !resort.wished)?;
        let after = resort.fallback.after;
        if self.insists.is_some() || !self.misses.is_empty() {
            return None;
        }
        let asked = match self.stage {
            // Others have asked meanwhile.
            Stage::AwaitingPermit => return Some(resort.waits + after),
            Stage::Exchanging => resort.asked?,
            _ => return None,
        };
        Some(match resort.once_more {
            Some(last) => (asked + after).max(last + LAST.min(after)),
            None => asked + (after - LAST),
        })
    }

    fn is_due(&self, now: Instant) -> bool {
        self.falls_back_at().is_some_and(|at| now >= at)
    }

    /// Wishes for an address once it is time.
    pub(super) fn fall_back(&mut self, common: &Common, cx: &mut Cx<'_>) {
        let is_due = self.is_due(cx.now.boot);
        let Some(resort) = self.resort.as_mut().filter(|_| is_due) else { return };
        match self.stage {
            // Its turn may take long, but servers are there: it waits anew.
            Stage::AwaitingPermit if cx.conflicts.was_heard(&common.identity.lan, resort.waits) => {
                resort.waits = cx.now.boot;
            }
            Stage::AwaitingPermit => self.wish_for_address(common, cx),
            _ if resort.once_more.is_some() => self.wish_for_address(common, cx),
            _ => {}
        }
    }

    /// Sends the last DISCOVER before it falls back, if it is time. That needs no permit. Returns whether it does.
    pub(super) fn asks_once_more(&mut self, common: &Common, cx: &mut Cx<'_>) -> bool {
        let (now, is_due) = (cx.now.boot, self.is_due(cx.now.boot));
        let asks = is_due && self.stage == Stage::Exchanging;
        let Some(resort) = self.resort.as_mut().filter(|resort| asks && resort.once_more.is_none()) else {
            return false;
        };
        resort.once_more = Some(now);
        self.leave_queue(common, cx);
        self.client.hurry(now);
        true
    }

    fn wish_for_address(&mut self, common: &Common, cx: &mut Cx<'_>) {
        let Some(resort) = &mut self.resort else { return };
        resort.wished = true;
        let reserved = self.limits.iter().flat_map(|limits| &limits.reserved);
        let used = resort.used.iter().chain(reserved).copied().collect();
        let (fallback, last) = (Box::new(resort.fallback.clone()), resort.last);
        cx.out.report(common.id, Report::FallsBack { fallback, used, last });
    }

    /// Goes on with an address of a range, unless the wish for it is out of date. Without one, servers are asked until time is
    /// up.
    pub(in crate::binding) fn on_resort(
        &mut self,
        common: &mut Common,
        given: Result<Given, NoAddress>,
        cx: &mut Cx<'_>,
    ) -> Next {
        let asks = matches!(self.stage, Stage::AwaitingPermit | Stage::Exchanging);
        let Some(resort) = self.resort.as_mut().filter(|_| asks) else { return SAME };
        let lease = match given {
            Ok(given) => lease(&given, cx.now.boot),
            Err(none) => {
                tracing::warn!(attachment = %common.attachment, %none, "no server answers, and the fallback has no free address");
                let is_first = resort.used.is_empty();
                resort.none = Some(none.clone());
                let failure = Failure::NoAddress { none, running: 0 };
                return if is_first { SAME } else { self.abort(common, Abort::Because(failure), cx) };
            }
        };
        let Some(lease) = lease else { return SAME };
        tracing::warn!(attachment = %common.attachment, address = %lease.address, "no server answers: falling back to a local range");
        // Sockets on a macvlan beside the link hear the answers to the probes.
        if !common.is_aside() {
            common.exchange.close(cx);
        }
        let policy = Policy { detection: Detection::Strict, ..common.profile.policy.clone() };
        common.profile = Arc::new(Profile { policy, ..(*common.profile).clone() });
        (self.queues, self.stage) = (None, Stage::Probing);
        let address = lease.ip();
        self.client.hold(Arc::new(lease));
        cx.out.report(common.id, Report::ExchangeOver);
        common.guard_first(address, Waits::Add, cx);
        self.watch(common, cx)
    }

    /// Returns the address of a range that it is about to get.
    pub(super) fn of_range(&self) -> Option<Ipv4Addr> {
        self.client.lease().filter(|lease| !lease.source.is_asked()).map(Lease::ip)
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
            return self.abort(common, Abort::Because(Failure::Conflict { address, by }), cx);
        }
        self.stage = Stage::Exchanging;
        self.wish_for_address(common, cx);
        SAME
    }

    /// Returns why the ranges have no address for it, if that is why it has none.
    pub(super) fn has_no_resort(&self) -> Option<NoAddress> {
        self.resort.as_ref()?.none.clone()
    }

    /// Returns the lease of a container that runs with an address of the ranges. No server knows about it.
    pub(super) fn own_of_range(&self, now: Instant) -> Option<Lease> {
        lease(self.resort.as_ref()?.own.as_ref()?, now)
    }

    /// Goes on with the address that a container has. It is not probed for: the container answers for it.
    pub(super) fn hold_as_before(&mut self, common: &mut Common, lease: Lease, cx: &mut Cx<'_>) -> Next {
        common.exchange.close(cx);
        self.client.hold(Arc::new(lease));
        self.make_durable(common, cx)
    }

    /// Returns why it has a lease of a range, for its event.
    pub(super) fn why_of_range(&self, lease: &Lease) -> Option<String> {
        let resort = self.resort.as_ref().filter(|_| !lease.source.is_asked())?;
        Some(match self.adopts {
            true => "the container already ran, with an address of its network's fallback".to_owned(),
            false => format!(
                "no server answered for {} s: an address of its network's fallback",
                resort.fallback.after.as_secs()
            ),
        })
    }
}

fn lease(given: &Given, now: Instant) -> Option<Lease> {
    let (IpNet::V4(address), IpAddr::V4(gateway)) = (given.address, given.gateway) else { return None };
    Some(Lease::of_range(address, gateway, now))
}
