//! The results side by side, and whether they are as they should be.
//!
//! Speed is judged with links that are down, as main plugins leave them. What the daemon costs among many others is judged with
//! links that are already up, which saves the incumbent its two seconds.

use std::io;
use std::time::Duration;

use crate::binaries::{Binaries, size};
use crate::contender::Usage;
use crate::ground::Links;
use crate::rounds::{AT_ONCE, Calls, Pair, Turns};
use crate::sample::Sample;
use crate::verdict::{Verdict, mebibytes, megabytes, milliseconds};

/// How many times faster the median sequential ADD must be.
const SEQUENTIAL: f64 = 12.0;
/// When leasehold sends its second DISCOVER, at the earliest.
const ASKS_AGAIN: Duration = Duration::from_millis(875);
/// The most processor time of the daemon for an ADD, as a share of the incumbent's, with 200 containers on one parent and with
/// 1,000: the kernel copies each container's broadcasts for all of them. Links are up, which suits the incumbent.
const PROCESSOR: (f64, f64) = (0.54, 0.63);
/// How many times more ADDs a second there must be with 200 containers on one parent, and with 1,000.
const ON_ONE_PARENT: (f64, f64) = (3.0, 2.5);
/// How many times more ADDs a second there must be, with 1,000 containers.
const THROUGHPUT: f64 = 6.0;
/// How long 99 of 100 of those ADDs may take.
const SLOWEST: Duration = Duration::from_millis(150);
/// The most memory of the daemon, in bytes: for itself, and for each lease. That is 9.5 MiB for 1,000 leases.
const MEMORY: (u64, u64) = (8_155_000, 1_806);
/// The shim's largest size, in bytes, with local ranges in it.
const SHIM: u64 = 1_700_000;

/// Reports the starts and the sizes.
pub(crate) fn start(
    samples: &Pair<Sample>,
    binaries: &Binaries,
    verdict: &mut Verdict,
) -> io::Result<()> {
    title(&format!(
        "Start of the plugin: VERSION, {} each",
        samples.ours.len()
    ));
    percentiles(&samples.ours, &samples.theirs, &[50, 99]);
    let shim = size(&binaries.shim)?;
    let daemon = size(&binaries.daemon)?;
    let theirs = size(&binaries.incumbent)?;
    row(
        "size of the plugin",
        &megabytes(shim),
        &megabytes(theirs),
        theirs as f64 / shim as f64,
    );
    row(
        "size of the daemon",
        &megabytes(daemon),
        "the same",
        theirs as f64 / daemon as f64,
    );
    verdict.promise("shim at most 1.7 MB", shim <= SHIM, megabytes(shim));
    failures(&samples.ours, "VERSION", verdict);
    Ok(())
}

/// Reports the sequential calls.
pub(crate) fn sequential(links: Links, turns: &Pair<Turns>, verdict: &mut Verdict) {
    let Pair { ours, theirs } = turns;
    title(&format!(
        "One after the other, {}, {} each: ADD",
        said(links),
        ours.add.each.len()
    ));
    percentiles(&ours.add.each, &theirs.add.each, &[50, 99, 100]);
    title("DEL");
    percentiles(&ours.del.each, &theirs.del.each, &[50, 99, 100]);
    if links == Links::Down {
        let (mine, other) = (ours.add.each.percentile(50), theirs.add.each.percentile(50));
        let faster = ratio(other, mine);
        verdict.promise(
            format!("sequential ADD: p50 at least {SEQUENTIAL} times faster"),
            faster >= SEQUENTIAL,
            format!("{faster:.1} times, {}", milliseconds(mine)),
        );
    }
    whole(turns, &format!("sequential, {}", said(links)), verdict);
}

/// Reports the calls on a bridge. A client without an answer in time asks again: its first DISCOVER was lost, usually because the
/// bridge did not forward yet.
pub(crate) fn bridge(turns: &Pair<Turns>, verdict: &mut Verdict) {
    let Pair { ours, theirs } = turns;
    title("One after the other on a bridge, links down: ADD");
    percentiles(&ours.add.each, &theirs.add.each, &[50, 90, 99, 100]);
    let [mine, other] =
        [&ours.add.each, &theirs.add.each].map(|adds| (adds.longer_than(ASKS_AGAIN), adds.len()));
    let said = |(asked, of): (usize, usize)| format!("{asked} of {of}");
    let share = |(asked, of): (usize, usize)| asked as f64 / of as f64;
    row(
        "that asked again",
        &said(mine),
        &said(other),
        share(other) / share(mine),
    );
    let mine = mine.0;
    verdict.promise("bridge: no ADD asks again", mine == 0, mine.to_string());
    whole(turns, "bridge", verdict);
}

