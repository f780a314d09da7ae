//! What a held lease, or its end, means for the binding's own interface: what that should carry, and when.
//!
//! A new lease is durable before the interface is changed for it. What an ended lease left there goes at once, whatever the
//! store says. What a refused or declined lease left there goes when the store knows, or fails, or takes too long: the next
//! daemon would take the lease up again, and think that somebody took its address off. What a restart cut short waits for the
//! look at its interface that each start asks for: these take turns.
//!
//! [`crate::interface`] knows how the interface gets there.

use super::Hold;
use crate::binding::{Common, Cx, Living, Next, Report, SAME};
use crate::dhcpv4::lease::Lease;
use crate::effect::Outcome;
use crate::grant::Grant;
use crate::grant::policy::{OnChange, OnExpiry};
use crate::interface::{Changed, Done, Interfaces, Presence, Wish, Work};
use crate::link::{LinkCause, LinkView};
use crate::plan;
use crate::time::Instant;

impl Hold {
    /// Makes the interface carry nothing of the lease any more, before that is given back. Reports when it does.
    pub(in crate::binding) fn vacate(&mut self, common: &Common, cx: &mut Cx<'_>) {
        self.rare().vacates = true;
        let told = common.answered.into_iter().map(Into::into).collect();
        let left = [common.grant(&self.last), Grant { addresses: told, ..Grant::default() }];
        common.due(cx, |work| {
            left.into_iter().for_each(|grant| work.leave_behind(grant, false));
            work.route_no_more();
        });
        self.go_on_seen(common, cx);
        self.has_work();
    }

    /// Records that the lease changed from `was` to what the client holds now. It must be written before [`Self::work`].
    pub(super) fn changed(&mut self, common: &Common, was: &Lease, cx: &mut Cx<'_>) {
        let presence = common.presence(cx.interfaces);
        if presence.is_left() {
            return;
        }
        let Some(next) = self.client.lease().filter(|next| !is_same(was, next, common)) else { return };
        let missing = !presence.on_link();
        // What somebody took off by hand is not put back.
        if missing && was.address == next.address {
            return;
        }
        let address = next.address;
        let kept = match common.profile.policy.on_change {
            OnChange::Apply => {
                common.due(cx, |work| work.leave_behind(common.grant(was), missing));
                None
            }
            OnChange::Keep => {
                // Nothing is changed from here on: the interface has what the first lease put there.
                if !common.work(cx.interfaces).is_some_and(Work::differs) {
                    common.due(cx, |work| work.leave_behind(common.grant(was), false));
                }
                let kept = common.work(cx.interfaces).and_then(|work| work.former().grants.first());
                Some(kept.is_some_and(|kept| kept.has(address.addr().into())))
            }
        };
        match kept {
            _ if was.address == address => {}
            // The interface has the address, but with another mask.
            Some(_) if was.ip() == address.addr() => {}
            Some(true) => common.expect(Presence::Unknown, cx),
            Some(false) => common.expect(Presence::Missing, cx),
            None => common.expect(Presence::Awaited, cx),
        }
    }

    /// Records that there is a lease again; `last` is the one before.
    pub(super) fn returned(&mut self, common: &Common, last: &Lease, cx: &mut Cx<'_>) {
        if common.presence(cx.interfaces).is_left() {
            return;
        }
        if self.keeps_lost(common, cx.interfaces) {
            return self.changed(common, last, cx);
        }
        if common.profile.policy.on_expiry == OnExpiry::Keep {
            common.due(cx, |work| work.leave_behind(common.grant(last), true));
        }
        common.due(cx, |work| {
            work.leave_router(&common.grant(last));
            work.expect_bare(true);
        });
        common.expect(Presence::Awaited, cx);
    }

    /// Records that the lease `lost` is lost; `taken`: another station uses its address, which is on the interface. Returns
    /// whether anything must be taken off that need not have been before.
    pub(super) fn leaves_lost(&mut self, common: &Common, lost: &Lease, taken: bool, cx: &mut Cx<'_>) -> bool {
        let keeps = common.profile.policy.on_expiry == OnExpiry::Keep;
        let before = common.former(cx.interfaces);
        let never_came = common.presence(cx.interfaces) == Presence::Elsewhere;
        if (!keeps || taken) && !never_came {
            common.due(cx, |work| work.leave_behind(common.grant(lost), false));
            if keeps {
                common.due(cx, Work::is_taken);
            }
        }
        common.former(cx.interfaces) != before
    }

