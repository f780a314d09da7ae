//! The benchmark of a lease's life: the cost of many leases at rest and of a restart with them, and whether a slow
//! server can serve a host whose containers all start at once, as after a power cut.

use std::error::Error;
use std::thread;
use std::time::{Duration, Instant};

use netns_fixtures::model::{Config, Kind};
use netns_fixtures::server::{Kea, KeaConfig, ModelServer};
use netns_fixtures::{Capture, Lan, Sandbox};

use crate::binaries::Binaries;
use crate::client;
use crate::contender::{Contender, Usage, Who};
use crate::ground::{POOL, Place, places};
use crate::rounds::{AT_ONCE, at_once};
use crate::verdict::{Verdict, mebibytes, milliseconds};

/// What can be measured.
pub(crate) const SECTIONS: [&str; 2] = ["restart", "slow-server"];

/// The leases held while the daemon restarts.
const LEASES: usize = 10_000;
/// The most macvlans on one host link: the broadcasts of their siblings must fit in their queues.
const PER_PARENT: usize = 500;
/// The longest time from the start of a daemon with all these leases to the end of the next ADD.
const NEXT_ADD: Duration = Duration::from_secs(1);
/// The most memory that the daemon may take with all these leases at rest, in bytes.
const MEMORY: u64 = 25 << 20;
/// How long processor time is counted at rest.
const IDLE: Duration = Duration::from_secs(60);
/// The most processor time that a daemon at rest may take in that time.
const IDLE_PROCESSOR: Duration = Duration::from_millis(100);
/// The containers that start at once.
const POWER_CUT: usize = 500;
/// How long the slow server works on an answer.
const ANSWER: Duration = Duration::from_millis(20);

/// Measures these sections.
pub(crate) fn measure(sections: &[&str]) -> Result<Verdict, Box<dyn Error>> {
    let binaries = Binaries::build()?;
    let sandbox = Sandbox::enter()?;
    let mut verdict = Verdict::default();
    for section in sections {
        match *section {
            "restart" => restart(&binaries, &sandbox, &mut verdict)?,
            _ => slow_server(&binaries, &sandbox, &mut verdict)?,
        }
    }
    Ok(verdict)
}

/// Takes many leases, kills the daemon, starts it again, and immediately asks it for one more.
fn restart(
    binaries: &Binaries,
    sandbox: &Sandbox,
    verdict: &mut Verdict,
) -> Result<(), Box<dyn Error>> {
    let lan = Lan::new(sandbox)?;
    let places = places(&lan, LEASES + 1, PER_PARENT)?;
    // Not dnsmasq: it puts those it answers into the kernel's neighbour table, which has 1,024 places for all
    // namespaces.
    let _server = Kea::start(
        &lan,
        KeaConfig {
            pool: POOL,
            ..KeaConfig::default()
        },
    )?;
    let daemon = Contender::start(Who::Ours, binaries, &lan.host)?;
    let empty = daemon.at_rest()?;
    let added = at_once(&daemon, "ADD", &places[..LEASES])?;
    println!(
        "\n{LEASES} leases, taken {AT_ONCE} at once: {:.0} a second",
        added.throughput()
    );
    verdict.promise(
        format!("{LEASES} ADDs: every one succeeds"),
        added.each.failures.is_empty(),
        added.each.failures.first().map_or_else(
            || format!("{LEASES} of {LEASES}"),
            |said| said.trim().to_owned(),
        ),
    );
    usage("at rest without a lease", &empty);
    usage("at rest with all leases", &daemon.at_rest()?);

    let mut seen = Capture::start(&lan.server, Lan::IFNAME)?;
    let next = &places[LEASES];
    let began = Instant::now();
    let daemon = daemon.revive(binaries, &lan.host)?;
    let config = next.config(&daemon.socket);
    let answer = client::call(&daemon.plugin, "ADD", &next.container, &config)?;
    let took = began.elapsed();
    let failed = answer.err().map(|failure| failure.0);
    println!(
        "  {:40} {:>12}",
        "kill -9, start, next ADD answered",
        milliseconds(took)
    );
    verdict.promise(
        format!(
            "restart with {LEASES} leases: the next ADD within {}",
            milliseconds(NEXT_ADD)
        ),
        failed.is_none() && took <= NEXT_ADD,
        failed.unwrap_or_else(|| milliseconds(took)),
    );

    let rest = daemon.at_rest()?;
    let before = daemon.processor()?;
    thread::sleep(IDLE);
    let idle = daemon.processor()? - before;
    usage("at rest after the restart", &rest);
    println!(
        "  {:40} {:>12}",
        "processor time of an idle minute",
        milliseconds(idle)
    );
    let own = next.container.mac;
    let sent = seen
        .dhcp()?
        .iter()
        .filter(|m| m.kind != Kind::Offer && m.kind != Kind::Ack && m.chaddr != own)
        .count();
    verdict.promise(
        "a restart sends nothing",
        sent == 0,
        format!("{sent} messages for earlier leases"),
    );
    verdict.promise(
        format!("{LEASES} leases: memory under {:.0} MiB", mebibytes(MEMORY)),
        rest.rss < MEMORY,
        format!("{:.2} MiB", mebibytes(rest.rss)),
    );
    verdict.promise(
        format!("{LEASES} leases: no thread and no descriptor for an idle lease"),
        rest.threads <= empty.threads && rest.descriptors <= empty.descriptors,
        format!("{} threads, {} descriptors", rest.threads, rest.descriptors),
    );
    verdict.promise(
        format!(
            "{LEASES} leases: at most {} of a minute's processor time",
            milliseconds(IDLE_PROCESSOR)
        ),
        idle <= IDLE_PROCESSOR,
        milliseconds(idle),
    );
    client::call(&daemon.plugin, "DEL", &next.container, &config)?
        .map_err(|client::Failure(said)| said)?;
    daemon.stop()
}

