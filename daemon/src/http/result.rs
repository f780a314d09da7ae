//! The core's answers in CNI's words: a lease as a result, a failure as a code and a sentence.

use std::net::IpAddr;

use leasehold_api::cni::{Code, Dns, ExtraRoute, Ip, Route, Success};
use leasehold_core::dhcpv4::lease::{self, Lease};
use leasehold_core::effect::Failure;
use leasehold_core::link::LinkCause;

/// The MTU that any Ethernet link carries.
const ETHERNET_MTU: u16 = 1500;

/// What the network's configuration says of results.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Shape {
    /// The metric of routes without one of their own.
    pub(super) priority: Option<u32>,
    /// Routes beside the server's.
    pub(super) routes: Vec<ExtraRoute>,
    /// No default route and no gateway of the server's.
    pub(super) suppress_default_route: bool,
}

/// Returns what a lease means to a main plugin.
///
/// The server's MTU (26) is on the link already. It is said again for each route, for who reads results, but only where
/// every link can have it: a route's MTU beyond its link's would lose packets, and the link may have got less.
pub(super) fn success(lease: &Lease, shape: &Shape) -> Success {
    let kept = |route: &&lease::Route| !shape.suppress_default_route || route.destination.prefix_len() > 0;
    // Main plugins add routes one by one, and the kernel refuses one whose next hop it cannot reach yet: a next hop
    // outside the subnet wants its own on-link route first.
    let (on_link, via): (Vec<_>, Vec<_>) = lease.routes.iter().filter(kept).partition(|route| route.via.is_none());
    let mtu = lease.mtu.filter(|mtu| *mtu <= ETHERNET_MTU).map(u32::from);
    let given = |route: &lease::Route| Route {
        dst: route.destination.into(),
        via: route.via.map(IpAddr::V4),
        mtu,
        ..Route::default()
    };
    let gateway = lease.gateway.map(IpAddr::V4);
    let extra = shape.routes.iter().map(|route| route.resolve(gateway));
    let routes = on_link.into_iter().chain(via).map(given).chain(extra);
    Success {
        ips: vec![Ip { address: lease.address.into(), gateway: gateway.filter(|_| !shape.suppress_default_route) }],
        routes: routes.map(|route| Route { priority: route.priority.or(shape.priority), ..route }).collect(),
        dns: Dns {
            nameservers: lease.dns.iter().copied().map(IpAddr::V4).collect(),
            domain: lease.domain.clone(),
            search: lease.search.clone(),
        },
    }
}

/// The one table of failures and CNI's codes.
///
/// What another try may mend is 11. That is so of a requested address that is not offered, too: it may be another
/// client's, whose lease ends, say a pod's of which this one is the successor; or it may be outside of all pools for
/// ever, but a client cannot tell which, and 7 would make a runtime give up on both. So it is of a GC that could not give
/// all back: the next one goes on. A wrong namespace or interface name is the environment's (4). The specification has no
/// code for a CHECK that finds a difference, so that is one of our own.
pub(super) fn code(failure: &Failure) -> Code {
    match failure {
        Failure::Link { cause, .. } => match cause {
            LinkCause::NoNetns(_) | LinkCause::NotANetns(_) | LinkCause::HostNetns(_) | LinkCause::NetnsChanged(_) => {
                Code::InvalidEnvironment
            }
            LinkCause::NoLink(_) => Code::InvalidEnvironment,
            LinkCause::NotEthernet(_) => Code::InvalidConfig,
            LinkCause::Refused { .. } => Code::Io,
            LinkCause::Down | LinkCause::TimedOut => Code::TryAgainLater,
        },
        Failure::NoCarrier { .. }
        | Failure::NoOffer { .. }
        | Failure::NoAck { .. }
        | Failure::Nak { .. }
        | Failure::TimedOut { .. }
        | Failure::Store(_)
        | Failure::Held { .. }
        | Failure::Cancelled(_)
        | Failure::NotWanted { .. }
        | Failure::NotCollected(_)
        | Failure::Attached { .. } => Code::TryAgainLater,
        Failure::NotReady(_) => Code::NotAvailable,
        Failure::Unknown(_) => Code::UnknownContainer,
        Failure::Differs { .. } | Failure::NotOnLink { .. } => Code::CheckFailed,
    }
}

/// Says what happened; with code 4 the specification wants the variable named.
pub(super) fn message(failure: &Failure) -> String {
    let variable = match failure {
        Failure::Link { cause: LinkCause::NoLink(_), .. } => "CNI_IFNAME: ",
        _ if code(failure) == Code::InvalidEnvironment => "CNI_NETNS: ",
        _ => "",
    };
    format!("{variable}{failure}")
}
