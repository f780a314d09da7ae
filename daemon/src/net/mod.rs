//! The part of the shell that touches the kernel: namespaces, links, packet sockets, and the kernel's notifications.
//!
//! It carries out the core's effects and reports what happened. It holds no DHCP rule and no lease state.
//!
//! * [`netns`]: a few plain threads enter namespaces and come back ([`pool`]); there [`netlink`] looks at links, and
//!   [`steps`] change them.
//! * [`opened`] holds the sockets of an exchange: one for [`packet`]s, with a [`filter`], sometimes on a [`port`] made for
//!   it. [`exchange`] sends what its [`outbox`](mod@outbox) holds and receives through them; [`reaper`] closes them.
//! * [`own`] makes and deletes our own links in the host's namespace, which are known by their [`alias`].
//! * [`seek`] looks for interfaces in the namespaces of an engine that does not say where it puts them.
//! * [`survey`] looks for what keeps DHCP servers from answering.
//! * [`watch`] reports what happens in the namespaces that were looked at; [`registrar`] knows which those are. [`paths`] notices
//!   when the path to one disappears.
//! * [`heap`] returns unneeded memory to the kernel after a burst.
//! * [`inherit`] takes the socket that systemd passes.
//!
//! Nothing here waits on the loop, and nothing polls. No namespace is kept alive longer than an exchange or a look
//! takes.

mod alias;
mod census;
mod exchange;
mod file;
mod filter;
pub(crate) mod heap;
pub(crate) mod inherit;
mod netlink;
mod netns;
mod opened;
mod outbox;
mod own;
mod packet;
mod paths;
mod pool;
mod port;
mod ready;
mod reaper;
mod registrar;
mod seek;
mod steps;
pub(crate) mod survey;
mod watch;

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::future;
use std::io;
use std::mem;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use ipnet::Ipv4Net;
use leasehold_core::effect::{ExchangeId, OpId, Outcome};
use leasehold_core::link::own::{LinkOwner, OwnLink};
use leasehold_core::link::{
    Hears, KernelMessage, Link, LinkCause, Sightings, Sockets, Sought, Step, Target,
};
use leasehold_core::wire::Mac;
use leasehold_core::wire::frame::FrameMeta;
use nix::errno::Errno;
use tokio::runtime::Handle;
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::task::JoinHandle;
use tokio::time::sleep;
use tracing::debug;

use crate::cannot::Cannot;
pub(crate) use alias::StoreId;
use exchange::Exchange;
use netlink::{Netlink, NetlinkError, Which};
pub(crate) use netns::Visit;
use netns::{Host, Worker};
use outbox::{Order, Outgoing, Sender, outbox};
use packet::{Receiver, Uplinks};
use pool::Pool;
pub(crate) use ready::Ready;
use reaper::Reaper;
use registrar::Registrar;
use watch::Watch;

/// What fails on an older kernel.
const OWN_NAMESPACE: &str = "identify the daemon's own network namespace (this needs Linux 5.14)";
/// How long an operation may take before it is answered with [`LinkCause::TimedOut`].
const LIMIT: Duration = Duration::from_secs(10);
/// The name of the watch's task, for messages about its end.
const WATCH: &str = "the task that hears the kernel";
/// The most waiting orders of one exchange. The core sends one frame and waits for its outcome.
const UNSENT: usize = 16;
/// The most descriptors of one exchange: for packets, on port 68, and for news of a port made for it.
const MOST_DESCRIPTORS: usize = 3;
/// The number of exchanges at which to look for those whose end went unnoticed; after that, twice as many as last time.
const SWEEP: usize = 64;

/// How many exchanges leave much unneeded memory behind.
const BURST: usize = 64;
/// When that memory is returned: by then the sockets are closed.
const AFTER_BURST: Duration = Duration::from_secs(3);

/// How the net is started.
#[derive(Clone, Debug)]
pub(crate) struct NetConfig {
    /// Where the host's root directory is: `/` unless the daemon runs in a container.
    pub(crate) host_prefix: PathBuf,
    /// Where an engine keeps its namespaces if it does not say where it puts interfaces: Docker's, if that is served.
    pub(crate) docker_netns: Option<PathBuf>,
    /// The name of the store, by which our own links are known.
    pub(crate) store: StoreId,
    /// Threads that work in namespaces.
    pub(crate) workers: usize,
    /// The most sockets that exchanges may have open together; further exchanges wait for others to close.
    pub(crate) sockets: usize,
}

