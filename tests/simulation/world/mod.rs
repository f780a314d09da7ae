//! The world around the core: one queue of events in virtual time, and everything that these touch.
//!
//! Only the orders that the contract promises hold: that of the effects of one exchange, and that of transactions. Everything
//! else happens after a delay of its own.

mod actor;
mod answers;
mod claims;
mod clocks;
mod daemon;
mod damage;
mod doors;
mod faults;
mod finish;
mod grace;
mod interface;
mod ledger;
mod links;
mod oracles;
mod ports;
mod runtime;
mod seen;
mod shell;
mod spoken;
mod squatters;
mod wire;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::Ipv4Addr;
use std::time::Duration;

use fastrand::Rng;
use ipnet::Ipv4Net;
use leasehold_core::effect::{Answer, Effect, ExchangeId, Input, OpId, Outcome, RequestId};
use leasehold_core::grant::Dns;
use leasehold_core::identity::Attachment;
use leasehold_core::link::{KernelMessage, LinkCause};
use leasehold_core::testbed::kernel::{At, Kernel};
use leasehold_core::testbed::store::Store;
use leasehold_core::time::{Instant, Now, WallTime};
use leasehold_core::wire::Mac;
use leasehold_core::wire::frame::FrameMeta;
use netns_fixtures::model::Knows;

use self::actor::{Act, Actor, Asked, Errand};
use self::clocks::Clocks;
use self::daemon::Daemon;
use self::doors::{ERRANDS, Network, Wired};
use self::grace::Elsewhere;
use self::ledger::Ledger;
use self::oracles::Oracle;
use self::ports::Ports;
use self::seen::Seen;
use self::shell::Sock;
use self::squatters::Squatters;
use self::wire::Segment;
use crate::digest::Digest;
use crate::plan::{CrashPoint, EffectKind, Plan, Wires};
use crate::stats::Stats;
use crate::subject::Mutation;
use crate::timing::Timing;
use crate::trace::Trace;
use crate::watch::{Breach, Calls, Effects, Rule, breach};

/// A time in microseconds since the world began.
pub(crate) type Micros = u64;

/// One second.
pub(crate) const SECOND: Micros = 1_000_000;
/// One millisecond.
pub(crate) const MILLI: Micros = 1_000;

/// The uptime of a host when its daemon first starts after a boot.
const UPTIME: Micros = 100 * SECOND;

