//! Closing packet sockets, off the loop.
//!
//! `close` of an AF_PACKET socket waits for an RCU grace period, some 16 ms, in which the thread does nothing else. So threads
//! close them, as many as there is work for: 16 of them close about 1,000 sockets a second. When a thread ends, the memory of its
//! stack and its heap is not given back.
//!
//! The queue needs no bound of its own: everything in it is an open socket, so the limit on open files bounds it, and refusing a
//! socket would only leak it.

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

use tokio::sync::OwnedSemaphorePermit;
use tracing::warn;

/// The most threads.
const MOST: usize = 16;
/// The threads that stay when there is nothing to close.
const FEWEST: usize = 1;
/// How long an extra thread waits for work before it ends.
const IDLE: Duration = Duration::from_secs(2);
/// Enough for a thread that only calls `close`.
const STACK: usize = 64 * 1024;

/// Closes packet sockets. The threads end when the last handle goes and all is closed.
#[derive(Clone, Debug)]
pub(super) struct Reaper(Arc<Handle>);

/// Ends the threads when dropped: they hold only what is shared.
#[derive(Debug)]
struct Handle(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    queue: Mutex<Queue>,
    arrived: Condvar,
}

#[derive(Debug, Default)]
struct Queue {
    sockets: VecDeque<(OwnedFd, Option<OwnedSemaphorePermit>)>,
    threads: usize,
    idle: usize,
    closed: bool,
}

impl Reaper {
    /// Starts the first thread.
    pub(super) fn start() -> io::Result<Self> {
        let shared = Arc::new(Shared {
            queue: Mutex::default(),
            arrived: Condvar::new(),
        });
        shared.queue().threads = FEWEST;
        spawn(&shared)?;
        Ok(Self(Arc::new(Handle(shared))))
    }

    /// Takes a socket to close soon, and its places to give back after that. Never waits.
    pub(super) fn close(&self, socket: OwnedFd, places: Option<OwnedSemaphorePermit>) {
        let shared = &self.0.0;
        shared.queue().sockets.push_back((socket, places));
        shared.arrived.notify_one();
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.0.queue().closed = true;
        self.0.arrived.notify_all();
    }
}

impl Shared {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue
            .lock()
            .expect("nothing panics while it holds the queue")
    }

    /// Waits for a socket to close; `None` if this thread is one too many.
    fn next(&self) -> Option<(OwnedFd, Option<OwnedSemaphorePermit>)> {
        let mut queue = self.queue();
        loop {
            if let Some(socket) = queue.sockets.pop_front() {
                return Some(socket);
            }
            if queue.closed {
                return None;
            }
            queue.idle += 1;
            let spare = queue.threads > FEWEST;
            let limit = if spare { IDLE } else { Duration::MAX };
            let (woken, wait) = self
                .arrived
                .wait_timeout(queue, limit)
                .expect("nothing panics while it holds the queue");
            queue = woken;
            queue.idle -= 1;
            if wait.timed_out() && queue.sockets.is_empty() && queue.threads > FEWEST {
                queue.threads -= 1;
                return None;
            }
        }
    }

    /// Reserves a place for one more thread if sockets wait and no thread is free.
    fn wants_another(&self) -> bool {
        let mut queue = self.queue();
        let wanted = queue.sockets.len() > queue.idle && queue.threads < MOST;
        queue.threads += usize::from(wanted);
        wanted
    }
}

fn spawn(shared: &Arc<Shared>) -> io::Result<()> {
    let mine = Arc::clone(shared);
    thread::Builder::new()
        .name("reaper".to_owned())
        .stack_size(STACK)
        .spawn(move || serve(&mine))
        .map(drop)
}

/// Closes sockets until there is too little work.
///
/// Such a thread is started by another of its kind, never by the caller. The caller may be a worker inside a container's
/// namespace, and a thread started there would keep the namespace alive.
fn serve(shared: &Arc<Shared>) {
    while let Some((socket, places)) = shared.next() {
        if shared.wants_another()
            && let Err(error) = spawn(shared)
        {
            warn!(%error, "cannot start another thread to close sockets");
            shared.queue().threads -= 1;
        }
        drop(socket);
        drop(places);
    }
}
