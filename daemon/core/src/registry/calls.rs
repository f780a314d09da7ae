//! Begins, times and answers calls, and gives those about an attachment their turn. What each kind of call does is in
//! `jobs`.
//!
//! An attachment has one operation at a time; further calls wait in its slot, in order. A DEL goes before them and ends
//! an ADD that is under way (invariant 2). What an ADD does is in `admission` and `add`, what a CHECK does in `check`.

use std::collections::VecDeque;
use std::time::Duration;

use ipnet::IpNet;

use super::Registry;
use super::check::Check;
use super::jobs::{Attached, Caller, Job, Next, Returning, begin_leaving, left};
use super::notice::Notice;
use super::operation::Operation;
use super::slots::{Asked, Waiting};
use super::timers::Key;
use crate::binding::{Leave, Life, Release};
use crate::effect::{Add, Answer, Call, Failure, Outcome, RequestId, StoreCause, Why};
use crate::identity::Attachment;
use crate::job::LIMIT;
use crate::profile::Profile;
use crate::record::BindingId;
use crate::time::Instant;

impl Registry {
    /// Begins a call.
    pub(crate) fn request(&mut self, id: RequestId, call: Call) {
        let next = Job::begin(self, id, call);
        self.call_goes_on(id, next);
    }

    /// Goes on with a call after one of its effects is done.
    pub(super) fn call_done(&mut self, id: RequestId, outcome: Outcome) {
        if let Some(job) = self.jobs.by_id.remove(&id) {
            let next = job.done(outcome);
            self.call_goes_on(id, next);
        }
    }

    /// Ends a call that has waited for as long as it may.
    pub(super) fn call_timed_out(&mut self, id: RequestId) {
        self.tables.timers.set(Key::Call(id), None);
        if let Some(job) = self.jobs.by_id.remove(&id) {
            let next = job.time_out(self, id);
            self.call_goes_on(id, next);
        }
    }

    /// Drops a call whose caller hung up. Returns false if it is not known here.
    pub(crate) fn hung_up(&mut self, id: RequestId) -> bool {
        self.tables.timers.set(Key::Call(id), None);
        let job = self.jobs.by_id.remove(&id);
        let is_known = job.is_some();
        job.into_iter().for_each(|job| job.hang_up(self, id));
        is_known
    }

    /// Answers a call or has it wait.
    pub(super) fn call_goes_on(&mut self, id: RequestId, next: Next) {
        if let Some(answer) = next.settle(id, &mut self.jobs.by_id) {
            self.tables.timers.set(Key::Call(id), None);
            self.tables.out.reply(id, answer);
        }
    }

    /// Answers a call about an attachment, unless it was answered or its caller hung up.
    pub(super) fn reply(&mut self, id: RequestId, answer: Answer) {
        self.tables.timers.set(Key::Call(id), None);
        if let Some(Job::Attached(job)) = self.jobs.by_id.remove(&id) {
            self.answer_attached(id, job, answer);
        }
    }

    /// Gives the answer to the caller.
    pub(super) fn answer_attached(&mut self, id: RequestId, job: Attached, answer: Answer) {
        let Attached { attachment, by } = job;
        match by {
            Caller::Door => self.tables.out.reply(id, answer),
            Caller::Address => self.tables.out.reply(
                id,
                match answer {
                    Answer::Deleted => Answer::Released,
                    answer => answer,
                },
            ),
            Caller::Collection(of) | Caller::Operator(of) => {
                Returning::go_on(self, of, &attachment, answer)
            }
            Caller::Adoption => self.adoptions.tried(&mut self.tables, attachment, answer),
            Caller::Above => self.notices.push_back(Notice::Answered {
                id,
                attachment,
                answer,
            }),
        }
    }

    pub(super) fn time_call(&mut self, id: RequestId, at: Instant) {
        self.tables.timers.set(Key::Call(id), Some((at, Why::Call)));
    }

    /// Handles an ADD.
    pub(super) fn add(&mut self, id: RequestId, mut add: Box<Add>) {
        let timeout = self.time_for(&add);
        (add.hurried, add.timeout) = (add.timeout - timeout, timeout);
        let attachment = add.attachment.clone();
        let limit = add.timeout;
        self.queue(&attachment, id, Asked::Add(add), limit);
    }

