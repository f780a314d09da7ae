//! The measurements.

use std::error::Error;
use std::io;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::binaries::Binaries;
use crate::client::{self, note};
use crate::contender::{Contender, Usage, Who, order};
use crate::ground::{Ground, Links, Place};
use crate::processor;
use crate::sample::Sample;

/// How many calls of VERSION each contender gets.
const STARTS: usize = 100;
/// The containers of the sequential measurement. Each contender attaches each once.
pub(crate) const SEQUENTIAL: usize = 100;
/// The containers of one of its turns.
const SEQUENTIAL_TURN: usize = 10;
/// How many such turns each contender has.
const SEQUENTIAL_ROUNDS: usize = SEQUENTIAL / SEQUENTIAL_TURN;
/// The calls under way at once in the parallel measurement.
pub(crate) const AT_ONCE: usize = 32;
/// The fewest containers attached in a parallel measurement, in all its turns.
const PARALLEL: usize = 2000;
/// Returns how soon after the last DEL a server must have its leases back. Our RELEASEs leave at most 100 a second.
fn patience(who: Who) -> Duration {
    Duration::from_secs(if who == Who::Ours { 15 } else { 3 })
}

/// A value for each contender.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pair<T> {
    /// leasehold's.
    pub(crate) ours: T,
    /// The incumbent's.
    pub(crate) theirs: T,
}

impl<T> Pair<T> {
    /// Returns one contender's.
    pub(crate) fn of(&mut self, who: Who) -> &mut T {
        match who {
            Who::Ours => &mut self.ours,
            Who::Theirs => &mut self.theirs,
        }
    }
}

/// The calls of one kind.
#[derive(Clone, Debug, Default)]
pub(crate) struct Calls {
    /// Each call.
    pub(crate) each: Sample,
    /// How long all of them took, by the clock.
    pub(crate) took: Duration,
    /// The plugin's processor time for all calls.
    pub(crate) plugin: Duration,
    /// The daemon's processor time during the calls.
    pub(crate) daemon: Duration,
    /// The daemon's processor time until it was at rest again.
    pub(crate) until_rest: Duration,
}

impl Calls {
    fn merge(&mut self, other: Self) {
        self.each.merge(other.each);
        self.took += other.took;
        self.plugin += other.plugin;
        self.daemon += other.daemon;
        self.until_rest += other.until_rest;
    }

    /// Returns how many succeeded a second.
    pub(crate) fn throughput(&self) -> f64 {
        self.each.len() as f64 / self.took.as_secs_f64()
    }
}

/// One contender's results of all its turns.
#[derive(Clone, Debug, Default)]
pub(crate) struct Turns {
    /// The ADDs.
    pub(crate) add: Calls,
    /// The DELs.
    pub(crate) del: Calls,
    /// The daemon at rest without a lease, in each turn.
    pub(crate) empty: Vec<Usage>,
    /// The daemon at rest with all leases, in each turn.
    pub(crate) full: Vec<Usage>,
    /// The leases that the server still held after the DELs.
    pub(crate) left: Vec<String>,
}

/// Starts both plugins equally often.
pub(crate) fn start(binaries: &Binaries) -> Result<Pair<Sample>, Box<dyn Error>> {
    let mut samples = Pair::<Sample>::default();
    for number in 0..STARTS {
        for who in order(number) {
            let plugin = if who == Who::Ours {
                &binaries.shim
            } else {
                &binaries.incumbent
            };
            note(samples.of(who), client::version(plugin)?);
        }
    }
    Ok(samples)
}

/// Attaches and detaches one container after the other.
pub(crate) fn sequential(
    binaries: &Binaries,
    ground: &mut Ground,
    links: Links,
) -> Result<Pair<Turns>, Box<dyn Error>> {
    taking_turns(binaries, ground, links, SEQUENTIAL_ROUNDS)
}

/// Attaches and detaches one container after the other, on a ground that is on a bridge. The incumbent has one turn: with links
/// that are down, each of its ADDs takes some seconds, and more turns would show nothing new.
pub(crate) fn bridge(
    binaries: &Binaries,
    ground: &mut Ground,
) -> Result<Pair<Turns>, Box<dyn Error>> {
    taking_turns(binaries, ground, Links::Down, 1)
}