    /// Returns what the interface should carry.
    fn wish(&self, common: &Common, interfaces: &Interfaces) -> Wish {
        let Some(work) = common.work(interfaces) else { return Wish::AsIs };
        let former = work.former();
        let carry = |grant: Grant| Wish::Carry(Box::new(grant));
        let is_durable = |next: &Lease| common.persistence.holds(|held| is_same(held, next, common));
        let usable = |next: &Lease| !common.is_probing() && is_durable(next);
        if self.vacates() {
            return Wish::Nothing;
        }
        match self.client.lease().filter(|_| !common.presence(interfaces).is_left()) {
            None if common.profile.policy.on_expiry == OnExpiry::Remove || former.taken => Wish::Nothing,
            None => Wish::AsIs,
            // The MTU that came with the ADD is not a change, nor are missing routes.
            Some(next) if self.keeps_changed(common, interfaces) => match former.grants.first() {
                _ if !former.mtu_due && !former.routes_due => Wish::AsIs,
                Some(kept) => carry(kept.clone()),
                None if usable(next) => carry(common.grant(next)),
                None => Wish::AsIs,
            },
            Some(next) if usable(next) => carry(common.grant(next)),
            // What was lost before does not wait for it.
            Some(_) if (self.follows_loss(common, interfaces) || former.taken) && !former.grants.is_empty() => {
                Wish::Nothing
            }
            Some(_) => Wish::AsIs,
        }
    }

    /// Returns whether the interface keeps what it carries though there is another lease.
    pub(super) fn keeps_changed(&self, common: &Common, interfaces: &Interfaces) -> bool {
        common.profile.policy.on_change == OnChange::Keep
            && !keeps_nothing(common, interfaces)
            && !common.probes_after_loss()
    }

    /// Returns whether the interface keeps what the lost lease put there.
    pub(super) fn keeps_lost(&self, common: &Common, interfaces: &Interfaces) -> bool {
        common.profile.policy.on_expiry == OnExpiry::Keep && !keeps_nothing(common, interfaces)
    }

    /// Returns whether the lease that is not used yet follows a loss, whose traces go in any case.
    fn follows_loss(&self, common: &Common, interfaces: &Interfaces) -> bool {
        let bare = common.work(interfaces).is_some_and(|work| work.former().bare);
        common.profile.policy.on_expiry == OnExpiry::Remove
            && if common.is_probing() { common.probes_after_loss() } else { bare }
    }

    /// Returns whether the addresses of the interface are being changed, or should be.
    pub(super) fn at_work(&self, common: &Common, interfaces: &Interfaces) -> bool {
        let is_wanted = || self.wish(common, interfaces) != Wish::AsIs;
        common.work(interfaces).is_some_and(|work| work.differs() && (work.busy() || is_wanted()))
    }

    /// Returns whether the interface is about to carry what the lease says: that is being written, probed for or put on. What
    /// failed, or waits for room in the store, is not under way.
    pub(in crate::binding) fn is_changing(&self, common: &Common, interfaces: &Interfaces, now: Instant) -> bool {
        let writes = common.persistence.busy() && self.waits_for_store(common, now);
        let works = common.work(interfaces).is_some_and(|work| work.differs() && work.busy());
        self.client.lease().is_some() && (writes || works || common.is_probing())
    }

    /// Goes on with what a restart cut short: the interface was looked at.
    pub(super) fn go_on_seen(&mut self, common: &Common, cx: &mut Cx<'_>) {
        if common.work_mut(cx).is_some_and(Work::is_seen) {
            self.has_work();
        }
    }

    /// Goes on with what has to be done at the interface, if anything has and may be.
    pub(super) fn work(&mut self, common: &mut Common, cx: &mut Cx<'_>) {
        if self.is_being_set_up() && !self.vacates() {
            return;
        }
        let Some(work) = common.work(cx.interfaces).filter(|work| work.may_go_on(cx.now.boot)) else { return };
        let wish = self.wish(common, cx.interfaces);
        let kept = self.client.lease().filter(|_| self.keeps_changed(common, cx.interfaces) && !common.is_probing());
        let kept = kept.map(|lease| common.grant(lease));
        if work.is_settled(&wish, kept.as_ref(), self.client.lease().is_some() && !self.vacates()) {
            common.has_done(cx);
            if self.vacates() {
                cx.out.report(common.id, Report::Vacated);
            }
            return self.record_again();
        }
        common.begin_work(&by_now(wish, common, cx.interfaces), cx);
    }

    /// Goes on after a look or a change.
    pub(super) fn on_looked_or_changed(&mut self, common: &mut Common, outcome: Outcome, cx: &mut Cx<'_>) -> Next {
        match outcome {
            Outcome::Inspected(result) => self.on_looked(common, result, cx),
            Outcome::Applied { taken, result } => self.on_changed(common, taken, result, cx),
            outcome => {
                tracing::warn!(?outcome, "outcome of another kind of effect");
                SAME
            }
        }
    }

    fn on_looked(&mut self, common: &mut Common, result: Result<LinkView, LinkCause>, cx: &mut Cx<'_>) -> Next {
        let wish = by_now(self.wish(common, cx.interfaces), common, cx.interfaces);
        match common.looked(result, wish, cx) {
            Ok(act) => common.act(act, cx),
            Err(cause) => return self.work_failed(common, cause, cx),
        }
        SAME
    }

