//! What the operator asks: `leasehold list`, `leasehold events`.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr};

use ipnet::{IpNet, Ipv4Net};
use serde::{Deserialize, Serialize};

/// The daemon's URL path for the list of bindings (`GET`).
pub const BINDINGS: &str = "/v1/bindings";

/// The daemon's URL path for events (`GET`), with `?after=N&limit=M&wait=SECONDS`, each of which may be missing: the
/// oldest `limit` events after number `after` (0), waiting until there is one for `wait` seconds (0).
pub const EVENTS: &str = "/v1/events";

/// The most events in one answer, and the default `limit`.
pub const MAX_EVENTS: usize = 1_000;

/// The longest `wait`, in seconds.
pub const MAX_WAIT: u64 = 60;

/// Events in their order: the answer to `GET /v1/events`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Events {
    /// The events.
    pub events: Vec<Event>,
    /// The `after` of the next question. It is less than that of this one if the journal began anew.
    pub next_after: u64,
}

/// One change of a binding. `leasehold events --json` prints one per line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// Counts all events of the journal, from 1 on.
    pub number: u64,
    /// When, by the host's wall clock: RFC 3339 in UTC, to the millisecond.
    pub time: String,
    /// Whose lease it is.
    pub attachment: Attachment,
    /// What happened: `acquired`, `renewed`, `rebound`, `changed`, `lost`, `expired`, `conflict`, `declined`, `released`,
    /// `adopted`, `orphan_found`, `address_removed`, `detection_off`, `address_held`.
    pub kind: String,
    /// The address that it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<IpNet>,
    /// The server that it came from or goes to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<IpAddr>,
    /// Why.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub cause: String,
    /// How often it happened in a row, if more than once: the last of several renewals that change nothing stands for
    /// all of them, under its own number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub times: Option<u64>,
    /// When it first happened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
}

/// All bindings, in order of attachment: the answer to `GET /v1/bindings`, and what `leasehold list --json` prints.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bindings {
    /// The bindings.
    pub bindings: Vec<Binding>,
    /// The pools of Docker's networks, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pools: Vec<Pool>,
    /// Containers that were running already and could not be adopted, in order of attachment.
    #[serde(default)]
    pub not_adopted: Vec<NotAdopted>,
    /// Links in the host's namespace that daemons with another store made for Docker, by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub strangers: Vec<String>,
    /// How often an answer, or an option in one, was refused since the daemon started, by cause.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub refused: BTreeMap<String, u64>,
}

/// The pool of a Docker network.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pool {
    /// The PoolID: the subnet, the range, and the network's options.
    pub id: String,
    /// The router that a server named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<Ipv4Addr>,
    /// Addresses that no endpoint gets. They have no lease.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reserved: Vec<Ipv4Addr>,
}

/// A running container whose lease the daemon does not hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotAdopted {
    /// The container's attachment.
    pub attachment: Attachment,
    /// Why it could not be adopted.
    pub reason: String,
}

/// One binding.
///
/// Times are whole seconds from the answer on, 0 when past. With an address, an absent time means that the lease never
/// ends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Binding {
    /// Who holds the lease.
    pub attachment: Attachment,
    /// How the server knows the holder.
    /// Absent if no server knows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<Identity>,
    /// The leased address with its prefix; absent while there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<IpNet>,
    /// Further addresses of the same lease.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub more_addresses: Vec<IpNet>,
    /// The client's state by its RFC 2131 name (`BOUND`, `RENEWING`, ...), or `KEPT` until its container returns, or
    /// `RELEASING`.
    pub state: String,
    /// Who granted the lease; absent while there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<Source>,
    /// The DHCP server; absent while there is no lease, or if none granted it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<IpAddr>,
    /// Until renewal (T1).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds_to_t1: Option<u64>,
    /// Until rebinding (T2).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds_to_t2: Option<u64>,
    /// Until the address must no longer be used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds_to_expiry: Option<u64>,
    /// Until a lease that is `KEPT` is given back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds_to_release: Option<u64>,
    /// No path leads any more to the network namespace of its interface, which lives.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub pathless: bool,
    /// What keeps a lease that is `RELEASING` from its server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_up_by: Option<String>,
    /// For how long it has been held up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds_held_up: Option<u64>,
    /// The address that Docker was told. Docker hears of no later one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub told: Option<Ipv4Net>,
    /// Where its packets go; absent if it needs no interface.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<Link>,
}

/// Who grants leases.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// A DHCP server.
    Server,
    /// A local range.
    Range,
}

/// What a front door asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "door", rename_all = "lowercase")]
pub enum Attachment {
    /// The CNI shim: an interface of a container on a network.
    Cni {
        /// The network's name.
        network: String,
        /// The container's id.
        container: String,
        /// The interface's name inside the container.
        ifname: String,
    },
    /// Docker: an endpoint in a pool.
    Docker {
        /// The PoolID.
        pool: String,
        /// The endpoint's Ethernet address, or something else of its own.
        endpoint: String,
    },
}

impl fmt::Display for Attachment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cni { network, container, ifname } => write!(f, "{network}/{container}/{ifname}"),
            Self::Docker { pool, endpoint } => write!(f, "docker/{pool}/{endpoint}"),
        }
    }
}

/// How a server knows a client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// The wire.
    pub lan: Lan,
    /// Option 61 in hexadecimal, type byte first.
    pub client_id: String,
    /// The client's Ethernet address.
    pub chaddr: String,
}

/// The wire that a server is on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Lan {
    /// The wire behind a link of the host.
    Link {
        /// The host link's name.
        parent: String,
        /// The VLAN, 0 when untagged.
        vlan: u16,
    },
    /// A network whose configuration names no host link.
    Network {
        /// The network's name.
        network: String,
    },
}

impl fmt::Display for Lan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Link { parent, vlan: 0 } => f.write_str(parent),
            Self::Link { parent, vlan } => write!(f, "{parent}.{vlan}"),
            Self::Network { network } => write!(f, "network {network}"),
        }
    }
}

/// Where a binding's packets go.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Link {
    /// The path of the container's network namespace; absent for a link of the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub netns: Option<String>,
    /// The link's index in its namespace.
    pub ifindex: u32,
    /// The Ethernet address of its frames.
    pub mac: String,
}

impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.netns {
            Some(netns) => write!(f, "{} in {netns}", self.ifindex),
            None => write!(f, "host link {}", self.ifindex),
        }
    }
}
