//! The tables of what is Docker's: pools, networks and endpoints, each as JSON by its name.

use leasehold_core::record::{DockerKey, DockerRecord};
use redb::{ReadTransaction, ReadableTable, TableDefinition, TableError, WriteTransaction};
use serde::de::DeserializeOwned;

/// One of the tables.
pub(super) type DockerTable = TableDefinition<'static, &'static str, &'static [u8]>;

const POOLS: DockerTable = TableDefinition::new("pools");
const NETWORKS: DockerTable = TableDefinition::new("networks");
const ENDPOINTS: DockerTable = TableDefinition::new("endpoints");

/// Returns the table in which something of Docker's is, and its name there.
pub(super) fn place_of(key: &DockerKey) -> (DockerTable, String) {
    match key {
        DockerKey::Pool(id) => (POOLS, id.to_string()),
        DockerKey::Network(id) => (NETWORKS, id.as_str().to_owned()),
        DockerKey::Endpoint(id) => (ENDPOINTS, id.as_str().to_owned()),
    }
}

/// Returns something of Docker's as it is written.
pub(super) fn encode(record: &DockerRecord) -> Result<Vec<u8>, serde_json::Error> {
    match record {
        DockerRecord::Pool(record) => serde_json::to_vec(record),
        DockerRecord::Network(record) => serde_json::to_vec(record),
        DockerRecord::Endpoint(record) => serde_json::to_vec(record),
    }
}

/// Writes something of Docker's.
pub(super) fn put(txn: &WriteTransaction, table: DockerTable, key: &str, json: &[u8]) -> Result<(), redb::Error> {
    txn.open_table(table)?.insert(key, json)?;
    Ok(())
}

/// Removes something of Docker's.
pub(super) fn remove(txn: &WriteTransaction, table: DockerTable, key: &str) -> Result<(), redb::Error> {
    txn.open_table(table)?.remove(key)?;
    Ok(())
}

/// Reads all that is Docker's; nothing where the file is of a daemon that knew of none. What does not parse is left out: a pool
/// goes on without what was reserved in it, and a network that is not known says what to do.
pub(super) fn read(txn: &ReadTransaction) -> Result<Vec<DockerRecord>, redb::Error> {
    let mut records = Vec::new();
    records.extend(read_table(txn, POOLS)?.into_iter().map(DockerRecord::Pool));
    records.extend(read_table(txn, NETWORKS)?.into_iter().map(DockerRecord::Network));
    records.extend(read_table(txn, ENDPOINTS)?.into_iter().map(DockerRecord::Endpoint));
    Ok(records)
}

fn read_table<T: DeserializeOwned>(txn: &ReadTransaction, table: DockerTable) -> Result<Vec<T>, redb::Error> {
    let rows = match txn.open_table(table) {
        Err(TableError::TableDoesNotExist(_)) => return Ok(Vec::new()),
        rows => rows?,
    };
    let mut records = Vec::new();
    for row in rows.iter()? {
        let (key, bytes) = row?;
        match serde_json::from_slice(bytes.value()) {
            Ok(record) => records.push(record),
            Err(error) => tracing::warn!(%table, key = key.value(), %error, "does not parse: left out"),
        }
    }
    Ok(records)
}
