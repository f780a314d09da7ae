//! Work at a binding's own interface: what a lease, or its end, means to it.
//!
//! Look at the parent (for the MTU) → look at the interface → apply the difference → forget what was there before. One look
//! or change at a time; what is wanted meanwhile waits, and the latest wins. Each try begins with a look, so a failed or
//! timed-out change is followed by one before anything else is changed.
//!
//! A new lease is durable before the interface is changed for it. What a lease that ends left there goes at once, whatever
//! the store says. What one that is refused or declined left there goes when the store knows, or fails, or takes too long: the
//! next daemon would take the lease up again, and its address for taken off by somebody. What a restart cut short waits for its
//! turn among all bindings.
//!
//! The kernel takes addresses of others off with the first one of their subnet. What is to be put back so stands in the record
//! before it goes.

use std::fmt;
use std::net::Ipv4Addr;
use std::time::Duration;

use ipnet::IpNet;

use super::Hold;
use super::work::{Stage, Work};
use crate::binding::{Common, Cx, Living, Next, SAME, Task, Waiter};
use crate::dhcpv4::lease::Lease;
use crate::dhcpv4::profile::{OnChange, OnExpiry};
use crate::effect::Outcome;
use crate::interface::{Interfaces, Presence};
use crate::link::{Link, LinkCause, LinkView, Step, Target};
use crate::plan::{self, Before};
use crate::record::Former;
use crate::time::Instant;

/// The longest pause between two tries.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// The longest pause between two tries to set nothing but the MTU: without it packets may be lost, but many are not.
const LONGEST_MTU_PAUSE: Duration = Duration::from_secs(3600);

/// What a lost lease left on an interface waits this long for the store to write down the loss.
const PATIENCE: Duration = Duration::from_secs(1);

impl Hold {
    /// Records that the lease changed from `was` to what the client holds now. To be written before [`Self::work`].
    pub(super) fn changed(&mut self, common: &Common, was: &Lease, cx: &mut Cx<'_>) {
        let presence = common.presence(cx.interfaces);
        if presence == Presence::TakenOff {
            return;
        }
        let Some(next) = self.client.lease().filter(|next| !is_same(was, next, common)) else { return };
        let missing = !presence.on_link();
        // What somebody took off by hand is not put back.
        if missing && was.address == next.address {
            return;
        }
        let address = next.address;
        let kept = match common.profile.on_change {
            OnChange::Apply => {
                self.due().leave_behind(was, missing);
                None
            }
            OnChange::Keep => {
                // Nothing is changed from here on: what the interface has is what the first lease put there.
                if !self.work.as_ref().is_some_and(|work| work.differs()) {
                    self.due().leave_behind(was, false);
                }
                Some(self.due().former.leases.first().is_some_and(|kept| kept.ip() == address.addr()))
            }
        };
        match kept {
            _ if was.address == address => {}
            // Another mask of it is not what the interface has, but the address is.
            Some(_) if was.ip() == address.addr() => {}
            Some(true) => common.expect(Presence::Unknown, cx),
            Some(false) => common.expect(Presence::Missing, cx),
            None => self.await_address(common, cx),
        }
    }

    /// Records that there is a lease where there was none; `last` is the one before.
    pub(super) fn returned(&mut self, common: &Common, last: &Lease, cx: &mut Cx<'_>) {
        if common.presence(cx.interfaces) == Presence::TakenOff {
            return;
        }
        if self.keeps_lost(common) {
            return self.changed(common, last, cx);
        }
        if common.profile.on_expiry == OnExpiry::Keep {
            self.due().leave_behind(last, true);
        }
        self.due().expect_bare(true);
        self.await_address(common, cx);
    }

