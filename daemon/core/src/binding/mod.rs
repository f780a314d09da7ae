//! One holder of a lease, from the moment its link is known: it acquires, holds, and gives back.
//!
//! A binding knows nothing about other bindings. It works through a [`Cx`], and reports what matters to the registry
//! by [`Report`]s. At any time at most one Persist, one Open and one Apply or Inspect that counts is under way.
//!
//! It has one life at a time ([`Life`]), which handles what happens: `acquire`, `hold` and `release` each say what they do, and
//! which life comes after ([`Next`]). All lives share [`Common`].
//!
//! | phase | may become |
//! |---|---|
//! | of an ADD, in `acquire` | as `acquire::phase` (`leads_to`) lists: Queue, Ask, Probe, Write and Fit in this order, back to Ask over Forget, and to Over |
//! | Fit | held. An adopted container's lease is held from Write on, even if the store refuses it |
//! | Ask to Fit | released, if nobody wants the lease any more |
//! | held | released. A lease that is lost is looked for as held |
//! | released | forgotten |

mod common;
mod holders;
mod life;
mod quest;
mod row;

use std::net::IpAddr;
use std::ops::Deref;

use fastrand::Rng;
use ipnet::IpNet;

pub(crate) use self::common::cx::{Cx, change};
use self::common::guard::Found;
use self::common::persistence::Want;
pub(crate) use self::common::{Common, Leave};
pub(crate) use self::holders::Holders;
use self::holders::Standing;
pub(crate) use self::life::Life;
pub(crate) use self::life::acquire::{Acquire, Known};
pub(crate) use self::life::hold::Hold;
pub(crate) use self::life::release::{Owed, Release};
use self::life::{Living, Next, SAME};
pub(crate) use self::quest::Quest;
pub(crate) use self::row::row;

use crate::effect::{BindingState, Why};
use crate::interface::{At, Interfaces, Seat};
use crate::link::{LinkRoute, LinkView, Step};
use crate::outbox::{Report, Task, Waiter};
use crate::source::{Client, InVain, Lease};
use crate::time::Instant;
use crate::wire::Mac;

/// One holder of a lease. It dereferences to what all its lives share.
#[derive(Debug)]
pub(crate) struct Binding {
    pub(crate) common: Common,
    pub(crate) life: Life,
}

impl Deref for Binding {
    type Target = Common;

    fn deref(&self) -> &Common {
        &self.common
    }
}

impl Binding {
    /// Returns a binding that will acquire once it has a permit.
    pub(crate) fn acquiring(common: Common, known: Known<'_>, now: Instant, rng: Rng) -> Self {
        let common = common.found(known.view);
        let acquire = known.acquire(&common, now, rng);
        Self {
            common,
            life: Life::Acquiring(Box::new(acquire)),
        }
    }

    /// Returns a binding that a record describes.
    pub(crate) fn of(common: Common, life: Life) -> Self {
        Self { common, life }
    }

    /// Returns the binding's standing: how far it is, and its claim on an address.
    pub(crate) fn standing(&self, now: Instant) -> Standing {
        Standing {
            stage: self.life.get().stand(),
            claim: self.life.get().claim(now),
        }
    }

    /// Returns its interface, if that can be looked at: a host link shows nothing about the binding's container.
    pub(crate) fn watched(&self) -> Option<At> {
        let is_leaving = matches!(self.life, Life::Releasing(_));
        self.link.in_netns().filter(|_| !is_leaving)
    }

    /// Returns whether the binding is the live holder of its identity. An abandoned binding is not.
    pub(crate) fn is_live(&self) -> bool {
        self.life.get().stand().is_live()
    }

    /// Returns the lease that the binding holds, if callers may hear about it, or gives back.
    pub(crate) fn lease(&self, now: Instant) -> Option<&Lease> {
        self.life.get().lease(&self.common, now)
    }

    /// Returns whether the binding's sockets are, or will be, on a host link.
    pub(crate) fn speaks_from_host(&self) -> bool {
        match &self.life {
            Life::Acquiring(_) | Life::Held(_) => self.broadcasts_on_host(),
            Life::Releasing(release) => release.speaks_from_host(),
        }
    }

    pub(crate) fn state(&self) -> BindingState {
        self.life.get().state()
    }

    /// Returns whether its container runs without a lease: it was lost, and another is looked for.
    pub(crate) fn lacks_lease(&self, now: Instant) -> bool {
        self.held_now().is_some() && self.lease(now).is_none()
    }

    /// Returns the lease that is held, if servers were asked in vain to extend or confirm it.
    pub(crate) fn unextended(&self, now: Instant) -> Option<(&Lease, InVain)> {
        let client = &self.held_now()?.client;
        client.lease().zip(client.unextended(now))
    }

