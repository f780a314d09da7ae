//! dockerd and our daemon end in all ways under containers on our own network driver, and no link is left.

use std::net::Ipv4Addr;
use std::time::Duration;

use netns_fixtures::model::{Kind, code};
use netns_fixtures::server::{Dnsmasq, DnsmasqConfig, Grants};
use netns_fixtures::{DEADLINE, Error, Need, sandbox, until_link};

use crate::docker::{Host, LAN, MAC, kill_in, needs, only};
use crate::network::{FORMS, links};

/// How long Docker may stay silent about what it has forgotten.
pub(crate) const UNSAID: Duration = Duration::from_secs(60);

#[test]
fn containers_keep_their_links_while_dockerd_restarts() -> Result<(), Error> {
    let mut host = Host::new(&sandbox!(&needs()))?;
    let server = Dnsmasq::start(&host.lab.lan, DnsmasqConfig::default())?;
    let before = host.links()?;
    host.docker.stop()?;
    host.docker.launch(&["--live-restore"])?;
    host.wire("lan", &["-o", "grace=0"])?;
    host.docker.keep("web", &LAN)?;
    let address = host.address("web")?;
    host.seen.clear()?;
    host.docker.kill9()?;
    host.lab.kill9()?;
    host.lab.start_daemon()?;
    host.docker.launch(&["--live-restore"])?;
    assert_eq!(host.address("web")?, address);
    host.pings("web")?;
    host.only_renewals()?;
    only(&server, &[address])?;
    // The network goes on, though nobody told either of it again.
    host.docker.keep("db", &LAN)?;
    only(&server, &[address, host.address("db")?])?;
    host.docker.docker(&["rm", "--force", "web", "db"])?;
    server.wait_until_free()?;
    host.lab.daemon().wait_until_empty()?;
    host.only_links(&before)
}

/// dockerd finds a container's interface by the address that it knows, and leaves an interface with another address in the
/// container.
#[test]
fn a_released_address_is_off_what_dockerd_left_inside() -> Result<(), Error> {
    let mut host = Host::new(&sandbox!(&needs()))?;
    let timers = Some((Duration::from_secs(4), Duration::from_secs(8)));
    let grants = |last| Grants {
        pool: Ipv4Addr::new(10, 7, last, 1)..=Ipv4Addr::new(10, 7, last, 99),
        lease_time: Duration::from_secs(120),
        timers,
        ..Grants::default()
    };
    let mut server = Dnsmasq::start(&host.lab.lan, DnsmasqConfig::from(grants(1)))?;
    host.docker.stop()?;
    host.docker.launch(&["--live-restore"])?;
    host.wire("ours", &["-o", "grace=0"])?;
    host.create(&[])?;
    for (last, network) in [(2, "ours"), (3, "lan")] {
        host.docker.keep("web", &["--network", network])?;
        let inside = host.docker.netns("web")?;
        server.restart(Some(grants(last).into()))?;
        until_link(&inside, "the next address", DEADLINE, || {
            let addresses = inside.addresses("eth0")?;
            Ok((addresses.len() == 1 && addresses[0].addr().octets()[2] == last).then_some(()))
        })?;
        host.docker.kill9()?;
        host.docker.launch(&["--live-restore"])?;
        host.docker
            .docker(&["network", "disconnect", network, "web"])?;
        server.wait_until_free()?;
        // Under its name no other interface could come.
        until_link(&inside, "the interface out of the way", DEADLINE, || {
            Ok((!links(&inside)?.contains("eth0")).then_some(()))
        })?;
        host.docker
            .docker(&["network", "connect", network, "web"])?;
        host.pings("web")?;
        host.docker.docker(&["rm", "--force", "web"])?;
        host.lab.daemon().wait_until_empty()?;
    }
    Ok(())
}

