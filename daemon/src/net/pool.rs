//! Threads for what may block: path lookups, setns, netlink under the kernel's lock.
//!
//! For its caller, each piece of work ends within the pool's limit. Work that still waits for a thread by then is withdrawn; a
//! thread that hangs in its work (a path on a dead file server) is written off and replaced, and ends when it comes back. Its
//! late result must not matter: see [`Pool::run`].

use std::collections::{HashSet, VecDeque};
use std::future::Future;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
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
    /// The number of the last job.
    last: u64,
    /// The jobs that threads have taken, without those whose thread was written off.
    taken: HashSet<u64>,
    /// Threads that take work, not counting those written off.
    alive: usize,
    stuck: usize,
    closed: bool,
}

type Tell = Box<dyn FnOnce() + Send>;

struct Job {
    number: u64,
    /// The work, which returns a function that delivers the result.
    work: Box<dyn FnOnce(&mut Worker) -> Tell + Send>,
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
        let work = Box::new(move |worker: &mut Worker| {
            let result = work(worker);
            Box::new(move || drop(tell.send(result))) as Tell
        });
        let shared = Arc::clone(&self.0.0);
        let number = shared.submit(work);
        async move {
            match tokio::time::timeout(shared.limit, told).await {
                Ok(Ok(result)) => Ok(result),
                Ok(Err(_)) => Err(LinkCause::refused("work on it", "the worker thread failed")),
                Err(_) => {
                    shared.give_up(number);
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

    /// Has a thread do work, and returns the job's number.
    fn submit(self: &Arc<Self>, work: Box<dyn FnOnce(&mut Worker) -> Tell + Send>) -> u64 {
        let mut queue = self.queue();
        queue.last += 1;
        let number = queue.last;
        queue.jobs.push_back(Job { number, work });
        self.arrived.notify_one();
        if let Err(error) = self.top_up(&mut queue) {
            warn!(%error, alive = queue.alive, "cannot start another worker thread");
        }
        number
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

    /// Withdraws a job whose caller waits no more, or writes off the thread that has it.
    fn give_up(self: &Arc<Self>, number: u64) {
        let mut queue = self.queue();
        queue.jobs.retain(|job| job.number != number);
        if queue.stuck < MOST_STUCK && queue.taken.remove(&number) {
            queue.stuck += 1;
            queue.alive -= 1;
            warn!(stuck = queue.stuck, "a worker thread hangs and is replaced");
            if let Err(error) = self.top_up(&mut queue) {
                warn!(%error, alive = queue.alive, "cannot start another worker thread");
            }
        }
    }

    /// Records that a thread has done a job. Returns whether the thread must end: it was written off, or is stranded.
    fn done(&self, number: u64, is_stranded: bool) -> bool {
        let mut queue = self.queue();
        match (queue.taken.remove(&number), is_stranded) {
            (false, _) => queue.stuck -= 1,
            (true, true) => queue.alive -= 1,
            (true, false) => return false,
        }
        true
    }

    /// Waits for a job; `None` when the pool is closed.
    fn next(&self) -> Option<Job> {
        let mut queue = self.queue();
        loop {
            if let Some(job) = queue.jobs.pop_front() {
                queue.taken.insert(job.number);
                return Some(job);
            }
            if queue.closed {
                return None;
            }
            queue = self
                .arrived
                .wait(queue)
                .expect("nothing panics while it holds the queue");
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
        let leaving = shared.done(job.number, worker.is_stranded());
        // Sent last: whoever gets it finds this thread no longer counted.
        if let Ok(tell) = told {
            tell();
        }
        if leaving {
            return;
        }
    }
}
