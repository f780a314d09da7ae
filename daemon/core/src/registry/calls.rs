//! Calls about an attachment, whichever door they come through: their turn, their end, and their callers.
//!
//! An attachment has one operation at a time; further calls wait in its slot, in order. DEL goes before them and ends an
//! ADD that is under way (invariant 2). What an ADD does is in `add`, a CHECK in `check`, a DEL in `delete`.

use super::Registry;
use super::delete::DEL_LIMIT;
use super::errands::Errand;
use super::operation::{CHECK_LIMIT, Operation};
use super::slots::{Slot, Waiting};
use super::timers::Key;
use crate::effect::{Answer, Call, Failure, Outcome, RequestId, Why};
use crate::identity::Attachment;
use crate::outbox::Look;
use crate::time::{Now, whole_millis};

impl Registry {
    /// Begins a call, or lets it wait for its turn.
    pub(super) fn call(&mut self, now: Now, attachment: Attachment, id: RequestId, mut call: Call) {
        let ran_with = match call {
            Call::Add(_) | Call::Del { .. } => self.forget_adoption(&attachment),
            Call::Check { .. } | Call::Collect { .. } | Call::Status { .. } | Call::List => None,
            Call::RequestPool(_)
            | Call::ReleasePool { .. }
            | Call::Reserve { .. }
            | Call::ReleaseAddress { .. }
            | Call::Network(_) => None,
        };
        if let Call::Del { grace, .. } = call {
            grace.into_iter().for_each(|grace| self.keep_for(now, &attachment, grace));
            return self.delete(now, attachment, id);
        }
        if let Call::Add(add) = &mut call {
            add.timeout = self.time_for(add, now.boot);
        }
        let limit = match &call {
            Call::Add(add) => add.timeout,
            Call::Check { .. } | Call::Del { .. } | Call::Collect { .. } | Call::Status { .. } | Call::List => {
                CHECK_LIMIT
            }
            Call::RequestPool(_)
            | Call::ReleasePool { .. }
            | Call::Reserve { .. }
            | Call::ReleaseAddress { .. }
            | Call::Network(_) => CHECK_LIMIT,
        };
        self.timers.set(Key::Call(id), Some((now.boot + limit, Why::Call)));
        let slot = self.slot(&attachment);
        slot.waiting.push_back(Waiting { id, call, since: now.boot, ran_with });
        self.next_call(now, &attachment);
    }

    /// Begins the call that has waited longest, if nothing is under way. Forgets an attachment that has nothing.
    pub(super) fn next_call(&mut self, now: Now, attachment: &Attachment) {
        // A call that is answered at once ends in here. The next one is begun by the loop, however many there are.
        let Some(slot) = self.slots.get_mut(attachment).filter(|slot| !slot.turning) else { return };
        slot.turning = true;
        while self.begin_next(now, attachment) {}
        if let Some(slot) = self.slots.get_mut(attachment) {
            slot.turning = false;
        }
        self.slots.forget_idle(attachment);
    }

    /// Begins a call; false where one is under way or none waits.
    fn begin_next(&mut self, now: Now, attachment: &Attachment) -> bool {
        let Some(slot) = self.slots.get_mut(attachment).filter(|slot| slot.operation.is_none()) else { return false };
        let Some(Waiting { id, call, since, ran_with }) = slot.waiting.pop_front() else { return false };
        match call {
            Call::Add(add) => self.begin_add(id, add, since, ran_with),
            Call::Del { .. } => self.begin_delete(now, attachment, id),
            Call::Check { expected, .. } => self.begin_check(now, attachment, id, expected),
            Call::Collect { .. } | Call::Status { .. } | Call::List => {}
            Call::RequestPool(_)
            | Call::ReleasePool { .. }
            | Call::Reserve { .. }
            | Call::ReleaseAddress { .. }
            | Call::Network(_) => {}
        }
        true
    }

    pub(super) fn operation(&mut self, attachment: &Attachment) -> Option<&mut Operation> {
        self.slots.get_mut(attachment)?.operation.as_mut()
    }