    /// Asks for a lease. Returns the ADD, whose answer is a [`Notice`].
    pub(crate) fn lease(&mut self, add: Box<Add>) -> RequestId {
        let errand = self.jobs.errand(Caller::Above, add.attachment.clone());
        self.add(errand, add);
        errand
    }

    /// Handles a DEL.
    pub(super) fn del(&mut self, id: RequestId, attachment: Attachment, grace: Option<u32>) {
        self.forget_adoption(&attachment);
        grace
            .into_iter()
            .for_each(|grace| self.keep_for(&attachment, grace));
        self.delete(attachment, id);
    }

    pub(super) fn check(&mut self, id: RequestId, attachment: &Attachment, expected: Vec<IpNet>) {
        self.queue(attachment, id, Asked::Check(expected), LIMIT);
    }

    /// Begins a call, or has it wait for its turn.
    fn queue(&mut self, attachment: &Attachment, id: RequestId, asked: Asked, limit: Duration) {
        self.time_call(id, self.tables.now.boot + limit);
        self.slots.make(attachment).waiting.push_back(Waiting {
            id,
            asked,
            since: self.tables.now.boot,
        });
        self.next_call(attachment);
    }

    /// Begins the call that has waited longest, if nothing is under way. Forgets an attachment that has nothing.
    pub(super) fn next_call(&mut self, attachment: &Attachment) {
        // A call that is answered at once ends in here; the loop then begins the next one, however many there are.
        let slot = self.slots.by_attachment.get_mut(attachment);
        let Some(slot) = slot.filter(|slot| !slot.beginning) else {
            return;
        };
        slot.beginning = true;
        while self.begin_next(attachment) {}
        if let Some(slot) = self.slots.by_attachment.get_mut(attachment) {
            slot.beginning = false;
        }
        self.slots.forget_idle(attachment);
    }

    /// Begins a call. Returns false if one is under way or none waits.
    fn begin_next(&mut self, attachment: &Attachment) -> bool {
        let slot = self.slots.by_attachment.get_mut(attachment);
        let Some(slot) = slot.filter(|slot| slot.operation.is_none()) else {
            return false;
        };
        let Some(Waiting { id, asked, since }) = slot.waiting.pop_front() else {
            return false;
        };
        match asked {
            Asked::Add(add) => self.begin_add(id, add, since),
            Asked::Del => self.begin_delete(attachment, id),
            Asked::Check(expected) => {
                match Check::begin(&mut self.tables, attachment, id, expected) {
                    Ok(check) => self.begin(attachment, Operation::Checking(check)),
                    Err(answer) => self.reply(id, *answer),
                }
            }
        }
        true
    }

    /// Returns whether an attachment holds or does something.
    pub(super) fn knows(&self, attachment: &Attachment) -> bool {
        self.tables.bindings.holder(attachment).is_some()
            || self.slots.by_attachment.contains_key(attachment)
    }

    pub(super) fn begin(&mut self, attachment: &Attachment, operation: Operation) {
        self.slots.make(attachment).operation = Some(operation);
    }

    pub(super) fn end(&mut self, attachment: &Attachment) {
        let slot = self.slots.by_attachment.get_mut(attachment);
        let ended = slot.and_then(|slot| slot.operation.take());
        // The result of its look means nothing to the next call.
        ended
            .as_ref()
            .and_then(Operation::op)
            .into_iter()
            .for_each(|op| self.tables.out.forget(op));
        self.next_call(attachment);
    }

    pub(super) fn operation_done(&mut self, attachment: Attachment, outcome: Outcome) {
        let view = match outcome {
            Outcome::Applied { result, .. }
            | Outcome::Prepared { result, .. }
            | Outcome::Inspected(result) => result,
            _ => return,
        };
        match self.slots.operation(&attachment) {
            Some(&Operation::Checking(check)) => {
                let answer = check.seen(&self.tables, &attachment, view);
                self.reply(check.request, answer);
                self.end(&attachment);
            }
            _ => self.prepared(&attachment, view),
        }
    }

