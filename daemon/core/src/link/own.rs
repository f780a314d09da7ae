//! The links that the daemon makes in the host's namespace, for a front door.
//!
//! Such a link is known by its alias, which names its owner, and by nothing else.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::identity::DoorId;
use crate::wire::Mac;

/// The longest name of a link, in bytes (`IFNAMSIZ` without its end).
pub const LONGEST_NAME: usize = 15;

/// How macvlans of one parent hear each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MacvlanMode {
    /// Directly.
    #[default]
    Bridge,
    /// Not at all.
    Private,
    /// Through the switch, if that reflects frames.
    Vepa,
    /// There is only one, which has the parent to itself.
    Passthru,
}

/// The owner of a link that the daemon made, as its alias says.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LinkOwner {
    /// An endpoint.
    Endpoint(DoorId),
    /// All networks in a VLAN of a parent.
    Vlan {
        /// The parent.
        on: String,
        /// The VLAN.
        vlan: u16,
    },
}

/// The beginning of the name of an endpoint's link.
const ENDPOINT: &str = "lh";

impl LinkOwner {
    /// Returns the link's name in the host's namespace.
    pub fn ifname(&self) -> String {
        match self {
            Self::Endpoint(id) => format!("{ENDPOINT}{}", id.short()),
            Self::Vlan { on, vlan } => format!("{on}.{vlan}"),
        }
    }

    /// Returns an endpoint whose link has this name: its id has only the digits in the name.
    pub fn named(ifname: &str) -> Option<Self> {
        let id = ifname
            .strip_prefix(ENDPOINT)
            .filter(|id| id.len() == DoorId::SHORT)?;
        DoorId::try_from(id.to_owned()).ok().map(Self::Endpoint)
    }
}

impl fmt::Display for LinkOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Endpoint(id) => write!(f, "endpoint {}", id.as_str()),
            Self::Vlan { on, vlan } => write!(f, "VLAN {vlan} of {on}"),
        }
    }
}

/// A link that the daemon makes in the host's namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnLink {
    /// Its owner, which gives it its name.
    pub owner: LinkOwner,
    /// What it is.
    pub kind: LinkKind,
    /// The host's link that it is made on, or the bridge that its other end is a port of.
    pub on: String,
    /// Its Ethernet address; `None`: that of the link that it is made on.
    pub mac: Option<Mac>,
    /// Its MTU, in bytes; `None`: that of the link that it is made on.
    pub mtu: Option<u32>,
}

/// The links in the host's namespace that bear the alias of this daemon or of one with another store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnLinks {
    /// The owners of those that were made by daemons with this store.
    pub owners: Vec<LinkOwner>,
    /// The names of those that were made by daemons with another store: this one leaves them alone.
    pub strangers: Vec<String>,
}

/// The kind of a link that the daemon makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkKind {
    /// A macvlan.
    Macvlan(MacvlanMode),
    /// An ipvlan in L2 mode.
    Ipvlan,
    /// One end of a veth, whose other end is a port of a bridge.
    Port,
    /// A VLAN (802.1Q).
    Vlan(u16),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_an_endpoints_link_is_never_too_long() {
        let owner = LinkOwner::Endpoint(DoorId::try_from("f".repeat(64)).expect("an id"));
        assert_eq!(owner.ifname(), "lhffffffffffff");
        assert!(owner.ifname().len() <= LONGEST_NAME);
    }
}
