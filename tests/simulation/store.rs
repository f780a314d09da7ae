//! The store: a durable map, and the transactions on their way into it.

use std::collections::{BTreeMap, VecDeque};

use leasehold_core::effect::OpId;
use leasehold_core::event::Event;
use leasehold_core::record::{BindingId, Change, Record};

/// A store that outlives the daemon.
#[derive(Debug, Default)]
pub(crate) struct Store {
    /// What is durable.
    pub(crate) durable: BTreeMap<BindingId, Record>,
    /// The journal, without its bound.
    pub(crate) events: Vec<Event>,
    /// Transactions in their order.
    pub(crate) waiting: VecDeque<(OpId, Vec<Change>)>,
    /// A commit is under way.
    pub(crate) busy: bool,
}

impl Store {
    /// Makes a transaction's changes durable.
    pub(crate) fn commit(&mut self, changes: Vec<Change>) {
        for change in changes {
            match change {
                Change::Put(id, record) => {
                    self.durable.insert(id, *record);
                }
                Change::Remove(id) => {
                    self.durable.remove(&id);
                }
                Change::Note(event) => self.events.push(*event),
            }
        }
    }

    /// Loses what was not durable: the daemon ended.
    pub(crate) fn daemon_ended(&mut self) {
        self.waiting.clear();
        self.busy = false;
    }

    /// Returns all that is durable, as a start reads it.
    pub(crate) fn records(&self) -> Vec<(BindingId, Record)> {
        self.durable.iter().map(|(id, record)| (*id, record.clone())).collect()
    }
}
