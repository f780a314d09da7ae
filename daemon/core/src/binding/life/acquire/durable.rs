//! From a lease that was won to the life that holds it: the store first, then the MTU.

use std::ops::ControlFlow::Break;

use super::{Acquire, Phase};
use crate::binding::{Common, Cx, Hold, Life, Living, Next, SAME, Want};
use crate::effect::{Failure, StoreCause};
use crate::event::EventKind;
use crate::identity::Attachment;
use crate::outbox::Report;
use crate::record::BindingId;
use crate::source::Lease;

impl Acquire {
    /// Has the lease written. The sockets stay open in case it has to go back.
    pub(super) fn make_durable(&mut self, common: &mut Common, cx: &mut Cx<'_>) -> Next {
        if self.has_ended(cx.now.boot) {
            return self.seek_another(common, None, cx);
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
            common.guard_only(address, cx);
        }
        cx.out.report(common.id, Report::ExchangeOver);
        self.note_acquired(common, takes_over, cx);
        self.client
            .lease()
            .into_iter()
            .for_each(|lease| _ = common.answers(lease));
        self.expect_work(common, cx);
        self.persist(common, Want::Bound { replaces }, cx);
        SAME
    }

    fn note_acquired(&self, common: &Common, takes_over: bool, cx: &mut Cx<'_>) {
        let Some(lease) = self.client.lease() else {
            return;
        };
        match (self.quest.adopts(), takes_over) {
            _ if let Some(cause) = self.why_of_range(lease) => {
                let kind = if self.quest.adopts() {
                    EventKind::Adopted
                } else {
                    EventKind::Acquired
                };
                common.note_bound(kind, lease, cause, cx);
            }
            _ if self.trusted => {
                let cause = "no server answered, and the lease of its identity is still good";
                common.note_bound(EventKind::Acquired, lease, cause, cx);
            }
            (true, _) => {
                common.note_bound(EventKind::Adopted, lease, "the container already ran", cx)
            }
            (false, false) => common.note_bound(EventKind::Acquired, lease, "ADD", cx),
            (false, true) => common.note_bound(
                EventKind::Acquired,
                lease,
                "ADD replaced an earlier attachment",
                cx,
            ),
        }
    }

    /// Goes on after the lease was written, or could not be.
    pub(super) fn on_written(
        &mut self,
        common: &mut Common,
        result: Result<(), StoreCause>,
        cx: &mut Cx<'_>,
    ) -> Next {
        if result.is_ok() {
            self.pace.has_written(cx.now.boot);
            cx.out.report(
                common.id,
                Report::Replaced(std::mem::take(&mut self.replaces)),
            );
        }
        match (result, self.wanted) {
            (Ok(()), false) if let Some((_, by)) = common.claim() => {
                self.forget_won(common, Some(by), cx);
                SAME
            }
            (Ok(()), false) => self.give_back(common, false, cx),
            (Ok(()), true) => {
                self.enter(Phase::Fit);
                self.make_fit(common, cx)
            }
            // It is held in memory until there is room.
            (Err(cause), true) if self.quest.adopts() => {
                common.exchange.close(cx.out);
                let Some(hold) = self.held(common, cx) else {
                    return SAME;
                };
                common.persistence.try_later(&common.attachment, &cause, cx);
                Break(Life::Held(hold))
            }
            (Err(cause), _) => {
                if self.wanted {
                    cx.out
                        .report(common.id, Report::Failed(Failure::Store(cause)));
                }
                self.undo_write(common, cx)
            }
        }
    }

    /// Returns the life that holds the lease, which is durable and whose link is ready: the ADD may be answered. `None` if the
    /// lease has ended.
    pub(super) fn held(&mut self, common: &mut Common, cx: &mut Cx<'_>) -> Option<Box<Hold>> {
        let lease = self.client.shared()?;
        if !self.quest.adopts() && lease.expired(cx.now.boot) {
            common.note(
                EventKind::Expired,
                &lease,
                "it ended before its ADD could be answered",
                cx,
            );
            self.forget_won(common, None, cx);
            return None;
        }
        log_acquired(&common.attachment, &lease);
        self.count_phases(cx);
        let mut client = self.client.clone();
        client.not_waited_for();
        client.set_station(common.station());
        client.set_mtu(self.mtu);
        cx.out.report(
            common.id,
            Report::Leased {
                lease: Box::new((*lease).clone()),
                began: self.quest.began,
            },
        );
        common.guard_lease(lease.ip(), self.quest.adopts() && !self.taken_off, cx);
        let (now, t1) = (cx.now.boot, lease.t1());
        if let Some(seat) = common.seat_mut(cx) {
            match self.taken_off {
                true => seat.was_taken_off(),
                false => seat.is_answered(now, t1.map(|t1| t1.saturating_since(now))),
            }
        }
        let mut hold = Hold::new(client, lease);
        if self.sized {
            hold.has_changed();
        }
        Some(Box::new(hold))
    }
}

fn log_acquired(attachment: &Attachment, lease: &Lease) {
    let seconds = lease.times.map(|times| times.end.as_secs());
    tracing::info!(%attachment, address = %lease.address, server = %lease.server, seconds, "lease acquired");
}