    pub(super) fn slot(&mut self, attachment: &Attachment) -> &mut Slot {
        let attachment = self.slots.shared(attachment);
        self.slots.make(attachment)
    }

    pub(super) fn begin(&mut self, attachment: &Attachment, operation: Operation) {
        self.slot(attachment).operation = Some(operation);
    }

    pub(super) fn end(&mut self, now: Now, attachment: &Attachment) {
        let ended = self.slots.get_mut(attachment).and_then(|slot| slot.operation.take());
        if let Some(Operation::Adding(admission)) = ended {
            self.restore(now, attachment, &admission);
        }
        self.next_call(now, attachment);
    }

    pub(super) fn operation_done(&mut self, now: Now, attachment: Attachment, look: Look, outcome: Outcome) {
        let view = match outcome {
            Outcome::Applied { result, .. } | Outcome::Prepared { result, .. } | Outcome::Inspected(result) => result,
            Outcome::Persisted(_)
            | Outcome::Opened(_)
            | Outcome::Sent(_)
            | Outcome::Surveyed(_)
            | Outcome::Sought(_)
            | Outcome::Closed
            | Outcome::Made(_)
            | Outcome::Unmade(_)
            | Outcome::OwnLinks(_) => return,
        };
        match look {
            Look::Prepare => self.prepared(now, &attachment, view),
            Look::Rival(rival) => self.rival_seen(now, &attachment, rival, view),
            Look::Check => self.checked(now, &attachment, view),
        }
    }

    /// A caller went away: what it waited for is given up, but for a DEL.
    pub(super) fn other_hung_up(&mut self, now: Now, id: RequestId) {
        if self.take_back_unheard(id) {
            return;
        }
        let own = self.errands.end(id).map(|errand| errand.attachment().clone());
        let Some(attachment) = self.requests.remove(&id).or(own) else {
            self.unknown += 1;
            return;
        };
        let Some(slot) = self.slots.get_mut(&attachment) else { return };
        slot.waiting.retain(|waiting| waiting.id != id || matches!(waiting.call, Call::Del { .. }));
        match &mut slot.operation {
            Some(Operation::Adding(admission)) if admission.request == id => self.cancel_add(now, &attachment, None),
            Some(Operation::Acquiring(request, _)) if *request == id => self.cancel_add(now, &attachment, None),
            Some(Operation::Checking(check)) if check.request == id => {
                let op = check.op();
                op.into_iter().for_each(|op| self.out.forget(op));
                self.end(now, &attachment);
            }
            Some(Operation::Deleting(requests, _)) => requests.retain(|request| *request != id),
            _ => {}
        }
        self.next_call(now, &attachment);
    }

    /// A call has waited for as long as it may.
    pub(super) fn other_timed_out(&mut self, now: Now, id: RequestId) {
        let own = self.errands.get(id).map(Errand::attachment);
        let Some(attachment) = self.requests.get(&id).or(own).cloned() else { return };
        let Some(slot) = self.slots.get_mut(&attachment) else { return };
        if let Some(at) = slot.waiting.iter().position(|waiting| waiting.id == id) {
            let waited = slot.waiting.remove(at).map_or(now.boot, |waiting| waiting.since);
            let waited = whole_millis(now.boot.saturating_since(waited));
            let waiting_for = "the operation before it on the same attachment";
            return self.reply(now, id, Answer::Failed(Failure::TimedOut { waiting_for, waited }));
        }
        match &mut slot.operation {
            Some(Operation::Deleting(requests, _)) => {
                requests.retain(|request| *request != id);
                let failure = Failure::TimedOut { waiting_for: "the store to write it down", waited: DEL_LIMIT };
                self.reply(now, id, Answer::Failed(failure));
            }
            Some(Operation::Adding(admission)) if admission.request == id => {
                let failure = admission.timed_out(now.boot);
                self.cancel_add(now, &attachment, Some(failure));
            }
            Some(Operation::Checking(check)) if check.request == id => {
                let (op, failure) = (check.op(), check.timed_out());
                op.into_iter().for_each(|op| self.out.forget(op));
                self.reply(now, id, Answer::Failed(failure));
                self.end(now, &attachment);
            }
            _ => {}
        }
    }
}
