//! What the calls of the CNI shim about an attachment have in common, and DEL.
//!
//! An attachment has one operation at a time; further calls wait in its slot, in order. DEL goes before them and ends an
//! ADD that is under way (invariant 2). What an ADD does is in `add`, a CHECK in `check`.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use super::add::Admission;
use super::check::Check;
use super::timers::Key;
use super::{Errand, Registry};
use crate::binding::{Abort, Leave, Purpose};
use crate::effect::{Answer, Call, Failure, Outcome, RequestId, StoreCause, Why};
use crate::identity::Attachment;
use crate::record::BindingId;
use crate::time::{Instant, Now, whole_millis};
use ipnet::Ipv4Net;

/// How long a CHECK may wait behind another operation and for its look at the link.
pub(super) const CHECK_LIMIT: Duration = Duration::from_secs(30);

/// How long a DEL may wait for the store to take note. Dockerd and kubelets give up after 30 s and more.
const DEL_LIMIT: Duration = Duration::from_secs(20);

/// One attachment: what it holds, what it is at, and who waits for that to end.
#[derive(Debug, Default)]
pub(super) struct Slot {
    /// The binding that holds its lease.
    pub(super) holder: Option<BindingId>,
    pub(super) operation: Option<Operation>,
    pub(super) waiting: VecDeque<Waiting>,
    /// Those that wait are being begun, one after the other.
    turning: bool,
}

/// A call that waits for the operation before it.
#[derive(Debug)]
pub(super) struct Waiting {
    id: RequestId,
    call: Call,
    since: Instant,
    /// The address that a container runs with whose adoption this call ended.
    ran_with: Option<Ipv4Net>,
}

/// What an attachment is at.
#[derive(Debug)]
pub(super) enum Operation {
    /// An ADD whose link is being made ready.
    Adding(Box<Admission>),
    /// An ADD whose binding is acquiring.
    Acquiring(RequestId, BindingId),
    /// An ADD that was given up, whose binding settles that.
    Ending(BindingId),
    /// A DEL, or several.
    Deleting(Vec<RequestId>, BindingId),
    /// A CHECK that looks at the link.
    Checking(Box<Check>),
}

impl Registry {
    /// Begins a call, or lets it wait for its turn.
    pub(super) fn call(&mut self, now: Now, attachment: Attachment, id: RequestId, call: Call) {
        let ran_with = match call {
            Call::Add(_) | Call::Del { .. } => self.forget_adoption(&attachment),
            Call::Check { .. } | Call::Collect { .. } | Call::Status { .. } | Call::List => None,
        };
        if matches!(call, Call::Del { .. }) {
            return self.delete(now, attachment, id);
        }
        let limit = match &call {
            Call::Add(add) => add.timeout,
            Call::Check { .. } | Call::Del { .. } | Call::Collect { .. } | Call::Status { .. } | Call::List => {
                CHECK_LIMIT
            }
        };
        self.timers.set(Key::Call(id), Some((now.boot + limit, Why::Call)));
        let slot = self.slot(&attachment);
        slot.waiting.push_back(Waiting { id, call, since: now.boot, ran_with });
        if let Some(Operation::Deleting(_, leaving) | Operation::Ending(leaving)) = &slot.operation {
            let leaving = *leaving;
            self.with(now, leaving, |binding, cx| binding.skip_queue(cx));
        }
        self.next_call(now, &attachment);
    }

