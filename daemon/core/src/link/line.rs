//! Where the host speaks on a LAN: over the LAN's link itself, or from a macvlan beside it.
//!
//! A frame from the parent of macvlans leaves on the wire and reaches none of them, so a server in one of them, such as in a
//! container on the same network, does not hear it. A frame from a macvlan reaches the others and the wire.
//!
//! A bridge has ports for that. There is no macvlan in a VLAN for which the LAN's link has no interface, because none would hear
//! tagged frames; and none can be made if children share the link's own Ethernet address.

use super::{Link, LinkView};
use crate::rules::{Rule, cut};

/// Where the host speaks on a LAN.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// The link for its sockets.
    pub link: Link,
    /// Whether it may go beside the LAN's link.
    may_go: bool,
    is_beside: bool,
}

impl Line {
    /// Returns the line over a LAN's link that was found like this. `shared`: the LAN's clients have the link's Ethernet address.
    pub fn over(link: Link, found: &LinkView, shared: bool) -> Self {
        let is_port = found.bridge || link.is_port();
        let is_plain = !is_port && matches!(link, Link::Parent { vlan: 0, .. });
        Self {
            link,
            may_go: is_plain && !shared && !cut(Rule::Beside),
            is_beside: false,
        }
    }

    /// Returns whether it speaks from beside the LAN's link.
    pub fn is_beside(&self) -> bool {
        self.is_beside
    }

    /// Goes there from the LAN's link, if possible. Returns whether it does so now.
    pub fn go_beside(&mut self) -> bool {
        let goes = std::mem::take(&mut self.may_go);
        if goes {
            self.is_beside = true;
            self.link.set_port(true);
        }
        goes
    }

    /// Goes back to the LAN's link and stays there: no such macvlan is possible. Returns whether it was beside the link.
    pub fn come_back(&mut self) -> bool {
        let was_there = std::mem::take(&mut self.is_beside);
        if was_there {
            self.link.set_port(false);
        }
        was_there
    }
}