    /// Records that the lease `lost` is no more; `taken`: somebody else uses its address, which is on the interface.
    /// Returns whether anything is to be taken off that was not before.
    pub(super) fn leaves_lost(&mut self, common: &Common, lost: &Lease, taken: bool) -> bool {
        let keeps = common.profile.on_expiry == OnExpiry::Keep;
        let before = self.work.as_ref().and_then(|work| work.former());
        if !keeps || taken {
            self.due().leave_behind(lost, false);
            self.due().former.taken |= keeps;
        }
        self.work.as_ref().and_then(|work| work.former()) != before
    }

    /// Records that something of a former lease came onto the interface, which may be being changed.
    pub(super) fn stir(&mut self) {
        if let Some(work) = self.work.as_mut().filter(|work| matches!(work.stage, Stage::Applying { .. })) {
            work.stirred = true;
        }
    }

    /// Records that a daemon which came now would take the lost lease up again: what it left waits for the store.
    pub(super) fn await_note(&mut self, now: Instant) {
        if let Some(work) = &mut self.work {
            work.patience = Some(now + PATIENCE);
        }
    }

    /// Returns what the interface is to carry already: not what waits for the store to write down a loss.
    fn wanted_now(&self, common: &Common, cx: &Cx<'_>) -> Option<Option<&Lease>> {
        let patient = self.work.as_ref().is_some_and(|work| work.patience.is_some());
        self.wanted(common, cx.interfaces).filter(|next| next.is_some() || !patient || !common.persistence.busy())
    }

    /// Records that nothing may be on the interface, though there is a lease.
    pub(super) fn work_from_bare(&mut self) {
        self.due().expect_bare(true);
    }

    pub(super) fn due(&mut self) -> &mut Work {
        self.work.get_or_insert_default()
    }

    /// Returns what the interface is to carry, `Some(None)` for nothing of any lease; `None`: it is left as it is for now.
    fn wanted(&self, common: &Common, interfaces: &Interfaces) -> Option<Option<&Lease>> {
        let (Some(work), Link::InNetns { .. }) = (&self.work, &common.link) else {
            return None;
        };
        let former = &work.former;
        let is_durable = |next: &Lease| common.persistence.holds(|held| is_same(held, next, common));
        let usable = |next: &Lease| !common.is_probing() && is_durable(next);
        match self.client.lease().filter(|_| common.presence(interfaces) != Presence::TakenOff) {
            None => (common.profile.on_expiry == OnExpiry::Remove || former.taken).then_some(None),
            // The MTU that came with the ADD is no change, nor are routes that are missing.
            Some(next) if self.keeps_changed(common) => match former.leases.first() {
                Some(kept) => (former.mtu_due || former.routes_due).then_some(Some(kept)),
                None => ((former.mtu_due || former.routes_due) && usable(next)).then_some(Some(next)),
            },
            Some(next) if usable(next) => Some(Some(next)),
            // What was lost before it does not wait for it.
            Some(_) => ((self.follows_loss(common) || former.taken) && !former.leases.is_empty()).then_some(None),
        }
    }

    /// Returns whether the interface keeps what it carries though there is another lease.
    fn keeps_changed(&self, common: &Common) -> bool {
        let gone = self.work.as_ref().is_some_and(|work| work.former.bare || work.former.taken);
        common.profile.on_change == OnChange::Keep && !gone && !common.probes_after_loss()
    }

    /// Returns whether the interface keeps what the last lease put there though that is lost.
    pub(super) fn keeps_lost(&self, common: &Common) -> bool {
        let gone = self.work.as_ref().is_some_and(|work| work.former.bare || work.former.taken);
        common.profile.on_expiry == OnExpiry::Keep && !gone
    }

    /// Returns whether something of a lease with this address may be on the interface beside the last one.
    pub(super) fn may_carry(&self, address: Ipv4Addr) -> bool {
        self.work.as_ref().is_some_and(|work| work.former.leases.iter().any(|lease| lease.ip() == address))
    }

