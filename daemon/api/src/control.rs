//! What the operator asks with `leasehold list`, `leasehold events` and the like.

mod status;
mod story;

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr};

use ipnet::{IpNet, Ipv4Net};
use serde::{Deserialize, Serialize};

pub use self::status::{Leases, Server, Status, Store, Trouble, Warning};
pub use self::story::{DhcpOption, Interface, Lease, Story};

/// The daemon's URL path for the list of bindings (`GET`).
pub const BINDINGS: &str = "/v1/bindings";

/// The daemon's URL path for events (`GET`), with `?after=N&limit=M&wait=SECONDS`, each of which may be missing: the oldest
/// `limit` events after number `after` (0). Waits up to `wait` seconds (0) until there is one.
pub const EVENTS: &str = "/v1/events";

/// The daemon's URL path for what it logs: `GET` returns it, `PUT` with a [`LogChange`] changes it for a while, `DELETE` sets it
/// back to what it was at the start. Each answers with a [`Log`].
pub const LOG: &str = "/v1/log";

/// The daemon's URL path for all metrics (`GET`), as OpenMetrics text.
pub const METRICS: &str = "/metrics";

/// The daemon's URL path that answers 200 if its loop runs (`GET`).
pub const HEALTH: &str = "/healthz";

/// The daemon's URL path that answers 200 if an ADD could be recorded now, else 503 with the reason (`GET`).
pub const READINESS: &str = "/readyz";

/// The longest time for which the log can be changed, in seconds.
pub const MAX_LOG_CHANGE: u64 = 86_400;

/// The daemon's URL path for frames (`GET`), with `?after=N&wait=SECONDS&attachment=NAME`, each of which may be missing: the
/// frames after number `after`, or those from now on without it. Waits up to `wait` seconds (0) until there is one. Frames are
/// kept while somebody asks.
pub const CAPTURE: &str = "/v1/capture";

/// The most frames in one answer.
pub const MAX_FRAMES: usize = 500;

/// The most events in one answer, and the default `limit`.
pub const MAX_EVENTS: usize = 1_000;

/// The longest `wait`, in seconds.
pub const MAX_WAIT: u64 = 60;

/// The daemon's URL path for leases to be extended now (`POST`), with the query of a [`Which`], or `?all=true`. It answers with
/// [`Obeyed`] when each lease was extended or no server has answered for half a minute.
pub const RENEW: &str = "/v1/renew";

/// The daemon's URL path for leases to be given back (`POST`), with the query of a [`Which`], or `?all=true`; with `&force=true`,
/// also those of containers that live. It answers with [`Obeyed`].
pub const RELEASE: &str = "/v1/release";

/// The daemon's URL path for everything about one lease (`GET`), with the query of a [`Which`]. It answers with a [`Story`].
pub const SHOW: &str = "/v1/show";

/// The daemon's URL path for how it is doing (`GET`). It answers with a [`Status`].
pub const STATUS: &str = "/v1/status";

/// Which leases are meant. What is absent leaves nobody out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Which {
    /// What one calls a lease by: its attachment, its address, its pod, its host name, or the beginning of its container's id.
    pub name: Option<String>,
    /// The network.
    pub network: Option<String>,
    /// The beginning of the container's id.
    pub container: Option<String>,
    /// The address, or a subnet that has it.
    pub address: Option<IpNet>,
    /// The state, in any case.
    pub state: Option<String>,
    /// The door: `cni` or `docker`.
    pub door: Option<String>,
}

/// The states of leases: those of RFC 2131, and the daemon's own.
pub const STATES: [&str; 11] = [
    "INIT",
    "SELECTING",
    "REQUESTING",
    "INIT-REBOOT",
    "REBOOTING",
    "BOUND",
    "RENEWING",
    "REBINDING",
    "KEPT",
    "RELEASING",
    "HELD",
];

impl Which {
    /// Returns the parameters of a query that select the same leases.
    pub fn parameters(&self) -> Vec<String> {
        let Self {
            name,
            network,
            container,
            address,
            state,
            door,
        } = self;
        let address = address.as_ref().map(IpNet::to_string);
        let all = [
            ("name", name),
            ("network", network),
            ("container", container),
            ("address", &address),
            ("state", state),
            ("door", door),
        ];
        all.iter()
            .filter_map(|(key, value)| Some(format!("{key}={}", to_url(value.as_deref()?))))
            .collect()
    }

