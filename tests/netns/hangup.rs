//! A caller's ADD ends when the caller hangs up.

use netns_fixtures::server::{Dnsmasq, DnsmasqConfig};
use netns_fixtures::{CallError, Capture, DEADLINE, Lab, Lan, Need, sandbox};
use serde_json::Value;

#[test]
fn a_shim_killed_after_the_request_gives_the_lease_back() -> Result<(), CallError> {
    let lab = Lab::new(&sandbox!(&[Need::Program("dnsmasq"), Need::Program("nft")]))?;
    let server = Dnsmasq::start(&lab.lan, DnsmasqConfig::default())?;
    server.lose_acks()?;
    let mut seen = Capture::start(&lab.lan.server, Lan::IFNAME)?;
    let container = lab.lan.container("c1")?;
    let call = lab.shim.start("ADD", &container, &lab.config)?;
    let given =
        |leases: &[netns_fixtures::server::Lease]| leases.first().map(|lease| lease.address);
    let address = server.wait_for("a lease that the client does not hear of", DEADLINE, given)?;
    call.kill()?;

    seen.wait_for_release(address, DEADLINE)?;
    server.wait_until_free()?;
    assert_eq!(lab.daemon().list()?, Vec::<Value>::new());
    Ok(())
}
