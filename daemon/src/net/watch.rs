//! Hearing of namespaces, links and addresses, in every namespace that the core has looked at, through one socket.
//!
//! With `NETLINK_LISTEN_ALL_NSID` a netlink socket gets the messages of every namespace that has a number in ours (its
//! nsid). A worker that is inside a namespace registers it; from then on its number stands for its cookie here.
//!
//! Numbers are used again at once, so which cookie a number means must change at the right place *between* messages.
//! That place is marked in the stream itself: the number is asked for on the watching socket, and the kernel queues
//! its answer between the messages before and after. When that answer is read, all that the number's former owner
//! ever said has been read too. With one exception: the kernel gives a dead namespace's number free just before it
//! tells of the death, so that the news may come after the next owner's registration. Hence "number n is gone" is only
//! a reason to look: whether the path still leads to the cookie decides.
//!
//! When messages are lost the numbers mean nothing any more. All are forgotten, and the core is told: it looks at
//! everything again, which registers it again.

use std::collections::{HashMap, HashSet, VecDeque};
use std::io::{self, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use leasehold_core::link::{Cookie, KernelEvent};
use netlink_packet_core::{NLM_F_REQUEST, NLMSG_ERROR, NetlinkBuffer, NlasIterator};
use netlink_packet_route::nsid::{NsidAttribute, NsidMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};
use nix::errno::Errno;
use nix::libc;
use nix::sys::socket::{ControlMessageOwned, MsgFlags, NetlinkAddr, SetSockOpt, recvmsg, sockopt};
use tokio::sync::mpsc::UnboundedSender;
use tracing::{debug, trace, warn};

use super::NetEvent;
use super::netlink::{AddressAnswer, LONGEST, LinkAnswer, Messages, encode};
use super::pool::Pool;
use super::ready::Ready;

/// Some 10,000 messages. The default holds about a hundred, which one burst of containers overruns.
const RECEIVE_BUFFER: usize = 8 * 1024 * 1024;
/// Messages that are read at a stretch, before other tasks of the loop have their turn.
///
/// The driver takes up to 128 events in its turn (tokio's budget), so the channel between cannot fill up: whoever
/// floods a namespace with changes fills the socket's buffer instead.
const BATCH: usize = 32;
/// Several times what the socket holds.
const MOST_DEAF: usize = 100_000;
const NETNSA_NSID: u16 = 1;

/// The watch's end that workers use.
#[derive(Debug)]
pub(super) struct Registrar {
    socket: Arc<Socket>,
    /// The socket's address: answers to our questions bear it.
    port: u32,
    book: Mutex<Book>,
}

/// Which number means which namespace.
#[derive(Debug, Default)]
struct Book {
    named: HashMap<i32, Named>,
    /// Cookies that are in `named` or in `asked`.
    known: HashSet<Cookie>,
    /// Questions whose answers are in the socket's queue, in that order.
    asked: VecDeque<Asked>,
    last: u32,
}

#[derive(Debug)]
struct Named {
    cookie: Cookie,
    path: PathBuf,
    checking: Checking,
}

/// Whether it is being found out if a namespace lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Checking {
    No,
    Yes,
    /// And there was a further reason meanwhile: look again.
    Again,
}

#[derive(Debug)]
struct Asked {
    token: u32,
    cookie: Cookie,
    path: PathBuf,
}

