//! The table of what attachments have from local ranges, by the attachment's name.

use leasehold_core::record::RangeRecord;
use redb::ReadTransaction;

use super::named;

/// The table.
pub(super) const TABLE: &str = "ranges";

/// Reads all of it. A record that does not parse stays where it is: its address counts as taken as long as its file is there.
pub(super) fn read(txn: &ReadTransaction) -> Result<Vec<RangeRecord>, redb::Error> {
    let mut records = Vec::new();
    named::read(
        txn,
        named::table(TABLE),
        |key, json| match serde_json::from_slice(json) {
            Ok(record) => records.push(record),
            Err(error) => {
                tracing::error!(key, %error, "an attachment's addresses from local ranges do not parse: left as they are")
            }
        },
    )?;
    Ok(records)
}
