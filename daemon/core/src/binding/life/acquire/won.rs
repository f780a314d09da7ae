//! What becomes of a lease that an ADD wins. It is written, its interface made fit, and then it is held; or it is useless, and
//! another is looked for; or nobody wants it any more, and what servers were asked for, or granted, is undone.
//!
//! The lease's MTU, and the routes that its main plugin does not get, are due as soon as the lease is won, and its record says so:
//! if the daemon ends first, the next one does it. The ADD waits until the MTU was tried once. [`crate::binding::life::hold`] makes
//! later tries: no ADD fails because of its MTU.
//!
//! A useless lease, whose address another station uses or which has ended, is declined at once if it is not durable. The store first
//! deletes one that is: a daemon that started between the two would hold a declined lease again. That somebody still wants another
//! lease makes no difference.

use std::net::Ipv4Addr;
use std::ops::ControlFlow::Break;

use super::judge::Ruling;
use super::{Acquire, Phase};
use crate::binding::common::guard::decline;
use crate::binding::common::{change, tenancy};
use crate::binding::life::release::{Owed, Release};
use crate::binding::{Common, Cx, Hold, Leave, Life, Living, Next, Report, SAME, Want};
use crate::effect::{Failure, Outcome, StoreCause};
use crate::event::EventKind;
use crate::interface::{Done, Holding, Lack, Presence, Seat, Work, Worked};
use crate::outbox::Stake;
use crate::record::BindingId;
use crate::source::{Lease, Loss, Signal, Verdict};
use crate::time::whole_millis;
use crate::wire::Mac;

impl Acquire {
    /// Has the lease written. The sockets stay open in case it has to go back.
    pub(super) fn make_durable(&mut self, cx: &mut Cx<'_>) -> Next {
        if self.has_ended(cx.now.boot) {
            return self.seek_another(None, cx);
        }
        self.enter(Phase::Write);
        self.pace.writes(cx.now.boot);
        // A lease of another address under this identity is given back once this one is held.
        let own = self.client.lease().map(Lease::ip);
        let claim = |id: &BindingId| cx.holders.standing(*id).and_then(|standing| standing.claim);
        self.replaces
            .retain(|id| claim(id).is_none_or(|claim| Some(claim.address) == own));
        let takes_over = self
            .replaces
            .iter()
            .any(|id| cx.holders.standing(*id).is_some());
        let replaces = self.replaces.clone();
        // An address that was offered before may not be this one: rapid commit may bring another.
        if let Some(address) = own {
            cx.guard_only(address);
        }
        cx.out.report(cx.own.id, Report::ExchangeOver);
        self.note_acquired(takes_over, cx);
        self.client
            .lease()
            .into_iter()
            .for_each(|lease| _ = cx.own.answers(lease));
        self.expect_work(cx);
        self.persist(Want::Bound { replaces }, cx);
        SAME
    }

    fn note_acquired(&self, takes_over: bool, cx: &mut Cx<'_>) {
        let Some(lease) = self.client.lease() else {
            return;
        };
        let of_range = self
            .resort
            .as_ref()
            .filter(|_| !lease.source.is_asked())
            .map(|resort| resort.why());
        let (kind, cause) = match self.quest.adopts() {
            true if of_range.is_some() => (
                EventKind::Adopted,
                "the container already ran, with an address of its network's fallback",
            ),
            false if let Some(why) = &of_range => (EventKind::Acquired, why.as_str()),
            _ if self.trusted => (
                EventKind::Acquired,
                "no server answered, and the lease of its identity is still good",
            ),
            true => (EventKind::Adopted, "the container already ran"),
            false if takes_over => (EventKind::Acquired, "ADD replaced an earlier attachment"),
            false => (EventKind::Acquired, "ADD"),
        };
        cx.note_with(Stake::Bound, kind, lease, cause);
    }

