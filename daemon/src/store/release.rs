//! Which release of leasehold had the file last.

use std::fmt;

use redb::{Database, ReadableDatabase, TableDefinition};

/// The key among the facts about the file.
const KEY: &str = "release";

/// A release, in the order of releases.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Release {
    major: u16,
    minor: u16,
    patch: u16,
}

impl Release {
    /// Returns the release that this code is.
    pub(super) fn own() -> Self {
        let part = |text: &str| text.parse().expect("Cargo has numbers in a version");
        Self {
            major: part(env!("CARGO_PKG_VERSION_MAJOR")),
            minor: part(env!("CARGO_PKG_VERSION_MINOR")),
            patch: part(env!("CARGO_PKG_VERSION_PATCH")),
        }
    }

    /// Returns the release that had a file before, if the file says so: that of the first daemons does not.
    pub(super) fn before(
        database: &Database,
        facts: TableDefinition<&'static str, u64>,
    ) -> Result<Option<Self>, redb::Error> {
        let found = database.begin_read()?.open_table(facts)?.get(KEY)?.map(|number| number.value());
        let part = |number: u64, at: u32| (number >> at) as u16;
        Ok(found.map(|number| Self { major: part(number, 32), minor: part(number, 16), patch: part(number, 0) }))
    }

    /// Writes into a file that this release has it now.
    pub(super) fn sign(
        self,
        database: &Database,
        facts: TableDefinition<&'static str, u64>,
    ) -> Result<(), redb::Error> {
        let number = u64::from(self.major) << 32 | u64::from(self.minor) << 16 | u64::from(self.patch);
        let txn = database.begin_write()?;
        txn.open_table(facts)?.insert(KEY, number)?;
        Ok(txn.commit()?)
    }
}

impl fmt::Display for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}
