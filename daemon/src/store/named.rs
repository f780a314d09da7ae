//! Tables of records that have a name, each as JSON.

use redb::{ReadTransaction, ReadableTable, TableDefinition, TableError};

/// Such a table.
pub(super) type NamedTable<'a> = TableDefinition<'a, &'static str, &'static [u8]>;

pub(super) const fn table(name: &str) -> NamedTable<'_> {
    TableDefinition::new(name)
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
