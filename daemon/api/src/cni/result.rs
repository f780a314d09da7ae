//! CNI's results, and how each version writes them.

use std::net::IpAddr;

use ipnet::IpNet;
use serde::Serialize;

use super::Version;
use crate::to_json;

/// The answer of an IPAM plugin to ADD, before it is written in a version.
///
/// It has no interfaces: a delegated plugin leaves out `interfaces` and `ips[].interface` (CNI specification, "Delegated Plugins
/// (IPAM)").
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Success {
    /// Addresses.
    pub ips: Vec<Ip>,
    /// Routes. Main plugins add them in this order.
    pub routes: Vec<Route>,
    /// Names and their servers.
    pub dns: Dns,
}

/// An address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ip {
    /// The address with its prefix.
    pub address: IpNet,
    /// The gateway of its subnet.
    pub gateway: Option<IpAddr>,
}

/// A route. Versions before 1.1.0 can only express its destination and next hop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Route {
    /// The destination.
    pub dst: IpNet,
    /// The next hop. If there is none, main plugins take the gateway of the first address (`ConfigureIface`).
    pub via: Option<IpAddr>,
    /// The path's MTU, in bytes.
    pub mtu: Option<u32>,
    /// The greatest TCP segment to advertise, in bytes.
    pub advmss: Option<u32>,
    /// The metric.
    pub priority: Option<u32>,
    /// The routing table.
    pub table: Option<u32>,
    /// The scope, by the kernel's numbers; `None` is the kernel's choice.
    pub scope: Option<u8>,
}

/// Names and their servers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Dns {
    /// Servers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub nameservers: Vec<String>,
    /// The domain for short names.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub domain: Option<String>,
    /// Domains to search for short names.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub search: Vec<String>,
    /// Further options of the resolver (resolv.conf(5)).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<String>,
}

impl Dns {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl Success {
    /// Writes the result in the form of `version`.
    pub fn render(&self, version: Version) -> String {
        use Version::*;
        let (family, attributes) = match version {
            V0_1_0 | V0_2_0 => return to_json(&self.pair(version)),
            V0_3_0 | V0_3_1 | V0_4_0 => (true, false),
            V1_0_0 => (false, false),
            V1_1_0 => (false, true),
        };
        to_json(&ListOut {
            cni_version: version,
            ips: self.ips.iter().map(|ip| IpOut::new(ip, family)).collect(),
            routes: self
                .routes
                .iter()
                .map(|route| RouteOut::new(route, attributes))
                .collect(),
            dns: &self.dns,
        })
    }

    fn pair(&self, version: Version) -> PairOut<'_> {
        let of = |is_v4: bool| {
            let ip = self
                .ips
                .iter()
                .find(|ip| matches!(ip.address, IpNet::V4(_)) == is_v4)?;
            let routes = self
                .routes
                .iter()
                .filter(|route| matches!(route.dst, IpNet::V4(_)) == is_v4);
            let routes = routes.map(|route| RouteOut::new(route, false)).collect();
            Some(FamilyOut {
                ip: ip.address,
                gateway: ip.gateway,
                routes,
            })
        };
        PairOut {
            cni_version: version,
            ip4: of(true),
            ip6: of(false),
            dns: &self.dns,
        }
    }
}

/// The shape before 0.3.0: an address of each family.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct PairOut<'a> {
    cni_version: Version,
    #[serde(skip_serializing_if = "Option::is_none")]
    ip4: Option<FamilyOut>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ip6: Option<FamilyOut>,
    #[serde(skip_serializing_if = "Dns::is_empty")]
    dns: &'a Dns,
}

#[derive(Serialize)]
struct FamilyOut {
    ip: IpNet,
    #[serde(skip_serializing_if = "Option::is_none")]
    gateway: Option<IpAddr>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    routes: Vec<RouteOut>,
}

/// The shape since 0.3.0: a list of addresses.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ListOut<'a> {
    cni_version: Version,
    ips: Vec<IpOut>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    routes: Vec<RouteOut>,
    #[serde(skip_serializing_if = "Dns::is_empty")]
    dns: &'a Dns,
}

#[derive(Serialize)]
struct IpOut {
    /// `ips[].version`: mandatory before 1.0.0, gone since.
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<&'static str>,
    address: IpNet,
    #[serde(skip_serializing_if = "Option::is_none")]
    gateway: Option<IpAddr>,
}

impl IpOut {
    fn new(ip: &Ip, family: bool) -> Self {
        let version = match ip.address {
            IpNet::V4(_) => "4",
            IpNet::V6(_) => "6",
        };
        Self {
            version: family.then_some(version),
            address: ip.address,
            gateway: ip.gateway,
        }
    }
}

#[derive(Serialize)]
struct RouteOut {
    dst: IpNet,
    #[serde(skip_serializing_if = "Option::is_none")]
    gw: Option<IpAddr>,
    #[serde(flatten)]
    attributes: Attributes,
}

/// The attributes that routes can have since 1.1.0.
#[derive(Default, Serialize)]
struct Attributes {
    #[serde(skip_serializing_if = "Option::is_none")]
    mtu: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    advmss: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    priority: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    table: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    scope: Option<u8>,
}

impl RouteOut {
    fn new(route: &Route, attributes: bool) -> Self {
        let Route {
            dst,
            via,
            mtu,
            advmss,
            priority,
            table,
            scope,
        } = *route;
        let attributes = if attributes {
            Attributes {
                mtu,
                advmss,
                priority,
                table,
                scope,
            }
        } else {
            Attributes::default()
        };
        Self {
            dst,
            gw: via,
            attributes,
        }
    }
}
