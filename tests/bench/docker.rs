//! The benchmark of Docker's two drivers: what an address costs beyond a bare exchange with the same server, and how soon the
//! container's interface is found; what an endpoint costs (`driver`).
//!
//! Docker is played, with real links that are made and moved as Docker does; the daemon is the release build.

mod driver;

use std::error::Error;
use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use netns_fixtures::engine::Dockerd;
use netns_fixtures::engine::played::{
    Driver, EngineVersion, NetworkPlan, Played, PlayedNetwork, RunPlan,
};
use netns_fixtures::server::{Kea, KeaConfig};
use netns_fixtures::{BareClient, DEADLINE, Lan, Sandbox, mac, mac_text};
use serde_json::{Value, json};

use crate::binaries::Binaries;
use crate::contender::Contender;
use crate::disk::Disk;
use crate::ground::{POOL, places};
use crate::sample::Sample;
use crate::verdict::{Verdict, milliseconds};

/// What can be measured.
pub(crate) const SECTIONS: [&str; 3] = ["address", "interface", "endpoint"];

/// How many addresses are requested, one after the other.
const ADDRESSES: usize = 200;
/// How many containers' interfaces are sought, one after the other.
const CONTAINERS: usize = 20;
/// How much longer an address may take than its parts, the four messages and the commit.
const OVER_PARTS: Duration = Duration::from_millis(1);
/// How long it may take to find an interface.
const FOUND_WITHIN: Duration = Duration::from_millis(100);
/// How long the kernel has after a RELEASE. It leaves through a macvlan in a namespace of its own, and while that is removed,
/// everybody who changes or looks at a link waits.
const AFTER_RELEASE: Duration = Duration::from_millis(100);
/// The pause between two looks at what the daemon lists.
const LOOK: Duration = Duration::from_millis(2);

/// Measures these sections.
pub(crate) fn measure(sections: &[&str]) -> Result<Verdict, Box<dyn Error>> {
    let binaries = Binaries::build()?;
    let sandbox = Sandbox::enter()?;
    let mut verdict = Verdict::default();
    let lan = Lan::new(&sandbox)?;
    fs::create_dir_all(Dockerd::PLUGINS)?;
    let daemon = Contender::start_for_docker(&binaries, &lan.host, Dockerd::PLUGINS.as_ref())?;
    let docker = Played::start(&lan.host, EngineVersion::V29, "leasehold")?;
    let mut plan =
        NetworkPlan::new(Driver::Macvlan(Lan::IFNAME.to_owned())).with_subnet(Lan::SUBNET);
    // A RELEASE leaves for each, so that the next one gets nothing kept.
    plan.options["grace"] = "0".into();
    let place = &places(&lan, 1, 1)?[0].container;
    place.netns.set_up(&place.ifname)?;
    let client = BareClient::open(place)?;
    for section in sections {
        let _server = Kea::start(
            &lan,
            KeaConfig {
                pool: POOL,
                persist: false,
                ..KeaConfig::default()
            },
        )?;
        if *section == "endpoint" {
            driver::endpoint(&client, &docker, &mut verdict)?;
            continue;
        }
        let network = docker.network_create(&plan)?;
        match *section {
            "address" => address(
                &client,
                (&daemon, &binaries),
                &docker,
                &network,
                &mut verdict,
            )?,
            _ => interface((&daemon, &binaries), &docker, &network, &mut verdict)?,
        }
        docker.network_rm(network)?;
    }
    daemon.stop()?;
    Ok(verdict)
}

/// Asks for addresses in both ways in turn, and gives each back.
fn address(
    client: &BareClient,
    (daemon, binaries): (&Contender, &Binaries),
    docker: &Played,
    network: &PlayedNetwork,
    verdict: &mut Verdict,
) -> Result<(), Box<dyn Error>> {
    let (mut dora, mut commit, mut asked) =
        (Sample::default(), Sample::default(), Sample::default());
    let disk = Disk::new(binaries)?;
    for number in 0..ADDRESSES as u32 {
        commit.add(disk.commit(number.into())?);
        let lease = client.lease(number + 1)?;
        dora.add(lease.took);
        client.release(number + 1, &lease)?;

        let options =
            json!({ "com.docker.network.endpoint.macaddress": mac_text(mac(0x40_0000 + number)) });
        let request = json!({ "PoolID": network.pool_id, "Address": "", "Options": options });
        let began = Instant::now();
        let answer = docker.plugin.call("IpamDriver.RequestAddress", &request)?;
        asked.add(began.elapsed());
        let told = answer["Address"]
            .as_str()
            .ok_or("an answer without an address")?;
        let bare = told.split('/').next().unwrap_or_default();
        docker.plugin.call(
            "IpamDriver.ReleaseAddress",
            &json!({ "PoolID": network.pool_id, "Address": bare }),
        )?;
        while !is_empty(&daemon.list(binaries)?) {
            thread::sleep(LOOK);
        }
        thread::sleep(AFTER_RELEASE);
    }
    println!("\n{ADDRESSES} addresses, one after the other");
    for (what, sample) in [
        ("four messages alone", &dora),
        ("a commit alone", &commit),
        ("RequestAddress", &asked),
    ] {
        let [p50, p99] = [50, 99].map(|percent| milliseconds(sample.percentile(percent)));
        println!("  {what:40} p50 {p50:>10}, p99 {p99:>10}");
    }
    let over = asked
        .percentile(50)
        .saturating_sub(dora.percentile(50) + commit.percentile(50));
    verdict.promise(
        format!(
            "RequestAddress: p50 within {} of four messages and a commit",
            milliseconds(OVER_PARTS)
        ),
        over <= OVER_PARTS,
        milliseconds(over),
    );
    Ok(())
}

/// Runs containers one after the other, and waits each time until the daemon has found the interface.
fn interface(
    (daemon, binaries): (&Contender, &Binaries),
    docker: &Played,
    network: &PlayedNetwork,
    verdict: &mut Verdict,
) -> Result<(), Box<dyn Error>> {
    let mut found = Sample::default();
    for number in 0..CONTAINERS {
        let running = docker.run(network, &format!("web{number}"), RunPlan::default())?;
        let began = Instant::now();
        while !lives_inside(&daemon.list(binaries)?) {
            if began.elapsed() > DEADLINE {
                return Err("an interface was never found".into());
            }
            thread::sleep(LOOK);
        }
        found.add(began.elapsed());
        docker.stop(running)?;
    }
    let [p50, slowest] = [50, 100].map(|percent| found.percentile(percent));
    println!("\n{CONTAINERS} containers, one after the other");
    println!(
        "  {:40} p50 {:>10}, slowest {:>10}",
        "until its interface is found",
        milliseconds(p50),
        milliseconds(slowest)
    );
    verdict.promise(
        format!(
            "a container's interface is found within {}",
            milliseconds(FOUND_WITHIN)
        ),
        slowest <= FOUND_WITHIN,
        milliseconds(slowest),
    );
    Ok(())
}

fn rows(bindings: &Value) -> impl Iterator<Item = &Value> {
    bindings["bindings"]
        .as_array()
        .or(bindings.as_array())
        .into_iter()
        .flatten()
}

fn is_empty(bindings: &Value) -> bool {
    rows(bindings).next().is_none()
}

fn lives_inside(bindings: &Value) -> bool {
    rows(bindings)
        .any(|binding| binding["state"] == "BOUND" && binding["link"]["netns"].is_string())
}
