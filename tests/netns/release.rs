//! Giving leases back from the host over a bridge, when the server may be on the bridge itself.

use std::net::Ipv4Addr;

use netns_fixtures::server::{Dnsmasq, DnsmasqConfig, Kea, KeaConfig};
use netns_fixtures::{
    CallError, DEADLINE, Error, Lab, Lan, Member, Need, Sandbox, sandbox, until_link,
};

use crate::crash::each;

const NEEDS: &[Need] = &[Need::Program("dnsmasq"), Need::Program("ip")];
/// The bridge's own address.
const GATEWAY: Ipv4Addr = Ipv4Addr::new(10, 7, 0, 2);
/// The daemon's port of the bridge.
const PORT: &str = "lh-0";

/// A host with a server on its bridge, and a container with a lease from it.
struct Scene {
    lab: Lab,
    server: Dnsmasq,
    member: Member,
}

impl Scene {
    fn new(sandbox: &Sandbox) -> Result<Self, CallError> {
        let mut lab = Lab::new(sandbox)?;
        lab.config = Lan::bridge_config(&lab.daemon().socket());
        lab.lan.add_host_bridge()?;
        lab.lan
            .host
            .add_address(Lan::BRIDGE, Lan::on_lan(GATEWAY))?;
        lab.lan.host.set_up(Lan::BRIDGE)?;
        let config = DnsmasqConfig {
            ifname: Lan::BRIDGE.to_owned(),
            ..DnsmasqConfig::default()
        };
        let server = Dnsmasq::start_in(&lab.lan.host, config)?;
        let member = lab.add(lab.lan.bridged_container("c1")?)?;
        member.container.configure(&member.result)?;
        Ok(Self {
            lab,
            server,
            member,
        })
    }

    /// Deletes the link, as the bridge plugin does before it calls the IPAM plugin.
    fn delete_link(&self) -> Result<(), Error> {
        self.member.container.netns.delete_link("eth0")
    }

    fn has_port(&self) -> bool {
        self.lab.lan.host.index(PORT).is_ok()
    }

    fn port_goes(&self) -> Result<(), Error> {
        until_link(&self.lab.lan.host, "end of the port", DEADLINE, || {
            Ok((!self.has_port()).then_some(()))
        })
    }

    fn was_released(&mut self) -> Result<(), Error> {
        self.server.wait_until_free()?;
        self.server.wait_for_line(&format!(
            "DHCPRELEASE({}) {} {}",
            Lan::BRIDGE,
            self.member.address,
            self.member.mac()
        ))
    }
}

#[test]
fn a_server_on_the_bridge_hears_of_a_deleted_link() -> Result<(), CallError> {
    let mut scene = Scene::new(&sandbox!(NEEDS))?;
    scene.delete_link()?;
    scene.lab.detach(&scene.member)?;
    scene.was_released()?;
    Ok(scene.port_goes()?)
}

#[test]
fn a_killed_daemon_leaves_no_bridge_port() -> Result<(), CallError> {
    let mut scene = Scene::new(&sandbox!(NEEDS))?;
    let host = scene.lab.lan.host.clone();
    let spanning_tree = |state: &str, delay: &str| {
        let set = [
            "link",
            "set",
            Lan::BRIDGE,
            "type",
            "bridge",
            "forward_delay",
            delay,
            "stp_state",
            state,
        ];
        host.run_command("ip", &set, "").map(drop)
    };
    // The new port has to listen and learn for a minute.
    spanning_tree("1", "3000")?;
    scene.delete_link()?;
    scene.lab.wait_for_line("made a port of the bridge")?;
    assert!(scene.has_port());
    scene.lab.kill9()?;
    scene.port_goes()?;

    spanning_tree("0", "200")?;
    scene.lab.start_daemon()?;
    scene.lab.detach(&scene.member)?;
    scene.was_released()?;
    Ok(scene.port_goes()?)
}

/// The containers of a whole node: they need four times as many RELEASEs as leave at once.
const NODE: usize = 500;

#[test]
fn all_leases_of_a_node_go_back_at_once() -> Result<(), CallError> {
    let lab = Lab::new(&sandbox!(&[Need::Program("kea-dhcp4")]))?;
    let server = Kea::start(&lab.lan, KeaConfig::default())?;
    let mut members = Vec::new();
    while members.len() < NODE {
        let next = members.len()..members.len() + 50;
        members.extend(each(next, |n| lab.attach(&format!("c{n}")))?);
    }
    // Every second namespace dies without a DEL. The other links go as soon as their DEL is answered, which is before the RELEASE
    // for most.
    each(members.into_iter().enumerate(), |(n, member)| {
        if n % 2 == 0 {
            lab.detach(&member)?;
        }
        drop(member);
        Ok(())
    })?;
    server.wait_until_free()?;
    lab.daemon().wait_until_empty()?;
    let released = lab
        .daemon()
        .events()?
        .iter()
        .filter(|line| line.contains("/eth0 released "))
        .count();
    assert_eq!(released, NODE);
    Ok(())
}
