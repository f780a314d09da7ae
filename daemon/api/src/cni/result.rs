//! CNI's results, and how each version writes them.

use std::net::IpAddr;

use ipnet::IpNet;
use serde::Serialize;

use super::Version;
use crate::to_json;

/// What an IPAM plugin answers to ADD, in no version yet.
///
/// There are no interfaces here: a delegated plugin leaves `interfaces` and `ips[].interface` out (CNI specification,
/// "Delegated Plugins (IPAM)").
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

/// A route.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Route {
    /// Where to.
    pub dst: IpNet,
    /// The next hop. Where it is absent, main plugins take the gateway of the first address: a destination on the link
    /// itself therefore wants the unspecified address here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gw: Option<IpAddr>,
}

/// Names and their servers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Dns {
    /// Servers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub nameservers: Vec<IpAddr>,
    /// The domain for short names.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub domain: Option<String>,
    /// Domains to search for short names.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub search: Vec<String>,
}

impl Dns {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl Success {
    /// Writes the result as `version` wants it.
    pub fn render(&self, version: Version) -> String {
        use Version::*;
        let family = match version {
            V0_4_0 => true,
            V1_0_0 | V1_1_0 => false,
        };
        let ips = self.ips.iter().map(|ip| IpOut {
            version: family.then_some(match ip.address {
                IpNet::V4(_) => "4",
                IpNet::V6(_) => "6",
            }),
            address: ip.address,
            gateway: ip.gateway,
        });
        to_json(&ListOut { cni_version: version, ips: ips.collect(), routes: &self.routes, dns: &self.dns })
    }
}

/// The shape since 0.3.0: a list of addresses.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ListOut<'a> {
    cni_version: Version,
    ips: Vec<IpOut>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    routes: &'a [Route],
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