/// With our network driver, and with Docker's own.
#[test]
fn a_chosen_mac_keeps_its_address_when_dockerd_is_killed() -> Result<(), Error> {
    let mut host = Host::new(&sandbox!(&needs()))?;
    let server = Dnsmasq::start(&host.lab.lan, DnsmasqConfig::default())?;
    let before = host.links()?;
    for ours in [true, false] {
        if ours {
            host.wire("lan", &["-o", "grace=20"])?;
        } else {
            host.create_with_grace("20", &[])?;
        }
        let web = stays(&host, "web", "lan", MAC)?;
        host.docker.keep("db", &LAN)?;
        assert_ne!(web, host.address("db")?);
        host.docker.kill9()?;
        host.docker.launch(&[])?;
        assert_eq!(host.address("web")?, web, "ours: {ours}");
        host.pings("web")?;
        // The other's container is gone, and dockerd may never say so.
        server.wait_for("the end of what ran", UNSAID + DEADLINE, |leases| {
            let held: Vec<_> = leases
                .iter()
                .filter(|lease| lease.held)
                .map(|lease| lease.address)
                .collect();
            (held == [web]).then_some(())
        })?;
        host.docker.docker(&["rm", "--force", "web", "db"])?;
        server.wait_until_free()?;
        host.only_links(&before)?;
        host.lab.daemon().wait_until_empty()?;
        host.docker.docker(&["network", "rm", "lan"])?;
    }
    Ok(())
}

#[test]
fn a_restarted_daemon_hears_of_a_containers_end() -> Result<(), Error> {
    let mut host = Host::new(&sandbox!(&needs()))?;
    let server = Dnsmasq::start(&host.lab.lan, DnsmasqConfig::default())?;
    let before = host.links()?;
    host.wire("lan", &["-o", "grace=0"])?;
    host.docker.keep("web", &LAN)?;
    let address = host.address("web")?;
    host.lab.kill9()?;
    host.lab.start_daemon()?;
    host.docker.docker(&["restart", "web"])?;
    host.pings("web")?;
    only(&server, &[host.address("web")?])?;
    host.docker.docker(&["rm", "--force", "web"])?;
    host.seen.wait_for_release(address, DEADLINE)?;
    server.wait_until_free()?;
    host.lab.daemon().wait_until_empty()?;
    host.only_links(&before)?;
    host.docker.docker(&["network", "rm", "lan"]).map(drop)
}

#[test]
fn a_dockerd_killed_as_it_makes_a_link_leaves_none() -> Result<(), Error> {
    let mut host = Host::new(&sandbox!(&[needs(), vec![Need::Program("nft")]].concat()))?;
    let server = Dnsmasq::start(&host.lab.lan, DnsmasqConfig::default())?;
    let before = host.links()?;
    host.wire("lan", &["-o", "grace=0"])?;
    // In the exchange with the server, whose answer does not come.
    server.lose_acks()?;
    let (docker, seen) = (&host.docker, &mut host.seen);
    let chosen = || {
        seen.wait_for_dhcp(Kind::Request, DEADLINE, |_| true)
            .map(drop)
    };
    kill_in(docker, || docker.keep("web", &LAN), chosen)?;
    server.wait_until_free()?;
    host.lab.daemon().wait_until_empty()?;
    host.only_links(&before)?;
    host.lab.lan.server.sh("nft delete table ip wall")?;

    // When the link is there; dockerd may have heard about it or not.
    host.docker.kill9()?;
    host.docker.launch(&[])?;
    let docker = &host.docker;
    let new = || {
        Ok(host
            .links()?
            .iter()
            .any(|name| name.starts_with("lh"))
            .then_some(()))
    };
    let made = || until_link(&host.lab.lan.host, "the endpoint's link", DEADLINE, new);
    kill_in(docker, || docker.keep("db", &LAN), made)?;
    host.docker.kill9()?;
    host.docker.launch(&[])?;
    // Without a container it asks no driver, and so does not show that it has started.
    host.docker.docker(&["volume", "ls"])?;
    let as_before = || Ok((host.links()? == before).then_some(()));
    until_link(
        &host.lab.lan.host,
        "the links of the host as they were",
        UNSAID + DEADLINE,
        as_before,
    )?;
    server.wait_for("the end of every lease", UNSAID + DEADLINE, |leases| {
        leases.iter().all(|lease| !lease.held).then_some(())
    })?;
    host.lab.daemon().wait_until_empty()?;
    host.docker.keep("again", &LAN)?;
    host.address("again")?;
    host.pings("again")
}

