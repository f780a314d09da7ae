//! Tables of records that have a name, each as JSON.

use redb::{ReadTransaction, ReadableTable, TableDefinition, TableError, WriteTransaction};
use serde::de::DeserializeOwned;

/// Such a table.
pub(super) type NamedTable = TableDefinition<'static, &'static str, &'static [u8]>;

/// Writes a record.
pub(super) fn put(txn: &WriteTransaction, table: NamedTable, key: &str, json: &[u8]) -> Result<(), redb::Error> {
    txn.open_table(table)?.insert(key, json)?;
    Ok(())
}

/// Removes a record.
pub(super) fn remove(txn: &WriteTransaction, table: NamedTable, key: &str) -> Result<(), redb::Error> {
    txn.open_table(table)?.remove(key)?;
    Ok(())
}

/// Reads all records; none if the file is from a daemon that had no such table. Returns how many do not parse.
pub(super) fn read<T: DeserializeOwned>(
    txn: &ReadTransaction,
    table: NamedTable,
    mut take: impl FnMut(&str, Result<T, serde_json::Error>),
) -> Result<usize, redb::Error> {
    let rows = match txn.open_table(table) {
        Err(TableError::TableDoesNotExist(_)) => return Ok(0),
        rows => rows?,
    };
    let mut unread = 0;
    for row in rows.iter()? {
        let (key, bytes) = row?;
        let parsed = serde_json::from_slice(bytes.value());
        unread += usize::from(parsed.is_err());
        take(key.value(), parsed);
    }
    Ok(unread)
}
