//! A binding's record in the store: one write at a time, the latest wins.

use std::sync::Arc;
use std::time::Duration;

use super::{Binding, Cx, Life, Report};
use crate::dhcpv4::lease::{Dns, Lease};
use crate::dhcpv4::timing;
use crate::effect::{OpId, StoreCause};
use crate::record::{BindingId, Change, RecordState};
use crate::time::Instant;

/// The longest pause between two tries to write.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// What the store is to hold of a binding.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Want {
    /// Nothing was asked for yet.
    #[default]
    AsIs,
    /// Its record as bound (or seeking, when there is no lease), in place of these others'.
    Bound { replaces: Vec<BindingId> },
    /// Its record as releasing.
    Releasing,
    /// Nothing.
    Gone,
}

/// How the store stands to a binding.
#[derive(Debug, Default)]
pub(super) struct Persistence {
    want: Want,
    /// Something changed since the write under way was emitted.
    dirty: bool,
    in_flight: Option<OpId>,
    /// The lease that the record being written holds.
    writing: Option<Arc<Lease>>,
    /// The lease that the record in the store holds for certain.
    durable: Option<Arc<Lease>>,
    /// That lease was lost since.
    lost: bool,
    failures: u32,
    retry: Option<Instant>,
}

impl Persistence {
    /// Returns when a failed write is tried again.
    pub(super) fn retry_at(&self) -> Option<Instant> {
        self.retry
    }

    /// Returns how the store stands to a binding whose record it holds.
    pub(super) fn recovered(lease: Arc<Lease>) -> Self {
        Self { durable: Some(lease), ..Self::default() }
    }

    /// Returns the lease that the store holds for certain: not one that a write under way takes out.
    pub(super) fn durable(&self) -> Option<&Lease> {
        let leaves = self.in_flight.is_some() && self.writing.is_none();
        self.durable.as_deref().filter(|_| !leaves)
    }

    /// Takes note that the lease which the store holds is no more.
    pub(super) fn lost(&mut self) {
        self.lost = true;
        // Nor is one that is being written.
        self.writing = None;
    }

    /// Returns the lease of the store, which is still good though there is another by now.
    pub(super) fn still_good(&self) -> Option<&Lease> {
        self.durable().filter(|_| !self.lost)
    }

    /// Tells whether the store holds a lease like this for certain, and goes on holding one: no write under way takes it out.
    pub(super) fn holds(&self, is_like: impl Fn(&Lease) -> bool) -> bool {
        let stays = self.in_flight.is_none() || self.writing.as_deref().is_some_and(&is_like);
        stays && self.durable.as_deref().is_some_and(is_like)
    }

    /// Wants the store to hold this when it is next written.
    pub(super) fn want_again(&mut self, want: Want) {
        self.want = want;
    }

    /// Tells whether the store is to hold something else than what it holds or is being written.
    pub(super) fn is_due(&self) -> bool {
        self.dirty
    }

    /// Takes those out of what is wanted in whose place the record is, or is to be.
    fn take_replaced(&mut self) -> Vec<BindingId> {
        match &mut self.want {
            Want::Bound { replaces } => std::mem::take(replaces),
            Want::AsIs | Want::Releasing | Want::Gone => Vec::new(),
        }
    }

    /// Tells whether the last write did not fail.
    pub(super) fn works(&self) -> bool {
        self.failures == 0
    }

    /// Tells whether a write is under way.
    pub(super) fn busy(&self) -> bool {
        self.in_flight.is_some()
    }
}

impl Binding {
    /// Wants the store to hold this; nothing is durable before [`Binding::on_persisted`].
    pub(super) fn persist(&mut self, want: Want, cx: &mut Cx<'_>) {
        self.persistence.want = want;
        self.persistence.dirty = true;
        self.persistence.retry = None;
        self.write(cx);
    }

    pub(super) fn retry_persist(&mut self, cx: &mut Cx<'_>) {
        if self.persistence.retry.is_some_and(|at| cx.now.boot >= at) {
            self.persistence.retry = None;
            self.write(cx);
        }
    }

    pub(super) fn write(&mut self, cx: &mut Cx<'_>) {
        if self.persistence.in_flight.is_some() || !self.persistence.dirty {
            return;
        }
        // The write of the binding that took over removes this record; one that came after it would bring it back.
        if matches!(self.life, Life::Releasing(_)) && self.persistence.want != Want::Gone && self.is_held_over(cx) {
            return;
        }
        let Some(changes) = self.changes(cx) else { return };
        self.persistence.dirty = false;
        self.persistence.writing = changes.iter().find_map(|change| match change {
            Change::Put(_, record) => (record.state == RecordState::Bound).then(|| self.share(&record.lease)),
            Change::Remove(_) | Change::Note(_) => None,
        });
        self.persistence.in_flight = Some(cx.out.persist(self.id, changes));
        self.telling_store();
    }