/// Returns the Ethernet address of the host's link with a name, if there is one. The kernel may take a while.
pub(crate) fn ethernet(name: &str) -> Option<Mac> {
    Netlink::open()
        .ok()?
        .ethernet(Which::Name(name))
        .ok()
        .map(|(_, mac)| mac)
}

/// Returns the names of the host's links that have an IPv4 address with this very prefix: no macvlan, ipvlan or bridge port, which
/// are not a LAN's own link. The kernel may take a while.
pub(crate) fn links_in(subnet: Ipv4Net) -> Vec<String> {
    let found = Netlink::open()
        .map_err(NetlinkError::from)
        .and_then(|mut netlink| netlink.links_in(subnet));
    found.unwrap_or_else(|error| {
        tracing::warn!(%subnet, %error, "the host's addresses cannot be listed");
        Vec::new()
    })
}

/// The state of a link of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LinkState {
    /// There is none of that name.
    Missing,
    /// It is down.
    Down,
    /// It is up, but has no carrier. `bridge`: it is a bridge, which has none while no port of it has.
    NoCarrier { bridge: bool },
    /// It is up, with carrier.
    Up,
}

/// Returns the state of the host's link with a name; `None` if it cannot be looked at. The kernel may take a while.
pub(crate) fn link_state(name: &str) -> Option<LinkState> {
    match Netlink::open().ok()?.link(Which::Name(name)) {
        Ok(link) if !link.is_up() => Some(LinkState::Down),
        Ok(link) if !link.has_carrier() => Some(LinkState::NoCarrier {
            bridge: link.bridge,
        }),
        Ok(_) => Some(LinkState::Up),
        Err(LinkCause::NoLink(_)) => Some(LinkState::Missing),
        Err(_) => None,
    }
}

/// Returns whether a link of the host is wireless.
pub(crate) fn is_wireless(name: &str) -> bool {
    Path::new("/sys/class/net")
        .join(name)
        .join("phy80211")
        .exists()
}

/// What the net tells the driver.
#[derive(Debug)]
pub(crate) enum NetReport {
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
        /// What the kernel said about it.
        meta: FrameMeta,
    },
    /// An exchange's socket failed; nothing more comes from it. It must still be closed.
    Broken {
        /// The exchange.
        exchange: ExchangeId,
        /// Why.
        cause: LinkCause,
    },
    /// The link did not take a frame whose outcome nobody waits for.
    Unsent {
        /// The exchange.
        exchange: ExchangeId,
        /// Why.
        cause: LinkCause,
    },
    /// The kernel reported something.
    Kernel(News),
    /// An essential task ended. Holds what the task does.
    Ended(&'static str),
}

/// Reports the end of a task when a panic drops this value. Nobody waits for such a task, so its end would go unnoticed.
#[derive(Debug)]
struct Alarm {
    task: &'static str,
    reports: UnboundedSender<NetReport>,
}

impl Alarm {
    fn new(task: &'static str, reports: &UnboundedSender<NetReport>) -> Self {
        Self {
            task,
            reports: reports.clone(),
        }
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        if thread::panicking() {
            let _ = self.reports.send(NetReport::Ended(self.task));
        }
    }
}

/// The bytes of a received frame.
/// An exchange may have a limited number of these at a time: the next frame is read when one is dropped.
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

/// What the kernel reported.
///
/// The watch may have a limited number of these at a time: the next message is read when one is taken.
#[derive(Debug)]
pub(crate) struct News {
    pub(crate) event: KernelMessage,
    _place: Option<OwnedSemaphorePermit>,
}

/// What the watch hears about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Watched {
    /// How many namespaces of containers.
    pub(crate) namespaces: usize,
    /// How often the kernel lost messages since the start.
    pub(crate) lost: u64,
}

/// Returns why something that needs a descriptor could not be done.
fn failed(doing: &'static str, error: &io::Error) -> LinkCause {
    match error.raw_os_error().map(Errno::from_raw) {
        Some(Errno::EMFILE | Errno::ENFILE) => LinkCause::NoDescriptor {
            doing,
            reason: error.to_string(),
        },
        _ => LinkCause::refused(doing, error),
    }
}

