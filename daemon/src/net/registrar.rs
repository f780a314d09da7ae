//! Which number means which namespace.
//!
//! The kernel's messages name namespaces by numbers (nsid), which it reuses at once. So the cookie that a number means must
//! change at the right place *between* messages. That place is marked in the stream itself: the number is asked for on the
//! watching socket, and the kernel queues its answer between the messages before and after. When that answer is read, everything
//! from the number's former owner has been read too, with one exception: the kernel frees a dead namespace's number just before
//! it reports the death, so that report may come after the next owner's registration. So "number n is gone" is only a reason to
//! look: a number that is free, or a path that no longer leads to the cookie, is proof.

use std::collections::{HashMap, HashSet, VecDeque};
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use leasehold_core::link::Cookie;
use netlink_packet_core::NLM_F_REQUEST;
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::nsid::{NsidAttribute, NsidMessage};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};
use nix::libc;
use nix::sys::socket::{SetSockOpt, sockopt};
use tracing::warn;

use super::Watched;
use super::alias::StoreId;
use super::netlink::encode;
use super::paths::Paths;

/// Room for some 10,000 messages. The default holds about a hundred, which one burst of containers exceeds.
const RECEIVE_BUFFER: usize = 8 * 1024 * 1024;

/// The workers' end of the watch.
#[derive(Debug)]
pub(super) struct Registrar {
    pub(super) socket: Arc<Socket>,
    /// The socket's address, which answers to our questions carry.
    pub(super) port: u32,
    pub(super) paths: Paths,
    /// If Docker is served, links in unknown namespaces are reported, and so are our own links, which name this store.
    pub(super) docker: Option<StoreId>,
    book: Mutex<Book>,
    /// How often the kernel lost messages.
    lost: AtomicU64,
}

/// Which number means which namespace.
#[derive(Debug, Default)]
pub(super) struct Book {
    /// The host's own namespace, if it is watched: its messages carry no number.
    own: Option<Cookie>,
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
}

#[derive(Debug)]
struct Asked {
    token: u32,
    about: Named,
}

