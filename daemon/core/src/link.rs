//! Links: where a binding's packets go, what the shell finds there, what it may do there, and how that fails.

mod cause;
mod line;
pub mod own;
mod step;

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use smol_str::SmolStr;

pub use self::cause::LinkCause;
pub use self::line::Line;
use self::own::LinkOwner;
pub use self::step::{LinkRoute, Step};
use crate::identity::Lan;
use crate::wire::Mac;

/// The cookie of a network namespace (`SO_NETNS_COOKIE`): its identity within one boot. Paths, inodes and nsids are reused at
/// once after a namespace died; cookies are not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Cookie(pub u64);

/// Where an interface is: the namespace, and the index there.
pub type At = (Cookie, u32);

/// Returns the directory of a namespace's path: if that is missing, nothing is known about its contents. For
/// `/proc/PID/ns/net` it is `/proc`: the rest of the path disappears with the process.
pub fn directory_of(netns: &Path) -> &Path {
    let proc = Path::new("/proc");
    if netns.starts_with(proc) {
        proc
    } else {
        netns.parent().unwrap_or(netns)
    }
}

/// Where a binding's packets go.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Link {
    /// The container's own interface. Known by ifindex: its name may change.
    InNetns {
        /// The path that the caller gave, without the host prefix.
        path: PathBuf,
        /// The namespace that the path led to.
        cookie: Cookie,
        /// The interface's index in that namespace.
        ifindex: u32,
        /// The interface's Ethernet address.
        mac: Mac,
    },
    /// A host link, on behalf of a container whose own interface is not there.
    Parent {
        /// The link's index in the host's namespace.
        ifindex: u32,
        /// The Ethernet address that the container's interface has or had.
        mac: Mac,
        /// The VLAN that the socket is in; 0: none. In a bridge the port is put into it; on any other link the frames bear its
        /// tag.
        #[serde(default, skip_serializing_if = "is_zero")]
        vlan: u16,
        /// Whether the socket is on a temporary port of the link instead of the link itself: on a bridge a veth, on any other
        /// link a macvlan. A frame sent on a bridge never reaches a server that listens on that bridge, and a frame sent on the
        /// parent of macvlans never reaches a server in one of them.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        port: bool,
    },
}

pub(crate) fn is_zero(vlan: &u16) -> bool {
    *vlan == 0
}

impl Link {
    /// Returns a host link as it is, on behalf of a container with this Ethernet address.
    pub fn parent(ifindex: u32, mac: Mac) -> Self {
        Self::Parent {
            ifindex,
            mac,
            vlan: 0,
            port: false,
        }
    }

    /// Returns the host's link that was found for a LAN, on behalf of a container with this Ethernet address; on a bridge with
    /// the socket on a port.
    pub fn parent_of(lan: &Lan, found: &LinkView, mac: Mac) -> Self {
        Self::Parent {
            ifindex: found.ifindex,
            mac,
            vlan: lan.vlan(),
            port: found.has_ports_for(mac),
        }
    }

    /// Returns whether its sockets are on a temporary port of a host link.
    pub fn is_port(&self) -> bool {
        matches!(self, Self::Parent { port: true, .. })
    }

    fn set_port(&mut self, is_port: bool) {
        if let Self::Parent { port, .. } = self {
            *port = is_port;
        }
    }

    /// Returns the Ethernet address that frames of this link bear.
    pub fn mac(&self) -> Mac {
        match self {
            Self::InNetns { mac, .. } | Self::Parent { mac, .. } => *mac,
        }
    }

    /// Returns the path of a container's namespace, `None` for a link of the host.
    pub fn netns(&self) -> Option<&Path> {
        match self {
            Self::InNetns { path, .. } => Some(path),
            Self::Parent { .. } => None,
        }
    }

    /// Returns the namespace and index of a container's own interface, `None` for a link of the host.
    pub fn in_netns(&self) -> Option<(Cookie, u32)> {
        match self {
            Self::InNetns {
                cookie, ifindex, ..
            } => Some((*cookie, *ifindex)),
            Self::Parent { .. } => None,
        }
    }
}

/// An interface by name, before anything else is known about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ByName {
    /// The path of its namespace, without the host prefix.
    pub netns: PathBuf,
    /// Its name there.
    pub ifname: String,
    /// Whether the namespace may be the host's own.
    pub host_too: bool,
}

impl ByName {
    /// Returns its link, as found.
    pub fn link(&self, found: &LinkView) -> Link {
        found.link_in(&self.netns)
    }
}

impl fmt::Display for ByName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} in {}", self.ifname, self.netns.display())
    }
}

