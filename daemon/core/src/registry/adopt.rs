//! Adopts containers that already ran: the incumbent's, or those of a store that was set aside.
//!
//! If the interface still has the address that it was given, a server confirms it by INIT-REBOOT under the identifier used then,
//! and from then on the lease is held like any other. No other address is taken. A container that could not be adopted stays as
//! it is, is listed with the reason, and is tried again while it lives, until a DEL comes or an ADD begins. If that is by an ADD, the
//! old address is removed before the ADD's own is added.

use std::collections::BTreeMap;

use ipnet::Ipv4Net;

use super::tables::Tables;
use super::timers::Key;
use crate::backoff::{Backoff, RARELY};
use crate::effect::{Adoptee, Answer, Failure, Why};
use crate::identity::Attachment;
use crate::time::Instant;

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
    /// When it is tried again; `None`: a try is under way.
    next: Option<Instant>,
}

impl Adoptions {
    pub(super) fn len(&self) -> usize {
        self.pending.len()
    }

    pub(super) fn failures(&self) -> Vec<(Attachment, String)> {
        self.failures.clone().into_iter().collect()
    }

    /// Enters a container whose first try begins.
    pub(super) fn enter(&mut self, adoptee: Adoptee) {
        let adoption = Adoption {
            tries: Backoff::default(),
            next: None,
            adoptee,
        };
        let attachment = adoption.adoptee.add.attachment.clone();
        self.pending.insert(attachment, adoption);
    }

    /// Returns the containers whose next try begins: the pause is over.
    pub(super) fn due(&mut self, now: Instant) -> Vec<Adoptee> {
        let pending = self.pending.values_mut();
        let due = pending.filter_map(|it| it.next.take_if(|at| *at <= now).map(|_| it));
        due.map(|it| it.adoptee.clone()).collect()
    }

    /// Tries a container again at `at`.
    pub(super) fn wait(&mut self, attachment: &Attachment, at: Instant) {
        if let Some(adoption) = self.pending.get_mut(attachment) {
            adoption.next = Some(at);
        }
    }

    /// Sets the deadline of the next try.
    pub(super) fn time(&self, tables: &mut Tables) {
        let next = self.pending.values().filter_map(|it| it.next).min();
        let next = next.map(|at| (at, Why::Work));
        tables.timers.set(Key::Adoption, next);
    }

    /// Leaves an attachment to its runtime, which has decided about it. Returns the address that its container ran with, if it
    /// still had to be adopted.
    pub(super) fn forget(&mut self, attachment: &Attachment) -> Option<Ipv4Net> {
        self.failures.remove(attachment);
        Some(self.pending.remove(attachment)?.adoptee.address)
    }

    /// Forgets the adoptions of all attachments that their runtime has called gone.
    pub(super) fn forget_all(&mut self, gone: impl Fn(&Attachment) -> bool) {
        self.failures.retain(|attachment, _| !gone(attachment));
        self.pending.retain(|attachment, _| !gone(attachment));
    }

    /// Handles the answer to a try.
    pub(super) fn tried(&mut self, tables: &mut Tables, attachment: Attachment, answer: Answer) {
        match answer {
            Answer::Leased { tenures } => {
                for tenure in tenures {
                    let server = tenure.by.server().map(tracing::field::display);
                    tracing::info!(%attachment, address = %tenure.net(), server, "adopted");
                }
                self.forget(&attachment);
            }
            Answer::Failed(failure) => self.failed(tables, attachment, &failure),
            // An ADD gets no other answer.
            _ => {}
        }
    }

    fn failed(&mut self, tables: &mut Tables, attachment: Attachment, failure: &Failure) {
        let Some(mut adoption) = self.pending.remove(&attachment) else {
            return;
        };
        self.failures
            .insert(attachment.clone(), failure.to_string());
        // A namespace that is missing may be out of this daemon's sight.
        let is_over = matches!(failure, Failure::Link { cause, .. } if cause.is_gone() && !cause.is_missing());
        if is_over {
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
        adoption.next = Some(tables.now.boot + pause);
        self.pending.insert(attachment, adoption);
        self.time(tables);
    }
}
