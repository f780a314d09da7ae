//! What `/metrics` shows: what the core counts and holds, and what the shell knows about itself, as OpenMetrics text.
//!
//! Everything is a plain number where it arises: in a [`Meter`] in the loop, in atomics in the store's thread and the watch. A
//! [`Snapshot`] gathers the numbers when somebody asks; [`text`] names and writes them. Labels are names from the code and a
//! limited number of networks. No label names a container or an address.

mod meter;
mod text;

pub(crate) use self::meter::{Ending, Meter};
pub(crate) use self::text::{CONTENT_TYPE, write};

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::Duration;

use leasehold_core::counts::Counts;
use leasehold_core::identity::Lan;
use leasehold_core::registry::Holdings;
use leasehold_core::trouble::Trouble;

use crate::health::Disk;
use crate::net::Watched;
use crate::store::Commits;

/// All numbers at one moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct Snapshot {
    /// What the core counted.
    pub(crate) counts: Counts,
    /// What the core holds.
    pub(crate) holdings: Holdings,
    /// What is wrong: at first what the core knows, then all of it.
    pub(crate) troubles: Vec<Trouble>,
    /// The host links that leases or networks use, each with the number of leases.
    pub(crate) links: BTreeMap<String, u64>,
    /// The servers that do not extend leases any more, and for how long.
    pub(crate) silent: Vec<(Lan, Ipv4Addr, Duration)>,
    /// How often the replaced plugin was called.
    pub(crate) old_plugin_calls: u64,
    /// The store's disk.
    pub(crate) disk: Disk,
    /// Events that were dropped because the store did not accept them.
    pub(crate) events_dropped: u64,
    /// What the loop counted.
    pub(crate) meter: Meter,
    /// What the store did.
    pub(crate) commits: Commits,
    /// What the watch hears about.
    pub(crate) watched: Watched,
    /// How many connections callers have, by socket.
    pub(crate) connections: BTreeMap<&'static str, u64>,
    /// Since when the daemon runs, from 1970 on.
    pub(crate) since: Duration,
    /// Its sockets, and the file of its store.
    pub(crate) sockets: Vec<PathBuf>,
    pub(crate) store: PathBuf,
}
