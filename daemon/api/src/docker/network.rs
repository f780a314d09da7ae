//! What dockerd and a network driver exchange (libnetwork's `drivers/remote/api`).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::or_empty;

/// The beginning of the URLs of all calls to a network driver.
pub const PREFIX: &str = "/NetworkDriver.";

/// The key of [`CreateNetwork::options`] that holds the options given with `-o`.
pub const GENERIC: &str = "com.docker.network.generic";
/// The key of [`CreateNetwork::options`] that says whether the network has IPv6 addresses.
pub const ENABLE_IPV6: &str = "com.docker.network.enable_ipv6";
/// The key of [`CreateNetwork::options`] that says whether the network is cut off from all others.
pub const INTERNAL: &str = "com.docker.network.internal";
/// The key of [`Join::options`] for the interface's name in the container.
pub const IFNAME: &str = "com.docker.network.endpoint.ifname";

/// Options by name, of any kind.
pub type AnyOptions = BTreeMap<String, Value>;

/// The body of `CreateNetwork`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub struct CreateNetwork {
    /// The network's name from here on.
    #[serde(rename = "NetworkID", deserialize_with = "or_empty")]
    pub network_id: String,
    /// What the user and dockerd say about it.
    #[serde(deserialize_with = "or_empty")]
    pub options: AnyOptions,
    /// Its pools of IPv4.
    #[serde(rename = "IPv4Data", deserialize_with = "or_empty")]
    pub ipv4_data: Vec<IpamData>,
    /// Its pools of IPv6.
    #[serde(rename = "IPv6Data", deserialize_with = "or_empty")]
    pub ipv6_data: Vec<IpamData>,
}

/// A pool that a network has, from any IPAM driver.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub struct IpamData {
    /// The address space, which each IPAM driver names as it likes.
    #[serde(deserialize_with = "or_empty")]
    pub address_space: String,
    /// The subnet, or empty.
    #[serde(deserialize_with = "or_empty")]
    pub pool: String,
    /// The router, with the prefix of the subnet, or empty.
    #[serde(deserialize_with = "or_empty")]
    pub gateway: String,
}

/// The body of every call that names a network and perhaps an endpoint: `DeleteNetwork`, `DeleteEndpoint`, `Leave`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub struct Named {
    /// The network.
    #[serde(rename = "NetworkID", deserialize_with = "or_empty")]
    pub network_id: String,
    /// The endpoint, or empty.
    #[serde(rename = "EndpointID", deserialize_with = "or_empty")]
    pub endpoint_id: String,
}

/// The body of `CreateEndpoint`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub struct CreateEndpoint {
    /// The network.
    #[serde(rename = "NetworkID", deserialize_with = "or_empty")]
    pub network_id: String,
    /// The endpoint's name from here on.
    #[serde(rename = "EndpointID", deserialize_with = "or_empty")]
    pub endpoint_id: String,
    /// What is known about its interface.
    #[serde(deserialize_with = "or_empty")]
    pub interface: Interface,
    /// What the user says about it.
    #[serde(deserialize_with = "or_empty")]
    pub options: AnyOptions,
}

/// An endpoint's interface, as far as it is known; the rest is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub struct Interface {
    /// Its IPv4 address, with a prefix.
    #[serde(
        deserialize_with = "or_empty",
        skip_serializing_if = "String::is_empty"
    )]
    pub address: String,
    /// Its IPv6 address, with a prefix.
    #[serde(
        rename = "AddressIPv6",
        deserialize_with = "or_empty",
        skip_serializing_if = "String::is_empty"
    )]
    pub address_ipv6: String,
    /// Its Ethernet address.
    #[serde(
        deserialize_with = "or_empty",
        skip_serializing_if = "String::is_empty"
    )]
    pub mac_address: String,
}

/// The answer to `CreateEndpoint`: what dockerd does not yet know about the interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Created {
    /// The part of the interface that dockerd does not yet know.
    pub interface: Interface,
}

/// The body of `Join`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub struct Join {
    /// The network.
    #[serde(rename = "NetworkID", deserialize_with = "or_empty")]
    pub network_id: String,
    /// The endpoint.
    #[serde(rename = "EndpointID", deserialize_with = "or_empty")]
    pub endpoint_id: String,
    /// The container's namespace.
    #[serde(deserialize_with = "or_empty")]
    pub sandbox_key: String,
    /// What dockerd says about it.
    #[serde(deserialize_with = "or_empty")]
    pub options: AnyOptions,
}

