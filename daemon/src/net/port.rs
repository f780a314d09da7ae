//! A port of a bridge, or of a parent of macvlans, made for one exchange.
//!
//! A frame sent on a bridge leaves through its ports and never reaches a listener on the bridge itself; a frame that comes in
//! through a port reaches both. So the exchange gets a veth: one end is a port of the bridge, and the exchange's socket is on the
//! other. A frame sent on the parent of macvlans leaves on the wire and reaches none of them; a frame that a macvlan sends
//! reaches the wire and the others. So there the exchange gets a macvlan in bridge mode.
//!
//! The socket's end is in a network namespace of its own, which only the socket keeps alive. In the host's namespace, that end
//! would answer ARP for the host's addresses on the whole LAN. Nor does it need cleaning up: when the socket closes, even because
//! the daemon is killed, the kernel ends the namespace, and with it both ends of the veth, or the macvlan.
//!
//! That takes the kernel a while, though, and the socket must be closed first. If somebody waits for the port's Ethernet address,
//! the port is removed explicitly.
//!
//! A port must not change its bridge. A bridge takes on the lowest Ethernet address and the smallest MTU of its ports, so the
//! port's address is high, and its MTU is the bridge's. A macvlan does not affect its parent.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::link::LinkCause;
use leasehold_core::wire::Mac;
use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL, NLM_F_REQUEST, NetlinkBuffer};
use netlink_packet_route::link::{
    AfSpecBridge, AfSpecInet6, AfSpecUnspec, BridgeVlanInfo, BridgeVlanInfoFlags, In6AddrGenMode,
    InfoData, InfoKind, InfoMacVlan, InfoVeth, LinkAttribute, LinkInfo, LinkMessage, MacVlanMode,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};
use nix::libc;
use tokio::time::timeout;
use tracing::debug;

use super::failed;
use super::netlink::{
    LONGEST, LinkAnswer, Messages, Netlink, NetlinkError, Which, encode, link_message, own_ns,
};
use super::ready::Ready;

/// How long a bridge may take before a new port forwards. With the spanning tree protocol it first listens and
/// then learns, for at most 30 s each (802.1D-1998 §8.10.2).
const FORWARDS_WITHIN: Duration = Duration::from_secs(62);
/// The socket's end, in its own namespace.
const INSIDE: &str = "eth0";
/// The bridge's end; the kernel fills in a number.
const OUTSIDE: &str = "lh-%d";
/// Explains the bridge's end to an operator who finds it.
pub(super) const ALIAS: &str = "leasehold: gives a lease back, and then removes itself";

/// A port, which may not yet forward.
#[derive(Debug)]
pub(super) struct Port {
    /// The link whose state says whether the port forwards.
    index: u32,
    /// Receives news of links in that link's namespace.
    news: Arc<Socket>,
    forwards: fn(&LinkAnswer) -> bool,
}

/// A namespace's netlink socket and file.
pub(super) struct Place<'a> {
    pub(super) netlink: &'a mut Netlink,
    pub(super) ns: BorrowedFd<'a>,
}

impl Port {
    /// Opens a socket for news of links in the calling thread's namespace.
    pub(super) fn news() -> Result<Arc<Socket>, LinkCause> {
        let opened = Socket::new(NETLINK_ROUTE).and_then(|mut socket| {
            socket.bind_auto()?;
            socket.add_membership(libc::RTNLGRP_LINK)?;
            Ok(Arc::new(socket))
        });
        opened.map_err(|error| failed("open a netlink socket for links", &error))
    }

    /// Makes a port of the link `on` at `host`, whose end in this namespace gets the address `mac`. Returns the port
    /// and the index of that end. `news`, from the host's namespace, reports on a bridge's port.
    pub(super) fn make(
        host: Place<'_>,
        on: u32,
        vlan: u16,
        mac: Mac,
        news: Arc<Socket>,
    ) -> Result<(Self, u32), LinkCause> {
        let (carrying, _) = host.netlink.ethernet(Which::Index(on))?;
        match (carrying.is_up(), carrying.bridge) {
            (false, _) => Err(LinkCause::Down),
            (true, true) => Self::of_bridge(host, &carrying, vlan, mac, news),
            (true, false) => Self::of_parent(host, on, mac),
        }
    }

