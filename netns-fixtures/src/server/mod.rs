//! DHCP servers: the real ones, one file each, as child processes with a generated configuration and a readable lease file.
//!
//! [`Grants`] say what a server gives out in terms that all share; `DnsmasqConfig` and `KeaConfig` add what only one of
//! them has.

mod dnsmasq;
mod grants;
mod isc;
mod kea;
mod model;
mod running;
mod udhcpd;

use std::net::Ipv4Addr;
use std::ops::RangeInclusive;

pub use dnsmasq::{Dnsmasq, DnsmasqConfig, DnsmasqProgram};
pub use grants::Grants;
pub use isc::{IscDhcpd, IscProgram};
pub use kea::{Kea, KeaConfig, KeaProgram};
pub use model::ModelServer;
pub use running::{Lease, Place, Program, Server};
pub use udhcpd::{Udhcpd, UdhcpdProgram};

/// The addresses that a server gives out, unless it is configured otherwise.
pub const POOL: RangeInclusive<Ipv4Addr> =
    Ipv4Addr::new(10, 7, 1, 0)..=Ipv4Addr::new(10, 7, 4, 255);
