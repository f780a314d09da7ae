//! The networks with our driver: what dockerd says once, when it creates them, and never again.
//!
//! `jobs` creates and deletes them, and `endpoints` has their endpoints.

use std::collections::{BTreeMap, BTreeSet};

use crate::identity::DoorId;
use crate::network::{MOST_NETWORKS, NetworkFault, NetworkRecord};

/// The networks that are known.
#[derive(Debug, Default)]
pub(super) struct Networks {
    pub(super) by_id: BTreeMap<DoorId, NetworkRecord>,
    /// Those that are durable.
    pub(super) kept: BTreeSet<DoorId>,
    /// Whether a record could not be read: there may be more than is known.
    pub(super) is_unread: bool,
}

impl Networks {
    /// Adds a network that the store holds.
    pub(super) fn recover(&mut self, record: NetworkRecord) {
        let id = record.id.clone();
        if self.add(record) {
            self.kept.insert(id);
        }
    }

    /// Returns the host links that networks are on.
    pub(super) fn parents(&self) -> impl Iterator<Item = &str> {
        self.by_id.values().map(|record| record.wiring.on.as_str())
    }

    /// Returns a network, or that it is not known.
    pub(super) fn get(&self, id: &DoorId) -> Result<&NetworkRecord, NetworkFault> {
        self.by_id
            .get(id)
            .ok_or_else(|| NetworkFault::Unknown(id.clone()))
    }

    /// Adds a network. Returns false if there are too many.
    pub(super) fn add(&mut self, record: NetworkRecord) -> bool {
        let has_room = self.by_id.len() < MOST_NETWORKS || self.by_id.contains_key(&record.id);
        if has_room {
            self.by_id.insert(record.id.clone(), record);
        }
        has_room
    }

    pub(super) fn forget(&mut self, network: &DoorId) {
        self.by_id.remove(network);
        self.kept.remove(network);
    }
}
