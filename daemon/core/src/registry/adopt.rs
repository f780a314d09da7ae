//! Adopts containers that already ran: the incumbent's, or those of a store that was set aside.
//!
//! If the interface still has the address that it was given, a server confirms it by INIT-REBOOT under the identifier used then,
//! and from then on the lease is held like any other. No other address is taken. A container that could not be adopted stays as
//! it is, is listed with the reason, and is tried again while it lives, until its runtime mentions it. If that is by an ADD, the
//! old address is removed before the ADD's own is added.

use std::collections::BTreeMap;

use ipnet::Ipv4Net;

use super::jobs::{Caller, Jobs};
use super::sight::Sight;
use super::tables::Tables;
use super::timers::Key;
use crate::backoff::{Backoff, RARELY};
use crate::effect::{Adoptee, Answer, Failure, RequestId, Why};
use crate::identity::Attachment;
use crate::link::directory_of;
use crate::time::Now;

/// The containers that must still be adopted, and those that could not be.
#[derive(Debug, Default)]
pub(super) struct Adoptions {
    pending: BTreeMap<Attachment, Adoption>,
    /// Why the last try failed, also for containers that are not tried again.
    failures: BTreeMap<Attachment, String>,
}

/// A container that runs and is not adopted yet.
#[derive(Debug)]
pub(super) struct Adoption {
    adoptee: Adoptee,
    /// Tries that failed.
    tries: Backoff,
    /// The request of the try under way, or of the next one.
    errand: RequestId,
    /// Whether the next try waits for its time.
    waits: bool,
}

impl Adoptions {
    pub(super) fn len(&self) -> usize {
        self.pending.len()
    }

    pub(super) fn failures(&self) -> Vec<(Attachment, String)> {
        self.failures.clone().into_iter().collect()
    }

    /// Returns all attachments that an operator still sees, some twice.
    fn known(&self) -> impl Iterator<Item = &Attachment> {
        self.failures.keys().chain(self.pending.keys())
    }

    /// Enters a container that is to be adopted. Returns the request of the first try.
    pub(super) fn enter(&mut self, jobs: &mut Jobs, adoptee: Adoptee) -> RequestId {
        let attachment = adoptee.add.attachment.clone();
        let errand = jobs.errand(Caller::Adoption, attachment.clone());
        let adoption = Adoption {
            adoptee,
            tries: Backoff::default(),
            errand,
            waits: false,
        };
        self.pending.insert(attachment, adoption);
        errand
    }

    /// Returns the container whose next try begins: the pause is over.
    pub(super) fn next_try(&mut self, attachment: &Attachment) -> Option<Adoptee> {
        let adoption = self.pending.get_mut(attachment)?;
        adoption.waits = false;
        Some(adoption.adoptee.clone())
    }

    /// Leaves an attachment to its runtime, which has decided about it. Returns the address that its container ran with, if it
    /// still had to be adopted.
    pub(super) fn forget(
        &mut self,
        tables: &mut Tables,
        jobs: &mut Jobs,
        attachment: &Attachment,
    ) -> Option<Ipv4Net> {
        self.failures.remove(attachment);
        let Adoption {
            errand,
            waits,
            adoptee,
            ..
        } = self.pending.remove(attachment)?;
        if waits {
            tables.timers.set(Key::Adoption(errand), None);
            jobs.forget(errand);
        }
        Some(adoptee.address)
    }

    /// Forgets the adoptions of all attachments that their runtime has called gone.
    pub(super) fn forget_all(
        &mut self,
        tables: &mut Tables,
        jobs: &mut Jobs,
        gone: impl Fn(&Attachment) -> bool,
    ) {
        let known = self.known().filter(|attachment| gone(attachment));
        for attachment in known.cloned().collect::<Vec<_>>() {
            self.forget(tables, jobs, &attachment);
        }
    }

    /// Handles the answer to a try.
    pub(super) fn tried(
        &mut self,
        tables: &mut Tables,
        jobs: &mut Jobs,
        sight: &Sight,
        now: Now,
        attachment: Attachment,
        answer: Answer,
    ) {
        match answer {
            Answer::Leased { tenures } => {
                for tenure in tenures {
                    let server = tenure.by.server().map(tracing::field::display);
                    tracing::info!(%attachment, address = %tenure.net(), server, "adopted");
                }
                self.forget(tables, jobs, &attachment);
            }
            Answer::Failed(failure) => self.failed(tables, jobs, sight, now, attachment, &failure),
            // An ADD gets no other answer.
            _ => {}
        }
    }

    fn failed(
        &mut self,
        tables: &mut Tables,
        jobs: &mut Jobs,
        sight: &Sight,
        now: Now,
        attachment: Attachment,
        failure: &Failure,
    ) {
        let Some(mut adoption) = self.pending.remove(&attachment) else {
            return;
        };
        self.failures
            .insert(attachment.clone(), failure.to_string());
        if !may_live(tables, sight, &adoption, failure) {
            tracing::warn!(%attachment, %failure, "not adopted");
            return;
        }
        let was_tried = adoption.tries.has_failed();
        adoption.tries.fail();
        let pause = adoption.tries.pause(RARELY, &mut tables.rng);
        match was_tried {
            true => tracing::debug!(%attachment, %failure, ?pause, "not adopted, trying again"),
            false => tracing::warn!(%attachment, %failure, ?pause, "not adopted, trying again"),
        }
        (adoption.errand, adoption.waits) =
            (jobs.errand(Caller::Adoption, attachment.clone()), true);
        let next = Some((now.boot + pause, Why::Work));
        tables.timers.set(Key::Adoption(adoption.errand), next);
        self.pending.insert(attachment, adoption);
    }
}

/// Returns whether a container may still run after its adoption failed like this. A namespace that is not seen is gone if the
/// next look does not find it either, and another namespace with a lease is seen in the same directory.
fn may_live(tables: &Tables, sight: &Sight, adoption: &Adoption, failure: &Failure) -> bool {
    let Failure::Link { cause, .. } = failure else {
        return true;
    };
    let netns = adoption.adoptee.add.place.netns();
    let blind = !adoption.tries.has_failed()
        || !netns.is_some_and(|netns| sight.sees(directory_of(netns), &tables.bindings));
    if cause.is_missing() {
        blind
    } else {
        !cause.is_gone()
    }
}