    /// Returns whether the lease that is not used yet is one after a loss, whose traces go in any case.
    fn follows_loss(&self, common: &Common) -> bool {
        let bare = self.work.as_ref().is_some_and(|work| work.former.bare);
        common.profile.on_expiry == OnExpiry::Remove
            && if common.is_probing() { common.probes_after_loss() } else { bare }
    }

    /// Returns whether the addresses of the interface are being changed, or are to be.
    pub(super) fn at_work(&self, common: &Common, interfaces: &Interfaces) -> bool {
        self.work
            .as_ref()
            .is_some_and(|work| work.differs() && (work.busy() || self.wanted(common, interfaces).is_some()))
    }

    /// Returns whether the interface is about to carry what the lease says: that is being written, probed for or put on. What
    /// failed, or waits for room in the store, is not under way.
    pub(in crate::binding) fn is_changing(&self, common: &Common, now: Instant) -> bool {
        let writes = common.persistence.busy() && self.waits_for_store(common, now);
        let works = self.work.as_ref().is_some_and(|work| work.differs() && work.busy());
        self.client.lease().is_some() && (writes || works || common.is_probing())
    }

    /// Returns whether a look at the interface or a change of it is under way.
    pub(in crate::binding) fn is_working(&self) -> bool {
        let works = |stage: &Stage| matches!(stage, Stage::Parent | Stage::Looking { .. } | Stage::Applying { .. });
        self.work.as_ref().is_some_and(|work| works(&work.stage))
    }

    /// Returns whether what a restart cut short waits for its turn.
    pub(in crate::binding) fn awaits_turn(&self) -> bool {
        self.work.as_ref().is_some_and(|work| matches!(work.stage, Stage::Queued))
    }

    /// Goes on with what a restart cut short.
    pub(in crate::binding) fn take_turn(&mut self) {
        if let Some(work) = self.work.as_mut().filter(|work| matches!(work.stage, Stage::Queued)) {
            work.stage = Stage::Idle;
            self.has_work();
        }
    }

    /// Goes on with what is to be done at the interface, if anything is and may be.
    pub(super) fn work(&mut self, common: &mut Common, cx: &mut Cx<'_>) {
        let Some(work) = self.work.as_ref().filter(|work| !work.busy()) else { return };
        if work.retry.is_some_and(|at| cx.now.boot < at) {
            return;
        }
        if self.is_settled(common, cx) {
            self.work = None;
            return self.record_again();
        }
        let Some(next) = self.wanted_now(common, cx) else { return };
        let resizes = work.mtu(next).is_some();
        if !(work.differs()
            || resizes
            || common.presence(cx.interfaces) == Presence::There
            || !work.former.displaced.is_empty())
        {
            return;
        }
        let parent = common.identity.lan.parent().filter(|_| resizes).map(str::to_owned);
        match parent {
            Some(ifname) => self.look_at_parent(common, ifname, cx),
            None => self.look(common, None, false, cx),
        }
    }

    /// Returns whether nothing is left to be done, nor anything there that is to be known later.
    fn is_settled(&self, common: &Common, cx: &Cx<'_>) -> bool {
        let Some(work) = &self.work else { return false };
        if !work.former.displaced.is_empty() || (work.former.routes_due && self.client.lease().is_some()) {
            return false;
        }
        let kept = self.client.lease().filter(|_| self.keeps_changed(common) && !common.is_probing());
        match self.wanted(common, cx.interfaces).unwrap_or(kept) {
            Some(next) => {
                let same = work.former.leases.iter().all(|was| is_same(was, next, common));
                let kept_too = kept.is_none_or(|lease| is_same(lease, next, common));
                !work.former.bare && same && kept_too && work.mtu(Some(next)).is_none()
            }
            None => self.wanted(common, cx.interfaces).is_some() && work.former.leases.is_empty(),
        }
    }

    pub(super) fn look_at_parent(&mut self, common: &mut Common, ifname: String, cx: &mut Cx<'_>) {
        cx.out.inspect(Waiter::Binding(common.id, Task::Work), Target::Host { ifname });
        self.due().stage = Stage::Parent;
    }

