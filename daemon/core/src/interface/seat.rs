//! What one binding has at an interface: whether its address is there, when its runtime puts it there, and what remains to be done.
//!
//! A new lease is durable before the interface is changed for it. What an ended lease left there is removed at once, whatever the
//! store does. What a refused or declined lease left there is removed when the store has recorded the loss, or fails, or takes
//! too long: otherwise the next daemon would hold the lease again, and think that somebody took its address off.

use std::net::IpAddr;
use std::time::Duration;

use ipnet::IpNet;

use super::given::{Due, Given};
use super::{Act, Holding, Presence, Wish, Work, Worked};
use crate::grant::Grant;
use crate::grant::policy::{OnChange, OnExpiry, Policy};
use crate::link::{LinkCause, LinkRoute, LinkView, Step};
use crate::plan::{self, Before};
use crate::record::{BindingId, Former};
use crate::rules::{Rule, cut};
use crate::time::Instant;

/// What one binding has on an interface, and wants there.
#[derive(Debug)]
pub(crate) struct Seat {
    pub(super) binding: BindingId,
    /// Whether its address is there.
    presence: Presence,
    /// Whether the interface got another Ethernet address, which nobody associates with the leased address yet.
    pub(super) moved: bool,
    /// Whether the lease is about to be given back: the interface should carry nothing of it.
    vacates: bool,
    /// Since when its runtime could put the address on, if that is known and matters.
    given: Option<Box<Given>>,
    /// The work to be done there; usually none.
    work: Option<Box<Work>>,
}

// What is known about it.
impl Seat {
    pub(super) fn new(binding: BindingId) -> Self {
        Self {
            binding,
            presence: Presence::default(),
            moved: false,
            vacates: false,
            given: None,
            work: None,
        }
    }

    /// Returns whether its address is there, as far as is known.
    pub(crate) fn presence(&self) -> Presence {
        self.presence
    }

    pub(crate) fn work(&self) -> Option<&Work> {
        self.work.as_deref()
    }

    pub(crate) fn work_mut(&mut self) -> Option<&mut Work> {
        self.work.as_deref_mut()
    }

    /// Returns the work to be done there, which may be none yet.
    pub(crate) fn due(&mut self) -> &mut Work {
        self.work.get_or_insert_default()
    }

    /// Returns whether the interface should carry nothing of the lease, which is about to be given back.
    pub(crate) fn vacates(&self) -> bool {
        self.vacates
    }

    /// Returns whether it is still unknown what the ADD's caller did with its answer.
    pub(crate) fn is_settling(&self) -> bool {
        self.given.as_ref().is_some_and(|given| given.is_settling())
    }

    /// Returns whether, as far as is known, the leased address never appeared on the interface.
    pub(crate) fn never_came(&self) -> bool {
        self.presence == Presence::Elsewhere
            || self.presence == Presence::Unknown && self.is_settling()
    }

    /// Returns whether servers can answer to the leased address. Until it is seen on the interface it may be elsewhere, and
    /// packets that bear it from here would mislead others.
    pub(crate) fn is_addressed(&self) -> bool {
        let is_awaited = self.presence == Presence::Awaited;
        self.presence.on_link() && !is_awaited && !self.never_came()
    }

    /// Returns whether it is certain that nothing is on the interface, or that what is there belongs to somebody else.
    pub(super) fn keeps_nothing(&self) -> bool {
        self.work()
            .is_some_and(|work| work.former().bare || work.former().taken)
    }

    /// Returns whether what the interface carries, besides its MTU, may differ from what the lease says.
    fn differs(&self) -> bool {
        self.work().is_some_and(Work::differs)
    }

    /// Returns whether something of a grant with this address is on the interface, as far as is known.
    pub(crate) fn may_carry(&self, address: IpAddr, last: &Grant) -> bool {
        last.has(address) && self.presence.on_link()
            || self.work().is_some_and(|work| work.may_carry(address))
    }

