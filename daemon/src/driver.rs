//! The one loop: wait, feed the core, carry out its effects.
//!
//! Holds no DHCP rule and no lease state. It only knows which requests are open and how to answer them; everything else passes
//! between the core and the parts that touch the world: [`crate::net`], [`crate::store`] and [`crate::http`].
//! Nothing waits except in [`Sources::next`].

mod error;
mod settings;
mod sources;
mod trace;

use std::collections::HashMap;
use std::io;
use std::iter;
use std::os::unix::net;
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use leasehold_api::cni::HostLocal;
use leasehold_core::Core;
use leasehold_core::effect::{
    Adoptee, Answer, Call, Effect, ExchangeId, Input, Outcome, RequestId,
};
use leasehold_core::registry::Config;
use tokio::net::UnixListener;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tracing::{debug, error, info, warn};

use crate::adopt::{self, Unfinished};
use crate::cannot::Cannot;
use crate::capture::Tap;
use crate::clock::{self, Clock};
use crate::handover;
use crate::http::{self, DoorReport, Doors, Listening, Reply, Spool};
use crate::limits::{Shares, raise_open_files};
use crate::listen::{self, ListenError, Listeners, Place, Protocol};
use crate::log;
use crate::metrics::{Ending, Meter, Snapshot};
use crate::net::{Net, NetConfig, NetReport, StoreId, Visit, inherit};
use crate::pid_file::PidFile;
use crate::publish::Publisher;
use crate::service::{self, Watchdog};
use crate::store::{DirLock, Persisted, Store, Stored};
use crate::unguessable;
use error::StartError;
pub(crate) use settings::Settings;
use sources::{Signals, Sources, Wake, every};

/// How long connections may take to close once the time for open calls is over.
const CLOSING: Duration = Duration::from_secs(1);

/// How often to look at the socket's directory. A shim keeps asking for a second before it leaves a DEL there.
const TICK: Duration = Duration::from_secs(1);

/// Threads that work in namespaces. A visit takes some 30 microseconds; there is more than one thread only because
/// visits may hang.
const WORKERS: usize = 4;

/// Runs the daemon until it is told to stop.
///
/// The state directory comes first: while another daemon has it, nothing is bound, written or removed. Then it listens,
/// so that shims wait in the backlog, and accepts last, when the core knows every lease; only then does dockerd find its
/// sockets. At the end the sockets go first, and the state directory last.
pub(crate) fn run(settings: Settings) -> Result<(), StartError> {
    // Through it, nothing of the host could be seen: neither its containers, nor that they are gone.
    if !settings.args.host_prefix.is_dir() {
        return Err(StartError::HostPrefix(settings.args.host_prefix.clone()));
    }
    let shares = Shares::of(raise_open_files());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime
        .map_err(Cannot::of("start the event loop"))?
        .block_on(async {
            let mut signals = Signals::new().map_err(Cannot::of("handle signals"))?;
            let socket = &settings.args.socket;
            let other = settings.args.other_state_dir.as_deref();
            let state = tokio::select! {
                state = DirLock::take(&settings.args.state_dir, socket, other) => state?,
                signal = signals.next() => {
                    info!(signal, "stopped before it started");
                    return Ok(());
                }
            };
            let settings = settings.in_state_dir(state.dir());
            hold(&settings, shares, signals, state).await
        })
}

/// Holds leases in the state directory, which is locked as long as `_state` lives.
async fn hold(
    settings: &Settings,
    shares: Shares,
    signals: Signals,
    _state: DirLock,
) -> Result<(), StartError> {
    let inherited = inherit::listen_fds().map_err(ListenError::Activation)?;
    let plugin_dir = settings.plugin_dir();
    let read = settings.read_socket();
    let (listeners, places) = listen::listen(
        &settings.args.socket,
        plugin_dir.as_ref(),
        read.as_ref(),
        inherited,
    )?;
    info!(socket = %places[0].path().display(), "listening");
    let (persisted, stored) = unbounded_channel();
    let (store, mut known) = Store::open(&settings.args.state_dir, places[0].path(), persisted)?;
    info!(state_dir = %settings.args.state_dir.display(), records = known.records.len(), "store open");
    let pid_file = settings.args.pid_file.as_deref().and_then(|path| {
        // Leases matter more than a file that says who holds them.
        let written = PidFile::write(path);
        written
            .inspect_err(|error| error!("{}", log::chain(error)))
            .ok()
    });
    // Whether the store is new or was set aside: without a record nothing is known about what is running. The same is true of a
    // record that does not parse.
    let adopting = Unfinished::of(&settings.args.state_dir);
    let adoptees = match known.records.is_empty() || !store.is_whole || adopting.is_left() {
        true => adopt::find(
            &settings.args.cni_cache,
            &settings.args.host_prefix,
            &settings.site(),
            settings.adopts_its_own.then_some(&*settings.args.socket),
        ),
        false => Vec::new(),
    };
    adopting.leave(!adoptees.is_empty());
    handover::start(
        std::mem::take(&mut known.ranges),
        settings.args.host_prefix.clone(),
        store.range_ends(),
    );
    let (driver, sources) = Driver::new(settings, shares, store, stored, signals, places)?;
    let ran = driver.run(sources, listeners, known, adoptees).await;
    pid_file.into_iter().for_each(PidFile::remove);
    adopting.leave(ran? > 0);
    Ok(())
}

