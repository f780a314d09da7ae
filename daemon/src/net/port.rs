//! A port of a bridge, made for one exchange.
//!
//! A frame that is sent on a bridge leaves by its ports and never reaches whoever listens on the bridge itself; one that
//! comes in by a port reaches both. So the exchange gets a veth: one end is a port of the bridge, its socket is on the other.
//!
//! That other end is in a network namespace of its own, which nothing but the socket keeps alive. In the host's it would
//! answer the whole LAN's ARP for the host's addresses. And so it needs no cleaning up: when the socket closes, and be it
//! because the daemon is killed, the kernel ends the namespace, and the veth with both ends goes with it.
//!
//! The bridge must not notice its passing port. A bridge takes the lowest Ethernet address of its ports for its own, and
//! the smallest MTU: this one's address is high, and its MTU is the bridge's.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::link::LinkCause;
use leasehold_core::wire::Mac;
use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL, NLM_F_REQUEST};
use netlink_packet_route::link::{
    AfSpecBridge, AfSpecInet6, AfSpecUnspec, BridgeVlanInfo, BridgeVlanInfoFlags, In6AddrGenMode, InfoData, InfoKind,
    InfoVeth, LinkAttribute, LinkInfo, LinkMessage,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};
use nix::libc;
use tokio::time::timeout;
use tracing::debug;

use super::netlink::{LONGEST, LinkAnswer, Messages, Netlink, NetlinkError, Which, encode};
use super::ready::Ready;
use super::steps::link_message;

/// How long a bridge may take until it forwards what a new port sends. One that speaks the spanning tree protocol first
/// listens and then learns, for at most 30 s each (802.1D-1998 §8.10.2).
const FORWARDS_WITHIN: Duration = Duration::from_secs(62);
/// The socket's end, in its own namespace.
const INSIDE: &str = "eth0";
/// The bridge's end; the kernel puts a number in.
const OUTSIDE: &str = "lh-%d";
/// What an operator reads who finds the bridge's end.
const ALIAS: &str = "leasehold: gives a lease back, and goes by itself";

/// A port that the bridge may not forward from yet.
#[derive(Debug)]
pub(super) struct Port {
    index: u32,
    /// Hears of links in the bridge's namespace.
    news: Arc<Socket>,
}

/// A namespace's netlink socket and file.
pub(super) struct Place<'a> {
    pub(super) netlink: &'a mut Netlink,
    pub(super) ns: BorrowedFd<'a>,
}

impl Port {
    /// Opens what hears of the port. Must be called in the bridge's namespace, before [`Port::make`].
    pub(super) fn news() -> Result<Arc<Socket>, LinkCause> {
        let opened = Socket::new(NETLINK_ROUTE).and_then(|mut socket| {
            socket.bind_auto()?;
            socket.add_membership(libc::RTNLGRP_LINK)?;
            Ok(Arc::new(socket))
        });
        opened.map_err(|error| LinkCause::refused("hear of links", error))
    }

    /// Makes the veth, with one end here, which gets the address `mac`, and the other a port of a bridge at `host`. Returns
    /// the port, and the index of the end that is here.
    pub(super) fn make(
        host: Place<'_>,
        bridge: u32,
        vlan: u16,
        mac: Mac,
        news: Arc<Socket>,
    ) -> Result<(Self, u32), LinkCause> {
        let Place { netlink, ns } = host;
        let (carrying, _) = netlink.ethernet(Which::Index(bridge))?;
        if !carrying.is_up() {
            return Err(LinkCause::Down);
        }
        let mut here = Netlink::open().map_err(|error| LinkCause::refused("open a netlink socket", error))?;
        let made = here.change(veth(mac, carrying.mtu, ns), NLM_F_CREATE | NLM_F_EXCL);
        made.map_err(|error| error.at(Which::Name(INSIDE), "make a veth"))?;
        let (end, _) = here.ethernet(Which::Name(INSIDE))?;
        let (inside, index) = (end.index, end.other);
        without_ipv6(&mut here, inside);
        without_ipv6(netlink, index);
        let failed = |doing| move |error: NetlinkError| error.at(Which::Index(index), doing);
        netlink.set(index, LinkAttribute::IfAlias(ALIAS.to_owned())).map_err(failed("name a bridge's port"))?;
        netlink.set(index, LinkAttribute::Controller(bridge)).map_err(failed("make a port of the bridge"))?;
        if vlan != 0 {
            let vlan = RouteNetlinkMessage::SetLink(in_vlan(index, vlan));
            netlink.change(vlan, 0).map_err(failed("put a bridge's port into its VLAN"))?;
        }
        netlink.set_up(index).map_err(failed("set a bridge's port up"))?;
        here.set_up(inside).map_err(|error| error.at(Which::Index(inside), "set a veth up"))?;
        debug!(bridge, index, vlan, "made a port of the bridge");
        Ok((Self { index, news }, inside))
    }