    fn on_changed(
        &mut self,
        common: &mut Common,
        taken: usize,
        result: Result<LinkView, LinkCause>,
        cx: &mut Cx<'_>,
    ) -> Next {
        let mtu = result.as_ref().ok().map(|view| view.mtu);
        let current = self.client.lease().filter(|_| !self.vacates()).map(|lease| common.grant(lease));
        let cause = result.as_ref().err().map(ToString::to_string).unwrap_or_default();
        let Some(work) = common.work_mut(cx) else { return SAME };
        match work.on_applied(taken, result, current.as_ref()) {
            Some(Changed::Done(done)) => {
                mtu.into_iter().for_each(|mtu| self.client.set_mtu(mtu));
                return self.applied(common, done, cx);
            }
            Some(Changed::Without(step)) => {
                tracing::warn!(attachment = %common.attachment, %step, %cause, "not done at the interface");
                self.has_work();
            }
            Some(Changed::Again) => self.has_work(),
            Some(Changed::Failed(cause)) => return self.work_failed(common, cause, cx),
            None => {}
        }
        SAME
    }

    /// Records that the record must be written again: the lease changed, or what has to be done at the interface.
    pub(in crate::binding) fn record_again(&mut self) {
        self.after.record = true;
    }

    /// Records that something may have to be done at the interface.
    pub(in crate::binding) fn has_work(&mut self) {
        self.after.work = true;
    }

    /// Records that the interface was changed: the record has to say what stays there, unless more is done first.
    pub(in crate::binding) fn has_changed(&mut self) {
        (self.after.work, self.after.note) = (true, true);
    }

    /// Goes on after the interface was changed.
    fn applied(&mut self, common: &mut Common, done: Done, cx: &mut Cx<'_>) -> Next {
        let Done { next, lacks } = done;
        let address = next.iter().flat_map(|grant| &grant.addresses).next().map(tracing::field::display);
        tracing::info!(attachment = %common.attachment, address, "interface changed");
        let own = self.client.lease().map(Lease::ip);
        let own = own.filter(|own| next.as_ref().is_some_and(|next| next.has((*own).into())));
        // Only what this run of the daemon had to put there has arrived just now.
        if let Some(address) = own.filter(|_| common.presence(cx.interfaces) == Presence::Awaited) {
            common.expect(Presence::There, cx);
            if common.announce(address, cx) {
                self.watch(common, cx)?;
            }
        }
        lacks.into_iter().for_each(|lack| common.work_later(&lack, Some(lack), cx));
        self.has_changed();
        SAME
    }

    fn work_failed(&mut self, common: &mut Common, cause: LinkCause, cx: &mut Cx<'_>) -> Next {
        if self.is_lost(common, &cause, cx) {
            return self.on_gone(common, cause, cx);
        }
        // If it is not seen, the word of whoever ended it counts.
        match self.vacates() && cause.is_unseen() {
            true => cx.out.report(common.id, Report::Vacated),
            false => common.work_later(&cause, None, cx),
        }
        SAME
    }

    /// Tries again what failed, or stops waiting, when its time has come.
    pub(in crate::binding) fn retry_work(&mut self, common: &Common, cx: &mut Cx<'_>) {
        let now = cx.now.boot;
        self.end_setup(common, cx);
        if common.work_mut(cx).is_some_and(|work| work.take_retry(now)) {
            self.has_work();
        }
    }

    /// Records that the link is down: the kernel has taken its routes.
    pub(super) fn on_down(&mut self, common: &Common, cx: &mut Cx<'_>) {
        let differs = common.work(cx.interfaces).is_some_and(Work::differs);
        let is_there = common.presence(cx.interfaces) == Presence::There;
        self.on_set_down();
        if self.client.lease().is_some() && (is_there || differs) {
            common.due(cx, |work| work.lacks_routes(false));
        }
    }

    /// Records that a main plugin is about to put the address on again, and does not get all routes.
    pub(in crate::binding) fn route_again(&mut self, common: &Common, cx: &mut Cx<'_>) {
        let late = self.client.lease().is_some_and(|lease| common.grant(lease).has_late());
        if late && common.presence(cx.interfaces) != Presence::There {
            common.due(cx, |work| work.lacks_routes(true));
        }
    }
}

/// Returns the part of a wish that may come true already: not what waits for the store to record a loss.
fn by_now(wish: Wish, common: &Common, interfaces: &Interfaces) -> Wish {
    let patient = common.work(interfaces).is_some_and(Work::is_patient);
    if wish == Wish::Nothing && patient && common.persistence.busy() { Wish::AsIs } else { wish }
}

/// Returns whether nothing is certainly on the interface, or what is there belongs to somebody else.
fn keeps_nothing(common: &Common, interfaces: &Interfaces) -> bool {
    common.work(interfaces).is_some_and(|work| work.former().bare || work.former().taken)
}

/// Returns whether two leases ask the same of the interface.
pub(super) fn is_same(a: &Lease, b: &Lease, common: &Common) -> bool {
    plan::same(&common.grant(a), &common.grant(b))
}
