//! Waiting on the loop until a descriptor can be read or has an error.
#![allow(unsafe_code)] // tokio wants a promise about the descriptor that no type of std's makes.

use std::io;
use std::ops::Deref;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::Arc;

use nix::sys::inotify::Inotify;
use nix::sys::timerfd::TimerFd;
use tokio::io::Interest;
use tokio::io::unix::{AsyncFd, AsyncFdReadyGuard};

/// Something that owns one descriptor.
///
/// # Safety
/// `as_fd` returns the same open descriptor for the whole life of the value.
pub(crate) unsafe trait OneFd: AsFd {}

// SAFETY: it holds an OwnedFd that none of its methods replaces.
unsafe impl OneFd for TimerFd {}
// SAFETY: the socket holds its descriptor in a private field that no method changes; only drop closes it.
unsafe impl OneFd for Arc<netlink_sys::Socket> {}
// SAFETY: it holds an OwnedFd that none of its methods replaces.
unsafe impl OneFd for Arc<Inotify> {}

/// A descriptor registered with the loop.
#[derive(Debug)]
pub(crate) struct Ready<T: OneFd>(AsyncFd<Owner<T>>);

/// Gives the raw descriptor, which [`AsyncFd`] asks for.
#[derive(Debug)]
struct Owner<T>(T);

impl<T: OneFd> AsRawFd for Owner<T> {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_fd().as_raw_fd()
    }
}

impl<T: OneFd> Ready<T> {
    /// An error counts: a packet socket whose link goes down has nothing to read.
    const INTEREST: Interest = Interest::READABLE.add(Interest::ERROR);

    /// Registers a descriptor with the current runtime.
    pub(crate) fn new(inner: T) -> io::Result<Self> {
        // SAFETY: `Owner` shows the descriptor of a OneFd, which stays the same and open; the AsyncFd owns it.
        let fd = unsafe { AsyncFd::register_with_interest(Owner(inner), Self::INTEREST) };
        Ok(Self(fd?))
    }

    /// Waits until there is something to read or an error.
    ///
    /// Call [`Readiness::is_over`] when reading found nothing, or this returns at once the next time.
    pub(crate) async fn wait(&self) -> io::Result<Readiness<'_, T>> {
        self.0.ready(Self::INTEREST).await.map(Readiness)
    }
}

impl<T: OneFd> Deref for Ready<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0.get_ref().0
    }
}

/// Proof that something was ready when last checked.
pub(crate) struct Readiness<'a, T: OneFd>(AsyncFdReadyGuard<'a, Owner<T>>);

impl<T: OneFd> Readiness<'_, T> {
    /// Records that it is no longer ready. What became ready meanwhile is not lost.
    pub(crate) fn is_over(&mut self) {
        self.0.clear_ready();
    }
}
