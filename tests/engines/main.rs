//! Real engines: they call the shim as nobody imagined.

use netns_fixtures::server::{Dnsmasq, DnsmasqConfig};
use netns_fixtures::{CallError, Capture, Containerd, DEADLINE, Lab, Lan, Need, sandbox};
use serde_json::Value;

#[test]
fn ctr_runs_a_container_with_an_address_from_dnsmasq() -> Result<(), CallError> {
    let needs = [Containerd::NEEDS, &[Need::Program("dnsmasq")]].concat();
    let Some(sandbox) = sandbox(&needs) else { return Ok(()) };
    let lab = Lab::new(&sandbox)?;
    let server = Dnsmasq::start(&lab.lan, DnsmasqConfig::default())?;
    let mut seen = Capture::start(&lab.lan.server, Lan::IFNAME)?;
    let engine = Containerd::start(&lab.lan.host, &lab.config)?;

    let printed = engine.run("c1", &["ip", "-4", "addr", "show", "dev", "eth0"])?;
    let ack = seen.wait_for_dhcp(netns_fixtures::model::Kind::Ack, DEADLINE, |_| true)?;
    assert!(printed.contains(&format!("inet {}/16 ", ack.yiaddr)), "{printed}");

    // The container has ended, and its namespace with it.
    seen.wait_for_release(ack.yiaddr, DEADLINE)?;
    server.wait_until_free()?;
    assert_eq!(lab.daemon().list()?, Vec::<Value>::new());
    Ok(())
}
