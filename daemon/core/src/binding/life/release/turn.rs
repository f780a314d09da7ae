//! A RELEASE's turn among those of its LAN, and what stops it: another binding that holds the identity, or has the address.

use super::{LEFT, Owed, Release, ReleaseStage, Way};
use crate::binding::common::tenancy;
use crate::binding::{Cx, Living, Report, Want};
use crate::event::EventKind;
use crate::time::Instant;

impl Release {
    /// Goes on to a RELEASE, if one is due and nobody else holds the identity.
    pub(super) fn try_release(&mut self, cx: &mut Cx<'_>) {
        if self.is_held_over(cx) {
            self.stage = ReleaseStage::Paused { marked: true };
            return self.answer_del(cx);
        }
        if self.owed == Owed::Left {
            cx.note(EventKind::Released, &self.lease, LEFT);
            return self.forget(cx);
        }
        if self.owed.is_nothing() {
            return self.forget(cx);
        }
        self.queue(cx);
    }

    /// Takes its turn among the RELEASEs of its LAN, unless another binding has the address.
    pub(super) fn queue(&mut self, cx: &mut Cx<'_>) {
        if self.give_way(cx) {
            return;
        }
        (self.stage, self.tried) = (ReleaseStage::Queued(None), true);
        if self.link_gone {
            // No caller waits for this.
            self.answer_del(cx);
        }
        cx.out.report(cx.own.id, Report::WantsTurn);
    }

    /// Records when its turn comes, which may be now. No DEL waits for it: the release is durable.
    pub(crate) fn on_turn(&mut self, at: Instant, cx: &mut Cx<'_>) {
        if !matches!(self.stage, ReleaseStage::Queued(None)) {
            return;
        }
        if at <= cx.now.boot {
            return self.go(cx);
        }
        self.stage = ReleaseStage::Queued(Some(at));
        self.answer_del(cx);
    }

    /// Stops: another binding has taken over the identity.
    pub(crate) fn pause(&mut self, cx: &mut Cx<'_>) {
        match self.stage {
            // It leaves before the other binding asks for anything.
            ReleaseStage::Going(Way::Leaving(_)) => self.released(cx),
            ReleaseStage::Waiting(_) | ReleaseStage::Queued(_) | ReleaseStage::Going(_) => {
                let before =
                    std::mem::replace(&mut self.stage, ReleaseStage::Paused { marked: true });
                if let ReleaseStage::Going(Way::Finding(op)) = before {
                    cx.out.forget(op);
                }
                cx.own.exchange.close(cx.out);
                self.answer_del(cx);
            }
            ReleaseStage::Marking | ReleaseStage::Paused { .. } | ReleaseStage::Forgetting => {}
        }
    }

    /// Ends without a RELEASE if another live binding has the address by now. Returns whether there is one.
    pub(crate) fn give_way(&mut self, cx: &mut Cx<'_>) -> bool {
        if self.owed.is_nothing() || self.is_leaving() {
            return false;
        }
        let is_anothers = !tenancy::is_unheld("RELEASE", &self.lease, cx);
        if is_anothers {
            self.end_unsaid(cx);
        }
        is_anothers
    }

    /// Ends, because a successor's write removed this record. Returns whether that is all; a later write of its own brings the
    /// record back, and is undone. The outcome of either write may come first.
    pub(in crate::binding) fn replaced(&mut self, cx: &mut Cx<'_>) -> bool {
        let waits = matches!(
            self.stage,
            ReleaseStage::Paused { .. } | ReleaseStage::Marking
        );
        if waits && !cx.own.persistence.busy() {
            return true;
        }
        self.owed = Owed::Nothing;
        self.forget(cx);
        false
    }

    /// Goes on if nobody holds the identity any more, or its holder has another address.
    pub(crate) fn unpause(&mut self, cx: &mut Cx<'_>) {
        if self.is_held_over(cx) {
            return;
        }
        if cx.held_by_other() {
            self.end_grace(cx);
        }
        match self.stage {
            ReleaseStage::Paused { .. } if self.owed.is_nothing() => self.forget(cx),
            ReleaseStage::Paused { marked: true } => {
                self.stage = ReleaseStage::Waiting(self.kept.unwrap_or(cx.now.boot));
                self.go_on(cx);
            }
            ReleaseStage::Paused { marked: false } => {
                self.stage = ReleaseStage::Marking;
                self.persist(Want::Releasing, cx);
            }
            ReleaseStage::Marking => self.write(cx),
            ReleaseStage::Waiting(_)
            | ReleaseStage::Queued(_)
            | ReleaseStage::Going(_)
            | ReleaseStage::Forgetting => {}
        }
    }
}
