//! The one loop: wait, feed the core, carry out what it wants.
//!
//! Holds no DHCP rule and no lease state. What it knows is which request is open and how to answer it; everything else
//! passes through, between the core and the three that touch the world: [`crate::net`], [`crate::store`] and
//! [`crate::http`]. Nothing waits except in [`Sources::next`].

use std::collections::HashMap;
use std::fs;
use std::future;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use leasehold_core::effect::{Adoptee, Answer, Call, Effect, Input, Outcome, RequestId};
use leasehold_core::record::{BindingId, Record};
use leasehold_core::registry::{Config, Registry};
use leasehold_core::time::Instant;
use tokio::net::UnixListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinHandle;
use tokio::time::{Interval, MissedTickBehavior, interval, sleep_until, timeout};
use tracing::{debug, error, info, trace, warn};

use crate::adopt::{self, Unfinished};
use crate::clock::{self, Clock};
use crate::http::{self, Doors, Event, MachineId, Reply, Site, Spool};
use crate::limits::{Shares, raise_open_files};
use crate::listen::{self, ListenError, Place};
use crate::log;
use crate::net::{Net, NetConfig, NetError, NetEvent, inherit};
use crate::pid_file::{PidFile, PidFileError};
use crate::publish::Publisher;
use crate::service::{self, Watchdog};
use crate::store::{DirLock, Persisted, Store, StoreError};

/// How long requests that are open at SIGTERM may still take. Most need less; the shim asks the next daemon anyway.
const GRACE: Duration = Duration::from_secs(1);

/// How long connections may take to close after that.
const CLOSING: Duration = Duration::from_secs(1);

/// How often the socket's directory is looked at. A shim asks for a second before it leaves a DEL there.
const LOOK: Duration = Duration::from_secs(1);

/// Threads that work in namespaces. A visit takes some 30 microseconds: more than one only for visits that hang.
const WORKERS: usize = 4;

/// Events taken from each source before the effects are drained and the runtime gets its turn.
const BATCH: usize = 64;

/// What the daemon is told on its command line.
#[derive(Debug)]
pub(crate) struct Settings {
    /// Where to listen when systemd passes no socket.
    pub(crate) socket: PathBuf,
    /// Where leases are kept.
    pub(crate) state_dir: PathBuf,
    /// Where what leases say of name servers is published.
    pub(crate) runtime_dir: PathBuf,
    /// Where the host's root directory is seen.
    pub(crate) host_prefix: PathBuf,
    /// Where the process id is written.
    pub(crate) pid_file: Option<PathBuf>,
    /// Where libcni keeps what runs.
    pub(crate) cni_caches: Vec<PathBuf>,
    /// How long an ADD may take where its network does not say.
    pub(crate) add_timeout: Duration,
    /// Whether servers are asked to answer by broadcast where a network does not say.
    pub(crate) broadcast: bool,
}

