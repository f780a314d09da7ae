//! What wakes the loop: channels, the clock, timers and signals.

use std::future;
use std::io;
use std::time::Duration;

use leasehold_core::time::Instant;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::JoinHandle;
use tokio::time::{Interval, MissedTickBehavior, interval, sleep_until};

use crate::clock::Clock;
use crate::http::DoorReport;
use crate::net::NetReport;
use crate::service::Watchdog;
use crate::store::Persisted;

/// The most events taken from each source before the effects are drained and the runtime gets its turn.
const BATCH: usize = 64;

/// Everything that can wake the loop.
pub(super) struct Sources {
    pub(super) net: UnboundedReceiver<NetReport>,
    pub(super) store: UnboundedReceiver<Persisted>,
    pub(super) doors: UnboundedReceiver<DoorReport>,
    pub(super) clock: Clock,
    pub(super) watchdog: Option<Watchdog>,
    pub(super) ticks: Interval,
    pub(super) signals: Signals,
    /// The task that accepts callers.
    pub(super) accepting: JoinHandle<()>,
}

/// The signals that ask to stop.
pub(super) struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// Handles these signals from now on. Must be called inside the runtime.
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    /// Waits for a signal, and returns its name.
    pub(super) async fn next(&mut self) -> &'static str {
        tokio::select! {
            Some(()) = self.terminate.recv() => "SIGTERM",
            Some(()) = self.interrupt.recv() => "SIGINT",
            else => future::pending().await,
        }
    }
}

/// What woke the loop.
pub(super) enum Wake {
    Net(NetReport),
    Store(Persisted),
    Door(DoorReport),
    /// The core's deadline passed.
    Due,
    /// The service manager's watchdog wants to be fed.
    Hungry,
    /// It is time to look at the socket's directory, since this instant.
    Tick(tokio::time::Instant),
    /// The signal that asks to stop.
    Stop(&'static str),
    /// The time for open requests is over.
    GraceOver,
    /// The task that accepts callers ended.
    Deaf,
}

impl Sources {
    /// Waits for whatever comes first.
    pub(super) async fn next(
        &mut self,
        due: Option<Instant>,
        grace: Option<tokio::time::Instant>,
    ) -> Wake {
        let due = if_any(due.map(|at| self.clock.sleep_until(at)));
        let hungry = if_any(self.watchdog.as_mut().map(Watchdog::hungry));
        let grace = if_any(grace.map(sleep_until));
        tokio::select! {
            Some(report) = self.net.recv() => Wake::Net(report),
            Some(report) = self.store.recv() => Wake::Store(report),
            Some(report) = self.doors.recv() => Wake::Door(report),
            () = due => Wake::Due,
            () = hungry => Wake::Hungry,
            due = self.ticks.tick() => Wake::Tick(due),
            signal = self.signals.next() => Wake::Stop(signal),
            () = grace => Wake::GraceOver,
            _ = &mut self.accepting => Wake::Deaf,
        }
    }

    /// Returns what is waiting in each of the channels, at most [`BATCH`] from each.
    pub(super) fn ready(&mut self) -> Vec<Wake> {
        let mut ready = Vec::new();
        for _ in 0..BATCH {
            let before = ready.len();
            ready.extend(self.net.try_recv().ok().map(Wake::Net));
            ready.extend(self.store.try_recv().ok().map(Wake::Store));
            ready.extend(self.doors.try_recv().ok().map(Wake::Door));
            if ready.len() == before {
                break;
            }
        }
        ready
    }
}

/// Waits for a future, if there is one; else for ever.
async fn if_any<T>(some: Option<impl Future<Output = T>>) -> T {
    match some {
        Some(future) => future.await,
        None => future::pending().await,
    }
}

/// Returns a timer with this period, which ticks at once; a late tick delays those that follow.
pub(super) fn every(period: Duration) -> Interval {
    let mut interval = interval(period);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    interval
}
