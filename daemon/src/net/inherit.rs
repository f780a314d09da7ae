//! File descriptors that the service manager left open for this process.
#![allow(unsafe_code)] // Only who started the process knows that a number is a descriptor.

use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};

/// Takes ownership of the first descriptor that systemd passes (`LISTEN_FDS`, sd_listen_fds(3)).
///
/// Returns `None` if nothing was passed to this process, or if it was taken before. Fails if more than one descriptor
/// was passed, or if the environment makes no sense.
pub(crate) fn listen_fd() -> std::io::Result<Option<OwnedFd>> {
    static TAKEN: AtomicBool = AtomicBool::new(false);
    let mut fds = sd_notify::listen_fds()?;
    let Some(fd) = fds.next() else {
        return Ok(None);
    };
    if fds.next().is_some() {
        return Err(std::io::Error::other(
            "systemd passed more than one socket: leasehold.socket has one ListenStream=",
        ));
    }
    if TAKEN.swap(true, Ordering::Relaxed) {
        return Ok(None);
    }
    let fd: RawFd = fd;
    // SAFETY: LISTEN_PID names this process, so whoever started it left this descriptor open for it, and
    // `listen_fds` has just seen that it is open. Nothing else here owns it: std and the libraries only own what
    // they opened, and TAKEN lets this line run once.
    Ok(Some(unsafe { OwnedFd::from_raw_fd(fd) }))
}
