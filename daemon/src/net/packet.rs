//! Packet sockets: all frames of an exchange leave and enter through one.
//!
//! A packet socket sits below the namespace's IP: neither routes nor firewall rules of the families ip, ip6 and inet reach it. It
//! is opened for every protocol (`ETH_P_ALL`), for two reasons. Such a socket gets a frame before the `ingress` hook of the
//! netdev family, which can stop frames on their way to a socket for IP only. And on a parent, a socket for IP only does not see
//! frames addressed to a child's Ethernet address. A filter in the kernel picks out our frames. Frames that the socket *sends*
//! pass the `egress` hook of the netdev family, like all others; a rule there can refuse them (ENOBUFS).
#![allow(unsafe_code)] // One conversion: see `everything_at`.

use std::io::{self, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use leasehold_core::link::{Hears, Link, LinkCause, Sockets};
use leasehold_core::wire::Mac;
use leasehold_core::wire::frame::FrameMeta;
use nix::errno::Errno;
use nix::libc;
use nix::sys::socket::{
    ControlMessageOwned, GetSockOpt, LinkAddr, MsgFlags, SetSockOpt, SockaddrLike, SockaddrStorage,
    bind, getsockname, recvmsg, send, sendto, sockopt,
};
use nix::{setsockopt_impl, sockopt_impl};
use socket2::{Domain, SockRef, Socket, Type};
use tokio::sync::OwnedSemaphorePermit;
use tracing::debug;

use super::failed;
use super::filter::{self, LONGEST, Ours};
use super::ready::OneFd;
use super::reaper::Reaper;

/// How much the kernel may hold for one socket, in bytes of its own accounting: a hundred answers.
const RECEIVE_BUFFER: usize = 128 * 1024;

sockopt_impl!(
    AuxData,
    SetOnly,
    libc::SOL_PACKET,
    libc::PACKET_AUXDATA,
    bool
);
sockopt_impl!(
    IgnoreOutgoing,
    SetOnly,
    libc::SOL_PACKET,
    libc::PACKET_IGNORE_OUTGOING,
    bool
);
sockopt_impl!(
    AddMembership,
    SetOnly,
    libc::SOL_PACKET,
    libc::PACKET_ADD_MEMBERSHIP,
    libc::packet_mreq
);
/// A packet socket. It is closed by the reaper.
#[derive(Debug)]
pub(super) struct PacketSocket {
    fd: Option<OwnedFd>,
    ours: Ours,
    pub(super) ifindex: u32,
    /// The VLAN whose tag its frames carry on the link; 0 is none.
    vlan: u16,
    reaper: Reaper,
    /// Its exchange's share of the sockets that may be open, until it is closed.
    pub(super) places: Option<OwnedSemaphorePermit>,
}

/// The buffers that frames are received into.
#[derive(Debug)]
pub(super) struct Receiver {
    frame: [u8; LONGEST],
    control: Vec<u8>,
}

impl Receiver {
    pub(super) fn new() -> Self {
        Self {
            frame: [0; LONGEST],
            control: nix::cmsg_space!(libc::tpacket_auxdata),
        }
    }
}

impl PacketSocket {
    /// Makes a packet socket with its filter in the calling thread's namespace; it hears nothing yet.
    ///
    /// It gets its protocol only when it is bound: given one at once, it would hear every link until the filter is attached, and
    /// binding it would wait for an RCU grace period.
    pub(super) fn new(link: &Link, want: Sockets, reaper: Reaper) -> Result<Self, LinkCause> {
        let (Link::InNetns { ifindex, .. } | Link::Parent { ifindex, .. }) = *link;
        let opened =
            Socket::new(Domain::PACKET, Type::RAW.nonblocking(), None).and_then(|socket| {
                let ours = Ours {
                    chaddr: want.chaddr,
                    own: link.mac(),
                    inside: matches!(link, Link::InNetns { .. }),
                };
                socket.attach_filter(&filter::exchange(&ours, want.arp))?;
                let packet = Self {
                    fd: Some(OwnedFd::from(socket)),
                    ours,
                    ifindex,
                    vlan: vlan_of(link),
                    reaper,
                    places: None,
                };
                AuxData.set(&packet, &true)?;
                IgnoreOutgoing.set(&packet, &true)?;
                sockopt::RcvBuf.set(&packet, &RECEIVE_BUFFER)?;
                Ok(packet)
            });
        opened.map_err(|error| match error.kind() {
            io::ErrorKind::PermissionDenied => LinkCause::refused(
                "open a packet socket",
                "Operation not permitted: this needs CAP_NET_RAW",
            ),
            _ => failed("open a packet socket", &error),
        })
    }

    /// Makes it hear its link, and on a parent also frames to the exchange's Ethernet address.
    pub(super) fn bind(&self, link: &Link) -> Result<(), LinkCause> {
        let refused =
            |errno: Errno| LinkCause::refused("bind a packet socket", io::Error::from(errno));
        match bind(self.as_raw_fd(), &everything_at(self.ifindex)) {
            Err(Errno::ENODEV | Errno::ENXIO) => return Err(self.no_link()),
            bound => bound.map_err(refused)?,
        }
        // A link that is down accepts the socket but leaves an error in it.
        match sockopt::SocketError.get(self).map_err(refused)? {
            0 => {}
            libc::ENETDOWN => return Err(LinkCause::Down),
            errno => return Err(refused(Errno::from_raw(errno))),
        }
        match *link {
            Link::Parent { mac, .. } => self.hear_also(mac),
            Link::InNetns { .. } => Ok(()),
        }
    }

    /// Makes the link accept frames addressed to `mac`, if that is not its own address.
    fn hear_also(&self, mac: Mac) -> Result<(), LinkCause> {
        let own = self.bound().map_err(|errno| {
            LinkCause::refused("look at a packet socket", io::Error::from(errno))
        })?;
        if own.addr() == Some(mac.0) {
            return Ok(());
        }
        let [a, b, c, d, e, f] = mac.0;
        let membership = libc::packet_mreq {
            mr_ifindex: self.ifindex.cast_signed(),
            mr_type: libc::PACKET_MR_UNICAST as u16,
            mr_alen: 6,
            mr_address: [a, b, c, d, e, f, 0, 0],
        };
        AddMembership.set(self, &membership).map_err(|errno| {
            LinkCause::refused("hear another Ethernet address", io::Error::from(errno))
        })
    }

    /// Hears only this ARP from now on. Frames that came before can still be taken.
    pub(super) fn hear(&self, arp: Hears) -> Result<(), LinkCause> {
        let attached = SockRef::from(self).attach_filter(&filter::arp(&self.ours, arp));
        attached.map_err(|error| LinkCause::refused("change what a packet socket hears", error))
    }

    /// Takes the next frame, cut if it is too long to be ours.
    pub(super) fn receive(&self, into: &mut Receiver) -> io::Result<(Vec<u8>, FrameMeta)> {
        let (length, meta) = {
            let mut parts = [IoSliceMut::new(&mut into.frame)];
            let got = recvmsg::<LinkAddr>(
                self.as_raw_fd(),
                &mut parts,
                Some(&mut into.control),
                MsgFlags::MSG_DONTWAIT,
            )?;
            let mut meta = FrameMeta {
                other_host: got
                    .address
                    .is_some_and(|from| from.pkttype() == libc::PACKET_OTHERHOST),
                ..FrameMeta::default()
            };
            for message in got.cmsgs()? {
                if let ControlMessageOwned::Unknown(message) = message
                    && (
                        message.cmsg_header.cmsg_level,
                        message.cmsg_header.cmsg_type,
                    ) == (libc::SOL_PACKET, libc::PACKET_AUXDATA)
                {
                    read_aux_data(&message.data_bytes, &mut meta);
                }
            }
            // As seen from within the exchange's own VLAN, where only that VLAN's frames are untagged.
            meta.vlan ^= self.vlan;
            // The filter cuts a longer frame to one byte more than fits, which shows here.
            meta.cut = got.flags.contains(MsgFlags::MSG_TRUNC);
            (got.bytes.min(LONGEST), meta)
        };
        Ok((into.frame[..length].to_vec(), meta))
    }

    /// Sends a frame. Does not wait.
    pub(super) fn send(&self, frame: &[u8]) -> nix::Result<()> {
        let tagged = tagged(frame, self.vlan);
        let frame = tagged.as_deref().unwrap_or(frame);
        send(self.as_raw_fd(), frame, MsgFlags::MSG_DONTWAIT).map(drop)
    }

    /// Returns what an error of `receive` means: the kernel reports the same error for a link that went down and for one that is
    /// gone.
    pub(super) fn cause_of(&self, error: &io::Error) -> LinkCause {
        if error.raw_os_error() != Some(libc::ENETDOWN) {
            return LinkCause::refused("receive", error);
        }
        // A socket whose link is gone is bound to -1.
        match self.bound() {
            Ok(to) if to.as_ref().sll_ifindex <= 0 => self.no_link(),
            _ => LinkCause::Down,
        }
    }

    /// Returns the address it is bound to, which holds the link's own Ethernet address.
    fn bound(&self) -> nix::Result<LinkAddr> {
        // The kernel's answer is too short to be read as a LinkAddr.
        let address: SockaddrStorage = getsockname(self.as_raw_fd())?;
        address.as_link_addr().copied().ok_or(Errno::EAFNOSUPPORT)
    }

    /// Returns the cause for a link that does not exist.
    pub(super) fn no_link(&self) -> LinkCause {
        LinkCause::NoLink(format!("with index {}", self.ifindex))
    }
}

impl AsFd for PacketSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_ref().expect("only drop takes it").as_fd()
    }
}

