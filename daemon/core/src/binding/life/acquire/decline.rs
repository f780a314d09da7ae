//! Letting go of a useless lease that an ADD has got: another station uses its address, or it has ended.
//!
//! A lease that is not durable is declined at once. The store first deletes one that is durable: a daemon that started
//! between the two would hold a declined lease again. That somebody still wants another lease makes no difference.

use std::ops::ControlFlow::Break;

use super::judge::{Case, Ruling};
use super::{Abort, Acquire, Phase};
use crate::binding::common::guard::decline;
use crate::binding::common::tenancy;
use crate::binding::life::release::{Owed, Release};
use crate::binding::{Common, Cx, Leave, Living, Next, Report, SAME, Want};
use crate::effect::{Failure, StoreCause};
use crate::source::{Lease, Loss, Output, Signal, Verdict};
use crate::time::whole_millis;
use crate::wire::Mac;

impl Acquire {
    /// Lets go of the current lease, and looks for another.
    pub(super) fn seek_another(
        &mut self,
        common: &mut Common,
        by: Option<Mac>,
        cx: &mut Cx<'_>,
    ) -> Next {
        if let (Some(by), Some(address)) = (by, self.of_range()) {
            return self.next_of_range(common, (address, by), cx);
        }
        self.let_go(common, Phase::Ask, by, cx)?;
        self.seek(common, cx)
    }

    /// Lets go of the current lease: it has ended, or it is declined, on whichever sockets there are.
    fn let_go(
        &mut self,
        common: &mut Common,
        next: Phase,
        by: Option<Mac>,
        cx: &mut Cx<'_>,
    ) -> Next {
        self.enter(next);
        let signal = match by.filter(|_| !self.has_ended(cx.now.boot)) {
            Some(by) => Signal::Conflict { by },
            None => Signal::Clock,
        };
        let Output {
            frames, verdict, ..
        } = self.client.handle(cx.now.boot, signal);
        match &verdict {
            Some(Verdict::Lost(lease, Loss::Conflict { .. }))
                if !tenancy::may_decline(common, lease, cx) => {}
            Some(_) | None => common.guard_send(frames, cx),
        }
        match verdict {
            Some(Verdict::Lost(lease, Loss::Conflict { by })) => {
                self.declined(common, &lease, by, cx)
            }
            Some(Verdict::Lost(lease, Loss::Expired { .. })) => self.outlived(common, &lease, cx),
            Some(
                Verdict::Lost(_, Loss::Nak { .. } | Loss::Misplaced { .. })
                | Verdict::Won(_)
                | Verdict::Kept(_)
                | Verdict::Unwanted { .. },
            )
            | None => SAME,
        }
    }

    /// Has the store delete a useless lease. It is declined when that is done: a daemon that started between the two would hold
    /// a declined lease again.
    pub(super) fn forget_won(&mut self, common: &mut Common, by: Option<Mac>, cx: &mut Cx<'_>) {
        self.enter(Phase::Forget { by });
        self.persist(common, Want::Gone, cx);
    }

    /// Goes on after a DECLINE, if another address is acceptable. No permit is needed: the sockets are open.
    pub(super) fn declined(
        &mut self,
        common: &mut Common,
        lease: &Lease,
        by: Mac,
        cx: &mut Cx<'_>,
    ) -> Next {
        // If no server granted it, none must be told.
        if !lease.source.is_asked() {
            common.close_guard(cx);
            return SAME;
        }
        let may = decline::declined(common, lease, by, cx);
        common.close_guard(cx);
        self.spoils(common, lease.ip(), cx);
        let case = Case::InUse {
            lease,
            by,
            may_decline: may,
        };
        let ruling = self.misses.judge(&self.quest, case, None);
        match ruling {
            Ruling::Fail(failure) if self.is_wanted() => {
                self.abort(common, Abort::Because(failure), cx)
            }
            _ => SAME,
        }
    }

    /// Handles a lease that ended before its address was known to be free, or before it was durable. An ADD that insists on
    /// its address cannot start again.
    fn outlived(&mut self, common: &mut Common, lease: &Lease, cx: &mut Cx<'_>) -> Next {
        tracing::warn!(attachment = %common.attachment, address = %lease.address, "lease ended before it could be used");
        common.close_guard(cx);
        if self.quest.insists().is_some() && self.is_wanted() {
            let waited = whole_millis(cx.now.boot.saturating_since(self.quest.began));
            let waiting_for = "the lease to be confirmed as good, and it ended first";
            return self.abort(
                common,
                Abort::Because(Failure::TimedOut(waiting_for, waited)),
                cx,
            );
        }
        SAME
    }

    /// Goes on after the store has deleted a useless lease. If another binding has the identity by now, it will hear the
    /// conflict itself.
    pub(super) fn forgot_won(
        &mut self,
        common: &mut Common,
        result: Result<(), StoreCause>,
        by: Option<Mac>,
        cx: &mut Cx<'_>,
    ) -> Next {
        let was_wanted = self.wanted;
        match result {
            Ok(()) if self.wanted => return self.seek_another(common, by, cx),
            _ if common.held_by_other(cx) => {}
            // The sockets failed with their link: no DECLINE can leave.
            Ok(()) if !common.can_send() && self.client.owed(cx.now.boot).is_some() => {
                return self.give_back(common, false, cx);
            }
            _ => self.let_go(common, Phase::Over, by, cx)?,
        }
        match result {
            Ok(()) => {
                self.enter(Phase::Over);
                common.close(cx);
                cx.out.report(common.id, Report::Over);
                SAME
            }
            Err(cause) => {
                if was_wanted {
                    cx.out
                        .report(common.id, Report::Failed(Failure::Store(cause)));
                }
                common.close(cx);
                let Some(lease) = common.persistence.durable().cloned() else {
                    return SAME;
                };
                Break(Release::new(lease, Owed::Nothing, Leave::Undone).begun(common, cx))
            }
        }
    }
}