impl Registrar {
    /// Opens the watching socket in the calling thread's namespace.
    pub(super) fn open(docker: Option<StoreId>) -> io::Result<Arc<Self>> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        let port = socket.bind_auto()?.port_number();
        if let Err(error) = sockopt::RcvBufForce.set(&socket, &RECEIVE_BUFFER) {
            warn!(%error, "kernel notifications may be lost in a burst: a large receive buffer needs CAP_NET_ADMIN");
            sockopt::RcvBuf.set(&socket, &RECEIVE_BUFFER)?;
        }
        if let Err(error) = socket.set_listen_all_namespaces(true) {
            warn!(%error, "changes of links inside containers go unnoticed: hearing about them needs CAP_NET_BROADCAST");
        }
        for group in [
            libc::RTNLGRP_LINK,
            libc::RTNLGRP_IPV4_IFADDR,
            libc::RTNLGRP_NSID,
        ] {
            socket.add_membership(group)?;
        }
        let socket = Arc::new(socket);
        let paths = Paths::new()?;
        Ok(Arc::new(Self {
            socket,
            port,
            paths,
            docker,
            book: Mutex::default(),
            lost: AtomicU64::new(0),
        }))
    }

    /// Makes the watch report on the namespace whose file is `ns`, from the calling thread's next step on.
    ///
    /// A namespace that cannot be watched can still be worked in; the failure is logged.
    pub(super) fn register<F: AsFd>(&self, cookie: Cookie, path: &Path, ns: &F) {
        let mut book = self.book();
        if book.known.contains(&cookie) {
            return;
        }
        let file = NsidAttribute::Fd(ns.as_fd().as_raw_fd().cast_unsigned());
        book.last = book.last.checked_add(1).unwrap_or(1);
        let token = book.last;
        // The first makes the kernel choose a number, unless there is one already. The second asks for it. They go in one call,
        // and under the lock, so that `asked` keeps the order of the answers.
        let mut both = nsid_request(
            RouteNetlinkMessage::NewNsId,
            vec![file.clone(), NsidAttribute::Id(-1)],
            0,
        );
        both.extend(nsid_request(
            RouteNetlinkMessage::GetNsId,
            vec![file],
            token,
        ));
        match self.socket.send_to(&both, &SocketAddr::new(0, 0), 0) {
            Ok(_) => {
                book.known.insert(cookie);
                let path = path.to_owned();
                let about = Named { cookie, path };
                book.asked.push_back(Asked { token, about });
            }
            Err(error) => warn!(?cookie, %error, "a namespace cannot be watched"),
        }
    }

    /// Makes the watch report on the host's own namespace too.
    pub(super) fn register_own(&self, cookie: Cookie) {
        self.book().own = Some(cookie);
    }

    /// Returns whether questions are open although the socket is empty, because the kernel had no room for the answers.
    pub(super) fn lacks_answers(&self) -> bool {
        let mut book = self.book();
        if book.asked.is_empty() {
            return false;
        }
        // No question is added while the book is held, so an answer that is not in the queue now never comes.
        let mut peek = [0; 1];
        let flags = libc::MSG_PEEK | libc::MSG_DONTWAIT;
        let empty = self.socket.recv(&mut &mut peek[..], flags).is_err();
        if empty {
            book.asked.clear();
        }
        empty
    }

    /// Records that the kernel lost messages, and forgets what the numbers mean.
    pub(super) fn lost(&self) {
        self.lost.fetch_add(1, Ordering::Relaxed);
        self.book().forget();
    }

    /// Returns what the watch reports on.
    pub(super) fn watched(&self) -> Watched {
        Watched {
            namespaces: self.book().named.len(),
            lost: self.lost.load(Ordering::Relaxed),
        }
    }

    /// Returns the book, which must not be held across anything that waits.
    pub(super) fn book(&self) -> MutexGuard<'_, Book> {
        self.book
            .lock()
            .expect("nothing panics while it holds the book")
    }
}

fn nsid_request(
    kind: fn(NsidMessage) -> RouteNetlinkMessage,
    attributes: Vec<NsidAttribute>,
    token: u32,
) -> Vec<u8> {
    let mut message = NsidMessage::default();
    message.attributes = attributes;
    encode(kind(message), NLM_F_REQUEST, token)
}

impl Book {
    /// Takes the answer to a question: from here on `nsid` means what was asked about. Returns what it meant before,
    /// and whether an answer was lost.
    pub(super) fn answered(&mut self, token: u32, nsid: Option<i32>) -> (Option<Cookie>, bool) {
        let mut lost = false;
        while let Some(Asked { token: of, about }) = self.asked.pop_front() {
            let cookie = about.cookie;
            let nsid = nsid.filter(|nsid| of == token && *nsid >= 0);
            let Some(nsid) = nsid else {
                self.known.remove(&cookie);
                if of == token {
                    break;
                }
                lost = true;
                continue;
            };
            let former = self.named.insert(nsid, about).map(|former| former.cookie);
            let former = former.filter(|former| *former != cookie);
            if let Some(former) = former {
                self.known.remove(&former);
            }
            return (former, lost);
        }
        (None, lost)
    }

    pub(super) fn cookie(&self, nsid: Option<i32>) -> Option<Cookie> {
        match nsid {
            Some(nsid) => self.named.get(&nsid).map(|named| named.cookie),
            None => self.own,
        }
    }

    /// Returns the numbers of the namespaces whose paths end in one of these names.
    pub(super) fn named(&self, names: &HashSet<OsString>) -> Vec<i32> {
        let is_named = |named: &Named| {
            named
                .path
                .file_name()
                .is_some_and(|name| names.contains(name))
        };
        self.named
            .iter()
            .filter(|(_, named)| is_named(named))
            .map(|(nsid, _)| *nsid)
            .collect()
    }

    /// Returns the number that means a namespace.
    pub(super) fn number_of(&self, cookie: Cookie) -> Option<i32> {
        self.named
            .iter()
            .find(|(_, named)| named.cookie == cookie)
            .map(|(nsid, _)| *nsid)
    }

