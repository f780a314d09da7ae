//! How the network's configuration adjusts a grant: what is put on the interface, and what happens to it later.

use std::collections::BTreeSet;
use std::net::IpAddr;

use ipnet::{IpNet, Ipv4Net};
use serde::{Deserialize, Serialize};

use super::{Grant, MAIN_TABLE, Route};

/// The MTU that any Ethernet link carries.
const ETHERNET_MTU: u16 = 1500;

/// What is put on an interface besides its lease's values or instead of them, and what happens to it later.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Policy {
    /// The prefix length of the address on the interface, instead of the lease's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefix: Option<u8>,
    /// Whether to probe for other users of the address.
    #[serde(skip_serializing_if = "is_default")]
    pub detection: Detection,
    /// What happens to the interface when the lease brings something new.
    #[serde(skip_serializing_if = "is_default")]
    pub on_change: OnChange,
    /// What happens to the interface when the lease ends or is refused.
    #[serde(skip_serializing_if = "is_default")]
    pub on_expiry: OnExpiry,
    /// The metric of routes that have none of their own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metric: Option<u32>,
    /// Routes besides the server's. Without a next hop they go through the lease's gateway; an unspecified one is the link itself.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<Route>,
    /// Whether the server's default route and gateway are left out.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub suppress_default_route: bool,
    /// Whether a default route over the interface, which somebody else put there, is pointed at the server's router.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub follow_router: bool,
    /// The MTU of the interface in bytes, whatever the lease says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u16>,
    /// Whether the main plugin cannot add a route onto the link, or through a router outside the subnet. It does not get such
    /// routes: the daemon adds them once the address is there.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub late_routes: bool,
    /// Whether the main plugin gets only a route's destination and next hop: then the daemon adds routes that have more.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub plain_routes: bool,
    /// Routes that somebody else removed or replaced when the container was set up, by destination and table: they are not put back.
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
    /// While the lease is acquired, and for a while after: it costs no time.
    #[default]
    Optimistic,
    /// Before the lease is used: it costs seven seconds.
    Strict,
    /// Not at all.
    Off,
}

/// What happens to the interface when a lease brings something new.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnChange {
    /// It is changed too.
    #[default]
    Apply,
    /// It stays as it was. The change is recorded and reported.
    Keep,
}

/// What happens to the interface when there is no lease any more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnExpiry {
    /// Address and routes are taken off it (RFC 2131 §4.4.5).
    #[default]
    Remove,
    /// It stays as it was.
    Keep,
}

impl Policy {
    /// Returns a leased address as an interface has it.
    pub fn address(&self, leased: Ipv4Net) -> Ipv4Net {
        let own = self
            .prefix
            .and_then(|prefix| Ipv4Net::new(leased.addr(), prefix).ok());
        own.unwrap_or(leased)
    }

    /// Returns what an interface should carry of a source's grant, whose addresses are as the interface has them.
    pub fn shape(&self, given: Grant) -> Grant {
        Grant {
            gateway: given.gateway.filter(|_| !self.suppress_default_route),
            router: given.gateway.filter(|_| self.follow_router),
            routes: self.routes(&given),
            mtu: self.mtu.or(given.mtu),
            ..given
        }
    }

    /// Returns the routes of an interface, each after those that its next hop needs.
    ///
    /// The server's MTU (26) is the link's. It is repeated for each route, for readers of results, but only if every link can
    /// have it: packets are lost if a route's MTU exceeds its link's, and the link may have a smaller one.
    ///
    /// Each destination is there once for a metric and table, as the kernel has it (`EEXIST`): the configuration's, else the
    /// server's first. The subnet's own route is not among them: the kernel makes it with the address.
    fn routes(&self, given: &Grant) -> Vec<Route> {
        let mtu = given.mtu.filter(|mtu| *mtu <= ETHERNET_MTU).map(u32::from);
        let kept = given
            .routes
            .iter()
            .filter(|r| !self.suppress_default_route || r.destination.prefix_len() > 0);
        let kept = kept.map(|route| Route {
            mtu,
            ..route.clone()
        });
        let extra = self
            .routes
            .iter()
            .map(|extra| resolved(extra, given.gateway));
        let with_metric = |route: Route| Route {
            metric: route.metric.or(self.metric),
            ..route
        };
        let subnets = given
            .addresses
            .iter()
            .map(|address| Route::new(address.trunc(), None).key());
        let mut taken: BTreeSet<_> = subnets.collect();
        let extra = extra.map(with_metric);
        let kept = kept.map(with_metric);
        let extra: Vec<_> = extra.filter(|route| taken.insert(route.key())).collect();
        let kept: Vec<_> = kept.filter(|route| taken.insert(route.key())).collect();
        let (mut routes, via): (Vec<_>, Vec<_>) = kept
            .into_iter()
            .chain(extra)
            .partition(|route| route.via.is_none());
        // The kernel refuses a route whose next hop it cannot reach: a router outside the subnet wants its own on-link route.
        for hop in via
            .iter()
            .filter(|route| route.is_main())
            .filter_map(|route| route.via)
        {
            let reachable = |r: &Route| r.is_main() && r.destination.contains(&hop);
            if hop.is_ipv4()
                && !routes.iter().any(reachable)
                && let Some(route) = given.route_to(hop)
            {
                routes.push(with_metric(Route { mtu, ..route }));
            }
        }
        routes.extend(via);
        let is_left_out = |route: &Route| {
            self.left_out.contains(&(
                route.destination.trunc(),
                route.other_table().unwrap_or(MAIN_TABLE),
            ))
        };
        let routes = routes.into_iter().filter(|route| !is_left_out(route));
        routes
            .map(|route| Route {
                late: self.is_late(&route, given),
                ..route
            })
            .collect()
    }

    /// Returns whether the daemon puts a route on itself.
    ///
    /// Main plugins without `scope` give a route onto the link the global scope, and the kernel accepts no next hop behind such a
    /// route. Nor do they find it again at CHECK, where they look for the next hop 0.0.0.0 that they were given. A result below CNI
    /// 1.1.0 has only a route's destination and next hop. The link's own MTU need not be repeated.
    fn is_late(&self, route: &Route, given: &Grant) -> bool {
        let is_v4 =
            matches!(route.destination, IpNet::V4(_)) && route.via.is_none_or(|via| via.is_ipv4());
        let is_beyond = || route.via.is_none_or(|via| given.route_to(via).is_some());
        let has_own_mtu = || {
            route
                .mtu
                .is_some_and(|mtu| given.mtu.map(u32::from) != Some(mtu))
        };
        let says_more = || {
            let has_metric = route.metric.is_some_and(|metric| metric != 0);
            has_metric
                || !route.is_main()
                || has_own_mtu()
                || route.advmss.is_some()
                || route.scope.is_some()
        };
        is_v4
            && (self.late_routes && route.is_main() && is_beyond()
                || self.plain_routes && says_more())
    }
}

/// Returns a configuration's route in a network with this gateway. Without a gateway it is on the link, as in the kernel.
fn resolved(extra: &Route, gateway: Option<IpAddr>) -> Route {
    let is_v4 = extra.destination.addr().is_ipv4();
    let gateway = gateway.filter(|gateway| gateway.is_ipv4() == is_v4);
    let via = extra.via.or(gateway);
    Route {
        via: via.filter(|via| !via.is_unspecified()),
        ..extra.clone()
    }
}