    /// Returns the address that the interface should carry by now: the lease's, or the last one's if that is kept. `None`: there is
    /// none, or the daemon is changing the interface or about to.
    pub(crate) fn expected(&self, holding: &Holding) -> Option<IpAddr> {
        if self.presence == Presence::Awaited || self.is_at_work(holding) {
            return None;
        }
        let kept = || self.keeps_lost(holding).then_some(&holding.last);
        let grant = holding.grant.as_ref().or_else(kept)?;
        grant.addresses.first().map(IpNet::addr)
    }

    /// Returns whether the addresses of the interface are being changed, or should be.
    fn is_at_work(&self, holding: &Holding) -> bool {
        self.is_changing() || self.differs() && self.wish(holding) != Wish::AsIs
    }

    pub(crate) fn is_changing(&self) -> bool {
        self.work()
            .is_some_and(|work| work.differs() && work.busy())
    }

    /// Returns a route that the daemon has put on and that is not seen there. While the container is being set up, a route that was
    /// removed or replaced is not a fault, but one that lacks its MTU is.
    pub(crate) fn lacks_route(&self, grant: &Grant, view: &LinkView) -> Option<LinkRoute> {
        let seen = view
            .routes
            .as_ref()
            .filter(|_| view.up && self.work.is_none())?;
        let is_removed = |route: &LinkRoute| {
            self.is_settling() && !seen.iter().any(|seen| seen.key() == route.key())
        };
        let late = plan::late_routes(grant);
        late.into_iter()
            .find(|route| !seen.iter().any(|seen| route.is(seen)) && !is_removed(route))
    }

    /// Returns the steps that take this binding's leases off an interface with these addresses, before another binding takes its
    /// place there. `is_held`: the lease has not ended.
    pub(crate) fn leavings(
        &self,
        holding: &Holding,
        is_held: bool,
        addresses: &[IpNet],
    ) -> Vec<Step> {
        let stays =
            holding.on_expiry == OnExpiry::Keep || (is_held && holding.on_change == OnChange::Keep);
        let former = self.work().map(Work::former);
        let is_there = |grant: &&Grant| {
            grant
                .addresses
                .iter()
                .any(|address| addresses.contains(address))
        };
        let grants = former
            .into_iter()
            .flat_map(|former| &former.grants)
            .chain([&holding.last]);
        let grants: Vec<_> = grants.filter(is_there).cloned().collect();
        if grants.is_empty() || stays && !former.is_some_and(|former| former.taken) {
            return Vec::new();
        }
        let before = Before {
            grants: &grants,
            bare: false,
            unrouted: false,
            router: None,
            addresses,
        };
        plan::difference(&before, None)
    }
}

// What the interface should carry.
impl Seat {
    /// Returns what the interface should carry.
    fn wish(&self, holding: &Holding) -> Wish {
        let Some(former) = self.work().map(Work::former) else {
            return Wish::AsIs;
        };
        let carry = |grant: &Grant| Wish::Carry(Box::new(grant.clone()));
        if self.vacates() {
            return Wish::Nothing;
        }
        match holding
            .grant
            .as_ref()
            .filter(|_| !self.presence().is_left())
        {
            None if holding.on_expiry == OnExpiry::Remove || former.taken => Wish::Nothing,
            None => Wish::AsIs,
            // Neither the MTU that came with the ADD nor missing routes are a change.
            Some(next) if self.keeps_changed(holding) => match former.grants.first() {
                _ if !former.mtu_due && !former.routes_due => Wish::AsIs,
                Some(kept) => carry(kept),
                None if holding.is_durable => carry(next),
                None => Wish::AsIs,
            },
            Some(next) if holding.is_durable => carry(next),
            // The remains of an earlier loss do not wait for the next lease.
            Some(_)
                if (former.bare && holding.on_expiry == OnExpiry::Remove || former.taken)
                    && !former.grants.is_empty() =>
            {
                Wish::Nothing
            }
            Some(_) => Wish::AsIs,
        }
    }

    /// Returns the part of that wish that may be carried out now, without what waits for the store to record a loss.
    fn wish_by_now(&self, holding: &Holding) -> Wish {
        let wish = self.wish(holding);
        let waits = holding.is_writing && self.work().is_some_and(Work::is_patient);
        if wish == Wish::Nothing && waits {
            Wish::AsIs
        } else {
            wish
        }
    }

