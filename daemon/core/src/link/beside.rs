//! Whether the host speaks to a LAN from the LAN's link itself, or from a macvlan beside it.
//!
//! What the parent of macvlans sends leaves by the wire and reaches none of them, so that a server in one of them, such as one
//! in a container of the same network, does not hear it. What a macvlan sends reaches the others and the wire.
//!
//! A bridge has ports for that. In a VLAN for which the LAN's link has no interface there is no macvlan, because none hears what is
//! tagged; nor can one be made where children have the link's own Ethernet address.

use super::{Link, LinkView};

/// Whether the host speaks to a LAN from a macvlan beside the LAN's link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beside {
    /// It does not, and will not.
    Never,
    /// It may.
    Possible,
    /// It does.
    Now,
}

impl Beside {
    /// Returns what is possible on a LAN's link that was found like this. `shared`: the LAN's clients have the link's Ethernet address.
    pub fn of(link: &Link, found: &LinkView, shared: bool) -> Self {
        let is_plain = matches!(link, Link::Parent { vlan: 0, port: false, .. }) && !found.bridge;
        if is_plain && !shared { Self::Possible } else { Self::Never }
    }

    /// Goes there from the LAN's link, if that may be. Returns whether it does now.
    pub fn go(&mut self) -> bool {
        let goes = *self == Self::Possible;
        if goes {
            *self = Self::Now;
        }
        goes
    }

    /// Goes back to the LAN's link for good: there can be no such macvlan. Returns whether it was there.
    pub fn come_back(&mut self) -> bool {
        let was_there = *self == Self::Now;
        if was_there {
            *self = Self::Never;
        }
        was_there
    }
}
