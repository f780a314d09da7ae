//! Tables of records that have a name, each as JSON.

use redb::{ReadTransaction, ReadableTable, TableDefinition, TableError, WriteTransaction};

/// Such a table.
pub(super) type NamedTable<'a> = TableDefinition<'a, &'static str, &'static [u8]>;

pub(super) const fn table(name: &str) -> NamedTable<'_> {
    TableDefinition::new(name)
}

pub(super) fn put(
    txn: &WriteTransaction,
    table: NamedTable<'_>,
    key: &str,
    json: &[u8],
) -> Result<(), redb::Error> {
    txn.open_table(table)?.insert(key, json)?;
    Ok(())
}

pub(super) fn remove(
    txn: &WriteTransaction,
    table: NamedTable<'_>,
    key: &str,
) -> Result<(), redb::Error> {
    txn.open_table(table)?.remove(key)?;
    Ok(())
}

/// Reads all records; none if the file is from a daemon that had no such table.
pub(super) fn read(
    txn: &ReadTransaction,
    table: NamedTable<'_>,
    mut take: impl FnMut(&str, &[u8]),
) -> Result<(), redb::Error> {
    let rows = match txn.open_table(table) {
        Err(TableError::TableDoesNotExist(_)) => return Ok(()),
        rows => rows?,
    };
    for row in rows.iter()? {
        let (key, bytes) = row?;
        take(key.value(), bytes.value());
    }
    Ok(())
}
