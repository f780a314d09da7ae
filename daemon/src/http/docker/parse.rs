//! Addresses as dockerd spells them.

use std::net::Ipv4Addr;

use leasehold_core::wire::Mac;

use super::super::refusal::quoted;
use super::{Refused, refused};

/// Reads an address that dockerd sends, which has no prefix.
pub(super) fn address(text: &str) -> Result<Ipv4Addr, Refused> {
    let fault = || refused(format!("{} is not an IPv4 address of a host", quoted(text)));
    let address: Ipv4Addr = text.parse().map_err(|_| fault())?;
    let is_hosts = !(address.is_unspecified()
        || address.is_broadcast()
        || address.is_multicast()
        || address.is_loopback());
    if is_hosts { Ok(address) } else { Err(fault()) }
}

/// Reads the Ethernet address of an interface.
pub(super) fn ethernet(text: &str) -> Result<Mac, Refused> {
    let mac = text.parse().ok().filter(is_interfaces);
    mac.ok_or_else(|| {
        refused(format!(
            "{} is not the Ethernet address of an interface",
            quoted(text)
        ))
    })
}

/// Returns whether an interface can have this Ethernet address.
pub(super) fn is_interfaces(mac: &Mac) -> bool {
    mac.0[0] & 1 == 0 && *mac != Mac::default()
}
