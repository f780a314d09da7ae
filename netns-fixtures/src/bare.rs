//! The least that a lease can cost: four messages, on a packet socket that is already open.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::ifaddrs::getifaddrs;
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrLike, SockaddrStorage, bind,
    recv, send, socket,
};

use crate::container::Container;
use crate::error::{Doing, Error};
use crate::link::Mac;
use crate::model::{BROADCAST, Kind, Message, Packet, code, decode, udp};
use crate::process::DEADLINE;
use crate::wait::readable;

const CLIENT: u16 = 68;
const SERVER: u16 = 67;

/// A client that gets a lease and gives it back, and does nothing else: no ARP, no retries, no record.
#[derive(Debug)]
pub struct BareClient {
    socket: OwnedFd,
    mac: Mac,
}

/// What a [`BareClient`] got.
#[derive(Clone, Copy, Debug)]
pub struct BareLease {
    /// From the first message to the last.
    pub took: Duration,
    address: Ipv4Addr,
    server: Ipv4Addr,
    server_mac: Mac,
}

impl BareClient {
    /// Opens its socket on a container's interface, which must be up.
    pub fn open(container: &Container) -> Result<Self, Error> {
        let doing = || format!("open a packet socket in {}", container.id);
        let socket = container.netns.run(|| {
            let to = getifaddrs().doing(doing)?.find_map(|found| {
                let link = found
                    .address
                    .filter(|a| a.family() == Some(AddressFamily::Packet))?;
                (found.interface_name == container.ifname).then_some(link)
            });
            let to: SockaddrStorage = to.ok_or(Errno::ENODEV).doing(doing)?;
            let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
            let socket = socket(
                AddressFamily::Packet,
                SockType::Raw,
                flags,
                SockProtocol::EthAll,
            )
            .doing(doing)?;
            bind(
                socket.as_raw_fd(),
                to.as_link_addr().expect("its family is Packet"),
            )
            .doing(doing)?;
            Ok(socket)
        })?;
        Ok(Self {
            socket,
            mac: container.mac,
        })
    }

    /// Gets a lease. `xid` names the transaction.
    pub fn lease(&self, xid: u32) -> Result<BareLease, Error> {
        let began = Instant::now();
        let discover = self.message(xid, Kind::Discover, &[]);
        self.broadcast(&discover)?;
        let (offer, server_mac) = self.answer(xid, Kind::Offer, began + DEADLINE)?;
        let (address, server) = (
            offer.yiaddr,
            offer.address(code::SERVER).unwrap_or(Ipv4Addr::UNSPECIFIED),
        );
        self.broadcast(&self.message(
            xid,
            Kind::Request,
            &[(code::REQUESTED, address), (code::SERVER, server)],
        ))?;
        self.answer(xid, Kind::Ack, began + DEADLINE)?;
        Ok(BareLease {
            took: began.elapsed(),
            address,
            server,
            server_mac,
        })
    }

    /// Gives a lease back.
    pub fn release(&self, xid: u32, lease: &BareLease) -> Result<(), Error> {
        let mut message = self.message(xid, Kind::Release, &[(code::SERVER, lease.server)]);
        message.ciaddr = lease.address;
        let from = SocketAddrV4::new(lease.address, CLIENT);
        let to = SocketAddrV4::new(lease.server, SERVER);
        self.send(&udp(
            self.mac,
            lease.server_mac,
            from,
            to,
            &message.encode(),
        ))
    }

    fn message(&self, xid: u32, kind: Kind, addresses: &[(u8, Ipv4Addr)]) -> Message {
        let mut options = vec![(code::TYPE, vec![kind as u8])];
        options.extend(
            addresses
                .iter()
                .map(|(code, address)| (*code, address.octets().to_vec())),
        );
        Message::new(1, xid, self.mac, options)
    }

    fn broadcast(&self, message: &Message) -> Result<(), Error> {
        let from = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, CLIENT);
        let to = SocketAddrV4::new(Ipv4Addr::BROADCAST, SERVER);
        self.send(&udp(self.mac, BROADCAST, from, to, &message.encode()))
    }

    fn send(&self, frame: &[u8]) -> Result<(), Error> {
        send(self.socket.as_raw_fd(), frame, MsgFlags::empty())
            .doing(|| "send a frame".to_owned())
            .map(drop)
    }

    /// Waits for an answer of that kind; returns it and its sender.
    fn answer(&self, xid: u32, kind: Kind, until: Instant) -> Result<(Message, Mac), Error> {
        let mut bytes = [0; 2048];
        loop {
            let length = match recv(self.socket.as_raw_fd(), &mut bytes, MsgFlags::empty()) {
                Ok(length) => length,
                Err(Errno::EAGAIN) if readable(&self.socket, until)? => continue,
                Err(Errno::EAGAIN) => {
                    let awaited = format!("DHCP {kind:?}");
                    return Err(Error::timed_out(&awaited, DEADLINE, String::new()));
                }
                Err(errno) => return Err(errno).doing(|| "receive a frame".to_owned()),
            };
            let read = |packet| match packet {
                Packet::Udp { payload, .. } => Message::decode(payload).ok(),
                Packet::Arp(_) | Packet::Other(_) => None,
            };
            if let Ok(frame) = decode(&bytes[..length])
                && let Some(message) = read(frame.packet)
                && (message.op, message.xid, message.kind()) == (2, xid, Some(kind))
            {
                return Ok((message, frame.source));
            }
        }
    }
}
