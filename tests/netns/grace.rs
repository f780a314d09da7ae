//! Identities that return with another container: their address is kept for them, and from others.

use std::time::Duration;

use netns_fixtures::model::Kind;
use netns_fixtures::server::{Dnsmasq, Grants, Kea, KeaConfig, Program, Server, UdhcpdProgram};
use netns_fixtures::{CallError, Capture, Lab, Lan, Need, sandbox};
use serde_json::json;

/// Makes further ADDs those of a client whose lease is kept for `grace` seconds.
fn come_as(lab: &mut Lab, client: &str, grace: u32) {
    lab.config["ipam"]["clientId"] = format!("text:{client}").into();
    lab.config["ipam"]["grace"] = grace.into();
}

/// Checks that a client's containers have one address, whether the next one comes early or late.
fn keeps_its_address(lab: &mut Lab) -> Result<(), CallError> {
    come_as(lab, "web-0", 600);
    let first = lab.attach("c1")?;
    let address = first.address;
    lab.detach(&first)?;
    assert_eq!(lab.daemon().list()?[0]["state"], "KEPT");
    drop(first);
    come_as(lab, "web-0", 1);
    let soon = lab.attach("c2")?;
    assert_eq!(soon.address, address, "within its grace");
    lab.detach(&soon)?;
    drop(soon);
    lab.daemon().wait_until_empty()?;
    come_as(lab, "web-1", 1);
    let other = lab.attach("c3")?;
    assert_ne!(
        other.address, address,
        "what a client gets that asks for nothing"
    );
    come_as(lab, "web-0", 0);
    let late = lab.attach("c4")?;
    assert_eq!(late.address, address, "after its grace");
    lab.detach(&late)?;
    lab.detach(&other)
}

#[test]
fn dnsmasq_gives_a_returning_client_its_old_address() -> Result<(), CallError> {
    let sandbox = sandbox!(&[Need::Program("dnsmasq")]);
    let mut lab = Lab::new(&sandbox)?;
    let _server = Dnsmasq::start(&lab.lan, Grants::default())?;
    keeps_its_address(&mut lab)
}

#[test]
fn kea_gives_a_returning_client_its_old_address() -> Result<(), CallError> {
    let sandbox = sandbox!(&[Need::Program("kea-dhcp4")]);
    let mut lab = Lab::new(&sandbox)?;
    let _server = Kea::start(&lab.lan, KeaConfig::default())?;
    keeps_its_address(&mut lab)
}

#[test]
fn kea_gives_a_restarted_container_its_old_address() -> Result<(), CallError> {
    let sandbox = sandbox!(&[Need::Program("kea-dhcp4")]);
    let mut lab = Lab::new(&sandbox)?;
    let _server = Kea::start(&lab.lan, KeaConfig::default())?;
    // Under an identifier that Kea accepts, and under one that would be too long for it.
    for network in ["lan", &"n".repeat(200)] {
        lab.config["name"] = network.into();
        let first = lab.attach("c1")?;
        let address = first.address;
        lab.detach(&first)?;
        drop(first);
        let again = lab.attach("c1")?;
        assert_eq!(again.address, address, "{network}");
        lab.detach(&again)?;
    }
    Ok(())
}

#[test]
fn a_successor_gets_the_kept_address_that_it_insists_on() -> Result<(), CallError> {
    let sandbox = sandbox!(UdhcpdProgram::NEEDS);
    let mut lab = Lab::new(&sandbox)?;
    let offer_time = Duration::from_secs(60);
    let _server = Server::<UdhcpdProgram>::start(
        &lab.lan,
        Grants {
            offer_time,
            ..Grants::default()
        },
    )?;
    for (before, after) in [("web-0", "web-0"), ("web-1", "web-2")] {
        lab.config["runtimeConfig"] = json!({});
        come_as(&mut lab, before, 600);
        let first = lab.attach(before)?;
        let address = first.address;
        lab.detach(&first)?;
        drop(first);
        lab.config["runtimeConfig"] = json!({ "ips": [format!("{address}/16")] });
        come_as(&mut lab, after, 600);
        let next = lab.attach(&format!("{after}-next"))?;
        assert_eq!(next.address, address, "{before}, {after}");
        lab.detach(&next)?;
    }
    Ok(())
}

#[test]
fn a_late_del_frees_no_address_used_on_another_host() -> Result<(), CallError> {
    let sandbox = sandbox!(&[Need::Program("dnsmasq"), Need::Program("ip")]);
    let mut lab = Lab::new(&sandbox)?;
    let server = Dnsmasq::start(&lab.lan, Grants::default())?;
    for (client, same_mac) in [("web-0", false), ("web-1", true)] {
        come_as(&mut lab, client, 3);
        let mut seen = Capture::start(&lab.lan.server, Lan::IFNAME)?;
        let cut_off = lab.attach(&format!("{client}-old"))?;
        let (address, mac) = (cut_off.address, cut_off.mac());
        lab.detach(&cut_off)?;
        drop(cut_off);
        let other_host = lab.lan.machine(&format!("{client}-new"), address)?;
        if same_mac {
            other_host.run_command("ip", &["link", "set", Lan::IFNAME, "address", &mac], "")?;
        }
        lab.daemon()
            .wait_for_event(&format!("{client}-old/eth0 conflict"))?;
        lab.daemon().wait_until_empty()?;
        let releases = seen
            .dhcp()?
            .into_iter()
            .filter(|message| message.kind == Kind::Release)
            .count();
        assert_eq!(
            (releases, server.lease_of(&mac)?.map(|lease| lease.address)),
            (0, Some(address)),
            "{seen}"
        );
    }
    Ok(())
}

#[test]
fn a_lease_goes_back_when_nobody_returned() -> Result<(), CallError> {
    let sandbox = sandbox!(&[Need::Program("dnsmasq")]);
    let mut lab = Lab::new(&sandbox)?;
    let server = Dnsmasq::start(&lab.lan, Grants::default())?;
    come_as(&mut lab, "web-0", 1);
    let mut seen = Capture::start(&lab.lan.server, Lan::IFNAME)?;
    let member = lab.attach("c1")?;
    let address = member.address;
    lab.detach(&member)?;
    drop(member);
    seen.wait_for_release(address, Duration::from_secs(30))?;
    Ok(server.wait_until_free()?)
}
