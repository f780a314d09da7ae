//! Adopts containers that already ran: the incumbent's, or those of a store that was set aside.
//!
//! If the interface still has the address that it was given, a server confirms it by INIT-REBOOT under the identifier used then,
//! and from then on the lease is held like any other. No other address is taken. A container that could not be adopted stays as
//! it is, is listed with the reason, and is tried again while it lives, until its runtime mentions it. If that is by an ADD, the
//! old address is removed before the ADD's own is added.

use std::collections::BTreeMap;

use ipnet::Ipv4Net;

use super::Registry;
use super::jobs::Caller;
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

impl Registry {
    /// Begins to adopt a container, unless its attachment is known already.
    pub(crate) fn adopt(&mut self, now: Now, adoptee: Adoptee) {
        let attachment = adoptee.add.attachment.clone();
        if self.knows(&attachment) {
            return;
        }
        let errand = self.jobs.errand(Caller::Adoption, attachment.clone());
        let adoption = Adoption {
            adoptee: adoptee.clone(),
            tries: Backoff::default(),
            errand,
            waits: false,
        };
        self.adoptions.pending.insert(attachment, adoption);
        self.begin_adoption(now, errand, adoptee);
    }

    /// Tries once more: the pause is over.
    pub(super) fn adopt_again(&mut self, now: Now, errand: RequestId) {
        self.tables.timers.set(Key::Adoption(errand), None);
        let Some(attachment) = self.jobs.attachment(errand).cloned() else {
            return;
        };
        if self.knows(&attachment) {
            self.forget_adoption(&attachment);
            return;
        }
        let Some(adoption) = self.adoptions.pending.get_mut(&attachment) else {
            return;
        };
        adoption.waits = false;
        let adoptee = adoption.adoptee.clone();
        self.begin_adoption(now, errand, adoptee);
    }

    /// Leaves an attachment to its runtime, which has decided about it. Returns the address that its container ran with, if it
    /// still had to be adopted.
    pub(super) fn forget_adoption(&mut self, attachment: &Attachment) -> Option<Ipv4Net> {
        self.adoptions.failures.remove(attachment);
        let Adoption {
            errand,
            waits,
            adoptee,
            ..
        } = self.adoptions.pending.remove(attachment)?;
        if waits {
            self.tables.timers.set(Key::Adoption(errand), None);
            self.jobs.forget(errand);
        }
        Some(adoptee.address)
    }

    /// Forgets the adoptions of all attachments that their runtime has called gone.
    pub(super) fn forget_adoptions(&mut self, gone: impl Fn(&Attachment) -> bool) {
        let known = self.adoptions.known().filter(|attachment| gone(attachment));
        for attachment in known.cloned().collect::<Vec<_>>() {
            self.forget_adoption(&attachment);
        }
    }

    pub(super) fn adopted(&mut self, now: Now, attachment: Attachment, answer: Answer) {
        match answer {
            Answer::Leased { tenures } => {
                for tenure in tenures {
                    let server = tenure.by.server().map(tracing::field::display);
                    tracing::info!(%attachment, address = %tenure.net(), server, "adopted");
                }
                self.forget_adoption(&attachment);
            }
            Answer::Failed(failure) => self.adoption_failed(now, attachment, &failure),
            // An ADD gets no other answer.
            _ => {}
        }
    }

    fn adoption_failed(&mut self, now: Now, attachment: Attachment, failure: &Failure) {
        let Some(mut adoption) = self.adoptions.pending.remove(&attachment) else {
            return;
        };
        self.adoptions
            .failures
            .insert(attachment.clone(), reason(failure));
        if !self.may_live(&adoption, failure) {
            tracing::warn!(%attachment, %failure, "not adopted");
            return;
        }
        let was_tried = adoption.tries.has_failed();
        adoption.tries.fail();
        let pause = adoption.tries.pause(RARELY, &mut self.tables.rng);
        match was_tried {
            true => tracing::debug!(%attachment, %failure, ?pause, "not adopted, trying again"),
            false => tracing::warn!(%attachment, %failure, ?pause, "not adopted, trying again"),
        }
        (adoption.errand, adoption.waits) =
            (self.jobs.errand(Caller::Adoption, attachment.clone()), true);
        let next = Some((now.boot + pause, Why::Work));
        self.tables.timers.set(Key::Adoption(adoption.errand), next);
        self.adoptions.pending.insert(attachment, adoption);
    }

    /// Returns whether a container may still run after its adoption failed like this. A namespace that is not seen is gone if the
    /// next look does not find it either, and another namespace with a lease is seen in the same directory.
    fn may_live(&self, adoption: &Adoption, failure: &Failure) -> bool {
        let Failure::Link { cause, .. } = failure else {
            return true;
        };
        let netns = adoption.adoptee.add.place.netns();
        let blind = !adoption.tries.has_failed()
            || !netns.is_some_and(|netns| {
                self.audit
                    .sight
                    .sees(directory_of(netns), &self.tables.bindings)
            });
        if cause.is_missing() {
            blind
        } else {
            !cause.is_gone()
        }
    }
}

/// Returns why an adoption failed. Unlike an ADD, an adoption takes no other address.
fn reason(failure: &Failure) -> String {
    match failure {
        Failure::NotWanted {
            server,
            wanted,
            offered,
        } => {
            format!(
                "{server} offered {offered} instead of {wanted}, which the container has: no server confirms that"
            )
        }
        failure => failure.to_string(),
    }
}
