//! Waiting for a change of a file or of a namespace's links, or for something that sends no notification.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recv, socket,
};

use crate::error::{Doing, Error};
use crate::netns::Netns;

/// Waits until `look` finds something, looking again whenever a file in `dir` changes.
///
/// # Errors
/// [`Error::TimedOut`] after `limit`, with `awaited` in its text; or what `look` fails with.
pub fn until_file<T>(
    dir: &Path,
    awaited: &str,
    limit: Duration,
    mut look: impl FnMut() -> Result<Option<T>, Error>,
) -> Result<T, Error> {
    let deadline = Instant::now() + limit;
    let watch = Watch::new(dir)?;
    loop {
        if let Some(found) = look()? {
            return Ok(found);
        }
        if !watch.changed_by(deadline)? {
            return Err(Error::timed_out(awaited, limit, String::new()));
        }
    }
}

/// Waits until `look` finds something, looking again and again, for changes that send no notification.
///
/// # Errors
/// [`Error::TimedOut`] after `limit`, with `awaited` in its text; or what `look` fails with.
pub fn until_found<T>(
    awaited: &str,
    limit: Duration,
    mut look: impl FnMut() -> Result<Option<T>, Error>,
) -> Result<T, Error> {
    let deadline = Instant::now() + limit;
    while Instant::now() < deadline {
        if let Some(found) = look()? {
            return Ok(found);
        }
        thread::yield_now();
    }
    Err(Error::timed_out(awaited, limit, String::new()))
}

/// Waits until `look` finds something, looking again whenever a link, an IPv4 address or an IPv4 route of a namespace
/// changes.
///
/// # Errors
/// [`Error::TimedOut`] after `limit`, with `awaited` in its text; or what `look` fails with.
pub fn until_link<T>(
    netns: &Netns,
    awaited: &str,
    limit: Duration,
    mut look: impl FnMut() -> Result<Option<T>, Error>,
) -> Result<T, Error> {
    let deadline = Instant::now() + limit;
    let news = netns
        .run(hear_links)
        .doing(|| format!("hear about the links of {}", netns.name()))?;
    loop {
        if let Some(found) = look()? {
            return Ok(found);
        }
        if !readable(&news, deadline)? {
            return Err(Error::timed_out(awaited, limit, String::new()));
        }
        // `look` finds out what exactly changed; it does not matter if the kernel had to drop messages.
        let mut message = [0; 8192];
        while recv(news.as_raw_fd(), &mut message, MsgFlags::MSG_DONTWAIT) != Err(Errno::EAGAIN) {}
    }
}

/// Opens a netlink socket in the calling thread's namespace for news of links, IPv4 addresses and IPv4 routes.
fn hear_links() -> nix::Result<OwnedFd> {
    /// RTMGRP_LINK, RTMGRP_IPV4_IFADDR, RTMGRP_IPV4_ROUTE (linux/rtnetlink.h).
    const GROUPS: u32 = 0x1 | 0x10 | 0x40;
    let news = socket(
        AddressFamily::Netlink,
        SockType::Raw,
        SockFlag::SOCK_CLOEXEC,
        SockProtocol::NetlinkRoute,
    )?;
    bind(news.as_raw_fd(), &NetlinkAddr::new(0, GROUPS))?;
    Ok(news)
}

/// Waits until `fd` can be read; `false` if `deadline` came first.
pub(crate) fn readable(fd: impl AsFd, deadline: Instant) -> Result<bool, Error> {
    first_readable(&[fd.as_fd()], deadline)
}

/// Waits until one of `fds` can be read or is hung up; `false` if `deadline` came first.
pub(crate) fn first_readable(fds: &[BorrowedFd<'_>], deadline: Instant) -> Result<bool, Error> {
    let mut fds: Vec<_> = fds
        .iter()
        .map(|fd| PollFd::new(*fd, PollFlags::POLLIN))
        .collect();
    loop {
        // Rounded up, so that the last round does not spin.
        let left = deadline
            .saturating_duration_since(Instant::now())
            .as_micros()
            .div_ceil(1000);
        match poll(
            &mut fds,
            PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX),
        ) {
            Ok(0) if Instant::now() >= deadline => return Ok(false),
            Ok(0) | Err(Errno::EINTR) => {}
            Ok(_) => return Ok(true),
            Err(errno) => return Err(errno).doing(|| "poll".to_owned()),
        }
    }
}

struct Watch {
    inotify: Inotify,
    dir: PathBuf,
}

impl Watch {
    fn new(dir: &Path) -> Result<Self, Error> {
        let doing = || format!("watch {}", dir.display());
        let inotify = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK).doing(doing)?;
        let changes = AddWatchFlags::IN_MODIFY
            | AddWatchFlags::IN_CLOSE_WRITE
            | AddWatchFlags::IN_CREATE
            | AddWatchFlags::IN_DELETE
            | AddWatchFlags::IN_MOVE;
        inotify.add_watch(dir, changes).doing(doing)?;
        Ok(Self {
            inotify,
            dir: dir.to_owned(),
        })
    }

    fn changed_by(&self, deadline: Instant) -> Result<bool, Error> {
        if !readable(&self.inotify, deadline)? {
            return Ok(false);
        }
        match self.inotify.read_events() {
            Ok(_) | Err(Errno::EAGAIN) => Ok(true),
            Err(errno) => Err(errno).doing(|| format!("watch {}", self.dir.display())),
        }
    }
}
