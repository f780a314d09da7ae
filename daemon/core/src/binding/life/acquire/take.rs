//! What an ADD takes: an offer, or a lease that a server granted without one; if no server answers, the lease that its identity
//! still has (RFC 2131 §3.2), or an address of a local range.
//!
//! An offer is refused silently: another server may have a better one, and its offer to the same DISCOVER counts during the
//! pause. What was granted without an offer is given back.

use std::net::Ipv4Addr;
use std::ops::ControlFlow::{self, Continue};
use std::sync::Arc;
use std::time::Duration;

use super::fallback;
use super::judge::{Cause, Ruling};
use super::{Acquire, Phase};
use crate::binding::common::tenancy;
use crate::binding::{Cx, Life, Living, Next, Report, SAME};
use crate::conflict::PROBING;
use crate::effect::Failure;
use crate::grant::policy::{Detection, Policy};
use crate::limits::Limits;
use crate::patience::AFTERWARDS;
use crate::profile::Profile;
use crate::range::{NoAddress, RangeAddress};
use crate::rules::{Rule, cut};
use crate::source::{Lease, Miss, Output};
use crate::time::Instant;
use crate::wire::Mac;

/// How long DISCOVER waits after the only acceptable address began to be given back: the RELEASE is preceded by questions, and a
/// server that counts in seconds (udhcpd) frees the address within the next second. If it offers another before that, it keeps
/// offering that one for a minute.
const SETTLES: Duration = Duration::from_millis(3500);

impl Acquire {
    /// Applies other limits from now on, if there were any.
    pub(in crate::binding) fn limit(&mut self, limits: &Limits) {
        let own = self.quest.add.limits.iter_mut();
        own.for_each(|own| own.clone_from(limits));
    }

    /// Carries out the ruling on an offer or a lease. Returns whether the ADD has failed as a result.
    pub(super) fn judge(
        &mut self,
        output: &mut Output,
        cx: &mut Cx<'_>,
    ) -> ControlFlow<Life, bool> {
        let now = cx.now.boot;
        let (mut ruling, mut asks) = (Ruling::GoOn, false);
        if let Some(missed) = output.missed.take() {
            let unwanted = matches!(missed.miss, Miss::Unwanted { .. });
            if matches!(missed.miss, Miss::Nak { .. }) {
                self.spoils(missed.address, cx);
            }
            ruling = self.misses.missed(&self.quest, missed);
            let fails = matches!(ruling, Ruling::Fail(_));
            if !fails && self.unblocks(cx) {
                ruling = Ruling::Refuse(SETTLES);
            } else if !fails
                && unwanted
                && let Some(patience) = cx.own.profile.wants.patience
            {
                // Docker creates one endpoint after the other.
                self.limit = self.limit.min(self.quest.began + patience).max(now);
            }
        }
        if let Some((lease, granted)) = tenancy::given(&self.client, output, None, now) {
            let lease = lease.clone();
            (ruling, asks) = (self.rule(&lease, granted, cx), !granted);
            if granted && matches!(ruling, Ruling::GoOn) {
                self.limit = self.limit.max(self.quest.whole_limit());
            }
        }
        match ruling {
            Ruling::GoOn => {}
            Ruling::Refuse(pause) => output.replace(self.client.refuse(now, pause)),
            Ruling::Fail(failure) => {
                if asks {
                    self.client.refuse(now, Duration::ZERO);
                }
                self.abort(Some(failure), cx)?;
                return Continue(true);
            }
        }
        Continue(false)
    }

    fn rule(&mut self, lease: &Lease, granted: bool, cx: &mut Cx<'_>) -> Ruling {
        let address = lease.ip();
        let unfit = self.quest.unfit(address);
        if let Some(why) = unfit {
            tracing::warn!(attachment = %cx.own.attachment, %address, server = %lease.server, %why, "not taken");
        }
        let counts = unfit.is_none() && !cut(Rule::HeldOffer);
        let tenant = tenancy::tenant(address, cx).filter(|_| counts);
        let held = tenant.as_ref().map(|tenant| Cause::Held {
            holder: tenant.who.clone(),
            shared: Some(tenant.chaddr).filter(|chaddr| *chaddr == cx.own.identity.chaddr),
        });
        let probed = cx.own.probes_first().then(|| cx.now.boot + PROBING);
        let quest = &self.quest;
        let ruling = self.misses.judge(quest, lease, granted, held, probed);
        if let Some(tenant) = tenant {
            tenancy::tell_taken(&tenant, lease, cx);
            if !matches!(ruling, Ruling::GoOn) && !cut(Rule::RenewHolder) {
                cx.out.report(cx.own.id, Report::WantsRenewed(tenant.id));
            }
        }
        ruling
    }

    /// Has the only acceptable address given back, if it is kept for another client, or for this one with another Ethernet address:
    /// its server may give it to nobody else, and keep offering another. Returns whether DISCOVER must wait for that.
    fn unblocks(&mut self, cx: &mut Cx<'_>) -> bool {
        let wanted = self.quest.insists().filter(|_| !self.quest.adopts());
        let wanted = wanted.filter(|_| !cut(Rule::Unblock));
        let Some(address) = wanted.filter(|it| cx.holders.is_left_with(&cx.own.identity, *it))
        else {
            return false;
        };
        if std::mem::replace(&mut self.unblocked, true) {
            return false;
        }
        cx.out.report(cx.own.id, Report::Insists(address));
        true
    }

