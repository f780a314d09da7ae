//! Reports what happens to namespaces, links and addresses, in every namespace that the core has looked at, through one socket.
//!
//! With `NETLINK_LISTEN_ALL_NSID` a netlink socket gets the messages of every namespace that has a number (nsid) in
//! ours. A worker inside a namespace registers it; from then on its number stands for its cookie here.
//!
//! When messages are lost, the numbers mean nothing any more. All are forgotten, and the core is told: it looks at everything
//! again, which registers the namespaces again.

use std::io::{self, IoSliceMut};
use std::os::fd::AsRawFd;
use std::sync::Arc;

use leasehold_core::link::{Cookie, KernelMessage};
use netlink_packet_core::{NLMSG_ERROR, NetlinkBuffer};
use netlink_packet_route::AddressFamily;
use netlink_sys::Socket;
use nix::errno::Errno;
use nix::libc;
use nix::sys::inotify::Inotify;
use nix::sys::socket::{ControlMessageOwned, MsgFlags, NetlinkAddr, recvmsg};
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tracing::{debug, trace, warn};

use super::alias::{Mark, StoreId};
use super::netlink::{AddressAnswer, LONGEST, LinkAnswer, Messages, nsid_in};
use super::netns::Found;
use super::paths::Heard;
use super::pool::Pool;
use super::ready::Ready;
use super::registrar::Registrar;
use super::{Alarm, NetReport, News};

/// The most messages read in a row, before other tasks of the loop have their turn.
const BATCH: u32 = 32;
/// The most events from one message: a link's Ethernet address, that it is down, its carrier, and that it is our own.
const NEWS: u32 = 4;
/// The most events that the driver has not taken yet. Whoever floods a namespace with changes fills the socket's
/// buffer.
const UNTAKEN: usize = 1024;
/// The loop's end of the watch.
pub(super) struct Watch {
    socket: Ready<Arc<Socket>>,
    paths: Ready<Arc<Inotify>>,
    teller: Teller,
}

/// What one `recvmsg` brought.
enum Read {
    /// A datagram of that length, from the namespace of that number; `None` is our own namespace, or the kernel's
    /// answer.
    Datagram(usize, Option<i32>),
    Nothing,
    Lost(Errno),
}

impl Watch {
    /// Makes the watch. Must be called inside the runtime that will run it.
    pub(super) fn new(
        registrar: Arc<Registrar>,
        pool: Pool,
        reports: UnboundedSender<NetReport>,
    ) -> io::Result<Self> {
        let socket = Ready::new(Arc::clone(&registrar.socket))?;
        let paths = Ready::new(Arc::clone(&registrar.paths.0))?;
        let places = Arc::new(Semaphore::new(UNTAKEN));
        Ok(Self {
            socket,
            paths,
            teller: Teller {
                registrar,
                pool,
                reports,
                places,
            },
        })
    }

    /// Reads and reports, for ever.
    pub(super) async fn run(self) {
        tokio::join!(self.hear_kernel(), self.hear_paths());
    }

    /// Checks the namespaces whose paths have gone.
    async fn hear_paths(&self) {
        loop {
            match self.heard().await {
                Ok(Heard::Gone(names)) => {
                    let doubted = self.teller.registrar.book().named(&names);
                    doubted
                        .into_iter()
                        .for_each(|number| self.teller.doubt(number, false));
                }
                Ok(Heard::TooMuch) => self.teller.lost(&mut self.teller.room(1).await),
                Ok(Heard::Nothing) => {}
                Err(error) => return warn!(%error, "cannot watch paths of namespaces any more"),
            }
        }
    }

    /// Waits for news of paths, or for nothing.
    async fn heard(&self) -> io::Result<Heard> {
        let mut ready = self.paths.wait().await?;
        let heard = self.teller.registrar.paths.hear()?;
        if heard == Heard::Nothing {
            ready.is_over();
        }
        Ok(heard)
    }

    async fn hear_kernel(&self) {
        let mut buffer = vec![0; LONGEST];
        let mut control = nix::cmsg_space!(libc::c_int);
        // The kernel puts no more messages into the socket until it is read empty. A new look helps only then.
        let mut is_deaf = false;
        loop {
            let mut room = self.teller.room(BATCH * NEWS).await;
            let mut ready = match self.socket.wait().await {
                Ok(ready) => ready,
                Err(error) => return warn!(%error, "the watch ends"),
            };
            for _ in 0..BATCH {
                match read(&self.socket, &mut buffer, &mut control) {
                    Read::Datagram(length, nsid) => {
                        Messages::new(&buffer[..length])
                            .for_each(|message| self.teller.digest(&message, nsid, &mut room));
                    }
                    Read::Lost(errno) => {
                        warn!(%errno, "kernel notifications were lost; looking at everything again");
                        self.teller.registrar.lost();
                        // The socket was empty in between: messages come as fast as they are read.
                        if is_deaf {
                            self.teller.lost(&mut room);
                        }
                        is_deaf = true;
                    }
                    Read::Nothing => {
                        let lacking = self.teller.registrar.lacks_answers();
                        if lacking || is_deaf {
                            self.teller.lost(&mut room);
                        }
                        is_deaf = false;
                        ready.is_over();
                        break;
                    }
                }
            }
            tokio::task::yield_now().await;
        }
    }
}

