//! What a binding hears of its interface.

use std::net::IpAddr;
use std::time::Duration;

use crate::link::{LinkCause, LinkView};
use crate::wire::Mac;

/// Something that happened at an interface, or was seen there. Each binding on it hears of it, of whichever family.
#[derive(Clone, Debug)]
pub(crate) enum News<'a> {
    /// The interface is gone for good.
    Gone(LinkCause),
    /// No path leads to its namespace any more, which lives.
    Hidden(LinkCause),
    /// It is down: the kernel has taken its routes.
    Down,
    /// It is up.
    Up,
    /// It may be changed: a change by the daemon is over, or its carrier is not what it was.
    Free,
    /// Its carrier is back, which was away for so long.
    CarrierBack(Duration),
    /// It has another Ethernet address.
    Ethernet(Mac),
    /// An address is on it.
    AddressAdded(IpAddr),
    /// It was looked at. `back`: for how long its carrier was away, if that is back.
    Seen {
        /// What is there.
        view: &'a LinkView,
        /// For how long its carrier was away.
        back: Option<Duration>,
    },
}
