//! Docker's IPAM driver, as dockerd 25 to 29 call it.

use std::net::Ipv4Addr;
use std::process::Command;
use std::thread;
use std::time::Duration;

use ipnet::Ipv4Net;
use netns_fixtures::engine::played::{
    Driver, EngineVersion, NetworkPlan, Played, PlayedNetwork, RunPlan,
};
use netns_fixtures::engine::plugin::Reply;
use netns_fixtures::model::{Kind, code};
use netns_fixtures::server::{Dnsmasq, DnsmasqConfig, Grants};
use netns_fixtures::{
    Capture, DEADLINE, Error, Lab, Lan, Need, Process, Sandbox, mac, mac_text, sandbox,
};
use serde_json::json;

use crate::witness;

const NEEDS: &[Need] = &[Need::Program("dnsmasq"), Need::Program("busybox")];
const ADDRESS: &str = "IpamDriver.RequestAddress";

/// The number of the Ethernet address in a bare call, far from those of the LAN.
const NUMBER: u32 = 1000;
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

fn bare(plugin: &Played, method: &str, body: &str) -> Result<Reply, Error> {
    plugin.plugin.send(method, body)?.answer()
}

/// Runs a container through its life in a network whose containers have the LAN's router.
fn lives(
    lab: &Lab,
    server: &Dnsmasq,
    version: EngineVersion,
    plan: &NetworkPlan,
) -> Result<(), Error> {
    let docker = play(lab, version)?;
    let network = docker.network_create(plan)?;
    assert_eq!(
        (network.pool, network.gateway),
        (Lan::SUBNET, Some(Lan::SERVER))
    );
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
    docker.network_rm(network)
}

#[test]
fn every_docker_gets_lan_addresses_over_macvlan() -> Result<(), Error> {
    let sandbox = sandbox!(NEEDS);
    let lab = Lab::with_docker(&sandbox)?;
    let server = Dnsmasq::start(&lab.lan, DnsmasqConfig::default())?;
    EngineVersion::ALL
        .into_iter()
        .try_for_each(|version| lives(&lab, &server, version, &macvlan()))
}

/// Compose drops `ipam.options`, so it can name no parent.
#[test]
fn a_network_without_a_parent_has_the_link_of_its_subnet() -> Result<(), Error> {
    let sandbox = sandbox!(NEEDS);
    let lab = Lab::with_docker(&sandbox)?;
    let server = Dnsmasq::start(&lab.lan, DnsmasqConfig::default())?;
    let plan = NetworkPlan {
        options: json!({ "grace": "0" }),
        ..macvlan()
    };
    let refused = play(&lab, EngineVersion::V29)?.network_create(&plan);
    let refused = refused.map(|_| ()).map_err(|error| error.to_string());
    assert!(
        refused
            .is_err_and(|why| why.contains("no link of this host has an address with the prefix"))
    );
    let host = Lan::on_lan(Ipv4Addr::new(10, 7, 0, 200));
    lab.lan.host.add_address(Lan::IFNAME, host)?;
    lives(&lab, &server, EngineVersion::V29, &plan)?;
    let network = play(&lab, EngineVersion::V29)?.network_create(&plan)?;
    let listed = lab.daemon().operator(&["list"])?;
    let said = format!(
        "whose parent was found by their subnet:\n{}: {}",
        network.pool_id,
        Lan::IFNAME
    );
    assert!(listed.contains(&said), "{listed}");
    Ok(())
}

#[test]
fn every_docker_gets_lan_addresses_over_a_bridge() -> Result<(), Error> {
    let sandbox = sandbox!(NEEDS);
    let lab = Lab::with_docker(&sandbox)?;
    lab.lan.add_host_bridge()?;
    let server = Dnsmasq::start(&lab.lan, DnsmasqConfig::default())?;
    let plan = NetworkPlan {
        gateway: Some(Lan::SERVER),
        ..plan(Driver::Bridge(Lan::BRIDGE.to_owned()))
    };
    EngineVersion::ALL
        .into_iter()
        .try_for_each(|version| lives(&lab, &server, version, &plan))
}

