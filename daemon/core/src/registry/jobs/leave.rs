//! Leases that are being given back, and the calls that wait until that is durable: DELs, and calls of a door above
//! that name a lease by its address. A caller must not hear it sooner, because the next daemon would hold the lease
//! again.

use std::collections::BTreeMap;

use super::Caller;
use crate::binding::{Binding, Leave};
use crate::effect::{Answer, Failure, RequestId, StoreCause};
use crate::job::LIMIT;
use crate::link::{Step, Target};
use crate::outbox::{DoorWaiter, Waiter};
use crate::record::BindingId;
use crate::registry::Registry;

/// The leases that are being given back until that is durable. For each: why, and which calls wait for it.
#[derive(Debug, Default)]
pub(in crate::registry) struct Leavings(BTreeMap<BindingId, (Leave, Vec<RequestId>)>);

impl Leavings {
    /// Returns whether a binding's lease is being given back.
    pub(in crate::registry) fn has(&self, binding: BindingId) -> bool {
        self.0.contains_key(&binding)
    }

    /// Adds a call, if there is one, that waits for a binding's lease to leave. Why it leaves stays as it was.
    pub(in crate::registry) fn wait(
        &mut self,
        binding: BindingId,
        why: Leave,
        call: Option<RequestId>,
    ) {
        let (_, calls) = self.0.entry(binding).or_insert((why, Vec::new()));
        calls.extend(call);
    }

    /// Forgets a call that waits for a lease to leave. Returns false if it does not.
    pub(super) fn waits_no_more(&mut self, id: RequestId) -> bool {
        let mut all = self.0.values_mut();
        all.any(|(_, calls)| calls.extract_if(.., |call| *call == id).count() > 0)
    }
}

/// Gives back a lease that its door no longer uses. A call that named its address is answered when that is durable.
pub(crate) fn leave(core: &mut Registry, id: BindingId, call: Option<RequestId>) {
    if let (Some(call), Some(attachment)) = (call, core.tables.attachment(id)) {
        let attachment = (*attachment).clone();
        core.jobs.attach(call, Caller::Address, attachment);
        core.time_call(call, core.tables.now.boot + LIMIT);
    }
    begin_leaving(core, id, Leave::Released, call);
}

/// Gives back a lease. Unless a runtime deletes its interface, its address is first taken off that: dockerd leaves an
/// interface in its container if it does not know the address, and a container whose lease an operator gives back
/// lives.
pub(in crate::registry) fn begin_leaving(
    core: &mut Registry,
    id: BindingId,
    why: Leave,
    call: Option<RequestId>,
) {
    core.leavings.wait(id, why, call);
    if why == Leave::Deleted || !core.tables.vacates(id) {
        give_back(core, id, why);
    }
}

/// Goes on when the interface carries nothing of such a lease any more, or is gone. Returns whether anybody waited for that.
pub(in crate::registry) fn left_inside(core: &mut Registry, id: BindingId) -> bool {
    let Some(&(why, _)) = core.leavings.0.get(&id) else {
        return false;
    };
    if why == Leave::Released {
        abandon(core, id);
    }
    give_back(core, id, why);
    true
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
        Ok(()) => core.leavings.0.remove(&id).map(|(_, calls)| calls),
        Err(_) => {
            let leaving = core.leavings.0.get_mut(&id);
            leaving.map(|(_, calls)| std::mem::take(calls))
        }
    };
    let answer = result.map_or_else(
        |cause| Answer::Failed(Failure::Store(cause)),
        |()| Answer::Deleted,
    );
    calls
        .into_iter()
        .flatten()
        .for_each(|call| core.reply(call, answer.clone()));
}

fn give_back(core: &mut Registry, id: BindingId, why: Leave) {
    let Some(attachment) = core.tables.attachment(id) else {
        return;
    };
    core.tables
        .lan(id)
        .into_iter()
        .for_each(|lan| core.tables.lans.has_room(&lan));
    core.tables.with(id, |life, cx| life.give_back(why, cx));
    if why == Leave::Released {
        core.tables.bindings.vacate(&attachment, id);
        core.seeking.wait_no_more(&mut core.tables, id);
        core.next_call(&attachment);
    }
}
