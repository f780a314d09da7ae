//! What a server granted.

use std::cmp::Reverse;
use std::net::{IpAddr, Ipv4Addr};
use std::num::NonZeroU16;
use std::time::Duration;

use ipnet::Ipv4Net;
use serde::{Deserialize, Serialize};

use crate::grant::policy::Policy;
use crate::grant::{Dns, Grant, Route};
use crate::source::Source;
use crate::tenure::{Address, Grantor, Tenure, Times};
use crate::time::Instant;
use crate::wire::Mac;
pub use crate::wire::option::LeaseRoute;

/// A lease: an address, until when, and what came with it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// yiaddr with the prefix of the subnet mask.
    pub address: Ipv4Net,
    /// Where it comes from.
    #[serde(default, skip_serializing_if = "Source::is_asked")]
    pub source: Source,
    /// The server identifier (54); 0.0.0.0 if no server is known.
    pub server: Ipv4Addr,
    /// The Ethernet source of the last ACK: the server's, or its router's. Goes stale.
    pub server_mac: Mac,
    /// When the REQUEST that was acknowledged was sent: all times count from there (RFC 2131 §4.4.1).
    pub start: Instant,
    /// From `start` to T1 and T2 and the end; `None` when the lease never ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub times: Option<LeaseTimes>,
    /// The default router: from 121 or 249 where present, else the first of option 3.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<Ipv4Addr>,
    /// All routes, the default route included: from 121, else 249, else 33 and 3 (RFC 3442).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<LeaseRoute>,
    /// Domain name servers (6).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dns: Vec<Ipv4Addr>,
    /// Domain name (15), the first of several, checked to have a host name's characters only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub domain: Option<String>,
    /// Domain search list (119, then 15 if that has several), checked to have a host name's characters only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub search: Vec<String>,
    /// Interface MTU (26), in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<NonZeroU16>,
}

/// The three times of a finite lease, each from its start: t1 < t2 < end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseTimes {
    /// Renewal (58).
    pub t1: Duration,
    /// Rebinding (59).
    pub t2: Duration,
    /// Lease time (51).
    pub end: Duration,
}

impl Lease {
    /// Returns a lease of which only the address and its start are known.
    pub fn unknown(address: Ipv4Net, start: Instant) -> Self {
        Self {
            address,
            source: Source::Server,
            server: Ipv4Addr::UNSPECIFIED,
            server_mac: Mac::BROADCAST,
            start,
            times: None,
            gateway: None,
            routes: Vec::new(),
            dns: Vec::new(),
            domain: None,
            search: Vec::new(),
            mtu: None,
        }
    }

    /// Returns a lease of an address that a local range gave. It never ends.
    pub fn of_range(address: Ipv4Net, gateway: Ipv4Addr, start: Instant) -> Self {
        let routes = vec![LeaseRoute {
            destination: Ipv4Net::default(),
            via: Some(gateway),
        }];
        Self {
            source: Source::Range,
            gateway: Some(gateway),
            routes,
            ..Self::unknown(address, start)
        }
    }

    /// Returns the leased address.
    pub fn ip(&self) -> Ipv4Addr {
        self.address.addr()
    }

    /// Returns what the lease gives an interface under a policy.
    pub fn grant(&self, policy: &Policy) -> Grant {
        let route =
            |route: &LeaseRoute| Route::new(route.destination.into(), route.via.map(IpAddr::V4));
        policy.shape(Grant {
            addresses: vec![policy.address(self.address).into()],
            gateway: self.gateway.map(IpAddr::V4),
            router: None,
            routes: self.routes.iter().map(route).collect(),
            dns: self.resolver().unwrap_or_default(),
            mtu: self.mtu.map(NonZeroU16::get),
        })
    }

    /// Returns what is granted under a policy, in callers' terms.
    pub fn tenure(&self, policy: &Policy) -> Tenure {
        let times = || {
            Some(Times {
                extended: self.t1()?,
                rebound: self.t2()?,
                ends: self.expires()?,
            })
        };
        Tenure {
            addresses: vec![Address {
                net: self.address.into(),
                gateway: self.gateway.map(IpAddr::V4),
            }],
            by: match self.source {
                Source::Server => self.server.into(),
                Source::Range => Grantor::Range,
            },
            start: self.start,
            times: times(),
            grant: self.grant(policy),
        }
    }

    /// Returns the lease's name servers and domains; `None` if it has none.
    pub fn resolver(&self) -> Option<Dns> {
        let servers = self.dns.iter().copied().map(IpAddr::V4).collect();
        let dns = Dns {
            servers,
            domain: self.domain.clone(),
            search: self.search.clone(),
        };
        Some(dns).filter(|dns| !dns.is_empty())
    }

    /// Returns whether another lease grants the same, apart from its start and times.
    pub fn grants_the_same(&self, other: &Self) -> bool {
        let timeless = |lease: &Self| Self {
            start: self.start,
            times: None,
            server_mac: Mac::default(),
            ..lease.clone()
        };
        timeless(self) == timeless(other)
    }

    /// Returns when to begin renewing: at T1, but no later than T2 or the end, whatever a record says. `None`: it never ends.
    pub fn t1(&self) -> Option<Instant> {
        self.times.map(|t| self.start + t.t1.min(t.t2).min(t.end))
    }

    /// Returns when to begin rebinding: at T2, but no later than the end, whatever a record says. `None`: the lease never ends.
    pub fn t2(&self) -> Option<Instant> {
        self.times.map(|t| self.start + t.t2.min(t.end))
    }

    /// Returns when the address must no longer be used; `None` when the lease never ends.
    pub fn expires(&self) -> Option<Instant> {
        self.times.map(|t| self.start + t.end)
    }

    /// Returns whether the lease has ended by `now`.
    pub fn expired(&self, now: Instant) -> bool {
        self.expires().is_some_and(|end| now >= end)
    }

    /// Returns where a packet for the server goes first, as the kernel would send it: by the longest prefix among the lease's
    /// subnet and its routes, the first of equals. `None` if none of them leads there.
    pub fn next_hop(&self) -> Option<Ipv4Addr> {
        let subnet = LeaseRoute {
            destination: self.address,
            via: None,
        };
        let leading = std::iter::once(&subnet)
            .chain(&self.routes)
            .filter(|r| r.destination.contains(&self.server));
        let route = leading.min_by_key(|route| Reverse(route.destination.prefix_len()))?;
        Some(route.via.unwrap_or(self.server))
    }

    /// Returns whether the server is on the lease's own link.
    pub fn on_link(&self) -> bool {
        self.next_hop() == Some(self.server)
    }
}
