//! dnsmasq, the server of most small networks: it checks where a RELEASE comes from.

use std::time::Duration;

use netns_fixtures::model::Kind;
use netns_fixtures::server::{Dnsmasq, DnsmasqConfig, OTHER_POOL, POOL};
use netns_fixtures::{CallError, Capture, DEADLINE, Lab, Lan, Need, sandbox};
use serde_json::Value;

use crate::witness;

const NEEDS: &[Need] = &[Need::Program("dnsmasq")];

/// T1 and T2 of a lease of two minutes, dnsmasq's shortest.
const T1: Duration = Duration::from_secs(5);
const T2: Duration = Duration::from_secs(9);

pub(crate) fn short_leases() -> DnsmasqConfig {
    DnsmasqConfig { lease_time: Duration::from_secs(120), timers: Some((T1, T2)), ..DnsmasqConfig::default() }
}

#[test]
fn add_gives_what_dnsmasq_granted() -> Result<(), CallError> {
    let Some(sandbox) = sandbox(NEEDS) else { return Ok(()) };
    let lab = Lab::new(&sandbox)?;
    let more = ["--dhcp-option=option:dns-server,10.7.0.53", "--domain=lan.example"].map(str::to_owned).to_vec();
    let server = Dnsmasq::start(&lab.lan, DnsmasqConfig { more, ..short_leases() })?;
    let member = lab.attach("c1")?;

    let lease = server.lease_of(&member.mac())?.expect("dnsmasq has a lease");
    assert!(POOL.contains(&lease.address));
    assert_eq!(lease.address, member.address);
    assert_eq!(lease.client_id, b"\0c1/lan/eth0".map(|byte| format!("{byte:02x}")).join(":"));
    assert_eq!(member.result["ips"][0]["address"], format!("{}/16", member.address));
    assert_eq!(member.result["ips"][0]["gateway"], "10.7.0.1");
    assert_eq!(member.result["dns"]["nameservers"][0], "10.7.0.53");
    assert_eq!(member.result["dns"]["domain"], "lan.example");
    lab.check(&member)
}

#[test]
fn a_lease_is_renewed_at_t1_by_unicast_from_its_address() -> Result<(), CallError> {
    let Some(sandbox) = sandbox(NEEDS) else { return Ok(()) };
    let lab = Lab::new(&sandbox)?;
    let server = Dnsmasq::start(&lab.lan, short_leases())?;
    let mut seen = Capture::start(&lab.lan.server, Lan::IFNAME)?;
    let member = lab.attach("c1")?;

    let mut expires = server.lease_of(&member.mac())?.expect("dnsmasq has a lease").expires;
    for _ in 1..=2 {
        witness::renewal(&mut seen, &member, T2)?;
        let renewed = server.wait_for("renewal in dnsmasq's lease file", DEADLINE, |leases| {
            leases.iter().map(|lease| lease.expires).find(|later| *later > expires)
        })?;
        // dnsmasq counts in whole seconds.
        let between = T1.as_secs() - 1..=T1.as_secs() + 2;
        assert!(between.contains(&(renewed - expires)), "renewed {} s after the lease began", renewed - expires);
        expires = renewed;
    }
    assert_eq!(server.leases()?.len(), 1);
    lab.check(&member)
}

#[test]
fn a_lease_is_rebound_at_t2_with_the_server_that_took_over() -> Result<(), CallError> {
    let Some(sandbox) = sandbox(NEEDS) else { return Ok(()) };
    let lab = Lab::new(&sandbox)?;
    let mut first = Dnsmasq::start(&lab.lan, short_leases())?;
    let mut seen = Capture::start(&lab.lan.host, Lan::IFNAME)?;
    let member = lab.attach("c1")?;
    let expires = first.lease_of(&member.mac())?.expect("dnsmasq has a lease").expires;
    let second_address = [10, 7, 0, 2].into();
    let second_machine = lab.lan.machine("second", second_address)?;
    first.stop()?;
    lab.lan.unplug(&lab.lan.server)?;
    let second = first.take_over(&second_machine)?;

    witness::rebinding(&mut seen, &member, T2 + DEADLINE)?;
    second.wait_for("rebinding in the second server's lease file", DEADLINE, |leases| {
        leases.iter().any(|lease| lease.address == member.address && lease.expires > expires).then_some(())
    })?;
    lab.check(&member)?;
    // From now on it is the second server's client.
    let renewal = seen.wait_for_dhcp(Kind::Request, DEADLINE, |m| m.is_unicast())?;
    assert_eq!((renewal.source, renewal.destination), (member.address, second_address));
    lab.detach(&member)?;
    Ok(second.wait_until_free()?)
}

#[test]
fn a_nak_sends_the_client_back_to_init() -> Result<(), CallError> {
    let Some(sandbox) = sandbox(NEEDS) else { return Ok(()) };
    let lab = Lab::new(&sandbox)?;
    let mut server = Dnsmasq::start(&lab.lan, short_leases())?;
    let mut seen = Capture::start(&lab.lan.server, Lan::IFNAME)?;
    let member = lab.attach("c1")?;
    server.stop()?;
    server.forget_leases()?;
    server.restart(Some(DnsmasqConfig { pool: OTHER_POOL, ..short_leases() }))?;

    let next = witness::new_lease_after_nak(&mut seen, &member, T2 + DEADLINE)?;
    assert!(OTHER_POOL.contains(&next), "{next}");
    let error = lab.check(&member).expect_err("the container has an address that is not its own").cni();
    assert!(error.msg.contains(&member.address.to_string()), "{error}");
    lab.detach(&member)?;
    Ok(server.wait_until_free()?)
}

#[test]
fn del_gives_the_address_back() -> Result<(), CallError> {
    let Some(sandbox) = sandbox(NEEDS) else { return Ok(()) };
    let lab = Lab::new(&sandbox)?;
    let server = Dnsmasq::start(&lab.lan, short_leases())?;
    let mut seen = Capture::start(&lab.lan.server, Lan::IFNAME)?;
    let member = lab.attach("c1")?;

    lab.detach(&member)?;
    witness::release(&mut seen, &member, DEADLINE)?;
    server.wait_until_free()?;
    lab.detach(&member)?;
    assert_eq!(lab.daemon().list()?, Vec::<Value>::new());
    Ok(())
}