impl Registrar {
    /// Opens the watching socket in the calling thread's namespace.
    pub(super) fn open() -> io::Result<Arc<Self>> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        let port = socket.bind_auto()?.port_number();
        if let Err(error) = sockopt::RcvBufForce.set(&socket, &RECEIVE_BUFFER) {
            warn!(%error, "the kernel's news may be lost in a burst: no large receive buffer without CAP_NET_ADMIN");
            sockopt::RcvBuf.set(&socket, &RECEIVE_BUFFER)?;
        }
        if let Err(error) = socket.set_listen_all_namespaces(true) {
            warn!(%error, "changes of links inside containers go unheard: that takes CAP_NET_BROADCAST");
        }
        for group in [libc::RTNLGRP_LINK, libc::RTNLGRP_IPV4_IFADDR, libc::RTNLGRP_NSID] {
            socket.add_membership(group)?;
        }
        Ok(Arc::new(Self { socket: Arc::new(socket), port, book: Mutex::default() }))
    }

    /// Makes the watch tell of the namespace that `ns` is the file of, from the calling thread's next step on.
    ///
    /// A namespace that cannot be heard is no reason not to work in it; that is logged.
    pub(super) fn register<F: AsFd>(&self, cookie: Cookie, path: &Path, ns: &F) {
        let mut book = self.book();
        if book.known.contains(&cookie) {
            return;
        }
        let file = NsidAttribute::Fd(ns.as_fd().as_raw_fd().cast_unsigned());
        book.last = book.last.checked_add(1).unwrap_or(1);
        let token = book.last;
        // The first has the kernel choose a number, unless there is one already. The second asks for it. They go in one
        // call, and under the lock, so that `asked` has the order of the answers.
        let mut both = nsid_request(RouteNetlinkMessage::NewNsId, vec![file.clone(), NsidAttribute::Id(-1)], 0);
        both.extend(nsid_request(RouteNetlinkMessage::GetNsId, vec![file], token));
        match self.socket.send_to(&both, &SocketAddr::new(0, 0), 0) {
            Ok(_) => {
                book.known.insert(cookie);
                book.asked.push_back(Asked { token, cookie, path: path.to_owned() });
            }
            Err(error) => warn!(?cookie, %error, "a namespace cannot be watched"),
        }
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().expect("nothing panics while it holds the book")
    }
}

fn nsid_request(kind: fn(NsidMessage) -> RouteNetlinkMessage, attributes: Vec<NsidAttribute>, token: u32) -> Vec<u8> {
    let mut message = NsidMessage::default();
    message.attributes = attributes;
    encode(kind(message), NLM_F_REQUEST, token)
}

impl Book {
    /// Takes the answer to a question: from here on `nsid` means what was asked about. Tells who meant it before, and
    /// whether an answer was lost.
    fn answered(&mut self, token: u32, nsid: Option<i32>) -> (Option<Cookie>, bool) {
        let mut lost = false;
        while let Some(asked) = self.asked.pop_front() {
            if asked.token != token {
                lost = true;
                self.known.remove(&asked.cookie);
                continue;
            }
            let Some(nsid) = nsid.filter(|nsid| *nsid >= 0) else {
                self.known.remove(&asked.cookie);
                break;
            };
            let named = Named { cookie: asked.cookie, path: asked.path, checking: Checking::No };
            let former =
                self.named.insert(nsid, named).map(|former| former.cookie).filter(|former| *former != asked.cookie);
            if let Some(former) = former {
                self.known.remove(&former);
            }
            return (former, lost);
        }
        (None, lost)
    }

    fn cookie(&self, nsid: Option<i32>) -> Option<Cookie> {
        self.named.get(&nsid?).map(|named| named.cookie)
    }

    /// Returns what to look at to find out whether `nsid` lives, unless that is under way.
    fn check(&mut self, nsid: i32) -> Option<(Cookie, PathBuf)> {
        let named = self.named.get_mut(&nsid)?;
        named.checking = match named.checking {
            Checking::No => Checking::Yes,
            Checking::Yes | Checking::Again => Checking::Again,
        };
        (named.checking == Checking::Yes).then(|| (named.cookie, named.path.clone()))
    }

    /// Takes the result of a check. Tells whether to look again.
    fn checked(&mut self, nsid: i32, cookie: Cookie) -> bool {
        let Some(named) = self.named.get_mut(&nsid).filter(|named| named.cookie == cookie) else {
            return false;
        };
        std::mem::replace(&mut named.checking, Checking::No) == Checking::Again
    }

    /// Forgets a dead namespace. Tells whether it was known.
    fn buried(&mut self, nsid: i32, cookie: Cookie) -> bool {
        let known = self.cookie(Some(nsid)) == Some(cookie);
        if known {
            self.named.remove(&nsid);
            self.known.remove(&cookie);
        }
        known
    }

    /// Forgets every number, but not the questions: their answers may still come.
    fn forget(&mut self) {
        self.named.clear();
        self.known = self.asked.iter().map(|asked| asked.cookie).collect();
    }
}

/// The watch's end that the loop runs.
pub(super) struct Watch {
    socket: Ready<Arc<Socket>>,
    teller: Teller,
}

/// What one `recvmsg` brought.
enum Read {
    /// A datagram of that length, from the namespace of that number; `None` is our own, or the kernel's answer.
    Datagram(usize, Option<i32>),
    Nothing,
    Lost(Errno),
}

