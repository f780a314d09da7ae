//! The sockets of one exchange, together.

use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::num::NonZeroU32;

use leasehold_core::link::{Link, LinkCause, Sockets};
use nix::libc;
use socket2::{Domain, Protocol, SockFilter, Socket, Type};
use tracing::debug;

use super::filter::CLIENT_PORT;
use super::packet::PacketSocket;
use super::port::Port;
use super::reaper::Reaper;

/// The sockets of one exchange.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) packet: PacketSocket,
    /// Holds port 68 and is never read.
    pub(super) hold: Option<Socket>,
    /// The port that it sends through, if one was made for it.
    pub(super) port: Option<Box<Port>>,
}

impl Opened {
    /// Opens all of them in the calling thread's namespace.
    pub(super) fn open(link: &Link, want: Sockets, reaper: Reaper) -> Result<Self, LinkCause> {
        Self::new(link, want, reaper)?.bind(link, want)
    }

    /// Makes the packet socket in the calling thread's namespace; it hears nothing yet.
    pub(super) fn new(link: &Link, want: Sockets, reaper: Reaper) -> Result<Self, LinkCause> {
        Ok(Self {
            packet: PacketSocket::new(link, want, reaper)?,
            hold: None,
            port: None,
        })
    }

    /// Makes it hear its link, and opens whatever else is wanted.
    pub(super) fn bind(self, link: &Link, want: Sockets) -> Result<Self, LinkCause> {
        self.packet.bind(link)?;
        let ifindex = self.packet.ifindex;
        let hold = want
            .hold_port
            .and_then(|address| match hold_port(address, ifindex) {
                Ok(socket) => Some(socket),
                Err(error) => {
                    debug!(%address, ifindex, %error, "port 68 is not held");
                    None
                }
            });
        Ok(Self { hold, ..self })
    }
}

/// Opens a UDP socket on `address`, port 68, at one link, which accepts packets and keeps none.
fn hold_port(address: Ipv4Addr, ifindex: u32) -> io::Result<Socket> {
    let socket = Socket::new(Domain::IPV4, Type::DGRAM.nonblocking(), Some(Protocol::UDP))?;
    socket.set_reuse_address(true)?;
    socket.bind_device_by_index_v4(NonZeroU32::new(ifindex))?;
    // Nobody reads it, so nothing needs to be stored: even a packet that the filter drops has found its port open.
    socket.attach_filter(&[SockFilter::new(
        (libc::BPF_RET | libc::BPF_K) as u16,
        0,
        0,
        0,
    )])?;
    socket.bind(&SocketAddrV4::new(address, CLIENT_PORT).into())?;
    Ok(socket)
}
