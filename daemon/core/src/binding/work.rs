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

use ipnet::Ipv4Net;

use super::{Binding, Cx, Life, Owner, Purpose};
use crate::dhcpv4::lease::Lease;
use crate::dhcpv4::profile::{OnChange, OnExpiry};
use crate::dhcpv4::timing;
use crate::effect::Outcome;
use crate::link::{Link, LinkCause, LinkView, Step, Target};
use crate::plan::{self, Before};
use crate::record::Former;
use crate::time::Instant;

/// The longest pause between two tries.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// The longest pause between two tries to set nothing but the MTU: without it packets may be lost, but many are not.
pub(super) const LONGEST_MTU_PAUSE: Duration = Duration::from_secs(3600);

/// What a lost lease left on an interface waits this long for the store to take note of the loss.
const PATIENCE: Duration = Duration::from_secs(1);

/// Leases of which something may be on an interface. Beyond that one is forgotten, but not the oldest: that is on it for
/// certain, while those after it may never have come so far.
const MAX_FORMER: usize = 4;

/// Addresses of others that are put back after a change that was cut short, at most: whose namespace it is may put any number
/// there.
const MAX_DISPLACED: usize = 16;

/// What is to be done at an interface, and how far it is.
#[derive(Debug, Default)]
pub(super) struct Work {
    /// What the interface may carry; empty and not bare when it carries what the lease says.
    pub(super) former: Former,
    pub(super) stage: Stage,
    failures: u32,
    retry: Option<Instant>,
    /// Until then nothing is taken off for good while the store writes that its lease is lost.
    patience: Option<Instant>,
    /// Steps that the kernel refused, and that the rest can do without.
    pub(super) refused: Vec<Step>,
    /// Something of a former lease came onto the interface during the change under way.
    stirred: bool,
    /// Of the routes that are due a main plugin adds the others at this moment: only those that it is not told of are put on.
    pub(super) only_late: bool,
}

/// How far it is.
#[derive(Debug, Default)]
pub(super) enum Stage {
    /// Nothing is under way.
    #[default]
    Idle,
    /// A restart cut it short, and it goes on when it is its turn.
    Queued,
    /// The LAN's link is being looked at: no interface of it has a larger MTU.
    Parent,
    /// The interface is being looked at. The MTU is to be this at most; `asked`: the LAN's link was looked at for that.
    /// `came_up`: the link came up meanwhile, which the look may not have seen.
    Looking { most: Option<u32>, asked: bool, came_up: bool },
    /// The store is taking note of what a change is to put back; then the interface is looked at once more.
    Noting,
    /// The interface is being changed for this lease. `short`: its MTU has to be smaller than it could be, as nobody knows
    /// the one of the LAN's link. `routed`: with all of its routes.
    Applying { steps: Vec<Step>, next: Option<Box<Lease>>, short: bool, routed: bool },
}

impl Work {
    /// Returns work that goes on where a restart cut it short, when it is its turn.
    pub(super) fn recovered(former: Option<Box<Former>>) -> Option<Box<Self>> {
        former.map(|former| Box::new(Self { former: *former, stage: Stage::Queued, ..Self::default() }))
    }

    /// Lets it wait for its turn among all that a restart goes on with.
    pub(super) fn await_turn(&mut self) {
        self.stage = Stage::Queued;
    }

    /// Returns what the interface may carry of earlier leases, for the record.
    pub(super) fn former(&self) -> Option<Box<Former>> {
        (self.former != Former::default()).then(|| Box::new(self.former.clone()))
    }

    /// Returns when it is tried again, or waits no longer.
    pub(super) fn retry_at(&self) -> Option<Instant> {
        self.retry.into_iter().chain(self.patience).min()
    }

    fn busy(&self) -> bool {
        !matches!(self.stage, Stage::Idle)
    }

    /// Tells whether what the interface carries, beside its MTU, may be something else than what the lease says.
    pub(super) fn differs(&self) -> bool {
        self.former.bare || !self.former.leases.is_empty()
    }

    /// Returns the MTU that the way to `next` sets, before the link's own bounds.
    fn mtu(&self, next: Option<&Lease>) -> Option<u16> {
        match self.former.mtu_due {
            true => next.and_then(|next| next.mtu),
            false => plan::mtu(&self.before(&[]), next),
        }
    }

