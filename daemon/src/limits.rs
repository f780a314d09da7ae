//! The limit of open files, and how it is divided.

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tracing::warn;

use crate::http::MAX_OPEN;
use crate::listen::Protocol;

/// Descriptors for the daemon itself: store, log, timers, the watch, and what threads open in namespaces for a moment.
const OWN_DESCRIPTORS: usize = 64;

/// The limit of open files if the kernel does not say: its own default.
const USUAL_LIMIT: u64 = 1024;

/// How the descriptors are divided.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shares {
    /// Connections of callers at each socket.
    pub(crate) callers: usize,
    /// Sockets of exchanges.
    pub(crate) sockets: usize,
}

impl Shares {
    /// Divides `limit`: half goes to callers, the same number at each socket. A caller needs one descriptor itself and up to
    /// three for the sockets of its exchange; the daemon's own share is set apart. When none is left, callers wait in the
    /// backlog, and exchanges wait for others to close.
    pub(crate) fn of(limit: u64) -> Self {
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let callers = (limit / 2 / Protocol::ALL.len()).clamp(1, MAX_OPEN);
        let all_callers = Protocol::ALL.len() * callers;
        Self {
            callers,
            sockets: limit.saturating_sub(all_callers + OWN_DESCRIPTORS),
        }
    }
}

/// Raises the limit of open files as far as it goes, and returns it: each caller and each exchange under way has
/// sockets open.
pub(crate) fn raise_open_files() -> u64 {
    let raised = getrlimit(Resource::RLIMIT_NOFILE).and_then(|(soft, hard)| {
        if soft < hard {
            setrlimit(Resource::RLIMIT_NOFILE, hard, hard).map(|()| hard)
        } else {
            Ok(hard)
        }
    });
    raised.unwrap_or_else(|error| {
        warn!(%error, "cannot raise the limit of open files");
        getrlimit(Resource::RLIMIT_NOFILE).map_or(USUAL_LIMIT, |(soft, _hard)| soft)
    })
}
