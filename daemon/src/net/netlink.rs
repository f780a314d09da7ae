//! rtnetlink, as much of it as it takes to look at a link. [`steps`](super::steps) change a link.
//!
//! The kernel carries out a request inside `send`, under its own lock; when `send` returns, the answer is in the socket's queue.
//! So nothing here waits in `recv`, and no runtime is needed: a worker thread opens a socket in a namespace, asks and closes it.
//!
//! Only attributes that are used are decoded: an attribute that a newer kernel adds or fills in differently cannot make a link
//! unreadable.

mod answer;

use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;

use ipnet::{IpNet, Ipv4Net};
use leasehold_core::link::own::LinkKind;
use leasehold_core::link::{Cookie, LinkCause, LinkView, Wire};
use leasehold_core::wire::Mac;
use netlink_packet_core::{
    NLM_F_ACK, NLM_F_ACK_TLVS, NLM_F_CAPPED, NLM_F_DUMP, NLM_F_REQUEST, NLMSG_DONE, NLMSG_ERROR,
    NetlinkBuffer, NetlinkMessage,
};
use netlink_packet_route::link::{LinkAttribute, LinkMessage};
use netlink_packet_route::nsid::{NsidAttribute, NsidMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage, address::AddressMessage};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};
use nix::fcntl::{OFlag, open};
use nix::sys::socket::GetSockOpt;
use nix::sys::stat::Mode;
use nix::{getsockopt_impl, libc, sockopt_impl};

pub(super) use self::answer::{AddressAnswer, LinkAnswer, attribute_in, nsid_in};

/// Longer than any datagram from the kernel. It fills at most 32 KiB of a dump at a time, but a single link may have up
/// to 64 KiB of alternative names, which the administrator of a container's network can give it.
pub(super) const LONGEST: usize = 96 * 1024;

sockopt_impl!(
    /// Which namespace a socket is in (Linux 5.14).
    CookieOption, GetOnly, libc::SOL_SOCKET, libc::SO_NETNS_COOKIE, u64
);

/// Returns the cookie of the namespace that `socket` was made in.
pub(super) fn cookie_of<S: AsFd>(socket: &S) -> io::Result<Cookie> {
    Ok(CookieOption.get(socket).map(Cookie)?)
}

/// Opens the calling thread's namespace.
pub(super) fn own_ns() -> nix::Result<OwnedFd> {
    // Not /proc/self: that is the main thread's.
    open(
        "/proc/thread-self/ns/net",
        OFlag::O_RDONLY | OFlag::O_CLOEXEC,
        Mode::empty(),
    )
}

/// A netlink socket in one namespace.
#[derive(Debug)]
pub(super) struct Netlink {
    socket: Socket,
    /// The host's namespace, which holds the links below those of other namespaces.
    host: Option<Arc<OwnedFd>>,
    sequence: u32,
    answer: Vec<u8>,
}

