//! A witness: every frame that a link sends or receives.
//!
//! It parses only what it needs; tshark gives a second opinion.

use std::collections::BTreeMap;
use std::fs;
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, LinkAddr, SockFlag, SockProtocol, SockType, recvfrom, setsockopt, socket,
    sockopt,
};

use crate::error::{Doing, Error};
use crate::model::Kind;
use crate::netns::Netns;
use crate::packet::{Dhcp, Packet};
use crate::wait::readable;

/// What tshark reads in a message: values by the names of fields.
pub type Dissection = BTreeMap<&'static str, String>;

/// A packet socket on a link, and what was read from it. The kernel queues frames from the start; they are read when asked for,
/// so nothing that came earlier is missed.
#[derive(Debug)]
pub struct Capture {
    socket: OwnedFd,
    ifindex: usize,
    packets: Vec<Packet>,
    /// The frames of DHCP messages, in order.
    messages: Vec<Vec<u8>>,
    /// Where the next wait begins.
    cursor: usize,
}

impl Capture {
    /// How many bytes the kernel may queue.
    const BUFFER: usize = 32 << 20;

    /// Starts listening on a link.
    pub fn start(netns: &Netns, ifname: &str) -> Result<Self, Error> {
        let ifindex = netns.index(ifname)? as usize;
        let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
        let open = || {
            socket(
                AddressFamily::Packet,
                SockType::Raw,
                flags,
                SockProtocol::EthAll,
            )
        };
        let socket = netns
            .run(open)
            .doing(|| format!("open a packet socket in {}", netns.name()))?;
        // In a user namespace the larger buffer is refused; the usual one must do.
        let _ = setsockopt(&socket, sockopt::RcvBufForce, &Self::BUFFER);
        Ok(Self {
            socket,
            ifindex,
            packets: Vec::new(),
            messages: Vec::new(),
            cursor: 0,
        })
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
            let packet = Packet::parse(&frame[..length]).filter(|_| from.ifindex() == self.ifindex);
            if packet
                .as_ref()
                .is_some_and(|packet| packet.dhcp().is_some())
            {
                self.messages.push(frame[..length].to_vec());
            }
            self.packets.extend(packet);
        }
    }

    /// Returns all DHCP messages so far.
    pub fn dhcp(&mut self) -> Result<Vec<Dhcp>, Error> {
        Ok(self
            .packets()?
            .iter()
            .filter_map(Packet::dhcp)
            .cloned()
            .collect())
    }

    /// Lets tshark read all DHCP messages so far, and returns its values of `fields`, message by message. The values of a field
    /// that occurs more than once in a message are joined by commas; that of a missing field is empty.
    pub fn dissect(
        &mut self,
        netns: &Netns,
        fields: &'static str,
    ) -> Result<Vec<Dissection>, Error> {
        self.packets()?;
        let file = netns.sandbox().dir("tshark")?.join("pcap");
        fs::write(&file, pcap(&self.messages)).doing(|| format!("write {}", file.display()))?;
        let file = file.to_string_lossy();
        let checks = "-o ip.check_checksum:TRUE -o udp.check_checksum:TRUE".split(' ');
        let form = "-T fields -E separator=/t -E occurrence=a -E aggregator=,".split(' ');
        let wanted = fields.split(' ').flat_map(|field| ["-e", field]);
        let args = ["-n", "-r", &file].into_iter().chain(checks).chain(form);
        let args: Vec<_> = args.chain(wanted).collect();
        let text = netns.run_command("tshark", &args, "")?;
        let values = |line: &str| line.split('\t').map(str::to_owned).collect::<Vec<_>>();
        let dissection = |line: &str| fields.split(' ').zip(values(line)).collect();
        Ok(text.lines().map(dissection).collect())
    }

    /// Forgets all packets so far.
    pub fn clear(&mut self) -> Result<(), Error> {
        self.packets()?;
        self.packets.clear();
        self.messages.clear();
        self.cursor = 0;
        Ok(())
    }

    /// Lets the next wait begin with the first packet, for packets whose order is unknown.
    pub fn rewind(&mut self) -> &mut Self {
        self.cursor = 0;
        self
    }

    /// Waits for the next packet that fits, after the one that the last wait found. `awaited` is for the error message.
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
    pub fn wait_for_dhcp(
        &mut self,
        kind: Kind,
        limit: Duration,
        fits: impl Fn(&Dhcp) -> bool,
    ) -> Result<Dhcp, Error> {
        self.wait_for(&format!("{kind:?}"), limit, |packet| {
            packet.dhcp().filter(|m| m.kind == kind && fits(m)).cloned()
        })
    }

    /// Waits for the next RELEASE of an address.
    pub fn wait_for_release(&mut self, address: Ipv4Addr, limit: Duration) -> Result<Dhcp, Error> {
        self.wait_for_dhcp(Kind::Release, limit, |m| m.ciaddr == address)
    }
}

/// Writes frames as a capture file (pcap, Ethernet), without their times.
fn pcap(frames: &[Vec<u8>]) -> Vec<u8> {
    const MAGIC: u32 = 0xa1b2_c3d4;
    const VERSION: u32 = 2 | 4 << 16;
    const ETHERNET: u32 = 1;
    let header = [MAGIC, VERSION, 0, 0, u32::from(u16::MAX), ETHERNET];
    let mut file: Vec<u8> = header.into_iter().flat_map(u32::to_ne_bytes).collect();
    for frame in frames {
        let length = u32::try_from(frame.len()).expect("a frame is shorter than its buffer");
        file.extend(
            [0, 0, length, length]
                .into_iter()
                .flat_map(u32::to_ne_bytes),
        );
        file.extend(frame);
    }
    file
}

impl std::fmt::Display for Capture {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let known = self
            .packets
            .iter()
            .filter(|packet| !matches!(packet, Packet::Other(_)));
        known
            .clone()
            .try_for_each(|packet| writeln!(f, "  {packet}"))?;
        write!(
            f,
            "  and {} other frames",
            self.packets.len() - known.count()
        )
    }
}
