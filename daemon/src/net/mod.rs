//! The part of the shell that touches the kernel: namespaces, links, packet sockets, and the kernel's news of them.
//!
//! It carries out the core's effects and tells what happened. It holds no rule of DHCP and no state of a lease.
//!
//! * [`netns`]: a few plain threads enter namespaces and come back ([`pool`]); there [`netlink`] looks at links, and
//!   [`steps`] change them.
//! * [`packet`]: the sockets of an exchange, for some on a bridge's [`port`] of their own; [`exchange`] sends what its
//!   [`outbox`](mod@outbox) holds and receives through them; [`reaper`] closes them.
//! * [`survey`] looks for what keeps DHCP servers from answering.
//! * [`watch`] hears what happens in the namespaces that were looked at; [`registrar`] knows which those are.
//! * [`inherit`] takes the socket that systemd passes.
//!
//! Nothing here waits on the loop, and nothing polls. No namespace is kept alive beyond an exchange or a look.

mod exchange;
pub(crate) mod inherit;
mod netlink;
mod netns;
mod outbox;
mod packet;
mod pool;
mod port;
mod ready;
mod reaper;
mod registrar;
mod steps;
mod survey;
mod watch;

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::future;
use std::io;
use std::ops::Deref;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold_core::effect::{ExchangeId, OpId, Outcome};
use leasehold_core::link::{KernelEvent, Link, LinkCause, Sockets, Step, Target};
use leasehold_core::wire::frame::FrameMeta;
use tokio::runtime::Handle;
use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::mpsc::UnboundedSender;
use tokio::task::JoinHandle;
use tracing::debug;

use exchange::Exchange;
use netns::Host;
use outbox::{Outgoing, Sender, outbox};
use packet::Receiver;
use pool::Pool;
pub(crate) use ready::Ready;
use reaper::Reaper;
use registrar::Registrar;
use watch::Watch;

/// How long an operation may take until it is answered with [`LinkCause::TimedOut`].
const LIMIT: Duration = Duration::from_secs(10);
/// Frames of one exchange that wait to be sent, at most. The core sends one and waits for its answer.
const UNSENT: usize = 16;
/// Exchanges whose end was not noticed are looked for when there are this many, or twice as many as last time.
const SWEEP: usize = 64;

/// How the net is started.
#[derive(Clone, Debug)]
pub(crate) struct NetConfig {
    /// Where the host's root directory is seen: `/` unless the daemon runs in a container.
    pub(crate) host_prefix: PathBuf,
    /// Threads that work in namespaces.
    pub(crate) workers: usize,
}

