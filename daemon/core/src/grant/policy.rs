//! What the network's configuration makes of a grant: what is put on the interface, and what becomes of it later.

use std::net::IpAddr;

use ipnet::{IpNet, Ipv4Net};
use serde::{Deserialize, Serialize};

/// What is put on an interface beside what its lease says, or in place of it, and what becomes of that.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Policy {
    /// The prefix length that the address has on the interface, in place of the lease's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefix: Option<u8>,
    /// Whether to probe for other users of the address.
    #[serde(skip_serializing_if = "is_default")]
    pub detection: Detection,
    /// What becomes of the interface when the lease brings something else than before.
    #[serde(skip_serializing_if = "is_default")]
    pub on_change: OnChange,
    /// What becomes of the interface when the lease ends or is refused.
    #[serde(skip_serializing_if = "is_default")]
    pub on_expiry: OnExpiry,
    /// The metric of routes that have none of their own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metric: Option<u32>,
    /// Routes beside the server's.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<ExtraRoute>,
    /// The server's default route and gateway are left out.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub suppress_default_route: bool,
    /// A default route over the interface, which somebody else put there, goes where the server's router goes.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub follow_router: bool,
    /// The MTU of the interface in bytes, whatever the lease says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u16>,
    /// The main plugin cannot add a route onto the link, nor one by a router outside of the subnet. It is not told of them:
    /// the daemon adds them once the address is there.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub late_routes: bool,
    /// The main plugin is told of nothing but a route's destination and next hop: the daemon adds those that say more.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub plain_routes: bool,
    /// Routes that somebody else had removed when the container was set up, by destination and table: they are not put back.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<(IpNet, u32)>,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Whether to probe for other users of the address (RFC 5227).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Detection {
    /// While the lease is got, and for a while after: it costs no time.
    #[default]
    Optimistic,
    /// Before the lease is used: it costs seven seconds.
    Strict,
    /// Not at all.
    Off,
}

/// What becomes of the interface when a lease brings something else than before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnChange {
    /// It is changed too.
    #[default]
    Apply,
    /// It stays as it was. The change is recorded and reported.
    Keep,
}

/// What becomes of the interface when there is no lease any more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnExpiry {
    /// Address and routes are taken off it (RFC 2131 §4.4.5).
    #[default]
    Remove,
    /// It stays as it was.
    Keep,
}

/// A route that the network's configuration adds to a lease's. What is `None` is left to the kernel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExtraRoute {
    /// Where to.
    pub destination: IpNet,
    /// The next hop; `None` is the lease's gateway, an unspecified address the link itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<IpAddr>,
    /// The metric.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metric: Option<u32>,
    /// The path's MTU, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u32>,
    /// The greatest TCP segment to advertise, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub advmss: Option<u32>,
    /// The routing table.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub table: Option<u32>,
    /// The scope, by the kernel's numbers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<u8>,
}

impl Policy {
    /// Returns a leased address as an interface has it.
    pub fn address(&self, leased: Ipv4Net) -> Ipv4Net {
        let own = self.prefix.and_then(|prefix| Ipv4Net::new(leased.addr(), prefix).ok());
        own.unwrap_or(leased)
    }
}
