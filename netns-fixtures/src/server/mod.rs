//! DHCP servers: the real ones, one file each, as children with a generated configuration and a readable lease file.

mod dnsmasq;
mod kea;
mod model;

use std::net::Ipv4Addr;
use std::ops::RangeInclusive;

pub use dnsmasq::{Dnsmasq, DnsmasqConfig, DnsmasqLease};
pub use kea::{Kea, KeaConfig, KeaLease};
pub use model::ModelServer;

/// The addresses that a server gives out, unless it is configured otherwise.
pub const POOL: RangeInclusive<Ipv4Addr> = Ipv4Addr::new(10, 7, 1, 0)..=Ipv4Addr::new(10, 7, 4, 255);

/// Another pool on the same subnet, for a server that changes its mind.
pub const OTHER_POOL: RangeInclusive<Ipv4Addr> = Ipv4Addr::new(10, 7, 9, 0)..=Ipv4Addr::new(10, 7, 12, 255);