    fn look(&mut self, common: &mut Common, most: Option<u32>, asked: bool, cx: &mut Cx<'_>) {
        cx.out.inspect(Waiter::Binding(common.id, Task::Work), Target::Known(common.link.clone()));
        self.due().stage = Stage::Looking { most, asked, came_up: false };
    }

    fn apply(
        &mut self,
        common: &mut Common,
        steps: Vec<Step>,
        next: Option<Box<Lease>>,
        short: bool,
        routed: bool,
        cx: &mut Cx<'_>,
    ) {
        cx.change(Waiter::Binding(common.id, Task::Work), &common.link, steps.clone());
        self.due().stage = Stage::Applying { steps, next, short, routed };
    }

    /// Drops what was under way, or waited for its turn: it begins anew if the lease is held again.
    pub(in crate::binding) fn drop_work(&mut self) {
        if let Some(work) = &mut self.work {
            work.stage = Stage::Idle;
        }
    }

    /// Goes on after a look or a change.
    pub(super) fn on_looked_or_changed(&mut self, common: &mut Common, outcome: Outcome, cx: &mut Cx<'_>) -> Next {
        let Some(work) = &mut self.work else { return SAME };
        match (std::mem::take(&mut work.stage), outcome) {
            (Stage::Parent, Outcome::Inspected(parent)) => {
                self.look(common, parent.ok().map(|view| view.mtu), true, cx)
            }
            (Stage::Looking { most, asked, came_up: true }, Outcome::Inspected(Ok(view))) if !view.up => {
                self.look(common, most, asked, cx);
            }
            (Stage::Looking { most, asked, .. }, Outcome::Inspected(Ok(view))) => {
                self.change(common, &view, most, asked, cx);
            }
            (Stage::Looking { .. }, Outcome::Inspected(Err(cause))) => return self.work_failed(common, cause, cx),
            (Stage::Applying { next, short, routed, .. }, Outcome::Applied { result: Ok(view), .. }) => {
                self.client.set_mtu(view.mtu);
                return self.applied(common, next, (short, routed), &view.addresses, cx);
            }
            (Stage::Applying { steps, routed, .. }, Outcome::Applied { taken, result: Err(cause) }) => {
                match steps.into_iter().nth(taken).filter(|step| is_dispensable(step, &cause)) {
                    // The link went down meanwhile.
                    Some(Step::AddRoute(_)) if !routed => self.has_work(),
                    Some(step) => self.do_without(common, step, &cause),
                    None => return self.work_failed(common, cause, cx),
                }
            }
            (stage, outcome) => tracing::warn!(?stage, ?outcome, "outcome of another kind of effect"),
        }
        SAME
    }

    /// Records that the record is to be written once more: the lease changed, or what is to be done at the interface.
    pub(in crate::binding) fn record_again(&mut self) {
        self.after.record = true;
    }

    /// Records that there may be something to be done at the interface.
    pub(in crate::binding) fn has_work(&mut self) {
        self.after.work = true;
    }

    /// Goes on, if it may, when the store has written, or has failed to.
    pub(super) fn noted(&mut self) {
        if let Some(work) = self.work.as_mut().filter(|work| matches!(work.stage, Stage::Noting)) {
            work.stage = Stage::Idle;
        }
        self.has_work();
    }

