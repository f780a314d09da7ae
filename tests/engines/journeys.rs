//! What users do to containers on our network driver from day to day.

use std::net::Ipv4Addr;

use netns_fixtures::model::{Config, Kind};
use netns_fixtures::server::{Dnsmasq, DnsmasqConfig, Grants, ModelServer};
use netns_fixtures::{DEADLINE, Error, Lan, sandbox};

use crate::docker::{Host, LAN, MAC, needs, only};

/// A container with its own Ethernet address whose first process fails when it is told to end.
const CRASHES: &str = "trap 'exit 1' TERM; while :; do /bin/busybox sleep 0.1; done";

#[test]
fn a_crashed_container_restarts_with_its_address() -> Result<(), Error> {
    let host = Host::new(&sandbox!(&needs()))?;
    let server = Dnsmasq::start(&host.lab.lan, DnsmasqConfig::default())?;
    host.wire("lan", &["-o", "grace=20"])?;
    let how = [
        "run",
        "--detach",
        "--name",
        "web",
        "--restart",
        "always",
        "--mac-address",
        MAC,
    ];
    host.docker
        .docker(&[&how[..], &LAN, &["busybox", "/bin/sh", "-c", CRASHES]].concat())?;
    let address = host.address("web")?;
    host.docker.exec("web", &["kill", "1"])?;
    host.docker.wait_until(
        "web",
        "{{.RestartCount}} {{.State.Running}} {{.State.Restarting}}",
        "1 true false",
    )?;
    assert_eq!(host.address("web")?, address);
    host.pings("web")?;
    only(&server, &[address])?;
    host.docker.docker(&["rm", "--force", "web"]).map(drop)
}

#[test]
fn a_stopped_or_disconnected_container_can_come_back() -> Result<(), Error> {
    let host = Host::new(&sandbox!(&needs()))?;
    let server = Dnsmasq::start(&host.lab.lan, DnsmasqConfig::default())?;
    let before = host.links()?;
    host.wire("lan", &["-o", "grace=20"])?;
    host.docker
        .keep("web", &[&LAN[..], &["--mac-address", MAC]].concat())?;
    let address = host.address("web")?;
    host.docker.docker(&["stop", "web"])?;
    host.only_links(&before)?;
    only(&server, &[address])?;
    host.docker.docker(&["start", "web"])?;
    assert_eq!(host.address("web")?, address);
    host.pings("web")?;

    // This Docker forgets the Ethernet address with the network: it is another client from then on.
    host.docker
        .docker(&["network", "disconnect", "lan", "web"])?;
    host.only_links(&before)?;
    host.docker.docker(&["network", "connect", "lan", "web"])?;
    let next = host.docker.address("web", "lan")?;
    let inside = host.docker.exec("web", &["ip", "-4", "addr"])?;
    assert!(inside.contains(&format!("inet {next}/16 ")), "{inside}");
    host.pings("web")?;
    host.docker.docker(&["rm", "--force", "web"])?;
    host.only_links(&before)
}

#[test]
fn a_paused_container_keeps_its_lease() -> Result<(), Error> {
    let mut host = Host::new(&sandbox!(&needs()))?;
    let server = ModelServer::start(&host.lab.lan, Config::new(Lan::SUBNET).lasting(20))?;
    host.wire("lan", &[])?;
    host.docker.keep("web", &LAN)?;
    let address = host.address("web")?;
    host.docker.docker(&["pause", "web"])?;
    for _ in 0..2 {
        let renewal = host
            .seen
            .wait_for_dhcp(Kind::Request, DEADLINE, |m| m.ciaddr == address)?;
        assert!(
            renewal.is_unicast() && renewal.source == address,
            "{renewal:?}"
        );
    }
    host.docker.docker(&["unpause", "web"])?;
    assert_eq!(host.address("web")?, address);
    host.pings("web")?;
    host.docker.docker(&["rm", "--force", "web"])?;
    host.seen.wait_for_release(address, DEADLINE)?;
    assert_eq!(server.violations(), []);
    Ok(())
}

#[test]
fn a_container_gets_an_address_once_the_pool_has_one() -> Result<(), Error> {
    let host = Host::new(&sandbox!(&needs()))?;
    let only_one = Ipv4Addr::new(10, 7, 1, 1);
    let config = DnsmasqConfig {
        pool: only_one..=only_one,
        ..DnsmasqConfig::default()
    };
    let server = Dnsmasq::start(&host.lab.lan, config)?;
    let before = host.links()?;
    host.wire("lan", &["-o", "timeout=2"])?;
    host.docker.keep("web", &LAN)?;
    let error = host
        .docker
        .run(&LAN, &["true"])
        .expect_err("the only address is taken")
        .to_string();
    assert!(error.contains("no usable DHCP offer"), "{error}");
    host.only_links(&before)?;
    only(&server, &[only_one])?;
    host.docker.docker(&["rm", "--force", "web"])?;
    server.wait_until_free()?;
    host.docker.keep("db", &LAN)?;
    assert_eq!(host.address("db")?, only_one);
    host.docker.docker(&["rm", "--force", "db"])?;
    host.only_links(&before)
}

#[test]
fn a_denied_server_gives_containers_nothing() -> Result<(), Error> {
    let host = Host::new(&sandbox!(&needs()))?;
    let other = Ipv4Addr::new(10, 7, 0, 3);
    let pool = Ipv4Addr::new(10, 7, 9, 0)..=Ipv4Addr::new(10, 7, 9, 255);
    let rogue = Dnsmasq::start_in(
        &host.lab.lan.machine("rogue", other)?,
        Grants {
            pool,
            ..Grants::default()
        },
    )?;
    let server = Dnsmasq::start(&host.lab.lan, DnsmasqConfig::default())?;
    for option in [
        format!("servers-deny={other}"),
        format!("servers-allow={}", Lan::SERVER),
    ] {
        host.wire("lan", &["-o", &option])?;
        for name in ["web", "db"] {
            host.docker.keep(name, &LAN)?;
            host.pings(name)?;
        }
        only(&server, &[host.address("web")?, host.address("db")?])?;
        assert_eq!(rogue.leases()?, [], "{option}");
        host.docker.docker(&["rm", "--force", "web", "db"])?;
        server.wait_until_free()?;
        host.docker.docker(&["network", "rm", "lan"])?;
    }
    Ok(())
}

#[test]
fn a_client_identifier_gets_its_reserved_address() -> Result<(), Error> {
    let host = Host::new(&sandbox!(&needs()))?;
    let mut config = DnsmasqConfig::default();
    config
        .more
        .push("--dhcp-host=id:00:70:72:69:6e:74,10.7.9.33".to_owned());
    let server = Dnsmasq::start(&host.lab.lan, config)?;
    host.wire(
        "lan",
        &["-o", "client-id=hex:007072696e74", "-o", "grace=0"],
    )?;
    host.docker.keep("web", &LAN)?;
    let address = host.address("web")?;
    assert_eq!(address, Ipv4Addr::new(10, 7, 9, 33));
    only(&server, &[address])?;
    host.docker.docker(&["rm", "--force", "web"])?;
    server.wait_until_free()
}
