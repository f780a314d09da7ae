//! The model server on a real socket: a DHCP server that needs no package.

use std::collections::BTreeMap;
use std::io::IoSliceMut;
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::socket::{ControlMessageOwned, MsgFlags, SockaddrIn, recvmsg, setsockopt, sockopt};
use socket2::{Domain, Protocol, Socket, Type};

use crate::error::{Doing, Error};
use crate::lan::Lan;
use crate::model::{Config, Datagram, Event, Lease, Reply, Server, Violation};
use crate::netns::Netns;
use crate::wait::first_readable;

/// A [`Server`] that listens on [`Lan::IFNAME`] of a namespace, on a thread that ends when this is dropped.
#[derive(Debug)]
pub struct ModelServer {
    shared: Arc<Shared>,
    began: Instant,
    /// Closing it ends the thread.
    stop: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    server: Server,
    events: Vec<Event>,
    failure: Option<Error>,
}

impl ModelServer {
    /// Starts a server in the server's namespace of a LAN.
    pub fn start(lan: &Lan, config: Config) -> Result<Self, Error> {
        Self::start_in(&lan.server, config)
    }

    /// Starts a server in a namespace.
    pub fn start_in(netns: &Netns, config: Config) -> Result<Self, Error> {
        let socket = netns.run(listen)?;
        let (stop, stopped) = UnixStream::pair().doing(|| "make a pair of sockets".to_owned())?;
        let state = State {
            server: Server::new(config),
            events: Vec::new(),
            failure: None,
        };
        let shared = Arc::new(Shared {
            state: Mutex::new(state),
            changed: Condvar::new(),
        });
        let began = Instant::now();
        let serve = Serve {
            netns: netns.clone(),
            socket,
            stopped,
            shared: shared.clone(),
            began,
        };
        let thread = thread::spawn(move || serve.run());
        Ok(Self {
            shared,
            began,
            stop: Some(stop),
            thread: Some(thread),
        })
    }

    /// Returns the leases that have not ended.
    pub fn leases(&self) -> BTreeMap<Ipv4Addr, Lease> {
        let now = self.began.elapsed();
        self.shared
            .lock()
            .server
            .leases(now)
            .map(|(address, lease)| (address, lease.clone()))
            .collect()
    }

    /// Returns what happened so far.
    pub fn events(&self) -> Vec<Event> {
        self.shared.lock().events.clone()
    }

    /// Returns what clients did wrong so far.
    pub fn violations(&self) -> Vec<Violation> {
        self.shared.lock().server.violations().to_vec()
    }

    /// Changes the server: another configuration, a restart.
    pub fn with<T>(&self, change: impl FnOnce(&mut Server) -> T) -> T {
        change(&mut self.shared.lock().server)
    }

    /// Waits until something that fits happens, or has happened from event number `from` on.
    pub fn wait_for<T>(
        &self,
        awaited: &str,
        from: usize,
        limit: Duration,
        mut fits: impl FnMut(&Event) -> Option<T>,
    ) -> Result<T, Error> {
        let deadline = Instant::now() + limit;
        let (mut seen, mut state) = (from, self.shared.lock());
        loop {
            if let Some(found) = state.events.iter().skip(seen).find_map(&mut fits) {
                return Ok(found);
            }
            seen = state.events.len().max(from);
            if let Some(failure) = state.failure.take() {
                return Err(failure);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let context = format!("; the server saw: {:?}", state.events);
                return Err(Error::timed_out(awaited, limit, context));
            }
            state = self
                .shared
                .changed
                .wait_timeout(state, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }
}

impl Drop for ModelServer {
    fn drop(&mut self) {
        drop(self.stop.take());
        // Its panic has been printed; a second one here would hide it.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Opens the server's socket in the namespace of the calling thread.
fn listen() -> Result<UdpSocket, Error> {
    let doing = || "listen on UDP port 67".to_owned();
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP)).doing(doing)?;
    socket
        .bind_device(Some(Lan::IFNAME.as_bytes()))
        .doing(doing)?;
    socket.set_broadcast(true).doing(doing)?;
    socket.set_nonblocking(true).doing(doing)?;
    setsockopt(&socket, sockopt::Ipv4PacketInfo, &true).doing(doing)?;
    socket
        .bind(&SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 67).into())
        .doing(doing)?;
    Ok(socket.into())
}

struct Serve {
    netns: Netns,
    socket: UdpSocket,
    stopped: UnixStream,
    shared: Arc<Shared>,
    began: Instant,
}

impl Serve {
    fn run(self) {
        if let Err(failure) = self.serve() {
            self.shared.lock().failure = Some(failure);
            self.shared.changed.notify_all();
        }
    }