    /// Takes note that something of a lease may be on the interface.
    fn leave_behind(&mut self, lease: &Lease, bare: bool) {
        let leases = &mut self.former.leases;
        if !leases.iter().any(|was| was.grants_the_same(lease)) {
            leases.push(lease.clone());
        }
        if leases.len() > MAX_FORMER {
            leases.remove(1);
        }
        self.expect_bare(bare);
    }

    /// Takes note of what these steps put back on the interface. Tells whether there is anything new.
    fn displace(&mut self, steps: &[Step], next: Option<&Lease>) -> bool {
        let is_ours = |address: &Ipv4Net| {
            let of_lease = |lease: &Lease| lease.ip() == address.addr();
            next.is_some_and(of_lease) || self.former.leases.iter().any(of_lease)
        };
        let stays = |address: &Ipv4Net| !steps.contains(&Step::RemoveAddress(*address));
        let put_on = steps.iter().filter_map(|step| match step {
            Step::AddAddress(address) if stays(address) => Some(*address),
            Step::AddAddress(_) => None,
            Step::Up | Step::Mtu(_) | Step::RemoveAddress(_) | Step::AddRoute(_) | Step::RemoveRoute(_) => None,
        });
        let is_known = |address: &Ipv4Net| self.former.displaced.contains(address);
        let room = MAX_DISPLACED.saturating_sub(self.former.displaced.len());
        let new: Vec<_> = put_on.filter(|address| !is_ours(address) && !is_known(address)).take(room).collect();
        self.former.displaced.extend(&new);
        !new.is_empty()
    }

    /// Returns those of these addresses that a change which was cut short put on in the place of what it was to put back.
    fn makeshifts(&self, addresses: &[Ipv4Net]) -> Vec<Ipv4Net> {
        let displaced = &self.former.displaced;
        let is_one = |there: &&Ipv4Net| {
            there.prefix_len() == 32 && !displaced.contains(there) && displaced.iter().any(|a| a.addr() == there.addr())
        };
        addresses.iter().filter(is_one).copied().collect()
    }

    /// Returns the former leases of which something came back while the interface was changed for `next`: it may be there now.
    fn back(&mut self, next: Option<&Lease>, addresses: &[Ipv4Net]) -> Vec<Lease> {
        let stirred = std::mem::take(&mut self.stirred);
        let is_next = |lease: &Lease| next.is_some_and(|next| next.address == lease.address);
        let is_back = |lease: &&Lease| !is_next(lease) && (stirred || addresses.contains(&lease.address));
        self.former.leases.iter().filter(is_back).cloned().collect()
    }

    fn before<'a>(&'a self, addresses: &'a [Ipv4Net]) -> Before<'a> {
        let Former { leases, bare, routes_due: unrouted, .. } = &self.former;
        Before { leases, bare: *bare, unrouted: *unrouted, addresses }
    }

    fn expect_bare(&mut self, bare: bool) {
        self.former.bare |= bare;
        (self.failures, self.retry) = (0, None);
        self.refused.clear();
    }
}

