//! An ADD without an offer says what keeps servers from answering, and the log says what was wrong with an answer.

use std::net::Ipv4Addr;

use netns_fixtures::model::Config;
use netns_fixtures::server::{Dnsmasq, DnsmasqConfig, ModelServer};
use netns_fixtures::{CallError, Lab, Lan, Need, Sandbox, assert_says, sandbox};

const BRIDGE_NF: &str = "/proc/sys/net/bridge/bridge-nf-call-iptables";
/// The host's own address, if it has a server.
const HOST: Ipv4Addr = Ipv4Addr::new(10, 7, 0, 2);

/// A LAN on which an ADD waits for eight seconds.
fn lab(sandbox: &Sandbox) -> Result<Lab, CallError> {
    let mut lab = Lab::new(sandbox)?;
    lab.config["ipam"]["timeout"] = 8.into();
    Ok(lab)
}

/// Connects a LAN's containers to a bridge of the host.
fn bridged(lab: &mut Lab) -> Result<(), CallError> {
    lab.lan.add_host_bridge()?;
    let ipam = lab.config["ipam"].clone();
    lab.config = Lan::bridge_config(&lab.daemon().socket());
    lab.config["ipam"]["timeout"] = ipam["timeout"].clone();
    Ok(())
}

#[test]
fn an_add_says_how_many_frames_came_in_without_a_server() -> Result<(), CallError> {
    let lab = lab(&sandbox!(&[]))?;
    let container = lab.lan.container("c1")?;
    let error = lab
        .shim
        .add(&container, &lab.config)
        .expect_err("nobody answers")
        .cni();
    assert_eq!(error.code, 11);
    assert_says(&error.msg, "no usable DHCP offer");
    assert_says(&error.msg, "came in");
    Ok(())
}

#[test]
fn a_carrier_that_was_lost_meanwhile_is_named() -> Result<(), CallError> {
    let mut lab = lab(&sandbox!(&[]))?;
    let container = lab.lan.container("c1")?;
    let call = lab.shim.start("ADD", &container, &lab.config)?;
    lab.wait_for_line("exchange opened")?;
    lab.lan.unplug(&lab.lan.host)?;
    let error = call.wait().expect_err("nobody answers").cni();
    assert_says(&error.msg, "interface eth0 has lost its carrier");
    Ok(())
}

#[test]
fn a_firewall_on_the_bridge_is_named_and_was_the_reason() -> Result<(), CallError> {
    let needs = [
        Need::Program("dnsmasq"),
        Need::Program("iptables"),
        Need::File(BRIDGE_NF),
    ];
    let mut lab = lab(&sandbox!(&needs))?;
    bridged(&mut lab)?;
    let server = Dnsmasq::start(&lab.lan, DnsmasqConfig::default())?;
    // As dockerd leaves it.
    lab.lan.host.sh(&format!("echo 1 > {BRIDGE_NF}"))?;
    lab.lan.host.sh("iptables -P FORWARD DROP")?;
    let container = lab.lan.bridged_container("c1")?;
    let error = lab
        .shim
        .add(&container, &lab.config)
        .expect_err("its frames are dropped")
        .cni();
    assert!(error.msg.contains("bridge-nf-call-iptables=1"), "{error}");
    assert!(error.msg.contains("FORWARD drops by policy"), "{error}");

    // The remedy that it names.
    let allow = [
        "-I",
        "FORWARD",
        "-i",
        Lan::BRIDGE,
        "-o",
        Lan::BRIDGE,
        "-j",
        "ACCEPT",
    ];
    lab.lan.host.run_command("iptables", &allow, "")?;
    lab.config["ipam"]["timeout"] = 30.into();
    let member = lab.add(container)?;
    lab.detach(&member)?;
    Ok(server.wait_until_free()?)
}