    fn serve(&self) -> Result<(), Error> {
        let far = Duration::from_secs(3600);
        let mut held_back: Vec<(Instant, Reply)> = Vec::new();
        loop {
            let next = held_back
                .iter()
                .map(|(at, _)| *at)
                .min()
                .unwrap_or_else(|| Instant::now() + far);
            first_readable(&[self.socket.as_fd(), self.stopped.as_fd()], next)?;
            let now = Instant::now();
            if first_readable(&[self.stopped.as_fd()], now)? {
                return Ok(());
            }
            while let Some(replies) = self.receive()? {
                held_back.extend(replies.into_iter().map(|reply| (now + reply.delay, reply)));
            }
            for (_, reply) in held_back.extract_if(.., |(at, _)| *at <= now) {
                self.send(&reply)?;
            }
        }
    }

    /// Takes a datagram, if one has come. Returns its answers.
    fn receive(&self) -> Result<Option<Vec<Reply>>, Error> {
        let mut payload = [0; 2048];
        let mut control = nix::cmsg_space!(nix::libc::in_pktinfo);
        let (length, source, to) = {
            let mut buffers = [IoSliceMut::new(&mut payload)];
            let received = recvmsg::<SockaddrIn>(
                self.socket.as_raw_fd(),
                &mut buffers,
                Some(&mut control),
                MsgFlags::empty(),
            );
            let message = match received {
                Ok(message) => message,
                Err(Errno::EAGAIN) => return Ok(None),
                Err(errno) => return Err(errno).doing(|| "receive on UDP port 67".to_owned()),
            };
            let to = message
                .cmsgs()
                .ok()
                .into_iter()
                .flatten()
                .find_map(|control| match control {
                    ControlMessageOwned::Ipv4PacketInfo(info) => {
                        Some(Ipv4Addr::from_bits(u32::from_be(info.ipi_addr.s_addr)))
                    }
                    _ => None,
                });
            (message.bytes, message.address, to)
        };
        let Some(source) = source.map(|from| SocketAddrV4::new(from.ip(), from.port())) else {
            return Ok(Some(Vec::new()));
        };
        let destination = to.map(|ip| SocketAddrV4::new(ip, 67));
        let datagram = Datagram {
            payload: &payload[..length],
            source,
            destination,
            ethernet: None,
        };
        let mut state = self.shared.lock();
        let handled = state.server.receive(self.began.elapsed(), &datagram);
        state.events.push(handled.event);
        self.shared.changed.notify_all();
        Ok(Some(
            handled.relayed.into_iter().chain(handled.reply).collect(),
        ))
    }

    /// Sends an answer. A client that has no address yet cannot answer ARP, so the server tells its kernel the client's Ethernet
    /// address.
    fn send(&self, reply: &Reply) -> Result<(), Error> {
        let to = reply.destination;
        if let Some(mac) = reply.ethernet.filter(|_| !to.ip().is_broadcast()) {
            self.netns.set_neighbour(Lan::IFNAME, *to.ip(), mac)?;
        }
        self.socket
            .send_to(&reply.payload, to)
            .doing(|| format!("send to {to}"))
            .map(drop)
    }
}
