//! The process by which a namespace is known: `/proc/<pid>/ns/net`.
//!
//! That path disappears when the process ends, and only the process itself shows that it does. While an exchange is open, whose
//! socket keeps the namespace alive, a descriptor of the process reports the end.
#![allow(unsafe_code)] // One system call that nix has no function for.

use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::path::{Component, Path, PathBuf};

use leasehold_core::link::LinkCause;
use nix::libc;
use nix::sys::stat::{fstat, stat};

use super::ready::OneFd;

/// A process, whose descriptor becomes readable when it ends.
#[derive(Debug)]
pub(super) struct Process {
    fd: OwnedFd,
    path: PathBuf,
}

impl Process {
    /// Opens the process that the path of the namespace `ns` names. `None` if the path names none, or if its number means another
    /// process here: a daemon in a container may have its own PID namespace.
    pub(super) fn of(path: &Path, ns: &OwnedFd) -> Option<Self> {
        let fd = open(pid_in(path)?)?;
        let there = stat(path).ok()?;
        let here = fstat(ns).ok()?;
        ((there.st_dev, there.st_ino) == (here.st_dev, here.st_ino)).then(|| Self {
            fd,
            path: path.to_owned(),
        })
    }

    /// Returns whether a namespace's path names a process.
    pub(super) fn is_named_by(path: &Path) -> bool {
        pid_in(path).is_some()
    }

    /// Returns the cause for a namespace whose path is gone.
    pub(super) fn no_netns(&self) -> LinkCause {
        LinkCause::NoNetns(self.path.clone())
    }
}

impl AsFd for Process {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

// SAFETY: it holds an OwnedFd that none of its methods replaces.
unsafe impl OneFd for Process {}

/// Returns the process in `/proc/<pid>/ns/net`.
fn pid_in(path: &Path) -> Option<libc::pid_t> {
    let mut parts = path.strip_prefix("/proc").ok()?.components();
    let Component::Normal(pid) = parts.next()? else {
        return None;
    };
    let pid = pid.to_str()?.parse().ok()?;
    (parts.as_path() == Path::new("ns/net")).then_some(pid)
}

fn open(pid: libc::pid_t) -> Option<OwnedFd> {
    // SAFETY: pidfd_open(2) takes two numbers and no pointer.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    let fd = RawFd::try_from(fd).ok().filter(|fd| *fd >= 0)?;
    // SAFETY: the call has just made the descriptor, and nothing else owns it.
    Some(unsafe { OwnedFd::from_raw_fd(fd) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_named_by_its_number_alone() {
        let pid = |path: &str| pid_in(Path::new(path));
        assert_eq!(pid("/proc/17/ns/net"), Some(17));
        for path in [
            "/run/netns/17",
            "/proc/self/ns/net",
            "/proc/17/ns/mnt",
            "/proc/17/task/18/ns/net",
            "/proc",
        ] {
            assert_eq!(pid(path), None, "{path}");
        }
    }
}