    /// Goes on after the interface was changed for `next`, and had these addresses after that.
    fn applied(
        &mut self,
        common: &mut Common,
        next: Option<Box<Lease>>,
        (short, routed): (bool, bool),
        addresses: &[IpNet],
        cx: &mut Cx<'_>,
    ) -> Next {
        tracing::info!(attachment = %common.attachment, address = next.as_ref().map(|lease| tracing::field::display(lease.address)), "interface changed");
        let arrived = next.as_deref().map(Lease::ip).filter(|address| self.put_on(common, *address, cx));
        let current = self.client.shared();
        // Of a lease that was lost meanwhile it is not known here whether somebody else uses its address.
        let still = matches!((&next, &current), (Some(next), Some(current)) if next.ip() == current.ip());
        let agrees = matches!((&next, &current), (Some(next), Some(now)) if is_same(next, now, common));
        let work = self.due();
        let refused = work.refused.extract_if(.., |step| matches!(step, Step::Mtu(_))).count() > 0;
        let (bare, mtu_due) = (next.is_none(), next.is_some() && (short || refused));
        let routes_due = work.former.routes_due && !routed;
        let again = work.back(next.as_deref(), addresses);
        let comes_back = !again.is_empty();
        let taken = work.former.taken && (comes_back || next.is_some() && !still);
        let leases = again.into_iter().chain(next.filter(|_| !agrees).map(|next| *next)).collect();
        work.former = Former { leases, bare, taken, mtu_due, routes_due, displaced: Vec::new() };
        if arrived.is_some_and(|address| common.announce(address, cx)) {
            self.watch(common, cx)?;
        }
        match (comes_back, mtu_due) {
            (true, _) => self.work_later(common, &"an address came back", LONGEST_PAUSE, cx),
            (false, true) => self.work_later(common, &"its MTU could not be set", LONGEST_MTU_PAUSE, cx),
            (false, false) if routes_due => self.work_later(common, &"its link takes no routes yet", LONGEST_PAUSE, cx),
            (false, false) => self.has_work(),
        }
        // Where the profile keeps what is there, that nothing is, or something else, does not go without saying.
        let keeps = bare && common.profile.on_expiry == OnExpiry::Keep || self.keeps_changed(common);
        self.after.note = mtu_due || keeps;
        SAME
    }

    /// Records that the MTU which came with the ADD is still to be set.
    pub(in crate::binding) fn size_later(&mut self) {
        self.due().former.mtu_due = true;
    }

    /// Records why it could not be set yet.
    pub(in crate::binding) fn size_failed(&mut self, common: &mut Common, cause: &LinkCause, cx: &mut Cx<'_>) {
        self.size_later();
        self.work_later(common, cause, LONGEST_MTU_PAUSE, cx);
    }

    /// Changes the interface from what was seen there. A lease that came during the look may have an MTU for which the LAN's
    /// link is to be looked at first.
    fn change(&mut self, common: &mut Common, view: &LinkView, most: Option<u32>, asked: bool, cx: &mut Cx<'_>) {
        let Some(next) = self.wanted_now(common, cx) else { return };
        let (next, Some(work)) = (next.cloned(), &self.work) else { return };
        // An ADD that takes this binding's place is clearing the interface: if that comes to nothing, this goes on after it.
        if common.link.in_netns().is_some_and(|at| cx.interfaces.is_changing(at)) {
            return;
        }
        let makeshifts = work.makeshifts(&view.addresses);
        let addresses: Vec<_> = view.addresses.iter().filter(|there| !makeshifts.contains(there)).copied().collect();
        let mtu = work.mtu(next.as_ref());
        if let (Some(_), Some(parent), false) = (mtu, common.identity.lan.parent(), asked) {
            return self.look_at_parent(common, parent.to_owned(), cx);
        }
        let short = asked && most.is_none() && mtu.is_some_and(|mtu| u32::from(mtu) > view.mtu);
        let mtu = mtu.map(|mtu| u32::from(mtu).min(most.unwrap_or(view.mtu)));
        let resize = mtu.filter(|mtu| *mtu != view.mtu).map(Step::Mtu);
        let differs = work.differs();
        let is_on = next.as_ref().is_some_and(|next| differs || addresses.contains(&next.address.into()));
        let grants: Vec<_> = work.former.leases.iter().map(|lease| common.grant(lease)).collect();
        let grant = next.as_ref().map(|next| common.grant(next));
        let (bare, unrouted) = (work.former.bare, work.former.routes_due);
        let before = Before { grants: &grants, bare, unrouted, addresses: &addresses };
        let mut steps = match differs || (unrouted && is_on && view.up) {
            true => plan::difference(&before, grant.as_ref()),
            false => Vec::new(),
        };
        if let (Some(grant), false, true) = (&grant, differs, work.only_late) {
            steps.retain(|step| !matches!(step, Step::AddRoute(route) if !grant.is_beyond(route.via)));
        }
        // The kernel takes no route on a link that is down.
        let routes = steps.len();
        steps.retain(|step| view.up || !matches!(step, Step::AddRoute(_)));
        let (put_off, routed) = (steps.len() < routes, view.up && (is_on || next.is_none()));
        let displaced = work.former.displaced.iter().filter(|address| !addresses.contains(address));
        let back: Vec<_> = displaced.copied().map(Step::AddAddress).filter(|step| !steps.contains(step)).collect();
        let steps = resize.into_iter().chain(steps).chain(back);
        let steps = steps.chain(makeshifts.into_iter().map(Step::RemoveAddress));
        let steps: Vec<_> = steps.filter(|step| !work.refused.contains(step)).collect();
        // What is waited for is an event, not a look.
        if steps.is_empty() && !differs && !routed && !work.former.mtu_due {
            return;
        }
        if put_off {
            self.due().lacks_routes();
        }
        let store_works = common.persistence.works();
        if self.due().displace(&steps, next.as_ref()) && store_works {
            self.due().stage = Stage::Noting;
            return self.record_again();
        }
        self.apply(common, steps, next.map(Box::new), short, routed, cx);
    }