fn read(socket: &Socket, buffer: &mut [u8], control: &mut [u8]) -> Read {
    let mut parts = [IoSliceMut::new(buffer)];
    let got = match recvmsg::<NetlinkAddr>(
        socket.as_raw_fd(),
        &mut parts,
        Some(control),
        MsgFlags::MSG_DONTWAIT,
    ) {
        Ok(got) => got,
        Err(Errno::EAGAIN) => return Read::Nothing,
        // Usually ENOBUFS: the socket's buffer was full when the kernel sent something.
        Err(errno) => return Read::Lost(errno),
    };
    if got.flags.contains(MsgFlags::MSG_TRUNC) {
        return Read::Lost(Errno::EMSGSIZE);
    }
    // The kernel's port is 0. Another process may send us anything.
    if got.address.is_some_and(|from| from.pid() != 0) {
        return Read::Datagram(0, None);
    }
    let nsid = got
        .cmsgs()
        .into_iter()
        .flatten()
        .find_map(|message| match message {
            ControlMessageOwned::Unknown(message)
                if (
                    message.cmsg_header.cmsg_level,
                    message.cmsg_header.cmsg_type,
                ) == (libc::SOL_NETLINK, libc::NETLINK_LISTEN_ALL_NSID) =>
            {
                message
                    .data_bytes
                    .first_chunk()
                    .map(|bytes| i32::from_ne_bytes(*bytes))
            }
            _ => None,
        });
    Read::Datagram(got.bytes, nsid)
}

/// Turns messages into events.
#[derive(Clone)]
struct Teller {
    registrar: Arc<Registrar>,
    pool: Pool,
    reports: UnboundedSender<NetReport>,
    places: Arc<Semaphore>,
}

/// Room for events.
type Room = OwnedSemaphorePermit;

impl Teller {
    async fn room(&self, places: u32) -> Room {
        Arc::clone(&self.places)
            .acquire_many_owned(places)
            .await
            .expect("nobody closes it")
    }

    /// Reports one event, even without room: two events in one message are no reason to hold one back.
    fn tell(&self, event: KernelMessage, room: &mut Room) {
        trace!(?event, "kernel event");
        // The driver may be gone.
        let _ = self.reports.send(NetReport::Kernel(News {
            event,
            _place: room.split(1),
        }));
    }

    fn digest(&self, message: &NetlinkBuffer<&[u8]>, from: Option<i32>, room: &mut Room) {
        let payload = message.payload();
        match message.message_type() {
            // A container's own numbers do not matter here, and it may ask for them with any port and token.
            libc::RTM_NEWNSID | NLMSG_ERROR | libc::RTM_DELNSID if from.is_some() => {}
            libc::RTM_NEWNSID
                if message.port_number() == self.registrar.port
                    && message.sequence_number() != 0 =>
            {
                self.answered(message.sequence_number(), nsid_in(payload), room);
            }
            NLMSG_ERROR if message.port_number() == self.registrar.port => {
                self.refused(message, room)
            }
            libc::RTM_DELNSID => nsid_in(payload)
                .into_iter()
                .for_each(|nsid| self.doubt(nsid, true)),
            kind @ (libc::RTM_NEWLINK | libc::RTM_DELLINK) => {
                let cookie = self.registrar.book().cookie(from);
                let docker = self.registrar.docker;
                let stranger = from.filter(|_| cookie.is_none() && docker.is_some());
                let here = docker.filter(|_| from.is_none());
                if (cookie.is_some() || stranger.is_some() || here.is_some())
                    && let Ok(link) = LinkAnswer::read(payload)
                {
                    here.into_iter()
                        .for_each(|store| self.own(kind, store, &link, room));
                    cookie
                        .into_iter()
                        .for_each(|cookie| self.link(kind, cookie, &link, room));
                    stranger
                        .into_iter()
                        .for_each(|number| self.appeared(kind, number, &link, room));
                }
            }
            kind @ (libc::RTM_NEWADDR | libc::RTM_DELADDR) => {
                if let Some(cookie) = self.registrar.book().cookie(from)
                    && let Ok(Some(AddressAnswer {
                        index: ifindex,
                        address,
                        ..
                    })) = AddressAnswer::read(payload)
                {
                    let event = match kind {
                        libc::RTM_NEWADDR => {
                            KernelMessage::AddressAdded((cookie, ifindex), address.into())
                        }
                        _ => KernelMessage::AddressGone((cookie, ifindex), address.into()),
                    };
                    self.tell(event, room);
                }
            }
            _ => {}
        }
    }

