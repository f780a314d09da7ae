//! Docker's IPAM driver, as dockerd 25 to 29 call it.

use std::net::Ipv4Addr;
use std::process::Command;
use std::thread;
use std::time::Duration;

use netns_fixtures::engine::played::{
    Driver, EngineVersion, NetworkPlan, Played, PlayedNetwork, RunPlan,
};
use netns_fixtures::model::Kind;
use netns_fixtures::server::{Dnsmasq, DnsmasqConfig};
use netns_fixtures::{
    Capture, DEADLINE, Error, Lab, Lan, Need, Process, Sandbox, assert_says, mac, mac_text, sandbox,
};
use serde_json::json;

const NEEDS: &[Need] = &[Need::Program("dnsmasq"), Need::Program("busybox")];
/// How long dockerd may stay silent about a container that is gone.
const UNSAID: Duration = Duration::from_secs(60);

/// Returns the plan of a network whose containers' addresses are given back at once.
fn plan(driver: Driver) -> NetworkPlan {
    let mut plan = NetworkPlan::new(driver).with_subnet(Lan::SUBNET);
    plan.options["grace"] = "0".into();
    plan
}

/// Returns the plan of a network of macvlans on the LAN.
fn macvlan() -> NetworkPlan {
    plan(Driver::Macvlan(Lan::IFNAME.to_owned()))
}

fn play(lab: &Lab, version: EngineVersion) -> Result<Played, Error> {
    Played::start(&lab.lan.host, version, "leasehold")
}

/// Makes such a host on a LAN with a server, where dockerd 29 has a network of macvlans.
fn macvlans(sandbox: &Sandbox) -> Result<(Lab, Dnsmasq, Played, PlayedNetwork), Error> {
    let lab = Lab::with_docker(sandbox)?;
    let server = Dnsmasq::start(&lab.lan, DnsmasqConfig::default())?;
    let docker = play(&lab, EngineVersion::V29)?;
    let network = docker.network_create(&macvlan())?;
    Ok((lab, server, docker, network))
}

/// Runs a container through its life in a network whose containers have the LAN's router. Returns what Docker called.
fn lives(
    lab: &Lab,
    server: &Dnsmasq,
    version: EngineVersion,
    plan: &NetworkPlan,
) -> Result<Vec<String>, Error> {
    let docker = play(lab, version)?;
    let network = docker.network_create(plan)?;
    let found = (network.pool, network.gateway);
    assert_eq!(found, (Lan::SUBNET, Some(Lan::SERVER)));
    let web = docker.run(&network, "web", RunPlan::default())?;
    let lease = server
        .lease_of(&mac_text(web.container.mac))?
        .expect("a lease");
    assert_eq!(web.address, Lan::on_lan(lease.address));
    let ping = ["ping", "-c", "1", "-W", "10", &Lan::SERVER.to_string()];
    web.container.netns.run_command("busybox", &ping, "")?;
    docker.stop(web)?;
    server.wait_until_free()?;
    lab.daemon().wait_until_empty()?;
    docker.network_rm(network)?;
    Ok(docker.plugin.called())
}

#[test]
fn every_docker_gets_lan_addresses_over_macvlan() -> Result<(), Error> {
    let lab = Lab::with_docker(&sandbox!(NEEDS))?;
    let server = Dnsmasq::start(&lab.lan, DnsmasqConfig::default())?;
    for version in EngineVersion::ALL {
        let spaces = 1 + usize::from(version > EngineVersion::V25);
        let calls = [
            &["Plugin.Activate", "IpamDriver.GetCapabilities"][..],
            &["IpamDriver.GetDefaultAddressSpaces"; 2][..spaces],
            &["IpamDriver.RequestPool", "IpamDriver.RequestAddress"],
            &["IpamDriver.ReleaseAddress"; 2],
            &["IpamDriver.ReleasePool"],
        ];
        let called = lives(&lab, &server, version, &macvlan())?;
        assert_eq!(called, calls.concat(), "{version:?}");
    }
    Ok(())
}

