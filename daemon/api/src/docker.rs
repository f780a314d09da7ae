//! What dockerd and its IPAM driver exchange (libnetwork's `ipams/remote/api`): JSON over HTTP, by `POST`. [`network`] has what
//! dockerd and a network driver exchange.
//!
//! Whatever dockerd leaves out, or sends as `null`, is empty here. Fields of later versions are ignored.

pub mod network;

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use ipnet::Ipv4Net;
use serde::{Deserialize, Deserializer, Serialize};

/// Asks what the plugin is, at its first use.
pub const ACTIVATE: &str = "/Plugin.Activate";
/// Asks what the driver wants to receive.
pub const CAPABILITIES: &str = "/IpamDriver.GetCapabilities";
/// Asks for the names of the default address spaces.
pub const ADDRESS_SPACES: &str = "/IpamDriver.GetDefaultAddressSpaces";
/// Asks for a pool, for a network.
pub const REQUEST_POOL: &str = "/IpamDriver.RequestPool";
/// Gives a pool back.
pub const RELEASE_POOL: &str = "/IpamDriver.ReleasePool";
/// Asks for an address of a pool.
pub const REQUEST_ADDRESS: &str = "/IpamDriver.RequestAddress";
/// Gives an address back.
pub const RELEASE_ADDRESS: &str = "/IpamDriver.ReleaseAddress";

/// The key of [`RequestAddress::options`] that says what the address is for, if it is not for an endpoint.
pub const ADDRESS_TYPE: &str = "RequestAddressType";
/// The value of [`ADDRESS_TYPE`] for a network's gateway, and the key of [`Pool::data`] that names it, with its prefix.
pub const GATEWAY: &str = "com.docker.network.gateway";
/// The key of [`RequestAddress::options`] for the endpoint's Ethernet address, if the driver requires it.
pub const MAC_ADDRESS: &str = "com.docker.network.endpoint.macaddress";
/// The key of [`RequestAddress::options`] for the container's name, from Docker 29 on.
pub const ENDPOINT_NAME: &str = "com.docker.network.endpoint.name";

/// Options by name.
pub type Options = BTreeMap<String, String>;

/// The body of [`REQUEST_POOL`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub struct RequestPool {
    /// The address space.
    #[serde(deserialize_with = "or_empty")]
    pub address_space: String,
    /// The subnet (`--subnet`), or empty: any.
    #[serde(deserialize_with = "or_empty")]
    pub pool: String,
    /// The part of the subnet from which endpoints get addresses (`--ip-range`), or empty: all of it.
    #[serde(deserialize_with = "or_empty")]
    pub sub_pool: String,
    /// The options given with `--ipam-opt`.
    #[serde(deserialize_with = "or_empty")]
    pub options: Options,
    /// Whether an IPv6 pool is wanted.
    pub v6: bool,
}

/// The body of [`RELEASE_POOL`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub struct ReleasePool {
    /// The pool.
    #[serde(rename = "PoolID", deserialize_with = "or_empty")]
    pub pool_id: String,
}

/// The body of [`REQUEST_ADDRESS`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub struct RequestAddress {
    /// The pool.
    #[serde(rename = "PoolID", deserialize_with = "or_empty")]
    pub pool_id: String,
    /// The address wanted (`--ip`, `--gateway`, `--aux-address`), or empty: any.
    #[serde(deserialize_with = "or_empty")]
    pub address: String,
    /// What the address is for.
    #[serde(deserialize_with = "or_empty")]
    pub options: Options,
}

/// The body of [`RELEASE_ADDRESS`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub struct ReleaseAddress {
    /// The pool.
    #[serde(rename = "PoolID", deserialize_with = "or_empty")]
    pub pool_id: String,
    /// The address, without a prefix.
    #[serde(deserialize_with = "or_empty")]
    pub address: String,
}

/// The answer to [`ACTIVATE`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Activated {
    /// The kinds of driver that the plugin is.
    pub implements: Vec<String>,
}