/// Which link is meant.
#[derive(Clone, Copy, Debug)]
pub(super) enum Which<'a> {
    Index(u32),
    Name(&'a str),
    /// By its Ethernet address, with the name that it had.
    Station(&'a str, Mac),
}

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum NetlinkError {
    /// The kernel refused, with its own explanation if it gives one.
    #[error("{}", .text.clone().unwrap_or_else(|| io::Error::from_raw_os_error(*.errno).to_string()))]
    Kernel { errno: i32, text: Option<String> },
    /// The socket failed.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The answer cannot be read.
    #[error("unreadable answer: {0}")]
    Unreadable(&'static str),
}

impl NetlinkError {
    /// Returns what it means for a link that was to be looked at or changed.
    pub(super) fn at(self, which: Which<'_>, doing: &'static str) -> LinkCause {
        if self.is(libc::ENODEV) {
            which.missing()
        } else {
            LinkCause::refused(doing, self)
        }
    }

    /// Returns whether it is this refusal of the kernel.
    pub(super) fn is(&self, refusal: i32) -> bool {
        matches!(self, Self::Kernel { errno, .. } if *errno == refusal)
    }
}

impl Netlink {
    /// Opens a socket in the calling thread's namespace.
    pub(super) fn open() -> io::Result<Self> {
        let socket = Socket::new(NETLINK_ROUTE)?;
        // Without it the kernel ignores the ifindex in a request for addresses and lists the addresses of all links.
        socket.set_netlink_get_strict_chk(true)?;
        socket.set_ext_ack(true)?;
        // From here on only the kernel is heard. Otherwise the administrator of a container's network could forge the answers, or
        // keep a thread busy with other messages.
        socket.connect(&SocketAddr::new(0, 0))?;
        Ok(Self {
            socket,
            host: None,
            sequence: 0,
            answer: Vec::new(),
        })
    }

    /// Returns this socket with the ability to find the host's link below a link.
    pub(super) fn on(self, host: &Arc<OwnedFd>) -> Self {
        Self {
            host: Some(Arc::clone(host)),
            ..self
        }
    }

    /// Returns the cookie of the namespace that the socket was opened in.
    pub(super) fn cookie(&self) -> io::Result<Cookie> {
        cookie_of(&self.socket)
    }

    /// Returns whether the socket's namespace has given the number `number` to another. True if the kernel cannot be asked.
    pub(super) fn has_number(&mut self, number: i32) -> bool {
        let mut request = NsidMessage::default();
        request.attributes.push(NsidAttribute::Id(number));
        let asked = self.request(RouteNetlinkMessage::GetNsId(request), 0, |_, _| Ok(()));
        !asked.is_err_and(|error| error.is(libc::ENOENT))
    }

    /// Returns the number that the socket's namespace has given to the one whose file is `ns`, if any.
    pub(super) fn number_of<F: AsFd>(&mut self, ns: &F) -> Result<Option<i32>, NetlinkError> {
        let mut request = NsidMessage::default();
        request
            .attributes
            .push(NsidAttribute::Fd(ns.as_fd().as_raw_fd().cast_unsigned()));
        let mut number = None;
        self.request(RouteNetlinkMessage::GetNsId(request), 0, |kind, payload| {
            if kind == libc::RTM_NEWNSID {
                number = nsid_in(payload).filter(|number| *number >= 0);
            }
            Ok(())
        })?;
        Ok(number)
    }

    /// Lists the numbers that the socket's namespace has given to others.
    pub(super) fn numbers(&mut self) -> Result<Vec<i32>, NetlinkError> {
        let mut numbers = Vec::new();
        self.request(
            RouteNetlinkMessage::GetNsId(NsidMessage::default()),
            NLM_F_DUMP,
            |kind, payload| {
                if kind == libc::RTM_NEWNSID {
                    numbers.extend(nsid_in(payload).filter(|number| *number >= 0));
                }
                Ok(())
            },
        )?;
        Ok(numbers)
    }

    /// Lists the links on a wire, in the socket's namespace or in the one with this number.
    pub(super) fn wired(&mut self, number: Option<i32>) -> Result<Vec<LinkAnswer>, NetlinkError> {
        let request = link_message(0, number.map(LinkAttribute::IfNetnsId));
        let mut links = Vec::new();
        let is_wire = |link: &LinkAnswer| link.kind == libc::ARPHRD_ETHER && !link.dummy;
        self.each_link_of(request, |link| links.extend(Some(link).filter(is_wire)))?;
        Ok(links)
    }

    pub(super) fn each_link(&mut self, take: impl FnMut(LinkAnswer)) -> Result<(), NetlinkError> {
        self.each_link_of(LinkMessage::default(), take)
    }

    fn each_link_of(
        &mut self,
        of: LinkMessage,
        mut take: impl FnMut(LinkAnswer),
    ) -> Result<(), NetlinkError> {
        self.request(
            RouteNetlinkMessage::GetLink(of),
            NLM_F_DUMP,
            |kind, payload| {
                if kind == libc::RTM_NEWLINK {
                    take(LinkAnswer::read(payload)?);
                }
                Ok(())
            },
        )
    }

    /// Looks at a link and its addresses.
    pub(super) fn view(&mut self, which: Which<'_>, cookie: Cookie) -> Result<LinkView, LinkCause> {
        let (link, mac) = self.ethernet(which)?;
        let addresses = self
            .addresses(link.index)
            .map_err(|error| error.at(which, "list the addresses"))?;
        let failed = |error| LinkCause::refused("look at the wire of a link", error);
        let host = self.number_of_host(&link).map_err(failed)?;
        let lower = host.filter(|_| link.macvlan).map(|_| link.other);
        let wire = match host {
            Some(number) => self.wire(&link, number).map_err(failed)?,
            None => None,
        };
        Ok(LinkView {
            cookie,
            ifindex: link.index,
            up: link.is_up(),
            carrier: link.has_carrier(),
            was_down: false,
            ifname: link.name,
            mac,
            mtu: link.mtu,
            bridge: link.bridge,
            macvlan: link.macvlan,
            lower,
            wire,
            wireless: false,
            received: link.received,
            addresses,
            routes: None,
        })
    }

    /// Returns the number of the host's namespace, if a link's other end is there. An index alone may be any namespace's.
    fn number_of_host(&mut self, link: &LinkAnswer) -> Result<Option<i32>, NetlinkError> {
        let host = self.host.clone().filter(|_| link.other != 0);
        let (Some(host), Some(number)) = (host, link.other_ns) else {
            return Ok(None);
        };
        Ok(self.number_of(&host)?.filter(|host| *host == number))
    }

    /// Returns the wire of a link whose other end is in the namespace `number`; `None` if the link's kind does not tell.
    fn wire(&mut self, link: &LinkAnswer, number: i32) -> Result<Option<Wire>, NetlinkError> {
        let Some(beneath) = self.link_at(link.other, number)? else {
            return Ok(None);
        };
        let (parent, vlan) = match link.made {
            _ if link.upper => (beneath, 0),
            Some(LinkKind::Vlan(vlan)) => (beneath, vlan),
            Some(LinkKind::Port) if beneath.is_port() => {
                match self.link_at(beneath.master, number)? {
                    Some(found) if found.bridge => (found, 0),
                    _ => return Ok(None),
                }
            }
            _ => return Ok(None),
        };
        Ok(Some(Wire {
            parent: parent.name.into(),
            vlan,
            default_pvid: parent.default_pvid,
        }))
    }

    /// Looks at a link in the namespace `number`; `None` if it has just gone.
    fn link_at(&mut self, index: u32, number: i32) -> Result<Option<LinkAnswer>, NetlinkError> {
        let request = link_message(index, [LinkAttribute::IfNetnsId(number)]);
        match self.link_of(request) {
            Err(error) if error.is(libc::ENODEV) => Ok(None),
            found => found.map(Some),
        }
    }

    /// Looks at a link, and refuses one without an Ethernet address.
    pub(super) fn ethernet(&mut self, which: Which<'_>) -> Result<(LinkAnswer, Mac), LinkCause> {
        let link = self.link(which)?;
        match link.mac {
            Some(mac) if link.kind == libc::ARPHRD_ETHER => Ok((link, mac)),
            _ => Err(LinkCause::NotEthernet(link.name)),
        }
    }

    /// Returns the index of the interface whose Ethernet address a server knows, usually the one with that name.
    ///
    /// Others may have the address too: a stand-in under the interface's name, or the bridge that the interface was made a port
    /// of. The right one is the link whose other end is outside, else a bridge's port: nothing else can reach a server.
    pub(super) fn station(&mut self, name: &str, mac: Mac) -> Result<u32, LinkCause> {
        let mut stations = Vec::new();
        let mut stands_in = false;
        let mut is_named = false;
        let asked = self.each_link(|link| {
            let is_own = link.name == name;
            is_named |= is_own;
            if link.mac == Some(mac) && link.kind == libc::ARPHRD_ETHER {
                stands_in |= is_own && !link.leads_out() && !link.is_port();
                stations.extend((link.leads_out() || link.is_port()).then_some((
                    link.leads_out(),
                    is_own,
                    link.index,
                )));
            }
        });
        asked.map_err(|error| LinkCause::refused("look for the container's interface", error))?;
        if stations.is_empty() && !is_named {
            return Err(LinkCause::NoLink(name.to_owned()));
        }
        stations.sort_unstable();
        match &stations[..] {
            [.., (out, own, _), (leads_out, is_own, index)] if (out, own) < (leads_out, is_own) => {
                Ok(*index)
            }
            [(.., index)] => Ok(*index),
            several => {
                let stand_in = if stands_in {
                    format!("; {name} is only a stand-in")
                } else {
                    String::new()
                };
                let number = several.len();
                let reason = format!(
                    "{number} links with a way out have {mac}, the address that the server knows{stand_in}"
                );
                Err(LinkCause::refused("tell the container's interface", reason))
            }
        }
    }

    fn link_of(&mut self, request: LinkMessage) -> Result<LinkAnswer, NetlinkError> {
        let mut found = None;
        self.request(RouteNetlinkMessage::GetLink(request), 0, |kind, payload| {
            if kind == libc::RTM_NEWLINK {
                found = Some(LinkAnswer::read(payload)?);
            }
            Ok(())
        })?;
        found.ok_or(NetlinkError::Unreadable("no link in it"))
    }

    /// Looks at a link without its addresses.
    pub(super) fn link(&mut self, which: Which<'_>) -> Result<LinkAnswer, LinkCause> {
        let request = match which {
            Which::Index(index) => link_message(index, []),
            // The kernel's error for an impossible name says no more than ENODEV.
            Which::Name(name)
                if name.is_empty() || name.len() >= libc::IFNAMSIZ || name.contains('\0') =>
            {
                return Err(which.missing());
            }
            Which::Name(name) | Which::Station(name, _) => {
                link_message(0, [LinkAttribute::IfName(name.to_owned())])
            }
        };
        self.link_of(request)
            .map_err(|error| error.at(which, "look at the link"))
    }

    /// Lists a link's IPv4 addresses.
    fn addresses(&mut self, index: u32) -> Result<Vec<IpNet>, NetlinkError> {
        let mut addresses = Vec::new();
        self.dump_addresses(index, |address| {
            if address.index == index {
                addresses.extend(IpNet::new(address.address.into(), address.prefix));
            }
        })?;
        Ok(addresses)
    }

    /// Dumps the IPv4 addresses of a link, or with 0 of all. Kernels that do not filter dump those of all links.
    fn dump_addresses(
        &mut self,
        index: u32,
        mut each: impl FnMut(AddressAnswer),
    ) -> Result<(), NetlinkError> {
        let mut request = AddressMessage::default();
        request.header.family = AddressFamily::Inet;
        request.header.index = index;
        let request = RouteNetlinkMessage::GetAddress(request);
        self.request(request, NLM_F_DUMP, |kind, payload| {
            if kind == libc::RTM_NEWADDR
                && let Some(address) = AddressAnswer::read(payload)?
            {
                each(address);
            }
            Ok(())
        })
    }

    /// Returns the names of the links that have an IPv4 address with this very prefix, except for macvlans, ipvlans and bridge ports.
    pub(super) fn links_in(&mut self, subnet: Ipv4Net) -> Result<Vec<String>, NetlinkError> {
        let mut having = BTreeSet::new();
        self.dump_addresses(0, |address| {
            if address.prefix == subnet.prefix_len() && subnet.contains(&address.address) {
                having.insert(address.index);
            }
        })?;
        let mut names = Vec::new();
        self.each_link(|link| {
            let is_lan = having.contains(&link.index) && !link.upper && !link.is_port();
            names.extend(is_lan.then_some(link.name));
        })?;
        Ok(names)
    }

    /// Asks for a change.
    pub(super) fn change(
        &mut self,
        request: RouteNetlinkMessage,
        flags: u16,
    ) -> Result<(), NetlinkError> {
        self.request(request, flags | NLM_F_ACK, |_, _| Ok(()))
    }

    /// Deletes a link, which may have gone.
    pub(super) fn delete(&mut self, index: u32) -> Result<(), LinkCause> {
        match self.change(RouteNetlinkMessage::DelLink(link_message(index, [])), 0) {
            Err(error) if !error.is(libc::ENODEV) => {
                Err(error.at(Which::Index(index), "delete a link"))
            }
            _ => Ok(()),
        }
    }

    /// Sends a request, and passes the kind and payload of every message of the answer to `each`.
    pub(super) fn request(
        &mut self,
        request: RouteNetlinkMessage,
        flags: u16,
        mut each: impl FnMut(u16, &[u8]) -> Result<(), NetlinkError>,
    ) -> Result<(), NetlinkError> {
        self.sequence += 1;
        let bytes = encode(request, NLM_F_REQUEST | flags, self.sequence);
        self.socket.send_to(&bytes, &SocketAddr::new(0, 0), 0)?;
        loop {
            self.answer.clear();
            // The answer is already there; if it is not, an error is better than a thread that waits.
            let peek = libc::MSG_DONTWAIT | libc::MSG_PEEK | libc::MSG_TRUNC;
            let length = self.socket.recv::<&mut [u8]>(&mut &mut [][..], peek)?;
            self.answer.reserve(length.min(LONGEST));
            self.socket.recv(&mut self.answer, libc::MSG_DONTWAIT)?;
            if length > self.answer.len() {
                return Err(NetlinkError::Unreadable("longer than any"));
            }
            for message in Messages::new(&self.answer) {
                if message.sequence_number() != self.sequence {
                    continue;
                }
                match message.message_type() {
                    // Both carry a code: a dump that fails says so at its end.
                    NLMSG_DONE | NLMSG_ERROR => return verdict(&message),
                    kind => each(kind, message.payload())?,
                }
                if flags & (NLM_F_ACK | NLM_F_DUMP) == 0 {
                    return Ok(());
                }
            }
        }
    }
}

impl Which<'_> {
    fn missing(self) -> LinkCause {
        LinkCause::NoLink(match self {
            Self::Index(index) => format!("with index {index}"),
            Self::Name(name) | Self::Station(name, _) => name.to_owned(),
        })
    }
}

/// Returns a request about the link of an index, or with 0 about the one that its attributes name.
pub(super) fn link_message(
    index: u32,
    attributes: impl IntoIterator<Item = LinkAttribute>,
) -> LinkMessage {
    let mut message = LinkMessage::default();
    message.header.index = index;
    message.attributes.extend(attributes);
    message
}

/// Encodes one message.
pub(super) fn encode(request: RouteNetlinkMessage, flags: u16, sequence: u32) -> Vec<u8> {
    let mut message = NetlinkMessage::from(request);
    message.header.flags = flags;
    message.header.sequence_number = sequence;
    message.finalize();
    let mut bytes = vec![0; message.buffer_len()];
    message.serialize(&mut bytes);
    bytes
}

/// Walks over the messages of one datagram, to its end or to the first message that runs over it.
pub(super) struct Messages<'a>(&'a [u8]);

