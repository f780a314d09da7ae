//! A witness: every frame that a link sends or receives.

use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, LinkAddr, SockFlag, SockProtocol, SockType, recvfrom, setsockopt, socket, sockopt,
};

use crate::error::{Doing, Error};
use crate::model::Kind;
use crate::netns::Netns;
use crate::packet::{Dhcp, Packet};
use crate::wait::readable;

/// A packet socket on a link, and what it has read. The kernel queues frames from the start on; they are read when
/// they are asked for, so that nothing that came before the question is missed.
#[derive(Debug)]
pub struct Capture {
    socket: OwnedFd,
    ifindex: usize,
    packets: Vec<Packet>,
    /// Where the next wait begins.
    cursor: usize,
}

impl Capture {
    /// Bytes that the kernel may queue.
    const BUFFER: usize = 32 << 20;

    /// Starts to listen on a link.
    pub fn start(netns: &Netns, ifname: &str) -> Result<Self, Error> {
        let ifindex = netns.index(ifname)? as usize;
        let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
        let open = || socket(AddressFamily::Packet, SockType::Raw, flags, SockProtocol::EthAll);
        let socket = netns.run(open).doing(|| format!("open a packet socket in {}", netns.name()))?;
        // In a user namespace the larger buffer is refused; the usual one must do.
        let _ = setsockopt(&socket, sockopt::RcvBufForce, &Self::BUFFER);
        Ok(Self { socket, ifindex, packets: Vec::new(), cursor: 0 })
    }

    /// Returns all packets so far.
    pub fn packets(&mut self) -> Result<&[Packet], Error> {
        let mut frame = [0; 2048];
        loop {
            let (length, from) = match recvfrom::<LinkAddr>(self.socket.as_raw_fd(), &mut frame) {
                Ok((length, Some(from))) => (length, from),
                Ok((_, None)) => continue,
                Err(Errno::EAGAIN) => return Ok(&self.packets),
                Err(errno) => return Err(errno).doing(|| "read a packet socket".to_owned()),
            };
            if from.ifindex() == self.ifindex {
                self.packets.extend(Packet::parse(&frame[..length]));
            }
        }
    }

    /// Returns all DHCP messages so far.
    pub fn dhcp(&mut self) -> Result<Vec<Dhcp>, Error> {
        Ok(self.packets()?.iter().filter_map(Packet::dhcp).cloned().collect())
    }

    /// Forgets all packets so far.
    pub fn clear(&mut self) -> Result<(), Error> {
        self.packets()?;
        self.packets.clear();
        self.cursor = 0;
        Ok(())
    }

    /// Waits for the next packet that fits: one that came after what the last wait found. `awaited` is for the message
    /// if none does.
    pub fn wait_for<T>(
        &mut self,
        awaited: &str,
        limit: Duration,
        fits: impl Fn(&Packet) -> Option<T>,
    ) -> Result<T, Error> {
        let deadline = Instant::now() + limit;
        loop {
            self.packets()?;
            while let Some(packet) = self.packets.get(self.cursor) {
                self.cursor += 1;
                if let Some(found) = fits(packet) {
                    return Ok(found);
                }
            }
            if !readable(&self.socket, deadline)? {
                let context = format!("; the capture has:\n{self}");
                return Err(Error::timed_out(awaited, limit, context));
            }
        }
    }

    /// Waits for the next DHCP message of a kind that fits.
    pub fn wait_for_dhcp(&mut self, kind: Kind, limit: Duration, fits: impl Fn(&Dhcp) -> bool) -> Result<Dhcp, Error> {
        self.wait_for(&format!("{kind:?}"), limit, |packet| {
            packet.dhcp().filter(|m| m.kind == kind && fits(m)).cloned()
        })
    }

    /// Waits for the next RELEASE of an address.
    pub fn wait_for_release(&mut self, address: Ipv4Addr, limit: Duration) -> Result<Dhcp, Error> {
        self.wait_for_dhcp(Kind::Release, limit, |m| m.ciaddr == address)
    }
}

impl std::fmt::Display for Capture {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let known = self.packets.iter().filter(|packet| !matches!(packet, Packet::Other(_)));
        known.clone().try_for_each(|packet| writeln!(f, "  {packet}"))?;
        write!(f, "  and {} other frames", self.packets.len() - known.count())
    }
}