    /// Handles a DEL: it ends ADDs that wait or are under way, then goes before any other call that waits.
    pub(super) fn delete(&mut self, attachment: Attachment, id: RequestId) {
        self.time_call(id, self.tables.now.boot + LIMIT);
        self.orphans.claim(&attachment);
        let slot = self.slots.make(&attachment);
        let (adds, others) = std::mem::take(&mut slot.waiting)
            .into_iter()
            .partition(|w| matches!(w.asked, Asked::Add(..)));
        slot.waiting = others;
        let cancelled: VecDeque<Waiting> = adds;
        for add in cancelled {
            self.reply(
                add.id,
                Answer::Failed(Failure::Cancelled(attachment.clone())),
            );
        }
        let Some(slot) = self.slots.by_attachment.get_mut(&attachment) else {
            return;
        };
        let holder = self.tables.bindings.holder(&attachment);
        if let Some(Operation::Leaving(of)) = slot.operation
            && let Some(holder) = holder.filter(|holder| *holder == of)
        {
            self.leavings.wait(holder, Leave::Deleted, Some(id));
            // An operator's release may still work at the interface, which disappears now.
            return self.tables.with(holder, |life, cx| {
                if matches!(life, Life::Held(_)) {
                    life.give_back(Leave::Deleted, cx);
                }
            });
        }
        slot.waiting.push_front(Waiting {
            id,
            asked: Asked::Del,
            since: self.tables.now.boot,
        });
        self.cancel_add(&attachment, Some(Failure::Cancelled(attachment.clone())));
        self.next_call(&attachment);
    }

    /// Has an attachment's lease kept for as many seconds as its DEL says. This does not apply to a lease whose identity
    /// is the container's: that was leased under another configuration.
    fn keep_for(&mut self, attachment: &Attachment, grace: u32) {
        let holder = self.tables.bindings.held_by(attachment);
        let holder = holder.filter(|it| !attachment.is_named_by(&it.identity.client_id));
        if let Some(id) = holder.map(|holder| holder.id) {
            let keep = |profile: &mut Profile| profile.grace = Some(grace);
            self.tables.change_profile(id, keep);
        }
    }

    /// Abandons the ADD under way, if there is one.
    pub(super) fn cancel_add(&mut self, attachment: &Attachment, why: Option<Failure>) {
        match self.slots.operation_mut(attachment) {
            Some(Operation::Adding(admission)) => {
                let request = admission.request;
                if let Some(failure) = why {
                    self.reply(request, Answer::Failed(failure));
                }
                self.end(attachment);
            }
            Some(Operation::Acquiring(_, id)) => {
                let (id, is_silent) = (*id, why.is_none());
                self.tables.with(id, |life, cx| life.abort(why, cx));
                if is_silent {
                    self.begin(attachment, Operation::Leaving(id));
                }
            }
            Some(Operation::Leaving(_) | Operation::Checking(..)) | None => {}
        }
    }

    pub(super) fn begin_delete(&mut self, attachment: &Attachment, id: RequestId) {
        let Some(holder) = self.tables.bindings.holder(attachment) else {
            self.reply(id, Answer::Deleted);
            return self.end(attachment);
        };
        self.begin(attachment, Operation::Leaving(holder));
        let by = self.jobs.caller(id).copied();
        let why = match by {
            Some(Caller::Operator(_)) => Leave::Ordered,
            _ => Leave::Deleted,
        };
        begin_leaving(self, holder, why, Some(id));
        if let Some(Caller::Collection(_)) = by {
            self.tables.at_release(holder, Release::end_grace);
        }
    }

    /// Records that a binding is done with its attachment.
    pub(super) fn given_back(&mut self, id: BindingId, attachment: &Attachment) {
        left(self, id, Ok(()));
        self.tables.bindings.vacate(attachment, id);
        match self.slots.operation(attachment) {
            Some(Operation::Leaving(binding) | Operation::Acquiring(_, binding))
                if *binding == id =>
            {
                self.end(attachment);
            }
            _ => self.next_call(attachment),
        }
    }

    /// Goes on after the store refused to note that a lease is being given back: a DEL that waits fails. The binding keeps trying,
    /// and the next DEL finds it.
    pub(super) fn not_given_back(&mut self, id: BindingId, cause: StoreCause) {
        let Some(attachment) = self.tables.attachment(id) else {
            return;
        };
        let operation = self.slots.operation(&attachment);
        let is_leaving = matches!(operation, Some(Operation::Leaving(binding)) if *binding == id);
        if is_leaving {
            tracing::warn!(%attachment, %cause, "the lease cannot be given back yet");
        }
        left(self, id, Err(cause));
        if is_leaving {
            self.tables.bindings.hold(attachment.clone(), id);
            self.end(&attachment);
        }
    }
}
