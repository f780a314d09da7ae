//! Notices when paths of namespaces disappear.
//!
//! The kernel reports a namespace's death once nothing holds it, but while an exchange is open its socket does. A container that
//! ends without DEL in the seconds after its ADD would keep its lease, and answer ARP for its address, as long as the exchange
//! listens for conflicts there. But whoever ends a container removes its namespace's path. So the directories with such paths are
//! watched, all through one inotify instance, and when a path disappears, the daemon looks at the namespace.
//!
//! `/proc` reports no removals: of a namespace known by a process, the death is noticed when the exchange closes.

use std::collections::HashSet;
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

use nix::errno::Errno;
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};

/// The watched directories, while they exist.
#[derive(Debug)]
pub(super) struct Paths(pub(super) Arc<Inotify>);

/// What was heard.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Heard {
    /// Files with these names have gone.
    Gone(HashSet<OsString>),
    /// The kernel had more events than it could queue.
    TooMuch,
    /// Nothing more.
    Nothing,
}

impl Paths {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self(Arc::new(Inotify::init(
            InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK,
        )?)))
    }

    /// Watches a directory for removals from now on. The kernel recognises a directory that is already watched.
    pub(super) fn watch(&self, directory: &OwnedFd) -> nix::Result<()> {
        let path = format!("/proc/self/fd/{}", directory.as_raw_fd());
        let goes =
            AddWatchFlags::IN_DELETE | AddWatchFlags::IN_MOVED_FROM | AddWatchFlags::IN_ONLYDIR;
        self.0.add_watch(path.as_str(), goes).map(drop)
    }

    /// Returns what has gone since the last call.
    pub(super) fn hear(&self) -> nix::Result<Heard> {
        match self.0.read_events() {
            Ok(events)
                if events
                    .iter()
                    .any(|event| event.mask.contains(AddWatchFlags::IN_Q_OVERFLOW)) =>
            {
                Ok(Heard::TooMuch)
            }
            Ok(events) => Ok(Heard::Gone(
                events.into_iter().filter_map(|event| event.name).collect(),
            )),
            Err(Errno::EAGAIN) => Ok(Heard::Nothing),
            Err(Errno::EINTR) => Ok(Heard::Gone(HashSet::new())),
            Err(errno) => Err(errno),
        }
    }
}