/// Where a binding should live, before its link is found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// An interface in a network namespace.
    InNetns(ByName),
    /// The LAN's link in the host's namespace, on behalf of an interface that is not there yet, or whose place nobody knows.
    Parent {
        /// The link's name.
        ifname: String,
        /// The Ethernet address that the interface has or will have.
        mac: Mac,
    },
}

impl Place {
    /// Returns the path of its namespace, `None` for a link of the host.
    pub fn netns(&self) -> Option<&Path> {
        match self {
            Self::InNetns(at) => Some(&at.netns),
            Self::Parent { .. } => None,
        }
    }

    /// Returns the name by which its link is found.
    pub fn ifname(&self) -> &str {
        match self {
            Self::InNetns(ByName { ifname, .. }) | Self::Parent { ifname, .. } => ifname,
        }
    }

    /// Returns what to look at to find its link.
    pub fn target(&self) -> Target {
        match self {
            Self::InNetns(at) => Target::Named(at.clone()),
            Self::Parent { ifname, .. } => Target::Host {
                ifname: ifname.clone(),
            },
        }
    }

    /// Returns its link on this LAN, as found.
    pub fn link(&self, found: &LinkView, lan: &Lan) -> Link {
        match self {
            Self::InNetns(at) => at.link(found),
            Self::Parent { mac, .. } => Link::parent_of(lan, found, *mac),
        }
    }

    /// Returns whether frames sent there leave, as the link was found. A bridge gets carrier from the port that is made.
    pub fn has_carrier(&self, found: &LinkView) -> bool {
        match self {
            Self::InNetns(_) => found.carrier,
            Self::Parent { mac, .. } => found.carrier || found.has_ports_for(*mac),
        }
    }
}

/// The link that an effect is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// An interface by name.
    Named(ByName),
    /// The interface of a running container: the one whose Ethernet address its server knows. Usually it has this name, but a
    /// stand-in may have taken the name; if no interface can be identified, the effect fails with the reason.
    OfServer(ByName, Mac),
    /// A link seen before. The shell refuses if the path now leads to another namespace.
    Known(Link),
    /// A link of the host by name.
    Host {
        /// The link's name in the host's namespace.
        ifname: String,
    },
}

impl Target {
    /// Returns the path of its namespace, `None` for a link of the host.
    pub fn netns(&self) -> Option<&Path> {
        match self {
            Self::Named(at) | Self::OfServer(at, _) => Some(&at.netns),
            Self::Known(link) => link.netns(),
            Self::Host { .. } => None,
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Named(at) | Self::OfServer(at, _) => at.fmt(f),
            Self::Known(Link::InNetns { path, ifindex, .. }) => {
                write!(f, "link {ifindex} in {}", path.display())
            }
            Self::Known(Link::Parent { ifindex, .. }) => write!(f, "host link {ifindex}"),
            Self::Host { ifname } => write!(f, "host link {ifname}"),
        }
    }
}

/// The wire of a container's link, as the kernel knows it: the link was made on the host's, or is a veth whose other end is a bridge's
/// port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wire {
    /// The name of the host's link.
    pub parent: SmolStr,
    /// The VLAN on that link; 0 when untagged, and where a bridge's port decides.
    pub vlan: u16,
    /// If the host's link is a bridge that filters VLANs: the VLAN of a port that was given none.
    pub default_pvid: Option<u16>,
}

impl Wire {
    /// Returns its LAN, where a configuration has named `named`: that knows the VLAN of a port of its own bridge, and nothing else. A
    /// bridge that filters no VLANs has one LAN, and its default VLAN is the untagged one.
    pub fn lan(&self, named: &Lan) -> Lan {
        let vlan = match self.default_pvid {
            Some(default) if named.parent() == Some(&self.parent) && named.vlan() != default => {
                named.vlan()
            }
            _ => self.vlan,
        };
        Lan::Link {
            parent: self.parent.clone(),
            vlan,
        }
    }
}

/// What the shell found at a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkView {
    /// The namespace it is in.
    pub cookie: Cookie,
    /// Its index there.
    pub ifindex: u32,
    /// Its name there, for display.
    pub ifname: String,
    /// Its Ethernet address.
    pub mac: Mac,
    /// Its MTU in bytes.
    pub mtu: u32,
    /// Whether it is administratively up (`IFF_UP`).
    pub up: bool,
    /// Whether it has carrier (`IFF_LOWER_UP`).
    pub carrier: bool,
    /// Whether it was down or had no carrier before the visit that set it up.
    pub was_down: bool,
    /// The addresses on it, in the families that were looked for.
    pub addresses: Vec<IpNet>,
    /// The IPv4 routes over it that the kernel did not make itself, if they were looked at.
    pub routes: Option<Vec<LinkRoute>>,
    /// Whether it is a bridge.
    pub bridge: bool,
    /// Whether it is a macvlan.
    pub macvlan: bool,
    /// The index of the host's link that it is a macvlan on. A frame from that link leaves on the wire and reaches none of
    /// its macvlans; the kernel copies a broadcast from one of them for each of the others.
    pub lower: Option<u32>,
    /// The wire that it is on, if its kind tells; `None`: what configures the network says.
    pub wire: Option<Wire>,
    /// Whether it is wireless: its access point accepts frames from one Ethernet address only.
    pub wireless: bool,
    /// Frames that came in on it so far.
    pub received: u64,
}

