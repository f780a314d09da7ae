//! Everything about one lease, as `leasehold show` shows it.

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use super::{Binding, Event};

/// The answer to `GET /v1/show`, and what `leasehold show --json` prints.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Story {
    /// The lease; absent if there is none, or there are several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<Box<Lease>>,
    /// The leases that the name fits, if there are several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub candidates: Vec<Binding>,
}

/// One lease. Times are RFC 3339 in UTC, by the host's wall clock.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Lease {
    /// What `list` shows of it.
    pub binding: Binding,
    /// What servers know its holder by, in words.
    pub client: String,
    /// The Ethernet address that the last ACK came from: the server's, or its router's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_mac: Option<String>,
    /// T1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub renews: Option<String>,
    /// T2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rebinds: Option<String>,
    /// Its end; absent if it never ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<String>,
    /// What the server sent with it and the daemon remembers, in order of code.
    pub options: Vec<DhcpOption>,
    /// What is on its interface now; absent if none is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<Interface>,
    /// Why its interface cannot be seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface_unseen: Option<String>,
    /// What happened to it last, the latest at the end.
    pub events: Vec<Event>,
}

/// An option of a DHCP message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DhcpOption {
    /// Its number.
    pub code: u8,
    /// Its name, if it has one that people know.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Its value as text.
    pub value: String,
    /// The same in hexadecimal.
    pub bytes: String,
}

/// What is on an interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Interface {
    /// Its name in its namespace.
    pub name: String,
    /// Its Ethernet address.
    pub mac: String,
    /// Its MTU in bytes.
    pub mtu: u32,
    /// Whether it is administratively up.
    pub up: bool,
    /// Whether it has carrier.
    pub carrier: bool,
    /// The addresses on it.
    #[cfg_attr(feature = "schema", schemars(with = "Vec<String>"))]
    pub addresses: Vec<IpNet>,
    /// The IPv4 routes over it that the kernel did not make itself.
    pub routes: Vec<String>,
}