    /// Returns whether the interface keeps what it carries although there is another lease.
    fn keeps_changed(&self, holding: &Holding) -> bool {
        holding.on_change == OnChange::Keep && !self.keeps_nothing()
    }

    /// Returns whether the interface keeps what the lost lease put there.
    fn keeps_lost(&self, holding: &Holding) -> bool {
        holding.on_expiry == OnExpiry::Keep && !self.keeps_nothing()
    }
}

// What happened to the lease.
impl Seat {
    /// Takes over what a record says. If the policy keeps an earlier address on the interface, the last one was never there.
    pub(crate) fn recall(&mut self, policy: &Policy, last: &Grant, former: Option<Box<Former>>) {
        let kept = former
            .as_ref()
            .filter(|former| policy.on_change == OnChange::Keep && !former.bare);
        let kept = kept.and_then(|former| former.grants.first());
        if !self.presence.is_left() && kept.is_some_and(|kept| !kept.meets(last)) {
            self.presence = Presence::Missing;
        }
        self.work = former.map(|former| Box::new(Work::recovered(*former)));
    }

    /// Records the work for a lease that was won, when the interface had this MTU: the lease's MTU, and the routes that its main
    /// plugin does not get. A container that already ran keeps its routes as they are.
    pub(crate) fn is_won(&mut self, grant: &Grant, mtu: u32, ran_before: bool) {
        self.work = None;
        if grant.mtu.is_some_and(|wanted| u32::from(wanted) != mtu) {
            self.due().size_later();
        }
        if !ran_before && grant.has_late() {
            self.due().lacks_routes(true);
        }
    }

    /// Records that an ADD is being given the lease. `t1`: the time until T1.
    pub(crate) fn is_answered(&mut self, now: Instant, t1: Option<Duration>) {
        self.given = Some(Box::new(Given::answered(now, t1)));
    }

    /// Records what was known about its address before this daemon, or this lease.
    pub(crate) fn was(&mut self, presence: Presence) {
        self.presence = presence;
    }

    /// Records that the interface was found. Its runtime puts the address and the default route there, perhaps later; it does not
    /// know the lease's other values.
    pub(crate) fn is_found(&mut self, grant: Option<&Grant>, view: &LinkView, now: Instant) {
        let mut given = Given::found(now);
        if view.up {
            given.on_up(now);
        }
        self.given = Some(Box::new(given));
        if grant.is_some_and(|grant| grant.mtu.is_some()) {
            self.due().size_later();
        }
        if grant.is_some_and(|grant| !grant.routes.is_empty()) {
            self.due().lacks_routes(false);
        }
    }

    /// Records that the lease, which gave `was`, changed to what is held now. The store must have the change before the interface
    /// gets it.
    pub(crate) fn changed(&mut self, holding: &Holding, was: &Grant) {
        let Some(next) = holding.grant.as_ref().filter(|next| !plan::same(was, next)) else {
            return;
        };
        let missing = !self.presence.on_link();
        let moves = was.addresses != next.addresses;
        // What somebody took off by hand is not put back.
        if self.presence.is_left() || missing && !moves {
            return;
        }
        if holding.on_change == OnChange::Apply {
            self.due().leave_behind(was.clone(), missing);
            if moves {
                self.presence = Presence::Awaited;
            }
            return;
        }
        // Nothing is changed from now on: the interface has what the first lease put there.
        if !self.differs() {
            self.due().leave_behind(was.clone(), false);
        }
        let kept = self.work().and_then(|work| work.former().grants.first());
        match kept.is_some_and(|kept| kept.meets(next)) {
            // The interface has the address, perhaps with another mask.
            _ if was.meets(next) => {}
            true => self.presence = Presence::Unknown,
            false => self.presence = Presence::Missing,
        }
    }

    /// Records that there is a lease again. `last`: what the previous lease gave.
    pub(crate) fn returned(&mut self, holding: &Holding, last: &Grant) {
        if self.presence.is_left() {
            return;
        }
        if self.keeps_lost(holding) {
            return self.changed(holding, last);
        }
        let work = self.due();
        if holding.on_expiry == OnExpiry::Keep {
            work.leave_behind(last.clone(), true);
        }
        work.leave_router(last);
        work.expect_bare(true);
        self.presence = Presence::Awaited;
    }

