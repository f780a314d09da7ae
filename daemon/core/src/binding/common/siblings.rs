//! What a macvlan's siblings need not hear. The kernel copies a broadcast from inside for each sibling; if there are many, that
//! costs more than the rest of an ADD. It does not copy a broadcast that leaves over the parent link.
//!
//! A server that answers an ARP request sent over that link is on the wire; a server that does not may be in a sibling. The first
//! DISCOVER of a client that knows no address leaves over the link if the LAN's servers are known to be on the wire, and so does
//! the first REQUEST for such a server's offer. All others leave from inside. Servers in siblings do not hear that their offers
//! were not taken, and reserve the address as long as for any other offer.

use std::net::Ipv4Addr;

use super::Common;
use crate::binding::Cx;
use crate::source::Client;
use crate::time::Instant;
use crate::wire::Mac;
use crate::wire::frame::Arp;

/// Sends the client's messages, and the probe before a REQUEST.
pub(in crate::binding) fn send_messages(
    common: &Common,
    client: &Client,
    mut frames: Vec<Vec<u8>>,
    cx: &mut Cx<'_>,
) {
    let Some(lower) = cx
        .interfaces
        .lower(&common.link)
        .filter(|_| !common.profile.on_parent)
    else {
        return common.exchange.send(frames, cx.out);
    };
    if client.asks_first() {
        let will_do = |server| common.profile.client.servers.trusts(server);
        let are_on_wire = cx
            .conflicts
            .are_on_wire(&common.identity.lan, will_do, cx.now.boot);
        let over = Some(lower).filter(|_| are_on_wire);
        return frames
            .into_iter()
            .for_each(|frame| common.exchange.send_over(frame, over, cx.out));
    }
    let Some(server) = first_request_to(client, cx.now.boot) else {
        return common.exchange.send(frames, cx.out);
    };
    let Some(request) = frames.pop() else { return };
    common.exchange.send(frames, cx.out);
    let lan = &common.identity.lan;
    let now = cx.now.boot;
    let is_on_wire = cx.conflicts.is_on_wire(lan, server, now);
    common
        .exchange
        .send_over(request, Some(lower).filter(|_| is_on_wire), cx.out);
    if !is_on_wire && cx.conflicts.asks_wire(lan, server, now) {
        let question = Arp::request(common.link.mac(), Ipv4Addr::UNSPECIFIED, server.0);
        common
            .exchange
            .send_over(question.encode(), Some(lower), cx.out);
    }
}

/// Returns the server whose offer was taken, by identifier and Ethernet address, while one REQUEST for it is out.
fn first_request_to(client: &Client, now: Instant) -> Option<(Ipv4Addr, Mac)> {
    let (server, _, sent) = client.requesting().and(client.tally().requested)?;
    let offer = client.owed(now).filter(|_| sent == 1)?;
    Some((server, offer.server_mac))
}
