//! The registry as a door above uses it: acquire, give back, and look up a lease.
//!
//! A door above sees a binding only through this. It hears what concerns it as a
//! [`Notice`](super::Notice). A lease that it gives back by its address is forgotten when that is durable: otherwise the next daemon
//! would hold it again.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use ipnet::Ipv4Net;

use super::Registry;
use super::jobs::{Caller, Leaving, vacated};
use super::operation::Operation;
use super::slots::Asked;
use super::timers::{DoorTimer, Key};
use crate::binding::{Binding, Leave, Life};
use crate::effect::{Add, Answer, ExchangeId, Failure, RequestId, StoreCause, Why};
use crate::grant::Grant;
use crate::grant::policy::Policy;
use crate::identity::{Attachment, Lan};
use crate::limits::Limits;
use crate::link::{Step, Target};
use crate::outbox::{DoorWaiter, Owner, Waiter};
use crate::record::BindingId;
use crate::source::Lease;
use crate::time::{Instant, Now};
use crate::wire::Mac;

/// A binding as a door above sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PortHolding<'a>(&'a Binding);

impl<'a> PortHolding<'a> {
    pub(crate) fn id(self) -> BindingId {
        self.0.id
    }

    pub(crate) fn attachment(self) -> &'a Attachment {
        &self.0.attachment
    }

    pub(crate) fn lan(self) -> &'a Lan {
        &self.0.identity.lan
    }

    pub(crate) fn chaddr(self) -> Mac {
        self.0.identity.chaddr
    }

    /// Returns whether its client speaks over the LAN's parent, with the parent's Ethernet address.
    pub(crate) fn is_on_parent(self) -> bool {
        self.0.profile.on_parent
    }

    /// Returns whether its attachment holds it, with a lease or looking for another.
    pub(crate) fn is_live(self) -> bool {
        self.0.is_live()
    }

    pub(crate) fn is_on_host(self) -> bool {
        self.0.is_on_host()
    }

    pub(crate) fn holds_on_host(self) -> bool {
        self.0.holds_on_host()
    }

    /// Returns the address that its caller was given.
    pub(crate) fn told(self) -> Option<Ipv4Net> {
        self.0.told
    }

    pub(crate) fn leased(self, now: Instant) -> Option<Ipv4Addr> {
        self.0.lease(now).map(Lease::ip)
    }

    /// Returns the address that it is about to lease.
    pub(crate) fn claimed(self, now: Instant) -> Option<Ipv4Addr> {
        self.0.standing(now).claim.map(|claim| claim.address)
    }

    /// Returns what its lease gives an interface, with the default router whatever its network says.
    pub(crate) fn grant(self, now: Instant) -> Option<Grant> {
        let policy = Policy {
            suppress_default_route: false,
            ..self.0.profile.policy.clone()
        };
        self.0.lease(now).map(|lease| lease.grant(&policy))
    }
}

/// The leases that are being given back, until that is durable, and the calls that wait for it.
#[derive(Debug, Default)]
pub(super) struct Leavings(BTreeMap<BindingId, Vec<RequestId>>);

impl Leavings {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn bindings(&self) -> impl Iterator<Item = BindingId> {
        self.0.keys().copied()
    }

    /// Forgets a call that waits for a binding's lease to leave.
    pub(super) fn waits_no_more(&mut self, binding: BindingId, id: RequestId) {
        self.0
            .get_mut(&binding)
            .into_iter()
            .for_each(|calls| calls.retain(|call| *call != id));
    }
}

impl Registry {
    /// Asks for a lease. Returns the ADD, whose answer is a [`Notice`](super::Notice).
    pub(crate) fn lease(&mut self, now: Now, add: Box<Add>) -> RequestId {
        let errand = self.jobs.errand(Caller::Above, add.attachment.clone());
        self.add(now, errand, add);
        errand
    }

    pub(crate) fn release(&mut self, now: Now, id: BindingId) {
        self.leave(now, id, None);
    }

    /// Gives a lease back for a call, which is answered when that is durable.
    pub(crate) fn release_for(&mut self, now: Now, call: RequestId, id: BindingId) {
        let next = Leaving::begin(self, now, call, id);
        self.call_goes_on(call, next);
    }

