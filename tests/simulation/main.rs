//! The whole core under a virtual clock: a seeded world of namespaces, servers, callers, faults and crashes.
//!
//! `SEEDS=n` changes how many seeds are run, and `FROM=n` the first of them. `SEED=n` replays one seed and prints everything that
//! happens. `KEEP_GOING=1` goes on after a failing seed, and counts which rules are broken. Seeds from [`LOCAL`] on have
//! fallbacks too, those from [`RELAYED`] on a relay that dies, those from [`TAKEN`] on neighbours that take leased addresses, those from
//! [`RARE`] on situations that few others reach.
//!
//! `CUT=name` cuts out one of the core's rules (`daemon/core/src/rules.rs`), and goes on after a failing seed too: which rules
//! miss it, and how many seeds?
//!
//! `DIGEST=1` prints one number for each seed, made from everything that the seed did to the world, and one for all seeds. If
//! these are the same before and after a change of the core, the change has moved code and nothing else. `diff` of the two
//! outputs names the seeds that differ.

mod digest;
mod plan;
mod stats;
mod subject;
mod timing;
mod trace;
mod watch;
mod world;

use std::fmt::Write;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use leasehold_core::rules::{self, RULES, Stated};

use crate::digest::Digest;
use crate::plan::{EffectKind, LOCAL, RARE, RELAYED, TAKEN};
use crate::stats::Stats;
use crate::subject::Mutation;
use crate::trace::Trace;
use crate::watch::Rule;
use crate::world::{Report, World};

/// How many lines of a failing seed are printed.
const TAIL: usize = 150;

fn setting(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{name}={text} is not a number")),
    )
}

/// Runs one seed, and names it if it panics.
fn run_one(seed: u64, mutation: Option<Mutation>) -> Report {
    let run = || World::new(seed, mutation, Trace::Off).run();
    std::panic::catch_unwind(run)
        .unwrap_or_else(|_| panic!("seed {seed} panicked: replay it with SEED={seed}"))
}

fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Runs this many seeds, on all cores. Returns the lowest seed that broke a rule, and all counts.
fn run_many(from: u64, count: u64) -> (Option<u64>, Stats) {
    let next = AtomicU64::new(from);
    let failed = AtomicU64::new(u64::MAX);
    let total = Mutex::new(Stats::default());
    let work = || {
        let mut stats = Stats::default();
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= from + count || seed > failed.load(Ordering::Relaxed) {
                break;
            }
            let report = run_one(seed, None);
            stats.add(&report.stats);
            if report.breach.is_some() {
                failed.fetch_min(seed, Ordering::Relaxed);
            }
        }
        total
            .lock()
            .expect("no thread panics with the lock")
            .add(&stats);
    };
    std::thread::scope(|scope| {
        for _ in 0..threads() {
            scope.spawn(work);
        }
    });
    let failed = failed.into_inner();
    let total = total.into_inner().expect("no thread panics with the lock");
    ((failed != u64::MAX).then_some(failed), total)
}

/// Prints the digests of the first seeds, in order.
fn print_digests(from: u64, count: u64) {
    let threads = threads() as u64;
    let every = |first| {
        (from + first..from + count)
            .step_by(threads as usize)
            .map(|seed| (seed, run_one(seed, None).digest))
    };
    let digests: std::collections::BTreeMap<u64, Digest> = std::thread::scope(|scope| {
        let running: Vec<_> = (0..threads)
            .map(|first| scope.spawn(move || every(first).collect::<Vec<_>>()))
            .collect();
        running
            .into_iter()
            .flat_map(|thread| thread.join().expect("a panic names its seed"))
            .collect()
    });
    let mut all = Digest::default();
    for (seed, digest) in digests {
        println!("{seed} {digest}");
        write!(all, "{digest}").expect("a digest takes all that is written");
    }
    println!("{count} seeds from {from}: {all}");
}

