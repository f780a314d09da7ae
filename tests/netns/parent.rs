//! The container's own interface is gone before its DEL, or accepts nothing: the RELEASE leaves over the host's link.

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use netns_fixtures::model::{Config, Kind};
use netns_fixtures::server::{Dnsmasq, DnsmasqConfig, ModelServer};
use netns_fixtures::{
    CallError, Capture, Container, DEADLINE, Dhcp, Error, Lab, Lan, Need, Netns, Sandbox, sandbox,
};

use crate::witness;

const NEEDS: &[Need] = &[Need::Program("dnsmasq")];
const MACVLAN: &str = "/usr/lib/cni/macvlan";

#[test]
fn a_macvlan_on_the_default_link_hands_its_lease_back() -> Result<(), CallError> {
    let mut lab = Lab::new(&sandbox!(NEEDS))?;
    // The macvlan plugin takes the default route's link. The VLAN is not its key.
    lab.config["type"] = "macvlan".into();
    lab.config["vlan"] = 200.into();
    lab.config.as_object_mut().map(|keys| keys.remove("master"));
    let server = Dnsmasq::start(&lab.lan, DnsmasqConfig::default())?;
    let member = lab.attach("c1")?;
    drop(member);
    Ok(server.wait_until_free()?)
}

#[test]
fn a_lease_on_a_bridge_is_released_after_its_link_is_gone() -> Result<(), CallError> {
    let mut lab = Lab::new(&sandbox!(NEEDS))?;
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

/// Makes a LAN whose server is in a container on the host's own link, like a Pi-hole.
fn beside_server(sandbox: &Sandbox) -> Result<(Lab, Netns, Dnsmasq), Error> {
    let lab = Lab::new(sandbox)?;
    let machine = lab.lan.sibling("server-c", Ipv4Addr::new(10, 7, 0, 3))?;
    let server = Dnsmasq::start_in(&machine, DnsmasqConfig::default())?;
    Ok((lab, machine, server))
}

#[test]
fn a_server_in_a_macvlan_hears_of_a_dead_namespace() -> Result<(), CallError> {
    let (lab, _, server) = beside_server(&sandbox!(NEEDS))?;
    drop(lab.attach("c1")?);
    Ok(server.wait_until_free()?)
}

/// The server answers a container's own ARP request too; that does not show that it is on the wire.
#[test]
fn a_server_in_a_sibling_hears_each_first_message() -> Result<(), CallError> {
    let sandbox = sandbox!(&[NEEDS, &[Need::Program("busybox")]].concat());
    let (lab, machine, _server) = beside_server(&sandbox)?;
    let mut wire = Capture::start(&lab.lan.server, Lan::IFNAME)?;
    let mut beside = Capture::start(&machine, Lan::IFNAME)?;
    let first = lab.attach("c1")?;
    let ping = ["ping", "-c", "1", "-W", "10", "10.7.0.3"];
    first.container.netns.run_command("busybox", &ping, "")?;
    let _others = [lab.attach("c2")?, lab.attach("c3")?];
    let asked = |seen: &mut Capture| {
        let asks = |m: &Dhcp| matches!(m.kind, Kind::Discover | Kind::Request);
        let asked = seen.dhcp()?.into_iter().filter(asks);
        Ok::<_, Error>(asked.map(|m| (m.chaddr, m.kind)).collect::<Vec<_>>())
    };
    let (sent, heard) = (asked(&mut wire)?, asked(&mut beside)?);
    assert!(sent.len() >= 6 && heard == sent, "{sent:?}, {heard:?}");
    Ok(())
}

/// Well before the end of the 5.5 s for which the daemon listens for conflicts after an ADD.
const SOON: Duration = Duration::from_secs(4);

#[test]
fn conflict_detection_keeps_no_namespace_alive() -> Result<(), CallError> {
    let lab = Lab::new(&sandbox!(NEEDS))?;
    let server = Dnsmasq::start(&lab.lan, DnsmasqConfig::default())?;
    let member = lab.attach("c1")?;
    let gone = Instant::now();
    drop(member);
    server.wait_until_free()?;
    assert!(gone.elapsed() < SOON, "{:?}", gone.elapsed());
    Ok(())
}

#[test]
fn a_successor_gets_the_address_of_a_dying_interface() -> Result<(), CallError> {
    let mut lab = Lab::new(&sandbox!(NEEDS))?;
    lab.config["ipam"]["release"] = false.into();
    lab.config["ipam"]["clientId"] = "text:same".into();
    let _server = Dnsmasq::start(&lab.lan, DnsmasqConfig::default())?;
    let first = lab.attach("c0")?;
    let address = first.address;
    lab.detach(&first)?;
    drop(first);
    for round in 1..10 {
        // The previous one usually still answers ARP.
        let member = lab.attach(&format!("c{round}"))?;
        assert_eq!(member.address, address, "round {round}");
        lab.detach(&member)?;
    }
    Ok(())
}

#[test]
fn a_lease_goes_back_though_its_container_blocks_frames() -> Result<(), CallError> {
    let lab = Lab::new(&sandbox!(&[Need::Program("dnsmasq"), Need::Program("nft")]))?;
    let server = Dnsmasq::start(&lab.lan, DnsmasqConfig::default())?;
    let mut seen = Capture::start(&lab.lan.server, Lan::IFNAME)?;
    let member = lab.attach("c1")?;
    let chain = "chain egress { type filter hook egress device \"eth0\" priority 0; policy drop; }";
    member.container.netns.run_command(
        "nft",
        &["-f", "-"],
        &format!("table netdev wall {{\n{chain}\n}}\n"),
    )?;

    lab.detach(&member)?;
    witness::release(&mut seen, &member, DEADLINE)?;
    Ok(server.wait_until_free()?)
}

#[test]
fn a_fixed_mac_comes_up_while_its_old_link_still_goes() -> Result<(), CallError> {
    let sandbox = sandbox!(&[Need::File(MACVLAN)]);
    let mut lab = Lab::new(&sandbox)?;
    lab.config["mac"] = "02:0a:0b:0c:0d:0e".into();
    let _server = ModelServer::start(&lab.lan, Config::new(Lan::SUBNET))?;
    let plugin = lab.shim.under(PathBuf::from(MACVLAN));
    for round in 0..12 {
        let name = format!("c{round}");
        let container = Container::new(&name, Netns::new(&sandbox, &name)?, "eth0", [0; 6]);
        plugin
            .add(&container, &lab.config)
            .inspect_err(|error| eprintln!("round {round}: {error}"))?;
        // It goes without a DEL.
    }
    Ok(())
}
