//! The tables of what front doors keep, each record by its name, as JSON. Only the core reads them.

use leasehold_core::docker;
use leasehold_core::record::{DoorKey, DoorRecord};
use redb::{ReadTransaction, ReadableTable, TableDefinition, TableError};

pub(super) const fn table(name: &str) -> TableDefinition<'_, &'static str, &'static [u8]> {
    TableDefinition::new(name)
}

/// Reads all records; none if the file is from a daemon that had no such tables.
pub(super) fn read(txn: &ReadTransaction) -> Result<Vec<DoorRecord>, redb::Error> {
    let mut records = Vec::new();
    for name in docker::TABLES {
        let rows = match txn.open_table(table(name)) {
            Err(TableError::TableDoesNotExist(_)) => continue,
            rows => rows?,
        };
        for row in rows.iter()? {
            let (key, json) = row?;
            let key = DoorKey {
                table: name.to_owned(),
                name: key.value().to_owned(),
            };
            records.push(DoorRecord {
                key,
                json: String::from_utf8_lossy(json.value()).into_owned(),
            });
        }
    }
    Ok(records)
}