/// What is going to happen.
#[derive(Debug)]
enum Event {
    /// An effect of a run is carried out.
    Carry(u32, Effect),
    /// The store commits.
    Commit(u32),
    /// The core gets an outcome.
    Done(u32, OpId, Outcome, Option<ExchangeId>),
    /// The core gets a frame.
    Frame(u32, ExchangeId, Vec<u8>, FrameMeta),
    /// The core gets a damaged frame.
    Noise(u32, ExchangeId, Vec<u8>),
    /// The core hears that a socket failed.
    Broken(u32, ExchangeId, LinkCause),
    /// The core gets the kernel's message.
    Kernel(u32, KernelMessage),
    /// A frame reaches a station of a segment.
    Station(usize, usize, Vec<u8>),
    /// A frame from a station reaches the host.
    Host(usize, Vec<u8>),
    /// A link's carrier changes.
    Carrier(At, bool),
    /// A link is set up again.
    Raised(At),
    /// A request reaches the core.
    Request(RequestId),
    /// A hang-up reaches the core.
    HungUp(u32, RequestId),
    /// An answer reaches its caller.
    Answer(RequestId, Box<Answer>),
    /// A caller's connection broke.
    Cut(RequestId),
    /// An actor acts.
    Act(usize, u32, Act),
    /// The daemon starts.
    Start,
    /// Something happens to a server.
    Server(usize),
    /// One or all servers of a LAN cannot be reached for a while.
    Partition(usize),
    /// A server of a LAN begins or ends to refuse everything.
    Storm(usize, usize, bool),
    /// A server of a LAN gets a new configuration.
    Renumber(usize),
    /// The store's disk fills up, or has room again.
    Disk(bool),
    /// The wall clock is set.
    WallJump,
    /// The daemon of this run reads its clocks, as it does every second.
    Ticks(u32),
    /// The client on a link that had no carrier since one time must be heard, as its port forwards since another.
    Heard(At, Micros, Micros),
    /// The daemon of this run sees namespaces again.
    Sight(u32),
    /// The host is suspended.
    Suspend,
    /// Something is asked about a LAN.
    Errand(usize, &'static dyn Errand),
    /// The caller of a request gives up.
    GivesUp(RequestId),
    /// All bindings are looked at.
    Audit,
}

/// How a run ended.
#[derive(Debug)]
pub(crate) struct Report {
    /// The rule that was broken, if one was.
    pub(crate) breach: Option<Breach>,
    /// How often things happened.
    pub(crate) stats: Stats,
    /// What happened, if that was kept.
    pub(crate) trace: Vec<String>,
    /// Everything that was done to the world, as one number.
    pub(crate) digest: Digest,
}

/// Everything.
pub(crate) struct World {
    seed: u64,
    plan: Plan,
    mutation: Option<Mutation>,
    rng: Rng,
    now: Micros,
    clocks: Clocks,
    queue: BTreeMap<(Micros, u32, u32), Event>,
    sequence: u32,
    kernel: Kernel,
    segments: Vec<Segment>,
    /// Known facts about links and their clients' messages.
    ports: Ports,
    store: Store,
    disk_full: bool,
    /// When the disk last filled up or got room.
    disk_turned: Micros,
    daemon: Option<Daemon>,
    /// Counts the daemon's runs.
    run: u32,
    /// The core's deadline, and when its timer goes off.
    timer: Option<(Instant, Micros)>,
    /// Timers that went off at this very time.
    spins: u32,
    socks: BTreeMap<ExchangeId, Sock>,
    requests: BTreeMap<RequestId, Asked>,
    next_request: u64,
    /// The DELs that were left while the daemon was away.
    spool: Vec<Attachment>,
    /// Docker's networks, by LAN.
    networks: Vec<Network>,
    actors: Vec<Actor>,
    /// The open calls and effects of the daemon that runs.
    calls: Calls,
    effects: Effects,
    oracles: Vec<Box<dyn Oracle>>,
    timing: Timing,
    /// The name servers that the host's programs read.
    published: BTreeMap<Attachment, Dns>,
    /// When the last of these is written: in the order in which they came.
    publishes: Micros,
    /// What is known about Docker's networks of our own driver.
    wired: Wired,
    ledger: Ledger,
    /// The Ethernet addresses for which no port of the host's link could be made.
    portless: BTreeSet<(usize, Mac)>,
    /// The Ethernet addresses of links that the kernel is removing, and until when they answer for which addresses.
    going: BTreeMap<(usize, Mac), (Micros, Vec<Ipv4Net>)>,
    /// Clients that live on another host.
    elsewhere: Elsewhere,
    squatters: Squatters,
    /// Addresses that a station has claimed when they were offered.
    claims: BTreeSet<(usize, Ipv4Addr)>,
    carried: BTreeMap<EffectKind, u32>,
    crashes: VecDeque<CrashPoint>,
    /// Namespaces that only sockets keep, and since when.
    pinned: BTreeMap<u64, Micros>,
    /// Answers to the world's own questions.
    findings: BTreeMap<RequestId, Answer>,
    /// Whether the runtime begins nothing new, and nothing fails any more.
    winding_down: bool,
    /// Whether nothing ever goes wrong except what containers and callers do.
    calm: bool,
    /// Whether operations on links fail.
    links_fail: bool,
    /// Whether the daemon is blind now and then, until the work winds down.
    goes_blind: bool,
    /// Whether the store may lack something that a daemon knew when it ended.
    store_fails: bool,
    /// Whether a daemon has started without its predecessor's leases.
    was_damaged: bool,
    /// Whether one has also started without the copy of those leases.
    docker_was_lost: bool,
    /// Whether a lease may end because its holder cannot reach its server in time.
    may_lapse: bool,
    /// Whether a client is heard soon after its link is back.
    heard_soon: bool,
    breach: Option<Breach>,
    stats: Stats,
    trace: Trace,
    digest: Digest,
}

impl World {
    /// Returns the world of a seed.
    pub(crate) fn new(seed: u64, mutation: Option<Mutation>, mut trace: Trace) -> Self {
        let plan = Plan::draw(seed);
        trace.line(0, || format!("seed {seed}: {plan:?}"));
        let segments = (0..plan.lans).map(|lan| Segment::new(&plan, lan)).collect();
        let actors = (0..plan.actors)
            .map(|index| Actor::new(&plan, index, doors::of(&plan, index)))
            .collect();
        Self {
            rng: Rng::with_seed(seed),
            now: 0,
            clocks: Clocks::default(),
            queue: BTreeMap::new(),
            sequence: 0,
            kernel: Kernel::booted(plan.lans, plan.wires == Some(Wires::Bridge)),
            segments,
            ports: Ports::default(),
            store: Store::default(),
            disk_full: false,
            disk_turned: 0,
            daemon: None,
            run: 0,
            timer: None,
            spins: 0,
            socks: BTreeMap::new(),
            requests: BTreeMap::new(),
            next_request: 0,
            spool: Vec::new(),
            networks: vec![Network::default(); plan.lans],
            actors,
            calls: Calls::default(),
            effects: Effects::default(),
            oracles: oracles::all(),
            timing: Timing::default(),
            published: BTreeMap::new(),
            publishes: 0,
            wired: Wired::new(plan.lans),
            ledger: Ledger::default(),
            portless: BTreeSet::new(),
            going: BTreeMap::new(),
            elsewhere: Elsewhere::default(),
            squatters: Squatters::new(&plan),
            claims: BTreeSet::new(),
            carried: BTreeMap::new(),
            crashes: plan.crashes.iter().copied().collect(),
            pinned: BTreeMap::new(),
            findings: BTreeMap::new(),
            winding_down: false,
            calm: plan.is_calm(),
            links_fail: plan.link_faults > 0,
            goes_blind: plan.blindness > 0,
            store_fails: plan.store_faults > 0 || plan.store_full.is_some() || plan.damages > 0,
            was_damaged: false,
            docker_was_lost: false,
            may_lapse: plan.may_lapse(),
            heard_soon: plan.is_heard_soon(),
            breach: None,
            stats: Stats::default(),
            trace,
            digest: Digest::default(),
            seed,
            plan,
            mutation,
        }
    }

