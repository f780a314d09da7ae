//! Identities that return with another container: their address is kept for them, and from others.

use netns_fixtures::model::Kind;
use netns_fixtures::server::{Dnsmasq, Grants, Kea, KeaConfig};
use netns_fixtures::{CallError, Capture, Lab, Lan, Need, sandbox};

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
    let mut lab = Lab::new(&sandbox!(&[Need::Program("dnsmasq")]))?;
    let _server = Dnsmasq::start(&lab.lan, Grants::default())?;
    keeps_its_address(&mut lab)
}

#[test]
fn kea_gives_a_returning_client_its_old_address() -> Result<(), CallError> {
    let mut lab = Lab::new(&sandbox!(&[Need::Program("kea-dhcp4")]))?;
    let _server = Kea::start(&lab.lan, KeaConfig::default())?;
    keeps_its_address(&mut lab)
}

#[test]
fn kea_gives_a_restarted_container_its_old_address() -> Result<(), CallError> {
    let mut lab = Lab::new(&sandbox!(&[Need::Program("kea-dhcp4")]))?;
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
fn a_late_del_frees_no_address_used_on_another_host() -> Result<(), CallError> {
    let mut lab = Lab::new(&sandbox!(&[Need::Program("dnsmasq"), Need::Program("ip")]))?;
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
        let found = (releases, server.lease_of(&mac)?.map(|lease| lease.address));
        assert_eq!(found, (0, Some(address)), "{seen}");
    }
    Ok(())
}