/// Namespaces, links and packet sockets. Dropping it closes every exchange.
#[derive(Debug)]
pub(crate) struct Net {
    runtime: Handle,
    pool: Pool,
    reports: UnboundedSender<NetReport>,
    docker_netns: Option<PathBuf>,
    store: StoreId,
    /// Comes when the last work on our own links is over.
    turn: oneshot::Receiver<()>,
    exchanges: HashMap<ExchangeId, Sender>,
    into: Arc<Mutex<Receiver>>,
    uplinks: Arc<Uplinks>,
    sockets: Arc<Semaphore>,
    sweep_at: usize,
    /// How many exchanges there were since memory was last given back.
    burst: usize,
    registrar: Arc<Registrar>,
    watch: JoinHandle<()>,
}

impl Net {
    /// Starts the threads and the watch. The calling thread's namespace is the host's from now on.
    ///
    /// Must be called inside a runtime with I/O and time; what happens is sent to `reports`. That channel needs no
    /// bound: the caller limits operations, and frames and news each have a limited number of places there.
    pub(crate) fn start(
        config: NetConfig,
        reports: UnboundedSender<NetReport>,
    ) -> Result<Self, Cannot> {
        let registrar = Registrar::open(config.docker_netns.is_some().then_some(config.store))
            .map_err(Cannot::of("open a netlink socket"))?;
        let reaper = Reaper::start().map_err(Cannot::of("start a thread"))?;
        let host = Host::here(config.host_prefix, Arc::clone(&registrar), reaper)
            .map_err(Cannot::of(OWN_NAMESPACE))?;
        let pool = Pool::start(Arc::new(host), config.workers, LIMIT)
            .map_err(Cannot::of("start a thread"))?;
        let watch = Watch::new(Arc::clone(&registrar), pool.clone(), reports.clone())
            .map_err(Cannot::of("open a netlink socket"))?;
        let runtime = Handle::current();
        let alarm = Alarm::new(WATCH, &reports);
        let ends = reports.clone();
        let watch = runtime.spawn(async move {
            let _alarm = alarm;
            watch.run().await;
            let _ = ends.send(NetReport::Ended(WATCH));
        });
        let into = Arc::new(Mutex::new(Receiver::new()));
        let sockets = Arc::new(Semaphore::new(
            config
                .sockets
                .clamp(MOST_DESCRIPTORS, Semaphore::MAX_PERMITS),
        ));
        let docker_netns = config.docker_netns;
        let uplinks = Arc::new(Uplinks::open());
        let mut net = Self {
            runtime,
            pool,
            reports,
            docker_netns,
            store: config.store,
            // Nobody is before the first.
            turn: oneshot::channel().1,
            exchanges: HashMap::new(),
            into,
            uplinks,
            sockets,
            sweep_at: SWEEP,
            burst: BURST,
            registrar,
            watch,
        };
        // The start leaves unneeded memory behind, too.
        net.trim();
        Ok(net)
    }

    /// Opens the sockets of an exchange.
    pub(crate) fn open(&mut self, op: OpId, exchange: ExchangeId, link: Link, want: Sockets) {
        self.sweep();
        let (frames, outbox) = outbox(UNSENT);
        self.exchanges.insert(exchange, frames);
        let places = Arc::clone(&self.sockets).acquire_many_owned(descriptors(&link, want));
        let pool = self.pool.clone();
        let opening = move || pool.run(move |worker| worker.open(&link, want));
        let exchange = self.exchange(exchange);
        self.runtime
            .spawn(exchange.run(op, places, opening, outbox));
    }

    /// Looks at a link, and reports from then on what happens in its namespace.
    pub(crate) fn inspect(&mut self, op: OpId, target: Target, routes: bool) {
        let look = self.pool.run(move |worker| worker.look(&target, routes));
        self.answer(op, async move { Outcome::Inspected(look.await.flatten()) });
    }