#[test]
fn an_add_names_a_server_on_the_host_as_out_of_reach() -> Result<(), CallError> {
    let lab = lab(&sandbox!(&[Need::Program("dnsmasq")]))?;
    lab.lan.host.add_address(Lan::IFNAME, Lan::on_lan(HOST))?;
    let _server = Dnsmasq::start_in(&lab.lan.host, DnsmasqConfig::default())?;
    let container = lab.lan.container("c1")?;
    let error = lab
        .shim
        .add(&container, &lab.config)
        .expect_err("a macvlan does not reach its parent")
        .cni();
    assert_says(&error.msg, "use a bridge, or put the server elsewhere");
    Ok(())
}

#[test]
fn a_server_on_the_bridges_own_host_is_asked_about() -> Result<(), CallError> {
    let sandbox = sandbox!(&[Need::Program("dnsmasq"), Need::Program("iptables")]);
    let mut lab = lab(&sandbox)?;
    bridged(&mut lab)?;
    lab.lan.host.add_address(Lan::BRIDGE, Lan::on_lan(HOST))?;
    let config = DnsmasqConfig {
        ifname: Lan::BRIDGE.to_owned(),
        ..DnsmasqConfig::default()
    };
    let server = Dnsmasq::start_in(&lab.lan.host, config)?;
    let wall = ["INPUT", "-p", "udp", "--dport", "67", "-j", "DROP"];
    lab.lan
        .host
        .run_command("iptables", &[&["-I"], &wall[..]].concat(), "")?;
    let container = lab.lan.bridged_container("c1")?;
    let error = lab
        .shim
        .add(&container, &lab.config)
        .expect_err("the host's firewall drops what it asks")
        .cni();
    assert_says(&error.msg, "does the host's firewall let UDP port 67 in?");

    lab.lan
        .host
        .run_command("iptables", &[&["-D"], &wall[..]].concat(), "")?;
    lab.config["ipam"]["timeout"] = 30.into();
    let member = lab.add(container)?;
    lab.detach(&member)?;
    Ok(server.wait_until_free()?)
}

#[test]
fn an_add_and_a_lost_lease_name_a_firewall() -> Result<(), CallError> {
    let lab = lab(&sandbox!(&[Need::Program("nft")]))?;
    let config = Config::new(Lan::SUBNET).lasting(6).renewed(2, Some(4));
    let _server = ModelServer::start(&lab.lan, config)?;
    let shut = |container: &netns_fixtures::Container| {
        let hook = "table netdev t {\nchain c { type filter hook egress device eth0 priority 0; policy drop; }\n}\n";
        container.netns.run_command("nft", &["-f", "-"], hook)
    };
    let container = lab.lan.container("c1")?;
    shut(&container)?;
    let error = lab
        .shim
        .add(&container, &lab.config)
        .expect_err("nothing goes out")
        .cni();
    assert!(
        error
            .msg
            .contains("could not be sent, the last because: send: No buffer space available"),
        "{error}"
    );
    let held = lab.attach("c2")?;
    shut(&held.container)?;
    lab.daemon().wait_for_event("could not be sent")?;
    Ok(())
}

#[test]
fn an_add_names_the_spanning_tree_that_blocks_its_port() -> Result<(), CallError> {
    let mut lab = lab(&sandbox!(&[]))?;
    bridged(&mut lab)?;
    let server = ModelServer::start(&lab.lan, Config::new(Lan::SUBNET))?;
    // The uplink is a port too: it has to forward first.
    let stp = [
        "link",
        "set",
        Lan::BRIDGE,
        "type",
        "bridge",
        "stp_state",
        "1",
        "forward_delay",
        "200",
    ];
    lab.lan.host.run_command("ip", &stp, "")?;
    lab.config["ipam"]["timeout"] = 3.into();
    let container = lab.lan.bridged_container("c1")?;
    let error = lab
        .shim
        .add(&container, &lab.config)
        .expect_err("its port listens and learns for 4 s")
        .cni();
    assert!(
        error
            .msg
            .contains("runs the spanning tree protocol, which blocks eth0 for its first 4s"),
        "{error}"
    );
    assert_says(&error.msg, "set `timeout` well above that");

    lab.config["ipam"]["timeout"] = 30.into();
    let member = lab.add(container)?;
    assert!(server.leases().len() == 1);
    lab.detach(&member)
}
