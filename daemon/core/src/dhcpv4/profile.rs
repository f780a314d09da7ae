//! What a client says of itself and wants, beyond what RFC 2131 makes it.

use std::net::{IpAddr, Ipv4Addr};

use ipnet::{IpNet, Ipv4Net};
use serde::{Deserialize, Serialize};

use super::lease::Lease;

/// For how many seconds the lease of an identity that can return is kept, where its network does not say.
pub const GRACE: u32 = 60;

/// The choices of one attachment's network configuration. They outlive a restart with the attachment's record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Profile {
    /// Host name (12), sent as it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hostname: Option<String>,
    /// Fully qualified domain name (81), sent in the wire form of RFC 4702 with the flags E and S.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fqdn: Option<String>,
    /// Vendor class identifier (60).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vendor_class: Option<String>,
    /// User class (77), one instance, as RFC 3004 has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_class: Option<String>,
    /// Further options, as code and bytes. None of those that the protocol itself sets.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub provide: Vec<(u8, Vec<u8>)>,
    /// The parameter request list (55), in place of the default one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request: Option<Vec<u8>>,
    /// Asks servers to answer by broadcast.
    pub broadcast: bool,
    /// Whatever is broadcast leaves and comes in over the LAN's parent link: the interfaces of ipvlan have its hardware
    /// address, and a frame to that address is the parent's.
    pub on_parent: bool,
    /// Offers to take a lease in two messages (80, RFC 4039).
    pub rapid_commit: bool,
    /// Only these servers' answers are believed; empty: all but `deny`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub allow: Vec<Ipv4Addr>,
    /// These servers' answers are not.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub deny: Vec<Ipv4Addr>,
    /// The prefix length that the address has on the interface, in place of the lease's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefix: Option<u8>,
    /// Whether the lease is given back when its attachment goes. If not, it is left to end by itself.
    pub release: bool,
    /// For how many seconds the lease is kept when its attachment goes, for its identity, which may return with another
    /// container. `None`: that is its container's, and ends with it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grace: Option<u32>,
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

impl Default for Profile {
    fn default() -> Self {
        Self {
            hostname: None,
            fqdn: None,
            vendor_class: None,
            user_class: None,
            provide: Vec::new(),
            request: None,
            broadcast: false,
            on_parent: false,
            rapid_commit: false,
            allow: Vec::new(),
            deny: Vec::new(),
            prefix: None,
            release: true,
            grace: None,
            detection: Detection::default(),
            on_change: OnChange::default(),
            on_expiry: OnExpiry::default(),
            metric: None,
            routes: Vec::new(),
            suppress_default_route: false,
            follow_router: false,
            mtu: None,
            late_routes: false,
            plain_routes: false,
            left_out: Vec::new(),
        }
    }
}

impl Profile {
    /// Returns whether the client's identity may come back with another container, on another host too.
    pub fn returns(&self) -> bool {
        self.grace.is_some()
    }

    /// Returns the address of a lease as an interface has it.
    pub fn address(&self, lease: &Lease) -> Ipv4Net {
        let own = self.prefix.and_then(|prefix| Ipv4Net::new(lease.ip(), prefix).ok());
        own.unwrap_or(lease.address)
    }

    /// Returns whether a server's answers are believed.
    pub fn trusts(&self, server: Ipv4Addr) -> bool {
        (self.allow.is_empty() || self.allow.contains(&server)) && !self.deny.contains(&server)
    }
}

/// An address that is asked for (50).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The address.
    pub address: Ipv4Addr,
    /// Whether another one will do.
    pub preferred: bool,
}

impl Wanted {
    /// Returns whether who wants an address, or none in particular, takes this one.
    pub(crate) fn takes(wanted: Option<Self>, address: Ipv4Addr) -> bool {
        wanted.is_none_or(|wanted| wanted.preferred || wanted.address == address)
    }
}
