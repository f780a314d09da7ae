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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Ip {
    /// The address with its prefix.
    pub address: IpNet,
    /// The gateway of its subnet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gateway: Option<IpAddr>,
}

/// A route. Versions before 1.1.0 can only express its destination and next hop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Route {
    /// The destination.
    pub dst: IpNet,
    /// The next hop. If there is none, main plugins take the gateway of the first address (`ConfigureIface`).
    #[serde(rename = "gw", skip_serializing_if = "Option::is_none")]
    pub via: Option<IpAddr>,
    /// The path's MTU, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u32>,
    /// The greatest TCP segment to advertise, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advmss: Option<u32>,
    /// The metric.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<u32>,
    /// The routing table.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub table: Option<u32>,
    /// The scope, by the kernel's numbers; `None` is the kernel's choice.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scope: Option<u8>,
}

impl Route {
    /// Returns the part of the route that each version can express.
    fn plain(&self) -> Self {
        Self {
            dst: self.dst,
            via: self.via,
            ..Self::default()
        }
    }
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
            routes: match attributes {
                true => self.routes.clone(),
                false => self.routes.iter().map(Route::plain).collect(),
            },
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
            Some(FamilyOut {
                ip: ip.address,
                gateway: ip.gateway,
                routes: routes.map(Route::plain).collect(),
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
    routes: Vec<Route>,
}

/// The shape since 0.3.0: a list of addresses.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ListOut<'a> {
    cni_version: Version,
    ips: Vec<IpOut>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    routes: Vec<Route>,
    #[serde(skip_serializing_if = "Dns::is_empty")]
    dns: &'a Dns,
}

#[derive(Serialize)]
struct IpOut {
    /// `ips[].version`: mandatory before 1.0.0, gone since.
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<&'static str>,
    #[serde(flatten)]
    ip: Ip,
}

impl IpOut {
    fn new(ip: &Ip, family: bool) -> Self {
        let version = match ip.address {
            IpNet::V4(_) => "4",
            IpNet::V6(_) => "6",
        };
        Self {
            version: family.then_some(version),
            ip: *ip,
        }
    }
}
