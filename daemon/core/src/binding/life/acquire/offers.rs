//! Carries out what is ruled on offers and leases.
//!
//! An offer is refused silently: another server may have a better one, and its offer to the same DISCOVER counts during the
//! pause. What was granted without an offer is given back.

use std::ops::ControlFlow::{self, Continue};
use std::time::Duration;

use super::judge::{Case, Cause, Ruling};
use super::{Abort, Acquire, SETTLES};
use crate::binding::common::tenancy;
use crate::binding::common::tenancy::Taken;
use crate::binding::{Common, Cx, Life, Report};
use crate::conflict::PROBING;
use crate::limits::Limits;
use crate::rules::{Rule, cut};
use crate::source::{Lease, Miss, Output};

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
            ruling = self.misses.judge(&self.quest, Case::Missed(missed), None);
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
        let case = match granted {
            true => Case::Granted { lease, probed },
            false => Case::Offered(lease),
        };
        let ruling = self.misses.judge(&self.quest, case, held);
        if let Some(tenant) = tenant {
            let holder = tenant.id;
            let taken = Taken {
                tenant,
                lease: lease.clone(),
                granted,
            };
            tenancy::tell_taken(common, &taken, cx);
            if matches!(ruling, Ruling::Refuse(_)) {
                cx.out.report(common.id, Report::WantsRenewed(holder));
            }
        }
        ruling
    }

    /// Returns whether DISCOVER waits, because the only acceptable address is given back first.
    pub(super) fn holds_back(&mut self, common: &Common, cx: &mut Cx<'_>) -> bool {
        let waits = self.unblocks(common, cx);
        if waits {
            self.client.hold_back(cx.now.boot + SETTLES);
        }
        waits
    }
}
