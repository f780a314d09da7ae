//! What a binding hears about its interface.

use std::net::IpAddr;
use std::time::Duration;

use crate::link::{LinkCause, LinkView};
use crate::wire::Mac;

/// Something that happened at an interface, or was seen there. Each binding on it hears about it, in either family.
#[derive(Clone, Debug)]
pub(crate) enum News<'a> {
    /// The interface no longer exists, or no path leads to its namespace any more ([`LinkCause::NoPath`]).
    Gone(LinkCause),
    /// It is down: the kernel has taken its routes.
    Down,
    /// It may be changed: a change by the daemon is over, or its carrier has changed.
    Free,
    /// Its carrier is back after this time.
    CarrierBack(Duration),
    /// It has another Ethernet address.
    Ethernet(Mac),
    /// An address is on it.
    AddressAdded(IpAddr),
    /// It was looked at.
    Seen {
        /// What is there.
        view: &'a LinkView,
        /// How long its carrier was away, if it is back.
        back: Option<Duration>,
    },
}