    fn of_bridge(
        host: Place<'_>,
        bridge: &LinkAnswer,
        vlan: u16,
        mac: Mac,
        news: Arc<Socket>,
    ) -> Result<(Self, u32), LinkCause> {
        let Place { netlink, ns } = host;
        let mut here = open_netlink()?;
        let made = here.change(veth(mac, bridge.mtu, ns), NLM_F_CREATE | NLM_F_EXCL);
        made.map_err(|error| error.at(Which::Name(INSIDE), "make a veth"))?;
        let (end, _) = here.ethernet(Which::Name(INSIDE))?;
        let inside = end.index;
        let index = end.other;
        without_ipv6(&mut here, inside);
        without_ipv6(netlink, index);
        let failed = |doing| move |error: NetlinkError| error.at(Which::Index(index), doing);
        netlink
            .set(index, LinkAttribute::IfAlias(ALIAS.to_owned()))
            .map_err(failed("name a bridge's port"))?;
        netlink
            .set(index, LinkAttribute::Controller(bridge.index))
            .map_err(failed("make a port of the bridge"))?;
        if vlan != 0 {
            let vlan = RouteNetlinkMessage::SetLink(in_vlan(index, vlan));
            netlink
                .change(vlan, 0)
                .map_err(failed("put a bridge's port into its VLAN"))?;
        }
        netlink
            .set_up(index)
            .map_err(failed("set a bridge's port up"))?;
        here.set_up(inside)
            .map_err(|error| error.at(Which::Index(inside), "set a veth up"))?;
        debug!(
            bridge = bridge.index,
            index, vlan, "made a port of the bridge"
        );
        Ok((
            Self {
                index,
                news,
                forwards: LinkAnswer::forwards,
            },
            inside,
        ))
    }

    fn of_parent(host: Place<'_>, parent: u32, mac: Mac) -> Result<(Self, u32), LinkCause> {
        let ns = own_ns()
            .map_err(|errno| LinkCause::refused("open the network namespace", errno.desc()))?;
        let made = host
            .netlink
            .change(macvlan(parent, mac, ns.as_fd()), NLM_F_CREATE | NLM_F_EXCL);
        made.map_err(|error| error.at(Which::Index(parent), "make a macvlan"))?;
        let mut here = open_netlink()?;
        let (end, _) = here.ethernet(Which::Name(INSIDE))?;
        let index = end.index;
        without_ipv6(&mut here, index);
        let news = Self::news()?;
        here.set_up(index)
            .map_err(|error| match error.is(libc::EADDRINUSE) {
                true => LinkCause::MacTaken(mac),
                false => error.at(Which::Index(index), "set a macvlan up"),
            })?;
        debug!(parent, index, "made a macvlan");
        Ok((
            Self {
                index,
                news,
                forwards: LinkAnswer::has_carrier,
            },
            index,
        ))
    }

    /// Removes the port. When this returns, the kernel has removed it, and its Ethernet address is free.
    pub(super) fn remove(&self) {
        // The kernel carries out a request while it is sent. If the parent has gone, so has the port.
        if let Err(error) = request(&self.news, RouteNetlinkMessage::DelLink, self.index) {
            debug!(index = self.index, %error, "cannot remove a port");
        }
    }

    /// Waits until the port forwards.
    pub(super) async fn forwards(&self) -> Result<(), LinkCause> {
        let waited = timeout(FORWARDS_WITHIN, self.hear_of_it()).await;
        let heard = waited.map_err(|_| LinkCause::TimedOut)?;
        heard.map_err(|error| LinkCause::refused("wait for the port to forward", error))
    }

    async fn hear_of_it(&self) -> io::Result<()> {
        let news = Ready::new(Arc::clone(&self.news))?;
        // The answer arrives among the news.
        request(&news, RouteNetlinkMessage::GetLink, self.index)?;
        let mut buffer = Vec::with_capacity(LONGEST);
        loop {
            let mut ready = news.wait().await?;
            loop {
                buffer.clear();
                match news.recv(&mut buffer, libc::MSG_DONTWAIT) {
                    Ok(_)
                        if Messages::new(&buffer)
                            .any(|message| tells(&message, self.index, self.forwards)) =>
                    {
                        return Ok(());
                    }
                    Ok(_) => {}
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    // Messages were lost, perhaps the one waited for.
                    Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => {
                        request(&news, RouteNetlinkMessage::GetLink, self.index)?
                    }
                    Err(error) => return Err(error),
                }
            }
            ready.is_over();
        }
    }
}

