//! What an ADD leaves to do at its interface: the MTU that the lease names, and the routes that its main plugin will not get.
//!
//! That is due from when the lease is won, and its record says so: a daemon that ends before it is done leaves it to the next
//! one. The ADD waits until the MTU was tried once. [`crate::binding::life::hold`] makes later tries: no ADD fails for its MTU.

use std::ops::ControlFlow::Break;

use super::{Acquire, Stage};
use crate::binding::{Common, Cx, Life, Next, SAME};
use crate::effect::Outcome;
use crate::interface::{Changed, Done, Lack, Wish, Work};
use crate::link::LinkCause;

impl Acquire {
    /// Records what will be due at the interface for the lease that was won. A container that ran before has the routes that it
    /// has.
    pub(super) fn expect_work(&mut self, common: &Common, cx: &mut Cx<'_>) {
        common.has_done(cx);
        self.sized = false;
        let Some(grant) = self.client.lease().map(|lease| common.grant(lease)) else { return };
        if grant.mtu.is_some_and(|mtu| u32::from(mtu) != self.mtu) {
            common.due(cx, Work::size_later);
        }
        if !self.adopts && grant.has_late() {
            common.due(cx, |work| work.lacks_routes(true));
        }
    }

    /// Has the MTU set if it is due and was not tried yet, and holds the lease after that. It waits until the macvlan is gone
    /// from which it was asked for, and until it is known whether another station uses the address.
    pub(super) fn make_fit(&mut self, common: &mut Common, cx: &mut Cx<'_>) -> Next {
        self.stage = Stage::Fitting;
        let work = common.work(cx.interfaces);
        if work.is_some_and(Work::is_under_way) || common.is_in_doubt() || cx.out.is_aside(common.id) {
            return SAME;
        }
        let is_due = work.is_some_and(|work| work.former().mtu_due && work.may_go_on(cx.now.boot));
        if let Some(by) = common.heard_conflict() {
            self.forget_won(common, Some(by), false, cx);
            return SAME;
        }
        if is_due {
            common.begin_work(&self.wish(common), cx);
            return SAME;
        }
        match self.held(common, cx) {
            Some(hold) => Break(Life::Held(hold)),
            None => SAME,
        }
    }

    fn wish(&self, common: &Common) -> Wish {
        self.client.lease().map_or(Wish::AsIs, |lease| Wish::Carry(Box::new(common.grant(lease))))
    }

    /// Goes on after a look, or after the change.
    pub(super) fn on_sizing(&mut self, common: &mut Common, outcome: Outcome, cx: &mut Cx<'_>) -> Next {
        if self.stage != Stage::Fitting {
            common.has_done(cx);
            return SAME;
        }
        match outcome {
            Outcome::Inspected(result) => match common.looked(result, self.wish(common), cx) {
                // If another change of the interface is under way, its end is heard of.
                Ok(act) => {
                    common.act(act, cx);
                    return SAME;
                }
                Err(cause) => return self.not_sized(common, cause, cx),
            },
            Outcome::Applied { taken, result } => {
                self.mtu = result.as_ref().map_or(self.mtu, |view| view.mtu);
                let current = self.client.lease().map(|lease| common.grant(lease));
                match common.work_mut(cx).and_then(|work| work.on_applied(taken, result, current.as_ref())) {
                    Some(Changed::Done(Done { lacks, .. })) => {
                        self.sized = lacks != Some(Lack::Mtu);
                        lacks.into_iter().for_each(|lack| common.work_later(&lack, Some(lack), cx));
                    }
                    Some(Changed::Failed(cause)) => return self.not_sized(common, cause, cx),
                    Some(Changed::Without(_) | Changed::Again) | None => {}
                }
            }
            outcome => tracing::warn!(?outcome, "outcome of another kind of effect"),
        }
        self.make_fit(common, cx)
    }

    /// Handles that the interface could not be looked at or changed: if it is gone, so is the ADD.
    fn not_sized(&mut self, common: &mut Common, cause: LinkCause, cx: &mut Cx<'_>) -> Next {
        if cause.is_gone() {
            return self.fail_link(common, cause, cx);
        }
        common.work_later(&cause, Some(Lack::Mtu), cx);
        self.make_fit(common, cx)
    }
}
