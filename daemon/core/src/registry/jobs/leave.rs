//! A lease that is given back by its address, for a door above: it is forgotten when that is durable, because otherwise the next
//! daemon would hold it again. A caller is answered then.

use std::collections::BTreeMap;

use super::{Job, Next, vacated};
use crate::binding::{Binding, Leave};
use crate::effect::{Answer, Failure, RequestId, StoreCause};
use crate::job::LIMIT;
use crate::link::{Step, Target};
use crate::outbox::{DoorWaiter, Waiter};
use crate::record::BindingId;
use crate::registry::Registry;
use crate::time::Now;

/// A call that waits until it is durable that this binding gives its lease back.
#[derive(Debug)]
pub(in crate::registry) struct Leaving(BindingId);

impl Leaving {
    pub(super) fn time_out(self, core: &mut Registry, id: RequestId) -> Next {
        self.hang_up(core, id);
        let failure = Failure::TimedOut("the store to record it", LIMIT);
        Next::Answers(Answer::Failed(failure))
    }

    pub(super) fn hang_up(self, core: &mut Registry, id: RequestId) {
        core.leavings.waits_no_more(self.0, id);
    }
}

/// The leases that are being given back, until that is durable, and the calls that wait for it.
#[derive(Debug, Default)]
pub(in crate::registry) struct Leavings(BTreeMap<BindingId, Vec<RequestId>>);

impl Leavings {
    /// Returns whether a binding's lease is being given back.
    pub(in crate::registry) fn has(&self, binding: BindingId) -> bool {
        self.0.contains_key(&binding)
    }

    /// Forgets a call that waits for a binding's lease to leave.
    fn waits_no_more(&mut self, binding: BindingId, id: RequestId) {
        self.0
            .get_mut(&binding)
            .into_iter()
            .for_each(|calls| calls.retain(|call| *call != id));
    }
}

/// Gives a lease back for a call, which is answered when that is durable.
pub(crate) fn leave_for(core: &mut Registry, now: Now, call: RequestId, id: BindingId) {
    core.time_call(call, now.boot + LIMIT);
    let job = Job::Leave(Leaving(id));
    core.jobs.by_id.insert(call, job);
    leave(core, now, id, Some(call));
}

/// Gives back a lease that is no longer used. First its address is taken off the interface, if that is still in a container:
/// dockerd leaves an interface there if it does not know the address. A call is answered when the store has recorded it.
pub(crate) fn leave(core: &mut Registry, now: Now, id: BindingId, call: Option<RequestId>) {
    core.leavings.0.entry(id).or_default().extend(call);
    if !core.tables.vacates(now, id) {
        give_back(core, now, id);
    }
}

/// Goes on when the interface carries nothing of such a lease any more, or is gone. Returns whether anybody waited for that.
pub(in crate::registry) fn left_inside(core: &mut Registry, now: Now, id: BindingId) -> bool {
    let leaves = core.leavings.has(id);
    if leaves {
        abandon(core, id);
        give_back(core, now, id);
    }
    leaves || vacated(core, now, id)
}

/// Takes an interface that dockerd left in its container out of the way: under its name no other could come.
fn abandon(core: &mut Registry, id: BindingId) {
    let binding = core.tables.bindings.get(id);
    let is_left = |it: &&Binding| it.is_inside() && it.profile.wants.is_found_later();
    if let Some(binding) = binding.filter(is_left) {
        tracing::info!(attachment = %binding.attachment, "its interface is still in the container: taking it out of the way");
        let target = Target::Known(binding.link.clone());
        let nobody = Waiter::Above(DoorWaiter::Nobody);
        core.tables.out.apply(nobody, target, vec![Step::Abandon]);
    }
}

/// Answers the calls that wait for the store to record that a lease is given back. If the store refused, that is tried again.
pub(in crate::registry) fn left(
    core: &mut Registry,
    id: BindingId,
    result: Result<(), StoreCause>,
) {
    let calls = match &result {
        Ok(()) => core.leavings.0.remove(&id),
        Err(_) => core.leavings.0.get_mut(&id).map(std::mem::take),
    };
    let answer = result.map_or_else(
        |cause| Answer::Failed(Failure::Store(cause)),
        |()| Answer::Released,
    );
    calls
        .into_iter()
        .flatten()
        .for_each(|call| core.answer(call, answer.clone()));
}

/// Gives back a lease whose identity may return.
fn give_back(core: &mut Registry, now: Now, id: BindingId) {
    let Some(attachment) = core.tables.attachment(id) else {
        return;
    };
    core.tables
        .lan(id)
        .into_iter()
        .for_each(|lan| core.tables.lans.has_room(&lan));
    core.tables.with(now, id, |binding, cx| {
        binding.give_back(Leave::Released, cx)
    });
    core.tables.bindings.vacate(&attachment, id);
    core.seeking.wait_no_more(&mut core.tables, id);
    core.next_call(now, &attachment);
}