    fn link(&self, kind: u16, cookie: Cookie, link: &LinkAnswer, room: &mut Room) {
        // A bridge reports a port that has left it by RTM_DELLINK with the bridge family.
        if link.family != AddressFamily::Unspec {
            return;
        }
        let ifindex = link.index;
        if let (libc::RTM_NEWLINK, Some(mac)) = (kind, link.mac) {
            self.tell(KernelMessage::Ethernet((cookie, ifindex), mac), room);
        }
        if kind == libc::RTM_NEWLINK && !link.is_up() {
            self.tell(KernelMessage::Down((cookie, ifindex)), room);
        }
        let event = match kind {
            libc::RTM_NEWLINK => KernelMessage::Carrier((cookie, ifindex), link.has_carrier()),
            _ => KernelMessage::LinkGone((cookie, ifindex)),
        };
        self.tell(event, room);
    }

    /// Reports a link of our own.
    fn own(&self, kind: u16, store: StoreId, link: &LinkAnswer, room: &mut Room) {
        if let (AddressFamily::Unspec, Some(Mark { owner, port: false })) =
            (link.family, Mark::read(&link.alias, store))
        {
            self.tell(
                KernelMessage::OwnLink {
                    owner,
                    there: kind == libc::RTM_NEWLINK,
                },
                room,
            );
        }
    }

    /// Reports a link in a namespace that is not watched.
    fn appeared(&self, kind: u16, number: i32, link: &LinkAnswer, room: &mut Room) {
        if let (libc::RTM_NEWLINK, AddressFamily::Unspec, Some(mac)) = (kind, link.family, link.mac)
        {
            self.tell(KernelMessage::Appeared { number, mac }, room);
        }
    }

    fn answered(&self, token: u32, nsid: Option<i32>, room: &mut Room) {
        let (former, lost) = self.registrar.book().answered(token, nsid);
        debug!(?nsid, token, ?former, "a namespace is watched");
        if let Some(cookie) = former {
            // Its number means another namespace now: it is dead, whether or not its death was reported.
            self.tell(KernelMessage::NetnsDied(cookie), room);
        }
        if lost {
            self.lost(room);
        }
    }

    /// Handles the kernel's refusal of one of a registration's two requests.
    fn refused(&self, message: &NetlinkBuffer<&[u8]>, room: &mut Room) {
        let code = message
            .payload()
            .first_chunk()
            .map_or(0, |bytes| i32::from_ne_bytes(*bytes));
        match (
            message.sequence_number(),
            Errno::from_raw(code.saturating_neg()),
        ) {
            // It has a number already.
            (0, Errno::EEXIST) => {}
            (0, errno) => warn!(%errno, "a namespace gets no number, so its changes go unnoticed"),
            (token, errno) => {
                debug!(%errno, token, "a namespace's number cannot be asked for");
                self.answered(token, None, room);
                // The socket was full at that moment.
                if matches!(errno, Errno::EAGAIN | Errno::ENOBUFS | Errno::ENOMEM) {
                    self.lost(room);
                }
            }
        }
    }

    /// Checks whether the namespace with that number is alive, and reports if it is not. `freed` means that the kernel has
    /// reported the number free, so another namespace may have it by now; otherwise the path may be gone.
    fn doubt(&self, number: i32, freed: bool) {
        let Some((cookie, path)) = self.registrar.book().at(number) else {
            return;
        };
        let look = self
            .pool
            .run(move |worker| worker.find(number, &path, cookie));
        let teller = self.clone();
        let alarm = Alarm::new(
            "the task that looks whether a namespace lives",
            &self.reports,
        );
        tokio::spawn(async move {
            let _alarm = alarm;
            let found = look.await.unwrap_or(Found::Unclear);
            debug!(
                ?cookie,
                number,
                freed,
                ?found,
                "a namespace's number was freed, or its path may be gone"
            );
            match found {
                Found::Alive => {}
                Found::Pathless if !freed => {
                    teller.tell(KernelMessage::PathGone(cookie), &mut teller.room(1).await)
                }
                Found::Dead | Found::Pathless => {
                    if teller.registrar.book().buried(number, cookie) {
                        teller.tell(KernelMessage::NetnsDied(cookie), &mut teller.room(1).await);
                    }
                }
                Found::Unclear => teller.lost(&mut teller.room(1).await),
            }
        });
    }

    /// Reports that anything may have happened.
    fn lost(&self, room: &mut Room) {
        self.registrar.book().forget();
        self.tell(KernelMessage::Missed, room);
    }
}
