//! What the network driver costs: an endpoint beyond a bare exchange with the same server, and many at once on a slow server.

use std::error::Error;
use std::thread;
use std::time::{Duration, Instant};

use netns_fixtures::engine::played::Played;
use netns_fixtures::model::Config;
use netns_fixtures::server::ModelServer;
use netns_fixtures::{BareClient, Lan, mac};
use serde_json::json;

use crate::sample::Sample;
use crate::verdict::{Verdict, milliseconds};

/// Endpoints that are made, one after the other.
const ENDPOINTS: usize = 100;
/// How much longer an endpoint, with its link and its join, may take than the four messages that its address takes.
const OVER_DORA: Duration = Duration::from_millis(5);
/// Containers that start at once.
const CROWD: usize = 50;
/// How long a slow server works on an answer.
const ANSWER: Duration = Duration::from_millis(20);
/// How soon all of them are served.
const SERVED_WITHIN: Duration = Duration::from_secs(60);
/// How long the kernel has after an endpoint, when its link is removed and the RELEASE leaves.
const PAUSE: Duration = Duration::from_millis(100);

/// Makes and joins endpoints one after the other, each beside an exchange of only the four messages.
pub(super) fn endpoint(
    client: &BareClient,
    docker: &Played,
    verdict: &mut Verdict,
) -> Result<(), Box<dyn Error>> {
    let network = docker.wire(json!({ "parent": Lan::IFNAME }), None)?;
    let (mut dora, mut made) = (Sample::default(), Sample::default());
    for number in 0..ENDPOINTS as u32 {
        let lease = client.lease(number + 1)?;
        dora.add(lease.took);
        client.release(number + 1, &lease)?;

        let mut endpoint = docker.prepare_wired(
            &network,
            &format!("web{number}"),
            Some(mac(0x50_0000 + number)),
        )?;
        docker.request_wired(&mut endpoint)?;
        let began = Instant::now();
        docker.create_endpoint(&mut endpoint)?;
        docker.ask_join(&endpoint)?;
        made.add(began.elapsed());
        docker.delete_endpoint(&endpoint)?;
        docker.release_wired(&endpoint)?;
        thread::sleep(PAUSE);
    }
    println!("\n{ENDPOINTS} endpoints of the network driver, one after the other");
    for (what, sample) in [
        ("four messages alone", &dora),
        ("CreateEndpoint and Join", &made),
    ] {
        let [p50, p99] = [50, 99].map(|percent| milliseconds(sample.percentile(percent)));
        println!("  {what:40} p50 {p50:>10}, p99 {p99:>10}");
    }
    let over = made.percentile(50).saturating_sub(dora.percentile(50));
    verdict.promise(
        format!(
            "CreateEndpoint and Join: p50 within {} of four messages alone",
            milliseconds(OVER_DORA)
        ),
        over <= OVER_DORA,
        milliseconds(over),
    );
    docker.unwire(&network)?;
    Ok(())
}

/// Starts many containers at once on a server that answers slowly, one request after the other.
pub(super) fn crowd(
    lan: &Lan,
    docker: &Played,
    verdict: &mut Verdict,
) -> Result<(), Box<dyn Error>> {
    let server = ModelServer::start(
        lan,
        Config {
            answer_time: ANSWER,
            ..Config::new(Lan::SUBNET)
        },
    )?;
    let network = docker.wire(json!({ "parent": Lan::IFNAME }), None)?;
    let began = Instant::now();
    let ran: Vec<_> = thread::scope(|scope| {
        let run = |number: usize| {
            let network = &network;
            scope.spawn(move || docker.run_wired(network, &format!("crowd{number}"), None))
        };
        let running: Vec<_> = (0..CROWD).map(run).collect();
        running
            .into_iter()
            .map(|thread| thread.join().expect("it does not panic"))
            .collect()
    });
    let took = began.elapsed();
    let failed = ran.iter().filter(|ran| ran.is_err()).count();
    println!(
        "\n{CROWD} containers at once, a server that takes {} an answer",
        milliseconds(ANSWER)
    );
    println!(
        "  {:40} {:>12}",
        "until the last one runs",
        milliseconds(took)
    );
    println!(
        "  {:40} {:>12}",
        "what two answers each take it",
        milliseconds(ANSWER * 2 * CROWD as u32)
    );
    verdict.promise(
        format!(
            "{CROWD} containers at once on a slow server: all run within {}",
            milliseconds(SERVED_WITHIN)
        ),
        failed == 0 && server.leases().len() == CROWD && took <= SERVED_WITHIN,
        format!(
            "{} of them, {failed} failed, after {}",
            server.leases().len(),
            milliseconds(took)
        ),
    );
    for endpoint in ran.into_iter().flatten() {
        docker.stop_wired(&endpoint)?;
    }
    docker.unwire(&network)?;
    Ok(())
}