fn print_tail(report: &Report) {
    let from = report.trace.len().saturating_sub(TAIL);
    for line in &report.trace[..1.min(from)] {
        println!("{line}\n  … {from} lines …");
    }
    report.trace[from..]
        .iter()
        .for_each(|line| println!("{line}"));
}

/// Replays a seed and fails with its trace.
fn fail_with(seed: u64) -> ! {
    let report = World::new(seed, None, Trace::Kept(Vec::new())).run();
    print_tail(&report);
    match report.breach {
        Some(breach) => panic!(
            "seed {seed} broke {:?}: {}\nreplay it with SEED={seed}",
            breach.rule, breach.detail
        ),
        None => panic!("seed {seed} failed, but not when it was run again"),
    }
}

/// Runs all seeds whatever happens, and prints how many break each rule, and the first of those. Fails if any does.
fn survey(from: u64, count: u64) {
    let mut broken: std::collections::BTreeMap<String, Vec<u64>> = Default::default();
    let mut stats = Stats::default();
    for seed in from..from + count {
        let report = run_one(seed, None);
        stats.add(&report.stats);
        if let Some(breach) = report.breach {
            broken
                .entry(format!("{:?}", breach.rule))
                .or_default()
                .push(seed);
        }
    }
    println!("{stats:#?}");
    for (rule, seeds) in &broken {
        println!(
            "{:>6} {rule}: {:?}",
            seeds.len(),
            &seeds[..seeds.len().min(8)]
        );
    }
    assert!(broken.is_empty(), "rules are broken");
}

/// What happens in a thousand seeds. What does not happen is not tested.
const HAPPENS: &[&str] = &[
    "ADD again leased",
    "ADD failed",
    "ADD leased",
    "CHECK failed",
    "CHECK passed",
    "DEL done",
    "DEL spooled",
    "GC done",
    "GC failed",
    "NAK",
    "NAK storms",
    "NAKs beside an answer",
    "REQUESTs to a deaf server",
    "STATUS not ready",
    "STATUS ready",
    "addresses claimed as they were offered",
    "addresses that were chosen",
    "addresses that were released once more",
    "addresses that were released twice",
    "adopted",
    "answers of denied rogues",
    "attachments with a station that is not heard",
    "bindings that outlived their store",
    "calls of the network driver that came twice",
    "carrier lost",
    "clients on another host that a GC ended",
    "clients that share a chaddr",
    "clients of two clusters with one name",
    "containers that started slowly",
    "containers that were without a lease for a while",
    "ends kept beside the socket",
    "damaged stores",
    "endpoints created",
    "endpoints deleted",
    "endpoints that dockerd forgot",
    "failed operations",
    "failed transactions",
    "full stores",
    "granted to INIT-REBOOT",
    "granted to REBIND",
    "granted to RENEW",
    "granted to REQUEST",
    "hang-ups",
    "heard of other hosts",
    "heard of squatters",
    "held by another",
    "intruders refused",
    "kept",
    "kernel messages missed",
    "lapsed",
    "late answers",
    "links made for VLANs",
    "links made for endpoints",
    "links moved back from containers",
    "links moved into containers",
    "links of VLANs deleted",
    "links of endpoints deleted",
    "links set down",
    "live at the end",
    "live at the end with our network driver",
    "looks for links without an endpoint",
    "namespaces that died",
    "networks created",
    "networks deleted",
    "networks that are good to the end",
    "networks that were given up",
    "nonsense of rogues",
    "partitions of all servers",
    "partitions of one of two",
    "ports that forward late",
    "pools that were asked for again",
    "refusals of rogues",
    "released",
    "servers that know clients by chaddr",
    "servers that restarted with their database",
    "servers that restarted without it",
    "servers with one address for everybody",
    "starts without sight",
    "stores with room again",
    "suspends",
    "two servers with one pool",
    "two servers with two pools",
    "wall clocks set back",
    "wall clocks set forward",
];