    /// Goes on after the lease was written, or could not be.
    pub(super) fn on_written(&mut self, result: Result<(), StoreCause>, cx: &mut Cx<'_>) -> Next {
        if result.is_ok() {
            self.pace.has_written(cx.now.boot);
            cx.out.report(
                cx.own.id,
                Report::Replaced(std::mem::take(&mut self.replaces)),
            );
        }
        match (result, self.wanted) {
            (Ok(()), false) if let Some((_, by)) = cx.own.claim() => {
                self.forget_won(Some(by), cx);
                SAME
            }
            (Ok(()), false) => self.give_back(false, cx),
            (Ok(()), true) => {
                self.enter(Phase::Fit);
                self.make_fit(cx)
            }
            // It is held in memory until there is room.
            (Err(cause), true) if self.quest.adopts() => {
                cx.own.exchange.close(cx.out);
                let Some(hold) = self.held(cx) else {
                    return SAME;
                };
                cx.write_later(&cause);
                Break(Life::Held(hold))
            }
            (Err(cause), _) => {
                if self.wanted {
                    cx.out
                        .report(cx.own.id, Report::Failed(Failure::Store(cause)));
                }
                self.undo_write(cx)
            }
        }
    }

    /// Records what will be due at the interface for the lease that was won.
    pub(super) fn expect_work(&mut self, cx: &mut Cx<'_>) {
        self.sized = false;
        let Some(grant) = self.client.lease().map(|lease| cx.own.grant(lease)) else {
            return cx.has_done();
        };
        cx.own
            .seat_mut(cx.interfaces)
            .into_iter()
            .for_each(|seat| seat.is_won(&grant, self.mtu, self.quest.adopts()));
    }

    /// Has the MTU set if it is due and was not tried yet, and then holds the lease. It waits until it is known whether another
    /// station uses the address; only then are the sockets given up, over which the lease could be declined. After that it waits
    /// until the temporary macvlan is gone.
    pub(super) fn make_fit(&mut self, cx: &mut Cx<'_>) -> Next {
        let work = cx.own.seat(cx.interfaces).and_then(Seat::work);
        if work.is_some_and(Work::busy) || cx.own.is_in_doubt() {
            return SAME;
        }
        if let Some(by) = cx.own.heard_conflict() {
            self.forget_won(Some(by), cx);
            return SAME;
        }
        cx.hand_over();
        cx.own.come_back();
        if cx.out.is_aside(cx.own.id) {
            return SAME;
        }
        let work = cx.own.seat(cx.interfaces).and_then(Seat::work);
        let is_due = work.is_some_and(|work| work.former().mtu_due && work.may_go_on(cx.now.boot));
        if is_due && let Some(holding) = self.holding(cx.own) {
            change::go_on(&holding, cx);
            return SAME;
        }
        match self.held(cx) {
            Some(hold) => Break(Life::Held(hold)),
            None => SAME,
        }
    }

    fn holding(&self, common: &Common) -> Option<Holding> {
        self.client
            .lease()
            .map(|lease| common.holding(&self.client, lease))
    }

    /// Goes on after a look at the interface, or a change of it. If it is gone, the ADD fails.
    pub(super) fn on_sizing(&mut self, outcome: Outcome, cx: &mut Cx<'_>) -> Next {
        let holding = self.holding(cx.own).filter(|_| self.phase == Phase::Fit);
        let Some(holding) = holding else {
            cx.has_done();
            return SAME;
        };
        match change::worked(outcome, &holding, cx) {
            // If another change of the interface is under way, its end will be reported.
            Worked::Waits => return SAME,
            Worked::Again { .. } => {}
            Worked::Done(Done { lacks, mtu, .. }) => {
                (self.mtu, self.sized) = (mtu, lacks != Some(Lack::Mtu));
                lacks
                    .into_iter()
                    .for_each(|lack| change::try_later(&lack, Some(lack), cx));
            }
            Worked::Failed(cause) if cause.is_gone() => return self.fail_link(cause, cx),
            Worked::Failed(cause) => change::try_later(&cause, Some(Lack::Mtu), cx),
        }
        self.make_fit(cx)
    }