    /// Returns when the clock next matters, and why.
    pub(crate) fn deadline(&self, interfaces: &Interfaces) -> Option<(Instant, Why)> {
        let seat = self.held_now().and_then(|_| self.common.seat(interfaces));
        let work = seat.and_then(Seat::wakes_at).map(|at| (at, Why::Work));
        let store = self
            .common
            .persistence
            .retry_at()
            .map(|at| (at, Why::Store));
        let all = [
            self.life.get().deadline(),
            work,
            store,
            self.common.guard_deadline(),
        ];
        all.into_iter().flatten().min_by_key(|(at, _)| *at)
    }

    /// Returns whether only broadcasts reach its container, as far as is known.
    pub(crate) fn is_unreached(&self) -> bool {
        self.held_now().is_some_and(Hold::is_unreached)
    }

    pub(crate) fn client(&self) -> Option<&Client> {
        self.life.get().client()
    }

    /// Returns whether it holds a lease, or looks for one again: as far as is known, its container lives.
    pub(crate) fn is_held(&self) -> bool {
        self.held_now().is_some()
    }

    /// Returns whether it is held by an interface inside its container.
    pub(crate) fn is_inside(&self) -> bool {
        self.is_held() && !self.is_on_host()
    }

    pub(crate) fn is_unwritten(&self) -> bool {
        self.held_now()
            .is_some_and(|hold| hold.is_unwritten(&self.common))
    }

    /// Returns whether there is a lease that is not reported yet, because the store has not written it.
    pub(crate) fn waits_for_store(&self, now: Instant) -> bool {
        self.held_now()
            .is_some_and(|hold| hold.waits_for_store(&self.common, now))
    }

    pub(crate) fn expected_address(&self, interfaces: &Interfaces) -> Option<IpAddr> {
        self.held_now()?.expected_address(&self.common, interfaces)
    }

    pub(crate) fn is_changing(&self, interfaces: &Interfaces, now: Instant) -> bool {
        self.held_now()
            .is_some_and(|hold| hold.is_changing(&self.common, interfaces, now))
    }

    /// Returns a route that the daemon has put on and that is not seen on the interface.
    pub(crate) fn lacks_route(
        &self,
        view: &LinkView,
        interfaces: &Interfaces,
    ) -> Option<LinkRoute> {
        let lease = self.held_now()?.client.lease()?;
        self.common
            .seat(interfaces)?
            .lacks_route(&self.common.grant(lease), view)
    }

    /// Returns whether to announce the leased address, if it is still there: the interface's Ethernet address has changed.
    pub(crate) fn is_to_announce(&self, interfaces: &Interfaces) -> bool {
        self.held_now().is_some() && interfaces.has_moved(&self.common.link, self.common.id)
    }

    /// Returns the steps that take this binding's leases off an interface with these addresses, before another takes its place.
    pub(crate) fn leavings(
        &self,
        addresses: &[IpNet],
        interfaces: &Interfaces,
        now: Instant,
    ) -> Vec<Step> {
        let Some((hold, seat)) = self.held_now().zip(self.common.seat(interfaces)) else {
            return Vec::new();
        };
        let is_held = hold.client.lease().is_some_and(|lease| !lease.expired(now));
        seat.leavings(&hold.holding(&self.common), is_held, addresses)
    }

    /// Returns the Ethernet address by which to look for the lease's interface, if the interface is not known.
    pub(crate) fn sought(&self) -> Option<Mac> {
        let is_sought =
            self.is_on_host() && !self.profile.on_parent && self.profile.wants.is_found_later();
        self.held_now()
            .filter(|_| is_sought)
            .map(|_| self.link.mac())
    }

    /// Returns whether it holds a lease on the LAN's link, for which no interface of a container is known.
    pub(crate) fn holds_on_host(&self) -> bool {
        self.held_now().is_some() && self.is_on_host()
    }

    /// Returns whether its runtime may have put this address on its interface, although its lease no longer has it, or has it
    /// with another mask.
    pub(crate) fn may_be_outdated(&self, address: IpAddr) -> bool {
        let hold = self
            .held_now()
            .filter(|_| self.told.is_some_and(|told| told.addr() == address));
        hold.is_some_and(|hold| hold.holding(&self.common).outdated().is_some())
    }

    /// Returns until when a lease is kept for its container to return.
    pub(crate) fn kept_until(&self) -> Option<Instant> {
        self.releasing_now()?.waits_until()
    }

    pub(crate) fn is_to_remember(&self) -> bool {
        self.releasing_now()
            .is_some_and(|release| release.is_to_remember(&self.common))
    }

    /// Returns the release, if the binding is in that life.
    fn releasing_now(&self) -> Option<&Release> {
        let Life::Releasing(release) = &self.life else {
            return None;
        };
        Some(release)
    }

    /// Returns how the lease is held, if it is.
    fn held_now(&self) -> Option<&Hold> {
        let Life::Held(hold) = &self.life else {
            return None;
        };
        Some(hold)
    }
}