/// What happens in a thousand seeds with fallbacks.
const HAPPENS_LOCALLY: &[&str] = &[
    "fallbacks",
    "fallbacks that were adopted",
    "servers that were back",
];

fn must_have_happened(stats: &Stats, wanted: &[&str]) {
    for kind in EffectKind::ALL {
        for after in [false, true] {
            let crashes = stats.crash_points.get(&(kind, after));
            assert!(crashes.is_some(), "no crash at {kind:?}, after it: {after}");
        }
    }
    for what in wanted {
        assert!(
            stats.counts.get(what).is_some_and(|count| *count > 0),
            "nothing of this happened: {what}"
        );
    }
    assert!(
        stats.reboots > 0 && stats.crashes > stats.reboots,
        "{stats:?}"
    );
}

/// Cuts out the rule of this name in this thread.
fn cut_out(name: &str) {
    let stated = RULES.iter().find(|it| format!("{:?}", it.rule) == name);
    let Stated { rule, .. } = stated.unwrap_or_else(|| panic!("CUT={name}: no such rule"));
    rules::cut_out(Some(*rule));
}

/// Runs seeds, or what the environment asks for instead.
fn run(from: u64, count: u64, wanted: &[&str]) {
    let cut = std::env::var("CUT").ok();
    cut.iter().for_each(|name| cut_out(name));
    if let Some(seed) = setting("SEED") {
        let report = World::new(seed, None, Trace::Printed).run();
        let breach = report
            .breach
            .map(|breach| format!("{:?}: {}", breach.rule, breach.detail));
        assert_eq!(breach, None);
        return;
    }
    let from = setting("FROM").unwrap_or(from);
    let count = setting("SEEDS").unwrap_or(count);
    if setting("DIGEST").is_some() {
        return print_digests(from, count);
    }
    if setting("KEEP_GOING").is_some() || cut.is_some() {
        return survey(from, count);
    }
    let (failed, stats) = run_many(from, count);
    println!("{count} seeds from {from}: {stats:#?}");
    if let Some(seed) = failed {
        fail_with(seed);
    }
    if count >= 1000 {
        must_have_happened(&stats, wanted);
    }
}

#[test]
fn every_seed_keeps_the_invariants() {
    run(0, 10_000, HAPPENS);
}

#[test]
fn fallbacks_keep_the_invariants() {
    run(LOCAL, 2_500, HAPPENS_LOCALLY);
}

#[test]
fn no_lease_ends_because_its_relay_died() {
    run(RELAYED, 200, &[]);
}

#[test]
fn a_leased_address_that_a_neighbour_takes_is_left() {
    run(TAKEN, 200, &[]);
}

#[test]
fn rare_situations_keep_the_invariants() {
    run(RARE, 400, &[]);
}

#[test]
fn a_seed_runs_the_same_each_time() {
    for seed in [3, 14, 15, 92, 99] {
        let [one, two] = [(); 2].map(|()| World::new(seed, None, Trace::Kept(Vec::new())).run());
        assert!(one.trace.len() > 100, "seed {seed} has a life");
        let differs = one.trace.iter().zip(&two.trace).position(|(a, b)| a != b);
        assert_eq!(differs, None, "seed {seed}");
        let found = (one.trace.len(), one.stats);
        assert_eq!(found, (two.trace.len(), two.stats), "seed {seed}");
        assert_eq!(one.digest, two.digest, "seed {seed}");
        assert_ne!(one.digest, Digest::default(), "seed {seed}");
    }
}

