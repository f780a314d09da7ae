//! The store: a durable map, and the transactions on their way into it.

use std::collections::{BTreeMap, VecDeque};

use crate::docker::{DockerKey, DockerRecord};
use crate::effect::OpId;
use crate::event::{Event, EventKind};
use crate::identity::DoorId;
use crate::network::{EndpointRecord, NetworkRecord};
use crate::pool::{PoolId, PoolRecord};
use crate::record::{BindingId, Change, DoorKey, DoorRecord, Record, RecordState};

/// A store that outlives the daemon.
#[derive(Debug, Default)]
pub struct Store {
    /// What is durable.
    pub durable: BTreeMap<BindingId, Record>,
    /// The last leases of identities that hold none, also durable.
    pub past: BTreeMap<BindingId, Record>,
    /// What is kept for Docker, also durable.
    pub docker: Docker,
    /// The journal, without its bound.
    pub events: Vec<Event>,
    /// Transactions in their order.
    pub waiting: VecDeque<(OpId, Vec<Change>)>,
    /// Whether a commit is under way.
    pub busy: bool,
    /// Which store it is: a damaged one is set aside for another.
    pub number: u32,
    /// The file's records of bindings whose end is kept beside the socket.
    beside: BTreeMap<BindingId, Option<Record>>,
    /// Bound records that a commit replaced by others, while the daemon has not heard about it.
    replaced: BTreeMap<OpId, Vec<Record>>,
}

/// What Docker's door keeps in it.
#[derive(Debug, Default)]
pub struct Docker {
    /// Pools.
    pub pools: BTreeMap<PoolId, PoolRecord>,
    /// Networks.
    pub networks: BTreeMap<DoorId, NetworkRecord>,
    /// Endpoints.
    pub endpoints: BTreeMap<DoorId, EndpointRecord>,
    /// The keys of records that no daemon can read.
    pub unread: Vec<DockerKey>,
}

impl Docker {
    fn put(&mut self, kept: &DoorRecord) {
        match DockerRecord::read(kept).expect("what a daemon writes it reads") {
            DockerRecord::Pool(record) => _ = self.pools.insert(record.id.clone(), record),
            DockerRecord::Network(record) => _ = self.networks.insert(record.id.clone(), record),
            DockerRecord::Endpoint(record) => _ = self.endpoints.insert(record.id.clone(), record),
        }
    }

    fn remove(&mut self, key: &DoorKey) {
        self.unread.retain(|unread| unread.kept() != *key);
        self.pools
            .retain(|id, _| DockerKey::Pool(id.clone()).kept() != *key);
        self.networks
            .retain(|id, _| DockerKey::Network(id.clone()).kept() != *key);
        self.endpoints
            .retain(|id, _| DockerKey::Endpoint(id.clone()).kept() != *key);
    }

    /// Returns everything, as a start reads it.
    pub fn records(&self) -> Vec<DoorRecord> {
        let pools = self.pools.values().cloned().map(DockerRecord::Pool);
        let networks = self.networks.values().cloned().map(DockerRecord::Network);
        let read = pools
            .chain(networks)
            .chain(self.endpoints.values().cloned().map(DockerRecord::Endpoint));
        let unread = self.unread.iter().map(|key| DoorRecord {
            key: key.kept(),
            json: "{".to_owned(),
        });
        read.map(|record| record.kept()).chain(unread).collect()
    }
}