    /// Records the loss of a lease that gave `lost`; `taken`: another station uses its address, which is on the interface.
    /// Returns whether that requires anything to be taken off.
    pub(crate) fn leaves_lost(&mut self, policy: &Policy, lost: Grant, taken: bool) -> bool {
        let keeps = policy.on_expiry == OnExpiry::Keep;
        if keeps && !taken || self.presence == Presence::Elsewhere {
            return false;
        }
        let before = self.work().map(Work::former).cloned().unwrap_or_default();
        let work = self.due();
        work.leave_behind(lost, false);
        if keeps {
            work.is_taken();
        }
        *work.former() != before
    }

    /// Records that the interface should carry nothing of the lease, or of the grants `left` there, before the lease is given back.
    pub(crate) fn vacate(&mut self, left: impl IntoIterator<Item = Grant>) {
        self.vacates = true;
        let work = self.due();
        left.into_iter()
            .for_each(|grant| work.leave_behind(grant, false));
        work.route_no_more();
    }

    /// Records that the lease's address, or none, must replace `left`, which the runtime has put there; `None`: it has not yet.
    pub(crate) fn replaces(&mut self, has_lease: bool, left: Option<Grant>) {
        match left {
            Some(left) => {
                self.due().leave_behind(left, has_lease);
                self.due().stir();
            }
            None if has_lease => self.due().expect_bare(true),
            None => {}
        }
        if has_lease {
            self.presence = Presence::Awaited;
        }
    }

    /// Records that a main plugin is about to put a grant on again, without some of the routes.
    pub(crate) fn route_again(&mut self, grant: &Grant) {
        if grant.has_late() && self.presence != Presence::There && !cut(Rule::RouteAgain) {
            self.due().lacks_routes(true);
        }
    }

    /// Records that nothing is left to do there.
    pub(crate) fn has_done(&mut self) {
        self.work = None;
    }
}

// What is seen and heard.
impl Seat {
    /// Records whether its address was seen there. `start`: when its lease began; `None`: there is none. Returns its presence
    /// before and after.
    ///
    /// A main plugin has time to put the address on. An address that never came was not taken off.
    pub(crate) fn see(
        &mut self,
        there: bool,
        start: Option<Instant>,
        now: Instant,
    ) -> (Presence, Presence) {
        let was = self.presence;
        let settles = self.is_settling();
        let configured =
            start.is_some_and(|start| Given::is_configured(self.given.as_deref(), start, now));
        self.presence = match (was, was.seen(there, configured)) {
            (Presence::Unknown, Presence::Missing) if settles => Presence::Unknown,
            (Presence::Unknown, Presence::TakenOff) if settles => Presence::Elsewhere,
            (_, is) => is,
        };
        (was, self.presence)
    }

    /// Records that what the daemon put there is there. Returns whether that is new.
    pub(crate) fn arrives(&mut self) -> bool {
        let arrives = self.presence == Presence::Awaited;
        if arrives {
            self.presence = Presence::There;
        }
        arrives
    }

    /// Records that the interface got another Ethernet address. A change that a restart finds is not new.
    pub(super) fn moves(&mut self) {
        self.moved |= self.presence == Presence::There;
    }

    /// Records that the interface is up. A look under way may have seen it down.
    pub(super) fn on_up(&mut self, now: Instant) {
        self.work.iter_mut().for_each(|work| work.on_up());
        self.given.iter_mut().for_each(|given| given.on_up(now));
    }

    /// Records that it is down: the kernel has taken its routes.
    pub(crate) fn on_down(&mut self) {
        self.given.iter_mut().for_each(|given| given.on_down());
        if self.presence == Presence::There || self.differs() {
            self.due().lacks_routes(false);
        }
    }

    /// Returns whether to look at the interface now, to check what the runtime did with its grant. While the daemon itself
    /// works there, something missing does not mean that somebody removed it.
    pub(crate) fn looks_now(&mut self, has_lease: bool, now: Instant) -> bool {
        let is_known = self.presence != Presence::Unknown;
        let is_idle = self.work.is_none();
        match self
            .given
            .as_mut()
            .map(|given| given.on_clock(is_known, now))
        {
            Some(Due::Look { is_over }) => has_lease && (!is_known || is_over && is_idle),
            Some(Due::Never) => {
                self.given = None;
                false
            }
            Some(Due::Later) | None => false,
        }
    }

