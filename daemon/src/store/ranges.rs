//! The table of what attachments have from local ranges, by the attachment's name.

use leasehold_core::record::RangeRecord;
use redb::{ReadTransaction, TableDefinition};

use super::named::{self, NamedTable};

/// The table.
pub(super) const TABLE: NamedTable = TableDefinition::new("ranges");

/// Reads all of it, and returns with it how many records do not parse. Such a record stays as it is: its address is taken as long as
/// its file is there.
pub(super) fn read(txn: &ReadTransaction) -> Result<(Vec<RangeRecord>, usize), redb::Error> {
    let mut records = Vec::new();
    let unread = named::read(txn, TABLE, |key, parsed| match parsed {
        Ok(record) => records.push(record),
        Err(error) => tracing::error!(key, %error, "what it has from a local range does not parse: left as it is"),
    })?;
    Ok((records, unread))
}
