//! The tables of what front doors keep, each record by its name. Only the core reads them.

use leasehold_core::docker;
use leasehold_core::record::{DoorKey, DoorRecord};
use redb::ReadTransaction;

use super::named;

/// Reads all records; none if the file is from a daemon that had no such tables.
pub(super) fn read(txn: &ReadTransaction) -> Result<Vec<DoorRecord>, redb::Error> {
    let mut records = Vec::new();
    for table in docker::TABLES {
        named::read(txn, named::table(table), |name, json| {
            let key = DoorKey {
                table: table.to_owned(),
                name: name.to_owned(),
            };
            records.push(DoorRecord {
                key,
                json: String::from_utf8_lossy(json).into_owned(),
            });
        })?;
    }
    Ok(records)
}
