//! The core's answers in CNI's terms: a lease as a result, a failure as a code and a sentence.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;
use leasehold_api::cni::{Code, Dns, Ip, Route, Success};
use leasehold_core::effect::Failure;
use leasehold_core::grant;
use leasehold_core::link::LinkCause;
use leasehold_core::tenure::Tenure;

/// The scope of a destination on the link (`RT_SCOPE_LINK`).
const SCOPE_LINK: u8 = 253;

/// Returns what was granted in a main plugin's terms. The name servers are the first source's.
pub(super) fn success(tenures: &[Tenure]) -> Success {
    let grants = || tenures.iter().map(|tenure| &tenure.grant);
    let dns = grants()
        .map(|grant| &grant.dns)
        .find(|dns| !dns.is_empty())
        .cloned()
        .unwrap_or_default();
    Success {
        ips: tenures.iter().flat_map(ips).collect(),
        routes: grants()
            .flat_map(|grant| &grant.routes)
            .map(route)
            .collect(),
        dns: Dns {
            nameservers: dns.servers.iter().map(ToString::to_string).collect(),
            domain: dns.domain,
            search: dns.search,
            options: Vec::new(),
        },
    }
}

/// Returns the addresses as the interface should have them, each with its subnet's router.
fn ips(tenure: &Tenure) -> impl Iterator<Item = Ip> {
    let gateway_of = |address: &IpNet| {
        let of = tenure
            .addresses
            .iter()
            .find(|of| of.net.addr() == address.addr())?;
        of.gateway.filter(|_| tenure.grant.gateway.is_some())
    };
    tenure.grant.addresses.iter().map(move |address| Ip {
        address: *address,
        gateway: gateway_of(address),
    })
}

/// Writes a route. A destination on the link gets the unspecified address as `gw`, as RFC 3442 writes it and the incumbent passes
/// it on, because main plugins replace a missing `gw`, and the kernel reads 0.0.0.0 as none. The scope lets the kernel use such a
/// route to reach the next hop of another, a router outside the subnet.
fn route(route: &grant::Route) -> Route {
    let grant::Route {
        destination,
        via,
        metric,
        mtu,
        advmss,
        table,
        scope,
        late: _,
    } = *route;
    let on_link: IpAddr = match destination {
        IpNet::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpNet::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let scope = scope.or(via.is_none().then_some(SCOPE_LINK));
    Route {
        dst: destination,
        via: via.or(Some(on_link)),
        mtu,
        advmss,
        priority: metric,
        table,
        scope,
    }
}

/// The one table of failures and CNI's codes.
///
/// Everything that another try may fix is 11. That includes a requested address that is not offered: another client may have it
/// until its lease ends, such as the pod that this one succeeds. It may also be outside every pool, but a client cannot know
/// which, and 7 would make a runtime give up in both cases. It also includes a GC that could not give everything back: the next
/// GC goes on. A wrong namespace or interface name belongs to the environment (4). The specification has no code for a CHECK that
/// finds a difference, so we use our own.
pub(super) fn code(failure: &Failure) -> Code {
    match failure {
        Failure::Link { cause, .. } => match cause {
            LinkCause::NoNetns(_)
            | LinkCause::NetnsRemoved(_)
            | LinkCause::NoDirectory(_)
            | LinkCause::NotANetns(_)
            | LinkCause::NotMounted(_)
            | LinkCause::NoPath(_)
            | LinkCause::HostNetns(_)
            | LinkCause::NetnsChanged(_)
            | LinkCause::NoLink(_) => Code::InvalidEnvironment,
            LinkCause::NotEthernet(_) => Code::InvalidConfig,
            LinkCause::Refused { .. } => Code::Io,
            LinkCause::Down
            | LinkCause::MacTaken(_)
            | LinkCause::NoDescriptor { .. }
            | LinkCause::TimedOut => Code::TryAgainLater,
        },
        Failure::NoCarrier { .. }
        | Failure::NoAddress(_)
        | Failure::NoOffer { .. }
        | Failure::NoAck { .. }
        | Failure::Nak { .. }
        | Failure::Conflict { .. }
        | Failure::Conflicts { .. }
        | Failure::NotDeclined { .. }
        | Failure::TooShort { .. }
        | Failure::TimedOut(..)
        | Failure::Store(_)
        | Failure::Held { .. }
        | Failure::AddressHeld { .. }
        | Failure::Cancelled(_)
        | Failure::NotWanted { .. }
        | Failure::Unfit { .. }
        | Failure::Pool(_)
        | Failure::Network(_)
        | Failure::NotCollected(_)
        | Failure::Changing(_)
        | Failure::Attached { .. } => Code::TryAgainLater,
        Failure::NotReady(_) => Code::NotAvailable,
        Failure::Unknown(_) => Code::UnknownContainer,
        Failure::Differs { .. } | Failure::NotOnLink { .. } | Failure::NoRoute { .. } => {
            Code::CheckFailed
        }
    }
}

/// Returns the message. For code 4 the specification wants the variable named.
pub(super) fn message(failure: &Failure) -> String {
    let variable = match failure {
        Failure::Link {
            cause: LinkCause::NoLink(_),
            ..
        } => "CNI_IFNAME: ",
        _ if code(failure) == Code::InvalidEnvironment => "CNI_NETNS: ",
        _ => "",
    };
    let hint = match failure {
        Failure::Link {
            cause: LinkCause::NoLink(_),
            ..
        } => {
            ": the main plugin must create it before it asks for an address; ptp, for example, creates it afterwards"
        }
        Failure::NotWanted { .. } => ": set ipPreferred to take another address",
        _ => "",
    };
    format!("{variable}{failure}{hint}")
}