/// A call that is not answered yet.
struct Open {
    asker: Asker,
    /// What it asks, and since when.
    name: &'static str,
    since: Instant,
}

/// Whom to answer, and how.
enum Asker {
    /// A caller with an open connection.
    Caller(Reply),
    /// A file that a shim left.
    Spooled(PathBuf),
}

impl Asker {
    /// Returns what the caller speaks, if there is one.
    fn protocol(&self) -> Option<Protocol> {
        match self {
            Self::Caller(reply) => Some(reply.protocol()),
            Self::Spooled(_) => None,
        }
    }
}

/// The progress of stopping.
enum Phase {
    Running,
    /// Since then no new request is accepted; open ones may finish.
    Stopping(tokio::time::Instant),
    Stopped,
}

struct Driver {
    core: Core,
    net: Net,
    store: Store,
    publisher: Publisher,
    doors: Doors,
    /// Where callers find the sockets.
    places: Vec<Place>,
    spool: Spool,
    /// The channel of listeners. Closing it ends the accepting.
    listeners: UnboundedSender<Listening>,
    open: HashMap<RequestId, Open>,
    /// Callers that arrive during the stop: they are cut off without an answer, and ask the next daemon.
    late: Vec<Reply>,
    phase: Phase,
    /// Shows frames to those who ask for them.
    tap: Tap,
    /// What is counted here.
    meter: Meter,
    /// Since when it runs, from 1970 on.
    since: Duration,
    /// The task whose end ends the daemon.
    ended: Option<&'static str>,
}

impl Driver {
    /// Sets up everything but the core's memory. Must be called inside the runtime.
    fn new(
        settings: &Settings,
        shares: Shares,
        store: Store,
        stored: UnboundedReceiver<Persisted>,
        signals: Signals,
        places: Vec<Place>,
    ) -> Result<(Self, Sources), StartError> {
        let (reports, net_reports) = unbounded_channel();
        let seeks = places.iter().any(|place| place.protocol().is_dockers());
        let docker_netns = seeks.then(|| settings.args.docker_netns_dir.clone());
        let config = NetConfig {
            host_prefix: settings.args.host_prefix.clone(),
            docker_netns,
            store: StoreId(store.id),
            workers: WORKERS,
            sockets: shares.sockets,
        };
        let net = Net::start(config, reports)?;
        let publisher =
            Publisher::start(&settings.args.runtime_dir).map_err(Cannot::of("start a thread"))?;
        let tap = Tap::default();
        let log = settings.log.clone();
        let frames = tap.frames();
        let (doors, door_reports) = Doors::new(
            settings.site(),
            settings
                .args
                .host_prefix
                .join(HostLocal::DATA_DIR.trim_start_matches('/')),
            store.journal(),
            log,
            frames,
            shares.callers,
        );
        let (listeners, to_serve) = unbounded_channel();
        let control = places[0].path().to_owned();
        let accepting = tokio::spawn(http::serve(to_serve, control.clone(), doors.clone()));
        let spool = Spool::new(control);
        let sources = Sources {
            net: net_reports,
            store: stored,
            doors: door_reports,
            clock: Clock::new().map_err(Cannot::of("open a timer on the boot clock"))?,
            watchdog: Watchdog::enabled(),
            ticks: every(TICK),
            signals,
            accepting,
        };
        // Xids and jitter come from it.
        let core = Core::new(Config::default(), unguessable());
        let phase = Phase::Running;
        let driver = Self {
            core,
            net,
            store,
            publisher,
            doors,
            places,
            spool,
            listeners,
            open: HashMap::new(),
            late: Vec::new(),
            phase,
            tap,
            meter: Meter::default(),
            since: SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .unwrap_or_default(),
            ended: None,
        };
        Ok((driver, sources))
    }