/// Starts many containers at once on a server that answers slowly, one request after the other.
fn slow_server(
    binaries: &Binaries,
    sandbox: &Sandbox,
    verdict: &mut Verdict,
) -> Result<(), Box<dyn Error>> {
    let lan = Lan::new(sandbox)?;
    let places = places(&lan, POWER_CUT, PER_PARENT)?;
    let server = ModelServer::start(
        &lan,
        Config {
            answer_time: ANSWER,
            ..Config::new(Lan::SUBNET)
        },
    )?;
    let daemon = Contender::start(Who::Ours, binaries, &lan.host)?;
    let began = Instant::now();
    let answers = all_at_once(&daemon, &places)?;
    let took = began.elapsed();
    let failures: Vec<_> = answers.into_iter().filter_map(Result::err).collect();
    println!(
        "\n{POWER_CUT} ADDs at once, a server that takes {} an answer",
        milliseconds(ANSWER)
    );
    println!(
        "  {:40} {:>12}",
        "until the last is served",
        milliseconds(took)
    );
    println!(
        "  {:40} {:>12}",
        "what two answers each take it",
        milliseconds(ANSWER * 2 * POWER_CUT as u32)
    );
    println!(
        "  {:40} {:>12}",
        "messages that it got",
        server.events().len()
    );
    verdict.promise(
        format!("{POWER_CUT} ADDs at once on a slow server: all served"),
        failures.is_empty() && server.leases().len() == POWER_CUT,
        failures.first().map_or_else(
            || format!("{} leases at the server", server.leases().len()),
            |client::Failure(said)| format!("{} failed: {}", failures.len(), said.trim()),
        ),
    );
    daemon.stop()
}

/// Calls ADD for each container at the same time.
fn all_at_once(
    daemon: &Contender,
    places: &[Place],
) -> Result<Vec<Result<Duration, client::Failure>>, Box<dyn Error>> {
    thread::scope(|scope| {
        let call = |place: &Place| {
            client::call(
                &daemon.plugin,
                "ADD",
                &place.container,
                &place.config(&daemon.socket),
            )
        };
        let calls: Vec<_> = places
            .iter()
            .map(|place| scope.spawn(move || call(place)))
            .collect();
        calls
            .into_iter()
            .map(|call| Ok(call.join().expect("no caller panics")?))
            .collect()
    })
}

fn usage(when: &str, usage: &Usage) {
    let Usage {
        rss,
        threads,
        descriptors,
    } = usage;
    println!(
        "  {when:40} {:>8.2} MiB, {threads} threads, {descriptors} descriptors",
        mebibytes(*rss)
    );
}
