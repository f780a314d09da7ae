//! What the store holds about Docker: JSON, so that an operator can read a dump.

use crate::identity::{Attachment, DoorId};
use crate::network::{EndpointRecord, NetworkRecord};
use crate::pool::{self, PoolId, PoolRecord};
use crate::profile::Wants;
use crate::record::{Change, DoorKey, DoorRecord, Record};

const POOLS: &str = "pools";
const NETWORKS: &str = "networks";
const ENDPOINTS: &str = "endpoints";

/// The tables that the store has for this.
pub const TABLES: [&str; 3] = [POOLS, NETWORKS, ENDPOINTS];

/// A Docker record that survives a restart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DockerRecord {
    /// A pool of addresses.
    Pool(PoolRecord),
    /// A network of our own driver.
    Network(NetworkRecord),
    /// An endpoint of such a network.
    Endpoint(EndpointRecord),
}

/// The key of a Docker record.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DockerKey {
    /// A pool of addresses.
    Pool(PoolId),
    /// A network of our own driver.
    Network(DoorId),
    /// An endpoint of such a network.
    Endpoint(DoorId),
}

impl DockerRecord {
    /// Returns its key.
    pub fn key(&self) -> DockerKey {
        match self {
            Self::Pool(record) => DockerKey::Pool(record.id.clone()),
            Self::Network(record) => DockerKey::Network(record.id.clone()),
            Self::Endpoint(record) => DockerKey::Endpoint(record.id.clone()),
        }
    }

    /// Returns it as the store holds it.
    pub fn kept(&self) -> DoorRecord {
        let json = match self {
            Self::Pool(record) => serde_json::to_string(record),
            Self::Network(record) => serde_json::to_string(record),
            Self::Endpoint(record) => serde_json::to_string(record),
        };
        DoorRecord {
            key: self.key().kept(),
            json: json.expect("names, numbers and addresses can be said in JSON"),
        }
    }

    /// Returns the change that writes it, replacing what was there.
    pub fn put(&self) -> Change {
        Change::PutDoor(Box::new(self.kept()))
    }

    /// Reads what the store holds. `Err`: a later daemon wrote it, or it is damaged.
    pub fn read(kept: &DoorRecord) -> Result<Self, serde_json::Error> {
        let json = kept.json.as_str();
        match kept.key.table.as_str() {
            POOLS => serde_json::from_str(json).map(Self::Pool),
            NETWORKS => serde_json::from_str(json).map(Self::Network),
            _ => serde_json::from_str(json).map(Self::Endpoint),
        }
    }
}

impl DockerKey {
    /// Returns it as the store holds it.
    pub fn kept(&self) -> DoorKey {
        let (table, name) = match self {
            Self::Pool(id) => (POOLS, id.to_string()),
            Self::Network(id) => (NETWORKS, id.as_str().to_owned()),
            Self::Endpoint(id) => (ENDPOINTS, id.as_str().to_owned()),
        };
        DoorKey {
            table: table.to_owned(),
            name,
        }
    }

    /// Returns the change that forgets it.
    pub fn remove(&self) -> Change {
        Change::RemoveDoor(self.kept())
    }
}

/// Completes the record of a Docker lease. Earlier daemons did not record what a door requires of a lease: they derived it from
/// the door.
pub(crate) fn complete(record: &mut Record) {
    if let Attachment::Docker { pool, .. } = &record.attachment
        && record.profile.wants == Wants::default()
    {
        record.profile.wants = pool::wants(pool.parse().ok().as_ref());
    }
}