    /// Starts the core, accepts callers, and loops until a signal; then stops in order. Returns how many containers still have
    /// to be adopted.
    async fn run(
        mut self,
        mut sources: Sources,
        listeners: Listeners,
        known: Stored,
        adoptees: Vec<Adoptee>,
    ) -> Result<usize, StartError> {
        let boot = clock::boot_id().map_err(Cannot::of("read the boot id"))?;
        let spooled = self.take_up();
        self.feed(Input::Start {
            boot,
            records: known.records,
            doors: known.doors,
            spooled,
            adoptees,
        });
        self.drain().await;
        self.publisher.sweep();
        for (protocol, listener) in listeners {
            self.listen(protocol, listener)
                .map_err(Cannot::of("listen"))?;
        }
        // Binds the other sockets, and reports what is wrong with any before it reports ready.
        self.look();
        service::ready();
        info!("ready");

        self.until_stopped(&mut sources).await;

        // From now on callers wait for the next daemon.
        self.places.clear();
        self.refuse_open();
        self.drain().await;
        // Connections are cut before their replies are dropped: dropping a reply sends an answer.
        drop(self.listeners);
        if !sources.accepting.is_finished()
            && timeout(
                CLOSING,
                closed(&mut sources.accepting, &mut sources.doors, &mut self.late),
            )
            .await
            .is_err()
        {
            debug!("connections still open");
        }
        self.store.close();
        info!("stopped; leases are kept");
        match self.ended {
            Some(task) => Err(StartError::Ended(task)),
            None => Ok(self.core.adopting()),
        }
    }

    /// Loops until stopped.
    async fn until_stopped(&mut self, sources: &mut Sources) {
        while !matches!(self.phase, Phase::Stopped) {
            let due = self.core.poll_timeout();
            let grace = self.grace_over();
            let wake = sources.next(due.map(|(at, _why)| at), grace).await;
            self.wake(wake);
            for wake in sources.ready() {
                self.wake(wake);
            }
            self.on_clock();
            self.drain().await;
            if matches!(self.phase, Phase::Stopping(_))
                && !self
                    .open
                    .values()
                    .any(|open| matches!(open.asker, Asker::Caller(_)))
            {
                self.phase = Phase::Stopped;
            }
            // Events may keep coming: connections get their turn all the same.
            tokio::task::yield_now().await;
        }
    }

    fn wake(&mut self, wake: Wake) {
        match wake {
            Wake::Net(NetReport::Done { op, outcome }) => self.feed(Input::Done { op, outcome }),
            Wake::Net(NetReport::Frame {
                exchange,
                bytes,
                meta,
            }) => {
                self.tap(exchange, false, &bytes);
                self.feed(Input::Frame {
                    exchange,
                    bytes: &bytes,
                    meta,
                });
            }
            Wake::Net(NetReport::Broken { exchange, cause }) => {
                self.feed(Input::Broken { exchange, cause })
            }
            Wake::Net(NetReport::Unsent { exchange, cause }) => {
                self.feed(Input::Unsent { exchange, cause })
            }
            Wake::Net(NetReport::Kernel(news)) => self.feed(Input::Kernel(news.event)),
            Wake::Store(Persisted { op, result }) => self.feed(Input::Done {
                op,
                outcome: Outcome::Persisted(result),
            }),
            Wake::Door(DoorReport::Asked { id, call, reply })
                if matches!(self.phase, Phase::Running) || reply.protocol().is_dockers() =>
            {
                self.opens(id, Asker::Caller(reply), &call);
                self.feed(Input::Request { id, call });
            }
            Wake::Door(DoorReport::Asked { reply, .. }) => self.late.push(reply),
            Wake::Door(DoorReport::HungUp(id)) => {
                // If an answer has crossed it, the core knows what that means.
                if let Some(open) = self.open.remove(&id) {
                    self.meter
                        .call(open.name, Ending::HungUp, open.since.elapsed());
                }
                self.feed(Input::HungUp(id));
            }
            // The caller may have gone.
            Wake::Door(DoorReport::Measured(to)) => _ = to.send(Box::new(self.measure())),
            Wake::Door(DoorReport::Pinged(to)) => _ = to.send(()),
            // The clock is read after every wake.
            Wake::Due => {}
            Wake::Hungry => service::feed(),
            Wake::Tick(due) => {
                self.meter.lag(due.elapsed());
                // The wall clock may have been set.
                self.core.handle_timeout(Clock::now());
                if matches!(self.phase, Phase::Running) {
                    self.look();
                }
            }
            Wake::Stop(signal) => self.stop(signal),
            Wake::GraceOver => self.phase = Phase::Stopped,
            Wake::Net(NetReport::Ended(task)) => self.ended(task),
            Wake::Deaf => self.ended("the task that accepts callers"),
        }
    }

