//! Closing packet sockets, off the loop.
//!
//! `close` of an AF_PACKET socket waits for an RCU grace period, some 16 ms, in which the thread does nothing else. So a few threads
//! close them, about 1,000 sockets a second.
//!
//! The queue needs no bound of its own: everything in it is an open socket, so the limit on open files bounds it, and refusing a
//! socket would only leak it.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;

use tokio::sync::OwnedSemaphorePermit;

/// How many threads close sockets.
const THREADS: usize = 16;

/// Enough for a thread that only calls `close`.
const STACK: usize = 64 * 1024;

/// Closes packet sockets. The threads end when the last copy goes and all is closed.
#[derive(Clone, Debug)]
pub(super) struct Reaper(Sender<(OwnedFd, Option<OwnedSemaphorePermit>)>);

impl Reaper {
    /// Starts the threads. They stay in the calling thread's namespace: one in a container's would keep that alive.
    pub(super) fn start() -> io::Result<Self> {
        let (sockets, queue) = channel();
        let queue = Arc::new(Mutex::new(queue));
        for _ in 0..THREADS {
            let queue = Arc::clone(&queue);
            let next = move || queue.lock().expect("taking one does not panic").recv().ok();
            thread::Builder::new()
                .name("reaper".to_owned())
                .stack_size(STACK)
                .spawn(move || std::iter::from_fn(next).for_each(drop))?;
        }
        Ok(Self(sockets))
    }

    /// Takes a socket to close soon, and its places to give back after that. Never waits.
    pub(super) fn close(&self, socket: OwnedFd, places: Option<OwnedSemaphorePermit>) {
        // It fails only after a panic of all threads, and then closes the socket here.
        let _ = self.0.send((socket, places));
    }
}
