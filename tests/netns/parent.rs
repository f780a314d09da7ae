//! The container's own interface is gone before its DEL, or takes nothing: the RELEASE goes out by the host's link.

use netns_fixtures::server::{Dnsmasq, DnsmasqConfig};
use netns_fixtures::{CallError, Capture, DEADLINE, Lab, Lan, Need, sandbox};

use crate::witness;

const NEEDS: &[Need] = &[Need::Program("dnsmasq")];

#[test]
fn a_dead_namespace_hands_its_lease_back_unasked() -> Result<(), CallError> {
    let Some(sandbox) = sandbox(NEEDS) else { return Ok(()) };
    let lab = Lab::new(&sandbox)?;
    let server = Dnsmasq::start(&lab.lan, DnsmasqConfig::default())?;
    let member = lab.attach("c1")?;
    drop(member);
    Ok(server.wait_until_free()?)
}

#[test]
fn a_lease_on_a_bridge_is_given_back_after_its_link_is_gone() -> Result<(), CallError> {
    let Some(sandbox) = sandbox(NEEDS) else { return Ok(()) };
    let mut lab = Lab::new(&sandbox)?;
    lab.config = Lan::bridge_config(&lab.daemon().socket());
    lab.lan.add_host_bridge()?;
    let server = Dnsmasq::start(&lab.lan, DnsmasqConfig::default())?;
    let mut seen = Capture::start(&lab.lan.server, Lan::IFNAME)?;
    let member = lab.add(lab.lan.bridged_container("c1")?)?;
    member.container.configure(&member.result)?;

    // The bridge plugin deletes the link before it calls the IPAM plugin.
    member.container.netns.delete_link("eth0")?;
    lab.detach(&member)?;
    witness::release(&mut seen, &member, DEADLINE)?;
    Ok(server.wait_until_free()?)
}

#[test]
fn a_container_that_lets_nothing_out_does_not_keep_its_lease() -> Result<(), CallError> {
    let Some(sandbox) = sandbox(&[Need::Program("dnsmasq"), Need::Program("nft")]) else { return Ok(()) };
    let lab = Lab::new(&sandbox)?;
    let server = Dnsmasq::start(&lab.lan, DnsmasqConfig::default())?;
    let mut seen = Capture::start(&lab.lan.server, Lan::IFNAME)?;
    let member = lab.attach("c1")?;
    let chain = "chain egress { type filter hook egress device \"eth0\" priority 0; policy drop; }";
    member.container.netns.run_command("nft", &["-f", "-"], &format!("table netdev wall {{\n{chain}\n}}\n"))?;

    lab.detach(&member)?;
    witness::release(&mut seen, &member, DEADLINE)?;
    Ok(server.wait_until_free()?)
}
