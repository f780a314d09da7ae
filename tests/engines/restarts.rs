//! dockerd and our daemon end in all ways and start again: a container keeps its address, and nobody else gets it.

use std::net::Ipv4Addr;
use std::thread;
use std::time::Duration;

use netns_fixtures::model::{Kind, code};
use netns_fixtures::server::{Dnsmasq, DnsmasqConfig};
use netns_fixtures::{DEADLINE, Error, Need, sandbox, until_link};

use crate::docker::{Host, LAN, MAC, kill_in, needs, only};

/// A container that Docker restarts and that has its own identity.
const STAYS: [&str; 6] = [
    "--network",
    "lan",
    "--restart",
    "always",
    "--mac-address",
    MAC,
];

#[test]
fn containers_keep_their_leases_while_dockerd_restarts() -> Result<(), Error> {
    let sandbox = sandbox!(&needs());
    let mut host = Host::new(&sandbox)?;
    let server = Dnsmasq::start(&host.lab.lan, DnsmasqConfig::default())?;
    host.docker.stop()?;
    host.docker.launch(&["--live-restore"])?;
    host.create(&[])?;
    host.docker.keep("web", &LAN)?;
    let address = host.address("web")?;
    host.seen.clear()?;
    host.docker.stop()?;
    host.docker.launch(&["--live-restore"])?;
    assert_eq!(host.address("web")?, address);
    host.docker.kill9()?;
    host.docker.launch(&["--live-restore"])?;
    assert_eq!(host.address("web")?, address);
    host.pings("web")?;
    host.only_renewals()?;
    only(&server, &[address])?;
    // The network goes on, too.
    host.docker.keep("db", &LAN)?;
    only(&server, &[address, host.address("db")?])?;
    host.docker.docker(&["rm", "--force", "web", "db"])?;
    server.wait_until_free()
}

#[test]
fn containers_restarted_by_dockerd_keep_their_addresses() -> Result<(), Error> {
    let sandbox = sandbox!(&needs());
    let mut host = Host::new(&sandbox)?;
    let server = Dnsmasq::start(&host.lab.lan, DnsmasqConfig::default())?;
    host.create_with_grace("20", &[])?;
    host.docker.keep("web", &STAYS)?;
    let address = host.address("web")?;
    host.docker.stop()?;
    host.docker.launch(&[])?;
    assert_eq!(host.address("web")?, address, "after its end");
    host.docker.kill9()?;
    host.docker.launch(&[])?;
    assert_eq!(host.address("web")?, address, "after SIGKILL");
    only(&server, &[address])?;
    host.docker.docker(&["rm", "--force", "web"])?;
    server.wait_until_free()
}

#[test]
fn containers_go_on_and_end_while_our_daemon_is_away() -> Result<(), Error> {
    let sandbox = sandbox!(&needs());
    let mut host = Host::new(&sandbox)?;
    let server = Dnsmasq::start(&host.lab.lan, DnsmasqConfig::default())?;
    host.create(&[])?;
    host.docker.keep("web", &LAN)?;
    host.docker.keep("db", &LAN)?;
    let (web, db) = (host.address("web")?, host.address("db")?);
    host.lab.kill9()?;
    // It ends unheard: dockerd asks again until somebody answers.
    let inside = host.docker.netns("web")?;
    thread::scope(|scope| {
        let kill = scope.spawn(|| host.docker.docker(&["kill", "web"]));
        until_link(&inside, "end of the interface", DEADLINE, || {
            Ok(inside.index("eth0").err().map(drop))
        })?;
        host.lab.start_daemon()?;
        kill.join().expect("a caller does not panic").map(drop)
    })?;
    drop(inside);
    only(&server, &[db])?;
    assert_eq!(host.address("db")?, db);
    host.docker.docker(&["start", "web"])?;
    let next = host.address("web")?;
    only(&server, &[db, next])?;
    assert!(
        server
            .leases()?
            .iter()
            .all(|lease| lease.address != web || next == web)
    );
    host.docker.docker(&["rm", "--force", "web", "db"])?;
    server.wait_until_free()?;
    host.lab.daemon().wait_until_empty()
}