#[test]
fn every_docker_gets_lan_addresses_over_a_bridge() -> Result<(), Error> {
    let lab = Lab::with_docker(&sandbox!(NEEDS))?;
    lab.lan.add_host_bridge()?;
    let server = Dnsmasq::start(&lab.lan, DnsmasqConfig::default())?;
    let mut plan = plan(Driver::Bridge(Lan::BRIDGE.to_owned()));
    plan.gateway = Some(Lan::SERVER);
    EngineVersion::ALL
        .into_iter()
        .try_for_each(|version| lives(&lab, &server, version, &plan).map(drop))
}

#[test]
fn a_look_at_a_silent_lan_says_what_came_in_on_its_bridge() -> Result<(), Error> {
    let lab = Lab::with_docker(&sandbox!(NEEDS))?;
    lab.lan.add_host_bridge()?;
    let look = || {
        let docker = play(&lab, EngineVersion::V29)?;
        let plan = NetworkPlan {
            subnet: None,
            gateway: Some(Lan::SERVER),
            ..plan(Driver::Bridge(Lan::BRIDGE.to_owned()))
        };
        let refused = docker.network_create(&plan);
        Ok::<_, Error>(refused.expect_err("nobody answers").to_string())
    };
    lab.lan.unplug(&lab.lan.host)?;
    let why = look()?;
    assert!(
        why.contains("not one frame came in on cni0 from outside"),
        "its own are no others': {why}"
    );
    lab.lan.replug(&lab.lan.host)?;
    let arping = ["arping", "-U", "-w", "30", "-I", Lan::IFNAME, "10.7.0.1"];
    let mut command = Command::new("busybox");
    command.args(arping);
    let _talks = Process::start(&lab.lan.server, "a station that talks", command)?;
    let why = look()?;
    assert_says(&why, " came in on cni0 from outside, so the wire works");
    Ok(())
}

#[test]
fn a_server_in_a_macvlan_serves_the_containers_beside_it() -> Result<(), Error> {
    let lab = Lab::with_docker(&sandbox!(NEEDS))?;
    let machine = lab.lan.sibling("server-c", Ipv4Addr::new(10, 7, 0, 3))?;
    let server = Dnsmasq::start_in(&machine, DnsmasqConfig::default())?;
    for version in EngineVersion::ALL {
        let docker = play(&lab, version)?;
        let network = docker.network_create(&NetworkPlan {
            subnet: None,
            gateway: Some(Lan::SERVER),
            ..macvlan()
        })?;
        assert_eq!(network.pool, Lan::SUBNET);
        // The kernel sets no second macvlan of its Ethernet address up.
        let web = docker.run(&network, "web", RunPlan::default())?;
        let lease = server
            .lease_of(&mac_text(web.container.mac))?
            .expect("a lease");
        assert_eq!(web.address, Lan::on_lan(lease.address));
        let again = docker.run(
            &network,
            "db",
            RunPlan {
                mac: Some(mac(77)),
                ..RunPlan::default()
            },
        )?;
        docker.stop(again)?;
        docker.stop(web)?;
        server.wait_until_free()?;
        lab.daemon().wait_until_empty()?;
        docker.network_rm(network)?;
    }
    Ok(())
}

#[test]
fn a_name_keeps_its_address_when_its_network_is_removed() -> Result<(), Error> {
    let lab = Lab::with_docker(&sandbox!(NEEDS))?;
    let server = Dnsmasq::start(&lab.lan, DnsmasqConfig::default())?;
    let docker = play(&lab, EngineVersion::V29)?;
    let mut plan = macvlan();
    plan.options = json!({ "parent": Lan::IFNAME });
    let network = docker.network_create(&plan)?;
    let first = docker.run(&network, "web", RunPlan::default())?;
    let address = first.address;
    docker.stop(first)?;
    docker.network_rm(network)?;
    assert_eq!(lab.daemon().list()?[0]["state"], "KEPT");

    let network = docker.network_create(&plan)?;
    let other = docker.run(&network, "db", RunPlan::default())?;
    let again = docker.run(&network, "web", RunPlan::default())?;
    assert_eq!(again.address, address);
    assert_ne!(other.address, address);
    // While it runs, nobody else can be it.
    let twin = docker.run(&network, "web", RunPlan::default());
    let error = twin.expect_err("two of one name").to_string();
    let said = "container web has an address on eth0 already";
    assert!(error.contains(said), "{error}");
    assert_eq!(server.leases()?.len(), 2);
    Ok(())
}

