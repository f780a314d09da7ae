//! What a lease gives an interface, in either family: the finished plan, which doors spell and steps on a link carry out.

pub mod policy;

use std::net::IpAddr;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

/// The number of the main routing table.
pub(crate) const MAIN_TABLE: u32 = 254;

/// What an interface should carry, and what else its container may know.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// The addresses, each with the prefix of its subnet.
    pub addresses: Vec<IpNet>,
    /// The default router, unless the policy suppresses the default route.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<IpAddr>,
    /// The router for an existing default route over the interface; no default route is added.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub router: Option<IpAddr>,
    /// The routes, each after those that its next hop needs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<Route>,
    /// Name servers.
    #[serde(default, skip_serializing_if = "Dns::is_empty")]
    pub dns: Dns,
    /// The link's MTU, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u16>,
}

/// Name servers, and the domains that names are completed with.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dns {
    /// The servers, the first one first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub servers: Vec<IpAddr>,
    /// The domain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub domain: Option<String>,
    /// The domains that are searched.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub search: Vec<String>,
}

/// A route as an interface should have it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Route {
    /// Where to.
    pub destination: IpNet,
    /// The next hop; `None` when the destination is on the link itself.
    #[serde(default, skip_serializing_if = "Option::is_none", alias = "gateway")]
    pub via: Option<IpAddr>,
    /// The metric.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metric: Option<u32>,
    /// The path's MTU, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u32>,
    /// The greatest TCP segment to advertise, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub advmss: Option<u32>,
    /// The routing table; `None` is the main one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub table: Option<u32>,
    /// The scope, by the kernel's numbers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<u8>,
    /// Whether the main plugin does not get it: then the daemon puts it on once the address is there.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub late: bool,
}

impl Grant {
    /// Returns this grant without the routes that the daemon puts on itself.
    pub fn without_late(mut self) -> Self {
        self.routes.retain(|route| !route.late);
        self
    }

    /// Returns whether there are routes that the daemon puts on itself.
    pub fn has_late(&self) -> bool {
        self.routes.iter().any(|route| route.late)
    }

    /// Returns the route to a router outside the subnets of the addresses.
    pub(crate) fn route_to(&self, router: IpAddr) -> Option<Route> {
        let is_near = self
            .addresses
            .iter()
            .any(|address| address.contains(&router));
        (!is_near).then(|| Route::new(router.into(), None))
    }

    /// Returns whether the two have an address in common, whatever its prefix.
    pub(crate) fn meets(&self, other: &Self) -> bool {
        other
            .addresses
            .iter()
            .any(|address| self.has(address.addr()))
    }

    /// Returns whether this is one of the addresses.
    pub fn has(&self, address: IpAddr) -> bool {
        self.addresses.iter().any(|own| own.addr() == address)
    }
}

impl Dns {
    /// Returns whether there are neither name servers nor domains.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl Route {
    /// Returns a route with nothing but a destination and a next hop.
    pub fn new(destination: IpNet, via: Option<IpAddr>) -> Self {
        Self {
            destination,
            via,
            ..Self::default()
        }
    }

    /// Returns whether the route is in the main routing table.
    pub fn is_main(&self) -> bool {
        self.table.is_none_or(|table| table == MAIN_TABLE)
    }

    /// Returns what the kernel distinguishes routes by.
    fn key(&self) -> (IpNet, u32, u32) {
        (
            self.destination.trunc(),
            self.metric.unwrap_or(0),
            self.table.unwrap_or(MAIN_TABLE),
        )
    }

    /// Returns the number of its routing table, `None` for the main one.
    pub fn other_table(&self) -> Option<u32> {
        self.table.filter(|_| !self.is_main())
    }
}

#[cfg(test)]
pub(crate) mod tests;