    /// Runs from the first event to the end of quiet.
    pub(crate) fn run(mut self) -> Report {
        self.begin();
        self.live();
        let now = self.now;
        if let Some(breach) = &self.breach {
            self.trace.line(now, || {
                format!("BROKEN {:?}: {}", breach.rule, breach.detail)
            });
        }
        self.stats.virtual_seconds = now / SECOND;
        Report {
            breach: self.breach,
            stats: self.stats,
            trace: self.trace.into_lines(),
            digest: self.digest,
        }
    }

    fn begin(&mut self) {
        if self.plan.servers > 1 {
            let one_pool = self.plan.overlap;
            self.stats.count_which(
                one_pool,
                "two servers with one pool",
                "two servers with two pools",
            );
        }
        match self.plan.knows {
            Knows::ClientId => {}
            Knows::Chaddr => self.stats.count("servers that know clients by chaddr"),
            Knows::Nothing => self.stats.count("servers with one address for everybody"),
        }
        if self.plan.ipvlan {
            self.stats.count("clients that share a chaddr");
        }
        let is_twin = |one: &Actor, other: &Actor| {
            (one.lan, one.cluster.map(|(_, pod)| pod))
                == (other.lan, other.cluster.map(|(_, pod)| pod))
                && one.cluster.is_some_and(|(cluster, _)| {
                    other.cluster.is_some_and(|(another, _)| cluster < another)
                })
        };
        let twins = self
            .actors
            .iter()
            .filter(|one| self.actors.iter().any(|other| is_twin(one, other)))
            .count();
        self.stats
            .count_many("clients of two clusters with one name", twins);
        self.at(0, Event::Start);
        let spread = (self.plan.active.as_micros() as u64 / 20)
            .min(if self.plan.actors > 8 { 20 } else { 60 } * SECOND);
        for actor in 0..self.actors.len() {
            let first = MILLI + self.rng.u64(..spread.max(1));
            self.at(first, Event::Act(actor, 0, Act::Begin));
        }
        for lan in 0..self.segments.len() {
            let plan = &self.plan;
            let station = self.rng.usize(..plan.servers);
            let faults = [
                (plan.server_faults, Event::Server(lan)),
                (plan.partitions, Event::Partition(lan)),
                (plan.storms, Event::Storm(lan, station, true)),
                (plan.renumbers, Event::Renumber(lan)),
            ];
            faults
                .into_iter()
                .for_each(|(every, fault)| self.perhaps(every, fault));
            ERRANDS.iter().for_each(|errand| errand.begins(self, lan));
        }
        self.perhaps(self.plan.store_full, Event::Disk(true));
        self.perhaps(self.plan.wall_jumps, Event::WallJump);
        self.perhaps(self.plan.suspends, Event::Suspend);
        self.sometime(self.plan.active / 10, Event::Audit);
    }

    /// Runs until the given time, or until `done` returns true. Returns whether the run goes on.
    fn until(&mut self, end: Micros, done: impl Fn(&Self) -> bool) -> bool {
        while self.breach.is_none() && !done(self) {
            let event = self.queue.first_key_value().map(|((at, ..), _)| *at);
            let timer = self.timer.map(|(_, at)| at);
            let Some(next) = [event, timer]
                .into_iter()
                .flatten()
                .min()
                .filter(|next| *next <= end)
            else {
                self.now = self.now.max(end);
                return true;
            };
            self.now = self.now.max(next);
            if timer == Some(next) {
                self.on_timer();
            } else if let Some((_, event)) = self.queue.pop_first() {
                self.stats.events += 1;
                self.on_event(event);
            }
            self.check();
        }
        self.breach.is_none()
    }

