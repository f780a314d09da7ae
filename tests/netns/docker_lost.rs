//! The store is lost while Docker's containers go on: only the daemon ever knew their leases and networks.

use std::fs;
use std::net::Ipv4Addr;

use netns_fixtures::engine::played::{Driver, EngineVersion, NetworkPlan, Played, RunPlan};
use netns_fixtures::model::{Kind, code};
use netns_fixtures::server::{Dnsmasq, Grants};
use netns_fixtures::{Capture, DEADLINE, Dhcp, Error, Lab, Lan, Mac, sandbox};
use serde_json::json;

use crate::network::NEEDS;

/// Deletes or damages the store while no daemon runs, and starts the next one, whose messages alone are seen.
fn lose(lab: &mut Lab, seen: &mut Capture, deleted: bool) -> Result<(), Error> {
    lab.kill9()?;
    seen.clear()?;
    let state = lab.home().state_dir();
    match deleted {
        true => fs::remove_dir_all(state).expect("the state directory is there"),
        false => fs::write(state.join("leases.redb"), [0xa5; 8192]).expect("it can be written"),
    }
    lab.start_daemon()?;
    lab.wait_for_line("restoring what was copied")
}

/// Waits until the server has confirmed a container's address, and then renewed it.
fn goes_on(seen: &mut Capture, mac: Mac, address: Ipv4Addr) -> Result<(), Error> {
    let own = |m: &Dhcp| m.chaddr == mac;
    let asked = seen.rewind().wait_for_dhcp(Kind::Request, DEADLINE, own)?;
    let asks = (asked.address(code::REQUESTED), asked.option(code::SERVER));
    assert_eq!(asks, (Some(address), None), "INIT-REBOOT: {asked:?}");
    for kind in [Kind::Ack, Kind::Request, Kind::Ack] {
        seen.wait_for_dhcp(kind, DEADLINE, own)?;
    }
    Ok(())
}

#[test]
fn dockers_containers_outlive_a_lost_store() -> Result<(), Error> {
    let mut lab = Lab::with_docker(&sandbox!(NEEDS))?;
    let server = Dnsmasq::start(&lab.lan, Grants::lasting(120).renewed(5, 9))?;
    let docker = Played::start(&lab.lan.host, EngineVersion::V29, "leasehold")?;
    let options = json!({ "parent": Lan::IFNAME, "grace": "0" });
    let aux = Ipv4Addr::new(10, 7, 0, 8);
    let plan = NetworkPlan {
        options: options.clone(),
        reserved: vec![aux],
        ..NetworkPlan::new(Driver::Macvlan(Lan::IFNAME.to_owned()))
    };
    // Docker's own driver, and ours.
    let theirs = docker.network_create(&plan.with_subnet(Lan::SUBNET))?;
    let ours = docker.wire(options, None)?;
    // The copy may be a commit behind: those that come after show that it has this one.
    let mut late = docker.prepare_wired(&ours, "late", None)?;
    docker.create_endpoint(&mut late)?;
    let web = docker.run(&theirs, "web", RunPlan::default())?;
    let db = docker.run_wired(&ours, "db", None)?;

    let mut seen = Capture::start(&lab.lan.server, Lan::IFNAME)?;
    let address = |of: Option<ipnet::Ipv4Net>| of.expect("an endpoint has an address").addr();
    let held = [
        (web.container.mac, web.address.addr()),
        (db.container.mac, address(db.address)),
        (late.container.mac, address(late.address)),
    ];
    for deleted in [false, true] {
        lose(&mut lab, &mut seen, deleted)?;
        for (mac, address) in held {
            goes_on(&mut seen, mac, address)?;
        }
        assert!(
            !seen
                .dhcp()?
                .iter()
                .any(|m| matches!(m.kind, Kind::Discover | Kind::Release)),
            "no lease was lost, {deleted}:\n{seen}"
        );
    }
    let rows = lab.daemon().list()?;
    // With a T1 of five seconds one of them may just be extending its lease.
    let is_held = |row: &serde_json::Value| {
        ["BOUND", "RENEWING"]
            .iter()
            .any(|state| row["state"] == *state)
    };
    assert!(rows.len() == 3 && rows.iter().all(is_held), "{rows:?}");
    let refused = docker.run(
        &theirs,
        "aux",
        RunPlan {
            address: Some(aux),
            ..RunPlan::default()
        },
    );
    assert!(
        refused.is_err_and(|error| error.to_string().contains("reserved")),
        "it is reserved still"
    );

    // All of them go on to their end, and so does the network.
    docker.join_wired(&late)?;
    let new = docker.run_wired(&ours, "new", None)?;
    let ping = ["ping", "-c", "1", "-W", "10", &Lan::SERVER.to_string()];
    for container in [
        &web.container,
        &db.container,
        &late.container,
        &new.container,
    ] {
        container.netns.run_command("busybox", &ping, "")?;
    }
    docker.stop(web)?;
    [&db, &late, &new]
        .into_iter()
        .try_for_each(|wired| docker.stop_wired(wired))?;
    server.wait_until_free()?;
    lab.daemon().wait_until_empty()?;
    for wired in [&db, &late, &new] {
        // Its link is left.
        assert!(lab.lan.host.index(&wired.link_name()).is_err());
    }
    docker.unwire(&ours)?;
    docker.network_rm(theirs)
}
