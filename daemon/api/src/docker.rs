//! What dockerd asks its IPAM driver (libnetwork's `ipams/remote/api`): JSON over HTTP, by `POST`. [`network`] has what dockerd asks
//! a network driver.
//!
//! Whatever dockerd leaves out, or sends as `null`, is empty here. Fields of later versions are ignored.

pub mod network;

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

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
/// The value of [`ADDRESS_TYPE`] for a network's gateway, and the key of a pool's data that names it, with its prefix.
pub const GATEWAY: &str = "com.docker.network.gateway";
/// The key of [`RequestAddress::options`] for the endpoint's Ethernet address, if the driver requires it.
pub const MAC_ADDRESS: &str = "com.docker.network.endpoint.macaddress";
/// The key of [`RequestAddress::options`] for the container's name, from Docker 29 on.
pub const ENDPOINT_NAME: &str = "com.docker.network.endpoint.name";

/// Options by name.
pub type Options = BTreeMap<String, String>;

/// The body of [`REQUEST_POOL`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub struct RequestPool {
    /// The subnet (`--subnet`), or empty: any.
    pub pool: String,
    /// The part of the subnet from which endpoints get addresses (`--ip-range`), or empty: all of it.
    pub sub_pool: String,
    /// The options given with `--ipam-opt`.
    pub options: Options,
    /// Whether an IPv6 pool is wanted.
    pub v6: bool,
}

/// The body of [`RELEASE_POOL`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub struct ReleasePool {
    /// The pool.
    #[serde(rename = "PoolID")]
    pub pool_id: String,
}

/// The body of [`REQUEST_ADDRESS`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub struct RequestAddress {
    /// The pool.
    #[serde(rename = "PoolID")]
    pub pool_id: String,
    /// The address wanted (`--ip`, `--gateway`, `--aux-address`), or empty: any.
    pub address: String,
    /// What the address is for.
    pub options: Options,
}

/// The body of [`RELEASE_ADDRESS`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub struct ReleaseAddress {
    /// The pool.
    #[serde(rename = "PoolID")]
    pub pool_id: String,
    /// The address, without a prefix.
    pub address: String,
}

/// Reads the body of a call.
///
/// # Errors
/// It is not JSON, or not this body.
pub fn read<T: DeserializeOwned>(body: &[u8]) -> serde_json::Result<T> {
    let mut body = serde_json::from_slice(body)?;
    leave_nulls_out(&mut body);
    T::deserialize(body)
}

fn leave_nulls_out(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, value| !value.is_null());
            fields.values_mut().for_each(leave_nulls_out);
        }
        Value::Array(list) => list.iter_mut().for_each(leave_nulls_out),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_null_or_left_out_is_empty() {
        for body in [
            "{}",
            r#"{"Options":null}"#,
            r#"{"PoolID":null,"Address":null,"Options":{}}"#,
        ] {
            assert_eq!(
                read::<RequestAddress>(body.as_bytes()).ok(),
                Some(RequestAddress::default()),
                "{body}"
            );
        }
        for body in [
            "{}",
            r#"{"Pool":null,"SubPool":null,"Options":null,"V6":false}"#,
        ] {
            assert_eq!(
                read::<RequestPool>(body.as_bytes()).ok(),
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
            assert!(read::<RequestAddress>(body.as_bytes()).is_err(), "{body}");
        }
    }
}
