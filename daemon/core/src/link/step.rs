//! What the shell may do to a link, step by step.

use std::fmt;
use std::net::IpAddr;

use ipnet::IpNet;

/// One change of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Sets it administratively up.
    Up,
    /// Sets its MTU, in bytes.
    Mtu(u32),
    /// Puts an address on it, with its broadcast address. It is also a success if it is already there.
    AddAddress(IpNet),
    /// Takes an address off it. It is also a success if it is not there.
    RemoveAddress(IpNet),
    /// Adds a route over it, behind others to the same destination with the same metric. It is also a success if it is
    /// already there.
    AddRoute(LinkRoute),
    /// Removes this route, and no other that differs in destination, gateway, metric, table or link. It is also a success if
    /// it is not there.
    RemoveRoute(LinkRoute),
    /// Points default routes over it in the main table from one router to another. The new route has a metric, so that a route
    /// without one can still be added. It is also a success if there is none: none is added.
    ReplaceDefault {
        /// The router that they use.
        from: IpAddr,
        /// The router that they should use.
        to: IpAddr,
    },
    /// Takes it out of the way of the container's next networks: deletes it if a daemon made it, else sets it down and gives it
    /// another name. dockerd leaves it there and keeps its name for the next one.
    Abandon,
}

impl Step {
    /// Returns the text for [`super::LinkCause::Refused`] if the kernel refuses this step. If the cause has another text, no
    /// step was tried.
    pub fn doing(&self) -> &'static str {
        match self {
            Self::Up => "set the link up",
            Self::Mtu(_) => "set the MTU",
            Self::AddAddress(_) => "add the address",
            Self::RemoveAddress(_) => "remove the address",
            Self::AddRoute(_) => "add the route",
            Self::RemoveRoute(_) => "remove the route",
            Self::ReplaceDefault { .. } => "replace the default route",
            Self::Abandon => "take the link out of the way",
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.doing())?;
        match self {
            Self::Up | Self::Abandon => Ok(()),
            Self::Mtu(mtu) => write!(f, " {mtu}"),
            Self::AddAddress(address) | Self::RemoveAddress(address) => write!(f, " {address}"),
            Self::AddRoute(route) | Self::RemoveRoute(route) => write!(f, " {route}"),
            Self::ReplaceDefault { from, to } => write!(f, " via {from} by one via {to}"),
        }
    }
}

/// A route over a link.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkRoute {
    /// The destination.
    pub destination: IpNet,
    /// The next hop, which must be on the link by another route; `None`: the destination itself is on the link.
    pub via: Option<IpAddr>,
    /// The lowest takes precedence; `None` is 0.
    pub metric: Option<u32>,
    /// The longest packet that is sent over it, in bytes. It does not distinguish the route from others.
    pub mtu: Option<u32>,
    /// The greatest TCP segment to advertise, in bytes. It does not distinguish the route from others either.
    pub advmss: Option<u32>,
    /// The routing table; `None` is the main one.
    pub table: Option<u32>,
    /// The scope, by the kernel's numbers; `None`: the link's without a next hop, else the global one.
    pub scope: Option<u8>,
}

impl LinkRoute {
    /// Returns what distinguishes it from others over its link: destination, next hop, metric and table.
    pub(crate) fn key(&self) -> impl Ord + use<> {
        (self.destination, self.via, self.metric, self.table)
    }

    /// Returns whether a route that was seen is this one, with everything that is wanted of it.
    pub fn is(&self, seen: &Self) -> bool {
        let is_wanted = |wanted: Option<u32>, seen: Option<u32>| {
            wanted.is_none_or(|wanted| seen == Some(wanted))
        };
        self.key() == seen.key()
            && is_wanted(self.mtu, seen.mtu)
            && is_wanted(self.advmss, seen.advmss)
    }
}

impl fmt::Display for LinkRoute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.destination)?;
        self.via.map_or(Ok(()), |via| write!(f, " via {via}"))?;
        let more = [
            ("metric", self.metric),
            ("mtu", self.mtu),
            ("advmss", self.advmss),
            ("table", self.table),
        ];
        more.into_iter().try_for_each(|(word, value)| {
            value.map_or(Ok(()), |value| write!(f, " {word} {value}"))
        })
    }
}