    /// Goes on after such a look. `grant`: the one in use. Returns the routes that others, such as Multus, have removed or replaced:
    /// they are not put back.
    pub(crate) fn settle(
        &mut self,
        grant: Option<&Grant>,
        view: &LinkView,
        now: Instant,
    ) -> Vec<(IpNet, u32)> {
        let settles_now = self
            .given
            .as_ref()
            .is_some_and(|given| given.settles_now(now));
        let (Some(grant), Some(routes), true) = (grant, &view.routes, settles_now) else {
            return Vec::new();
        };
        let removed = match self.presence {
            Presence::Unknown | Presence::Awaited => return Vec::new(),
            Presence::There if !view.up || self.work.is_some() => return Vec::new(),
            Presence::There => plan::removed(grant, routes),
            Presence::Missing | Presence::TakenOff | Presence::Elsewhere => Vec::new(),
        };
        self.given = None;
        removed
    }

    /// Records that Docker has finished with the interface, if it has by now. Returns whether that is new.
    pub(crate) fn end_setup(&mut self, now: Instant) -> bool {
        self.given
            .as_mut()
            .is_some_and(|given| given.end_setup(now))
    }

    /// Returns when something is due there by the clock.
    pub(crate) fn wakes_at(&self) -> Option<Instant> {
        let given = self.given.as_ref().and_then(|given| given.wakes_at());
        given
            .into_iter()
            .chain(self.work().and_then(Work::retry_at))
            .min()
    }
}

// The way to what is wanted.
impl Seat {
    /// Goes on with the work there, if there is any and it may be done.
    pub(crate) fn go_on(&mut self, holding: &Holding, now: Instant) -> Act {
        let is_set_up = self
            .given
            .as_ref()
            .is_none_or(|given| !given.is_being_set_up());
        let wish = self.wish(holding);
        let by_now = self.wish_by_now(holding);
        let kept = holding
            .grant
            .as_ref()
            .filter(|_| self.keeps_changed(holding));
        let has_lease = holding.grant.is_some() && !self.vacates;
        let is_there = self.presence == Presence::There;
        let Some(work) = self.work.as_deref_mut().filter(|work| work.may_go_on(now)) else {
            return Act::Wait;
        };
        if !is_set_up && !self.vacates {
            return Act::Wait;
        }
        if work.is_settled(&wish, kept, has_lease) {
            self.work = None;
            return Act::Settled;
        }
        work.go_on(&by_now, is_there)
    }

    /// Goes on after a look. Fails if the interface could not be looked at.
    pub(crate) fn on_inspected(
        &mut self,
        result: Result<LinkView, LinkCause>,
        holding: &Holding,
        is_changing: bool,
    ) -> Result<Act, LinkCause> {
        // An ADD that replaces this binding may be clearing the interface. If it fails, this goes on afterwards.
        let wish = match is_changing {
            true => Wish::AsIs,
            false => self.wish_by_now(holding),
        };
        self.work_mut().map_or(Ok(Act::Wait), |work| {
            work.on_inspected(result, wish, holding.has_parent)
        })
    }

    /// Goes on after a change in which this many steps were taken.
    pub(crate) fn on_applied(
        &mut self,
        taken: usize,
        result: Result<LinkView, LinkCause>,
        holding: &Holding,
    ) -> Worked {
        let current = holding.grant.as_ref().filter(|_| !self.vacates);
        self.work_mut()
            .map_or(Worked::Again { without: None }, |work| {
                work.on_applied(taken, result, current)
            })
    }
}

/// Returns the steps that remove an address, which no binding holds, from an interface with these addresses, unless the policy
/// keeps what is there.
pub(crate) fn without(address: IpNet, addresses: &[IpNet], policy: &Policy) -> Vec<Step> {
    let stays = policy.on_expiry == OnExpiry::Keep || policy.on_change == OnChange::Keep;
    match stays || !addresses.contains(&address) {
        true => Vec::new(),
        false => plan::without(address, addresses),
    }
}
