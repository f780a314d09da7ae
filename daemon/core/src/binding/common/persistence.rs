//! A binding's record in the store: one write at a time, the latest wins.

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;

use crate::backoff::{Backoff, LONGEST_PAUSE};
use crate::effect::OpId;
use crate::record::{BindingId, Change, Record, RecordState};
use crate::source::Lease;
use crate::time::Instant;

/// What the store should hold of a binding.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::binding) enum Want {
    /// Nothing was asked for yet.
    #[default]
    AsIs,
    /// Its record as bound (or seeking, if there is no lease), replacing these others.
    Bound { replaces: Vec<BindingId> },
    /// Its record as releasing.
    Releasing,
    /// Nothing.
    Gone,
}

/// What the store has of a binding's record.
#[derive(Debug, Default)]
pub(in crate::binding) struct Persistence {
    want: Want,
    /// Whether something changed since the write under way was emitted.
    dirty: bool,
    pub(super) in_flight: Option<OpId>,
    /// The lease that the record being written holds.
    writing: Option<Arc<Lease>>,
    /// The lease that the record in the store holds for certain.
    pub(super) durable: Option<Arc<Lease>>,
    /// Whether that lease was lost since.
    lost: bool,
    backoff: Backoff,
    retry: Option<Instant>,
}

impl Persistence {
    /// Returns when a failed write is tried again.
    pub(in crate::binding) fn retry_at(&self) -> Option<Instant> {
        self.retry
    }

    /// Returns the state of a binding whose record the store holds.
    pub(in crate::binding) fn recovered(lease: Arc<Lease>) -> Self {
        Self {
            durable: Some(lease),
            ..Self::default()
        }
    }

    /// Returns the lease that the store certainly holds: not one that a write under way removes.
    pub(in crate::binding) fn durable(&self) -> Option<&Lease> {
        let leaves = self.in_flight.is_some() && self.writing.is_none();
        self.durable.as_deref().filter(|_| !leaves)
    }

    pub(in crate::binding) fn lost(&mut self) {
        self.lost = true;
        // Nor is a lease that is being written.
        self.writing = None;
    }

    /// Returns the lease in the store, if it is still good although there is another now.
    pub(in crate::binding) fn still_good(&self) -> Option<&Lease> {
        self.durable().filter(|_| !self.lost)
    }

    /// Returns whether the store certainly holds a lease like this, and keeps it: no write under way removes it.
    pub(in crate::binding) fn holds(&self, is_like: impl Fn(&Lease) -> bool) -> bool {
        let stays = self.in_flight.is_none() || self.writing.as_deref().is_some_and(&is_like);
        stays && self.durable.as_deref().is_some_and(is_like)
    }

    pub(in crate::binding) fn want(&mut self, want: Want) {
        (self.want, self.dirty, self.retry) = (want, true, None);
    }

    pub(in crate::binding) fn wanted(&self) -> &Want {
        &self.want
    }

    pub(in crate::binding) fn may_begin(&self) -> bool {
        self.in_flight.is_none() && self.dirty
    }

    /// Returns whether it is time to try a failed write again, once.
    pub(in crate::binding) fn take_retry(&mut self, now: Instant) -> bool {
        self.retry.take_if(|at| now >= *at).is_some()
    }

    /// Returns whether the store should hold something other than what it holds or is about to hold.
    pub(in crate::binding) fn is_due(&self) -> bool {
        self.dirty
    }

    /// Takes out the bindings that the record replaces, or will replace.
    pub(in crate::binding) fn take_replaced(&mut self) -> Vec<BindingId> {
        match &mut self.want {
            Want::Bound { replaces } => std::mem::take(replaces),
            Want::AsIs | Want::Releasing | Want::Gone => Vec::new(),
        }
    }

    /// Counts a write that ended, with nothing more to write.
    pub(in crate::binding) fn settled(&mut self, done: bool) {
        match done {
            true => self.backoff = Backoff::default(),
            false => self.backoff.fail(),
        }
    }

    pub(in crate::binding) fn busy(&self) -> bool {
        self.in_flight.is_some()
    }

    /// Returns what is to be written now, if that is known. `record`: what the store should hold; `own`: the lease of the
    /// binding's client, shared with what is known about the store; `is_succeeded`: another binding has the identity.
    pub(super) fn changes(
        &mut self,
        id: BindingId,
        record: Option<Record>,
        own: Option<Arc<Lease>>,
        is_succeeded: bool,
    ) -> Option<Vec<Change>> {
        let is_bound = |record: &&Record| record.state == RecordState::Bound;
        let bound = record.as_ref().filter(is_bound).map(|record| {
            let own = own.filter(|own| **own == record.lease);
            own.unwrap_or_else(|| Arc::new(record.lease.clone()))
        });
        let put = |record: Record| Change::Put(id, Box::new(record));
        let changes = match &self.want {
            Want::AsIs => return None,
            Want::Bound { replaces } => {
                let others = replaces.iter().map(|id| Change::Remove(*id));
                std::iter::once(put(record?)).chain(others).collect()
            }
            Want::Releasing => vec![put(record?)],
            // The record of a successor takes precedence.
            Want::Gone => vec![
                record
                    .filter(|_| !is_succeeded)
                    .map_or(Change::Remove(id), put),
            ],
        };
        (self.dirty, self.writing) = (false, bound);
        Some(changes)
    }

    /// Records how a write ended.
    pub(super) fn written(&mut self, done: bool) {
        self.in_flight = None;
        let written = self.writing.take();
        if done {
            (self.durable, self.lost) = (written, false);
        }
    }

    /// Plans the next try of a failed write after a growing pause, and returns the pause.
    pub(super) fn try_later(&mut self, now: Instant, rng: &mut Rng) -> Duration {
        let pause = self.backoff.pause(LONGEST_PAUSE, rng);
        (self.dirty, self.retry) = (true, Some(now + pause));
        pause
    }
}