/// Reports the parallel calls with `count` containers.
///
/// `place`: where they are, for a person.
pub(crate) fn parallel(
    (count, place): (usize, &str),
    links: Links,
    turns: &Pair<Turns>,
    verdict: &mut Verdict,
) {
    let Pair { ours, theirs } = turns;
    let rounds = ours.empty.len();
    for (verb, mine, other) in [
        ("ADD", &ours.add, &theirs.add),
        ("DEL", &ours.del, &theirs.del),
    ] {
        title(&format!(
            "{count} containers{place}, {}, {AT_ONCE} at once, {rounds} rounds: {verb}",
            said(links)
        ));
        let (fast, slow) = (mine.throughput(), other.throughput());
        row(
            "a second",
            &format!("{fast:.0}"),
            &format!("{slow:.0}"),
            fast / slow,
        );
        percentiles(&mine.each, &other.each, &[50, 99, 100]);
        for (who, of) in [
            ("plugin", plugin as fn(&Calls) -> Duration),
            ("daemon", daemon),
        ] {
            let (mine, other) = (of(mine), of(other));
            durations(&format!("processor, {who}"), mine, other);
        }
    }
    let [mine, other] =
        [&ours.add, &theirs.add].map(|add| add.until_rest / add.each.len().max(1) as u32);
    println!();
    durations("an ADD until all is quiet", mine, other);
    usages(count, ours, theirs);
    let what = format!("{count}{place} at {AT_ONCE}, {}", said(links));
    match links {
        Links::Up if !place.is_empty() => promise_on_one_parent(&what, count, turns, verdict),
        Links::Up => {}
        Links::Down => promise_throughput(&what, &ours.add, &theirs.add, verdict),
    }
    promise_rest(count as u64, ours, verdict);
    whole(turns, &what, verdict);
}

/// Returns the plugin's processor time for one call.
fn plugin(calls: &Calls) -> Duration {
    calls.plugin / calls.each.len().max(1) as u32
}

/// Returns the daemon's processor time for one call.
fn daemon(calls: &Calls) -> Duration {
    calls.daemon / calls.each.len().max(1) as u32
}

fn promise_throughput(what: &str, ours: &Calls, theirs: &Calls, verdict: &mut Verdict) {
    let faster = ours.throughput() / theirs.throughput();
    verdict.promise(
        format!("{what}: at least {THROUGHPUT} times the throughput"),
        faster >= THROUGHPUT,
        format!("{faster:.1} times, {:.0} a second", ours.throughput()),
    );
    let slowest = ours.each.percentile(99);
    verdict.promise(
        format!("{what}: p99 under {}", milliseconds(SLOWEST)),
        slowest < SLOWEST,
        milliseconds(slowest),
    );
}

fn promise_processor(
    what: &str,
    share: f64,
    Pair { ours, theirs }: &Pair<Turns>,
    verdict: &mut Verdict,
) {
    let (mine, other) = (daemon(&ours.add), daemon(&theirs.add));
    let taken = mine.as_secs_f64() / other.as_secs_f64();
    verdict.promise(
        format!("{what}: at most {share} of the incumbent's processor time an ADD"),
        taken <= share,
        format!(
            "{taken:.2}, {} over {}",
            milliseconds(mine),
            milliseconds(other)
        ),
    );
}

fn promise_on_one_parent(what: &str, count: usize, turns: &Pair<Turns>, verdict: &mut Verdict) {
    let Pair { ours, theirs } = turns;
    let (processor, times) = if count >= 1000 {
        (PROCESSOR.1, ON_ONE_PARENT.1)
    } else {
        (PROCESSOR.0, ON_ONE_PARENT.0)
    };
    promise_processor(what, processor, turns, verdict);
    let [mine, other] =
        [&ours.add, &theirs.add].map(|add| add.until_rest / add.each.len().max(1) as u32);
    verdict.promise(
        format!("{what}: until all is quiet at most the incumbent's"),
        mine <= other,
        format!(
            "{}, the incumbent's {}",
            milliseconds(mine),
            milliseconds(other)
        ),
    );
    for (verb, times, mine, other) in [
        ("ADDs", times, &ours.add, &theirs.add),
        ("DELs", 1.0, &ours.del, &theirs.del),
    ] {
        let faster = mine.throughput() / other.throughput();
        verdict.promise(
            format!("{what}: at least {times} times the {verb} a second"),
            faster >= times,
            format!("{faster:.1} times, {:.0} a second", mine.throughput()),
        );
    }
}