impl<'a> Messages<'a> {
    pub(super) fn new(datagram: &'a [u8]) -> Self {
        Self(datagram)
    }
}

impl<'a> Iterator for Messages<'a> {
    type Item = NetlinkBuffer<&'a [u8]>;

    fn next(&mut self) -> Option<Self::Item> {
        let message = NetlinkBuffer::new_checked(self.0).ok()?;
        let length = message.length() as usize;
        self.0 = self.0.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some(message)
    }
}

/// Reads the code of an NLMSG_ERROR or NLMSG_DONE; 0 acknowledges.
fn verdict(message: &NetlinkBuffer<&[u8]>) -> Result<(), NetlinkError> {
    let payload = message.payload();
    let code = payload
        .first_chunk()
        .map(|bytes| i32::from_ne_bytes(*bytes));
    match code {
        None => Err(NetlinkError::Unreadable("an error without a code")),
        Some(0) => Ok(()),
        Some(code) => Err(NetlinkError::Kernel {
            errno: code.saturating_neg(),
            text: sentence(message.flags(), payload),
        }),
    }
}

/// Returns the kernel's own explanation of an error (`NLMSGERR_ATTR_MSG`), which follows a copy of the request.
fn sentence(flags: u16, payload: &[u8]) -> Option<String> {
    const CODE: usize = 4;
    const HEADER: usize = 16;
    const MSG: u16 = 1;
    if flags & NLM_F_ACK_TLVS == 0 {
        return None;
    }
    let copied = match flags & NLM_F_CAPPED {
        0 => u32::from_ne_bytes(*payload.get(CODE..)?.first_chunk()?) as usize,
        _ => HEADER,
    };
    let attributes = payload.get(CODE.checked_add(copied)?.checked_next_multiple_of(4)?..)?;
    let text = String::from_utf8_lossy(attribute_in(attributes, MSG)?);
    Some(text.trim_end_matches('\0').to_owned())
}