/// Sends a request about a link.
fn request(
    to: &Socket,
    kind: fn(LinkMessage) -> RouteNetlinkMessage,
    index: u32,
) -> io::Result<()> {
    let bytes = encode(kind(link_message(index, [])), NLM_F_REQUEST, 1);
    to.send_to(&bytes, &SocketAddr::new(0, 0), 0).map(drop)
}

/// Returns whether the message says that the port forwards.
fn tells(message: &NetlinkBuffer<&[u8]>, index: u32, forwards: fn(&LinkAnswer) -> bool) -> bool {
    message.message_type() == libc::RTM_NEWLINK
        && LinkAnswer::read(message.payload())
            .is_ok_and(|link| link.index == index && forwards(&link))
}

fn open_netlink() -> Result<Netlink, LinkCause> {
    Netlink::open().map_err(|error| failed("open a netlink socket", &error))
}

/// Returns the Ethernet address of a bridge's port whose other end has the address `inside`: a bridge takes on the lowest address
/// of its ports.
pub(super) fn port_mac(inside: Mac) -> Vec<u8> {
    let [.., d, e, f] = inside.0;
    vec![0xfe, 0x6c, 0x68, d, e, f]
}

fn veth(mac: Mac, mtu: u32, host: BorrowedFd<'_>) -> RouteNetlinkMessage {
    let outside = [
        LinkAttribute::IfName(OUTSIDE.to_owned()),
        LinkAttribute::Address(port_mac(mac)),
        LinkAttribute::Mtu(mtu),
        LinkAttribute::NetNsFd(host.as_raw_fd()),
    ];
    let outside = link_message(0, outside);
    let inside = [
        LinkAttribute::IfName(INSIDE.to_owned()),
        LinkAttribute::Address(mac.0.to_vec()),
        LinkAttribute::Mtu(mtu),
        LinkAttribute::LinkInfo(vec![
            LinkInfo::Kind(InfoKind::Veth),
            LinkInfo::Data(InfoData::Veth(InfoVeth::Peer(outside))),
        ]),
    ];
    RouteNetlinkMessage::NewLink(link_message(0, inside))
}

fn macvlan(parent: u32, mac: Mac, here: BorrowedFd<'_>) -> RouteNetlinkMessage {
    let inside = [
        LinkAttribute::IfName(INSIDE.to_owned()),
        LinkAttribute::Address(mac.0.to_vec()),
        LinkAttribute::Link(parent),
        LinkAttribute::NetNsFd(here.as_raw_fd()),
        LinkAttribute::LinkInfo(vec![
            LinkInfo::Kind(InfoKind::MacVlan),
            LinkInfo::Data(InfoData::MacVlan(vec![InfoMacVlan::Mode(
                MacVlanMode::Bridge,
            )])),
        ]),
    ];
    RouteNetlinkMessage::NewLink(link_message(0, inside))
}

/// Keeps the kernel from speaking IPv6 over a link of ours. If this fails, the kernel has no IPv6 at all.
pub(super) fn without_ipv6(netlink: &mut Netlink, index: u32) {
    let none = AfSpecInet6::AddrGenMode(In6AddrGenMode::None);
    let attribute = LinkAttribute::AfSpecUnspec(vec![AfSpecUnspec::Inet6(vec![none])]);
    if let Err(error) = netlink.set(index, attribute) {
        debug!(index, %error, "cannot turn IPv6 off on a link");
    }
}

/// Puts a port into a VLAN: frames that it sends untagged belong to the VLAN, and the VLAN's frames leave it untagged.
fn in_vlan(index: u32, vlan: u16) -> LinkMessage {
    let flags = BridgeVlanInfoFlags::Pvid | BridgeVlanInfoFlags::Untagged;
    let info = AfSpecBridge::VlanInfo(BridgeVlanInfo { flags, vid: vlan });
    let mut message = link_message(index, [LinkAttribute::AfSpecBridge(vec![info])]);
    message.header.interface_family = AddressFamily::Bridge;
    message
}