    /// Returns the life that holds the lease, which is durable and whose link is ready: the ADD may be answered. `None` if the
    /// lease has ended.
    pub(super) fn held(&mut self, cx: &mut Cx<'_>) -> Option<Box<Hold>> {
        let lease = self.client.shared()?;
        if !self.quest.adopts() && lease.expired(cx.now.boot) {
            cx.note(
                EventKind::Expired,
                &lease,
                "it ended before its ADD could be answered",
            );
            self.forget_won(None, cx);
            return None;
        }
        let seconds = lease.times.map(|times| times.end.as_secs());
        tracing::info!(attachment = %cx.own.attachment, address = %lease.address, server = %lease.server, seconds, "lease acquired");
        if !self.quest.adopts() && !self.trusted {
            let counts = &mut cx.out.counts;
            self.pace.count(self.queued, self.since, counts);
        }
        let mut client = self.client.clone();
        client.not_waited_for();
        client.set_station(cx.own.station());
        let report = Report::Leased(Box::new((*lease).clone()));
        cx.out.report(cx.own.id, report);
        cx.guard_lease(lease.ip(), self.quest.adopts() && !self.taken_off);
        let (now, t1) = (cx.now.boot, lease.t1());
        if let Some(seat) = cx.own.seat_mut(cx.interfaces) {
            match self.taken_off {
                true => seat.was(Presence::TakenOff),
                false => seat.is_answered(now, t1.map(|t1| t1.saturating_since(now))),
            }
        }
        let mut hold = Hold::new(client, lease);
        if self.sized {
            hold.has_changed();
        }
        Some(Box::new(hold))
    }

    /// Lets go of the current lease, and looks for another.
    pub(super) fn seek_another(&mut self, by: Option<Mac>, cx: &mut Cx<'_>) -> Next {
        if let (Some(by), Some(address)) = (by, self.of_range()) {
            return self.next_of_range((address, by), cx);
        }
        self.let_go(Phase::Ask, by, cx)?;
        self.seek(cx)
    }

    /// Lets go of the current lease: it has ended, or it is declined, on whichever sockets there are.
    fn let_go(&mut self, next: Phase, by: Option<Mac>, cx: &mut Cx<'_>) -> Next {
        self.enter(next);
        let signal = match by.filter(|_| !self.has_ended(cx.now.boot)) {
            Some(by) => Signal::Conflict { by },
            None => Signal::Clock,
        };
        let mut output = self.client.handle(cx.now.boot, signal);
        tenancy::limit_declines(&mut output, cx);
        cx.guard_send(output.frames);
        match output.verdict {
            Some(Verdict::Lost(lease, Loss::Conflict { by })) => self.declined(&lease, by, cx),
            Some(Verdict::Lost(lease, Loss::Expired { .. })) => self.outlived(&lease, cx),
            Some(
                Verdict::Lost(_, Loss::Nak { .. } | Loss::Misplaced { .. }) | Verdict::Granted(_),
            )
            | None => SAME,
        }
    }

    /// Goes on after a DECLINE, if another address is acceptable. No permit is needed: the sockets are open.
    pub(super) fn declined(&mut self, lease: &Lease, by: Mac, cx: &mut Cx<'_>) -> Next {
        // If no server granted it, none must be told.
        if !lease.source.is_asked() {
            cx.close_guard();
            return SAME;
        }
        let may = decline::declined(lease, by, cx);
        cx.close_guard();
        self.spoils(lease.ip(), cx);
        match self.misses.used(&self.quest, lease, by, may) {
            Ruling::Fail(failure) if self.wanted => self.abort(Some(failure), cx),
            _ => SAME,
        }
    }

    /// Handles a lease that ended before its address was known to be free, or before it was durable. An ADD that insists on
    /// its address cannot start again.
    fn outlived(&mut self, lease: &Lease, cx: &mut Cx<'_>) -> Next {
        tracing::warn!(attachment = %cx.own.attachment, address = %lease.address, "lease ended before it could be used");
        cx.close_guard();
        if self.quest.insists().is_some() && self.wanted {
            let waited = whole_millis(cx.now.boot.saturating_since(self.quest.began));
            let waiting_for = "the lease to be confirmed as good, and it ended first";
            return self.abort(Some(Failure::TimedOut(waiting_for, waited)), cx);
        }
        SAME
    }

    /// Has the store delete a useless lease. It is declined when that is done.
    pub(super) fn forget_won(&mut self, by: Option<Mac>, cx: &mut Cx<'_>) {
        self.enter(Phase::Forget { by });
        self.persist(Want::Gone, cx);
    }