impl Store {
    /// Makes a transaction's changes durable. Returns an event that reports a lease which the store does not have.
    pub fn commit(&mut self, op: OpId, changes: Vec<Change>) -> Option<Event> {
        let before = self.events.len();
        for change in changes {
            match change {
                Change::Put(id, record) if record.state == RecordState::Past => {
                    self.durable.remove(&id);
                    self.past.insert(id, *record);
                }
                Change::Put(id, record) => {
                    let bound = record.state == RecordState::Bound;
                    let before = self.durable.insert(id, *record).filter(|_| bound);
                    self.replaced.entry(op).or_default().extend(before);
                }
                Change::Remove(id) => {
                    self.durable.remove(&id);
                    self.past.remove(&id);
                }
                Change::Note(event) => self.events.push(*event),
                Change::PutDoor(record) => self.docker.put(&record),
                Change::RemoveDoor(key) => self.docker.remove(&key),
            }
        }
        self.events[before..]
            .iter()
            .find(|event| self.runs_ahead(event, before))
            .cloned()
    }

    /// Keeps the end of a binding beside the socket, where a reboot loses it.
    pub fn keep_beside(
        &mut self,
        op: OpId,
        binding: BindingId,
        changes: Vec<Change>,
    ) -> Option<Event> {
        let file = self.durable.get(&binding).cloned();
        self.beside.entry(binding).or_insert(file);
        self.commit(op, changes)
    }

    /// Records that the file has recorded what was kept beside the socket.
    pub fn recorded(&mut self) {
        self.beside.clear();
    }

    /// Handles a reboot of the host: what was kept beside the socket is gone.
    pub fn rebooted(&mut self) -> usize {
        let lost = std::mem::take(&mut self.beside);
        let count = lost.len();
        for (binding, file) in lost {
            self.past.remove(&binding);
            match file {
                Some(record) => _ = self.durable.insert(binding, record),
                None => _ = self.durable.remove(&binding),
            }
        }
        count
    }

    /// Loses the file: its copy is in the next one. Returns how many bindings are lost, and how many are not.
    pub fn lose(&mut self) -> (usize, usize) {
        self.beside.clear();
        let before = std::mem::take(&mut self.durable);
        let count = before.len();
        for (id, record) in before {
            if let Some(Change::Put(id, record)) = Change::Put(id, Box::new(record)).copied() {
                self.durable.insert(id, *record);
            }
        }
        (count - self.durable.len(), self.durable.len())
    }

    /// Records that the daemon has heard the result of a transaction.
    pub fn heard(&mut self, op: OpId) {
        self.replaced.remove(&op);
    }

    /// Returns the records that are durable as far as the daemon can know.
    pub fn known(&self) -> impl Iterator<Item = &Record> {
        self.durable
            .values()
            .chain(self.replaced.values().flatten())
    }

    /// Returns whether an event from `first` on, the last about its attachment, reports a lease other than the store's record.
    /// By the time an extension is written, its lease may be being released, or gone; a new lease may not.
    fn runs_ahead(&self, event: &Event, first: usize) -> bool {
        let new = matches!(
            event.kind,
            EventKind::Acquired | EventKind::Adopted | EventKind::Changed
        );
        let extended = matches!(event.kind, EventKind::Renewed | EventKind::Rebound);
        let last = self.events[first..]
            .iter()
            .rfind(|other| other.attachment == event.attachment)
            == Some(event);
        let records: Vec<_> = self
            .durable
            .values()
            .filter(|record| record.attachment == event.attachment)
            .collect();
        let is_there = records
            .iter()
            .any(|record| Some(record.lease.address.into()) == event.address);
        let held = records
            .iter()
            .any(|record| record.state == RecordState::Bound);
        last && !is_there && (new || extended && held)
    }

    /// Loses what was not durable: the daemon ended.
    pub fn daemon_ended(&mut self) {
        self.waiting.clear();
        self.replaced.clear();
        self.busy = false;
    }

    /// Returns all records, the last leases of identities that hold none too.
    pub fn all(&self) -> impl Iterator<Item = &Record> {
        self.durable.values().chain(self.past.values())
    }

    /// Returns all bindings, as a start reads them.
    pub fn records(&self) -> Vec<(BindingId, Record)> {
        self.durable
            .iter()
            .chain(&self.past)
            .map(|(id, record)| (*id, record.clone()))
            .collect()
    }
}
