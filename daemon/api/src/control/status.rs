//! How the daemon is doing, as `leasehold status` shows it.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::Lan;

/// The answer to `GET /v1/status`, and what `leasehold status --json` prints. Times are RFC 3339 in UTC, by the host's wall clock.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Status {
    /// The daemon's version.
    pub version: String,
    /// The host's name.
    #[serde(default)]
    pub host: String,
    /// Since when it runs.
    pub since: String,
    /// The same in seconds.
    pub seconds_up: u64,
    /// Its sockets.
    pub sockets: Vec<String>,
    /// Where leases are kept.
    pub store: Store,
    /// How many leases there are, including those being acquired or given back.
    pub leases: Leases,
    /// The servers of leases, by LAN.
    pub servers: Vec<Server>,
    /// The last warnings and errors of its log: of each kind the last one, the latest at the end.
    pub warnings: Vec<Warning>,
    /// What is wrong, the gravest first. `leasehold status` ends with 1 if there is anything.
    #[serde(default)]
    pub troubles: Vec<Trouble>,
    /// The same in sentences, each with what to do.
    pub attention: Vec<String>,
}

/// Something that somebody should look at. It concerns a LAN, a link, or, if it names neither, the host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Trouble {
    /// What kind of trouble it is: `adds_fail`, `link_down` and so on.
    pub kind: String,
    /// Whether containers are without an address, or soon may be.
    pub grave: bool,
    /// The LAN that it concerns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lan: Option<Lan>,
    /// The host's link that it concerns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<String>,
    /// Since when, as far as known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
    /// How many leases, ADDs and the like it concerns.
    pub count: u64,
    /// What is wrong, and why as far as known.
    pub sentence: String,
    /// What to do about it.
    pub remedy: String,
}

/// Where leases are kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Store {
    /// The file.
    pub path: String,
    /// Its size; absent if it cannot be seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// What is free on its disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub free_bytes: Option<u64>,
    /// When it last took something.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_commit: Option<String>,
    /// How often it did since the daemon started, and how often it refused to.
    pub commits: u64,
    /// How often it refused to.
    pub failures: u64,
    /// Why no ADD could be recorded now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<String>,
}

/// How many leases there are of each kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Leases {
    /// By state.
    pub by_state: BTreeMap<String, u64>,
    /// By caller: `cni`, `docker`.
    pub by_door: BTreeMap<String, u64>,
    /// By who granted them: a `server` or a `range`.
    pub by_source: BTreeMap<String, u64>,
}

/// A DHCP server on a LAN.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Server {
    /// Its identifier.
    pub server: IpAddr,
    /// The LAN.
    pub lan: Lan,
    /// How many leases there are from it.
    pub leases: u64,
    /// For how many seconds it has extended no lease, if it was asked in vain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds_silent: Option<u64>,
}

/// A line of the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Warning {
    /// When.
    pub time: String,
    /// What it says, after its level: `WARN` or `ERROR`.
    pub line: String,
    /// How many of its kind there were since the daemon started.
    #[serde(default)]
    pub count: u64,
}