    /// Checks what must always hold.
    fn check(&mut self) {
        self.breach = self.breach.take().or_else(|| self.calls.overdue(self.now));
        self.show(&Seen::Passed);
    }

    fn on_event(&mut self, event: Event) {
        match event {
            Event::Carry(run, effect) if run == self.run => self.carry(effect),
            Event::Commit(run) if run == self.run => self.commit(),
            Event::Done(run, op, outcome, exchange) if run == self.run => {
                self.done(op, outcome, exchange)
            }
            Event::Frame(run, exchange, bytes, meta) if run == self.run => {
                self.frame(exchange, &bytes, meta)
            }
            Event::Noise(run, exchange, bytes) if run == self.run => {
                self.feed(Input::Frame {
                    exchange,
                    bytes: &bytes,
                    meta: FrameMeta::default(),
                });
            }
            Event::Broken(run, exchange, cause) if run == self.run => self.broken(exchange, cause),
            Event::Kernel(run, message) if run == self.run => self.hears_kernel(message),
            Event::HungUp(run, id) if run == self.run => self.hung_up(id),
            Event::Sight(run) if run == self.run => self.see_again(),
            Event::Ticks(run) if run == self.run => self.ticks(),
            Event::Carry(..)
            | Event::Commit(_)
            | Event::Done(..)
            | Event::Frame(..)
            | Event::Noise(..)
            | Event::Broken(..)
            | Event::Kernel(..)
            | Event::HungUp(..)
            | Event::Sight(_)
            | Event::Ticks(_) => {}
            Event::Heard(at, lost, forwards) => self.show(&Seen::HeardBy { at, lost, forwards }),
            Event::Station(lan, station, frame) => self.at_station(lan, station, &frame),
            Event::Host(lan, frame) => self.at_host(lan, &frame),
            Event::Carrier(at, carrier) => self.carrier(at, carrier),
            Event::Raised(at) => self.raise(at),
            Event::Request(id) => self.request(id),
            Event::Answer(id, answer) => self.answer(id, *answer),
            Event::Cut(id) => self.cut(id),
            Event::Act(actor, generation, act) => self.act(actor, generation, act),
            Event::Start => self.start(),
            Event::Server(lan) => self.server_fault(lan),
            Event::Partition(lan) => self.partition(lan),
            Event::Storm(lan, station, begins) => self.storm(lan, station, begins),
            Event::Renumber(lan) => self.renumber(lan),
            Event::Disk(full) => self.disk(full),
            Event::WallJump => self.wall_jump(),
            Event::Suspend => self.suspend(),
            Event::Errand(lan, errand) => errand.runs(self, lan),
            Event::GivesUp(id) => {
                if let Some((lan, errand)) = self.requests.get(&id).and_then(|asked| asked.errand) {
                    errand.gives_up(self, lan, id);
                }
            }
            Event::Audit => self.audit_again(),
        }
    }

    /// Schedules an event at a time.
    fn at(&mut self, at: Micros, event: Event) {
        self.sequence += 1;
        self.queue
            .insert((at.max(self.now), self.rng.u32(..), self.sequence), event);
    }

    /// Schedules an event after a delay between the two.
    fn after(&mut self, least: Micros, most: Micros, event: Event) {
        let delay = self.rng.u64(least..=most.max(least));
        self.at(self.now + delay, event);
    }

    /// Schedules an event within about this duration.
    fn sometime(&mut self, about: Duration, event: Event) {
        let about = about.as_micros() as u64;
        self.after(about / 4, about * 2, event);
    }

    /// Schedules a fault within about this duration, if there are such faults.
    fn perhaps(&mut self, every: Option<Duration>, fault: Event) {
        if let Some(every) = every {
            self.sometime(every, fault);
        }
    }

    fn clock(&self) -> Now {
        Now {
            boot: Instant::from_boot(Duration::from_micros(
                self.now - self.clocks.booted_at + UPTIME,
            )),
            wall: WallTime::from_epoch(Duration::from_micros(
                (1_800_000_000 * SECOND + self.now).saturating_add_signed(self.clocks.wall_offset),
            )),
        }
    }

    /// Returns the time in the world of an instant of this boot.
    fn world_time(&self, instant: Instant) -> Micros {
        (instant.since_boot().as_micros() as u64 + self.clocks.booted_at).saturating_sub(UPTIME)
    }

    /// Returns the models' time.
    fn model_time(&self) -> Duration {
        Duration::from_micros(self.now)
    }

    fn fail(&mut self, rule: Rule, detail: impl Into<String>) {
        if self.breach.is_none() {
            self.breach = Some(breach(rule, detail));
        }
    }

    fn note(&mut self, line: impl FnOnce() -> String) {
        self.trace.line(self.now, line);
    }
}
