//! What a macvlan's siblings need not hear. The kernel copies a broadcast from inside for each sibling; if there are many, that
//! costs more than the rest of an ADD. It does not copy a broadcast that leaves over the parent link.
//!
//! A server that answers an ARP request sent over that link is on the wire; a server that does not may be in a sibling. The first
//! DISCOVER of a client that knows no address leaves over the link if the LAN's servers are known to be on the wire, and so does
//! the first REQUEST for such a server's offer. All others leave from inside. Servers in siblings do not hear that their offers
//! were not taken, and reserve the address as long as for any other offer.

use std::net::Ipv4Addr;

use crate::binding::Cx;
use crate::source::Client;
use crate::wire::frame::Arp;

/// Sends the client's message, and before it the probe for the address of a REQUEST.
pub(in crate::binding) fn send(client: &Client, mut frames: Vec<Vec<u8>>, cx: &mut Cx<'_>) {
    let (lan, now) = (&cx.own.identity.lan, cx.now.boot);
    let parent = cx.interfaces.lower(&cx.own.link);
    let Some(parent) = parent.filter(|_| !cx.own.profile.on_parent) else {
        return cx.own.exchange.send(frames, cx.out);
    };
    let Some(message) = frames.pop() else { return };
    cx.own.exchange.send(frames, cx.out);
    let is_on_wire = if client.asks_first() {
        let fits = |server| cx.own.profile.client.servers.trusts(server);
        cx.lans.are_on_wire(lan, fits, now)
    } else if let Some(server) = client.requests_first() {
        let is_on_wire = cx.lans.is_on_wire(lan, server, now);
        if is_on_wire.is_none() {
            let question = Arp::request(cx.own.link.mac(), Ipv4Addr::UNSPECIFIED, server).encode();
            cx.own.exchange.send_over(question, Some(parent), cx.out);
        }
        is_on_wire.unwrap_or_default()
    } else {
        false
    };
    let over = is_on_wire.then_some(parent);
    cx.own.exchange.send_over(message, over, cx.out);
}