    /// Takes in a parameter. Returns `None` if it is none of these or cannot have this value.
    pub fn take(&mut self, key: &str, value: &str) -> Option<()> {
        let value = from_url(value)?;
        let place = match key {
            "name" => &mut self.name,
            "network" => &mut self.network,
            "container" => &mut self.container,
            "address" => {
                self.address = Some(net(&value)?);
                return Some(());
            }
            "state" if STATES.iter().any(|state| value.eq_ignore_ascii_case(state)) => {
                &mut self.state
            }
            "door" if ["cni", "docker"].contains(&&*value) => &mut self.door,
            _ => return None,
        };
        *place = Some(value);
        Some(())
    }
}

/// Reads an address or a subnet.
pub fn net(text: &str) -> Option<IpNet> {
    text.parse()
        .ok()
        .or_else(|| Some(text.parse::<IpAddr>().ok()?.into()))
}

/// The outcome of an order for each selected lease, in order of attachment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Obeyed {
    /// The leases.
    pub leases: Vec<Upshot>,
}

/// The outcome of an order for one lease.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Upshot {
    /// Whose lease.
    pub attachment: Attachment,
    /// Its address; absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    pub address: Option<IpNet>,
    /// The outcome.
    pub outcome: Outcome,
    /// Why, or what that means: a sentence.
    pub because: String,
    /// Until the end of a lease that was extended; absent if it never ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds_to_expiry: Option<u64>,
}

/// The outcome of an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The lease was extended.
    Extended,
    /// It was extended a moment ago, and nobody was asked.
    Recent,
    /// No server extended it; it is held as before.
    Unanswered,
    /// It was lost; another is looked for.
    Lost,
    /// There is nothing to extend or to give back.
    Nothing,
    /// It is being given back.
    Returned,
    /// It is not given back, because its container still runs.
    Lives,
    /// It is one of several that the name fits: nothing was done.
    Ambiguous,
    /// It could not be done.
    Failed,
}

impl Outcome {
    /// Returns whether what was ordered has been done.
    pub const fn is_done(self) -> bool {
        matches!(self, Self::Extended | Self::Recent | Self::Returned)
    }
}

/// Events in their order: the answer to `GET /v1/events`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Events {
    /// The events.
    pub events: Vec<Event>,
    /// The `after` of the next question. It is less than that of this one if the journal began anew.
    pub next_after: u64,
}

/// What the daemon logs. `leasehold log --json` prints it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Log {
    /// A level, or `target=level`, comma-separated.
    pub filter: String,
    /// Until it is again what it was at the start; absent if it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds_left: Option<u64>,
}

/// A change of what the daemon logs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LogChange {
    /// A level, or `target=level`, comma-separated.
    pub filter: String,
    /// For how long, [`MAX_LOG_CHANGE`] at most.
    pub seconds: u64,
}

/// Frames in their order: the answer to `GET /v1/capture`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Frames {
    /// The frames.
    pub frames: Vec<Frame>,
    /// The `after` of the next question.
    pub next_after: u64,
    /// How many frames since `after`, of any attachment, are no longer kept.
    pub missed: u64,
}

/// A frame that the daemon sent or received.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Frame {
    /// Counts all frames that were kept.
    pub number: u64,
    /// When, by the host's wall clock, in microseconds since 1970.
    pub micros: u64,
    /// Whether the daemon sent it.
    pub sent: bool,
    /// Whose lease it is about, in one word; absent if it is about none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attachment: Option<String>,
    /// From the Ethernet header on, in Base64.
    pub bytes: String,
}

/// Returns a text as a value in a URL's query (RFC 3986 §2.1).
pub fn to_url(text: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let escaped = text.bytes().map(|byte| {
        if is_plain(byte) {
            char::from(byte).to_string()
        } else {
            format!("%{byte:02X}")
        }
    });
    escaped.collect()
}

/// Reads such a value; `None` if it is not one.
pub fn from_url(text: &str) -> Option<String> {
    let mut parts = text.split('%');
    let mut bytes = parts.next()?.as_bytes().to_vec();
    for part in parts {
        let (digits, rest) = part.split_at_checked(2)?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        bytes.extend(rest.as_bytes());
    }
    String::from_utf8(bytes).ok()
}