/// Makes leasehold attach and detach each container, and the incumbent those of its first `incumbents` turns.
fn taking_turns(
    binaries: &Binaries,
    ground: &mut Ground,
    links: Links,
    incumbents: usize,
) -> Result<Pair<Turns>, Box<dyn Error>> {
    let ours = Contender::start(Who::Ours, binaries, &ground.lan.host)?;
    let theirs = Contender::start(Who::Theirs, binaries, &ground.lan.host)?;
    let mut turns = Pair::<Turns>::default();
    for round in 0..SEQUENTIAL_ROUNDS {
        let first = round * SEQUENTIAL_TURN;
        for who in order(round)
            .into_iter()
            .filter(|who| *who == Who::Ours || round < incumbents)
        {
            ground.prepare(first, SEQUENTIAL_TURN, links)?;
            let contender = if who == Who::Ours { &ours } else { &theirs };
            let (add, del) = one_by_one(contender, ground.places(first, SEQUENTIAL_TURN))?;
            let turns = turns.of(who);
            turns.add.merge(add);
            turns.del.merge(del);
            turns.left.extend(ground.leases_left(patience(who)));
            ground.finish(first, SEQUENTIAL_TURN)?;
        }
    }
    ours.stop()?;
    theirs.stop()?;
    Ok(turns)
}

fn one_by_one(contender: &Contender, places: &[Place]) -> io::Result<(Calls, Calls)> {
    let (mut add, mut del) = (Calls::default(), Calls::default());
    for place in places {
        let config = place.config(&contender.socket);
        for (verb, calls) in [("ADD", &mut add), ("DEL", &mut del)] {
            let began = Instant::now();
            note(
                &mut calls.each,
                client::call(&contender.plugin, verb, &place.container, &config)?,
            );
            calls.took += began.elapsed();
        }
    }
    Ok((add, del))
}

/// Attaches `count` containers, then detaches them, with many calls under way at once. Each turn has its own daemon.
pub(crate) fn parallel(
    binaries: &Binaries,
    ground: &mut Ground,
    count: usize,
    links: Links,
) -> Result<Pair<Turns>, Box<dyn Error>> {
    let mut turns = Pair::<Turns>::default();
    for round in 0..PARALLEL.div_ceil(count).min(4) {
        for who in order(round) {
            ground.prepare(0, count, links)?;
            let contender = Contender::start(who, binaries, &ground.lan.host)?;
            let empty = contender.at_rest()?;
            let before = contender.processor()?;
            let mut add = at_once(&contender, "ADD", ground.places(0, count))?;
            let full = contender.at_rest()?;
            add.until_rest = contender.processor()? - before;
            let del = at_once(&contender, "DEL", ground.places(0, count))?;
            let turns = turns.of(who);
            turns.add.merge(add);
            turns.del.merge(del);
            turns.empty.push(empty);
            turns.full.push(full);
            turns.left.extend(ground.leases_left(patience(who)));
            contender.stop()?;
            ground.finish(0, count)?;
        }
    }
    Ok(turns)
}

/// Calls `verb` for every container, `at_once` at a time.
pub(crate) fn at_once(contender: &Contender, verb: &str, places: &[Place]) -> io::Result<Calls> {
    let next = AtomicUsize::new(0);
    let each = Mutex::new(Sample::default());
    let caller = || -> io::Result<()> {
        let mut mine = Sample::default();
        while let Some(place) = places.get(next.fetch_add(1, Ordering::Relaxed)) {
            let config = place.config(&contender.socket);
            note(
                &mut mine,
                client::call(&contender.plugin, verb, &place.container, &config)?,
            );
        }
        each.lock().expect("no caller panics").merge(mine);
        Ok(())
    };
    let began = Instant::now();
    let plugin = processor::children()?;
    let daemon = contender.processor()?;
    thread::scope(|scope| {
        let callers: Vec<_> = (0..AT_ONCE).map(|_| scope.spawn(caller)).collect();
        callers
            .into_iter()
            .try_for_each(|caller| caller.join().expect("no caller panics"))
    })?;
    let took = began.elapsed();
    let plugin = processor::children()? - plugin;
    let daemon = contender.processor()? - daemon;
    let until_rest = Duration::ZERO;
    Ok(Calls {
        each: each.into_inner().expect("no caller panics"),
        took,
        plugin,
        daemon,
        until_rest,
    })
}
