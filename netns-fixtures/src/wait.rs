//! Waiting for what a process does to a file.

use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};

use crate::error::{Doing, Error};

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

/// Waits until `fd` can be read; `false` when `deadline` came first.
pub(crate) fn readable(fd: impl AsFd, deadline: Instant) -> Result<bool, Error> {
    first_readable(&[fd.as_fd()], deadline)
}

/// Waits until one of `fds` can be read or is hung up; `false` when `deadline` came first.
pub(crate) fn first_readable(fds: &[BorrowedFd<'_>], deadline: Instant) -> Result<bool, Error> {
    let mut fds: Vec<_> = fds.iter().map(|fd| PollFd::new(*fd, PollFlags::POLLIN)).collect();
    loop {
        // Rounded up, so that the last round does not spin.
        let left = deadline.saturating_duration_since(Instant::now()).as_micros().div_ceil(1000);
        match poll(&mut fds, PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX)) {
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
        Ok(Self { inotify, dir: dir.to_owned() })
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