#[test]
fn a_daemon_killed_during_docker_calls_leaves_no_lease() -> Result<(), Error> {
    let mut lab = Lab::with_docker(&sandbox!(&[NEEDS, &[Need::Program("nft")]].concat()))?;
    let server = Dnsmasq::start(&lab.lan, DnsmasqConfig::default())?;
    let mut seen = Capture::start(&lab.lan.server, Lan::IFNAME)?;
    let docker = play(&lab, EngineVersion::V29)?;
    let network = docker.network_create(&macvlan())?;
    let again = |lab: &mut Lab| {
        lab.kill9()?;
        lab.start_daemon()
    };

    let web = docker.request(&network, "web", RunPlan::default())?;
    again(&mut lab)?;
    docker.join(&web)?;
    lab.daemon()
        .wait_for_event(&web.address.addr().to_string())?;
    again(&mut lab)?;
    docker.leave(&web)?;
    again(&mut lab)?;
    docker.release(web)?;
    server.wait_until_free()?;
    lab.daemon().wait_until_empty()?;

    // Between the server's answer and ours: dockerd sends an empty body then, and gives up.
    server.lose_acks()?;
    seen.clear()?;
    let error = thread::scope(|scope| {
        let run = scope.spawn(|| docker.run(&network, "db", RunPlan::default()));
        seen.wait_for_dhcp(Kind::Request, DEADLINE, |m| m.address(50).is_some())?;
        again(&mut lab)?;
        Ok::<_, Error>(
            run.join()
                .expect("a caller does not panic")
                .expect_err("a call cannot come again"),
        )
    })?;
    assert!(matches!(error, Error::Refused { .. }), "{error}");
    lab.daemon().wait_until_empty()?;
    // The next container with that name gets the lease that only the server knows, and gives it back when it ends.
    lab.lan.server.sh("nft delete table ip wall")?;
    let [granted] = &server.leases()?[..] else {
        panic!("{:?}", server.leases())
    };
    let db = docker.run(&network, "db", RunPlan::default())?;
    assert_eq!(db.address.addr(), granted.address);
    docker.stop(db)?;
    server.wait_until_free()?;
    lab.daemon().wait_until_empty()
}

#[test]
fn a_container_that_goes_without_a_word_is_no_holder() -> Result<(), Error> {
    let (lab, server, docker, network) = macvlans(&sandbox!(NEEDS))?;
    let web = docker.run(&network, "web", RunPlan::default())?;
    // One that goes before it is found may still come: its lease stays for ten minutes.
    lab.daemon().wait_until_inside()?;
    drop(web);
    server.wait_for("RELEASE", UNSAID + DEADLINE, |_| {
        server.leases().ok()?.is_empty().then_some(())
    })?;
    lab.daemon().wait_until_empty()
}

/// ARP does not show this: a macvlan does not reach its parent's host.
#[test]
fn the_address_of_the_host_is_neither_released_nor_used() -> Result<(), Error> {
    let lab = Lab::with_docker(&sandbox!(NEEDS))?;
    let own = Ipv4Addr::new(10, 7, 1, 1);
    let server = Dnsmasq::start(
        &lab.lan,
        DnsmasqConfig {
            pool: own..=own,
            ..DnsmasqConfig::default()
        },
    )?;
    let docker = play(&lab, EngineVersion::V29)?;
    let mut plan = macvlan();
    plan.options["timeout"] = "3".into();
    let network = docker.network_create(&plan)?;
    let web = docker.run(&network, "web", RunPlan::default())?;
    assert_eq!(web.address.addr(), own);
    lab.lan.host.add_address(Lan::IFNAME, web.address)?;
    docker.stop(web)?;
    lab.daemon().wait_for_event("address_held")?;
    lab.daemon().wait_until_empty()?;
    assert_eq!(server.leases()?.len(), 1, "no RELEASE");
    let error = docker
        .run(&network, "web", RunPlan::default())
        .expect_err("it is the host's")
        .to_string();
    assert_says(&error, "which this host itself (eth0) has");
    Ok(())
}