/// Why the daemon does not run, or no longer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StartError {
    /// What stands for the host's root is none.
    #[error("--host-prefix {} is no directory: mount the host's root directory there, or say where it is", .0.display())]
    HostPrefix(PathBuf),
    /// No socket to listen on.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// No file for the process id.
    #[error(transparent)]
    PidFile(#[from] PidFileError),
    /// No store.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// No network.
    #[error(transparent)]
    Net(#[from] NetError),
    /// One of its own tasks ended, which is a mistake of ours.
    #[error("{0} ended: see the log above, this is a bug")]
    Ended(&'static str),
    /// Something else of the kernel's is missing.
    #[error("cannot {doing}")]
    Io {
        /// What was tried.
        doing: &'static str,
        /// The kernel's reason.
        source: io::Error,
    },
}

impl StartError {
    fn io(doing: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { doing, source }
    }
}

/// Runs the daemon until it is told to stop.
///
/// The state directory comes first: while another daemon has it, nothing is bound, written or removed. Then it listens, so
/// that callers wait in the backlog from then on, and accepts last, when the core knows every lease. At the end the socket
/// goes first, and the state directory last.
pub(crate) fn run(settings: &Settings) -> Result<(), StartError> {
    // Nothing of the host's is seen through it: neither its containers, nor that they are gone.
    if !settings.host_prefix.is_dir() {
        return Err(StartError::HostPrefix(settings.host_prefix.clone()));
    }
    let shares = Shares::of(raise_open_files());
    debug!(?shares, "open files");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(StartError::io("start the event loop"))?.block_on(async {
        let mut signals = Signals::new()?;
        tokio::select! {
            state = DirLock::take(&settings.state_dir) => hold(settings, shares, signals, state?).await,
            signal = signals.next() => {
                info!(signal, "stopped before it began");
                Ok(())
            }
        }
    })
}

/// Holds leases in the state directory, which is ours as long as `_state` lives.
async fn hold(settings: &Settings, shares: Shares, signals: Signals, _state: DirLock) -> Result<(), StartError> {
    let inherited = inherit::listen_fd().map_err(ListenError::Activation)?;
    let (listener, place) = listen::listen(&settings.socket, inherited)?;
    let listener = UnixListener::from_std(listener).map_err(StartError::io("listen"))?;
    info!(socket = %place.path().display(), "listening");
    let (persisted, stored) = unbounded_channel();
    let (store, records) = Store::open(&settings.state_dir, persisted)?;
    info!(state_dir = %settings.state_dir.display(), records = records.len(), "store open");
    let pid_file = match settings.pid_file.as_deref().map(PidFile::write).transpose() {
        // Leases are worth more than a file that says who holds them.
        Err(error @ PidFileError::Write { .. }) => {
            error!("{}", log::chain(&error));
            None
        }
        written => written?,
    };
    // Whether the store is new or was set aside: without a record nothing is known of what runs. Nor is of a record that does
    // not parse.
    let adopting = Unfinished::of(&settings.state_dir);
    let adoptees = match records.is_empty() || !store.is_whole() || adopting.is_left() {
        true => adopt::find(&settings.cni_caches, &settings.host_prefix, &site(settings)),
        false => Vec::new(),
    };
    adopting.leave(!adoptees.is_empty());
    let (driver, sources) = Driver::new(settings, shares, (store, stored), signals, place)?;
    let ran = driver.run(sources, listener, Known { records, adoptees }).await;
    pid_file.into_iter().for_each(PidFile::remove);
    adopting.leave(ran? > 0);
    Ok(())
}

/// What is known at the start.
struct Known {
    records: Vec<(BindingId, Record)>,
    adoptees: Vec<Adoptee>,
}

/// Everything that can wake the loop.
struct Sources {
    net: UnboundedReceiver<NetEvent>,
    store: UnboundedReceiver<Persisted>,
    doors: UnboundedReceiver<Event>,
    clock: Clock,
    watchdog: Option<Watchdog>,
    looks: Interval,
    signals: Signals,
    /// The task that accepts callers.
    accepting: JoinHandle<()>,
}

/// The signals that ask to stop.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// Handles them from now on. Must be called inside the runtime.
    fn new() -> Result<Self, StartError> {
        Ok(Self {
            terminate: signal(SignalKind::terminate()).map_err(StartError::io("handle SIGTERM"))?,
            interrupt: signal(SignalKind::interrupt()).map_err(StartError::io("handle SIGINT"))?,
        })
    }

    /// Waits for one, and returns its name.
    async fn next(&mut self) -> &'static str {
        tokio::select! {
            Some(()) = self.terminate.recv() => "SIGTERM",
            Some(()) = self.interrupt.recv() => "SIGINT",
            else => future::pending().await,
        }
    }
}

/// What woke the loop.
enum Wake {
    Net(NetEvent),
    Store(Persisted),
    Door(Event),
    /// The core's deadline passed.
    Due,
    /// The service manager wants to hear that the loop turns.
    Hungry,
    /// It is time to look at the socket's directory.
    Look,
    /// The signal that asks to stop.
    Stop(&'static str),
    /// The grace of open requests is over.
    GraceOver,
    /// The task that accepts callers ended.
    Deaf,
}

impl Sources {
    /// Waits for whatever comes first.
    async fn next(&mut self, due: Option<Instant>, grace: Option<tokio::time::Instant>) -> Wake {
        let clock = &mut self.clock;
        let due = async move {
            match due {
                Some(at) => clock.sleep_until(at).await,
                None => future::pending().await,
            }
        };
        let watchdog = &mut self.watchdog;
        let hungry = async move {
            match watchdog {
                Some(watchdog) => watchdog.hungry().await,
                None => future::pending().await,
            }
        };
        let grace = async move {
            match grace {
                Some(at) => sleep_until(at).await,
                None => future::pending().await,
            }
        };
        tokio::select! {
            Some(event) = self.net.recv() => Wake::Net(event),
            Some(event) = self.store.recv() => Wake::Store(event),
            Some(event) = self.doors.recv() => Wake::Door(event),
            () = due => Wake::Due,
            () = hungry => Wake::Hungry,
            _ = self.looks.tick() => Wake::Look,
            signal = self.signals.next() => Wake::Stop(signal),
            () = grace => Wake::GraceOver,
            _ = &mut self.accepting => Wake::Deaf,
        }
    }

