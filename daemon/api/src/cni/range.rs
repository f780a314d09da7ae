//! Ranges of addresses as a network's configuration gives them: what is left out is not completed here.

use std::net::IpAddr;

use ipnet::IpNet;
use leasehold_range::RangeConfig;
use serde_json::Value;

use super::object::{BadKey, Fault, Object, ip, text};

/// Reads a range as it is given, with any host bits in its subnet.
pub(super) fn range(entry: Object<'_>) -> Result<RangeConfig, BadKey> {
    let address = |key| Ok(entry.read(key, address)?.flatten());
    Ok(RangeConfig {
        subnet: entry.require("subnet", subnet)?,
        start: address("rangeStart")?,
        end: address("rangeEnd")?,
        gateway: address("gateway")?,
    })
}

/// Reads a subnet, with any host bits. To Go, an IPv4 subnet in IPv6 form is neither.
pub(super) fn subnet(value: &Value) -> Result<IpNet, Fault> {
    let text = text(value)?;
    let subnet = text
        .parse()
        .ok()
        .filter(|subnet: &IpNet| subnet.addr().to_canonical() == subnet.addr());
    subnet.ok_or_else(|| Fault::value(text, "a subnet, such as 10.0.0.0/8"))
}

/// Reads an address. The empty string means none, and an IPv4 address in IPv6 form counts as IPv4, as in Go.
pub(super) fn address(value: &Value) -> Result<Option<IpAddr>, Fault> {
    if value.as_str() == Some("") {
        return Ok(None);
    }
    ip(value).map(|address| Some(address.to_canonical()))
}
