//! Closing packet sockets, off the loop.
//!
//! `close` of an AF_PACKET socket waits for an RCU grace period, some 16 ms, in which the thread does nothing else. So a thread
//! closes them, and of many at once several threads close a share each: 16 of them close about 1,000 sockets a second.
//!
//! The queue needs no bound of its own: everything in it is an open socket, so the limit on open files bounds it, and refusing a
//! socket would only leak it.

use std::io;
use std::iter;
use std::os::fd::OwnedFd;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use tokio::sync::OwnedSemaphorePermit;

/// The most threads that close sockets.
const MOST: usize = 16;

/// Enough for a thread that only calls `close`.
const STACK: usize = 64 * 1024;

/// A socket, and its places to give back after that.
type Closing = (OwnedFd, Option<OwnedSemaphorePermit>);

/// Closes packet sockets. Its thread ends when the last copy goes and all is closed.
#[derive(Clone, Debug)]
pub(super) struct Reaper(Sender<Closing>);

impl Reaper {
    /// Starts the thread, which stays in the calling thread's namespace.
    pub(super) fn start() -> io::Result<Self> {
        let (sockets, queue) = channel();
        builder().spawn(move || serve(&queue))?;
        Ok(Self(sockets))
    }

    /// Takes a socket to close soon, and its places to give back after that. Never waits.
    pub(super) fn close(&self, socket: OwnedFd, places: Option<OwnedSemaphorePermit>) {
        // It fails only after a panic of the thread, and then closes the socket here.
        let _ = self.0.send((socket, places));
    }
}

fn builder() -> thread::Builder {
    let builder = thread::Builder::new().name("reaper".to_owned());
    builder.stack_size(STACK)
}

/// Closes what comes in.
///
/// The other threads are started here, never by whoever brings a socket: that may be a worker inside a container's namespace, and
/// a thread started there would keep the namespace alive.
fn serve(queue: &Receiver<Closing>) {
    while let Ok(first) = queue.recv() {
        let mut due: Vec<_> = iter::once(first).chain(queue.try_iter()).collect();
        let share = due.len().div_ceil(MOST);
        thread::scope(|scope| {
            while due.len() > share {
                let part = due.split_off(due.len() - share);
                // Without a thread, they are closed here.
                let _ = builder().spawn_scoped(scope, || drop(part));
            }
            drop(due);
        });
    }
}