impl Watch {
    /// Makes the watch. Must be called inside the runtime that will run it.
    pub(super) fn new(registrar: Arc<Registrar>, pool: Pool, events: UnboundedSender<NetEvent>) -> io::Result<Self> {
        let socket = Ready::new(Arc::clone(&registrar.socket))?;
        Ok(Self { socket, teller: Teller { registrar, pool, events } })
    }

    /// Reads and tells, for ever.
    pub(super) async fn run(self) {
        let mut buffer = vec![0; LONGEST];
        let mut control = nix::cmsg_space!(libc::c_int);
        let mut deaf = Deaf::No;
        loop {
            let mut ready = match self.socket.wait().await {
                Ok(ready) => ready,
                Err(error) => return warn!(%error, "the watch ends"),
            };
            for _ in 0..BATCH {
                match read(&self.socket, &mut buffer, &mut control) {
                    Read::Datagram(length, nsid) => {
                        Messages::new(&buffer[..length]).for_each(|message| self.teller.digest(&message, nsid));
                        if deaf.for_too_long() {
                            self.teller.lost();
                        }
                    }
                    Read::Lost(errno) => {
                        warn!(%errno, "the kernel's news were lost; everything is looked at again");
                        self.teller.registrar.book().forget();
                        deaf = Deaf::Since(0);
                    }
                    Read::Nothing => {
                        let lacking = self.teller.lacks_answers();
                        if lacking || deaf != Deaf::No {
                            self.teller.lost();
                        }
                        deaf = Deaf::No;
                        ready.is_over();
                        break;
                    }
                }
            }
            drop(ready);
            tokio::task::yield_now().await;
        }
    }
}

/// Whether the kernel has lost a message for us, and how many of those before it were read since.
///
/// It puts no more messages into the socket until that is read empty. Only then is a new look of use, and the core told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Deaf {
    No,
    Since(usize),
}

impl Deaf {
    /// Counts a message. Where messages come as fast as they are read, the core is told now and then nevertheless.
    fn for_too_long(&mut self) -> bool {
        match self {
            Self::No => false,
            Self::Since(read) => {
                *read += 1;
                read.is_multiple_of(MOST_DEAF)
            }
        }
    }
}

