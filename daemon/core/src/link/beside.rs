//! Whether the host speaks to a LAN from the LAN's link itself, or from a macvlan beside it.
//!
//! A frame from the parent of macvlans leaves on the wire and reaches none of them, so a server in one of them, such as in a
//! container on the same network, does not hear it. A frame from a macvlan reaches the others and the wire.
//!
//! A bridge has ports for that. There is no macvlan in a VLAN for which the LAN's link has no interface, because none would hear
//! tagged frames; and none can be made if children share the link's own Ethernet address.

use super::{Link, LinkView};
use crate::rules::{Rule, cut};

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
        let is_plain = matches!(
            link,
            Link::Parent {
                vlan: 0,
                port: false,
                ..
            }
        ) && !found.bridge;
        if is_plain && !shared {
            Self::Possible
        } else {
            Self::Never
        }
    }

    /// Goes there from the LAN's link, if possible. Returns whether it does so now.
    pub fn go(&mut self) -> bool {
        let goes = *self == Self::Possible && !cut(Rule::Beside);
        if goes {
            *self = Self::Now;
        }
        goes
    }

    /// Goes back to the LAN's link and stays there: no such macvlan is possible. Returns whether it was beside the link.
    pub fn come_back(&mut self) -> bool {
        let was_there = *self == Self::Now;
        if was_there {
            *self = Self::Never;
        }
        was_there
    }
}
