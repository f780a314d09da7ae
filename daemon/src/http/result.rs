//! The core's answers in CNI's words: a lease as a result, a failure as a code and a sentence.

use std::net::IpAddr;

use leasehold_api::cni::{Code, Dns, Ip, Route, Success};
use leasehold_core::dhcpv4::lease::Lease;
use leasehold_core::dhcpv4::profile::Profile;
use leasehold_core::effect::Failure;
use leasehold_core::link::LinkCause;
use leasehold_core::plan;

/// Returns a lease in a main plugin's terms.
pub(super) fn success(lease: &Lease, profile: &Profile) -> Success {
    let gateway = lease.gateway.map(IpAddr::V4).filter(|_| !profile.suppress_default_route);
    Success {
        ips: vec![Ip { address: lease.address.into(), gateway }],
        routes: plan::told(lease, profile).into_iter().map(route).collect(),
        dns: Dns {
            nameservers: lease.dns.iter().copied().map(IpAddr::V4).collect(),
            domain: lease.domain.clone(),
            search: lease.search.clone(),
        },
    }
}

fn route(route: plan::Route) -> Route {
    let plan::Route { destination, via, metric, mtu, advmss, table, scope } = route;
    Route { dst: destination, via, mtu, advmss, priority: metric, table, scope }
}

/// The one table of failures and CNI's codes.
///
/// What another try may fix is 11. That includes a requested address that is not offered: it may be another client's
/// whose lease will end, such as the pod that this one succeeds; or it may be outside every pool, but a client cannot
/// tell which, and 7 would make a runtime give up on both. It also includes a GC that could not give everything back:
/// the next one goes on. A wrong namespace or interface name belongs to the environment (4). The specification has no
/// code for a CHECK that finds a difference, so that is one of our own.
pub(super) fn code(failure: &Failure) -> Code {
    match failure {
        Failure::Link { cause, .. } => match cause {
            LinkCause::NoNetns(_)
            | LinkCause::NoDirectory(_)
            | LinkCause::NotANetns(_)
            | LinkCause::NotMounted(_)
            | LinkCause::HostNetns(_)
            | LinkCause::NetnsChanged(_) => Code::InvalidEnvironment,
            LinkCause::NoLink(_) => Code::InvalidEnvironment,
            LinkCause::NotEthernet(_) => Code::InvalidConfig,
            LinkCause::Refused { .. } => Code::Io,
            LinkCause::Down | LinkCause::MacTaken(_) | LinkCause::NoDescriptor { .. } | LinkCause::TimedOut => {
                Code::TryAgainLater
            }
        },
        Failure::NoCarrier { .. }
        | Failure::NoOffer { .. }
        | Failure::NoAck { .. }
        | Failure::Nak { .. }
        | Failure::Conflict { .. }
        | Failure::Conflicts { .. }
        | Failure::HeldBack { .. }
        | Failure::TooShort { .. }
        | Failure::TimedOut { .. }
        | Failure::Store(_)
        | Failure::Held { .. }
        | Failure::AddressHeld { .. }
        | Failure::Cancelled(_)
        | Failure::NotWanted { .. }
        | Failure::NotCollected(_)
        | Failure::Attached { .. } => Code::TryAgainLater,
        Failure::NotReady(_) => Code::NotAvailable,
        Failure::Unknown(_) => Code::UnknownContainer,
        Failure::Differs { .. } | Failure::NotOnLink { .. } => Code::CheckFailed,
    }
}

/// Returns the message; with code 4 the specification wants the variable named.
pub(super) fn message(failure: &Failure) -> String {
    let variable = match failure {
        Failure::Link { cause: LinkCause::NoLink(_), .. } => "CNI_IFNAME: ",
        _ if code(failure) == Code::InvalidEnvironment => "CNI_NETNS: ",
        _ => "",
    };
    let hint = match failure {
        Failure::Link { cause: LinkCause::NoLink(_), .. } => {
            ": the main plugin must create it before it asks for an address; ptp, for one, creates it afterwards"
        }
        _ => "",
    };
    format!("{variable}{failure}{hint}")
}