fn read(socket: &Socket, buffer: &mut [u8], control: &mut Vec<u8>) -> Read {
    let mut parts = [IoSliceMut::new(buffer)];
    let got = match recvmsg::<NetlinkAddr>(socket.as_raw_fd(), &mut parts, Some(control), MsgFlags::MSG_DONTWAIT) {
        Ok(got) => got,
        Err(Errno::EAGAIN) => return Read::Nothing,
        // ENOBUFS above all: the socket's buffer was full when something was to be told.
        Err(errno) => return Read::Lost(errno),
    };
    if got.flags.contains(MsgFlags::MSG_TRUNC) {
        return Read::Lost(Errno::EMSGSIZE);
    }
    // The kernel's port is 0. Another process may send us what it likes.
    if got.address.is_some_and(|from| from.pid() != 0) {
        return Read::Datagram(0, None);
    }
    let nsid = got.cmsgs().into_iter().flatten().find_map(|message| match message {
        ControlMessageOwned::Unknown(message)
            if (message.cmsg_header.cmsg_level, message.cmsg_header.cmsg_type)
                == (libc::SOL_NETLINK, libc::NETLINK_LISTEN_ALL_NSID) =>
        {
            message.data_bytes.first_chunk().map(|bytes| i32::from_ne_bytes(*bytes))
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
    events: UnboundedSender<NetEvent>,
}

impl Teller {
    fn tell(&self, event: KernelEvent) {
        trace!(?event, "kernel event");
        // A driver that is gone wants to know nothing.
        let _ = self.events.send(NetEvent::Kernel(event));
    }

    fn digest(&self, message: &NetlinkBuffer<&[u8]>, from: Option<i32>) {
        let payload = message.payload();
        match message.message_type() {
            libc::RTM_NEWNSID if message.port_number() == self.registrar.port && message.sequence_number() != 0 => {
                self.answered(message.sequence_number(), nsid_in(payload));
            }
            NLMSG_ERROR if message.port_number() == self.registrar.port => self.refused(message),
            libc::RTM_DELNSID => nsid_in(payload).into_iter().for_each(|nsid| self.doubt(nsid)),
            kind @ (libc::RTM_NEWLINK | libc::RTM_DELLINK) => {
                if let Some(cookie) = self.registrar.book().cookie(from)
                    && let Ok(link) = LinkAnswer::read(payload)
                {
                    self.link(kind, cookie, &link);
                }
            }
            kind @ (libc::RTM_NEWADDR | libc::RTM_DELADDR) => {
                if let Some(cookie) = self.registrar.book().cookie(from)
                    && let Ok(Some(AddressAnswer { index: ifindex, address, .. })) = AddressAnswer::read(payload)
                {
                    self.tell(match kind {
                        libc::RTM_NEWADDR => KernelEvent::AddressAdded { cookie, ifindex, address },
                        _ => KernelEvent::AddressGone { cookie, ifindex, address },
                    });
                }
            }
            _ => {}
        }
    }

    fn link(&self, kind: u16, cookie: Cookie, link: &LinkAnswer) {
        // A bridge tells with a family of its own, and RTM_DELLINK, that a port has left it.
        if link.family != AddressFamily::Unspec {
            return;
        }
        let ifindex = link.index;
        self.tell(match kind {
            libc::RTM_NEWLINK => KernelEvent::Carrier { cookie, ifindex, up: link.has_carrier() },
            _ => KernelEvent::LinkGone { cookie, ifindex },
        });
    }

    fn answered(&self, token: u32, nsid: Option<i32>) {
        let (former, lost) = self.registrar.book().answered(token, nsid);
        debug!(?nsid, token, ?former, "a namespace is watched");
        if let Some(cookie) = former {
            // Its number is another's: it is dead, whether or not that was told.
            self.tell(KernelEvent::NetnsDied { cookie });
        }
        if lost {
            self.lost();
        }
    }

    /// Takes the kernel's refusal of one of the two requests of a registration.
    fn refused(&self, message: &NetlinkBuffer<&[u8]>) {
        let code = message.payload().first_chunk().map_or(0, |bytes| i32::from_ne_bytes(*bytes));
        match (message.sequence_number(), Errno::from_raw(code.saturating_neg())) {
            // It has a number already.
            (0, Errno::EEXIST) => {}
            (0, errno) => warn!(%errno, "a namespace gets no number, so nothing is heard of it"),
            (token, errno) => {
                debug!(%errno, token, "a namespace's number cannot be asked for");
                self.answered(token, None);
            }
        }
    }

    /// Looks whether the namespace of that number lives, and tells if not.
    fn doubt(&self, nsid: i32) {
        let Some((cookie, path)) = self.registrar.book().check(nsid) else {
            return;
        };
        let look = self.pool.run(move |worker| worker.verify(&path, cookie));
        let teller = self.clone();
        tokio::spawn(async move {
            let found = look.await.flatten();
            debug!(?cookie, nsid, ?found, "a namespace's number was given free");
            match found {
                Ok(()) if teller.registrar.book().checked(nsid, cookie) => teller.doubt(nsid),
                Ok(()) => {}
                Err(cause) if cause.is_gone() => {
                    if teller.registrar.book().buried(nsid, cookie) {
                        teller.tell(KernelEvent::NetnsDied { cookie });
                    }
                }
                Err(_) => {
                    teller.registrar.book().checked(nsid, cookie);
                    teller.tell(KernelEvent::Missed);
                }
            }
        });
    }

    /// Tells whether questions are open though the socket is empty: the kernel had no room for the answers.
    fn lacks_answers(&self) -> bool {
        let mut book = self.registrar.book();
        if book.asked.is_empty() {
            return false;
        }
        // No question is added while the book is held, so what is open now and not in the queue never comes.
        let mut peek = [0; 1];
        let flags = libc::MSG_PEEK | libc::MSG_DONTWAIT;
        let empty = self.registrar.socket.recv(&mut &mut peek[..], flags).is_err();
        if empty {
            book.asked.clear();
        }
        empty
    }

    /// Tells that anything may have happened.
    fn lost(&self) {
        self.registrar.book().forget();
        self.tell(KernelEvent::Missed);
    }
}

fn nsid_in(payload: &[u8]) -> Option<i32> {
    const HEADER: usize = 4;
    let attributes = NlasIterator::new(payload.get(HEADER..)?);
    let found = attributes.flatten().find(|attribute| attribute.kind() == NETNSA_NSID)?;
    found.value().try_into().ok().map(i32::from_ne_bytes)
}
