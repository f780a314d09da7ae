//! Events on their way into the store.
//!
//! An event is written with a transaction of the same input: its own binding's, else the first. If there is none, it gets a
//! transaction of its own; one of these is under way at a time. An event about a record that must still be written waits for
//! that, so that no event reports a lease that the store does not have.

use std::collections::{BTreeMap, VecDeque};

use crate::effect::OpId;
use crate::event::{self, Event};
use crate::record::{BindingId, Change, RecordState};

/// How many events wait for the store. Beyond that the oldest are dropped.
const MAX_WAITING: usize = 1000;

/// What must become durable for an event to be reported; otherwise it never is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stake {
    /// Nothing: it happened.
    Nothing,
    /// Its binding's record as bound: until that is durable, nobody has the lease.
    Bound,
    /// The end of its binding's record.
    Gone,
}

impl Stake {
    /// Returns whether the event is reported with this transaction of a binding.
    fn is_met(self, binding: BindingId, changes: &[Change]) -> bool {
        let writes = |state: RecordState| {
            changes.iter().any(|change| match change {
                Change::Put(id, record) => *id == binding && record.state == state,
                Change::Remove(_)
                | Change::Note(_)
                | Change::PutDoor(_)
                | Change::RemoveDoor(_) => false,
            })
        };
        match self {
            Self::Nothing => true,
            Self::Bound => writes(RecordState::Bound),
            Self::Gone => changes.contains(&Change::Remove(binding)) || writes(RecordState::Past),
        }
    }
}

/// An event that is not in the store yet.
#[derive(Debug)]
struct Note {
    binding: BindingId,
    event: Box<Event>,
    stake: Stake,
    /// Whether a transaction with it failed: it waits for another reason to write.
    tried: bool,
}

/// The events that the store does not have yet.
#[derive(Debug, Default)]
pub(super) struct Journal {
    waiting: VecDeque<Note>,
    /// The events that are in a transaction under way.
    riding: BTreeMap<OpId, Vec<Note>>,
    /// The journal's own transaction under way.
    own: Option<OpId>,
    dropped: u64,
}

impl Journal {
    pub(super) fn note(&mut self, binding: BindingId, mut event: Event, stake: Stake) {
        event.cause = event::cut(event.cause);
        self.waiting.push_back(Note {
            binding,
            event: Box::new(event),
            stake,
            tried: false,
        });
        self.bound();
    }

    pub(super) fn dropped(&self) -> u64 {
        self.dropped
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Takes out the events that need not wait for their binding's record, each with its binding.
    pub(super) fn ready(&mut self, record_is_due: impl Fn(BindingId) -> bool) -> DueNotes {
        let (due, ready) = std::mem::take(&mut self.waiting)
            .into_iter()
            .partition(|note: &Note| record_is_due(note.binding));
        self.waiting = due;
        DueNotes(ready)
    }

    /// Writes events with a transaction.
    pub(super) fn ride(&mut self, op: OpId, ready: DueNotes, changes: &mut Vec<Change>) {
        changes.extend(ready.0.iter().map(|note| Change::Note(note.event.clone())));
        self.riding.entry(op).or_default().extend(ready.0);
    }

    /// Returns whether these events deserve a transaction of the journal's own now.
    pub(super) fn wants_own(&self, ready: &DueNotes) -> bool {
        self.own.is_none() && ready.0.iter().any(|note| !note.tried)
    }

    pub(super) fn began_own(&mut self, op: OpId) {
        self.own = Some(op);
    }

    /// Puts back events that found no transaction.
    pub(super) fn put_back(&mut self, ready: DueNotes) {
        ready
            .0
            .into_iter()
            .rev()
            .for_each(|note| self.waiting.push_front(note));
    }

    /// Goes on after a transaction.
    pub(super) fn over(&mut self, op: OpId, done: bool) {
        self.own.take_if(|own| *own == op);
        let mut notes = self.riding.remove(&op).unwrap_or_default();
        if !done {
            notes.iter_mut().for_each(|note| note.tried = true);
            self.put_back(DueNotes(notes.into()));
            self.bound();
        }
    }

    fn bound(&mut self) {
        while self.waiting.len() > MAX_WAITING {
            self.waiting.pop_front();
            self.dropped += 1;
            if self.dropped.is_power_of_two() {
                tracing::error!(
                    dropped = self.dropped,
                    "events dropped: the store does not accept them"
                );
            }
        }
    }
}

/// Events that may be written now, in order.
#[derive(Debug)]
pub(super) struct DueNotes(VecDeque<Note>);

impl DueNotes {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Takes out a binding's events that may be written with this transaction of its own. Events that depend on another
    /// transaction are dropped: it will not come.
    pub(super) fn of(&mut self, binding: BindingId, changes: &[Change]) -> Self {
        let (own, others): (VecDeque<_>, _) = std::mem::take(&mut self.0)
            .into_iter()
            .partition(|note| note.binding == binding);
        self.0 = others;
        Self(
            own.into_iter()
                .filter(|note| note.stake.is_met(binding, changes))
                .collect(),
        )
    }

    /// Drops the events that depend on a transaction that does not exist.
    pub(super) fn without_stake(self) -> Self {
        Self(
            self.0
                .into_iter()
                .filter(|note| note.stake == Stake::Nothing)
                .collect(),
        )
    }

    pub(super) fn bindings(&self) -> Vec<BindingId> {
        self.0.iter().map(|note| note.binding).collect()
    }
}