    /// Returns whether DISCOVER waits, because the only acceptable address is given back first.
    pub(super) fn holds_back(&mut self, cx: &mut Cx<'_>) -> bool {
        let waits = self.unblocks(cx);
        if waits {
            self.client.hold_back(cx.now.boot + SETTLES);
        }
        waits
    }

    /// Returns when to use the existing lease, if no server answers by then.
    pub(super) fn trusts_at(&self) -> Option<Instant> {
        let waits = matches!(self.phase, Phase::Queue | Phase::Ask);
        let heard = self.client.tally().requested.is_some() || self.misses.show_a_server();
        self.trusts
            .as_ref()
            .filter(|_| waits && !heard)
            .map(|(_, at)| *at)
    }

    /// Takes that lease out when its time has come, unless another station is known to use its address, or its pool no longer
    /// allows the address.
    pub(super) fn take_trusted(&mut self, cx: &Cx<'_>) -> Option<Arc<Lease>> {
        self.trusts_at().filter(|at| cx.now.boot >= *at)?;
        let (lease, _) = self.trusts.take()?;
        let is_free = cx.own.claim().is_none() && tenancy::tenant(lease.ip(), cx).is_none();
        let fits = self.quest.unfit(lease.ip()).is_none();
        Some(lease).filter(|lease| is_free && fits && !lease.expired(cx.now.boot))
    }

    /// Takes the lease unconfirmed. Its holder keeps asking for it.
    pub(super) fn trust(&mut self, lease: Arc<Lease>, cx: &mut Cx<'_>) -> Next {
        tracing::warn!(attachment = %cx.own.attachment, address = %lease.address, "no server answers: using the last lease as it is");
        cx.own.exchange.close(cx.out);
        self.trusted = true;
        // The limit may be this close because no server was expected to answer: what is left to do has its own time.
        self.limit = self.limit.max(cx.now.boot + AFTERWARDS);
        self.client.trust(lease, cx.now.boot);
        self.make_durable(cx)
    }

    /// Returns when it asks once more, or falls back, if nobody answers by then. An ADD that insists on an address gets that or
    /// none.
    pub(super) fn falls_back_at(&self) -> Option<Instant> {
        let has_offer = self.client.compares() || self.client.requesting().is_some();
        if self.quest.insists().is_some() || self.misses.show_a_server() || has_offer {
            return None;
        }
        self.resort.as_ref()?.due_at(self.phase)
    }

    /// Returns whether that is due.
    pub(super) fn falls_back(&self, now: Instant) -> bool {
        self.falls_back_at().is_some_and(|at| now >= at)
    }

    /// Goes on with an address of a range, unless the wish for it is out of date. Without one, servers are asked until time is
    /// up.
    pub(in crate::binding) fn on_resort(
        &mut self,
        given: Result<RangeAddress, NoAddress>,
        cx: &mut Cx<'_>,
    ) -> Next {
        let asks = matches!(self.phase, Phase::Queue | Phase::Ask);
        let Some(resort) = self.resort.as_mut().filter(|_| asks) else {
            return SAME;
        };
        let lease = match given {
            Ok(given) => fallback::lease(&given, cx.now.boot),
            Err(none) => {
                tracing::warn!(attachment = %cx.own.attachment, %none, "no server answers, and the fallback has no free address");
                return match resort.has_none(none.clone()) {
                    true => SAME,
                    false => self.abort(Some(Failure::NoAddress(none)), cx),
                };
            }
        };
        let Some(lease) = lease else { return SAME };
        tracing::warn!(attachment = %cx.own.attachment, address = %lease.address, "no server answers: falling back to a local range");
        // Sockets on a macvlan beside the link hear the answers to the probes.
        if !cx.own.is_aside() {
            cx.own.exchange.close(cx.out);
        }
        let policy = Policy {
            detection: Detection::Strict,
            ..cx.own.profile.policy.clone()
        };
        cx.own.profile = Arc::new(Profile {
            policy,
            ..(*cx.own.profile).clone()
        });
        self.enter(Phase::Probe);
        let address = lease.ip();
        self.client.hold(Arc::new(lease));
        cx.out.report(cx.own.id, Report::ExchangeOver);
        cx.guard_first(address);
        self.watch(cx)
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
        (address, by): (Ipv4Addr, Mac),
        cx: &mut Cx<'_>,
    ) -> Next {
        cx.close_guard();
        self.enter(Phase::Ask);
        let quest = &self.quest;
        let resort = self.resort.as_mut();
        if !resort.is_some_and(|resort| resort.wish_again(address, quest, cx)) {
            let failure = Failure::Conflict { address, by };
            return self.abort(Some(failure), cx);
        }
        SAME
    }

    /// Returns the lease of a container that runs with an address of the ranges. No server knows about it.
    pub(super) fn own_of_range(&self, now: Instant) -> Option<Lease> {
        let own = self.quest.insists().filter(|_| self.quest.adopts())?;
        self.resort.as_ref()?.own(own, now)
    }

    /// Goes on with the address that a container has. It is not probed for: the container answers for it.
    pub(super) fn hold_as_before(&mut self, lease: Lease, cx: &mut Cx<'_>) -> Next {
        cx.own.exchange.close(cx.out);
        self.client.hold(Arc::new(lease));
        self.make_durable(cx)
    }
}
