//! Which addresses of its LAN a client may have: a front door may allow fewer than the LAN's servers give.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use ipnet::Ipv4Net;

/// The addresses that a client may have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The subnet.
    pub subnet: Ipv4Net,
    /// The part of it, if not all of it.
    pub range: Option<Ipv4Net>,
    /// The reserved addresses.
    pub reserved: BTreeSet<Ipv4Addr>,
}

impl Limits {
    /// Returns why a client may not have this address, if it may not.
    pub fn refuse(&self, address: Ipv4Addr) -> Option<Unfit> {
        let beyond = self.range.filter(|range| !range.contains(&address));
        match () {
            () if !self.subnet.contains(&address) => Some(Unfit::Subnet(self.subnet)),
            () if self.reserved.contains(&address) => Some(Unfit::Reserved),
            () => beyond.map(Unfit::Range),
        }
    }
}

/// Why a client may not have an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    /// It is outside the subnet.
    #[error("outside the network's subnet {0}")]
    Subnet(Ipv4Net),
    /// It is outside the range.
    #[error("outside the network's --ip-range {0}")]
    Range(Ipv4Net),
    /// It is reserved, as the gateway or an aux address.
    #[error("reserved in this network, as its gateway or an --aux-address")]
    Reserved,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn net(text: &str) -> Ipv4Net {
        text.parse().unwrap()
    }

    #[test]
    fn a_client_may_have_what_is_inside_and_free() {
        let reserved = BTreeSet::from([Ipv4Addr::new(10, 0, 0, 200)]);
        let mut limits = Limits {
            subnet: net("10.0.0.0/24"),
            range: Some(net("10.0.0.128/25")),
            reserved,
        };
        let refused =
            |limits: &Limits, last: u32| limits.refuse(Ipv4Addr::from_bits(0x0a00_0000 + last));
        let [subnet, range] = [
            Unfit::Subnet(limits.subnet),
            Unfit::Range(net("10.0.0.128/25")),
        ];
        let table = [
            (127, Some(range)),
            (128, None),
            (200, Some(Unfit::Reserved)),
            (255, None),
            (256, Some(subnet)),
        ];
        for (last, why) in table {
            assert_eq!(refused(&limits, last), why, "{last}");
        }
        limits.range = None;
        assert_eq!(refused(&limits, 1), None);
    }
}