impl LinkView {
    /// Returns its link, by the path of its namespace.
    fn link_in(&self, netns: &Path) -> Link {
        Link::InNetns {
            path: netns.to_owned(),
            cookie: self.cookie,
            ifindex: self.ifindex,
            mac: self.mac,
        }
    }

    /// Returns the namespace that it is in, and its index there.
    pub fn at(&self) -> (Cookie, u32) {
        (self.cookie, self.ifindex)
    }

    /// Returns whether it has an address.
    pub(crate) fn has(&self, address: IpAddr) -> bool {
        self.addresses.iter().any(|own| own.addr() == address)
    }

    /// Returns whether it is a bridge with ports that can speak for this Ethernet address. No port can speak for the bridge's
    /// own: frames to that address come out at no port.
    pub fn has_ports_for(&self, mac: Mac) -> bool {
        self.bridge && self.mac != mac
    }
}

/// An interface that a binding on the LAN's link waits for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Sought {
    /// Its Ethernet address.
    pub mac: Mac,
    /// The wire that it is on.
    pub lan: Lan,
}

/// Such an interface that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sighting {
    /// What was looked for.
    pub sought: Sought,
    /// The path of the namespace that it is in, without the host prefix.
    pub netns: PathBuf,
    /// The interface.
    pub view: LinkView,
}

impl Sighting {
    /// Returns its link.
    pub fn link(&self) -> Link {
        self.view.link_in(&self.netns)
    }
}

/// What was found in the namespaces of an engine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sightings {
    /// The interfaces.
    pub found: Vec<Sighting>,
    /// How many namespaces were looked through.
    pub seen: usize,
    /// Whether every namespace that exists was looked through.
    pub whole: bool,
    /// The first thing that could not be looked at.
    pub unseen: Option<LinkCause>,
}

/// The ARP that a packet socket hears. Only IPv4, and not what this host sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hears {
    /// Replies to the link's own Ethernet address ([`Link::mac`]).
    Answers,
    /// Also all whose sender or target is this address.
    About(Ipv4Addr),
}

/// Which sockets an exchange wants. Always one packet socket: it hears UDP to port 68 with the client's chaddr.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sockets {
    /// The client's hardware address in answers: that of its messages, which may differ from the link's.
    pub chaddr: Mac,
    /// Which ARP the packet socket hears.
    pub arp: Hears,
    /// A UDP socket bound to this address, port 68, takes the kernel's copy of a unicast answer, so that the kernel does not
    /// tell the server that the port is unreachable. If it cannot be bound, the exchange goes on.
    pub hold_port: Option<Ipv4Addr>,
}

impl Sockets {
    /// Returns those that hold no port.
    pub fn new(chaddr: Mac, arp: Hears) -> Self {
        Self {
            chaddr,
            arp,
            hold_port: None,
        }
    }
}

/// What the kernel reported about a namespace or link, unasked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KernelMessage {
    /// A namespace died, with everything in it.
    NetnsDied(Cookie),
    /// The path of a namespace no longer leads to it. It may live on, or only the daemon's own sockets keep it.
    PathGone(Cookie),
    /// A link was deleted or moved away.
    LinkGone(At),
    /// A link's carrier, as a message about it says: whether it is up and has carrier. Sent even if that did not change.
    Carrier(At, bool),
    /// A link is administratively down, as a message about it says: the kernel has taken its routes. Sent even if it was down
    /// before, and before what the same message says about carrier.
    Down(At),
    /// A link's Ethernet address, as a message about it says. Sent even if it did not change, and before what the same message
    /// says about carrier.
    Ethernet(At, Mac),
    /// A link was seen in a namespace that the daemon has not looked at, perhaps an engine's.
    Appeared {
        /// The number that the host's namespace has for that one (nsid); by now it may be another's.
        number: i32,
        /// The link's Ethernet address.
        mac: Mac,
    },
    /// One of our links appeared in the host's namespace, or left it.
    OwnLink {
        /// Whose it is.
        owner: LinkOwner,
        /// Whether it is there.
        there: bool,
    },
    /// An address appeared on a link.
    AddressAdded(At, IpAddr),
    /// An address disappeared from a link.
    AddressGone(At, IpAddr),
    /// Messages were lost: anything may have happened.
    Missed,
}
