//! Does anything reach a container but broadcasts? Some ports of virtual machines, access points and switches let in only frames to
//! the host's own Ethernet address and to groups. Then an ADD succeeds once its client asks for answers by broadcast, and nobody
//! reaches the container.
//!
//! That an answer came only with the broadcast flag is no evidence: some servers want it. So the server and the routers are asked by
//! ARP, from the container, once its address is on the interface. Their answers are not broadcast.

use std::net::Ipv4Addr;

use crate::binding::{Common, Cx};
use crate::dhcpv4::lease::Lease;
use crate::wire::frame::{Arp, ArpOp};

/// The question whether anything reaches a container.
#[derive(Debug)]
pub(super) struct Reach {
    /// Who is asked: those of the server and the routers that are on the subnet.
    asked: Vec<Ipv4Addr>,
    /// How often they were asked.
    times: u32,
}

impl Reach {
    /// Returns whether they were asked, and none has answered.
    pub(super) fn is_in_vain(&self) -> bool {
        self.times > 0
    }
}

impl Common {
    /// Has the window ask whether anything reaches the container: an answer came only with the broadcast flag.
    pub(in crate::binding) fn doubts_reach(&mut self, lease: &Lease) {
        let Some(guard) = self
            .guard
            .as_mut()
            .filter(|_| self.link.in_netns().is_some())
        else {
            return;
        };
        let asked: Vec<_> = std::iter::once(lease.server)
            .chain(lease.routes.iter().filter_map(|route| route.via))
            .filter(|hop| lease.address.contains(hop))
            .collect();
        guard.reach = (!asked.is_empty()).then(|| Box::new(Reach { asked, times: 0 }));
    }

    /// Asks, from the leased address, if it is in use.
    pub(super) fn ask_reach(&mut self, cx: &mut Cx<'_>) {
        let Some(guard) = self
            .guard
            .as_deref_mut()
            .filter(|guard| guard.window.is_in_use())
        else {
            return;
        };
        let (from, address) = (guard.window.from(), guard.window.address());
        let Some(reach) = &mut guard.reach else {
            return;
        };
        reach.times += 1;
        let ask = |hop: &Ipv4Addr| Arp::request(from, address, *hop).encode();
        let frames = reach.asked.iter().map(ask).collect();
        self.guard_send(frames, cx);
    }

    /// Ends the question if this answers it.
    pub(super) fn is_reached_by(&mut self, arp: &Arp) {
        let Some(guard) = &mut self.guard else { return };
        let answers = |reach: &Reach| arp.op == ArpOp::Reply && reach.asked.contains(&arp.sender);
        if guard.reach.as_deref().is_some_and(answers) {
            guard.reach = None;
        }
    }
}
