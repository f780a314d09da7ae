//! What is heard on a LAN. Each test decides who says what there.

use std::net::Ipv4Addr;

use crate::link::Hears;

/// Returns whether the packet filter of sockets lets an ARP packet with this sender and target through. `answers`: it is an answer
/// to the Ethernet address of their link.
pub fn hears(filter: Hears, answers: bool, sender: Ipv4Addr, target: Ipv4Addr) -> bool {
    match filter {
        Hears::Answers => answers,
        Hears::About(address) => answers || sender == address || target == address,
    }
}
