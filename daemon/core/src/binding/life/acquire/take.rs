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
use super::{Abort, Acquire, Phase};
use crate::binding::common::tenancy::{self, Taken};
use crate::binding::{Common, Cx, Life, Living, Next, Report, SAME};
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
        common: &mut Common,
        output: &mut Output,
        cx: &mut Cx<'_>,
    ) -> ControlFlow<Life, bool> {
        let now = cx.now.boot;
        let (mut ruling, mut asks) = (Ruling::GoOn, false);
        if let Some(missed) = output.missed.take() {
            let unwanted = matches!(missed.miss, Miss::Unwanted { .. });
            if matches!(missed.miss, Miss::Nak { .. }) {
                self.spoils(common, missed.address, cx);
            }
            ruling = self.misses.missed(&self.quest, missed);
            let fails = matches!(ruling, Ruling::Fail(_));
            if !fails && self.unblocks(common, cx) {
                ruling = Ruling::Refuse(SETTLES);
            } else if !fails
                && unwanted
                && let Some(patience) = common.profile.wants.patience
            {
                // Docker creates one endpoint after the other.
                self.limit = self.limit.min(self.quest.began + patience).max(now);
            }
        }
        if let Some((lease, granted)) = tenancy::given(&self.client, output, None, now) {
            let lease = lease.clone();
            (ruling, asks) = (self.rule(common, &lease, granted, cx), !granted);
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
                self.abort(common, Abort::Because(failure), cx)?;
                return Continue(true);
            }
        }
        Continue(false)
    }

    fn rule(
        &mut self,
        common: &mut Common,
        lease: &Lease,
        granted: bool,
        cx: &mut Cx<'_>,
    ) -> Ruling {
        let address = lease.ip();
        let unfit = self.quest.unfit(address);
        if let Some(why) = unfit {
            tracing::warn!(attachment = %common.attachment, %address, server = %lease.server, %why, "not taken");
        }
        let counts = unfit.is_none() && !cut(Rule::HeldOffer);
        let tenant = tenancy::tenant(common, address, cx).filter(|_| counts);
        let held = tenant.as_ref().map(|tenant| Cause::Held {
            holder: tenant.who.clone(),
            shared: Some(tenant.chaddr).filter(|chaddr| *chaddr == common.identity.chaddr),
        });
        let probed = common.probes_first().then(|| cx.now.boot + PROBING);
        let quest = &self.quest;
        let ruling = self.misses.judge(quest, lease, granted, held, probed);
        if let Some(tenant) = tenant {
            let holder = tenant.id;
            let lease = lease.clone();
            tenancy::tell_taken(common, &Taken { tenant, lease }, cx);
            if !matches!(ruling, Ruling::GoOn) && !cut(Rule::RenewHolder) {
                cx.out.report(common.id, Report::WantsRenewed(holder));
            }
        }
        ruling
    }

    /// Has the only acceptable address given back, if it is kept for another client, or for this one with another Ethernet address:
    /// its server may give it to nobody else, and keep offering another. Returns whether DISCOVER must wait for that.
    fn unblocks(&mut self, common: &Common, cx: &mut Cx<'_>) -> bool {
        let wanted = self.quest.insists().filter(|_| !self.quest.adopts());
        let wanted = wanted.filter(|_| !cut(Rule::Unblock));
        let Some(address) = wanted.filter(|it| cx.holders.is_left_with(&common.identity, *it))
        else {
            return false;
        };
        if std::mem::replace(&mut self.unblocked, true) {
            return false;
        }
        cx.out.report(common.id, Report::Insists(address));
        true
    }

    /// Returns whether DISCOVER waits, because the only acceptable address is given back first.
    pub(super) fn holds_back(&mut self, common: &Common, cx: &mut Cx<'_>) -> bool {
        let waits = self.unblocks(common, cx);
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
    pub(super) fn take_trusted(&mut self, common: &Common, cx: &Cx<'_>) -> Option<Arc<Lease>> {
        self.trusts_at().filter(|at| cx.now.boot >= *at)?;
        let (lease, _) = self.trusts.take()?;
        let is_free = common.claim().is_none() && tenancy::tenant(common, lease.ip(), cx).is_none();
        let fits = self.quest.unfit(lease.ip()).is_none();
        Some(lease).filter(|lease| is_free && fits && !lease.expired(cx.now.boot))
    }

    /// Takes the lease unconfirmed. Its holder keeps asking for it.
    pub(super) fn trust(
        &mut self,
        common: &mut Common,
        lease: Arc<Lease>,
        cx: &mut Cx<'_>,
    ) -> Next {
        tracing::warn!(attachment = %common.attachment, address = %lease.address, "no server answers: using the last lease as it is");
        common.exchange.close(cx.out);
        self.trusted = true;
        // The limit may be this close because no server was expected to answer: what is left to do has its own time.
        self.limit = self.limit.max(cx.now.boot + AFTERWARDS);
        self.client.trust(lease, cx.now.boot);
        self.make_durable(common, cx)
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
        common: &mut Common,
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
                tracing::warn!(attachment = %common.attachment, %none, "no server answers, and the fallback has no free address");
                return match resort.has_none(none.clone()) {
                    true => SAME,
                    false => self.abort(common, Abort::Because(Failure::NoAddress(none)), cx),
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
        self.enter(Phase::Ask);
        let quest = &self.quest;
        let resort = self.resort.as_mut();
        if !resort.is_some_and(|resort| resort.wish_again(address, quest, common.id, cx)) {
            let failure = Failure::Conflict { address, by };
            return self.abort(common, Abort::Because(failure), cx);
        }
        SAME
    }

    /// Returns the lease of a container that runs with an address of the ranges. No server knows about it.
    pub(super) fn own_of_range(&self, now: Instant) -> Option<Lease> {
        let own = self.quest.insists().filter(|_| self.quest.adopts())?;
        self.resort.as_ref()?.own(own, now)
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
}