#[test]
fn a_look_at_a_silent_lan_says_what_came_in_on_its_bridge() -> Result<(), Error> {
    let sandbox = sandbox!(NEEDS);
    let lab = Lab::with_docker(&sandbox)?;
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
    assert!(
        why.contains(" came in on cni0 from outside, so the wire works"),
        "{why}"
    );
    Ok(())
}

#[test]
fn a_server_in_a_macvlan_serves_the_containers_beside_it() -> Result<(), Error> {
    let sandbox = sandbox!(NEEDS);
    let lab = Lab::with_docker(&sandbox)?;
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
    let sandbox = sandbox!(NEEDS);
    let lab = Lab::with_docker(&sandbox)?;
    let server = Dnsmasq::start(&lab.lan, DnsmasqConfig::default())?;
    let docker = play(&lab, EngineVersion::V29)?;
    let plan = NetworkPlan {
        options: json!({ "parent": Lan::IFNAME }),
        ..macvlan()
    };
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
fn calls_that_are_odd_or_come_again_are_answered() -> Result<(), Error> {
    let sandbox = sandbox!(NEEDS);
    let lab = Lab::with_docker(&sandbox)?;
    let server = Dnsmasq::start(&lab.lan, DnsmasqConfig::default())?;
    let mut docker = play(&lab, EngineVersion::V28)?;
    for body in ["", "{", "null", "7"] {
        assert_eq!(bare(&docker, ADDRESS, body)?.status, 400, "{body}");
    }
    assert_eq!(bare(&docker, "IpamDriver.RequestRouter", "{}")?.status, 404);
    let refused = bare(
        &docker,
        "IpamDriver.RequestPool",
        r#"{"Pool":"10.7.0.0/16","Options":null}"#,
    )?;
    assert!(
        refused.status == 200 && refused.body.contains("parent"),
        "{refused:?}"
    );

    docker.plugin.host = "";
    let pools = (0..3)
        .map(|_| docker.request_pool(&macvlan()))
        .collect::<Result<Vec<_>, _>>()?;
    assert!(
        pools
            .iter()
            .all(|network| network.pool_id == pools[0].pool_id),
        "{pools:?}"
    );
    let [network, same, _] = &pools[..] else {
        panic!("three pools")
    };
    docker.network_rm(same.clone())?;
    let web = docker.run(network, "web", RunPlan::default())?;
    let told = json!({ "PoolID": network.pool_id, "Address": web.address.addr() }).to_string();
    docker.stop(web)?;
    for _ in 0..2 {
        assert_eq!(
            bare(&docker, "IpamDriver.ReleaseAddress", &told)?,
            Reply {
                status: 200,
                body: "{}".into()
            }
        );
    }
    server.wait_until_free()
}

#[test]
fn a_caller_that_hangs_up_leaves_no_lease() -> Result<(), Error> {
    let sandbox = sandbox!(&[NEEDS, &[Need::Program("nft")]].concat());
    let lab = Lab::with_docker(&sandbox)?;
    let server = Dnsmasq::start(&lab.lan, DnsmasqConfig::default())?;
    let mut seen = Capture::start(&lab.lan.server, Lan::IFNAME)?;
    let docker = play(&lab, EngineVersion::V29)?;
    let network = docker.network_create(&macvlan())?;
    server.lose_acks()?;
    let call = docker.plugin.send(ADDRESS, &request(&network.pool_id))?;
    let granted = seen.wait_for_dhcp(Kind::Request, DEADLINE, |m| m.chaddr == mac(NUMBER))?;
    assert!(granted.address_option(50).is_some(), "{granted:?}");
    drop(call);
    server.wait_until_free()?;
    lab.daemon().wait_until_empty()
}

/// Returns the body of a call for a container's address.
fn request(pool_id: &str) -> String {
    let options = json!({ "com.docker.network.endpoint.macaddress": mac_text(mac(NUMBER)) });
    json!({ "PoolID": pool_id, "Address": "", "Options": options }).to_string()
}

#[test]
fn a_daemon_killed_during_docker_calls_leaves_no_lease() -> Result<(), Error> {
    let sandbox = sandbox!(&[NEEDS, &[Need::Program("nft")]].concat());
    let mut lab = Lab::with_docker(&sandbox)?;
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
        seen.wait_for_dhcp(Kind::Request, DEADLINE, |m| m.address_option(50).is_some())?;
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
    lab.lan
        .server
        .run_command("nft", &["delete", "table", "ip", "wall"], "")?;
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
fn a_daemon_killed_in_a_pool_call_starts_with_the_truth() -> Result<(), Error> {
    let sandbox = sandbox!(NEEDS);
    let mut lab = Lab::with_docker(&sandbox)?;
    let mut seen = Capture::start(&lab.lan.server, Lan::IFNAME)?;
    let docker = play(&lab, EngineVersion::V29)?;
    let again = |lab: &mut Lab| {
        lab.kill9()?;
        lab.start_daemon()
    };
    // Nobody answers yet: the daemon looks at the LAN.
    let asked =
        json!({ "Pool": "", "SubPool": "", "Options": { "parent": Lan::IFNAME }, "V6": false });
    let call = docker
        .plugin
        .send("IpamDriver.RequestPool", &asked.to_string())?;
    seen.wait_for_dhcp(Kind::Discover, DEADLINE, |_| true)?;
    again(&mut lab)?;
    assert!(call.answer().is_err());

    let server = Dnsmasq::start(&lab.lan, DnsmasqConfig::default())?;
    let network = docker.network_create(&macvlan())?;
    let web = docker.run(&network, "web", RunPlan::default())?;
    docker.leave(&web)?;
    // The daemon may never hear about this one: what dockerd calls again has no body.
    let told = json!({ "PoolID": network.pool_id, "Address": web.address.addr() });
    let call = docker
        .plugin
        .send("IpamDriver.ReleaseAddress", &told.to_string())?;
    again(&mut lab)?;
    drop(call);
    let web = docker.run(&network, "web", RunPlan::default())?;
    assert_eq!(
        server
            .leases()?
            .iter()
            .map(|lease| lease.address)
            .collect::<Vec<_>>(),
        [web.address.addr()]
    );
    docker.stop(web)?;
    server.wait_until_free()?;
    lab.daemon().wait_until_empty()?;

    // An auxiliary address, which dockerd asks for again at its next start.
    let (aux, asked) = (Ipv4Addr::new(10, 7, 1, 50), "10.7.1.50/16");
    let kept = json!({ "PoolID": network.pool_id, "Address": aux, "Options": null });
    let call = docker.plugin.send(ADDRESS, &kept.to_string())?;
    again(&mut lab)?;
    drop(call);
    assert_eq!(docker.plugin.call(ADDRESS, &kept)?["Address"], asked);
    let back = json!({ "PoolID": network.pool_id, "Address": aux });
    let call = docker
        .plugin
        .send("IpamDriver.ReleaseAddress", &back.to_string())?;
    again(&mut lab)?;
    drop(call);
    docker.plugin.call("IpamDriver.ReleaseAddress", &back)?;

    let call = docker.plugin.send(
        "IpamDriver.ReleasePool",
        &json!({ "PoolID": network.pool_id }).to_string(),
    )?;
    again(&mut lab)?;
    drop(call);
    let network = docker.network_create(&macvlan())?;
    let db = docker.run(&network, "db", RunPlan::default())?;
    docker.stop(db)?;
    docker.network_rm(network)?;
    server.wait_until_free()?;
    lab.daemon().wait_until_empty()
}

#[test]
fn a_container_has_its_address_again_after_a_power_loss() -> Result<(), Error> {
    let sandbox = sandbox!(NEEDS);
    let (mut lab, server, docker, network) = macvlans(&sandbox)?;
    let web = docker.run(&network, "web", RunPlan::default())?;
    let address = web.address;
    lab.lose_power()?;
    docker.leave(&web)?;
    drop(web);
    let mut seen = Capture::start(&lab.lan.server, Lan::IFNAME)?;
    lab.start_daemon()?;
    lab.wait_for_line("boot=00000000-")?;
    // dockerd also asks for the pool of each network when it starts.
    let docker = play(&lab, EngineVersion::V29)?;
    let network = docker.request_pool(&macvlan())?;
    let web = docker.run(&network, "web", RunPlan::default())?;
    assert_eq!(web.address, address);
    let asked = seen.wait_for_dhcp(Kind::Request, DEADLINE, |m| m.chaddr == web.container.mac)?;
    assert_eq!(
        (asked.ciaddr, asked.option(code::SERVER)),
        (Ipv4Addr::UNSPECIFIED, None),
        "INIT-REBOOT: {asked:?}"
    );
    assert_eq!(server.leases()?.len(), 1);
    docker.stop(web)?;
    server.wait_until_free()?;
    lab.daemon().wait_until_empty()
}

#[test]
fn another_address_is_put_on_inside_and_told_of() -> Result<(), Error> {
    let sandbox = sandbox!(NEEDS);
    let lab = Lab::with_docker(&sandbox)?;
    let grants = Grants::lasting(120).renewed(5, 9);
    let mut server = Dnsmasq::start(&lab.lan, grants.clone())?;
    let docker = play(&lab, EngineVersion::V28)?;
    let network = docker.network_create(&macvlan())?;
    let web = docker.run(&network, "web", RunPlan::default())?;

    let other = Ipv4Addr::new(10, 7, 8, 0)..=Ipv4Addr::new(10, 7, 8, 255);
    server.restart(Some(
        Grants {
            pool: other.clone(),
            ..grants.clone()
        }
        .into(),
    ))?;
    // While one replaces the other, the next one is there alone, without its subnet.
    let is_whole = |address: &Ipv4Net| address.prefix_len() == Lan::SUBNET.prefix_len();
    let put_on = |addresses: Vec<Ipv4Net>| match addresses[..] {
        [address] if other.contains(&address.addr()) && is_whole(&address) => Some(address),
        _ => None,
    };
    let next =
        netns_fixtures::until_link(&web.container.netns, "the next address", DEADLINE, || {
            Ok(put_on(web.container.addresses()?))
        })?;
    lab.daemon().wait_for_event(&next.addr().to_string())?;
    let row = &lab.daemon().list()?[0];
    assert_eq!(
        (&row["address"], &row["told"]),
        (&json!(next), &json!(web.address))
    );
    // Docker gives back the one that it knows.
    docker.stop(web)?;
    server.wait_until_free()?;

    // After live-restore it looks for the interface by that address, and leaves it in the container.
    server.restart(Some(grants.clone().into()))?;
    let db = docker.run(&network, "db", RunPlan::default())?;
    server.restart(Some(
        Grants {
            pool: other.clone(),
            ..grants
        }
        .into(),
    ))?;
    netns_fixtures::until_link(&db.container.netns, "the next address", DEADLINE, || {
        Ok(put_on(db.container.addresses()?))
    })?;
    docker.disconnect_astray(&db)?;
    assert_eq!(db.container.addresses()?, []);
    server.wait_until_free()
}

#[test]
fn the_default_route_follows_the_router_of_the_lan() -> Result<(), Error> {
    let sandbox = sandbox!(&[NEEDS, &[Need::Program("ip")]].concat());
    let lab = Lab::with_docker(&sandbox)?;
    let grants = Grants::lasting(120).renewed(5, 9);
    let mut server = Dnsmasq::start(&lab.lan, grants.clone())?;
    let docker = play(&lab, EngineVersion::V29)?;
    let network = docker.network_create(&macvlan())?;
    let web = docker.run(&network, "web", RunPlan::default())?;
    // For this one it leads over another network, if there is any.
    let db = docker.run(&network.without_default_route(), "db", RunPlan::default())?;
    let before = db.container.netns.run_command("ip", &["route"], "")?;

    let next = Ipv4Addr::from(u32::from(Lan::SERVER) + 1);
    server.restart(Some(
        Grants {
            router: next,
            ..grants
        }
        .into(),
    ))?;
    let by = |router| format!("default via {router} dev eth0");
    witness::routes(&web.container, &[&by(next)], &[&by(Lan::SERVER)], DEADLINE)?;
    // By the next renewal but one of the other, everything that is done there for the new router has been done.
    let mut seen = Capture::start(&lab.lan.server, Lan::IFNAME)?;
    for _ in 0..2 {
        seen.wait_for_dhcp(Kind::Ack, DEADLINE, |m| m.chaddr == db.container.mac)?;
    }
    seen.wait_for_dhcp(Kind::Request, DEADLINE, |m| m.chaddr == db.container.mac)?;
    assert_eq!(
        db.container.netns.run_command("ip", &["route"], "")?,
        before
    );
    Ok(())
}

#[test]
fn a_container_that_goes_without_a_word_is_no_holder() -> Result<(), Error> {
    let sandbox = sandbox!(NEEDS);
    let (lab, server, docker, network) = macvlans(&sandbox)?;
    let web = docker.run(&network, "web", RunPlan::default())?;
    // One that goes before it is found may still come: its lease stays for ten minutes.
    lab.daemon().wait_until_inside()?;
    drop(web);
    server.wait_for("RELEASE", UNSAID + DEADLINE, |_| {
        server.leases().ok()?.is_empty().then_some(())
    })?;
    lab.daemon().wait_until_empty()
}

#[test]
fn an_only_container_that_ended_unheard_keeps_no_lease() -> Result<(), Error> {
    let sandbox = sandbox!(NEEDS);
    let (mut lab, server, docker, network) = macvlans(&sandbox)?;
    let web = docker.run(&network, "web", RunPlan::default())?;
    lab.daemon().wait_until_inside()?;
    lab.kill9()?;
    docker.leave(&web)?;
    drop(web);
    lab.start_daemon()?;
    server.wait_for("RELEASE", UNSAID + DEADLINE, |_| {
        server.leases().ok()?.is_empty().then_some(())
    })?;
    lab.daemon().wait_until_empty()
}

#[test]
fn a_name_is_free_if_its_container_ended_without_a_daemon() -> Result<(), Error> {
    let sandbox = sandbox!(NEEDS);
    let (mut lab, server, docker, network) = macvlans(&sandbox)?;
    let web = docker.run(&network, "web", RunPlan::default())?;
    let address = web.address;
    lab.kill9()?;
    // dockerd gives up: nobody is told.
    docker.leave(&web)?;
    drop(web);
    lab.start_daemon()?;
    let again = docker.run(&network, "web", RunPlan::default())?;
    assert_eq!(again.address, address);
    assert_eq!(server.leases()?.len(), 1);
    docker.stop(again)?;
    server.wait_until_free()?;
    lab.daemon().wait_until_empty()
}

/// ARP does not show this: a macvlan does not reach its parent's host.
#[test]
fn the_address_of_the_host_is_neither_released_nor_used() -> Result<(), Error> {
    let sandbox = sandbox!(NEEDS);
    let lab = Lab::with_docker(&sandbox)?;
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
    assert!(
        error.contains("which this host itself (eth0) has"),
        "{error}"
    );
    Ok(())
}

#[test]
fn ten_containers_come_and_go_at_once() -> Result<(), Error> {
    let sandbox = sandbox!(NEEDS);
    let (lab, server, docker, network) = macvlans(&sandbox)?;
    let lives = |n: usize| {
        let web = docker.run(&network, &format!("web-{n}"), RunPlan::default())?;
        assert_eq!(web.container.addresses()?, [web.address]);
        docker.stop(web)
    };
    thread::scope(|scope| {
        let all: Vec<_> = (0..10)
            .map(|n| scope.spawn(move || (0..3).try_for_each(|_| lives(n))))
            .collect();
        all.into_iter()
            .try_for_each(|one| one.join().expect("no container panics"))
    })?;
    server.wait_until_free()?;
    lab.daemon().wait_until_empty()
}