    /// Changes a link step by step, then looks at it.
    pub(crate) fn apply(&mut self, op: OpId, target: Target, steps: Vec<Step>) {
        // Counted outside the work, so that the count is known even if the work hangs. Work that hung for too long changes
        // nothing any more, because somebody else may have the link by then.
        let taken = Arc::new(AtomicUsize::new(0));
        let over = Arc::new(AtomicBool::new(false));
        let counter = Arc::clone(&taken);
        let is_over = Arc::clone(&over);
        let work = self.pool.run(move |worker| {
            worker.apply(&target, &steps, |taken| {
                counter.store(taken, Ordering::Relaxed);
                !is_over.load(Ordering::Relaxed)
            })
        });
        self.answer(op, async move {
            let result = work.await.flatten();
            over.store(true, Ordering::Relaxed);
            Outcome::Applied {
                taken: taken.load(Ordering::Relaxed),
                result,
            }
        });
    }

    /// Makes a link ready, and, if the sockets of an exchange may be opened at once, opens them there in the same visit.
    pub(crate) fn prepare(&mut self, op: OpId, exchange: ExchangeId, visit: Visit) {
        self.sweep();
        let places = Arc::clone(&self.sockets).try_acquire_owned().ok();
        let opens = places.is_some();
        let over = Arc::new(AtomicBool::new(false));
        let is_over = Arc::clone(&over);
        let visit = self
            .pool
            .run(move |worker| worker.prepare(&visit, opens, |_| !is_over.load(Ordering::Relaxed)));
        let (frames, outbox) = outbox(UNSENT);
        self.exchanges.insert(exchange, frames);
        let exchange = self.exchange(exchange);
        self.runtime.spawn(async move {
            let visit = async {
                let visited = visit.await.flatten();
                over.store(true, Ordering::Relaxed);
                visited
            };
            exchange.prepare(op, visit, places, outbox).await;
        });
    }

    /// Looks for reasons why no DHCP server answers.
    pub(crate) fn survey(
        &mut self,
        op: OpId,
        link: Link,
        lan_parent: Option<String>,
        counts: bool,
    ) {
        let look = self
            .pool
            .run(move |worker| survey::look(worker, link, lan_parent, counts));
        self.answer(op, async move {
            Outcome::Surveyed(look.await.unwrap_or_default())
        });
    }

    /// Lists the Ethernet addresses of the links in a container's namespace.
    pub(crate) fn list_inside(&mut self, op: OpId, link: Link) {
        let list = self.pool.run(move |worker| worker.list_inside(&link));
        self.answer(op, async move { Outcome::Inside(list.await.flatten()) });
    }

    /// Looks for interfaces in Docker's namespaces: in the one with that number, or in all.
    pub(crate) fn seek(&mut self, op: OpId, sought: Vec<Sought>, number: Option<i32>) {
        let Some(directory) = self.docker_netns.clone() else {
            return self.answer(op, future::ready(Outcome::Sought(Ok(Sightings::default()))));
        };
        let look = self
            .pool
            .run(move |worker| seek::look(worker, &directory, &sought, number));
        self.answer(op, async move { Outcome::Sought(look.await.flatten()) });
    }

    pub(crate) fn make(&mut self, op: OpId, link: OwnLink) {
        let store = self.store;
        let make = move |worker: &mut Worker| own::make(worker.here()?, store, &link);
        self.in_turn(op, make, Outcome::Made);
    }

    pub(crate) fn unmake(&mut self, op: OpId, owner: LinkOwner) {
        let store = self.store;
        let unmake = move |worker: &mut Worker| own::unmake(worker.here()?, store, &owner);
        self.in_turn(op, unmake, Outcome::Unmade);
    }

    /// Lists the links in the host's namespace that were made by daemons with this store.
    pub(crate) fn list_own(&mut self, op: OpId) {
        let store = self.store;
        let list = move |worker: &mut Worker| own::list(worker.here()?, store);
        self.in_turn(op, list, Outcome::OwnLinks);
    }

