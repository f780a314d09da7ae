//! What a lease gives an interface, of whichever family: the finished plan, which doors spell and steps on a link carry out.

pub mod policy;

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};

use ipnet::{IpNet, Ipv4Net};
use serde::{Deserialize, Serialize};

use self::policy::{ExtraRoute, Policy};
use crate::dhcpv4::lease::Lease;

/// The MTU that any Ethernet link carries.
const ETHERNET_MTU: u16 = 1500;

/// The number of the main routing table.
pub(crate) const MAIN_TABLE: u32 = 254;

/// What an interface is to carry, and what its container may know besides.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// The addresses, each with the prefix of its subnet.
    pub addresses: Vec<IpNet>,
    /// The default router, unless the policy suppresses the default route.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<IpAddr>,
    /// The router that a default route over the interface is to go by where there is one: none is added.
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

/// A route as an interface is to have it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Route {
    /// Where to.
    pub destination: IpNet,
    /// The next hop; `None` when the destination is on the link itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
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
    /// The main plugin is not told of it: the daemon puts it on once the address is there.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub late: bool,
}

impl Grant {
    /// Returns what a DHCPv4 lease gives an interface under a policy.
    pub fn v4(lease: &Lease, policy: &Policy) -> Self {
        Self {
            addresses: vec![policy.address(lease.address).into()],
            gateway: lease.gateway.map(IpAddr::V4).filter(|_| !policy.suppress_default_route),
            router: lease.gateway.map(IpAddr::V4).filter(|_| policy.follow_router),
            routes: routes(lease, policy),
            dns: Dns::v4(lease).unwrap_or_default(),
            mtu: policy.mtu.or(lease.mtu),
        }
    }

    /// Returns the same without the routes that the daemon puts on itself.
    pub fn told(mut self) -> Self {
        self.routes.retain(|route| !route.late);
        self
    }

    /// Returns whether there are routes that the daemon puts on itself.
    pub fn has_late(&self) -> bool {
        self.routes.iter().any(|route| route.late)
    }

    /// Returns the route that a router outside of the subnets of the addresses is reached by.
    pub(crate) fn route_to(&self, router: IpAddr) -> Option<Route> {
        let is_near = self.addresses.iter().any(|address| address.contains(&router));
        (!is_near).then(|| Route::new(router.into(), None))
    }

    /// Returns whether this is one of the addresses.
    pub fn has(&self, address: IpAddr) -> bool {
        self.addresses.iter().any(|own| own.addr() == address)
    }
}

impl Dns {
    /// Returns what a DHCPv4 lease says of name servers, `None` when that is nothing.
    pub fn v4(lease: &Lease) -> Option<Self> {
        let servers = lease.dns.iter().copied().map(IpAddr::V4).collect();
        let dns = Self { servers, domain: lease.domain.clone(), search: lease.search.clone() };
        Some(dns).filter(|dns| !dns.is_empty())
    }

    /// Returns whether there is nothing of all this.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl Route {
    pub(crate) fn new(destination: IpNet, via: Option<IpAddr>) -> Self {
        Self { destination, via, metric: None, mtu: None, advmss: None, table: None, scope: None, late: false }
    }

    /// Returns whether it is one of the main routing table.
    pub fn is_main(&self) -> bool {
        self.table.is_none_or(|table| table == MAIN_TABLE)
    }

    /// Returns what of it the kernel tells routes apart by.
    fn key(&self) -> (IpNet, u32, u32) {
        (self.destination.trunc(), self.metric.unwrap_or(0), self.table.unwrap_or(MAIN_TABLE))
    }

    /// Returns the number of its routing table, `None` for the main one.
    pub fn other_table(&self) -> Option<u32> {
        self.table.filter(|_| !self.is_main())
    }

