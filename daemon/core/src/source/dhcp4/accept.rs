//! What a client believes: which answers are its own, and which leases are usable.
//!
//! The codec has dropped what is wrong in itself; this module refuses what is wrong in its context:
//!
//! | value | outcome |
//! |---|---|
//! | yiaddr 0.0.0.0, 127/8, 224/4, 240/4, the network or broadcast address of its own mask | refused whole |
//! | yiaddr equal to the server identifier, or to giaddr | refused whole: the sender has it, and conflict detection may be off |
//! | yiaddr equal to siaddr, or to a router | taken: the boot server or router may be a DHCP client itself |
//! | subnet mask missing or not contiguous | the mask of the address's class (RFC 950), as other clients do |
//! | lease time missing, or below 6 s | refused whole |
//! | T1, T2 reversed or past the end, T1 below 3 s | the defaults (`timing::times`) |
//! | router outside the subnet | kept: valid with an on-link route |
//! | router that is the network or broadcast address of the subnet | that route dropped |
//! | router or DNS server equal to the leased address | that one dropped |
//! | 121 or 249 without any usable route | as if absent |
//! | MTU below 1280 | dropped, and reported: any server on the LAN could stop IPv6 on the link (RFC 8200 §5) |
//! | server identifier missing | refused whole (RFC 2131 table 3: MUST) |
//!
//! # What an ACK leaves out
//! Some servers (MikroTik) answer a renewal with only the lease's times, although the client asks for everything again. Taken
//! literally, such an ACK turns a /16 into its class's /8 and removes the default route and the name servers, as happens in
//! clients that read each ACK by itself (systemd-networkd, n-dhcp4). So as long as the address stays:
//! * An ACK that says *nothing* about the interface's configuration extends the lease and changes nothing else.
//! * An ACK without a mask (1) leaves the mask as it was: every address has one, so it cannot have been withdrawn.
//! * If an ACK says anything else, whatever it omits has been withdrawn, and is removed. The parameter request list asks for
//!   everything that a lease can have, and a server MUST return what is configured (RFC 2131 §4.3.1). If single values were
//!   kept, nobody could take a route, a name server or an MTU away from running containers.
//!
//! * What could not be read has not been withdrawn. A malformed option leaves its value as it was; if the message is cut (or
//!   fails to say where more options are), so does each missing option. An option that is complete but useless, such as a
//!   router that is not a host's address, says that there is none.
//!
//! The values "before" are those of the lease that is extended or confirmed, and for the first ACK those of the offer (RFC 2131
//! §4.3.1: the two SHOULD NOT conflict).

use std::net::Ipv4Addr;
use std::num::NonZeroU16;
use std::time::Duration;

use ipnet::Ipv4Net;

use super::StateName;
use super::lease::{Lease, LeaseRoute};
use super::message::Sender;
use super::timing;
use crate::time::Instant;
use crate::wire::Mac;
use crate::wire::message::{Message, MessageType};
use crate::wire::option::{BadOption, DroppedOption, MAX_SEARCH, Options, can_be_host, code};

/// IPv6 needs at least this MTU on every link (RFC 8200 §5).
const MIN_MTU: u16 = 1280;

/// Why a well-formed answer is not believed: the cause, and after a colon the value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub enum Refusal {
    /// It answers another transaction.
    #[error("xid of another transaction")]
    OtherXid,
    /// It is for another client.
    #[error("chaddr of another client")]
    OtherChaddr,
    /// It is not for a client's port (RFC 2131 §4.1).
    #[error("answer to a UDP port other than 68: {0}")]
    OtherPort(u16),
    /// It repeats a client identifier that is not ours (RFC 6842 §3).
    #[error("client identifier of another client")]
    OtherClientId,
    /// The state does not wait for such a message.
    #[error("unexpected message type: {kind} while {state}")]
    Unexpected {
        /// The message.
        kind: MessageType,
        /// The client's state.
        state: StateName,
    },
    /// No server identifier (RFC 2131 table 3).
    #[error("server identifier missing")]
    NoServerId,
    /// The network's configuration does not allow its server.
    #[error("server not allowed by the network's options: {0}")]
    Untrusted(Ipv4Addr),
    /// It is from a server other than the one asked.
    #[error("answer from a server that was not asked: {server} answered, {asked} was asked")]
    OtherServer {
        /// Its server identifier.
        server: Ipv4Addr,
        /// The server that was asked.
        asked: Ipv4Addr,
    },
    /// It is a NAK through a relay, and an ACK beside it may go unheard, because the container is out of sight.
    #[error("NAK through a relay for a container that is out of sight: its ACK may go unheard")]
    NakOutOfSight,
    /// yiaddr is not an address that a host can have.
    #[error("yiaddr is not a host's address: {0}")]
    BadAddress(Ipv4Addr),
    /// yiaddr is the network or broadcast address of its own mask.
    #[error("yiaddr is the network or broadcast address of its mask: {0}")]
    NetworkAddress(Ipv4Net),
    /// yiaddr is the server identifier.
    #[error("yiaddr is the server's own address: {0}")]
    OfServer(Ipv4Addr),
    /// yiaddr is giaddr.
    #[error("yiaddr is the address of the relay that forwarded it: {0}")]
    OfRelay(Ipv4Addr),
    /// The server acknowledged an address that the client did not ask for.
    #[error("acknowledged an address that was not requested: {acknowledged}, not {asked}")]
    OtherAddress {
        /// What the ACK grants.
        acknowledged: Ipv4Addr,
        /// What the REQUEST asked for.
        asked: Ipv4Addr,
    },
    /// No lease time (RFC 2131 table 3).
    #[error("lease time missing")]
    NoLeaseTime,
    /// The lease ended before its ACK came.
    #[error("acknowledged a lease that has since ended")]
    Ended,
    /// The lease is too short, in seconds.
    #[error("lease time below the minimum of 6 s: {0} s")]
    ShortLease(u32),
}

