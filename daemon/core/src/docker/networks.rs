//! The networks with our driver: what dockerd says once, when it creates them, and never again.
//!
//! `jobs` creates and deletes them, and `endpoints` has their endpoints.

use std::collections::BTreeMap;

use crate::identity::DoorId;
use crate::network::{NetworkFault, NetworkRecord};

/// The networks that are durable.
#[derive(Debug, Default)]
pub(super) struct Networks {
    pub(super) by_id: BTreeMap<DoorId, NetworkRecord>,
    /// Whether a record could not be read: there may be more than is known.
    pub(super) is_unread: bool,
}

impl Networks {
    /// Returns a network, or that it is not known.
    pub(super) fn get(&self, id: &DoorId) -> Result<&NetworkRecord, NetworkFault> {
        self.by_id
            .get(id)
            .ok_or_else(|| NetworkFault::Unknown(id.clone()))
    }
}