    pub(crate) fn holding(&self, attachment: &Attachment) -> Option<PortHolding<'_>> {
        self.tables.bindings.held_by(attachment).map(PortHolding)
    }

    pub(crate) fn is_held(&self, attachment: &Attachment) -> bool {
        self.tables.bindings.holder(attachment).is_some()
    }

    pub(crate) fn every_holding(&self) -> impl Iterator<Item = PortHolding<'_>> {
        self.tables.bindings.iter().map(PortHolding)
    }

    /// Returns those that hold a lease for the attachments of a network, or look for another.
    pub(crate) fn holdings_in(&self, network: &str) -> impl Iterator<Item = PortHolding<'_>> {
        let holders = self
            .tables
            .bindings
            .attachments()
            .filter(move |(attachment, _)| attachment.network() == network);
        holders
            .filter_map(|(_, id)| self.tables.bindings.get(id))
            .map(PortHolding)
    }

    /// Returns those that ask for their first lease in a network.
    pub(crate) fn asking_in(&self, network: &str) -> impl Iterator<Item = PortHolding<'_>> {
        let asking = self
            .tables
            .bindings
            .iter()
            .filter(|binding| matches!(binding.life, Life::Acquiring(_)));
        asking
            .filter(move |binding| binding.attachment.network() == network)
            .map(PortHolding)
    }

    /// Returns those whose leases in a network are being given back, until that is durable.
    pub(crate) fn leaving_in(&self, network: &str) -> impl Iterator<Item = PortHolding<'_>> {
        let leaving = self
            .leavings
            .bindings()
            .filter_map(|id| self.tables.bindings.get(id));
        leaving
            .filter(move |binding| binding.attachment.network() == network)
            .map(PortHolding)
    }

    /// Applies these limits from now on to a network's ADDs that came with limits and have no lease yet.
    pub(crate) fn limit(&mut self, now: Now, network: &str, limits: &Limits) {
        for (_, slot) in self
            .slots
            .iter_mut()
            .filter(|(attachment, _)| attachment.network() == network)
        {
            let waiting = slot
                .waiting
                .iter_mut()
                .filter_map(|waiting| match &mut waiting.asked {
                    Asked::Add(add, _) => Some(add),
                    Asked::Del | Asked::Check(_) => None,
                });
            let under_way = match &mut slot.operation {
                Some(Operation::Adding(admission)) => Some(&mut admission.quest.add),
                Some(_) | None => None,
            };
            waiting
                .chain(under_way)
                .flat_map(|add| &mut add.limits)
                .for_each(|own| own.clone_from(limits));
        }
        let asking: Vec<_> = self.asking_in(network).map(PortHolding::id).collect();
        asking.into_iter().for_each(|asking| {
            self.tables
                .with(now, asking, |binding, _| binding.life.limit(limits))
        });
    }

    /// Has a lease give its interface another MTU than it was requested with.
    pub(crate) fn set_mtu(&mut self, now: Now, id: BindingId, mtu: Option<u16>) {
        let Some(binding) = self
            .tables
            .bindings
            .get(id)
            .filter(|binding| binding.profile.policy.mtu != mtu)
        else {
            return;
        };
        let mut profile = (*binding.profile).clone();
        profile.policy.mtu = mtu;
        let profile = self.tables.profiles.share(profile);
        self.tables
            .with(now, id, |binding, cx| binding.set_profile(profile, cx));
    }

    /// Sets a deadline of a door above, or takes it away.
    pub(crate) fn set_timer(&mut self, timer: DoorTimer, deadline: Option<(Instant, Why)>) {
        self.tables.timers.set(Key::Above(timer), deadline);
    }

    /// Returns the call of a door above that has these sockets.
    pub(crate) fn above(&self, exchange: ExchangeId) -> Option<RequestId> {
        match self.tables.out.exchange(exchange)? {
            Owner::Above(id) => Some(id),
            Owner::Binding(_) | Owner::Call(_) => None,
        }
    }

    /// Gives back a lease that is no longer used. First its address is taken off the interface, if that is still in a container:
    /// dockerd leaves an interface there if it does not know the address. A call is answered when the store has recorded it.
    pub(super) fn leave(&mut self, now: Now, id: BindingId, call: Option<RequestId>) {
        self.leavings.0.entry(id).or_default().extend(call);
        match self.is_inside(id) {
            true => self.tables.with(now, id, |binding, cx| {
                binding.keeps(cx, |hold, common, cx| hold.vacate(common, cx))
            }),
            false => self.give_back(now, id),
        }
    }

    /// Goes on when the interface carries nothing of such a lease any more, or is gone. Returns whether anybody waited for that.
    pub(super) fn left_inside(&mut self, now: Now, id: BindingId) -> bool {
        let leaves = self.leavings.0.contains_key(&id);
        if leaves {
            self.abandon(id);
            self.give_back(now, id);
        }
        leaves || vacated(self, now, id)
    }

    /// Takes an interface that dockerd left in its container out of the way: under its name no other could come.
    fn abandon(&mut self, id: BindingId) {
        let binding = self.tables.bindings.get(id).filter(|_| self.is_inside(id));
        if let Some(binding) = binding.filter(|binding| binding.profile.wants.is_found_later()) {
            tracing::info!(attachment = %binding.attachment, "its interface is still in the container: taking it out of the way");
            let target = Target::Known(binding.link.clone());
            let nobody = Waiter::Above(DoorWaiter::Nobody);
            self.tables.out.apply(nobody, target, vec![Step::Abandon]);
        }
    }

    /// Returns whether a binding lives inside its container: what it carries there is taken off before its lease is given
    /// back.
    pub(super) fn is_inside(&self, id: BindingId) -> bool {
        self.tables
            .bindings
            .get(id)
            .is_some_and(|binding| binding.is_held() && !binding.is_on_host())
    }

    /// Answers the calls that wait for the store to record that a lease is given back. If the store refused, that is tried again.
    pub(super) fn lease_left(&mut self, id: BindingId, result: Result<(), StoreCause>) {
        let calls = match &result {
            Ok(()) => self.leavings.0.remove(&id),
            Err(_) => self.leavings.0.get_mut(&id).map(std::mem::take),
        };
        let answer = result.map_or_else(
            |cause| Answer::Failed(Failure::Store(cause)),
            |()| Answer::Released,
        );
        calls
            .into_iter()
            .flatten()
            .for_each(|call| self.answer(call, answer.clone()));
    }

    /// Gives back a lease whose identity may return.
    fn give_back(&mut self, now: Now, id: BindingId) {
        let Some(attachment) = self.tables.attachment(id) else {
            return;
        };
        self.tables
            .lan(id)
            .into_iter()
            .for_each(|lan| self.tables.lans.has_room(&lan));
        self.tables.with(now, id, |binding, cx| {
            binding.give_back(Leave::Released, cx)
        });
        self.tables.bindings.vacate(&attachment, id);
        self.seeking.wait_no_more(&mut self.tables, id);
        self.next_call(now, &attachment);
    }
}
