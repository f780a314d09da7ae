//! File descriptors that the service manager left open for this process.
#![allow(unsafe_code)] // Only who started the process knows that a number is a descriptor.

use std::os::fd::{FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

/// Takes ownership of the descriptors that systemd passes, each with its name (`LISTEN_FDS`, `LISTEN_FDNAMES`,
/// sd_listen_fds_with_names(3)).
///
/// Returns none if nothing was passed to this process, or if they were taken before. Fails if the environment makes no
/// sense.
pub(crate) fn listen_fds() -> std::io::Result<Vec<(String, OwnedFd)>> {
    static TAKEN: AtomicBool = AtomicBool::new(false);
    // Without this, names inherited from another process could be taken for ours.
    if sd_notify::listen_fds()?.len() == 0 || TAKEN.swap(true, Ordering::Relaxed) {
        return Ok(Vec::new());
    }
    let fds = sd_notify::listen_fds_with_names()?;
    // SAFETY: LISTEN_PID names this process, so whoever started it left these descriptors open for it, and
    // `listen_fds_with_names` has just seen that they are open. Nothing else here owns them: std and the libraries only
    // own what they opened, and TAKEN lets this line run once.
    Ok(fds
        .map(|(fd, name)| (name, unsafe { OwnedFd::from_raw_fd(fd) }))
        .collect())
}
