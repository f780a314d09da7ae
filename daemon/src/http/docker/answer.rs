//! What dockerd hears about an endpoint: what it does not know yet, and what it should do with the link.

use std::net::{IpAddr, Ipv4Addr};

use leasehold_api::docker::network::{Created, Interface, InterfaceName, Joined, StaticRoute};
use leasehold_core::grant::{Grant, Route};
use leasehold_core::network::{AddressSource, EndpointRecord};

/// Returns what dockerd does not yet know about an endpoint.
pub(super) fn created(record: &EndpointRecord, tells_mac: bool) -> Created {
    let address = match record.source {
        AddressSource::Leased(_) => record.address.to_string(),
        AddressSource::Ipam => String::new(),
    };
    let mac_address = if tells_mac {
        record.mac.to_string()
    } else {
        String::new()
    };
    Created {
        interface: Interface {
            address,
            address_ipv6: String::new(),
            mac_address,
        },
    }
}

/// Returns what dockerd should do with an endpoint's link.
pub(super) fn joined(
    ifname: &str,
    inside: &str,
    grant: Option<&Grant>,
    gateway: Option<Ipv4Addr>,
) -> Joined {
    let leased = grant.and_then(|grant| grant.gateway);
    let gateway = gateway
        .map(IpAddr::V4)
        .or(leased)
        .map(|gateway| gateway.to_string());
    let routes = grant
        .map(|grant| grant.routes.as_slice())
        .unwrap_or_default()
        .iter();
    Joined {
        interface_name: InterfaceName {
            src_name: ifname.to_owned(),
            dst_prefix: "eth".to_owned(),
            dst_name: inside.to_owned(),
        },
        // Without a router here, Docker would give the container one of Docker's own.
        disable_gateway_service: gateway.is_none(),
        gateway: gateway.unwrap_or_default(),
        static_routes: routes.map(route).collect(),
    }
}

fn route(route: &Route) -> StaticRoute {
    StaticRoute {
        destination: route.destination.to_string(),
        route_type: StaticRoute::ON_LINK,
    }
}
