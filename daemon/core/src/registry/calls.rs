//! Gives calls about an attachment their turn, and ends them, whichever door they came through. Their callers are in `jobs`.
//!
//! An attachment has one operation at a time; further calls wait in its slot, in order. A DEL goes before them and ends
//! an ADD that is under way (invariant 2). What an ADD does is in `add`, a CHECK in `check`, a DEL in `delete`.

use std::time::Duration;

use ipnet::IpNet;

use super::Registry;
use super::operation::{CHECK_LIMIT, Operation};
use super::slots::{Asked, Waiting};
use crate::effect::{Add, Outcome, RequestId};
use crate::identity::Attachment;
use crate::outbox::Look;
use crate::time::Now;

impl Registry {
    /// Handles an ADD.
    pub(super) fn add(&mut self, now: Now, id: RequestId, mut add: Box<Add>) {
        let ran_with = self.forget_adoption(&add.attachment);
        let timeout = self.time_for(&add, now.boot);
        (add.hurried, add.timeout) = (add.timeout - timeout, timeout);
        let attachment = add.attachment.clone();
        let limit = add.timeout;
        self.queue(now, &attachment, id, Asked::Add(add, ran_with), limit);
    }

    /// Handles a DEL.
    pub(super) fn del(
        &mut self,
        now: Now,
        id: RequestId,
        attachment: Attachment,
        grace: Option<u32>,
    ) {
        self.forget_adoption(&attachment);
        grace
            .into_iter()
            .for_each(|grace| self.keep_for(now, &attachment, grace));
        self.delete(now, attachment, id);
    }

    pub(super) fn check(
        &mut self,
        now: Now,
        id: RequestId,
        attachment: &Attachment,
        expected: Vec<IpNet>,
    ) {
        self.queue(now, attachment, id, Asked::Check(expected), CHECK_LIMIT);
    }

    /// Begins a call, or has it wait for its turn.
    fn queue(
        &mut self,
        now: Now,
        attachment: &Attachment,
        id: RequestId,
        asked: Asked,
        limit: Duration,
    ) {
        self.time_call(id, now.boot + limit);
        self.slots.make(attachment).waiting.push_back(Waiting {
            id,
            asked,
            since: now.boot,
        });
        self.next_call(now, attachment);
    }

    /// Begins the call that has waited longest, if nothing is under way. Forgets an attachment that has nothing.
    pub(super) fn next_call(&mut self, now: Now, attachment: &Attachment) {
        // A call that is answered at once ends in here; the loop then begins the next one, however many there are.
        let Some(slot) = self
            .slots
            .get_mut(attachment)
            .filter(|slot| !slot.beginning)
        else {
            return;
        };
        slot.beginning = true;
        while self.begin_next(now, attachment) {}
        if let Some(slot) = self.slots.get_mut(attachment) {
            slot.beginning = false;
        }
        self.slots.forget_idle(attachment);
    }

    /// Begins a call. Returns false if one is under way or none waits.
    fn begin_next(&mut self, now: Now, attachment: &Attachment) -> bool {
        let Some(slot) = self
            .slots
            .get_mut(attachment)
            .filter(|slot| slot.operation.is_none())
        else {
            return false;
        };
        let Some(Waiting { id, asked, since }) = slot.waiting.pop_front() else {
            return false;
        };
        match asked {
            Asked::Add(add, ran_with) => self.begin_add(id, add, since, ran_with),
            Asked::Del => self.begin_delete(now, attachment, id),
            Asked::Check(expected) => self.begin_check(now, attachment, id, expected),
        }
        true
    }

    pub(super) fn operation(&mut self, attachment: &Attachment) -> Option<&mut Operation> {
        self.slots.get_mut(attachment)?.operation.as_mut()
    }

    pub(super) fn begin(&mut self, attachment: &Attachment, operation: Operation) {
        self.slots.make(attachment).operation = Some(operation);
    }

    pub(super) fn end(&mut self, now: Now, attachment: &Attachment) {
        let ended = self
            .slots
            .get_mut(attachment)
            .and_then(|slot| slot.operation.take());
        // The result of its look means nothing to the next call.
        ended
            .as_ref()
            .and_then(Operation::op)
            .into_iter()
            .for_each(|op| self.out.forget(op));
        self.next_call(now, attachment);
    }

    pub(super) fn operation_done(
        &mut self,
        now: Now,
        attachment: Attachment,
        look: Look,
        outcome: Outcome,
    ) {
        let view = match outcome {
            Outcome::Applied { result, .. }
            | Outcome::Prepared { result, .. }
            | Outcome::Inspected(result) => result,
            Outcome::Persisted(_)
            | Outcome::Opened(_)
            | Outcome::Sent(_)
            | Outcome::Surveyed(_)
            | Outcome::Inside(_)
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
}
