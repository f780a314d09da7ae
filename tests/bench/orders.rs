//! An operator and many leases: all of them extended at once, and listed.

use std::collections::BTreeMap;
use std::error::Error;
use std::process::Command;
use std::time::{Duration, Instant};

use netns_fixtures::model::Kind;
use netns_fixtures::server::{Kea, KeaConfig};
use netns_fixtures::{Capture, Lan, Sandbox};
use serde_json::Value;

use crate::binaries::Binaries;
use crate::contender::{Contender, Who};
use crate::ground::{POOL, places};
use crate::rounds::at_once;
use crate::verdict::{Verdict, milliseconds};

/// The leases that are extended.
const LEASES: usize = 1_000;
/// The most macvlans on one host link.
const PER_PARENT: usize = 250;
/// How long the answers may take.
const ANSWERS: Duration = Duration::from_secs(6);
/// How long a list of ten thousand leases may take, from the start of the command to its end.
const LIST: Duration = Duration::from_millis(100);

/// Has a thousand leases extended with one command.
pub(crate) fn renew_all(
    binaries: &Binaries,
    sandbox: &Sandbox,
    verdict: &mut Verdict,
) -> Result<(), Box<dyn Error>> {
    let lan = Lan::new(sandbox)?;
    let places = places(&lan, LEASES, PER_PARENT)?;
    let _server = Kea::start(
        &lan,
        KeaConfig {
            pool: POOL,
            ..KeaConfig::default()
        },
    )?;
    let daemon = Contender::start(Who::Ours, binaries, &lan.host)?;
    at_once(&daemon, "ADD", &places)?;
    // The last lease is old enough by then.
    daemon.at_rest()?;
    let mut seen = Capture::start(&lan.server, Lan::IFNAME)?;
    let began = Instant::now();
    let output = Command::new(&binaries.daemon)
        .args(["renew", "--all", "--yes", "--json", "--socket"])
        .arg(&daemon.socket)
        .output()?;
    let took = began.elapsed();
    let answer: Value = serde_json::from_slice(&output.stdout)?;
    let mut outcomes: BTreeMap<&str, usize> = BTreeMap::new();
    let leases = answer["leases"].as_array().into_iter().flatten();
    leases.for_each(|lease| {
        *outcomes
            .entry(lease["outcome"].as_str().unwrap_or_default())
            .or_default() += 1
    });
    let requests = seen
        .dhcp()?
        .iter()
        .filter(|message| message.kind == Kind::Request)
        .count();
    println!("\n{LEASES} leases extended by `renew --all`: {outcomes:?}");
    println!(
        "  {:40} {:>12}",
        "from the command to its end",
        milliseconds(took)
    );
    println!("  {:40} {:>12}", "REQUESTs", requests);
    verdict.promise(
        format!("renew --all: {LEASES} of {LEASES} leases extended"),
        outcomes.get("extended") == Some(&LEASES) && output.status.success(),
        format!("{outcomes:?}"),
    );
    verdict.promise(
        "renew --all: each lease asks once",
        requests == LEASES,
        format!("{requests} REQUESTs"),
    );
    verdict.promise(
        format!(
            "renew --all: the last answer within {}",
            milliseconds(ANSWERS)
        ),
        took <= ANSWERS,
        milliseconds(took),
    );
    let listed = daemon.list(binaries)?;
    let bound = listed["bindings"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|lease| lease["state"] == "BOUND")
        .count();
    verdict.promise(
        "renew --all: nothing is lost",
        bound == LEASES,
        format!("{bound} leases held"),
    );
    daemon.stop()
}

/// Lists many leases: the best of five, as a person would experience it.
pub(crate) fn list(
    daemon: &Contender,
    binaries: &Binaries,
    verdict: &mut Verdict,
) -> Result<(), Box<dyn Error>> {
    let once = || -> Result<Duration, Box<dyn Error>> {
        let began = Instant::now();
        let output = Command::new(&binaries.daemon)
            .args(["list", "--socket"])
            .arg(&daemon.socket)
            .output()?;
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).into());
        }
        Ok(began.elapsed())
    };
    let times = (0..5).map(|_| once()).collect::<Result<Vec<_>, _>>()?;
    let best = times.into_iter().min().unwrap_or_default();
    verdict.promise(
        format!("list of all leases within {}", milliseconds(LIST)),
        best <= LIST,
        milliseconds(best),
    );
    Ok(())
}
