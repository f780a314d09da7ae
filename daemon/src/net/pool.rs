//! Threads for what may block: path lookups, setns, netlink under the kernel's lock.
//!
//! For its caller, each piece of work ends within the pool's limit. Work that still waits for a thread by then is withdrawn; a
//! thread that hangs in its work (a path on a dead file server) is written off and replaced, and ends when it comes back. Its
//! late result must not matter: see [`Pool::run`].

use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

use leasehold_core::link::LinkCause;
use tokio::sync::oneshot;
use tracing::warn;

use super::netns::{Host, Worker};

/// The most threads that may hang. Once that many do, no more are replaced.
const MOST_STUCK: usize = 32;
/// Enough: a worker's deepest call is a path lookup, whose buffers are on the heap.
const STACK: usize = 128 * 1024;

/// A few threads and the work that waits for them. The threads end when the last handle goes.
#[derive(Clone, Debug)]
pub(super) struct Pool(Arc<Handle>);

/// Ends the threads when dropped: they hold only what is shared.
#[derive(Debug)]
struct Handle(Arc<Shared>);

struct Shared {
    host: Arc<Host>,
    threads: usize,
    limit: Duration,
    queue: Mutex<Queue>,
    arrived: Condvar,
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    /// Threads that take work, not counting those written off.
    alive: usize,
    stuck: usize,
    closed: bool,
}

type Tell = Box<dyn FnOnce() + Send>;

struct Job {
    ticket: Arc<Ticket>,
    /// The work, which returns a function that delivers the result.
    work: Box<dyn FnOnce(&mut Worker) -> Tell + Send>,
}

/// The progress of a piece of work, shared by its caller and its thread.
#[derive(Debug)]
struct Ticket(AtomicU8);

const WAITING: u8 = 0;
const TAKEN: u8 = 1;
const DONE: u8 = 2;
/// The caller gave up before a thread took it.
const WITHDRAWN: u8 = 3;
/// The caller gave up on the thread that has it.
const WRITTEN_OFF: u8 = 4;

impl Ticket {
    fn moves(&self, from: u8, to: u8) -> bool {
        self.0
            .compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
    }
}

impl Pool {
    /// Starts `threads` threads, whose work may take `limit`.
    pub(super) fn start(host: Arc<Host>, threads: usize, limit: Duration) -> io::Result<Self> {
        let queue = Mutex::new(Queue::default());
        let shared = Shared {
            host,
            threads: threads.max(1),
            limit,
            queue,
            arrived: Condvar::new(),
        };
        let handle = Handle(Arc::new(shared));
        handle.0.top_up(&mut handle.0.queue())?;
        Ok(Self(Arc::new(handle)))
    }

    /// Hands work to a thread now, and returns a future of its result.
    ///
    /// A result that comes after the limit is dropped on the thread that brings it, back in the host's namespace.
    /// Must be called from the host's namespace: a missing thread is started by the caller.
    pub(super) fn run<T, W>(
        &self,
        work: W,
    ) -> impl Future<Output = Result<T, LinkCause>> + Send + use<T, W>
    where
        T: Send + 'static,
        W: FnOnce(&mut Worker) -> T + Send + 'static,
    {
        let (tell, told) = oneshot::channel();
        let ticket = Arc::new(Ticket(AtomicU8::new(WAITING)));
        let work = Box::new(move |worker: &mut Worker| {
            let result = work(worker);
            Box::new(move || drop(tell.send(result))) as Tell
        });
        let shared = Arc::clone(&self.0.0);
        shared.submit(Job {
            ticket: Arc::clone(&ticket),
            work,
        });
        async move {
            match tokio::time::timeout(shared.limit, told).await {
                Ok(Ok(result)) => Ok(result),
                Ok(Err(_)) => Err(LinkCause::refused("work on it", "the worker thread failed")),
                Err(_) => {
                    shared.give_up(&ticket);
                    Err(LinkCause::TimedOut)
                }
            }
        }
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

    fn submit(self: &Arc<Self>, job: Job) {
        let mut queue = self.queue();
        queue.jobs.push_back(job);
        self.arrived.notify_one();
        if let Err(error) = self.top_up(&mut queue) {
            warn!(%error, alive = queue.alive, "cannot start another worker thread");
        }
    }

    /// Starts the threads that are missing.
    fn top_up(self: &Arc<Self>, queue: &mut Queue) -> io::Result<()> {
        while queue.alive < self.threads {
            let mine = Arc::clone(self);
            let named = thread::Builder::new()
                .name("netns".to_owned())
                .stack_size(STACK);
            named.spawn(move || serve(&mine))?;
            queue.alive += 1;
        }
        Ok(())
    }

    fn give_up(self: &Arc<Self>, ticket: &Ticket) {
        let mut queue = self.queue();
        if ticket.moves(WAITING, WITHDRAWN) {
            queue.jobs.retain(|job| !std::ptr::eq(&*job.ticket, ticket));
            return;
        }
        if queue.stuck < MOST_STUCK && ticket.moves(TAKEN, WRITTEN_OFF) {
            queue.stuck += 1;
            queue.alive -= 1;
            warn!(stuck = queue.stuck, "a worker thread hangs and is replaced");
            if let Err(error) = self.top_up(&mut queue) {
                warn!(%error, alive = queue.alive, "cannot start another worker thread");
            }
        }
    }

    fn leave(&self, written_off: bool) {
        let mut queue = self.queue();
        if written_off {
            queue.stuck -= 1;
        } else {
            queue.alive -= 1;
        }
    }

    /// Waits for work that is still wanted; `None` when the pool is closed.
    fn next(&self) -> Option<Job> {
        let mut queue = self.queue();
        loop {
            match queue.jobs.pop_front() {
                Some(job) if job.ticket.moves(WAITING, TAKEN) => return Some(job),
                Some(_withdrawn) => {}
                None if queue.closed => return None,
                None => {
                    queue = self
                        .arrived
                        .wait(queue)
                        .expect("nothing panics while it holds the queue")
                }
            }
        }
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared")
            .field("threads", &self.threads)
            .field("limit", &self.limit)
            .finish_non_exhaustive()
    }
}

fn serve(shared: &Arc<Shared>) {
    let mut worker = Worker::new(Arc::clone(&shared.host));
    while let Some(job) = shared.next() {
        // A panic is a bug of ours. It costs only that piece of work: the thread is back in its own namespace.
        let told = catch_unwind(AssertUnwindSafe(|| (job.work)(&mut worker)));
        let written_off = !job.ticket.moves(TAKEN, DONE);
        let leaving = written_off || worker.is_stranded();
        if leaving {
            shared.leave(written_off);
        }
        // Sent last: whoever gets it finds this thread no longer counted.
        if let Ok(tell) = told {
            tell();
        }
        if leaving {
            return;
        }
    }
}
