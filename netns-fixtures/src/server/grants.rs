//! What a server gives out, whatever its program.

use std::net::Ipv4Addr;
use std::ops::RangeInclusive;
use std::time::Duration;

use ipnet::Ipv4Net;

use super::POOL;
use crate::lan::Lan;
use crate::link::Mac;

/// What a server gives out.
#[derive(Clone, Debug)]
pub struct Grants {
    /// The addresses.
    pub pool: RangeInclusive<Ipv4Addr>,
    /// The lease time.
    pub lease_time: Duration,
    /// T1 and T2, if the server should send them.
    pub timers: Option<(Duration, Duration)>,
    /// The router (3).
    pub router: Ipv4Addr,
    /// Resolvers (6).
    pub dns: Vec<Ipv4Addr>,
    /// The domain (15).
    pub domain: Option<String>,
    /// The MTU (26).
    pub mtu: Option<u16>,
    /// Classless routes (121), each with its next hop.
    pub routes: Vec<(Ipv4Net, Ipv4Addr)>,
    /// Addresses that ISC dhcpd keeps, each for one Ethernet address (`fixed-address`).
    pub fixed: Vec<(Mac, Ipv4Addr)>,
}

impl Default for Grants {
    fn default() -> Self {
        Self {
            pool: POOL,
            lease_time: Duration::from_secs(3600),
            timers: None,
            router: Lan::SERVER,
            dns: Vec::new(),
            domain: None,
            mtu: None,
            routes: Vec::new(),
            fixed: Vec::new(),
        }
    }
}

impl Grants {
    /// Leases of so many seconds.
    pub fn lasting(seconds: u64) -> Self {
        let lease_time = Duration::from_secs(seconds);
        Self {
            lease_time,
            ..Self::default()
        }
    }

    /// With T1 and T2 after so many seconds.
    pub fn renewed(self, t1: u64, t2: u64) -> Self {
        let timers = Some((Duration::from_secs(t1), Duration::from_secs(t2)));
        Self { timers, ..self }
    }

    /// Returns the value of option 121 for the routes (RFC 3442), empty without routes.
    pub(super) fn classless_routes(&self) -> Vec<u8> {
        let route = |(to, via): &(Ipv4Net, Ipv4Addr)| {
            let significant = usize::from(to.prefix_len().div_ceil(8));
            [
                &[to.prefix_len()],
                &to.network().octets()[..significant],
                &via.octets(),
            ]
            .concat()
        };
        self.routes.iter().flat_map(route).collect()
    }

    /// Returns the resolvers as text.
    pub(super) fn dns_text(&self, separator: &str) -> String {
        self.dns
            .iter()
            .map(Ipv4Addr::to_string)
            .collect::<Vec<_>>()
            .join(separator)
    }
}
