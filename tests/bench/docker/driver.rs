//! What the network driver costs: an endpoint beyond a bare exchange with the same server.

use std::error::Error;
use std::thread;
use std::time::{Duration, Instant};

use netns_fixtures::engine::played::Played;
use netns_fixtures::{BareClient, Lan, mac};
use serde_json::json;

use crate::sample::Sample;
use crate::verdict::{Verdict, milliseconds};

/// Endpoints that are made, one after the other.
const ENDPOINTS: usize = 100;
/// How much longer an endpoint, with its link and its join, may take than the four messages that its address takes.
const OVER_DORA: Duration = Duration::from_millis(5);
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