impl Binding {
    /// Takes note that the lease changed from `was` to what the client holds now. To be written before [`Self::work`].
    pub(super) fn lease_changed(&mut self, was: &Lease) {
        let Life::Held(hold) = &self.life else { return };
        if hold.is_taken_off() {
            return;
        }
        let Some(next) = hold.client.lease().filter(|next| !plan::same(was, next, &self.profile)) else { return };
        let missing = !hold.on_link();
        // What somebody took off by hand is not put back.
        if missing && was.address == next.address {
            return;
        }
        let address = next.address;
        let kept = match self.profile.on_change {
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
        let Life::Held(hold) = &mut self.life else { return };
        match kept {
            _ if was.address == address => {}
            // Another mask of it is not what the interface has, but the address is.
            Some(_) if was.ip() == address.addr() => {}
            Some(there) => hold.expect_address(there),
            None => hold.await_address(),
        }
    }

    /// Takes note that there is a lease where there was none; `last` is the one before.
    pub(super) fn lease_returned(&mut self, last: &Lease) {
        if self.is_taken_off() {
            return;
        }
        if self.keeps_lost() {
            return self.lease_changed(last);
        }
        if self.profile.on_expiry == OnExpiry::Keep {
            self.due().leave_behind(last, true);
        }
        self.due().expect_bare(true);
        if let Life::Held(hold) = &mut self.life {
            hold.await_address();
        }
    }

    /// Takes note that the lease `lost` is no more; `taken`: somebody else uses its address, which is on the interface.
    /// Returns whether anything is to be taken off that was not before.
    pub(super) fn lease_lost(&mut self, lost: &Lease, taken: bool) -> bool {
        let keeps = self.profile.on_expiry == OnExpiry::Keep;
        let before = self.work.as_ref().and_then(|work| work.former());
        if !keeps || taken {
            self.due().leave_behind(lost, false);
            self.due().former.taken |= keeps;
        }
        self.work.as_ref().and_then(|work| work.former()) != before
    }

    /// Takes note that something of a former lease came onto the interface, which may be being changed.
    pub(super) fn stir(&mut self) {
        if let Some(work) = self.work.as_mut().filter(|work| matches!(work.stage, Stage::Applying { .. })) {
            work.stirred = true;
        }
    }

    /// Takes note that a daemon which came now would take the lost lease up again: what it left waits for the store.
    pub(super) fn await_note(&mut self, now: Instant) {
        if let Some(work) = &mut self.work {
            work.patience = Some(now + PATIENCE);
        }
    }

    /// Returns likewise what it is to carry already: not what waits for the store to take note of a loss.
    fn wanted_now(&self) -> Option<Option<&Lease>> {
        let patient = self.work.as_ref().is_some_and(|work| work.patience.is_some());
        self.wanted().filter(|next| next.is_some() || !patient || !self.persistence.busy())
    }

    /// Takes note that nothing may be on the interface, though there is a lease.
    pub(super) fn work_from_bare(&mut self) {
        self.due().expect_bare(true);
    }

    pub(super) fn due(&mut self) -> &mut Work {
        self.work.get_or_insert_default()
    }

    /// Returns what the interface is to carry, `Some(None)` for nothing of any lease; `None`: it is left as it is for now.
    fn wanted(&self) -> Option<Option<&Lease>> {
        let (Life::Held(hold), Some(work), Link::InNetns { .. }) = (&self.life, &self.work, &self.link) else {
            return None;
        };
        let former = &work.former;
        let is_durable = |next: &Lease| self.persistence.holds(|held| plan::same(held, next, &self.profile));
        let usable = |next: &Lease| !self.is_probing() && is_durable(next);
        match hold.client.lease().filter(|_| !hold.is_taken_off()) {
            None => (self.profile.on_expiry == OnExpiry::Remove || former.taken).then_some(None),
            // The MTU that came with the ADD is no change, nor are routes that are missing.
            Some(next) if self.keeps_changed() => match former.leases.first() {
                Some(kept) => (former.mtu_due || former.routes_due).then_some(Some(kept)),
                None => ((former.mtu_due || former.routes_due) && usable(next)).then_some(Some(next)),
            },
            Some(next) if usable(next) => Some(Some(next)),
            // What was lost before it does not wait for it.
            Some(_) => ((self.follows_loss() || former.taken) && !former.leases.is_empty()).then_some(None),
        }
    }

    /// Tells whether the interface keeps what it carries though there is another lease.
    fn keeps_changed(&self) -> bool {
        let gone = self.work.as_ref().is_some_and(|work| work.former.bare || work.former.taken);
        self.profile.on_change == OnChange::Keep && !gone && !self.probes_after_loss()
    }

    /// Tells whether the interface keeps what the last lease put there though that is lost.
    pub(super) fn keeps_lost(&self) -> bool {
        let gone = self.work.as_ref().is_some_and(|work| work.former.bare || work.former.taken);
        self.profile.on_expiry == OnExpiry::Keep && !gone
    }

    /// Tells whether something of a lease with this address may be on the interface beside the last one.
    pub(super) fn may_carry(&self, address: Ipv4Addr) -> bool {
        self.work.as_ref().is_some_and(|work| work.former.leases.iter().any(|lease| lease.ip() == address))
    }

    /// Tells whether the lease that is not used yet is one after a loss, whose traces go in any case.
    fn follows_loss(&self) -> bool {
        let bare = self.work.as_ref().is_some_and(|work| work.former.bare);
        self.profile.on_expiry == OnExpiry::Remove && if self.is_probing() { self.probes_after_loss() } else { bare }
    }

    /// Tells whether the addresses of the interface are being changed, or are to be.
    pub(super) fn at_work(&self) -> bool {
        self.work.as_ref().is_some_and(|work| work.differs() && (work.busy() || self.wanted().is_some()))
    }

    /// Tells whether the interface is about to carry what the lease says: that is being written, probed for or put on. What
    /// failed, or waits for room in the store, is not under way.
    pub(crate) fn is_changing(&self, now: Instant) -> bool {
        let writes = self.persistence.busy() && self.waits_for_store(now);
        let Life::Held(hold) = &self.life else { return false };
        let works = self.work.as_ref().is_some_and(|work| work.differs() && work.busy());
        hold.client.lease().is_some() && (writes || works || self.is_probing())
    }

    /// Tells whether a look at the interface or a change of it is under way.
    pub(crate) fn is_working(&self) -> bool {
        let works = |stage: &Stage| matches!(stage, Stage::Parent | Stage::Looking { .. } | Stage::Applying { .. });
        self.work.as_ref().is_some_and(|work| works(&work.stage))
    }

    /// Tells whether what a restart cut short waits for its turn.
    pub(crate) fn awaits_turn(&self) -> bool {
        self.work.as_ref().is_some_and(|work| matches!(work.stage, Stage::Queued))
    }

    /// Goes on with what a restart cut short.
    pub(crate) fn take_turn(&mut self, cx: &mut Cx<'_>) {
        if let Some(work) = self.work.as_mut().filter(|work| matches!(work.stage, Stage::Queued)) {
            work.stage = Stage::Idle;
            self.work(cx);
        }
    }

    /// Goes on with what is to be done at the interface, if anything is and may be.
    pub(crate) fn work(&mut self, cx: &mut Cx<'_>) {
        let Some(work) = self.work.as_ref().filter(|work| !work.busy()) else { return };
        if work.retry.is_some_and(|at| cx.now.boot < at) {
            return;
        }
        if self.is_settled() {
            self.work = None;
            return self.record_again(cx);
        }
        let Some(next) = self.wanted_now() else { return };
        let resizes = work.mtu(next).is_some();
        let is_there = matches!(&self.life, Life::Held(hold) if hold.is_there());
        if !(work.differs() || resizes || is_there || !work.former.displaced.is_empty()) {
            return;
        }
        let parent = self.identity.lan.parent().filter(|_| resizes).map(str::to_owned);
        match parent {
            Some(ifname) => self.look_at_parent(ifname, cx),
            None => self.look(None, false, cx),
        }
    }

    /// Tells whether nothing is left to be done, nor anything there that is to be known later.
    fn is_settled(&self) -> bool {
        let (Life::Held(hold), Some(work)) = (&self.life, &self.work) else { return false };
        if !work.former.displaced.is_empty() || (work.former.routes_due && hold.client.lease().is_some()) {
            return false;
        }
        let kept = hold.client.lease().filter(|_| self.keeps_changed() && !self.is_probing());
        match self.wanted().unwrap_or(kept) {
            Some(next) => {
                let same = work.former.leases.iter().all(|was| plan::same(was, next, &self.profile));
                let kept_too = kept.is_none_or(|lease| plan::same(lease, next, &self.profile));
                !work.former.bare && same && kept_too && work.mtu(Some(next)).is_none()
            }
            None => self.wanted().is_some() && work.former.leases.is_empty(),
        }
    }

    pub(super) fn look_at_parent(&mut self, ifname: String, cx: &mut Cx<'_>) {
        cx.out.inspect(Owner::Binding(self.id), Purpose::Work, Target::Host { ifname });
        self.due().stage = Stage::Parent;
    }

    fn look(&mut self, most: Option<u32>, asked: bool, cx: &mut Cx<'_>) {
        cx.out.inspect(Owner::Binding(self.id), Purpose::Work, Target::Known(self.link.clone()));
        self.due().stage = Stage::Looking { most, asked, came_up: false };
    }

    fn apply(&mut self, steps: Vec<Step>, next: Option<Box<Lease>>, short: bool, routed: bool, cx: &mut Cx<'_>) {
        let target = Target::Known(self.link.clone());
        cx.out.apply(Owner::Binding(self.id), Purpose::Work, target, steps.clone());
        self.due().stage = Stage::Applying { steps, next, short, routed };
    }

    /// Sets the MTU, before there is anything else on the interface.
    pub(super) fn apply_mtu(&mut self, mtu: u32, cx: &mut Cx<'_>) {
        self.apply(vec![Step::Mtu(mtu)], None, false, false, cx);
    }

    /// Goes on after a look or a change.
    pub(super) fn on_worked(&mut self, outcome: Outcome, cx: &mut Cx<'_>) {
        let Some(work) = &mut self.work else { return };
        let stage = std::mem::take(&mut work.stage);
        if matches!(self.life, Life::Releasing(_)) {
            return;
        }
        if matches!(self.life, Life::Acquiring(_)) {
            return self.on_sizing(outcome, cx);
        }
        match (stage, outcome) {
            (Stage::Parent, Outcome::Inspected(parent)) => self.look(parent.ok().map(|view| view.mtu), true, cx),
            (Stage::Looking { most, asked, came_up: true }, Outcome::Inspected(Ok(view))) if !view.up => {
                self.look(most, asked, cx);
            }
            (Stage::Looking { most, asked, .. }, Outcome::Inspected(Ok(view))) => self.change(&view, most, asked, cx),
            (Stage::Looking { .. }, Outcome::Inspected(Err(cause))) => self.work_failed(&cause, cx),
            (Stage::Applying { next, short, routed, .. }, Outcome::Applied { result: Ok(view), .. }) => {
                self.know_mtu(view.mtu);
                self.applied(next, (short, routed), &view.addresses, cx);
            }
            (Stage::Applying { steps, routed, .. }, Outcome::Applied { taken, result: Err(cause) }) => {
                match steps.into_iter().nth(taken).filter(|step| is_dispensable(step, &cause)) {
                    // The link went down meanwhile.
                    Some(Step::AddRoute(_)) if !routed => self.work(cx),
                    Some(step) => self.do_without(step, &cause, cx),
                    None => self.work_failed(&cause, cx),
                }
            }
            (stage, outcome) => tracing::warn!(?stage, ?outcome, "outcome of another kind of effect"),
        }
    }

    /// Goes on, if it may, when the store has written, or has failed to.
    pub(super) fn noted(&mut self, cx: &mut Cx<'_>) {
        if let Some(work) = self.work.as_mut().filter(|work| matches!(work.stage, Stage::Noting)) {
            work.stage = Stage::Idle;
        }
        self.work(cx);
    }

    /// Goes on after the interface was changed for `next`, and had these addresses after that.
    fn applied(
        &mut self,
        next: Option<Box<Lease>>,
        (short, routed): (bool, bool),
        addresses: &[Ipv4Net],
        cx: &mut Cx<'_>,
    ) {
        tracing::info!(attachment = %self.attachment, address = next.as_ref().map(|lease| tracing::field::display(lease.address)), "interface changed");
        let Life::Held(hold) = &mut self.life else { return };
        let arrived = next.as_deref().map(Lease::ip).filter(|address| hold.put_on(*address));
        let current = hold.client.shared();
        // Of a lease that was lost meanwhile it is not known here whether somebody else uses its address.
        let still = matches!((&next, &current), (Some(next), Some(current)) if next.ip() == current.ip());
        let agrees = matches!((&next, &current), (Some(next), Some(now)) if plan::same(next, now, &self.profile));
        let work = self.due();
        let refused = work.refused.extract_if(.., |step| matches!(step, Step::Mtu(_))).count() > 0;
        let (bare, mtu_due) = (next.is_none(), next.is_some() && (short || refused));
        let routes_due = work.former.routes_due && !routed;
        let again = work.back(next.as_deref(), addresses);
        let comes_back = !again.is_empty();
        let taken = work.former.taken && (comes_back || next.is_some() && !still);
        let leases = again.into_iter().chain(next.filter(|_| !agrees).map(|next| *next)).collect();
        work.former = Former { leases, bare, taken, mtu_due, routes_due, displaced: Vec::new() };
        arrived.into_iter().for_each(|address| self.announce(address, cx));
        match (comes_back, mtu_due) {
            (true, _) => self.work_later(&"an address came back", LONGEST_PAUSE, cx),
            (false, true) => self.work_later(&"its MTU could not be set", LONGEST_MTU_PAUSE, cx),
            (false, false) if routes_due => self.work_later(&"its link takes no routes yet", LONGEST_PAUSE, cx),
            (false, false) => self.work(cx),
        }
        // Where the profile keeps what is there, that nothing is, or something else, does not go without saying.
        let keeps = bare && self.profile.on_expiry == OnExpiry::Keep || self.keeps_changed();
        if (mtu_due || keeps) && self.work.as_ref().is_some_and(|work| !work.busy()) {
            self.record_again(cx);
        }
    }

    /// Changes the interface from what was seen there. A lease that came during the look may have an MTU for which the LAN's
    /// link is to be looked at first.
    fn change(&mut self, view: &LinkView, most: Option<u32>, asked: bool, cx: &mut Cx<'_>) {
        let Some(next) = self.wanted_now() else { return };
        let (next, Some(work)) = (next.cloned(), &self.work) else { return };
        // An ADD that takes this binding's place is clearing the interface: if that comes to nothing, this goes on after it.
        if self.link.in_netns().is_some_and(|at| cx.out.is_changing(at)) {
            return;
        }
        let makeshifts = work.makeshifts(&view.addresses);
        let addresses: Vec<_> = view.addresses.iter().filter(|there| !makeshifts.contains(there)).copied().collect();
        let before = work.before(&addresses);
        let mtu = work.mtu(next.as_ref());
        if let (Some(_), Some(parent), false) = (mtu, self.identity.lan.parent(), asked) {
            return self.look_at_parent(parent.to_owned(), cx);
        }
        let short = asked && most.is_none() && mtu.is_some_and(|mtu| u32::from(mtu) > view.mtu);
        let mtu = mtu.map(|mtu| u32::from(mtu).min(most.unwrap_or(view.mtu)));
        let resize = mtu.filter(|mtu| *mtu != view.mtu).map(Step::Mtu);
        let differs = work.differs();
        let is_on = next.as_ref().is_some_and(|next| differs || addresses.contains(&next.address));
        let mut steps = match differs || (work.former.routes_due && is_on && view.up) {
            true => plan::difference(&before, next.as_ref(), &self.profile),
            false => Vec::new(),
        };
        if let (Some(next), false, true) = (&next, differs, work.only_late) {
            steps.retain(|step| !matches!(step, Step::AddRoute(route) if !plan::is_late(route, next)));
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
        let store_works = self.persistence.works();
        if self.due().displace(&steps, next.as_ref()) && store_works {
            self.due().stage = Stage::Noting;
            return self.record_again(cx);
        }
        self.apply(steps, next.map(Box::new), short, routed, cx);
    }

    /// Goes on without a step that the kernel refuses: one bad route of a server's is no reason to keep an old address.
    fn do_without(&mut self, step: Step, cause: &LinkCause, cx: &mut Cx<'_>) {
        tracing::warn!(attachment = %self.attachment, %step, %cause, "not done at the interface");
        self.due().refused.push(step);
        self.work(cx);
    }

    fn work_failed(&mut self, cause: &LinkCause, cx: &mut Cx<'_>) {
        if self.is_lost(cause, cx) {
            return self.on_link_gone(cause.clone(), cx);
        }
        if matches!(self.life, Life::Held(_)) {
            let only_mtu = !self.due().differs();
            self.work_later(cause, if only_mtu { LONGEST_MTU_PAUSE } else { LONGEST_PAUSE }, cx);
        }
    }

    pub(super) fn work_later(&mut self, cause: &dyn fmt::Display, longest: Duration, cx: &mut Cx<'_>) {
        let attachment = self.attachment.clone();
        let work = self.due();
        let pause = timing::doubled(work.failures, longest);
        work.failures += 1;
        work.retry = Some(cx.now.boot + timing::jittered(pause, cx.rng));
        tracing::warn!(%attachment, %cause, ?pause, "interface not changed, trying again");
    }

    /// Tries again what failed, or waits no longer, when its time has come.
    pub(super) fn retry_work(&mut self, cx: &mut Cx<'_>) {
        let Some(work) = &mut self.work else { return };
        let is_due = |at: &mut Instant| cx.now.boot >= *at;
        let (retries, hurries) = (work.retry.take_if(is_due), work.patience.take_if(is_due));
        if retries.or(hurries).is_some() {
            self.work(cx);
        }
    }
}

/// Tells whether the rest of a change makes sense without a step that the kernel refused.
fn is_dispensable(step: &Step, cause: &LinkCause) -> bool {
    let refused = matches!(cause, LinkCause::Refused { doing, .. } if *doing == step.doing());
    refused && matches!(step, Step::Mtu(_) | Step::AddRoute(_) | Step::RemoveRoute(_))
}