    /// Works on our own links, behind all earlier work on them.
    fn in_turn<T: Send + 'static>(
        &mut self,
        op: OpId,
        work: impl FnOnce(&mut Worker) -> Result<T, LinkCause> + Send + 'static,
        outcome: fn(Result<T, LinkCause>) -> Outcome,
    ) {
        let (over, next) = oneshot::channel();
        let before = mem::replace(&mut self.turn, next);
        let pool = self.pool.clone();
        self.answer(op, async move {
            let _ = before.await;
            let result = pool.run(work).await.flatten();
            drop(over);
            outcome(result)
        });
    }

    /// Sends a frame, over the host's link `over` if that accepts it. A frame that the exchange's link cannot take within some
    /// 60 ms is lost. The outcome is reported if an `op` is given.
    pub(crate) fn send(
        &mut self,
        op: Option<OpId>,
        exchange: ExchangeId,
        frame: Vec<u8>,
        over: Option<u32>,
    ) {
        let Some(frames) = self.exchanges.get(&exchange) else {
            return debug!(
                exchange = exchange.0,
                "frame for an exchange that is not open"
            );
        };
        if frames.put(Order::Send(Outgoing { op, frame, over })) {
            return;
        }
        debug!(
            exchange = exchange.0,
            "frame not sent: too many wait, or the socket failed"
        );
        if let Some(op) = op {
            let cause = LinkCause::refused("send", "too many frames wait, or the socket failed");
            self.answer(op, future::ready(Outcome::Sent(Err(cause))));
        }
    }

    /// Makes an exchange hear only this ARP, once earlier frames are out.
    pub(crate) fn hear(&mut self, exchange: ExchangeId, arp: Hears) {
        let done = self
            .exchanges
            .get(&exchange)
            .is_some_and(|orders| orders.put(Order::Hear(arp)));
        if !done {
            let cause = LinkCause::refused(
                "hear something else",
                "too many frames wait, or the socket failed",
            );
            let _ = self.reports.send(NetReport::Broken { exchange, cause });
        }
    }

    /// Closes an exchange, open or still opening. Frames already sent on it still go out; nothing more comes in. If an `op` is
    /// given, the port that was made for the exchange is removed, and that is reported.
    pub(crate) fn close(&mut self, op: Option<OpId>, exchange: ExchangeId) {
        let frames = self.exchanges.remove(&exchange);
        self.trim();
        if let Some(op) = frames.map_or(op, |frames| frames.close(op)) {
            self.answer(op, future::ready(Outcome::Closed));
        }
    }

    fn exchange(&self, id: ExchangeId) -> Exchange {
        let reports = self.reports.clone();
        let into = Arc::clone(&self.into);
        let pool = self.pool.clone();
        Exchange {
            id,
            reports,
            into,
            uplinks: Arc::clone(&self.uplinks),
            pool,
        }
    }

    fn answer(&self, op: OpId, outcome: impl Future<Output = Outcome> + Send + 'static) {
        let reports = self.reports.clone();
        let alarm = Alarm::new("the task that waits for work in a namespace", &reports);
        self.runtime.spawn(async move {
            let _alarm = alarm;
            let outcome = outcome.await;
            debug!(op = op.0, ?outcome, "done");
            let _ = reports.send(NetReport::Done { op, outcome });
        });
    }

    /// Returns what the watch hears about.
    pub(crate) fn watched(&self) -> Watched {
        self.registrar.watched()
    }

    /// Gives memory back a moment after the last of many exchanges.
    fn trim(&mut self) {
        if self.exchanges.is_empty() && self.burst >= BURST {
            self.burst = 0;
            self.exchanges.shrink_to_fit();
            let pool = self.pool.clone();
            self.runtime.spawn(async move {
                sleep(AFTER_BURST).await;
                let _ = pool.run(|_| heap::trim()).await;
            });
        }
    }

    /// Drops what is left of exchanges that never opened, or broke, and were not closed.
    fn sweep(&mut self) {
        self.burst += 1;
        if self.exchanges.len() >= self.sweep_at {
            self.exchanges.retain(|_, frames| !frames.is_abandoned());
            self.sweep_at = SWEEP.max(2 * self.exchanges.len());
        }
    }
}

/// Returns how many descriptors an exchange has, at most.
fn descriptors(link: &Link, want: Sockets) -> u32 {
    let has_port = matches!(link, Link::Parent { port: true, .. });
    1 + u32::from(want.hold_port.is_some()) + u32::from(has_port)
}

impl Drop for Net {
    fn drop(&mut self) {
        self.watch.abort();
    }
}