/// Returns the server identifier of an answer that is for this client and transaction, if its server is believed.
pub(crate) fn addressee(message: &Message, to: &Sender, xid: u32) -> Result<Ipv4Addr, Refusal> {
    if message.chaddr != to.chaddr {
        return Err(Refusal::OtherChaddr);
    }
    if message.xid != xid {
        return Err(Refusal::OtherXid);
    }
    let client_id = message.options.client_id.as_deref();
    // If none was sent, what the server says is not about it.
    let own = to.sent_client_id();
    if client_id.is_some_and(|id| !own.is_empty() && id != own) {
        return Err(Refusal::OtherClientId);
    }
    let server = message.options.server_id.ok_or(Refusal::NoServerId)?;
    match to.profile.servers.trusts(server) {
        true => Ok(server),
        false => Err(Refusal::Untrusted(server)),
    }
}

/// Returns the lease that an OFFER or ACK describes, for a REQUEST sent at `start`. `before`: what the client was last granted
/// or offered.
pub(crate) fn lease(
    message: &Message,
    server: Ipv4Addr,
    server_mac: Mac,
    start: Instant,
    before: Option<&Lease>,
) -> Result<Lease, Refusal> {
    let options = &message.options;
    let before = before.filter(|before| before.ip() == message.yiaddr);
    let address = address(
        message.yiaddr,
        options
            .subnet_mask
            .or(before.map(|before| before.address.prefix_len())),
    )?;
    match message.yiaddr {
        own if own == server => return Err(Refusal::OfServer(own)),
        own if own == message.giaddr => return Err(Refusal::OfRelay(own)),
        _ => {}
    }
    let seconds = match options.lease_time.ok_or(Refusal::NoLeaseTime)? {
        short if Duration::from_secs(short.into()) < timing::SHORTEST_LEASE => {
            return Err(Refusal::ShortLease(short));
        }
        seconds => seconds,
    };
    let times = timing::times(seconds, options.t1, options.t2);
    if let Some(before) = before.filter(|_| is_bare(options)) {
        return Ok(Lease {
            server,
            server_mac,
            start,
            times,
            ..before.clone()
        });
    }
    let said = said(options, address);
    let lease = Lease {
        server,
        server_mac,
        start,
        times,
        ..said
    };
    Ok(match before {
        Some(before) => with_unread(lease, options, before),
        None => lease,
    })
}

/// Returns a lease with what an answer says about the interface's configuration.
fn said(options: &Options, address: Ipv4Net) -> Lease {
    let (gateway, routes) = routes(options, address);
    let others = options.dns.iter().copied();
    Lease {
        gateway,
        routes,
        dns: others.filter(|other| *other != address.addr()).collect(),
        domain: options.domains.first().cloned(),
        search: search(options),
        mtu: options
            .mtu
            .filter(|mtu| *mtu >= MIN_MTU)
            .and_then(NonZeroU16::new),
        ..Lease::unknown(address, Instant::BOOT)
    }
}

/// Returns the domains to search: those of option 119, then those of option 15 if it has several.
fn search(options: &Options) -> Vec<String> {
    let several: &[String] = match &options.domains[..] {
        [_, _, ..] => &options.domains,
        _ => &[],
    };
    let others = several.iter().filter(|name| !options.search.contains(name));
    let all = options.search.iter().chain(others);
    all.take(MAX_SEARCH).cloned().collect()
}

/// Returns the lease, with the values of `before` where the answer had some that could not be read.
fn with_unread(mut lease: Lease, options: &Options, before: &Lease) -> Lease {
    if !before.routes.is_empty() && has_unread_routes(options) {
        (lease.gateway, lease.routes) = (before.gateway, before.routes.clone());
    }
    if options.dns.is_empty() && options.is_unread(code::DOMAIN_NAME_SERVER) {
        lease.dns.clone_from(&before.dns);
    }
    if options.domains.is_empty() && options.is_unread(code::DOMAIN_NAME) {
        lease.domain.clone_from(&before.domain);
    }
    if options.search.is_empty() && options.is_unread(code::DOMAIN_SEARCH) {
        lease.search.clone_from(&before.search);
    }
    if options.mtu.is_none() && options.is_unread(code::INTERFACE_MTU) {
        lease.mtu = before.mtu;
    }
    lease
}

