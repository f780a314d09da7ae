//! Closing packet sockets, off the loop.
//!
//! `close` of an AF_PACKET socket waits for an RCU grace period, some 16 ms, in which the thread does nothing but wait.
//! So threads close them, as many as there is work for: 32 of them close about 2,000 sockets a second.
//!
//! The queue has no bound of its own and needs none: whatever waits in it was an open socket before, so the limit on
//! open files bounds it, and refusing a socket could only mean to leak it.

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

use tracing::warn;

/// Threads at most.
const MOST: usize = 32;
/// Threads that stay when there is nothing to close.
const FEWEST: usize = 1;
/// How long a thread beyond the fewest waits for work before it ends.
const IDLE: Duration = Duration::from_secs(2);
/// Enough for a thread that only calls `close`.
const STACK: usize = 64 * 1024;

/// Where packet sockets are left to be closed.
#[derive(Clone, Debug)]
pub(super) struct Reaper(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    queue: Mutex<Queue>,
    arrived: Condvar,
}

#[derive(Debug, Default)]
struct Queue {
    sockets: VecDeque<OwnedFd>,
    threads: usize,
    idle: usize,
}

impl Reaper {
    /// Starts the first thread.
    pub(super) fn start() -> io::Result<Self> {
        let shared = Arc::new(Shared { queue: Mutex::default(), arrived: Condvar::new() });
        shared.queue().threads = 1;
        spawn(&shared)?;
        Ok(Self(shared))
    }

    /// Takes a socket to be closed soon. Never waits.
    pub(super) fn close(&self, socket: OwnedFd) {
        self.0.queue().sockets.push_back(socket);
        self.0.arrived.notify_one();
    }
}

impl Shared {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().expect("nothing panics while it holds the queue")
    }

    /// Waits for a socket to close; `None` when this thread is one too many.
    fn next(&self) -> Option<OwnedFd> {
        let mut queue = self.queue();
        loop {
            if let Some(socket) = queue.sockets.pop_front() {
                return Some(socket);
            }
            queue.idle += 1;
            let (woken, wait) =
                self.arrived.wait_timeout(queue, IDLE).expect("nothing panics while it holds the queue");
            queue = woken;
            queue.idle -= 1;
            if wait.timed_out() && queue.sockets.is_empty() && queue.threads > FEWEST {
                queue.threads -= 1;
                return None;
            }
        }
    }

    /// Claims a place for one more thread where sockets wait and nobody is free.
    fn wants_another(&self) -> bool {
        let mut queue = self.queue();
        let wanted = queue.sockets.len() > queue.idle && queue.threads < MOST;
        queue.threads += usize::from(wanted);
        wanted
    }
}

fn spawn(shared: &Arc<Shared>) -> io::Result<()> {
    let mine = Arc::clone(shared);
    thread::Builder::new().name("reaper".to_owned()).stack_size(STACK).spawn(move || serve(&mine)).map(drop)
}

/// Closes sockets until there is too little to do.
///
/// A thread is started by another of its kind, never by whoever leaves a socket: that may be a worker inside a
/// container's namespace, and a thread that was born there would keep the namespace alive.
fn serve(shared: &Arc<Shared>) {
    while let Some(socket) = shared.next() {
        if shared.wants_another()
            && let Err(error) = spawn(shared)
        {
            warn!(%error, "no further thread to close sockets");
            shared.queue().threads -= 1;
        }
        drop(socket);
    }
}
