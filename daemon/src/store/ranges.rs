//! The table of what attachments had from local ranges before the plugin served these by itself, by the attachment's name. It is
//! only read, and emptied.

use std::path::PathBuf;

use leasehold_core::identity::Attachment;
use leasehold_core::range::RangeAddress;
use leasehold_core::time::BootId;
use redb::ReadTransaction;
use serde::Deserialize;

use super::named;

/// The table.
pub(super) const TABLE: &str = "ranges";

/// What an attachment has from local ranges, as far as it is still of use.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(crate) struct RangeRecord {
    /// Who has it.
    pub(crate) attachment: Attachment,
    /// The addresses, in the order of the network's range sets.
    pub(crate) given: Vec<RangeAddress>,
    /// The path of its namespace.
    pub(crate) netns: PathBuf,
    /// The directory of the network's files.
    pub(crate) directory: PathBuf,
    /// The boot in which it was given: none outlives the boot.
    pub(crate) boot: BootId,
    /// Whether nobody has it any more: it was remembered for an identity that got the same addresses again.
    #[serde(default)]
    pub(crate) past: bool,
}

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
