//! Does anything reach a client but broadcasts? Some ports of virtual machines, access points and switches let in only frames to
//! the host's own Ethernet address and to groups. Then an ADD succeeds once its client asks for answers by broadcast, and nobody
//! reaches the container.
//!
//! That an answer came only with the broadcast flag is no evidence: some servers want it. So the server and the routers are asked by
//! ARP. Their answers are not broadcast.

use std::net::Ipv4Addr;

use super::lease::Lease;
use crate::wire::Mac;
use crate::wire::frame::{Arp, ArpOp};

/// Why nothing else reaches a client, for a person.
pub const UNREACHED: &str = "only broadcasts arrive: a DHCP server answered only when asked for a broadcast, and neither server nor \
    router answers ARP. The host's port seems to let in only frames to the host's own Ethernet address, as those of virtual machines, \
    access points and switches with port security do";

/// What to do about it.
pub const UNREACHED_REMEDY: &str = "see \"Only broadcasts reach a container\" in operations.md";

/// The question whether anything else reaches a client.
#[derive(Debug)]
pub(crate) struct Reach {
    /// Who is asked: those of the server and the routers that are on the subnet.
    asked: Vec<Ipv4Addr>,
    /// How often they were asked.
    times: u32,
}

impl Reach {
    /// Returns the question about a client that got this lease or offer only with the broadcast flag; `None`: nobody can be asked.
    pub(crate) fn of(lease: &Lease) -> Option<Self> {
        let asked: Vec<_> = std::iter::once(lease.server)
            .chain(lease.routes.iter().filter_map(|route| route.via))
            .filter(|hop| lease.address.contains(hop))
            .collect();
        (!asked.is_empty()).then_some(Self { asked, times: 0 })
    }

    /// Asks once more, from an Ethernet and an IP address.
    pub(crate) fn ask(&mut self, from: Mac, address: Ipv4Addr) -> Vec<Vec<u8>> {
        self.times += 1;
        let ask = |hop: &Ipv4Addr| Arp::request(from, address, *hop).encode();
        self.asked.iter().map(ask).collect()
    }

    /// Returns how often they were asked.
    pub(crate) fn times(&self) -> u32 {
        self.times
    }

    /// Returns whether this answers it.
    pub(crate) fn is_answered_by(&self, arp: &Arp) -> bool {
        arp.op == ArpOp::Reply && self.asked.contains(&arp.sender)
    }
}