/// One change of a binding. `leasehold events --json` prints one per line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Event {
    /// Counts all events of the journal, from 1 on.
    pub number: u64,
    /// When, by the host's wall clock: RFC 3339 in UTC, to the millisecond.
    pub time: String,
    /// Whose lease it is.
    pub attachment: Attachment,
    /// What happened: `acquired`, `renewed`, `rebound`, `changed`, `lost`, `expired`, `conflict`, `declined`, `released`,
    /// `adopted`, `orphan_found`, `address_removed`, `detection_off`, `address_held`, `unreachable`.
    pub kind: String,
    /// The address that it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
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
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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

/// The daemon's URL path for the list of fallbacks' ranges (`GET`).
pub const RANGES: &str = "/v1/ranges";

/// The ranges of all fallbacks that calls have named since the daemon started, by network, and what is taken of them: the answer to
/// `GET /v1/ranges`. `leasehold list --ranges --json` prints them beside the ranges that need no daemon.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Ranges {
    /// The ranges, those of a network in the order of its configuration.
    pub ranges: Vec<Range>,
}

/// One local range.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Range {
    /// The network.
    pub network: String,
    /// The wire that the network is on.
    pub lan: Lan,
    /// The index of the range's set.
    pub set: usize,
    /// The subnet, whose prefix each address gets.
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub subnet: IpNet,
    /// The first address.
    pub first: IpAddr,
    /// The last address.
    pub last: IpAddr,
    /// How many addresses it has for containers, or 2^64 - 1 if there are more.
    pub size: u64,
    /// Whether containers get its addresses only while no server answers.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub fallback: bool,
    /// What is taken of it, in order of address.
    pub taken: Vec<Taken>,
}

/// One taken address of a range.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Taken {
    /// The address.
    pub address: IpAddr,
    /// Who has it; the attachment may belong to another network on the same LAN.
    pub attachment: Attachment,
    /// Since when, in seconds since 1970; absent if that is not known, as for an address of a fallback.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<u64>,
    /// Whether its container is known to be gone: the address is given to another as soon as one is needed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub gone: bool,
}

/// The pool of a Docker network.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Pool {
    /// The PoolID: the subnet, the range, and the network's options.
    pub id: String,
    /// The LAN's link, if it was found by the subnet: the network's options name none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub found_parent: Option<String>,
    /// The router that a server named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<Ipv4Addr>,
    /// Addresses that no endpoint gets. They have no lease.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reserved: Vec<Ipv4Addr>,
}

/// A running container whose lease the daemon does not hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Binding {
    /// Who holds the lease.
    pub attachment: Attachment,
    /// The shortest name by which a person knows it: its pod, its host name, or the head of its container's id. There may be others of
    /// that name.
    #[serde(default)]
    pub name: String,
    /// How the server knows the holder.
    /// Absent if no server knows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<Identity>,
    /// The leased address with its prefix; absent while there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    pub address: Option<IpNet>,
    /// Further addresses of the same lease.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schemars(with = "Vec<String>"))]
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
    /// The lease was lost, and its container runs on without one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub lost: bool,
    /// How often servers were asked in vain to extend or confirm the lease since one last did; absent if none was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked_in_vain: Option<u32>,
    /// For how long it has been asking.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds_asking: Option<u64>,
    /// Until renewal (T1).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds_to_t1: Option<u64>,
    /// Until rebinding (T2).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds_to_t2: Option<u64>,
    /// Until the address must no longer be used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds_to_expiry: Option<u64>,
    /// For how long the server granted it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_seconds: Option<u64>,
    /// Until a lease that is `KEPT` is given back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds_to_release: Option<u64>,
    /// No path leads any more to the network namespace of its interface, which still exists.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub pathless: bool,
    /// What keeps a lease that is `RELEASING` from its server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_up_by: Option<String>,
    /// For how long it has been held up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds_held_up: Option<u64>,
    /// The address that Docker was told. Docker cannot be told about a later one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    pub told: Option<Ipv4Net>,
    /// Where its packets go; absent if it needs no interface.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<Link>,
}

/// Who grants leases.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// A DHCP server.
    Server,
    /// A local range.
    Range,
}

/// What CNI or Docker asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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
        /// The endpoint's Ethernet address, or another name of its own.
        endpoint: String,
    },
}

impl fmt::Display for Attachment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cni {
                network,
                container,
                ifname,
            } => write!(f, "{network}/{container}/{ifname}"),
            Self::Docker { pool, endpoint } => write!(f, "docker/{pool}/{endpoint}"),
        }
    }
}

/// How a server knows a client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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
