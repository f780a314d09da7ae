//! Engines find the plugin where `leasehold install` put it.

use std::path::Path;

use netns_fixtures::model::Kind;
use netns_fixtures::server::{Dnsmasq, DnsmasqConfig};
use netns_fixtures::{
    CallError, Capture, Containerd, DEADLINE, Engine, Incumbent, Lab, Lan, Need, Podman, binary,
    sandbox,
};
use serde_json::json;

fn finds_what_was_installed<E: Engine>() -> Result<(), CallError> {
    let needs = [
        E::NEEDS,
        &[Need::Program("dnsmasq"), Need::File(Incumbent::PLUGIN)],
    ]
    .concat();
    let sandbox = sandbox!(&needs);
    let mut lab = Lab::of_the_system(&sandbox)?;
    let _server = Dnsmasq::start(&lab.lan, DnsmasqConfig::default())?;
    let mut seen = Capture::start(&lab.lan.server, Lan::IFNAME)?;
    let mut network = lab.config.clone();
    network["ipam"] = json!({ "type": "dhcp" });
    let engine = E::start(&lab.lan.host, &network, Path::new(Incumbent::PLUGIN))?;
    // Where packages have it, beside the daemon.
    let program = binary("leasehold")?.to_string_lossy().into_owned();
    let said = lab.lan.host.run_command(&program, &["install"], "")?;
    assert!(
        said.contains("/usr/lib/cni/dhcp: installed") && said.contains("diverted"),
        "{said}"
    );
    lab.start_daemon()?;

    let printed = engine.run("c1", &["ip", "-4", "addr", "show", "dev", "eth0"])?;
    let address = seen.wait_for_dhcp(Kind::Ack, DEADLINE, |_| true)?.yiaddr;
    assert!(
        printed.contains(&format!("inet {address}/16 ")),
        "{printed}"
    );
    seen.wait_for_release(address, DEADLINE)?;
    lab.daemon().wait_until_empty()?;
    Ok(())
}

#[test]
fn containerd_finds_what_was_installed() -> Result<(), CallError> {
    finds_what_was_installed::<Containerd>()
}

#[test]
fn podman_finds_what_was_installed() -> Result<(), CallError> {
    finds_what_was_installed::<Podman>()
}
