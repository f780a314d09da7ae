//! Letting go of a lease that an ADD has got and that is no good: somebody else uses its address, or it has ended.
//!
//! A lease that is not durable is declined at once. One that is, the store forgets first: a daemon that came between the
//! DECLINE and that would take a declined lease up again. Whether somebody still wants another makes no difference to that.

use std::time::Duration;

use super::persistence::Want;
use super::release::{Owed, Release};
use super::{Abort, Binding, Cx, Leave, Life, Report, Stage};
use crate::conflict::lans::{MAX_CONFLICTS, TooSoon};
use crate::dhcpv4::lease::Lease;
use crate::dhcpv4::{Event, Loss, Output, Verdict};
use crate::effect::{Failure, StoreCause};
use crate::time::whole_millis;
use crate::wire::Mac;

/// An ADD that would have less than this left for its try does not take the turn of another.
const LEAST: Duration = Duration::from_secs(8);

impl Binding {
    /// Lets go of the lease that there is, and looks for another.
    pub(super) fn seek_another(&mut self, by: Option<Mac>, cx: &mut Cx<'_>) {
        self.let_go(Stage::Exchanging, by, cx);
        self.acquire_again(cx);
    }

    /// Lets go of the lease that there is: it has ended, or it is declined, on whichever sockets there are.
    fn let_go(&mut self, next: Stage, by: Option<Mac>, cx: &mut Cx<'_>) {
        let Life::Acquiring(acquire) = &mut self.life else { return };
        acquire.stage = next;
        let event = match by.filter(|_| !acquire.has_ended(cx.now.boot)) {
            Some(by) => Event::Conflict { by },
            None => Event::Clock,
        };
        let Output { frames, verdict, .. } = acquire.client.handle(cx.now.boot, event);
        match &verdict {
            Some(Verdict::Lost(lease, Loss::Conflict { .. })) if !self.may_decline(lease, cx) => {}
            Some(_) | None => self.guard_send(frames, cx),
        }
        match verdict {
            Some(Verdict::Lost(lease, Loss::Conflict { by })) => self.acquire_declined(&lease, by, cx),
            Some(Verdict::Lost(lease, Loss::Expired { .. })) => self.acquire_outlived(&lease, cx),
            Some(
                Verdict::Lost(_, Loss::Nak { .. } | Loss::Misplaced { .. } | Loss::Double { .. })
                | Verdict::Won(_)
                | Verdict::Kept(_)
                | Verdict::Unwanted { .. },
            )
            | None => {}
        }
    }

    /// Has a lease forgotten that is no good although the store has it. It is declined when that is done: a daemon that came
    /// between the two would take a declined lease up again.
    pub(super) fn forget_won(&mut self, by: Option<Mac>, aborted: bool, cx: &mut Cx<'_>) {
        let Life::Acquiring(acquire) = &mut self.life else { return };
        acquire.stage = Stage::Forgetting { by, aborted };
        self.persist(Want::Gone, cx);
    }

    /// An ADD that can do with another address goes on; it needs no permit for that, its sockets are open.
    pub(super) fn acquire_declined(&mut self, lease: &Lease, by: Mac, cx: &mut Cx<'_>) {
        self.declined(lease, by, cx);
        self.close_guard(cx);
        let Life::Acquiring(acquire) = &mut self.life else { return };
        let address = lease.ip();
        acquire.declined.push((address, by));
        // What this ADD had taken over was declined with it.
        cx.out.report(self.id, Report::Undone(address, acquire.replaces.clone()));
        if acquire.insists == Some(address) && acquire.is_wanted() {
            return self.abort(Abort::Because(Failure::Conflict { address, by }), cx);
        }
        if acquire.declined.len() >= MAX_CONFLICTS as usize && acquire.is_wanted() {
            let failure = acquire.in_use(&self.identity.lan);
            self.abort(failure.map_or(Abort::Silent, Abort::Because), cx);
        }
    }

    /// Returns whether an address that is not known yet may be tried now on this LAN. If not, an ADD waits where its time allows
    /// for that, and fails at once where it does not.
    pub(super) fn may_try(&mut self, cx: &mut Cx<'_>) -> bool {
        if !self.detects() {
            return true;
        }
        let (lan, now) = (&self.identity.lan, cx.now.boot);
        let Err(TooSoon { at, conflicts, last: (address, by) }) = cx.conflicts.begin(lan, now) else { return true };
        match &mut self.life {
            Life::Acquiring(acquire) if at + LEAST >= acquire.limit => {
                let wait = Duration::from_secs(at.saturating_since(now).as_secs_f64().ceil() as u64);
                let held_back = Failure::HeldBack { lan: lan.clone(), wait, conflicts, address, by };
                let failure = acquire.in_use(lan).unwrap_or(held_back);
                self.abort(Abort::Because(failure), cx);
            }
            Life::Acquiring(acquire) => acquire.client.hold_back(at),
            Life::Held(hold) => hold.client.hold_back(at),
            Life::Releasing(_) => {}
        }
        false
    }

    /// The lease ended before it was known to be free, or durable. An ADD that insists on its address cannot begin anew.
    fn acquire_outlived(&mut self, lease: &Lease, cx: &mut Cx<'_>) {
        tracing::warn!(attachment = %self.attachment, address = %lease.address, "lease ended before it could be used");
        self.close_guard(cx);
        let Life::Acquiring(acquire) = &self.life else { return };
        if acquire.insists.is_some() && acquire.is_wanted() {
            let waited = whole_millis(cx.now.boot.saturating_since(acquire.began));
            let waiting_for = "the lease to be known as good, and it ended before";
            self.abort(Abort::Because(Failure::TimedOut { waiting_for, waited }), cx);
        }
    }

    /// Goes on after the store was told of a lease that is no good. Where another binding has the identity by now, that is
    /// left to hear of the conflict itself.
    pub(super) fn forgot_won(
        &mut self,
        result: Result<(), StoreCause>,
        by: Option<Mac>,
        aborted: bool,
        cx: &mut Cx<'_>,
    ) {
        match result {
            Ok(()) if !aborted => return self.seek_another(by, cx),
            _ if self.held_by_other(cx) => {}
            _ => self.let_go(Stage::Over, by, cx),
        }
        match result {
            Ok(()) => {
                let Life::Acquiring(acquire) = &mut self.life else { return };
                acquire.stage = Stage::Over;
                self.close(cx);
                cx.out.report(self.id, Report::Over);
            }
            Err(cause) => {
                if !aborted {
                    cx.out.report(self.id, Report::Failed(Failure::Store(cause)));
                }
                self.close(cx);
                let Some(lease) = self.persistence.durable().cloned() else { return };
                self.life = Life::Releasing(Box::new(Release::new(lease, Owed::Nothing, Leave::Undone)));
                self.release_begin(cx);
            }
        }
    }
}
