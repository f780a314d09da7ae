//! What a client believes: which answers are its own, and which leases are usable.
//!
//! The codec has dropped what is wrong by itself; here is what is wrong in its context:
//!
//! | value | outcome |
//! |---|---|
//! | yiaddr 0.0.0.0, 127/8, 224/4, 240/4, the network or broadcast address of its own mask | refused whole |
//! | subnet mask missing or not contiguous | the mask of the address's class (RFC 950), as other clients do |
//! | lease time missing or 0 | refused whole |
//! | T1, T2 reversed or past the end | the defaults (`timing::times`) |
//! | router outside the subnet | kept: valid with an on-link route |
//! | router, DNS or NTP server equal to the leased address | that one dropped |
//! | MTU below 1280 | dropped: IPv6 would stop on the link (RFC 8200 §5) |
//! | server identifier missing | refused whole (RFC 2131 table 3: MUST) |

use std::net::Ipv4Addr;

use ipnet::Ipv4Net;

use super::lease::{Lease, Route};
use super::timing;
use crate::time::Instant;
use crate::wire::Mac;
use crate::wire::message::{Message, MessageType};
use crate::wire::option::{Options, WireRoute};

/// Why an answer, well formed, is not believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub enum Refusal {
    /// It answers another transaction.
    #[error("xid of another transaction")]
    OtherXid,
    /// It is for another client.
    #[error("chaddr of another client")]
    OtherChaddr,
    /// It repeats a client identifier that is not ours (RFC 6842 §3).
    #[error("client identifier of another client")]
    OtherClientId,
    /// The message is not one that the state waits for.
    #[error("message type not waited for")]
    Unexpected,
    /// No server identifier (RFC 2131 table 3).
    #[error("server identifier missing")]
    NoServerId,
    /// It is from another server than the one asked.
    #[error("answer of a server that was not asked")]
    OtherServer,
    /// yiaddr is no address that a host can have.
    #[error("yiaddr is not a host's address")]
    BadAddress,
    /// yiaddr is the network or broadcast address of its own mask.
    #[error("yiaddr is the network's or broadcast address of its mask")]
    NetworkAddress,
    /// The server acknowledged another address than was asked for.
    #[error("acknowledged another address than was asked for")]
    OtherAddress,
    /// No lease time (RFC 2131 table 3).
    #[error("lease time missing")]
    NoLeaseTime,
    /// The lease had ended before its ACK came.
    #[error("acknowledged a lease that has ended since")]
    Ended,
    /// A lease of no time.
    #[error("lease time zero")]
    ZeroLeaseTime,
}

/// Whose answers are ours.
pub(crate) struct Expect<'a> {
    pub(crate) xid: u32,
    pub(crate) chaddr: Mac,
    pub(crate) client_id: &'a [u8],
}

/// Returns the server identifier of an answer that is for this client and transaction.
pub(crate) fn addressee(message: &Message, expect: &Expect<'_>) -> Result<Ipv4Addr, Refusal> {
    if message.chaddr != expect.chaddr {
        return Err(Refusal::OtherChaddr);
    }
    if message.xid != expect.xid {
        return Err(Refusal::OtherXid);
    }
    if message.options.client_id.as_deref().is_some_and(|id| id != expect.client_id) {
        return Err(Refusal::OtherClientId);
    }
    message.options.server_id.ok_or(Refusal::NoServerId)
}

/// Returns the lease that an OFFER or ACK describes, as of a REQUEST sent at `start`.
pub(crate) fn lease(message: &Message, server: Ipv4Addr, server_mac: Mac, start: Instant) -> Result<Lease, Refusal> {
    let options = &message.options;
    let address = address(message.yiaddr, options.subnet_mask)?;
    let seconds = match options.lease_time.ok_or(Refusal::NoLeaseTime)? {
        0 => return Err(Refusal::ZeroLeaseTime),
        seconds => seconds,
    };
    let (gateway, routes) = routes(options, address.addr());
    let others = |list: &[Ipv4Addr]| list.iter().copied().filter(|a| *a != address.addr()).collect::<Vec<_>>();
    Ok(Lease {
        address,
        server,
        server_mac,
        start,
        times: timing::times(seconds, options.t1, options.t2),
        gateway,
        routes,
        dns: others(&options.dns),
        domain: options.domain.clone(),
        search: options.search.clone(),
        ntp: others(&options.ntp),
        mtu: options.mtu.filter(|mtu| *mtu >= 1280),
        hostname: options.hostname.clone(),
    })
}

/// Returns yiaddr with its prefix, if a host can have it.
fn address(yiaddr: Ipv4Addr, mask: Option<u8>) -> Result<Ipv4Net, Refusal> {
    let first = yiaddr.octets()[0];
    if first == 0 || first == 127 || first >= 224 {
        return Err(Refusal::BadAddress);
    }
    let prefix = mask.unwrap_or(match first {
        0..128 => 8,
        128..192 => 16,
        _ => 24,
    });
    let address = Ipv4Net::new(yiaddr, prefix).map_err(|_| Refusal::BadAddress)?;
    // A /31 has no network and broadcast address (RFC 3021), a /32 is a host.
    if prefix < 31 && (yiaddr == address.network() || yiaddr == address.broadcast()) {
        return Err(Refusal::NetworkAddress);
    }
    Ok(address)
}

/// Returns the default router and all routes: from 121, else 249, else 33 and 3 (RFC 3442: 121 replaces both).
fn routes(options: &Options, own: Ipv4Addr) -> (Option<Ipv4Addr>, Vec<Route>) {
    let is_default = |r: &Route| r.destination.prefix_len() == 0;
    if let Some(classless) = options.classless_routes.as_deref().or(options.microsoft_routes.as_deref()) {
        let routes: Vec<_> = classless.iter().filter(|r| r.via != Some(own)).map(route).collect();
        let gateway = routes.iter().find(|r| is_default(r)).and_then(|r| r.via);
        return (gateway, routes);
    }
    let gateway = options.routers.iter().copied().find(|r| *r != own);
    let default = gateway.map(|via| Route { destination: Ipv4Net::default(), via: Some(via) });
    let statics = options.static_routes.iter().filter(|r| r.via != Some(own)).map(route);
    (gateway, default.into_iter().chain(statics).collect())
}

fn route(wire: &WireRoute) -> Route {
    Route { destination: wire.destination, via: wire.via }
}

/// Tells whether a message is of one of the kinds that a state waits for.
pub(crate) fn expect_kind(message: &Message, kinds: &[MessageType]) -> Result<(), Refusal> {
    if kinds.contains(&message.kind) { Ok(()) } else { Err(Refusal::Unexpected) }
}