    /// Returns a lease that a record holds, as shared with the rest of the binding where that is the same.
    fn share(&self, lease: &Lease) -> Arc<Lease> {
        let own = match &self.life {
            Life::Acquiring(acquire) => acquire.client.shared(),
            Life::Held(hold) => Some(hold.last.clone()),
            Life::Releasing(_) => None,
        };
        own.filter(|own| **own == *lease).unwrap_or_else(|| Arc::new(lease.clone()))
    }

    /// Writes the record of a held binding once more: its lease changed, or what is to be done at the interface.
    pub(super) fn record_again(&mut self, cx: &mut Cx<'_>) {
        let replaces = self.persistence.take_replaced();
        self.persist(Want::Bound { replaces }, cx);
    }

    /// Returns what the lease that the store holds for certain says of name servers.
    pub(crate) fn resolver(&self) -> Option<Dns> {
        self.persistence.durable.as_deref().and_then(Lease::resolver)
    }

    fn changes(&self, cx: &Cx<'_>) -> Option<Vec<Change>> {
        let lease = match &self.life {
            Life::Acquiring(acquire) => acquire.client.lease(),
            // One that waits for its probes is not used yet.
            Life::Held(hold) => hold.client.lease().filter(|_| !self.is_probing()),
            Life::Releasing(release) => Some(&release.lease),
        };
        match &self.persistence.want {
            Want::AsIs => None,
            Want::Bound { replaces } => {
                let record = match (&self.life, lease) {
                    (_, Some(lease)) => self.record(lease, RecordState::Bound, cx),
                    (Life::Held(hold), None) => self.record(&hold.last, RecordState::Seeking, cx),
                    (Life::Acquiring(_) | Life::Releasing(_), None) => return None,
                };
                let put = Change::Put(self.id, Box::new(record));
                Some(std::iter::once(put).chain(replaces.iter().map(|id| Change::Remove(*id))).collect())
            }
            Want::Releasing => {
                let record = self.record(lease?, RecordState::Releasing, cx);
                Some(vec![Change::Put(self.id, Box::new(record))])
            }
            // The record of a successor goes before.
            Want::Gone if self.is_to_remember() && !self.held_by_other(cx) => {
                let record = self.record(lease?, RecordState::Past, cx);
                Some(vec![Change::Put(self.id, Box::new(record))])
            }
            Want::Gone => Some(vec![Change::Remove(self.id)]),
        }
    }

    /// Goes on after a write.
    pub(super) fn on_persisted(&mut self, result: Result<(), StoreCause>, cx: &mut Cx<'_>) {
        self.persistence.in_flight = None;
        let written = self.persistence.writing.take();
        self.store_told(cx);
        if result.is_ok() {
            let before = self.resolver();
            self.persistence.durable = written;
            self.persistence.lost = false;
            if self.resolver() != before {
                cx.out.resolvers.insert(self.attachment.clone());
            }
        }
        if self.persistence.dirty {
            // What was written, or not, is out of date: the life's own turning point is the next write.
            self.write(cx);
            if self.persistence.busy() {
                return;
            }
        }
        match &result {
            Ok(()) => {
                self.persistence.failures = 0;
                let replaced = self.persistence.take_replaced();
                // An adoption is held before its record is written, where that fails at first.
                if matches!(self.life, Life::Held(_)) && !replaced.is_empty() {
                    cx.out.report(self.id, Report::Replaced(replaced));
                }
            }
            Err(_) => self.persistence.failures += 1,
        }
        match (&self.life, result) {
            (Life::Acquiring(_), result) => self.acquire_on_persisted(result, cx),
            (Life::Held(_), Ok(())) => self.noted(cx),
            (Life::Releasing(_), Ok(())) => self.release_on_persisted(cx),
            (Life::Held(_), Err(cause)) => {
                self.persist_later(&cause, cx);
                // What the store holds already does not wait for it.
                self.noted(cx);
            }
            (Life::Releasing(_), Err(cause)) => self.release_on_unpersisted(cause, cx),
        }
    }

    /// Tries the failed write again after a growing pause.
    pub(super) fn persist_later(&mut self, cause: &StoreCause, cx: &mut Cx<'_>) {
        let pause = timing::doubled(self.persistence.failures.saturating_sub(1), LONGEST_PAUSE);
        tracing::warn!(attachment = %self.attachment, %cause, ?pause, "record not written, trying again");
        self.persistence.dirty = true;
        self.persistence.retry = Some(cx.now.boot + timing::jittered(pause, cx.rng));
    }
}