    /// Begins the call that has waited longest, if nothing is under way. Forgets an attachment that has nothing.
    fn next_call(&mut self, now: Now, attachment: &Attachment) {
        // A call that is answered at once ends in here. The next one is begun by the loop, however many there are.
        let Some(slot) = self.slots.get_mut(attachment).filter(|slot| !slot.turning) else { return };
        slot.turning = true;
        while self.begin_next(now, attachment) {}
        if let Some(slot) = self.slots.get_mut(attachment) {
            slot.turning = false;
            if slot.operation.is_none() && slot.holder.is_none() {
                self.slots.remove(attachment);
            }
        }
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
        }
        true
    }

    /// Tells whether a call waits until a binding has no more to do with its attachment.
    pub(super) fn holds_up_call(&self, id: BindingId) -> bool {
        let Some(Slot { operation: Some(operation), waiting, .. }) = self.slot_of(id) else { return false };
        let (Operation::Deleting(_, leaving) | Operation::Ending(leaving)) = operation else { return false };
        *leaving == id && !waiting.is_empty()
    }

    pub(super) fn operation(&mut self, attachment: &Attachment) -> Option<&mut Operation> {
        self.slots.get_mut(attachment)?.operation.as_mut()
    }

    /// Returns an attachment as shared with its slot, if it has one.
    pub(super) fn shared(&self, attachment: &Attachment) -> Arc<Attachment> {
        let known = self.slots.get_key_value(attachment).map(|(known, _)| known.clone());
        known.unwrap_or_else(|| Arc::new(attachment.clone()))
    }

    fn slot(&mut self, attachment: &Attachment) -> &mut Slot {
        let attachment = self.shared(attachment);
        self.slots.entry(attachment).or_default()
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

    pub(super) fn operation_done(&mut self, now: Now, attachment: Attachment, purpose: Purpose, outcome: Outcome) {
        let view = match outcome {
            Outcome::Applied { result, .. } | Outcome::Prepared { result, .. } | Outcome::Inspected(result) => result,
            Outcome::Persisted(_) | Outcome::Opened(_) | Outcome::Sent(_) | Outcome::Surveyed(_) => return,
        };
        match purpose {
            Purpose::Prepare => self.prepared(now, &attachment, view),
            Purpose::Rival(rival) => self.rival_seen(now, &attachment, rival, view),
            Purpose::Check => self.checked(now, &attachment, view),
            Purpose::Open(_)
            | Purpose::Persist
            | Purpose::Work
            | Purpose::Survey
            | Purpose::FindParent
            | Purpose::FindLine
            | Purpose::Release
            | Purpose::Audit
            | Purpose::Status => {}
        }
    }

    // DEL

    /// A DEL ends ADDs that wait or are under way, then goes before all that waits.
    pub(super) fn delete(&mut self, now: Now, attachment: Attachment, id: RequestId) {
        self.timers.set(Key::Call(id), Some((now.boot + DEL_LIMIT, Why::Call)));
        self.orphans.claim(&attachment);
        let slot = self.slot(&attachment);
        let (adds, others) =
            std::mem::take(&mut slot.waiting).into_iter().partition(|w| matches!(w.call, Call::Add(_)));
        slot.waiting = others;
        let cancelled: VecDeque<Waiting> = adds;
        for add in cancelled {
            self.reply(now, add.id, Answer::Failed(Failure::Cancelled(attachment.clone())));
        }
        let Some(slot) = self.slots.get_mut(&attachment) else { return };
        if let Some(Operation::Deleting(requests, _)) = &mut slot.operation {
            return requests.push(id);
        }
        let call = Call::Del { attachment: attachment.clone() };
        slot.waiting.push_front(Waiting { id, call, since: now.boot, ran_with: None });
        self.cancel_add(now, &attachment, Some(Failure::Cancelled(attachment.clone())));
        self.next_call(now, &attachment);
    }

    /// Gives the ADD up that is under way, if there is one.
    fn cancel_add(&mut self, now: Now, attachment: &Attachment, why: Option<Failure>) {
        match self.operation(attachment) {
            Some(Operation::Adding(admission)) => {
                let (request, op) = (admission.request, admission.op());
                op.into_iter().for_each(|op| self.out.forget(op));
                if let Some(failure) = why {
                    self.reply(now, request, Answer::Failed(failure));
                }
                self.end(now, attachment);
            }
            Some(Operation::Acquiring(_, id)) => {
                let id = *id;
                let abort = why.map_or(Abort::Silent, Abort::Because);
                self.with(now, id, |binding, cx| binding.abort(abort.clone(), cx));
                if abort == Abort::Silent {
                    self.begin(attachment, Operation::Ending(id));
                }
            }
            Some(Operation::Ending(_) | Operation::Deleting(..) | Operation::Checking(..)) | None => {}
        }
    }

    fn begin_delete(&mut self, now: Now, attachment: &Attachment, id: RequestId) {
        let holder = self.slots.get(attachment).and_then(|slot| slot.holder);
        let Some(holder) = holder.filter(|holder| self.bindings.contains_key(holder)) else {
            self.reply(now, id, Answer::Deleted);
            return self.end(now, attachment);
        };
        self.begin(attachment, Operation::Deleting(vec![id], holder));
        let collected = matches!(self.errands.get(&id), Some(Errand::Collect(..)));
        self.with(now, holder, |binding, cx| {
            binding.give_back(Leave::Deleted, cx);
            if collected {
                binding.end_grace(cx);
            }
        });
    }

    /// A binding has no more to do with its attachment.
    pub(super) fn given_back(&mut self, now: Now, id: BindingId, attachment: &Attachment) {
        let Some(slot) = self.slots.get_mut(attachment) else { return };
        slot.holder.take_if(|holder| *holder == id);
        match &slot.operation {
            Some(Operation::Deleting(requests, binding)) if *binding == id => {
                let requests = requests.clone();
                requests.into_iter().for_each(|request| self.reply(now, request, Answer::Deleted));
                self.end(now, attachment);
            }
            Some(Operation::Ending(binding) | Operation::Acquiring(_, binding)) if *binding == id => {
                self.end(now, attachment);
            }
            _ => self.next_call(now, attachment),
        }
    }

    /// The store refused to note that a lease is being given back: a DEL that waits fails. A binding that could go on is
    /// held as before; another goes on trying, and the next DEL finds it.
    pub(super) fn not_given_back(&mut self, now: Now, id: BindingId, cause: StoreCause) {
        let Some(binding) = self.bindings.get(&id) else { return };
        let (key, attachment) = (binding.identity.key(), binding.attachment.clone());
        if binding.is_live() {
            for other in self.holders.leaving(&key) {
                self.with(now, other, |binding, cx| binding.pause(cx));
            }
            // What the kernel told meanwhile was not a held binding's.
            self.audit_one(id);
        }
        let requests = match self.operation(&attachment) {
            Some(Operation::Deleting(requests, binding)) if *binding == id => std::mem::take(requests),
            Some(Operation::Ending(binding)) if *binding == id => Vec::new(),
            _ => return,
        };
        if let Some(slot) = self.slots.get_mut(&attachment) {
            slot.holder = Some(id);
        }
        tracing::warn!(%attachment, %cause, "DEL failed");
        for request in requests {
            self.reply(now, request, Answer::Failed(Failure::Store(cause.clone())));
        }
        self.end(now, &attachment);
    }

    // All

    /// A caller went away: what it waited for is given up, but for a DEL.
    pub(super) fn hung_up(&mut self, now: Now, id: RequestId) {
        self.timers.set(Key::Call(id), None);
        if self.collections.remove(&id).is_some() || self.forget_status(id) {
            return;
        }
        let Some(attachment) = self.requests.remove(&id) else {
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
    pub(super) fn call_timed_out(&mut self, now: Now, id: RequestId) {
        self.timers.set(Key::Call(id), None);
        self.collection_timed_out(id);
        self.status_timed_out(id);
        let own = self.errands.get(&id).map(Errand::attachment);
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
                let failure = Failure::TimedOut { waiting_for: "the store to take note", waited: DEL_LIMIT };
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