    /// Goes on without a step that the kernel refuses: one bad route of a server's is no reason to keep an old address.
    fn do_without(&mut self, common: &Common, step: Step, cause: &LinkCause) {
        tracing::warn!(attachment = %common.attachment, %step, %cause, "not done at the interface");
        self.due().refused.push(step);
        self.has_work();
    }

    fn work_failed(&mut self, common: &mut Common, cause: LinkCause, cx: &mut Cx<'_>) -> Next {
        if self.is_lost(common, &cause, cx) {
            return self.on_link_gone(common, cause, cx);
        }
        let only_mtu = !self.due().differs();
        self.work_later(common, &cause, if only_mtu { LONGEST_MTU_PAUSE } else { LONGEST_PAUSE }, cx);
        SAME
    }

    fn work_later(&mut self, common: &Common, cause: &dyn fmt::Display, longest: Duration, cx: &mut Cx<'_>) {
        let attachment = common.attachment.clone();
        let work = self.due();
        work.backoff.fail();
        let pause = work.backoff.pause(longest, cx.rng);
        work.retry = Some(cx.now.boot + pause);
        tracing::warn!(%attachment, %cause, ?pause, "interface not changed, trying again");
    }

    /// Tries again what failed, or waits no longer, when its time has come.
    pub(in crate::binding) fn retry_work(&mut self, cx: &Cx<'_>) {
        let Some(work) = &mut self.work else { return };
        let is_due = |at: &mut Instant| cx.now.boot >= *at;
        let (retries, hurries) = (work.retry.take_if(is_due), work.patience.take_if(is_due));
        if retries.or(hurries).is_some() {
            self.has_work();
        }
    }
}

/// Returns whether two leases ask the same of the interface.
fn is_same(a: &Lease, b: &Lease, common: &Common) -> bool {
    plan::same(&common.grant(a), &common.grant(b))
}

/// Returns whether the rest of a change makes sense without a step that the kernel refused.
fn is_dispensable(step: &Step, cause: &LinkCause) -> bool {
    let refused = matches!(cause, LinkCause::Refused { doing, .. } if *doing == step.doing());
    refused && matches!(step, Step::Mtu(_) | Step::AddRoute(_) | Step::RemoveRoute(_))
}