// SAFETY: it holds an OwnedFd that only its drop takes.
unsafe impl OneFd for PacketSocket {}

impl AsRawFd for PacketSocket {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

impl Drop for PacketSocket {
    fn drop(&mut self) {
        if let Some(fd) = self.fd.take() {
            self.reaper.close(fd, self.places.take());
        }
    }
}

/// The packet socket through which frames leave over any of the host's links. It hears nothing; all exchanges share it.
#[derive(Debug)]
pub(super) struct Uplinks(Option<OwnedFd>);

impl Uplinks {
    /// Opens it in the calling thread's namespace, the host's. If that fails, no frame leaves that way.
    pub(super) fn open() -> Self {
        let opened = Socket::new(Domain::PACKET, Type::RAW.nonblocking(), None);
        Self(
            opened
                .map_err(|error| debug!(%error, "no packet socket for the host's links"))
                .ok()
                .map(OwnedFd::from),
        )
    }

    /// Sends a frame over a host link, and returns whether the link accepted it.
    pub(super) fn send(&self, ifindex: u32, frame: &[u8]) -> bool {
        let Some(socket) = &self.0 else { return false };
        sendto(
            socket.as_raw_fd(),
            frame,
            &everything_at(ifindex),
            MsgFlags::MSG_DONTWAIT,
        )
        .is_ok()
    }
}

/// Returns the address of every protocol at one link.
fn everything_at(ifindex: u32) -> LinkAddr {
    let raw = libc::sockaddr_ll {
        sll_family: libc::AF_PACKET as u16,
        sll_protocol: (libc::ETH_P_ALL as u16).to_be(),
        sll_ifindex: ifindex.cast_signed(),
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    };
    let length = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    // SAFETY: the pointer is to a whole sockaddr_ll, as the length says, that lives until from_raw has copied it.
    let address = unsafe { LinkAddr::from_raw((&raw const raw).cast(), Some(length)) };
    address.expect("family and length are those of a sockaddr_ll")
}

/// Reads a `struct tpacket_auxdata` (linux/if_packet.h): status, len, snaplen as u32; mac, net, vlan_tci, vlan_tpid
/// as u16.
fn read_aux_data(bytes: &[u8], meta: &mut FrameMeta) {
    let Some(status) = bytes.first_chunk().map(|b| u32::from_ne_bytes(*b)) else {
        return;
    };
    meta.checksum_not_ready = status & libc::TP_STATUS_CSUMNOTREADY != 0;
    if let Some(&[low, high]) = bytes.get(16..18)
        && status & libc::TP_STATUS_VLAN_VALID != 0
    {
        meta.vlan = u16::from_ne_bytes([low, high]) & 0xfff;
    }
}

/// Returns the VLAN whose tag frames carry on a link. On a bridge's port the bridge adds the tag.
fn vlan_of(link: &Link) -> u16 {
    match *link {
        Link::Parent {
            vlan, port: false, ..
        } => vlan,
        Link::Parent { port: true, .. } | Link::InNetns { .. } => 0,
    }
}

/// Puts a VLAN's tag into a frame (802.1Q-2018 §9.6); `None` if the frame needs none.
fn tagged(frame: &[u8], vlan: u16) -> Option<Vec<u8>> {
    const ADDRESSES: usize = 12;
    let (addresses, rest) = frame.split_at_checked(ADDRESSES).filter(|_| vlan != 0)?;
    let protocol = (libc::ETH_P_8021Q as u16).to_be_bytes();
    Some([addresses, &protocol, &vlan.to_be_bytes(), rest].concat())
}
