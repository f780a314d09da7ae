//! Gives calls about an attachment their turn, and ends them, whichever door they came through. Their callers are in `jobs`.
//!
//! An attachment has one operation at a time; further calls wait in its slot, in order. A DEL goes before them and ends
//! an ADD that is under way (invariant 2). What an ADD does is in `add`.
//!
//! A CHECK asks whether the attachment still holds what its ADD was given, and whether that is on its interface.
//! It looks when the daemon itself changes nothing there: between an extended lease and the interface that follows it, a look
//! shows neither state. It does not wait for what failed, for room in the store, or while another call waits behind it. On a
//! host link there is nothing to look for.
//!
//! Only routes that the daemon has put on count: the main plugin's own CHECK knows the others. An address that never appeared
//! on the interface is not a fault: its caller only asked for an address, and has it elsewhere.

use std::collections::VecDeque;
use std::time::Duration;

use ipnet::IpNet;

use super::Registry;
use super::jobs::{Caller, begin_return};
use super::operation::{Check, Operation};
use super::slots::{Asked, Waiting};
use crate::binding::{Abort, Binding, Leave, Release};
use crate::effect::{Add, Answer, Failure, Outcome, RequestId, StoreCause};
use crate::identity::Attachment;
use crate::interface::Seat;
use crate::job::LIMIT;
use crate::link::{LinkCause, LinkView, Target};
use crate::outbox::{Look, Waiter};
use crate::profile::Profile;
use crate::record::BindingId;
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
        self.queue(now, attachment, id, Asked::Check(expected), LIMIT);
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
        let slot = self.slots.get_mut(attachment);
        let Some(slot) = slot.filter(|slot| !slot.beginning) else {
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
        let slot = self.slots.get_mut(attachment);
        let Some(slot) = slot.filter(|slot| slot.operation.is_none()) else {
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

    /// Returns whether an attachment holds or does something.
    pub(super) fn knows(&self, attachment: &Attachment) -> bool {
        self.tables.bindings.holder(attachment).is_some() || self.slots.contains(attachment)
    }

    pub(super) fn operation(&mut self, attachment: &Attachment) -> Option<&mut Operation> {
        self.slots.get_mut(attachment)?.operation.as_mut()
    }

    pub(super) fn begin(&mut self, attachment: &Attachment, operation: Operation) {
        self.slots.make(attachment).operation = Some(operation);
    }

    pub(super) fn end(&mut self, now: Now, attachment: &Attachment) {
        let slot = self.slots.get_mut(attachment);
        let ended = slot.and_then(|slot| slot.operation.take());
        // The result of its look means nothing to the next call.
        ended
            .as_ref()
            .and_then(Operation::op)
            .into_iter()
            .for_each(|op| self.tables.out.forget(op));
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

    /// Handles a DEL: it ends ADDs that wait or are under way, then goes before any other call that waits.
    pub(super) fn delete(&mut self, now: Now, attachment: Attachment, id: RequestId) {
        self.time_call(id, now.boot + LIMIT);
        self.orphans.claim(&attachment);
        let slot = self.slots.make(&attachment);
        let (adds, others) = std::mem::take(&mut slot.waiting)
            .into_iter()
            .partition(|w| matches!(w.asked, Asked::Add(..)));
        slot.waiting = others;
        let cancelled: VecDeque<Waiting> = adds;
        for add in cancelled {
            self.reply(
                now,
                add.id,
                Answer::Failed(Failure::Cancelled(attachment.clone())),
            );
        }
        let Some(slot) = self.slots.get_mut(&attachment) else {
            return;
        };
        if let Some(Operation::Deleting(requests, holder)) = &mut slot.operation {
            let holder = *holder;
            requests.push(id);
            // An operator's release may still work at the interface, which disappears now.
            return self.tables.with(now, holder, |binding, cx| {
                if binding.is_held() {
                    binding.give_back(Leave::Deleted, cx);
                }
            });
        }
        slot.waiting.push_front(Waiting {
            id,
            asked: Asked::Del,
            since: now.boot,
        });
        self.cancel_add(
            now,
            &attachment,
            Some(Failure::Cancelled(attachment.clone())),
        );
        self.next_call(now, &attachment);
    }

    /// Has an attachment's lease kept for as many seconds as its DEL says. This does not apply to a lease whose identity
    /// is the container's: that was leased under another configuration.
    pub(super) fn keep_for(&mut self, now: Now, attachment: &Attachment, grace: u32) {
        let holder = self.tables.bindings.held_by(attachment);
        let Some(binding) = holder.filter(|holder| holder.profile.grace != Some(grace)) else {
            return;
        };
        if attachment.is_named_by(&binding.identity.client_id) {
            return;
        }
        let id = binding.id;
        let profile = Profile {
            grace: Some(grace),
            ..(*binding.profile).clone()
        };
        let profile = self.tables.profiles.share(profile);
        self.tables
            .with(now, id, |binding, cx| binding.set_profile(profile, cx));
    }

    /// Abandons the ADD under way, if there is one.
    pub(super) fn cancel_add(&mut self, now: Now, attachment: &Attachment, why: Option<Failure>) {
        match self.operation(attachment) {
            Some(Operation::Adding(admission)) => {
                let request = admission.request;
                if let Some(failure) = why {
                    self.reply(now, request, Answer::Failed(failure));
                }
                self.end(now, attachment);
            }
            Some(Operation::Acquiring(_, id)) => {
                let id = *id;
                let abort = why.map_or(Abort::Silent, Abort::Because);
                self.tables
                    .with(now, id, |binding, cx| binding.abort(abort.clone(), cx));
                if abort == Abort::Silent {
                    self.begin(attachment, Operation::Ending(id));
                }
            }
            Some(Operation::Ending(_) | Operation::Deleting(..) | Operation::Checking(..))
            | None => {}
        }
    }

    pub(super) fn begin_delete(&mut self, now: Now, attachment: &Attachment, id: RequestId) {
        let Some(holder) = self
            .tables
            .bindings
            .held_by(attachment)
            .map(|holder| holder.id)
        else {
            self.reply(now, id, Answer::Deleted);
            return self.end(now, attachment);
        };
        self.begin(attachment, Operation::Deleting(vec![id], holder));
        let collected = match self.jobs.caller(id) {
            Some(Caller::Operator(_)) => return begin_return(self, now, holder),
            by => matches!(by, Some(Caller::Collection(_))),
        };
        self.tables.with(now, holder, |binding, cx| {
            binding.give_back(Leave::Deleted, cx);
            if collected {
                binding.gives_back(cx, Release::end_grace);
            }
        });
    }

    /// Records that a binding is done with its attachment.
    pub(super) fn given_back(&mut self, now: Now, id: BindingId, attachment: &Attachment) {
        self.lease_left(id, Ok(()));
        self.tables.bindings.vacate(attachment, id);
        match self.slots.operation(attachment) {
            Some(Operation::Deleting(requests, binding)) if *binding == id => {
                let requests = requests.clone();
                requests
                    .into_iter()
                    .for_each(|request| self.reply(now, request, Answer::Deleted));
                self.end(now, attachment);
            }
            Some(Operation::Ending(binding) | Operation::Acquiring(_, binding))
                if *binding == id =>
            {
                self.end(now, attachment);
            }
            _ => self.next_call(now, attachment),
        }
    }

    /// Goes on after the store refused to note that a lease is being given back: a DEL that waits fails. The binding keeps trying,
    /// and the next DEL finds it.
    pub(super) fn not_given_back(&mut self, now: Now, id: BindingId, cause: StoreCause) {
        self.lease_left(id, Err(cause.clone()));
        let Some(attachment) = self.tables.attachment(id) else {
            return;
        };
        let requests = match self.operation(&attachment) {
            Some(Operation::Deleting(requests, binding)) if *binding == id => {
                std::mem::take(requests)
            }
            Some(Operation::Ending(binding)) if *binding == id => Vec::new(),
            _ => return,
        };
        self.tables.bindings.hold(attachment.clone(), id);
        tracing::warn!(%attachment, %cause, "DEL failed");
        for request in requests {
            self.reply(now, request, Answer::Failed(Failure::Store(cause.clone())));
        }
        self.end(now, &attachment);
    }

    pub(super) fn begin_check(
        &mut self,
        now: Now,
        attachment: &Attachment,
        id: RequestId,
        mut expected: Vec<IpNet>,
    ) {
        let binding = self
            .tables
            .bindings
            .held_by(attachment)
            .filter(|binding| binding.is_live());
        if binding.is_some_and(|binding| self.is_worth_waiting(now, attachment, binding)) {
            self.tables.interfaces.await_work(attachment);
            return self.begin_looking(
                attachment,
                Check {
                    request: id,
                    expected,
                    look: None,
                },
            );
        }
        let lease = binding.and_then(|binding| binding.lease(now.boot));
        let (Some(binding), Some(lease)) = (binding, lease) else {
            self.reply(
                now,
                id,
                Answer::Failed(Failure::Unknown(attachment.clone())),
            );
            return self.end(now, attachment);
        };
        let address = lease.address;
        // Nothing is known about the other family.
        expected.retain(|expected| matches!(expected, IpNet::V4(_)));
        if !expected.is_empty() && !expected.contains(&address.into()) {
            let expected = expected
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
                .join(", ");
            let failure = Failure::Differs {
                attachment: attachment.clone(),
                held: address,
                expected,
            };
            self.reply(now, id, Answer::Failed(failure));
            return self.end(now, attachment);
        }
        if binding.is_on_host() {
            self.reply(now, id, Answer::Checked);
            return self.end(now, attachment);
        }
        let target = Target::Known(binding.link.clone());
        let op = self.tables.out.inspect_with(
            Waiter::Operation(attachment.clone(), Look::Check),
            target,
            true,
        );
        self.begin_looking(
            attachment,
            Check {
                request: id,
                expected,
                look: Some((op, address)),
            },
        );
    }

    fn begin_looking(&mut self, attachment: &Attachment, check: Check) {
        self.begin(attachment, Operation::Checking(Box::new(check)));
    }

    pub(super) fn checked(
        &mut self,
        now: Now,
        attachment: &Attachment,
        view: Result<LinkView, LinkCause>,
    ) {
        let Some(Operation::Checking(check)) = self.operation(attachment) else {
            return;
        };
        let Check {
            request,
            expected,
            look,
        } = &mut **check;
        let id = *request;
        let expected = std::mem::take(expected);
        let sought = look.map(|(_, address)| address);
        let binding = self.tables.bindings.held_by(attachment);
        let lease = binding.and_then(|binding| binding.lease(now.boot));
        let answer = match (binding, lease, view) {
            // It changed since the look was asked for, or is changing.
            (Some(binding), lease, Ok(_))
                if self.is_worth_waiting(now, attachment, binding)
                    || lease.is_some_and(|lease| Some(lease.address) != sought) =>
            {
                return self.begin_check(now, attachment, id, expected);
            }
            (Some(binding), Some(lease), Ok(view))
                if view.addresses.contains(&lease.address.into()) =>
            {
                match binding.lacks_route(&view, &self.tables.interfaces) {
                    Some(route) => Answer::Failed(Failure::NoRoute {
                        attachment: attachment.clone(),
                        route: Box::new(route),
                        ifname: view.ifname,
                    }),
                    None => Answer::Checked,
                }
            }
            (Some(binding), Some(_), Ok(_))
                if self
                    .tables
                    .interfaces
                    .seat(&binding.link, binding.id)
                    .is_some_and(Seat::never_came) =>
            {
                Answer::Checked
            }
            (Some(_), Some(lease), Ok(view)) => Answer::Failed(Failure::NotOnLink {
                attachment: attachment.clone(),
                address: lease.address,
                ifname: view.ifname,
            }),
            (Some(binding), _, Err(cause)) => {
                let target = Target::Known(binding.link.clone()).to_string();
                Answer::Failed(Failure::Link { target, cause })
            }
            (Some(_), None, Ok(_)) | (None, ..) => {
                Answer::Failed(Failure::Unknown(attachment.clone()))
            }
        };
        self.reply(now, id, answer);
        self.end(now, attachment);
    }

    /// Resumes the CHECKs whose interface is no longer being changed. Returns whether there were any.
    pub(super) fn resume_checks(&mut self, now: Now) -> bool {
        let waiting = self.tables.interfaces.take_checks();
        let before = waiting.len();
        for attachment in waiting {
            let Some(Operation::Checking(check)) = self.operation(&attachment) else {
                continue;
            };
            if check.look.is_none() {
                let id = check.request;
                let expected = std::mem::take(&mut check.expected);
                self.begin_check(now, &attachment, id, expected);
            }
        }
        self.tables.interfaces.checks() < before
    }

    /// Returns whether a CHECK waits for what the binding does at its interface. With another call behind it, it does not wait.
    fn is_worth_waiting(&self, now: Now, attachment: &Attachment, binding: &Binding) -> bool {
        let is_last = self
            .slots
            .get(attachment)
            .is_none_or(|slot| slot.waiting.is_empty());
        is_last && binding.is_changing(&self.tables.interfaces, now.boot)
    }
}
