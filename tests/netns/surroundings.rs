//! What else is in a container's namespace must not matter: another interface's default route, a firewall.

use std::time::Duration;

use netns_fixtures::server::{Dnsmasq, Kea};
use netns_fixtures::{CallError, Capture, Container, DEADLINE, Error, Lab, Lan, Member, Need, Sandbox, sandbox};

use crate::{dnsmasq, kea, witness};

const DNSMASQ: Need = Need::Program("dnsmasq");
const KEA: Need = Need::Program("kea-dhcp4");
const NFT: Need = Need::Program("nft");

#[test]
fn dnsmasq_renews_beside_another_default_route() -> Result<(), CallError> {
    let Some(sandbox) = sandbox(&[DNSMASQ]) else { return Ok(()) };
    with_dnsmasq(&sandbox, Container::add_cluster_network)
}

#[test]
fn dnsmasq_renews_behind_a_firewall() -> Result<(), CallError> {
    let Some(sandbox) = sandbox(&[DNSMASQ, NFT]) else { return Ok(()) };
    with_dnsmasq(&sandbox, Container::drop_everything)
}

#[test]
fn kea_renews_beside_another_default_route() -> Result<(), CallError> {
    let Some(sandbox) = sandbox(&[KEA]) else { return Ok(()) };
    with_kea(&sandbox, Container::add_cluster_network)
}

#[test]
fn kea_renews_behind_a_firewall() -> Result<(), CallError> {
    let Some(sandbox) = sandbox(&[KEA, NFT]) else { return Ok(()) };
    with_kea(&sandbox, Container::drop_everything)
}

fn with_dnsmasq(sandbox: &Sandbox, surround: fn(&Container) -> Result<(), Error>) -> Result<(), CallError> {
    let lab = Lab::new(sandbox)?;
    let server = Dnsmasq::start(&lab.lan, dnsmasq::short_leases())?;
    let (member, mut seen) = attach(&lab, surround)?;
    let expires = server.lease_of(&member.mac())?.expect("dnsmasq has a lease").expires;
    witness::renewal(&mut seen, &member, DEADLINE)?;
    server.wait_for("renewal in dnsmasq's lease file", DEADLINE, |leases| {
        leases.iter().any(|lease| lease.address == member.address && lease.expires > expires).then_some(())
    })?;
    lab.check(&member)?;
    lab.detach(&member)?;
    witness::release(&mut seen, &member, DEADLINE)?;
    Ok(server.wait_until_free()?)
}

fn with_kea(sandbox: &Sandbox, surround: fn(&Container) -> Result<(), Error>) -> Result<(), CallError> {
    let lab = Lab::new(sandbox)?;
    let server = Kea::start(&lab.lan, kea::short_leases())?;
    let (member, mut seen) = attach(&lab, surround)?;
    witness::renewal(&mut seen, &member, DEADLINE)?;
    let renewed = |lease: &&netns_fixtures::server::KeaLease| lease.address == member.address;
    server.wait_for("renewal in Kea's lease file", DEADLINE, |history| {
        (history.iter().filter(renewed).count() > 1).then_some(())
    })?;
    lab.check(&member)?;
    lab.detach(&member)?;
    witness::release(&mut seen, &member, DEADLINE)?;
    Ok(server.wait_until_free()?)
}

/// Surrounds a container's interface, then attaches it. The ADD takes no longer for it.
fn attach(lab: &Lab, surround: fn(&Container) -> Result<(), Error>) -> Result<(Member, Capture), CallError> {
    let seen = Capture::start(&lab.lan.server, Lan::IFNAME)?;
    let container = lab.lan.container("c1")?;
    surround(&container)?;
    let began = std::time::Instant::now();
    let member = lab.add(container)?;
    assert!(began.elapsed() < Duration::from_secs(10), "ADD took {:?}", began.elapsed());
    member.container.configure(&member.result)?;
    Ok((member, seen))
}
