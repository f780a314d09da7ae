//! What dockerd is told of an endpoint: what it does not know yet, and what it is to do with the link.

use std::net::{IpAddr, Ipv4Addr};

use ipnet::IpNet;
use leasehold_api::docker::network::{Created, Interface, InterfaceName, Joined, StaticRoute};
use leasehold_core::grant::{Grant, Route};
use leasehold_core::network::{EndpointRecord, Source};

/// Returns what dockerd does not know of an endpoint.
pub(super) fn created(record: &EndpointRecord, tells_mac: bool) -> Created {
    let address = match record.source {
        Source::Leased(_) => record.address.to_string(),
        Source::Told => String::new(),
    };
    let mac_address = if tells_mac { record.mac.to_string() } else { String::new() };
    Created { interface: Interface { address, address_ipv6: String::new(), mac_address } }
}

/// Returns what dockerd is to do with an endpoint's link.
pub(super) fn joined(ifname: &str, inside: &str, grant: Option<&Grant>, gateway: Option<Ipv4Addr>) -> Joined {
    let leased = grant.and_then(|grant| grant.gateway);
    let gateway = gateway.map(IpAddr::V4).or(leased).map(|gateway| gateway.to_string());
    let routes = grant.map(|grant| grant.routes.as_slice()).unwrap_or_default().iter();
    Joined {
        interface_name: InterfaceName {
            src_name: ifname.to_owned(),
            dst_prefix: "eth".to_owned(),
            dst_name: inside.to_owned(),
        },
        // Without a router here, Docker would give the container one of its own.
        disable_gateway_service: gateway.is_none(),
        gateway: gateway.unwrap_or_default(),
        static_routes: routes.filter(|route| is_told(route)).map(route).collect(),
    }
}

/// Returns whether dockerd is told of a route: of one that it can spell, and not of the default route.
fn is_told(route: &Route) -> bool {
    matches!(route.destination, IpNet::V4(to) if to.prefix_len() > 0) && route.is_main()
}

fn route(route: &Route) -> StaticRoute {
    let destination = route.destination.trunc().to_string();
    match route.via {
        Some(via) => StaticRoute { destination, route_type: StaticRoute::BY_ROUTER, next_hop: via.to_string() },
        None => StaticRoute { destination, route_type: StaticRoute::ON_LINK, next_hop: String::new() },
    }
}
