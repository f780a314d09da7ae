//! What dockerd asks a network driver (libnetwork's `drivers/remote/api`).

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

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
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub struct CreateNetwork {
    /// The network's name from here on.
    #[serde(rename = "NetworkID")]
    pub network_id: String,
    /// What the user and dockerd say about it.
    pub options: AnyOptions,
    /// Its pools of IPv4.
    #[serde(rename = "IPv4Data")]
    pub ipv4_data: Vec<IpamData>,
    /// Its pools of IPv6.
    #[serde(rename = "IPv6Data")]
    pub ipv6_data: Vec<IpamData>,
}

/// A pool that a network has, from any IPAM driver.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub struct IpamData {
    /// The address space, which each IPAM driver names as it likes.
    pub address_space: String,
    /// The subnet, or empty.
    pub pool: String,
    /// The router, with the prefix of the subnet, or empty.
    pub gateway: String,
}

/// The body of every call that names a network and perhaps an endpoint: `DeleteNetwork`, `DeleteEndpoint`, `Leave`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub struct Named {
    /// The network.
    #[serde(rename = "NetworkID")]
    pub network_id: String,
    /// The endpoint, or empty.
    #[serde(rename = "EndpointID")]
    pub endpoint_id: String,
}

/// The body of `CreateEndpoint`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub struct CreateEndpoint {
    /// The network.
    #[serde(rename = "NetworkID")]
    pub network_id: String,
    /// The endpoint's name from here on.
    #[serde(rename = "EndpointID")]
    pub endpoint_id: String,
    /// What is known about its interface.
    pub interface: Interface,
    /// What the user says about it.
    pub options: AnyOptions,
}

/// An endpoint's interface, as far as it is known; the rest is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub struct Interface {
    /// Its IPv4 address, with a prefix.
    pub address: String,
    /// Its IPv6 address, with a prefix.
    #[serde(rename = "AddressIPv6")]
    pub address_ipv6: String,
    /// Its Ethernet address.
    pub mac_address: String,
}

/// The body of `Join`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub struct Join {
    /// The network.
    #[serde(rename = "NetworkID")]
    pub network_id: String,
    /// The endpoint.
    #[serde(rename = "EndpointID")]
    pub endpoint_id: String,
    /// The container's namespace.
    pub sandbox_key: String,
    /// What dockerd says about it.
    pub options: AnyOptions,
}

#[cfg(test)]
mod tests {
    use super::super::read;
    use super::*;

    #[test]
    fn what_is_null_or_left_out_is_empty() {
        for body in [
            "{}",
            r#"{"NetworkID":null,"Options":null,"IPv4Data":null,"IPv6Data":null}"#,
        ] {
            assert_eq!(
                read::<CreateNetwork>(body.as_bytes()).ok(),
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
                read::<CreateEndpoint>(body.as_bytes()).ok(),
                Some(CreateEndpoint::default()),
                "{body}"
            );
        }
        for body in ["", "null", r#"{"Options":[]}"#, r#"{"Interface":7}"#] {
            assert!(read::<CreateEndpoint>(body.as_bytes()).is_err(), "{body}");
        }
    }
}