/// Why the net cannot start.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NetError {
    /// The daemon's own namespace cannot be opened or identified.
    #[error("cannot identify the daemon's own network namespace (this takes Linux 5.14)")]
    OwnNamespace(#[source] io::Error),
    /// The kernel's news cannot be heard.
    #[error("cannot open a netlink socket")]
    Watch(#[source] io::Error),
    /// No thread.
    #[error("cannot start a thread")]
    Thread(#[source] io::Error),
}

/// What the net tells the driver.
#[derive(Debug)]
pub(crate) enum NetEvent {
    /// An operation is over.
    Done {
        /// The operation.
        op: OpId,
        /// How it ended.
        outcome: Outcome,
    },
    /// A frame came in.
    Frame {
        /// On which exchange.
        exchange: ExchangeId,
        /// The frame from its Ethernet header on.
        bytes: Received,
        /// What the kernel said of it.
        meta: FrameMeta,
    },
    /// An exchange's socket failed; nothing more comes from it. It is to be closed still.
    Broken {
        /// The exchange.
        exchange: ExchangeId,
        /// Why.
        cause: LinkCause,
    },
    /// The kernel told something.
    Kernel(News),
}

/// The bytes of a received frame.
///
/// An exchange has only so many of them out at a time: dropping one lets the next be read.
#[derive(Debug)]
pub(crate) struct Received {
    bytes: Vec<u8>,
    _place: OwnedSemaphorePermit,
}

impl Deref for Received {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

/// What the kernel told.
///
/// The watch has only so much of it out at a time: taking the event lets the next be read.
#[derive(Debug)]
pub(crate) struct News {
    event: KernelEvent,
    _place: Option<OwnedSemaphorePermit>,
}

impl News {
    /// Returns what the kernel told.
    pub(crate) fn into_event(self) -> KernelEvent {
        self.event
    }
}

/// Namespaces, links and packet sockets. Dropping it closes every exchange.
#[derive(Debug)]
pub(crate) struct Net {
    runtime: Handle,
    pool: Pool,
    events: UnboundedSender<NetEvent>,
    exchanges: HashMap<ExchangeId, Sender>,
    into: Arc<Mutex<Receiver>>,
    sweep_at: usize,
    watch: JoinHandle<()>,
}

impl Net {
    /// Starts the threads and the watch. The calling thread's namespace is the host's from now on.
    ///
    /// Must be called inside a runtime with I/O and time; what happens is told to `events`. That has no bound of its own
    /// and needs none: operations are the caller's, and frames and news each have so many places there.
    pub(crate) fn start(config: NetConfig, events: UnboundedSender<NetEvent>) -> Result<Self, NetError> {
        let registrar = Registrar::open().map_err(NetError::Watch)?;
        let reaper = Reaper::start().map_err(NetError::Thread)?;
        let host = Host::here(config.host_prefix, Arc::clone(&registrar), reaper).map_err(NetError::OwnNamespace)?;
        let pool = Pool::start(Arc::new(host), config.workers, LIMIT).map_err(NetError::Thread)?;
        let watch = Watch::new(registrar, pool.clone(), events.clone()).map_err(NetError::Watch)?;
        let runtime = Handle::current();
        let watch = runtime.spawn(watch.run());
        let into = Arc::new(Mutex::new(Receiver::new()));
        Ok(Self { runtime, pool, events, exchanges: HashMap::new(), into, sweep_at: SWEEP, watch })
    }

    /// Opens the sockets of an exchange.
    pub(crate) fn open(&mut self, op: OpId, exchange: ExchangeId, link: Link, want: Sockets) {
        self.sweep();
        let (frames, outbox) = outbox(UNSENT);
        self.exchanges.insert(exchange, frames);
        let opening = self.pool.run(move |worker| worker.open(&link, want));
        let exchange = Exchange { id: exchange, events: self.events.clone(), into: Arc::clone(&self.into) };
        self.runtime.spawn(exchange.run(op, opening, outbox));
    }

    /// Looks at a link, and tells of its namespace from then on.
    pub(crate) fn inspect(&mut self, op: OpId, target: Target) {
        let look = self.pool.run(move |worker| worker.apply(&target, &[], |_| true));
        self.answer(op, async move { Outcome::Inspected(look.await.flatten()) });
    }

    /// Changes a link step by step, then looks at it.
    pub(crate) fn apply(&mut self, op: OpId, target: Target, steps: Vec<Step>) {
        // Counted outside of the work, so that it can be told also of work that hangs. What hung for too long changes nothing
        // any more: somebody else may have the link by then.
        let (taken, over) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        let (counter, is_over) = (Arc::clone(&taken), Arc::clone(&over));
        let work = self.pool.run(move |worker| {
            worker.apply(&target, &steps, |taken| {
                counter.store(taken, Ordering::Relaxed);
                !is_over.load(Ordering::Relaxed)
            })
        });
        self.answer(op, async move {
            let result = work.await.flatten();
            over.store(true, Ordering::Relaxed);
            Outcome::Applied { taken: taken.load(Ordering::Relaxed), result }
        });
    }

    /// Looks for what could explain that no DHCP server answers.
    pub(crate) fn survey(&mut self, op: OpId, link: Link, lan_parent: Option<String>) {
        let look = self.pool.run(move |worker| survey::look(worker, link, lan_parent));
        self.answer(op, async move { Outcome::Surveyed(look.await.unwrap_or_default()) });
    }

    /// Sends a frame. One that the link cannot take within 50 ms is lost.
    pub(crate) fn send(&mut self, op: Option<OpId>, exchange: ExchangeId, frame: Vec<u8>) {
        let Some(frames) = self.exchanges.get(&exchange) else {
            return debug!(exchange = exchange.0, "frame for an exchange that is not open");
        };
        if frames.send(Outgoing { op, frame }) {
            return;
        }
        debug!(exchange = exchange.0, "frame not sent: too many wait, or the socket failed");
        if let Some(op) = op {
            let cause = LinkCause::refused("send", "too many frames wait, or the socket failed");
            self.answer(op, future::ready(Outcome::Sent(Err(cause))));
        }
    }

    /// Closes an exchange, opened or still opening. What was sent on it before still goes out; nothing more comes in.
    pub(crate) fn close(&mut self, exchange: ExchangeId) {
        self.exchanges.remove(&exchange);
    }

    fn answer(&self, op: OpId, outcome: impl Future<Output = Outcome> + Send + 'static) {
        let events = self.events.clone();
        self.runtime.spawn(async move {
            let outcome = outcome.await;
            debug!(op = op.0, ?outcome, "done");
            let _ = events.send(NetEvent::Done { op, outcome });
        });
    }

    /// Drops what is left of exchanges that never opened, or broke, and were not closed.
    fn sweep(&mut self) {
        if self.exchanges.len() >= self.sweep_at {
            self.exchanges.retain(|_, frames| !frames.is_abandoned());
            self.sweep_at = SWEEP.max(2 * self.exchanges.len());
        }
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        self.watch.abort();
    }
}