    /// Begins to stop; a second signal cuts the time for open requests short.
    ///
    /// Where each call is answered, the sockets go first: a caller that finds none tries again with the whole request.
    fn stop(&mut self, signal: &'static str) {
        info!(signal, open = self.open.len(), "stopping");
        self.phase = match self.phase {
            Phase::Running => Phase::Stopping(tokio::time::Instant::now()),
            Phase::Stopping(_) | Phase::Stopped => Phase::Stopped,
        };
        self.places.retain(|place| !place.protocol().is_dockers());
        let _ = self.listeners.send(Listening::Stopping);
        service::stopping();
    }

    /// Returns when the time for open requests is over.
    fn grace_over(&self) -> Option<tokio::time::Instant> {
        let Phase::Stopping(since) = self.phase else {
            return None;
        };
        let longest = self
            .open
            .values()
            .filter_map(|open| open.asker.protocol())
            .map(Protocol::grace)
            .max();
        Some(since + longest.unwrap_or(Protocol::Control.grace()))
    }

    /// Fails the open calls that may not be cut off, and undoes their effects.
    fn refuse_open(&mut self) {
        let is_answered = |_: &RequestId, open: &mut Open| {
            open.asker.protocol().is_some_and(Protocol::is_dockers)
        };
        let refused: Vec<_> = self.open.extract_if(is_answered).collect();
        for (id, _answered_when_dropped) in refused {
            self.feed(Input::HungUp(id));
        }
    }

    /// Stops at once: without one of its tasks the daemon would be deaf, and the next daemon starts soon.
    fn ended(&mut self, task: &'static str) {
        error!("{task} ended: stopping");
        self.phase = Phase::Stopped;
        self.ended = Some(task);
    }

    /// Checks whether callers can find the sockets, and looks for calls left by those that could not.
    fn look(&mut self) {
        let again = self
            .places
            .iter_mut()
            .filter_map(|place| Some((place.protocol(), place.tend()?)));
        for (protocol, listener) in again.collect::<Vec<_>>() {
            if let Err(error) = self.listen(protocol, listener) {
                warn!(%error, "cannot listen");
            }
        }
        for (id, call) in self.take_up() {
            self.feed(Input::Request { id, call });
        }
    }

    fn listen(&self, protocol: Protocol, listener: net::UnixListener) -> io::Result<()> {
        let listener = UnixListener::from_std(listener)?;
        // If the task that accepts is gone, the daemon ends anyway.
        let _ = self.listeners.send(Listening::Begin(protocol, listener));
        Ok(())
    }

    /// Turns each spooled call into a request, whose answer goes to its file.
    fn take_up(&mut self) -> Vec<(RequestId, Call)> {
        let mut calls = Vec::new();
        for (file, call) in self.spool.take_up() {
            let id = self.doors.mint();
            info!(request = id.0, file = %file.display(), "carrying out a spooled call");
            self.opens(id, Asker::Spooled(file), &call);
            calls.push((id, call));
        }
        calls
    }

    fn opens(&mut self, id: RequestId, asker: Asker, call: &Call) {
        self.open.insert(
            id,
            Open {
                asker,
                name: call.name(),
                since: Instant::now(),
            },
        );
    }

    /// Returns everything that is counted and held.
    fn measure(&self) -> Snapshot {
        Snapshot {
            counts: self.core.counts().clone(),
            holdings: self.core.holdings(Clock::now().boot),
            troubles: self.core.troubles(Clock::now()),
            links: self.core.links(),
            silent: self.core.silent_servers(Clock::now().boot),
            events_dropped: self.core.events_dropped(),
            meter: self.meter.clone(),
            commits: self.store.commits(),
            watched: self.net.watched(),
            connections: self.doors.connections(),
            since: self.since,
            sockets: self
                .places
                .iter()
                .map(|place| place.path().to_owned())
                .collect(),
            store: self.store.path.clone(),
            ..Snapshot::default()
        }
    }