/// An omitted duty, the rule that reveals it, and the first seed to try: 0, unless few seeds reveal it, or only seeds with
/// fallbacks. If that one no longer reveals the omission, take any other that does.
type Case = (Mutation, &'static str, u64);

/// Each duty that a core could forget.
const CASES: [Case; 31] = [
    (Mutation::ReplyBeforePersist, "NotDurable", 0),
    (Mutation::NakIgnored, "Client(NakIgnored", 0),
    (Mutation::HangUpForgotten, "Orphan", 0),
    (Mutation::DelForgotten, "DelOvertaken", 0),
    (Mutation::CloseForgotten, "IdleSockets", 0),
    (Mutation::StoreFailureIgnored, "NotDurable", 0),
    (Mutation::RestartConfirms, "Chatty", 0),
    (Mutation::DeathIgnored, "Orphan", 0),
    (Mutation::RecordKept, "Residue", 0),
    (Mutation::ApplyBeforePersist, "NotDurable", 0),
    (Mutation::ExpiryIgnored, "Interface", 0),
    (Mutation::FormerForgotten, "Interface", 8844),
    (Mutation::ChangeIgnored, "Interface", 0),
    (Mutation::RogueBelieved, "Rogue", 0),
    (Mutation::StormAnswered, "Timing", 0),
    (Mutation::PublishForgotten, "Published", 0),
    (Mutation::EventFirst, "EventAhead", 0),
    (Mutation::ArpUnheard, "Squatted", 0),
    (Mutation::StatusBlind, "WrongAnswer", 0),
    (Mutation::GraceForgotten, "Grace", 346),
    (Mutation::PortForgotten, "NotReleased", 0),
    (Mutation::BlindnessBelieved, "ReleaseUnderHolder", 0),
    (Mutation::RemovalForgotten, "Interface", 1646),
    (Mutation::DownUnheard, "Interface", 1942),
    (Mutation::ClaimantsForgiven, "Accepted", 0),
    (Mutation::DeclinesUncounted, "Declines", 0),
    (Mutation::LanUnshared, "DeclineUnderHolder", 0),
    (Mutation::LossAccepted, "Bare", 0),
    (Mutation::UnmakeForgotten, "Wired", 0),
    (Mutation::FallbackImpatient, "Fallback", LOCAL),
    (Mutation::OffersUnheard, "Fallback", LOCAL),
];

#[test]
fn each_forgotten_duty_is_found_out() {
    on_all_cores(&CASES, find_out);
}

/// Does something with each of these, on all cores.
fn on_all_cores<T: Sync>(all: &[T], work: impl Fn(&T) + Sync) {
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..threads() {
            scope.spawn(|| {
                while let Some(one) = all.get(next.fetch_add(1, Ordering::Relaxed)) {
                    work(one);
                }
            });
        }
    });
}

/// Runs seeds until one breaks the expected rule.
fn find_out((mutation, expected, first): &Case) {
    let mut rules = (*first..first + 12_000)
        .filter_map(|seed| Some((seed, run_one(seed, Some(*mutation)).breach?.rule)));
    let found = rules.find(|(_, rule)| format!("{rule:?}").starts_with(expected));
    println!("{mutation:?}: {found:?}");
    assert!(found.is_some(), "{mutation:?} is not found out");
}

/// How many seeds are tried for each rule.
const TRIES: u64 = 2_000;

/// Each of the core's rules, and the property that fails without it.
#[test]
fn each_rule_is_missed_where_it_is_cut_out() {
    on_all_cores(RULES, |stated| {
        rules::cut_out(Some(stated.rule));
        miss(stated);
    });
}

/// Runs seeds without a rule until one breaks the property that the rule is there for.
fn miss(stated: &Stated) {
    let Stated {
        rule,
        property,
        seed,
        ..
    } = stated;
    let breaks = |seed: &u64| {
        let breach = run_one(*seed, None).breach;
        breach.is_some_and(|breach| name_of(&breach.rule) == *property)
    };
    let found = (*seed..seed + TRIES).find(breaks);
    println!("{rule:?}: {found:?}");
    assert!(
        found.is_some(),
        "{rule:?} is not missed: {property} holds without it"
    );
}

/// Returns the name of a property, without its details.
fn name_of(rule: &Rule) -> String {
    let text = format!("{rule:?}");
    text.split(['(', ' ']).next().unwrap_or_default().to_owned()
}
