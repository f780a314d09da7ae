//! A call about an attachment: an ADD, a DEL or a CHECK, from a door or from the core itself.
//!
//! It waits in its attachment's slot for its turn, and then becomes that slot's operation. A DEL then waits among the
//! `leavings`.

use super::{Job, Next};
use crate::effect::{Answer, Failure, RequestId};
use crate::identity::Attachment;
use crate::job::LIMIT;
use crate::registry::Registry;
use crate::registry::operation::Operation;
use crate::registry::slots::Asked;
use crate::time::whole_millis;

/// A call about an attachment.
#[derive(Debug)]
pub(in crate::registry) struct Attached {
    pub(in crate::registry) attachment: Attachment,
    pub(in crate::registry) by: Caller,
}

/// Who hears the answer.
#[derive(Clone, Copy, Debug)]
pub(in crate::registry) enum Caller {
    /// A caller at a front door.
    Door,
    /// This GC, whose DEL it is.
    Collection(RequestId),
    /// This operator's release, whose DEL it is.
    Operator(RequestId),
    /// A caller at a front door, which names the lease by its address.
    Address,
    /// The adoption of a container that already ran, whose ADD it is.
    Adoption,
    /// A door above the registry.
    Above,
}

impl Attached {
    pub(super) fn time_out(self, core: &mut Registry, id: RequestId) -> Next {
        let now = core.tables.now;
        if core.leavings.waits_no_more(id) {
            let failure = Failure::TimedOut("the store to record it", LIMIT);
            core.answer_attached(id, self, Answer::Failed(failure));
            return Next::Nothing;
        }
        let Some(slot) = core.slots.by_attachment.get_mut(&self.attachment) else {
            return Next::Waits(Job::Attached(self));
        };
        if let Some(at) = slot.waiting.iter().position(|waiting| waiting.id == id) {
            let waited = slot
                .waiting
                .remove(at)
                .map_or(now.boot, |waiting| waiting.since);
            let waited = whole_millis(now.boot.saturating_since(waited));
            let waiting_for = "an earlier operation on the same attachment";
            core.answer_attached(
                id,
                self,
                Answer::Failed(Failure::TimedOut(waiting_for, waited)),
            );
            return Next::Nothing;
        }
        match &mut slot.operation {
            Some(Operation::Adding(admission)) if admission.request == id => {
                let failure = admission.timed_out(now.boot);
                let lan = admission.quest.add.lan.clone();
                core.add_failed(&self.by, &self.attachment, Some(&lan), &failure);
                self.fail_looking(core, id, failure);
            }
            Some(Operation::Checking(check)) if check.request == id => {
                let failure = Failure::TimedOut("a look at the interface", LIMIT);
                self.fail_looking(core, id, failure);
            }
            _ => return Next::Waits(Job::Attached(self)),
        }
        Next::Nothing
    }

    fn fail_looking(self, core: &mut Registry, id: RequestId, failure: Failure) {
        let attachment = self.attachment.clone();
        core.answer_attached(id, self, Answer::Failed(failure));
        core.end(&attachment);
    }

    /// Abandons the operation that it waits for, unless that is a DEL.
    pub(super) fn hang_up(self, core: &mut Registry, id: RequestId) {
        let attachment = &self.attachment;
        core.leavings.waits_no_more(id);
        let Some(slot) = core.slots.by_attachment.get_mut(attachment) else {
            return;
        };
        slot.waiting
            .retain(|waiting| waiting.id != id || matches!(waiting.asked, Asked::Del));
        match &mut slot.operation {
            Some(Operation::Adding(admission)) if admission.request == id => {
                core.cancel_add(attachment, None)
            }
            Some(Operation::Acquiring(request, _)) if *request == id => {
                core.cancel_add(attachment, None)
            }
            Some(Operation::Checking(check)) if check.request == id => core.end(attachment),
            _ => {}
        }
        core.next_call(attachment);
    }
}