    fn feed(&mut self, input: Input<'_>) {
        trace::input(&input);
        self.core.handle(Clock::now(), input);
    }

    fn on_clock(&mut self) {
        let now = Clock::now();
        if let Some((at, why)) = self.core.poll_timeout()
            && at <= now.boot
        {
            debug!(
                ?why,
                late_us = now.boot.saturating_since(at).as_micros() as u64,
                "timeout"
            );
            self.core.handle_timeout(now);
        }
    }

    /// Carries out all effects. Answers go first, at once: no caller waits for work that can be done later.
    async fn drain(&mut self) {
        let effects: Vec<_> = iter::from_fn(|| self.core.poll_effect())
            .inspect(trace::effect)
            .collect();
        let (answers, others): (Vec<_>, Vec<_>) = effects
            .into_iter()
            .partition(|effect| matches!(effect, Effect::Reply { .. }));
        let are_callers_waiting = !answers.is_empty();
        answers
            .into_iter()
            .for_each(|answer| self.carry_out(answer));
        if are_callers_waiting {
            tokio::task::yield_now().await;
        }
        others.into_iter().for_each(|effect| self.carry_out(effect));
    }

    fn carry_out(&mut self, effect: Effect) {
        match effect {
            Effect::Persist { op, changes } => self.store.persist(op, changes),
            Effect::Open {
                op,
                exchange,
                link,
                want,
            } => {
                self.tap.learn(exchange, self.core.whose(exchange));
                self.net.open(op, exchange, link, want);
            }
            Effect::Inspect { op, target, routes } => self.net.inspect(op, target, routes),
            Effect::Apply { op, target, steps } => self.net.apply(op, target, steps),
            Effect::Prepare {
                op,
                place,
                lan,
                exchange,
                chaddr,
            } => {
                self.net.prepare(op, exchange, Visit { place, lan, chaddr });
            }
            Effect::Survey {
                op,
                link,
                lan_parent,
                counts,
            } => self.net.survey(op, link, lan_parent, counts),
            Effect::ListInside { op, link } => self.net.list_inside(op, link),
            Effect::Seek { op, sought, number } => self.net.seek(op, sought, number),
            Effect::Make { op, link } => self.net.make(op, *link),
            Effect::Unmake { op, owner } => self.net.unmake(op, owner),
            Effect::ListOwn { op } => self.net.list_own(op),
            Effect::Send {
                op,
                exchange,
                frame,
                over,
            } => {
                self.tap(exchange, true, &frame);
                self.net.send(op, exchange, frame, over);
            }
            Effect::Hear { exchange, arp } => self.net.hear(exchange, arp),
            Effect::Close { op, exchange } => {
                self.tap.forget(exchange);
                self.net.close(op, exchange);
            }
            Effect::Reply { id, answer } => self.reply(id, answer),
            Effect::Publish { attachment, dns } => self.publisher.publish(attachment, dns),
        }
    }

    /// Shows a frame to those who ask for frames.
    fn tap(&mut self, exchange: ExchangeId, sent: bool, bytes: &[u8]) {
        self.tap.learn(exchange, self.core.whose(exchange));
        self.tap.sees(exchange, sent, bytes);
    }

    fn reply(&mut self, id: RequestId, answer: Answer) {
        let Some(Open { asker, name, since }) = self.open.remove(&id) else {
            return debug!(request = id.0, "answer to nobody");
        };
        self.meter.call(name, Ending::of(&answer), since.elapsed());
        match asker {
            Asker::Caller(reply) => reply.send(answer),
            Asker::Spooled(file) => self.spool.done(file, &answer),
        }
    }
}

/// Waits until all connections are closed. Where each call is answered, callers that still arrive are told of a failure;
/// elsewhere they are cut off.
async fn closed(
    accepting: &mut JoinHandle<()>,
    doors: &mut UnboundedReceiver<DoorReport>,
    late: &mut Vec<Reply>,
) {
    loop {
        tokio::select! {
            _ = &mut *accepting => return,
            Some(event) = doors.recv() => match event {
                DoorReport::Asked { reply, .. } if reply.protocol().is_dockers() => drop(reply),
                DoorReport::Asked { reply, .. } => late.push(reply),
                DoorReport::HungUp(_) | DoorReport::Measured(_) | DoorReport::Pinged(_) => {}
            },
        }
    }
}