    /// Goes on after the store has deleted a useless lease. If another binding has the identity by now, it will hear the
    /// conflict itself.
    pub(super) fn forgot_won(
        &mut self,
        result: Result<(), StoreCause>,
        by: Option<Mac>,
        cx: &mut Cx<'_>,
    ) -> Next {
        let was_wanted = self.wanted;
        match result {
            Ok(()) if self.wanted => return self.seek_another(by, cx),
            _ if cx.held_by_other() => {}
            // The sockets failed with their link: no DECLINE can leave.
            Ok(()) if !cx.own.can_send() && self.client.owed(cx.now.boot).is_some() => {
                return self.give_back(false, cx);
            }
            _ => self.let_go(Phase::Over, by, cx)?,
        }
        match result {
            Ok(()) => {
                self.enter(Phase::Over);
                cx.close();
                cx.out.report(cx.own.id, Report::Over);
                SAME
            }
            Err(cause) => {
                if was_wanted {
                    cx.out
                        .report(cx.own.id, Report::Failed(Failure::Store(cause)));
                }
                cx.close();
                let Some(lease) = cx.own.persistence.durable().cloned() else {
                    return SAME;
                };
                Break(Release::new(lease, Owed::Nothing, Leave::Undone).begun(cx))
            }
        }
    }

    /// Closes the exchange. What a server was asked to commit is first released or declined on the same sockets, unless another
    /// binding has taken over the identity meanwhile, or has the address.
    pub(super) fn undo_exchange(&mut self, cx: &mut Cx<'_>) {
        let own = self.claim(cx.now.boot).map(|claim| claim.address);
        if cx.is_held_over(own) {
            return cx.close();
        }
        if let Some(lease) = self.client.owed(cx.now.boot) {
            if !tenancy::is_unheld("RELEASE", lease, cx) {
                return cx.close();
            }
            self.spoils(lease.ip(), cx);
        }
        if !decline::owed(&mut self.client, cx) {
            let release = self.client.abort(cx.now.boot);
            cx.own.exchange.send(release.into_iter().collect(), cx.out);
        }
        cx.close();
    }

    /// Reports that an address is refused, declined or given back: no later ADD uses a lease of it which this one takes over, even if
    /// no server answers by then.
    pub(super) fn spoils(&self, address: Ipv4Addr, cx: &mut Cx<'_>) {
        let report = Report::Spoiled(address, self.replaces.clone());
        cx.out.report(cx.own.id, report);
    }

    /// Returns whether a server may hold a lease for this ADD, and neither RELEASE nor DECLINE can go out on the same sockets.
    pub(super) fn owes_unsaid(&self, link_gone: bool, cx: &Cx<'_>) -> bool {
        let mute = !cx.own.exchange.can_send() || link_gone && cx.own.line.is_none();
        mute && !cx.held_by_other() && self.client.owed(cx.now.boot).is_some()
    }

    /// Gives back what a server was asked to commit, or has granted, over sockets other than those of the request: like any
    /// other lease, with tries until it would have ended.
    pub(super) fn give_back(&mut self, link_gone: bool, cx: &mut Cx<'_>) -> Next {
        let (lease, owed) = match (self.client.lease(), self.client.owed(cx.now.boot)) {
            (Some(lease), _) => (lease.clone(), Owed::Leased),
            (None, Some(asked)) => (asked.clone(), Owed::Asked),
            (None, None) => return SAME,
        };
        cx.close();
        let why = if link_gone {
            Leave::LinkGone
        } else {
            Leave::Aborted
        };
        Break(Release::new(lease, owed, why).begun(cx))
    }

    /// Gives back a lease that could not be made durable. A write that failed may have been done all the same, so the record is
    /// removed.
    pub(super) fn undo_write(&mut self, cx: &mut Cx<'_>) -> Next {
        if self.owes_unsaid(false, cx) {
            return self.give_back(false, cx);
        }
        self.undo_exchange(cx);
        let Some(lease) = self.client.lease().cloned() else {
            return SAME;
        };
        Break(Release::new(lease, Owed::Nothing, Leave::Undone).begun(cx))
    }
}