/// The answer to [`CAPABILITIES`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Capabilities {
    /// Whether each endpoint must have an Ethernet address before its address is requested.
    #[serde(rename = "RequiresMACAddress")]
    pub requires_mac_address: bool,
    /// Whether dockerd must request everything again when it starts.
    pub requires_request_replay: bool,
}

/// The answer to [`ADDRESS_SPACES`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct AddressSpaces {
    /// The address space of networks of one host.
    pub local_default_address_space: String,
    /// The address space of networks of a swarm.
    pub global_default_address_space: String,
}

/// The answer to [`REQUEST_POOL`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Pool {
    /// The pool's name from here on.
    #[serde(rename = "PoolID")]
    pub pool_id: String,
    /// Its subnet.
    pub pool: Ipv4Net,
    /// Whatever else there is to say about it.
    pub data: Options,
}

/// The answer to [`REQUEST_ADDRESS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Address {
    /// The address, with the prefix of its pool.
    pub address: Ipv4Net,
}

/// The answer to a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Released {}

/// The answer to a failed call, under both names that dockerd reads: one in an IPAM driver's answer, the other in a network
/// driver's, and whenever the status is not 200.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Failed {
    /// Why.
    pub error: String,
    /// The same.
    pub err: String,
}

impl Failed {
    /// Returns the answer that gives the reason.
    pub fn new(why: impl Into<String>) -> Self {
        let why = why.into();
        Self {
            error: why.clone(),
            err: why,
        }
    }
}

impl Pool {
    /// Returns the answer that names a pool and, if it has one, its gateway.
    pub fn new(pool_id: String, pool: Ipv4Net, gateway: Option<Ipv4Addr>) -> Self {
        let named = |gateway| {
            (
                GATEWAY.to_owned(),
                format!("{gateway}/{}", pool.prefix_len()),
            )
        };
        Self {
            pool_id,
            pool,
            data: gateway.map(named).into_iter().collect(),
        }
    }
}

/// Reads a value that may be `null`.
fn or_empty<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(
    from: D,
) -> Result<T, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::to_json;

    #[test]
    fn what_is_null_or_left_out_is_empty() {
        for body in [
            "{}",
            r#"{"Options":null}"#,
            r#"{"PoolID":null,"Address":null,"Options":{}}"#,
        ] {
            assert_eq!(
                serde_json::from_str::<RequestAddress>(body).ok(),
                Some(RequestAddress::default()),
                "{body}"
            );
        }
        for body in [
            "{}",
            r#"{"Pool":null,"SubPool":null,"Options":null,"AddressSpace":null,"V6":false}"#,
        ] {
            assert_eq!(
                serde_json::from_str::<RequestPool>(body).ok(),
                Some(RequestPool::default()),
                "{body}"
            );
        }
        for body in [
            "",
            "null",
            r#"{"Options":[]}"#,
            r#"{"Options":{"a":1}}"#,
            r#"{"Address":7}"#,
        ] {
            assert!(
                serde_json::from_str::<RequestAddress>(body).is_err(),
                "{body}"
            );
        }
    }

    #[test]
    fn names_are_spelled_as_libnetwork_spells_them() {
        let pool = Pool::new(
            "x".into(),
            "192.168.1.0/24".parse().unwrap(),
            Some(Ipv4Addr::new(192, 168, 1, 1)),
        );
        assert_eq!(
            to_json(&pool),
            r#"{"PoolID":"x","Pool":"192.168.1.0/24","Data":{"com.docker.network.gateway":"192.168.1.1/24"}}"#
        );
        assert_eq!(
            to_json(&Capabilities {
                requires_mac_address: true,
                requires_request_replay: false
            }),
            r#"{"RequiresMACAddress":true,"RequiresRequestReplay":false}"#
        );
        assert_eq!(to_json(&Failed::new("no")), r#"{"Error":"no","Err":"no"}"#);
        assert_eq!(to_json(&Released {}), "{}");
    }
}