    /// Records which namespace a number means, as the kernel has shown, unless something else is known about either.
    pub(super) fn found(&mut self, nsid: i32, cookie: Cookie, path: &Path) {
        if !self.named.contains_key(&nsid) && self.known.insert(cookie) {
            let path = path.to_owned();
            self.named.insert(nsid, Named { cookie, path });
        }
    }

    /// Returns the namespace that a number means, and the path by which the namespace is known.
    pub(super) fn at(&self, nsid: i32) -> Option<(Cookie, PathBuf)> {
        self.named
            .get(&nsid)
            .map(|named| (named.cookie, named.path.clone()))
    }

    /// Forgets a dead namespace, and returns whether it was known.
    pub(super) fn buried(&mut self, nsid: i32, cookie: Cookie) -> bool {
        let known = self.cookie(Some(nsid)) == Some(cookie);
        if known {
            self.named.remove(&nsid);
            self.known.remove(&cookie);
        }
        known
    }

    /// Forgets every number, but not the questions: their answers may still come.
    pub(super) fn forget(&mut self) {
        self.named.clear();
        self.known = self.asked.iter().map(|asked| asked.about.cookie).collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Book {
        fn ask(&mut self, token: u32, cookie: u64) {
            self.known.insert(Cookie(cookie));
            let about = Named {
                cookie: Cookie(cookie),
                path: PathBuf::from("/netns"),
            };
            self.asked.push_back(Asked { token, about });
        }
    }

    fn owner(book: &Book, nsid: i32) -> Option<u64> {
        book.cookie(Some(nsid)).map(|cookie| cookie.0)
    }

    #[test]
    fn a_number_means_its_next_owner_from_the_answer_on() {
        let mut book = Book::default();
        book.ask(1, 10);
        assert_eq!(owner(&book, 5), None);
        assert_eq!(book.answered(1, Some(5)), (None, false));
        book.ask(2, 20);
        assert_eq!(owner(&book, 5), Some(10), "the question is not the answer");
        assert_eq!(book.answered(2, Some(5)), (Some(Cookie(10)), false));
        assert_eq!(owner(&book, 5), Some(20));
        assert_eq!(book.known, HashSet::from([Cookie(20)]));
        assert_eq!(book.cookie(None), None);
    }

    #[test]
    fn an_answer_that_overtakes_another_tells_of_its_loss() {
        let mut book = Book::default();
        (1..=3).for_each(|n| book.ask(n, u64::from(n)));
        assert_eq!(book.answered(2, Some(7)), (None, true));
        assert_eq!(book.known, HashSet::from([Cookie(2), Cookie(3)]));
        // A namespace without a number.
        assert_eq!(book.answered(3, None), (None, false));
        assert_eq!(book.known, HashSet::from([Cookie(2)]));
        // An answer to no question.
        assert_eq!(book.answered(9, Some(7)), (None, false));
        assert_eq!(owner(&book, 7), Some(2));
    }

    #[test]
    fn a_late_burial_is_not_the_next_owners() {
        let mut book = Book::default();
        book.ask(1, 10);
        book.answered(1, Some(5));
        book.ask(2, 20);
        book.answered(2, Some(5));
        assert!(!book.buried(5, Cookie(10)));
        assert_eq!(owner(&book, 5), Some(20));
        assert!(book.buried(5, Cookie(20)));
        assert!(book.named.is_empty() && book.known.is_empty());
    }

    #[test]
    fn forgetting_leaves_the_questions() {
        let mut book = Book::default();
        book.ask(1, 10);
        book.answered(1, Some(5));
        book.ask(2, 20);
        book.forget();
        assert_eq!(
            (owner(&book, 5), book.known.clone()),
            (None, HashSet::from([Cookie(20)]))
        );
        assert_eq!(book.answered(2, Some(5)), (None, false));
        assert_eq!(owner(&book, 5), Some(20));
    }
}