/// Names for a network of each form.
const BOTH: [(&str, &str); 2] = [("lan", FORMS[0]), ("other", FORMS[1])];

/// Starts a container that Docker restarts and that has its own identity, and returns its address.
fn stays(host: &Host, name: &str, network: &str, mac: &str) -> Result<Ipv4Addr, Error> {
    host.docker.keep(
        name,
        &[
            "--network",
            network,
            "--restart",
            "always",
            "--mac-address",
            mac,
        ],
    )?;
    host.docker.address(name, network)
}

#[test]
fn containers_on_our_links_survive_a_power_loss() -> Result<(), Error> {
    let mut host = Host::new(&sandbox!(&needs()))?;
    let server = Dnsmasq::start(&host.lab.lan, DnsmasqConfig::default())?;
    let before = host.links()?;
    let mut containers = Vec::new();
    for (n, (network, form)) in BOTH.into_iter().enumerate() {
        host.wire_as(form, network, &["grace=20"])?;
        let name = format!("web-{n}");
        let address = stays(&host, &name, network, &format!("02:42:c0:ff:ee:{n:02x}"))?;
        containers.push((name, network, address));
    }
    host.docker.lose_power()?;
    host.lab.lose_power()?;
    host.seen.clear()?;
    host.lab.start_daemon()?;
    host.docker.launch(&[])?;
    for (name, network, address) in &containers {
        assert_eq!(host.docker.address(name, network)?, *address, "{network}");
        host.pings(name)?;
        host.seen
            .rewind()
            .wait_for_dhcp(Kind::Request, DEADLINE, |m| {
                // INIT-REBOOT
                m.address(code::REQUESTED) == Some(*address) && m.option(code::SERVER).is_none()
            })?;
    }
    only(
        &server,
        &containers
            .iter()
            .map(|(.., address)| *address)
            .collect::<Vec<_>>(),
    )?;
    host.docker.docker(&["rm", "--force", "web-0", "web-1"])?;
    server.wait_until_free()?;
    host.only_links(&before)
}

/// dockerd waits for all of them before it serves, and does not try again.
#[test]
fn containers_on_our_links_start_without_a_server() -> Result<(), Error> {
    let mut host = Host::new(&sandbox!(&needs()))?;
    let mut server = Dnsmasq::start(&host.lab.lan, DnsmasqConfig::default())?;
    let mut before = Vec::new();
    for (network, form) in BOTH {
        host.wire_as(form, network, &["grace=3600"])?;
        for n in 0..5 {
            let name = format!("{network}-{n}");
            let mac = format!("02:42:c0:ff:{:02x}:{n:02x}", network.len());
            before.push((stays(&host, &name, network, &mac)?, name, network));
        }
    }
    host.docker.stop()?;
    server.stop()?;
    // Each takes the four seconds after which a server counts as silent.
    host.docker
        .launch_within(Duration::from_secs(60) + DEADLINE, &[])?;
    for (address, name, network) in &before {
        assert_eq!(host.docker.address(name, network)?, *address, "{name}");
        let inside = host
            .docker
            .exec(name, &["ip", "-4", "addr", "show", "dev", "eth0"])?;
        assert!(inside.contains(&format!("inet {address}/16 ")), "{inside}");
    }
    server.restart(None)?;
    only(
        &server,
        &before
            .iter()
            .map(|(address, ..)| *address)
            .collect::<Vec<_>>(),
    )
}