/// Returns whether the routes that count could not be read: the first present of 121, 249, and 33 with 3.
fn has_unread_routes(options: &Options) -> bool {
    for (code, list) in [
        (code::CLASSLESS_ROUTES, &options.classless_routes),
        (code::MICROSOFT_ROUTES, &options.microsoft_routes),
    ] {
        if list.is_some() {
            return false;
        }
        if options.is_unread(code) {
            return true;
        }
    }
    let no_router = options.routers.is_empty();
    let no_statics = options.static_routes.is_empty();
    no_router && options.is_unread(code::ROUTER)
        || no_statics && options.is_unread(code::STATIC_ROUTE)
}

/// Returns what was dropped from the answer with this lease, besides malformed options.
pub(crate) fn dropped(options: &Options, lease: &Lease) -> Vec<DroppedOption> {
    let small = options
        .mtu
        .filter(|mtu| *mtu < MIN_MTU)
        .map(|mtu| (code::INTERFACE_MTU, BadOption::MtuForIpv6(mtu)));
    let of_all = options
        .routers
        .iter()
        .filter(|router| is_of_all(**router, lease.address));
    let routers = of_all.map(|router| (code::ROUTER, BadOption::NotAHost(*router)));
    small
        .into_iter()
        .chain(routers)
        .map(|(code, cause)| DroppedOption { code, cause })
        .collect()
}

/// Returns whether an answer says nothing about the interface's configuration.
fn is_bare(options: &Options) -> bool {
    let other = Options {
        lease_time: options.lease_time,
        t1: options.t1,
        t2: options.t2,
        server_id: options.server_id,
        client_id: options.client_id.clone(),
        message: options.message.clone(),
        rapid_commit: options.rapid_commit,
        dropped: options.dropped.clone(),
        ..Options::default()
    };
    *options == other
}

/// Returns yiaddr with its prefix, if a host can have it.
fn address(yiaddr: Ipv4Addr, mask: Option<u8>) -> Result<Ipv4Net, Refusal> {
    if !can_be_host(yiaddr) {
        return Err(Refusal::BadAddress(yiaddr));
    }
    let prefix = mask.unwrap_or(match yiaddr.octets()[0] {
        0..128 => 8,
        128..192 => 16,
        _ => 24,
    });
    let address = Ipv4Net::new(yiaddr, prefix).map_err(|_| Refusal::BadAddress(yiaddr))?;
    match is_of_all(yiaddr, address) {
        true => Err(Refusal::NetworkAddress(address)),
        false => Ok(address),
    }
}

/// Returns whether an address is the network or broadcast address of the subnet. A /31 has neither (RFC 3021), a /32 is a host.
fn is_of_all(address: Ipv4Addr, subnet: Ipv4Net) -> bool {
    subnet.prefix_len() < 31 && (address == subnet.network() || address == subnet.broadcast())
}

/// Returns the default router and all routes: from 121, else 249, else 33 and 3 (RFC 3442: 121 replaces both).
fn routes(options: &Options, own: Ipv4Net) -> (Option<Ipv4Addr>, Vec<LeaseRoute>) {
    let usable = |router: Ipv4Addr| router != own.addr() && !is_of_all(router, own);
    let read = |list: &[LeaseRoute]| -> Vec<LeaseRoute> {
        list.iter()
            .filter(|route| route.via.is_none_or(usable))
            .copied()
            .collect()
    };
    let classless = [&options.classless_routes, &options.microsoft_routes]
        .into_iter()
        .flatten();
    if let Some(routes) = classless
        .map(|list| read(list))
        .find(|routes| !routes.is_empty())
    {
        let gateway = routes
            .iter()
            .find(|route| route.destination.prefix_len() == 0)
            .and_then(|route| route.via);
        return (gateway, routes);
    }
    let gateway = options
        .routers
        .iter()
        .copied()
        .find(|router| usable(*router));
    let default = gateway.map(|via| LeaseRoute {
        destination: Ipv4Net::default(),
        via: Some(via),
    });
    (
        gateway,
        default
            .into_iter()
            .chain(read(&options.static_routes))
            .collect(),
    )
}

/// Refuses a message of a kind that a state does not wait for.
pub(crate) fn expect_kind(
    message: &Message,
    kinds: &[MessageType],
    state: StateName,
) -> Result<(), Refusal> {
    if kinds.contains(&message.kind) {
        Ok(())
    } else {
        Err(Refusal::Unexpected {
            kind: message.kind,
            state,
        })
    }
}
