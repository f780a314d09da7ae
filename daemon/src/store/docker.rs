//! The tables for Docker: pools, networks and endpoints, each as JSON by its name.

use leasehold_core::network::DockerId;
use leasehold_core::record::{DockerKey, DockerRecord};
use redb::{ReadTransaction, TableDefinition};
use serde::de::DeserializeOwned;
use serde::ser::Error;

use super::named::{self, NamedTable};

const POOLS: NamedTable = TableDefinition::new("pools");
const NETWORKS: NamedTable = TableDefinition::new("networks");
const ENDPOINTS: NamedTable = TableDefinition::new("endpoints");

/// Returns the table in which something of Docker's is, and its name there.
pub(super) fn place_of(key: &DockerKey) -> (NamedTable, String) {
    match key {
        DockerKey::Pool(id) => (POOLS, id.to_string()),
        DockerKey::Network(id) => (NETWORKS, id.as_str().to_owned()),
        DockerKey::Endpoint(id) => (ENDPOINTS, id.as_str().to_owned()),
    }
}

/// Encodes something of Docker's as it is written.
pub(super) fn encode(record: &DockerRecord) -> Result<Vec<u8>, serde_json::Error> {
    match record {
        DockerRecord::Pool(record) => serde_json::to_vec(record),
        DockerRecord::Network(record) => serde_json::to_vec(record),
        DockerRecord::Endpoint(record) => serde_json::to_vec(record),
        DockerRecord::Unread(_) => Err(serde_json::Error::custom("it could not be read")),
    }
}

/// Reads everything of Docker's, and returns with it how many records do not parse; nothing if the file is from a daemon that had none.
/// A record that does not parse stays as it is, and is named, so that nothing of a container is deleted or given back because of it. A
/// pool goes on without its reserved addresses.
pub(super) fn read(txn: &ReadTransaction) -> Result<(Vec<DockerRecord>, usize), redb::Error> {
    let mut records = Vec::new();
    let id = |key: &str| DockerId::try_from(key.to_owned()).ok();
    let pools = read_table(txn, POOLS, DockerRecord::Pool, |_| None, &mut records)?;
    let networks =
        read_table(txn, NETWORKS, DockerRecord::Network, |key| id(key).map(DockerKey::Network), &mut records)?;
    let endpoints =
        read_table(txn, ENDPOINTS, DockerRecord::Endpoint, |key| id(key).map(DockerKey::Endpoint), &mut records)?;
    Ok((records, pools + networks + endpoints))
}

fn read_table<T: DeserializeOwned>(
    txn: &ReadTransaction,
    table: NamedTable,
    read: fn(T) -> DockerRecord,
    key_of: impl Fn(&str) -> Option<DockerKey>,
    records: &mut Vec<DockerRecord>,
) -> Result<usize, redb::Error> {
    named::read(txn, table, |key, parsed| match parsed {
        Ok(record) => records.push(read(record)),
        Err(error) => {
            tracing::error!(%table, key, %error, "does not parse: left as it is, with all that may belong to it");
            records.extend(key_of(key).map(DockerRecord::Unread));
        }
    })
}
