//! What an ADD leaves to do at its interface: the lease's MTU, and the routes that its main plugin does not get.
//!
//! That is due as soon as the lease is won, and its record says so: if the daemon ends first, the next one does it. The ADD
//! waits until the MTU was tried once. [`crate::binding::life::hold`] makes later tries: no ADD fails because of its MTU.

use std::ops::ControlFlow::Break;

use super::{Acquire, Phase};
use crate::binding::common::change;
use crate::binding::{Common, Cx, Life, Next, SAME};
use crate::effect::Outcome;
use crate::interface::{Done, Holding, Lack, Seat, Work, Worked};
use crate::link::LinkCause;

impl Acquire {
    /// Records what will be due at the interface for the lease that was won.
    pub(super) fn expect_work(&mut self, common: &Common, cx: &mut Cx<'_>) {
        self.sized = false;
        let Some(grant) = self.client.lease().map(|lease| common.grant(lease)) else {
            return common.has_done(cx);
        };
        common
            .seat_mut(cx)
            .into_iter()
            .for_each(|seat| seat.is_won(&grant, self.mtu, self.quest.adopts()));
    }

    /// Has the MTU set if it is due and was not tried yet, and then holds the lease. It waits until it is known whether another
    /// station uses the address; only then are the sockets given up, over which the lease could be declined. After that it waits
    /// until the temporary macvlan is gone.
    pub(super) fn make_fit(&mut self, common: &mut Common, cx: &mut Cx<'_>) -> Next {
        let work = common.seat(cx.interfaces).and_then(Seat::work);
        if work.is_some_and(Work::busy) || common.is_in_doubt() {
            return SAME;
        }
        if let Some(by) = common.heard_conflict() {
            self.forget_won(common, Some(by), cx);
            return SAME;
        }
        common.hand_over(cx);
        common.come_back();
        if cx.out.is_aside(common.id) {
            return SAME;
        }
        let work = common.seat(cx.interfaces).and_then(Seat::work);
        let is_due = work.is_some_and(|work| work.former().mtu_due && work.may_go_on(cx.now.boot));
        if is_due && let Some(holding) = self.holding(common) {
            change::go_on(common, &holding, cx);
            return SAME;
        }
        match self.held(common, cx) {
            Some(hold) => Break(Life::Held(hold)),
            None => SAME,
        }
    }

    fn holding<'a>(&self, common: &'a Common) -> Option<Holding<'a>> {
        self.client
            .lease()
            .map(|lease| common.holding(&self.client, lease))
    }

    /// Goes on after a look, or after the change.
    pub(super) fn on_sizing(
        &mut self,
        common: &mut Common,
        outcome: Outcome,
        cx: &mut Cx<'_>,
    ) -> Next {
        let holding = self.holding(common).filter(|_| self.phase == Phase::Fit);
        let Some(holding) = holding else {
            common.has_done(cx);
            return SAME;
        };
        match change::worked(common, outcome, &holding, cx) {
            // If another change of the interface is under way, its end will be reported.
            Worked::Waits => return SAME,
            Worked::Again { .. } => {}
            Worked::Done(Done { lacks, mtu, .. }) => {
                (self.mtu, self.sized) = (mtu, lacks != Some(Lack::Mtu));
                lacks
                    .into_iter()
                    .for_each(|lack| change::try_later(common, &lack, Some(lack), cx));
            }
            Worked::Failed(cause) => return self.not_sized(common, cause, cx),
        }
        self.make_fit(common, cx)
    }

    /// Handles an interface that could not be looked at or changed: if it is gone, the ADD fails.
    fn not_sized(&mut self, common: &mut Common, cause: LinkCause, cx: &mut Cx<'_>) -> Next {
        if cause.is_gone() {
            return self.fail_link(common, cause, cx);
        }
        change::try_later(common, &cause, Some(Lack::Mtu), cx);
        self.make_fit(common, cx)
    }
}