    /// Returns whether the daemon puts it on, on an interface with this address.
    ///
    /// Main plugins that know of no `scope` give a route onto the link the global one, and the kernel takes no next hop
    /// behind such a route. Nor do they find it again at CHECK, where they look for the 0.0.0.0 that they were told. And a result
    /// below CNI 1.1.0 has nothing of a route but its destination and next hop. The link's own MTU need not be said.
    fn is_late(&self, address: Ipv4Net, lease: &Lease, policy: &Policy) -> bool {
        let is_v4 = matches!(self.destination, IpNet::V4(_)) && self.via.is_none_or(|via| via.is_ipv4());
        let is_beyond = || self.via.is_none_or(|via| !IpNet::from(address).contains(&via));
        let has_own_mtu = || self.mtu.is_some_and(|mtu| lease.mtu.map(u32::from) != Some(mtu));
        let says_more = || {
            let has_metric = self.metric.is_some_and(|metric| metric != 0);
            has_metric || !self.is_main() || has_own_mtu() || self.advmss.is_some() || self.scope.is_some()
        };
        is_v4 && (policy.late_routes && self.is_main() && is_beyond() || policy.plain_routes && says_more())
    }
}

/// Returns the routes of a lease's interface, each after those that its next hop needs.
///
/// The server's MTU (26) is the link's. It is said again for each route, for who reads results, but only where every link
/// can have it: a route's MTU beyond its link's would lose packets, and the link may have got less.
///
/// Each destination is there once for a metric and table, as the kernel has it (`EEXIST`): what the configuration says of it,
/// else what the server said first. The subnet's own is not among them: the kernel makes it with the address.
fn routes(lease: &Lease, policy: &Policy) -> Vec<Route> {
    let address = policy.address(lease.address);
    let mtu = lease.mtu.filter(|mtu| *mtu <= ETHERNET_MTU).map(u32::from);
    let given = lease.routes.iter().filter(|r| !policy.suppress_default_route || r.destination.prefix_len() > 0);
    let given = given.map(|r| Route { mtu, ..Route::new(r.destination.into(), r.via.map(IpAddr::V4)) });
    let extra = policy.routes.iter().map(|extra| resolve(extra, lease.gateway));
    let with_metric = |route: Route| Route { metric: route.metric.or(policy.metric), ..route };
    let mut taken = BTreeSet::from([Route::new(address.trunc().into(), None).key()]);
    let (extra, given) = (extra.map(with_metric), given.map(with_metric));
    let extra: Vec<_> = extra.filter(|route| taken.insert(route.key())).collect();
    let given: Vec<_> = given.filter(|route| taken.insert(route.key())).collect();
    let (mut routes, via): (Vec<_>, Vec<_>) = given.into_iter().chain(extra).partition(|route| route.via.is_none());
    // The kernel refuses a route whose next hop it cannot reach: a router outside the subnet wants its own on-link route.
    for hop in via.iter().filter(|route| route.is_main()).filter_map(|route| route.via) {
        let reachable = |r: &Route| r.is_main() && r.destination.contains(&hop);
        if let IpAddr::V4(v4) = hop
            && !address.contains(&v4)
            && !routes.iter().any(reachable)
        {
            routes.push(with_metric(Route { mtu, ..Route::new(Ipv4Net::from(v4).into(), None) }));
        }
    }
    routes.extend(via);
    let is_left_out = |route: &Route| {
        policy.left_out.contains(&(route.destination.trunc(), route.other_table().unwrap_or(MAIN_TABLE)))
    };
    let routes = routes.into_iter().filter(|route| !is_left_out(route));
    routes.map(|route| Route { late: route.is_late(address, lease, policy), ..route }).collect()
}

/// Returns a route of the configuration in a network with this gateway. Without a gateway it is on the link, as the
/// kernel has it.
fn resolve(extra: &ExtraRoute, gateway: Option<Ipv4Addr>) -> Route {
    let ExtraRoute { destination, gateway: own, metric, mtu, advmss, table, scope } = *extra;
    let gateway = gateway.map(IpAddr::V4).filter(|_| matches!(destination, IpNet::V4(_)));
    let via = own.or(gateway).filter(|via| !via.is_unspecified());
    Route { destination, via, metric, mtu, advmss, table, scope, late: false }
}

#[cfg(test)]
pub(crate) mod tests;