/// The container's identity stays but its Ethernet address does not, as where servers know it by its name (Docker 29 and later).
#[test]
fn a_container_that_ended_unheard_blocks_no_successor() -> Result<(), Error> {
    let sandbox = sandbox!(&needs());
    let mut host = Host::new(&sandbox)?;
    let server = Dnsmasq::start(&host.lab.lan, DnsmasqConfig::default())?;
    host.create(&["--ipam-opt", "client-id=text:web"])?;
    host.docker.keep("web", &LAN)?;
    let address = host.address("web")?;
    host.lab.kill9()?;
    host.docker.docker(&["kill", "web"])?;
    host.docker.wait_for_line("Failed to release ip address")?;
    host.lab.start_daemon()?;
    host.docker.docker(&["start", "web"])?;
    assert_eq!(host.address("web")?, address);
    host.pings("web")?;
    only(&server, &[address])?;
    host.docker.docker(&["rm", "--force", "web"])?;
    server.wait_until_free()
}

#[test]
fn containers_have_their_addresses_after_a_power_loss() -> Result<(), Error> {
    let sandbox = sandbox!(&needs());
    let mut host = Host::new(&sandbox)?;
    let server = Dnsmasq::start(&host.lab.lan, DnsmasqConfig::default())?;
    // dockerd gives back what it believes its containers had before it starts them.
    host.create_with_grace("20", &[])?;
    host.docker.keep("web", &STAYS)?;
    let address = host.address("web")?;
    host.docker.lose_power()?;
    host.lab.lose_power()?;
    host.seen.clear()?;
    host.lab.start_daemon()?;
    host.docker.launch(&[])?;
    assert_eq!(host.address("web")?, address);
    host.pings("web")?;
    let asked = host.seen.wait_for_dhcp(Kind::Request, DEADLINE, |_| true)?;
    assert_eq!(
        (asked.ciaddr, asked.option(code::SERVER)),
        (Ipv4Addr::UNSPECIFIED, None),
        "INIT-REBOOT: {asked:?}"
    );
    only(&server, &[address])?;
    host.docker.docker(&["rm", "--force", "web"])?;
    server.wait_until_free()
}

#[test]
fn a_dockerd_killed_in_a_request_leaves_no_lease() -> Result<(), Error> {
    let sandbox = sandbox!(&[needs(), vec![Need::Program("nft")]].concat());
    let mut host = Host::new(&sandbox)?;
    let server = Dnsmasq::start(&host.lab.lan, DnsmasqConfig::default())?;
    host.create(&[])?;
    server.lose_acks()?;
    let (docker, seen) = (&host.docker, &mut host.seen);
    let chosen = || {
        seen.wait_for_dhcp(Kind::Request, DEADLINE, |m| {
            m.address_option(code::REQUESTED).is_some()
        })
        .map(drop)
    };
    kill_in(docker, || docker.keep("web", &LAN), chosen)?;
    server.wait_until_free()?;
    host.lab.daemon().wait_until_empty()
}

/// dockerd waits for all of them before it serves, and does not try again.
#[test]
fn a_host_starts_its_containers_without_a_server() -> Result<(), Error> {
    let sandbox = sandbox!(&needs());
    let mut host = Host::new(&sandbox)?;
    let mut server = Dnsmasq::start(&host.lab.lan, DnsmasqConfig::default())?;
    host.create_with_grace("3600", &[])?;
    let names = (0..10).map(|n| format!("web-{n}"));
    let mut before = Vec::new();
    for (name, mac) in names.zip((16..).map(|n| format!("02:42:c0:ff:ee:{n:02x}"))) {
        host.docker.keep(
            &name,
            &[&LAN[..], &["--restart", "always", "--mac-address", &mac]].concat(),
        )?;
        before.push((host.address(&name)?, name));
    }
    host.docker.stop()?;
    server.stop()?;
    // Each takes the four seconds after which a server counts as silent.
    host.docker
        .launch_within(Duration::from_secs(60) + DEADLINE, &[])?;
    for (address, name) in &before {
        assert_eq!(host.address(name)?, *address, "{name}");
    }
    server.restart(None)?;
    only(
        &server,
        &before
            .iter()
            .map(|(address, _)| *address)
            .collect::<Vec<_>>(),
    )
}