/// Judges the worst turn.
fn promise_rest(count: u64, ours: &Turns, verdict: &mut Verdict) {
    let largest = |usages: &[Usage]| {
        usages
            .iter()
            .map(|usage| usage.rss)
            .max()
            .unwrap_or_default()
    };
    let (empty, full) = (largest(&ours.empty), largest(&ours.full));
    let (base, each) = MEMORY;
    verdict.promise(
        format!(
            "{count} leases: memory at most {:.2} MiB",
            mebibytes(base + each * count)
        ),
        full <= base + each * count,
        format!(
            "{:.2} MiB, {:.2} MiB without a lease",
            mebibytes(full),
            mebibytes(empty)
        ),
    );
    let more = |of: fn(&Usage) -> u64| {
        let grown = ours
            .empty
            .iter()
            .zip(&ours.full)
            .map(|(empty, full)| of(full).saturating_sub(of(empty)));
        grown.max().unwrap_or_default()
    };
    let (threads, descriptors) = (more(|usage| usage.threads), more(|usage| usage.descriptors));
    verdict.promise(
        format!("{count} leases: no thread and no descriptor for an idle lease"),
        threads == 0 && descriptors == 0,
        format!("{threads} threads and {descriptors} descriptors more than without a lease"),
    );
}

/// Judges that every call did what it should; otherwise the numbers mean nothing.
fn whole(turns: &Pair<Turns>, what: &str, verdict: &mut Verdict) {
    failures(&turns.ours.add.each, &format!("{what}, ADD"), verdict);
    failures(&turns.ours.del.each, &format!("{what}, DEL"), verdict);
    let left: Vec<_> = turns.ours.left.iter().take(4).map(String::as_str).collect();
    let found = match turns.ours.left.len() {
        0 => format!(
            "none left on the server, {} of the incumbent's",
            turns.theirs.left.len()
        ),
        more => format!("{more} left on the server: {}", left.join(", ")),
    };
    verdict.promise(
        format!("{what}: every lease given back"),
        turns.ours.left.is_empty(),
        found,
    );
    let theirs =
        [&turns.theirs.add.each, &turns.theirs.del.each].map(|sample| sample.failures.len());
    if theirs != [0, 0] {
        println!(
            "{:26} {} ADD and {} DEL of the incumbent's failed",
            "", theirs[0], theirs[1]
        );
    }
}

pub(crate) fn failures(sample: &Sample, what: &str, verdict: &mut Verdict) {
    let found = match sample.failures.first() {
        None => format!("{} of {}", sample.len(), sample.len()),
        Some(first) => format!("{} failed: {}", sample.failures.len(), first.trim()),
    };
    verdict.promise(
        format!("{what}: every call succeeds"),
        sample.failures.is_empty(),
        found,
    );
}

fn usages(count: usize, ours: &Turns, theirs: &Turns) {
    for (what, mine, other) in [
        ("no lease", &ours.empty, &theirs.empty),
        (&*format!("{count} leases"), &ours.full, &theirs.full),
    ] {
        title(&format!("The daemon at rest with {what}"));
        let (mine, other) = (median(mine), median(other));
        let memory = |usage: &Usage| format!("{:.2} MiB", mebibytes(usage.rss));
        row(
            "memory",
            &memory(&mine),
            &memory(&other),
            other.rss as f64 / mine.rss as f64,
        );
        for (name, mine, other) in [
            ("threads", mine.threads, other.threads),
            ("descriptors", mine.descriptors, other.descriptors),
        ] {
            row(
                name,
                &mine.to_string(),
                &other.to_string(),
                other as f64 / mine as f64,
            );
        }
    }
}

/// Returns the usage of the median turn, by memory.
fn median(usages: &[Usage]) -> Usage {
    let mut sorted = usages.to_vec();
    sorted.sort_unstable_by_key(|usage| usage.rss);
    sorted.get(sorted.len() / 2).copied().unwrap_or_default()
}

pub(crate) fn percentiles(ours: &Sample, theirs: &Sample, which: &[usize]) {
    for &percent in which {
        let (mine, other) = (ours.percentile(percent), theirs.percentile(percent));
        let name = if percent == 100 {
            "max".to_owned()
        } else {
            format!("p{percent}")
        };
        durations(&name, mine, other);
    }
}

fn said(links: Links) -> &'static str {
    if links == Links::Up {
        "links up"
    } else {
        "links down"
    }
}

pub(crate) fn title(text: &str) {
    println!(
        "\n{text}\n{:26} {:>12} {:>12} {:>12}",
        "", "leasehold", "incumbent", "times better"
    );
}

pub(crate) fn durations(name: &str, ours: Duration, theirs: Duration) {
    let (mine, other) = (milliseconds(ours), milliseconds(theirs));
    row(name, &mine, &other, ratio(theirs, ours));
}

pub(crate) fn row(name: &str, ours: &str, theirs: &str, ratio: f64) {
    println!("  {name:24} {ours:>12} {theirs:>12} {ratio:>12.1}");
}

pub(crate) fn ratio(theirs: Duration, ours: Duration) -> f64 {
    theirs.as_secs_f64() / ours.as_secs_f64()
}