    /// Waits until the bridge forwards what the port sends.
    pub(super) async fn forwards(self) -> Result<(), LinkCause> {
        let waited = timeout(FORWARDS_WITHIN, self.hear_of_it()).await;
        let heard = waited.map_err(|_| LinkCause::TimedOut)?;
        heard.map_err(|error| LinkCause::refused("wait for the bridge to forward", error))
    }

    async fn hear_of_it(self) -> io::Result<()> {
        let news = Ready::new(self.news)?;
        ask(&news, self.index)?;
        let mut buffer = Vec::with_capacity(LONGEST);
        loop {
            let mut ready = news.wait().await?;
            loop {
                buffer.clear();
                match news.recv(&mut buffer, libc::MSG_DONTWAIT) {
                    Ok(_) if Messages::new(&buffer).any(|message| tells_of_it(self.index, &message)) => return Ok(()),
                    Ok(_) => {}
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    // Something was lost, and may have been what is waited for.
                    Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => ask(&news, self.index)?,
                    Err(error) => return Err(error),
                }
            }
            ready.is_over();
        }
    }
}

/// Asks how the port stands. The answer comes as the news do.
fn ask(news: &Socket, index: u32) -> io::Result<()> {
    let mut request = LinkMessage::default();
    request.header.index = index;
    let bytes = encode(RouteNetlinkMessage::GetLink(request), NLM_F_REQUEST, 1);
    news.send_to(&bytes, &SocketAddr::new(0, 0), 0).map(drop)
}

/// Tells whether this is the message that the port forwards.
fn tells_of_it(index: u32, message: &netlink_packet_core::NetlinkBuffer<&[u8]>) -> bool {
    message.message_type() == libc::RTM_NEWLINK
        && LinkAnswer::read(message.payload()).is_ok_and(|link| link.index == index && link.forwards())
}

fn veth(mac: Mac, mtu: u32, host: BorrowedFd<'_>) -> RouteNetlinkMessage {
    let [.., d, e, f] = mac.0;
    let mut outside = LinkMessage::default();
    outside.attributes = vec![
        LinkAttribute::IfName(OUTSIDE.to_owned()),
        LinkAttribute::Address(vec![0xfe, 0x6c, 0x68, d, e, f]),
        LinkAttribute::Mtu(mtu),
        LinkAttribute::NetNsFd(host.as_raw_fd()),
    ];
    let mut inside = LinkMessage::default();
    inside.attributes = vec![
        LinkAttribute::IfName(INSIDE.to_owned()),
        LinkAttribute::Address(mac.0.to_vec()),
        LinkAttribute::Mtu(mtu),
        LinkAttribute::LinkInfo(vec![
            LinkInfo::Kind(InfoKind::Veth),
            LinkInfo::Data(InfoData::Veth(InfoVeth::Peer(outside))),
        ]),
    ];
    RouteNetlinkMessage::NewLink(inside)
}

/// Keeps the kernel from speaking IPv6 over a link of ours. Where it cannot, it has none.
fn without_ipv6(netlink: &mut Netlink, index: u32) {
    let none = AfSpecInet6::AddrGenMode(In6AddrGenMode::None);
    let attribute = LinkAttribute::AfSpecUnspec(vec![AfSpecUnspec::Inet6(vec![none])]);
    if let Err(error) = netlink.set(index, attribute) {
        debug!(index, %error, "a link makes IPv6 addresses");
    }
}

/// Puts a port into a VLAN: what it sends untagged is in that, and what is in that leaves it untagged.
fn in_vlan(index: u32, vlan: u16) -> LinkMessage {
    let flags = BridgeVlanInfoFlags::Pvid | BridgeVlanInfoFlags::Untagged;
    let info = AfSpecBridge::VlanInfo(BridgeVlanInfo { flags, vid: vlan });
    let mut message = link_message(index, LinkAttribute::AfSpecBridge(vec![info]));
    message.header.interface_family = AddressFamily::Bridge;
    message
}
