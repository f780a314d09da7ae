//! Leases that are given back by their address, and who waits until that is durable: otherwise the next daemon would hold them
//! again.

use std::collections::BTreeMap;

use super::Registry;
use super::jobs::vacated;
use crate::binding::Leave;
use crate::effect::{Answer, Failure, RequestId, StoreCause};
use crate::link::{Step, Target};
use crate::outbox::{DoorWaiter, Waiter};
use crate::record::BindingId;
use crate::time::Now;

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
    /// Gives back a lease that is no longer used. First its address is taken off the interface, if that is still in a container:
    /// dockerd leaves an interface there if it does not know the address. A call is answered when the store has recorded it.
    pub(super) fn leave(&mut self, now: Now, id: BindingId, call: Option<RequestId>) {
        self.leavings.0.entry(id).or_default().extend(call);
        match self.is_inside(id) {
            true => self.with(now, id, |binding, cx| {
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
        let binding = self.bindings.get(id).filter(|_| self.is_inside(id));
        if let Some(binding) = binding.filter(|binding| binding.profile.wants.is_found_later()) {
            tracing::info!(attachment = %binding.attachment, "its interface is still in the container: taking it out of the way");
            let target = Target::Known(binding.link.clone());
            let nobody = Waiter::Above(DoorWaiter::Nobody);
            self.out.apply(nobody, target, vec![Step::Abandon]);
        }
    }

    /// Returns whether a binding lives inside its container: what it carries there is taken off before its lease is given
    /// back.
    pub(super) fn is_inside(&self, id: BindingId) -> bool {
        self.bindings
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
        let Some(attachment) = self.attachment(id) else {
            return;
        };
        self.lan(id)
            .into_iter()
            .for_each(|lan| self.lans.has_room(&lan));
        self.with(now, id, |binding, cx| {
            binding.give_back(Leave::Released, cx)
        });
        self.slots.vacate(&attachment, id);
        self.await_interface_no_more(id);
        self.next_call(now, &attachment);
    }
}
