//! What a source has granted, in terms that no source owns: what callers, operators and interfaces learn about a lease.

use std::net::{IpAddr, Ipv4Addr};

use ipnet::{IpNet, Ipv4Net};

use crate::grant::Grant;
use crate::time::Instant;

/// What was granted, and for how long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tenure {
    /// The addresses, one at least.
    pub addresses: Vec<Address>,
    /// Who granted it.
    pub by: Grantor,
    /// When it began.
    pub start: Instant,
    /// Its times; `None`: it never ends.
    pub times: Option<Times>,
    /// What of it an interface gets.
    pub grant: Grant,
}

/// One address of a tenure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    /// The address, with the prefix of its subnet.
    pub net: IpNet,
    /// The router of that subnet.
    pub gateway: Option<IpAddr>,
}

/// Who granted a tenure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grantor {
    /// A DHCP server, by its identifier.
    Server(IpAddr),
    /// A range that the network's configuration names.
    Range,
}

/// When a tenure that ends is extended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// When its grantor is asked to extend it.
    pub extended: Instant,
    /// When any other may extend it too.
    pub rebound: Instant,
    /// When its addresses must no longer be used.
    pub ends: Instant,
}

impl Tenure {
    /// Returns its first address.
    pub fn ip(&self) -> IpAddr {
        self.net().addr()
    }

    /// Returns its first address, with the prefix of its subnet.
    pub fn net(&self) -> IpNet {
        self.addresses.first().expect("a tenure has an address").net
    }

    /// Returns its first IPv4 address.
    pub fn v4(&self) -> Option<Ipv4Net> {
        self.addresses.iter().find_map(|address| {
            if let IpNet::V4(net) = address.net {
                Some(net)
            } else {
                None
            }
        })
    }

    /// Returns whether another one grants the same, apart from its times.
    pub fn grants_the_same(&self, other: &Self) -> bool {
        let timeless = |tenure: &Self| (tenure.addresses.clone(), tenure.by, tenure.grant.clone());
        timeless(self) == timeless(other)
    }

    /// Returns this tenure as its caller gets it: without the routes that the daemon puts on itself.
    pub fn without_late(mut self) -> Self {
        self.grant = self.grant.without_late();
        self
    }
}

impl Grantor {
    /// Returns the server, if it is one.
    pub fn server(&self) -> Option<IpAddr> {
        match self {
            Self::Server(server) => Some(*server),
            Self::Range => None,
        }
    }
}

impl From<Ipv4Addr> for Grantor {
    fn from(server: Ipv4Addr) -> Self {
        Self::Server(server.into())
    }
}
