//! Hearing of the paths of namespaces that go.
//!
//! The kernel tells of a namespace's death when nothing holds it any more, and while an exchange is open its socket does. A
//! container that ends without DEL in the seconds after its ADD would keep its lease, and answer ARP for its address, for as
//! long as conflicts are listened for there. But whoever ends a container takes the path of its namespace away. So the
//! directories with such paths are watched, all through one inotify instance, and a path that goes is a reason to look.
//!
//! Nothing goes audibly from `/proc`: of an exchange in a namespace that is known by a process, that process is watched.

use std::collections::HashSet;
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

use nix::errno::Errno;
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};

/// The directories that are watched, for as long as they are there.
#[derive(Debug)]
pub(super) struct Paths(pub(super) Arc<Inotify>);

/// What was heard.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Heard {
    /// Files of these names have gone.
    Gone(HashSet<OsString>),
    /// More than could be kept.
    TooMuch,
    /// Nothing more.
    Nothing,
}

impl Paths {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self(Arc::new(Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK)?)))
    }

    /// Hears from now on of what goes from a directory. The kernel knows one that is watched already.
    pub(super) fn watch(&self, directory: &OwnedFd) -> nix::Result<()> {
        let path = format!("/proc/self/fd/{}", directory.as_raw_fd());
        let goes = AddWatchFlags::IN_DELETE | AddWatchFlags::IN_MOVED_FROM | AddWatchFlags::IN_ONLYDIR;
        self.0.add_watch(path.as_str(), goes).map(drop)
    }

    /// Returns what has gone since.
    pub(super) fn hear(&self) -> nix::Result<Heard> {
        match self.0.read_events() {
            Ok(events) if events.iter().any(|event| event.mask.contains(AddWatchFlags::IN_Q_OVERFLOW)) => {
                Ok(Heard::TooMuch)
            }
            Ok(events) => Ok(Heard::Gone(events.into_iter().filter_map(|event| event.name).collect())),
            Err(Errno::EAGAIN) => Ok(Heard::Nothing),
            Err(Errno::EINTR) => Ok(Heard::Gone(HashSet::new())),
            Err(errno) => Err(errno),
        }
    }
}