    /// Returns what waits by now in each of the channels, at most [`BATCH`] of each.
    fn ready(&mut self) -> Vec<Wake> {
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

/// Who asked, and how to answer.
enum Asker {
    /// A caller with an open connection.
    Caller(Reply),
    /// A file that a shim left.
    Spooled(PathBuf),
}

/// How far stopping has come.
enum Phase {
    Running,
    /// No new request is taken up; open ones may finish until then.
    Stopping(tokio::time::Instant),
    Stopped,
}

struct Driver {
    registry: Registry,
    net: Net,
    store: Store,
    publisher: Publisher,
    doors: Doors,
    place: Place,
    spool: Spool,
    /// Where callers are accepted. Closing it ends that.
    listeners: UnboundedSender<UnixListener>,
    open: HashMap<RequestId, Asker>,
    /// Callers that came while stopping: they are cut off unanswered, and ask the next daemon.
    late: Vec<Reply>,
    phase: Phase,
    /// The task whose end is the daemon's.
    ended: Option<&'static str>,
}

impl Driver {
    /// Sets up everything but the core's memory. Must be called inside the runtime.
    fn new(
        settings: &Settings,
        shares: Shares,
        (store, stored): (Store, UnboundedReceiver<Persisted>),
        signals: Signals,
        place: Place,
    ) -> Result<(Self, Sources), StartError> {
        let (events, net_events) = unbounded_channel();
        let config = NetConfig { host_prefix: settings.host_prefix.clone(), workers: WORKERS, sockets: shares.sockets };
        let net = Net::start(config, events)?;
        let publisher = Publisher::start(&settings.runtime_dir).map_err(StartError::io("start a thread"))?;
        let (doors, door_events) = Doors::new(site(settings), store.journal(), shares.callers);
        let (listeners, to_serve) = unbounded_channel();
        let accepting = tokio::spawn(http::serve(to_serve, place.path().to_owned(), doors.clone()));
        let spool = Spool::new(place.path().to_owned());
        let sources = Sources {
            net: net_events,
            store: stored,
            doors: door_events,
            clock: Clock::new().map_err(StartError::io("open a timer on the boot clock"))?,
            watchdog: Watchdog::enabled(),
            looks: every(LOOK),
            signals,
            accepting,
        };
        let registry = Registry::new(Config::default(), seed());
        let (open, late) = (HashMap::new(), Vec::new());
        let phase = Phase::Running;
        let driver =
            Self { registry, net, store, publisher, doors, place, spool, listeners, open, late, phase, ended: None };
        Ok((driver, sources))
    }

    /// Tells the core what there is, accepts callers, and loops until a signal; then stops in order. Returns how many
    /// containers are still to be adopted.
    async fn run(mut self, mut sources: Sources, listener: UnixListener, known: Known) -> Result<usize, StartError> {
        let Known { records, adoptees } = known;
        let boot = clock::boot_id().map_err(StartError::io("read the boot id"))?;
        let spooled = self.take_up();
        self.feed(Input::Start { boot, records, spooled, adoptees });
        self.drain();
        self.publisher.sweep();
        self.listen(listener);
        // Says what is wrong with a socket of systemd's before it says ready.
        self.look();
        service::ready();
        info!("ready");

        self.turn(&mut sources).await;

        // From now on callers wait for the next daemon.
        drop(self.place);
        // Open connections are cut before their replies are dropped: a dropped reply would be an answer.
        drop(self.listeners);
        if !sources.accepting.is_finished() && timeout(CLOSING, sources.accepting).await.is_err() {
            debug!("connections still open");
        }
        self.store.close();
        info!("stopped; leases are kept");
        match self.ended {
            Some(task) => Err(StartError::Ended(task)),
            None => Ok(self.registry.adopting()),
        }
    }

    /// Turns until stopped.
    async fn turn(&mut self, sources: &mut Sources) {
        while !matches!(self.phase, Phase::Stopped) {
            let due = self.registry.poll_timeout();
            let grace = if let Phase::Stopping(until) = self.phase { Some(until) } else { None };
            let wake = sources.next(due.map(|(at, _why)| at), grace).await;
            self.wake(wake);
            for wake in sources.ready() {
                self.wake(wake);
            }
            self.on_clock();
            self.drain();
            if matches!(self.phase, Phase::Stopping(_)) && !self.open.values().any(|a| matches!(a, Asker::Caller(_))) {
                self.phase = Phase::Stopped;
            }
            // Many events may be ready for long: connections get their turn all the same.
            tokio::task::yield_now().await;
        }
    }

    fn wake(&mut self, wake: Wake) {
        match wake {
            Wake::Net(NetEvent::Done { op, outcome }) => self.feed(Input::Done { op, outcome }),
            Wake::Net(NetEvent::Frame { exchange, bytes, meta }) => {
                self.feed(Input::Frame { exchange, bytes: &bytes, meta });
            }
            Wake::Net(NetEvent::Broken { exchange, cause }) => self.feed(Input::Broken { exchange, cause }),
            Wake::Net(NetEvent::Unsent { exchange, cause }) => self.feed(Input::Unsent { exchange, cause }),
            Wake::Net(NetEvent::Kernel(news)) => self.feed(Input::Kernel(news.into_event())),
            Wake::Store(Persisted { op, result }) => self.feed(Input::Done { op, outcome: Outcome::Persisted(result) }),
            Wake::Door(Event::Asked { id, call, reply }) if matches!(self.phase, Phase::Running) => {
                self.open.insert(id, Asker::Caller(reply));
                self.feed(Input::Request { id, call });
            }
            Wake::Door(Event::Asked { reply, .. }) => self.late.push(reply),
            Wake::Door(Event::HungUp(id)) => {
                if self.open.remove(&id).is_some() {
                    self.feed(Input::HungUp(id));
                }
            }
            // The clock is looked at after every wake.
            Wake::Due => {}
            Wake::Hungry => service::feed(),
            Wake::Look if matches!(self.phase, Phase::Running) => self.look(),
            Wake::Look => {}
            Wake::Stop(signal) => self.stop(signal),
            Wake::GraceOver => self.phase = Phase::Stopped,
            Wake::Net(NetEvent::Ended(task)) => self.ended(task),
            Wake::Deaf => self.ended("the task that accepts callers"),
        }
    }

    /// Begins to stop; the second signal cuts the grace short.
    fn stop(&mut self, signal: &'static str) {
        info!(signal, open = self.open.len(), "stopping");
        self.phase = match self.phase {
            Phase::Running => Phase::Stopping(tokio::time::Instant::now() + GRACE),
            Phase::Stopping(_) | Phase::Stopped => Phase::Stopped,
        };
        service::stopping();
    }

    /// Stops at once: without one of its tasks the daemon would be deaf, and another one is soon started.
    fn ended(&mut self, task: &'static str) {
        error!("{task} ended, and so does the daemon");
        self.phase = Phase::Stopped;
        self.ended = Some(task);
    }

    /// Looks whether callers find the socket, and for calls that they left because they did not.
    fn look(&mut self) {
        if let Some(listener) = self.place.tend() {
            match UnixListener::from_std(listener) {
                Ok(listener) => self.listen(listener),
                Err(error) => warn!(%error, "cannot listen"),
            }
        }
        for (id, call) in self.take_up() {
            self.feed(Input::Request { id, call });
        }
    }

    fn listen(&self, listener: UnixListener) {
        // Without a task that accepts, the daemon ends anyway.
        let _ = self.listeners.send(listener);
    }

    /// Gives each spooled call a request of its own, answered to its file.
    fn take_up(&mut self) -> Vec<(RequestId, Call)> {
        let mut calls = Vec::new();
        for (file, call) in self.spool.take_up() {
            let id = self.doors.mint();
            info!(request = id.0, file = %file.display(), "spooled call taken up");
            self.open.insert(id, Asker::Spooled(file));
            calls.push((id, call));
        }
        calls
    }

    fn feed(&mut self, input: Input<'_>) {
        log_input(&input);
        self.registry.handle(Clock::now(), input);
    }

    fn on_clock(&mut self) {
        let now = Clock::now();
        if let Some((at, why)) = self.registry.poll_timeout()
            && at <= now.boot
        {
            debug!(?why, late_us = now.boot.saturating_since(at).as_micros() as u64, "timeout");
            self.registry.handle_timeout(now);
        }
    }

    fn drain(&mut self) {
        while let Some(effect) = self.registry.poll_effect() {
            log_effect(&effect);
            match effect {
                Effect::Persist { op, changes } => self.store.persist(op, changes),
                Effect::Open { op, exchange, link, want } => self.net.open(op, exchange, link, want),
                Effect::Inspect { op, target } => self.net.inspect(op, target),
                Effect::Apply { op, target, steps } => self.net.apply(op, target, steps),
                Effect::Prepare { op, target, exchange, chaddr } => self.net.prepare(op, target, exchange, chaddr),
                Effect::Survey { op, link, lan_parent } => self.net.survey(op, link, lan_parent),
                Effect::Send { op, exchange, frame } => self.net.send(op, exchange, frame),
                Effect::Hear { exchange, arp } => self.net.hear(exchange, arp),
                Effect::Close { exchange } => self.net.close(exchange),
                Effect::Reply { id, answer } => self.reply(id, answer),
                Effect::Publish { attachment, dns } => self.publisher.publish(attachment, dns),
            }
        }
    }

    fn reply(&mut self, id: RequestId, answer: Answer) {
        match self.open.remove(&id) {
            Some(Asker::Caller(reply)) => reply.send(answer),
            Some(Asker::Spooled(file)) => self.spool.done(file, &answer),
            None => debug!(request = id.0, "answer to nobody"),
        }
    }
}

/// Returns what the front doors are to know of the host.
fn site(settings: &Settings) -> Site {
    let path = settings.host_prefix.join("etc/machine-id");
    let machine_id = fs::read_to_string(&path).ok().and_then(|text| MachineId::parse(&text));
    if machine_id.is_none() {
        debug!(path = %path.display(), "no machine id: networks with clientId duid are refused");
    }
    Site { machine_id, broadcast: settings.broadcast, add_timeout: settings.add_timeout }
}

/// Returns what ticks that often, the first time at once; late ticks put off those that follow.
fn every(period: Duration) -> Interval {
    let mut interval = interval(period);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    interval
}

/// Returns what nobody on the wire can guess: xids and jitter come from it.
fn seed() -> u64 {
    RandomState::new().build_hasher().finish()
}

fn log_input(input: &Input<'_>) {
    match input {
        Input::Start { boot, records, spooled, adoptees } => {
            let (records, spooled, adoptees) = (records.len(), spooled.len(), adoptees.len());
            debug!(%boot, records, spooled, adoptees, "start");
        }
        Input::Request { id, call } => debug!(request = id.0, ?call, "asked"),
        Input::HungUp(id) => debug!(request = id.0, "hung up"),
        Input::Done { op, outcome } => debug!(op = op.0, ?outcome, "done"),
        Input::Frame { exchange, bytes, meta } => {
            trace!(exchange = exchange.0, length = bytes.len(), ?meta, "frame in");
        }
        Input::Broken { exchange, cause } => debug!(exchange = exchange.0, %cause, "broken"),
        Input::Unsent { exchange, cause } => debug!(exchange = exchange.0, %cause, "unsent"),
        Input::Kernel(event) => debug!(?event, "kernel"),
    }
}

fn log_effect(effect: &Effect) {
    match effect {
        Effect::Persist { op, changes } => debug!(op = op.0, changes = changes.len(), "persist"),
        Effect::Open { op, exchange, link, want } => {
            debug!(op = op.0, exchange = exchange.0, ?link, ?want, "open");
        }
        Effect::Inspect { op, target } => debug!(op = op.0, %target, "inspect"),
        Effect::Apply { op, target, steps } => debug!(op = op.0, %target, ?steps, "apply"),
        Effect::Prepare { op, target, exchange, .. } => {
            debug!(op = op.0, exchange = exchange.0, %target, "prepare");
        }
        Effect::Survey { op, link, lan_parent } => debug!(op = op.0, ?link, ?lan_parent, "survey"),
        Effect::Send { op, exchange, frame } => trace!(?op, exchange = exchange.0, length = frame.len(), "frame out"),
        Effect::Hear { exchange, arp } => debug!(exchange = exchange.0, ?arp, "hear"),
        Effect::Close { exchange } => debug!(exchange = exchange.0, "close"),
        Effect::Reply { id, answer: Answer::Failed(failure) } => debug!(request = id.0, %failure, "failed"),
        Effect::Reply { id, .. } => debug!(request = id.0, "answered"),
        Effect::Publish { attachment, dns } => debug!(%attachment, ?dns, "publish"),
    }
}