/// The answer to `Join`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Joined {
    /// The interface that dockerd should move.
    pub interface_name: InterfaceName,
    /// The default router, or empty.
    pub gateway: String,
    /// How to reach the router, if not through the subnet.
    pub static_routes: Vec<StaticRoute>,
    /// Whether dockerd should leave the container without a default route if this network has no router.
    pub disable_gateway_service: bool,
}

/// The names of an interface, before and after the move.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct InterfaceName {
    /// Its name in the host's namespace.
    pub src_name: String,
    /// The beginning of its name in the container.
    pub dst_prefix: String,
    /// Its name in the container, or empty: Docker chooses.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub dst_name: String,
}

/// A route onto the link itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct StaticRoute {
    /// The destination, with a prefix.
    pub destination: String,
    /// [`StaticRoute::ON_LINK`].
    pub route_type: u8,
}

impl StaticRoute {
    /// The type of a route onto the link itself.
    pub const ON_LINK: u8 = 1;
}

/// The answer to `GetCapabilities` of a network driver.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct NetworkCapabilities {
    /// Which hosts a network belongs to: `local`, one.
    pub scope: String,
    /// Which hosts a network connects, as dockerd sees it.
    pub connectivity_scope: String,
    /// Whether dockerd should call `GwAllocCheck`.
    pub gw_alloc_checker: bool,
}

/// The answer to `GwAllocCheck`: whether dockerd should ask no IPAM driver for a gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct GwAlloc {
    /// No IPv4 gateway.
    #[serde(rename = "SkipIPv4")]
    pub skip_ipv4: bool,
    /// No IPv6 gateway.
    #[serde(rename = "SkipIPv6")]
    pub skip_ipv6: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::to_json;

    #[test]
    fn what_is_null_or_left_out_is_empty() {
        for body in [
            "{}",
            r#"{"NetworkID":null,"Options":null,"IPv4Data":null,"IPv6Data":null}"#,
        ] {
            assert_eq!(
                serde_json::from_str::<CreateNetwork>(body).ok(),
                Some(CreateNetwork::default()),
                "{body}"
            );
        }
        for body in [
            "{}",
            r#"{"Interface":null,"Options":null}"#,
            r#"{"Interface":{},"Options":{}}"#,
        ] {
            assert_eq!(
                serde_json::from_str::<CreateEndpoint>(body).ok(),
                Some(CreateEndpoint::default()),
                "{body}"
            );
        }
        for body in ["", "null", r#"{"Options":[]}"#, r#"{"Interface":7}"#] {
            assert!(
                serde_json::from_str::<CreateEndpoint>(body).is_err(),
                "{body}"
            );
        }
    }

    #[test]
    fn names_are_spelled_as_libnetwork_spells_them() {
        let name = InterfaceName {
            src_name: "lh1".into(),
            dst_prefix: "eth".into(),
            dst_name: String::new(),
        };
        let joined = Joined {
            interface_name: name,
            gateway: "10.7.0.1".into(),
            static_routes: vec![StaticRoute {
                destination: "10.7.0.1/32".into(),
                route_type: StaticRoute::ON_LINK,
            }],
            disable_gateway_service: false,
        };
        assert_eq!(
            to_json(&joined),
            concat!(
                r#"{"InterfaceName":{"SrcName":"lh1","DstPrefix":"eth"},"Gateway":"10.7.0.1","StaticRoutes":["#,
                r#"{"Destination":"10.7.0.1/32","RouteType":1}],"DisableGatewayService":false}"#
            )
        );
        assert_eq!(
            to_json(&GwAlloc {
                skip_ipv4: true,
                skip_ipv6: true
            }),
            r#"{"SkipIPv4":true,"SkipIPv6":true}"#
        );
        assert_eq!(
            to_json(&Created {
                interface: Interface::default()
            }),
            r#"{"Interface":{}}"#
        );
        let capabilities = NetworkCapabilities {
            scope: "local".into(),
            connectivity_scope: "local".into(),
            gw_alloc_checker: true,
        };
        assert_eq!(
            to_json(&capabilities),
            r#"{"Scope":"local","ConnectivityScope":"local","GwAllocChecker":true}"#
        );
    }
}
