//! What a client's message is for.

use std::net::Ipv4Addr;

use super::message::{Kind, Message, code};

/// What a client's message is for. The five forms of REQUEST differ only in their fields (RFC 2131 §4.3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Purpose {
    /// DISCOVER.
    Discover,
    /// REQUEST in SELECTING: with a server identifier.
    Select,
    /// REQUEST in INIT-REBOOT: with only a requested address.
    Reboot,
    /// REQUEST in RENEWING: ciaddr, unicast.
    Renew,
    /// REQUEST in REBINDING: ciaddr, broadcast.
    Rebind,
    /// DECLINE.
    Decline,
    /// RELEASE.
    Release,
}

impl Purpose {
    /// Returns what a message is for, or `None` if no client sends such a message. Without its destination a REQUEST
    /// with ciaddr counts as a RENEW.
    pub fn of(message: &Message, destination: Option<Ipv4Addr>) -> Option<Self> {
        match message.kind()? {
            Kind::Discover => Some(Self::Discover),
            Kind::Decline => Some(Self::Decline),
            Kind::Release => Some(Self::Release),
            Kind::Request if message.option(code::SERVER).is_some() => Some(Self::Select),
            Kind::Request if !message.ciaddr.is_unspecified() => match destination {
                Some(Ipv4Addr::BROADCAST) => Some(Self::Rebind),
                _ => Some(Self::Renew),
            },
            Kind::Request if message.option(code::REQUESTED).is_some() => Some(Self::Reboot),
            Kind::Request | Kind::Offer | Kind::Ack | Kind::Nak | Kind::Inform => None,
        }
    }

    /// Returns whether the client speaks from its leased address.
    pub(super) fn speaks_as_leased(self) -> bool {
        matches!(self, Self::Renew | Self::Rebind | Self::Release)
    }

    /// Returns whether the message asks to extend a lease.
    pub(super) fn extends(self) -> bool {
        matches!(self, Self::Renew | Self::Rebind)
    }

    /// Returns whether the message goes to only one server.
    pub(super) fn unicast(self) -> bool {
        matches!(self, Self::Renew | Self::Release)
    }

    /// Returns whether the client only gives something back.
    pub(super) fn gives_back(self) -> bool {
        matches!(self, Self::Decline | Self::Release)
    }
}
