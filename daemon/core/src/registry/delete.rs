//! DEL: gives back what an attachment holds, before any other call that waits there.

use std::collections::VecDeque;

use super::Registry;
use super::jobs::{Caller, begin_return};
use super::operation::Operation;
use super::slots::{Asked, Waiting};
use crate::binding::{Abort, Leave, Release};
use crate::effect::{Answer, Failure, RequestId, StoreCause};
use crate::identity::Attachment;
use crate::job::LIMIT;
use crate::profile::Profile;
use crate::record::BindingId;
use crate::time::Now;

impl Registry {
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
            return self.with(now, holder, |binding, cx| {
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
        let holder = self.holder_of(attachment);
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
        let profile = self.profiles.share(profile);
        self.with(now, id, |binding, cx| binding.set_profile(profile, cx));
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
                self.with(now, id, |binding, cx| binding.abort(abort.clone(), cx));
                if abort == Abort::Silent {
                    self.begin(attachment, Operation::Ending(id));
                }
            }
            Some(Operation::Ending(_) | Operation::Deleting(..) | Operation::Checking(..))
            | None => {}
        }
    }

    pub(super) fn begin_delete(&mut self, now: Now, attachment: &Attachment, id: RequestId) {
        let Some(holder) = self.holder_of(attachment).map(|holder| holder.id) else {
            self.reply(now, id, Answer::Deleted);
            return self.end(now, attachment);
        };
        self.begin(attachment, Operation::Deleting(vec![id], holder));
        let collected = match self.jobs.caller(id) {
            Some(Caller::Operator(_)) => return begin_return(self, now, holder),
            by => matches!(by, Some(Caller::Collection(_))),
        };
        self.with(now, holder, |binding, cx| {
            binding.give_back(Leave::Deleted, cx);
            if collected {
                binding.gives_back(cx, Release::end_grace);
            }
        });
    }

    /// Records that a binding is done with its attachment.
    pub(super) fn given_back(&mut self, now: Now, id: BindingId, attachment: &Attachment) {
        self.lease_left(id, Ok(()));
        self.slots.vacate(attachment, id);
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
        let Some(attachment) = self.attachment(id) else {
            return;
        };
        let requests = match self.operation(&attachment) {
            Some(Operation::Deleting(requests, binding)) if *binding == id => {
                std::mem::take(requests)
            }
            Some(Operation::Ending(binding)) if *binding == id => Vec::new(),
            _ => return,
        };
        self.slots.hold(attachment.clone(), id);
        tracing::warn!(%attachment, %cause, "DEL failed");
        for request in requests {
            self.reply(now, request, Answer::Failed(Failure::Store(cause.clone())));
        }
        self.end(now, &attachment);
    }
}
