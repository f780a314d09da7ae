//! Kea: leases of seconds, and a lease file that remembers every change.

use std::time::Duration;

use netns_fixtures::model::Kind;
use netns_fixtures::server::{Kea, KeaConfig, POOL};
use netns_fixtures::{CallError, Capture, DEADLINE, Lab, Lan, Need, sandbox};

use serde_json::{Value, json};

use crate::witness;

const NEEDS: &[Need] = &[Need::Program("kea-dhcp4")];

/// T1 and T2 of a lease of 16 seconds.
const T1: Duration = Duration::from_secs(5);
const T2: Duration = Duration::from_secs(9);

pub(crate) fn short_leases() -> KeaConfig {
    KeaConfig { lease_time: Duration::from_secs(16), timers: Some((T1, T2)), ..KeaConfig::default() }
}

#[test]
fn add_gives_what_kea_granted() -> Result<(), CallError> {
    let Some(sandbox) = sandbox(NEEDS) else { return Ok(()) };
    let lab = Lab::new(&sandbox)?;
    let mut config = short_leases();
    config.options.extend([
        json!({ "name": "domain-name-servers", "data": "10.7.0.53, 10.7.0.54" }),
        json!({ "name": "domain-name", "data": "lan.example" }),
        json!({ "name": "interface-mtu", "data": "1400" }),
        // 0.0.0.0/0 by 10.7.0.1, 192.0.2.0/24 by 10.7.0.9
        json!({ "code": 121, "space": "dhcp4", "csv-format": false, "data": "000A07000118C000020A070009" }),
    ]);
    let server = Kea::start(&lab.lan, config)?;
    let member = lab.attach("c1")?;

    let [lease] = &server.leases()?[..] else { panic!("one lease: {:?}", server.leases()) };
    assert!(POOL.contains(&lease.address));
    assert_eq!((lease.address, &lease.mac), (member.address, &member.mac()));
    let client_id: String = b"\0c1/lan/eth0".map(|byte| format!("{byte:02x}")).join(":");
    assert_eq!(lease.client_id, client_id, "the incumbent's client identifier, so that leases outlive the change");
    assert_eq!(
        member.result,
        json!({
            "cniVersion": "1.0.0",
            "ips": [{ "address": format!("{}/16", member.address), "gateway": "10.7.0.1" }],
            "routes": [{ "dst": "0.0.0.0/0", "gw": "10.7.0.1" }, { "dst": "192.0.2.0/24", "gw": "10.7.0.9" }],
            "dns": { "nameservers": ["10.7.0.53", "10.7.0.54"], "domain": "lan.example" },
        })
    );
    let mtu = member.container.netns.run_command("cat", &["/proc/sys/net/ipv6/conf/eth0/mtu"], "")?;
    assert_eq!(mtu.trim(), "1400");
    lab.check(&member)
}

#[test]
fn a_lease_is_renewed_at_t1_by_unicast_from_its_address() -> Result<(), CallError> {
    let Some(sandbox) = sandbox(NEEDS) else { return Ok(()) };
    let lab = Lab::new(&sandbox)?;
    let server = Kea::start(&lab.lan, short_leases())?;
    let mut seen = Capture::start(&lab.lan.server, Lan::IFNAME)?;
    let member = lab.attach("c1")?;

    for round in 1..=2 {
        witness::renewal(&mut seen, &member, T2)?;
        let expiries = |history: &[_]| (history.len() > round).then(|| [history[round - 1], history[round]]);
        let [before, after] = server.wait_for("renewal in Kea's lease file", DEADLINE, |history| {
            expiries(&history.iter().map(|lease| lease.expires).collect::<Vec<_>>())
        })?;
        // Kea counts in whole seconds.
        let between = T1.as_secs() - 1..=T1.as_secs() + 2;
        assert!(between.contains(&(after - before)), "renewed {} s after the lease began", after - before);
    }
    assert!(server.history()?.iter().all(|lease| lease.address == member.address && lease.is_held()));
    lab.check(&member)
}

#[test]
fn a_lease_is_rebound_at_t2_with_the_server_that_took_over() -> Result<(), CallError> {
    let Some(sandbox) = sandbox(NEEDS) else { return Ok(()) };
    let lab = Lab::new(&sandbox)?;
    let mut first = Kea::start(&lab.lan, short_leases())?;
    let mut seen = Capture::start(&lab.lan.host, Lan::IFNAME)?;
    let member = lab.attach("c1")?;
    let second_address = [10, 7, 0, 2].into();
    let second_machine = lab.lan.machine("second", second_address)?;
    first.stop()?;
    lab.lan.unplug(&lab.lan.server)?;
    let second = first.take_over(&second_machine)?;

    witness::rebinding(&mut seen, &member, T2 + DEADLINE)?;
    second.wait_for("rebinding in the second server's lease file", DEADLINE, |history| {
        (history.len() > 1 && history.iter().all(|lease| lease.address == member.address)).then_some(())
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
    let mut server = Kea::start(&lab.lan, short_leases())?;
    let mut seen = Capture::start(&lab.lan.server, Lan::IFNAME)?;
    let member = lab.attach("c1")?;
    // The administrator keeps the address for another machine from now on.
    let reservations = vec![([2, 0, 0, 0, 0, 1], member.address)];
    server.restart(Some(KeaConfig { reservations, ..short_leases() }))?;

    let next = witness::new_lease_after_nak(&mut seen, &member, T2 + DEADLINE)?;
    assert!(POOL.contains(&next) && next != member.address, "{next}");
    let error = lab.check(&member).expect_err("the container has an address that is not its own").cni();
    assert!(error.msg.contains(&member.address.to_string()), "{error}");
    lab.detach(&member)?;
    Ok(server.wait_until_free()?)
}

#[test]
fn del_gives_the_address_back() -> Result<(), CallError> {
    let Some(sandbox) = sandbox(NEEDS) else { return Ok(()) };
    let lab = Lab::new(&sandbox)?;
    let server = Kea::start(&lab.lan, short_leases())?;
    let mut seen = Capture::start(&lab.lan.server, Lan::IFNAME)?;
    let member = lab.attach("c1")?;

    lab.detach(&member)?;
    witness::release(&mut seen, &member, DEADLINE)?;
    server.wait_until_free()?;
    lab.detach(&member)?;
    assert_eq!(lab.daemon().list()?, Vec::<Value>::new());
    Ok(())
}
