//! Our network driver without what most LANs have: a router, or addresses from DHCP.

use netns_fixtures::server::{Dnsmasq, DnsmasqConfig, Grants};
use netns_fixtures::{DEADLINE, Error, Lan, sandbox, until_link};

use crate::docker::{Host, LAN, needs, only};

#[test]
fn where_no_router_is_named_docker_adds_none_of_its_own() -> Result<(), Error> {
    let host = Host::new(&sandbox!(&needs()))?;
    // With classless routes, the router does not count (RFC 3442).
    let routes = vec![(
        "192.0.2.0/24".parse().expect("a subnet"),
        [10, 7, 0, 9].into(),
    )];
    let server = Dnsmasq::start(
        &host.lab.lan,
        DnsmasqConfig::from(Grants {
            routes,
            ..Grants::default()
        }),
    )?;
    let before = host.links()?;
    host.wire("lan", &[])?;
    host.docker.keep("web", &LAN)?;
    let address = host.address("web")?;
    host.pings("web")?;
    let routes = until_link(
        &host.docker.netns("web")?,
        "the lease's route",
        DEADLINE,
        || {
            let routes = host.docker.exec("web", &["ip", "route"])?;
            Ok(routes
                .contains("192.0.2.0/24 via 10.7.0.9")
                .then_some(routes))
        },
    )?;
    assert!(!routes.contains("default"), "{routes}");
    only(&server, &[address])?;
    // It would use docker_gwbridge.
    host.only_links(&before)?;
    host.docker.docker(&["rm", "--force", "web"])?;
    server.wait_until_free()
}

#[test]
fn addresses_of_dockers_own_are_put_on_without_dhcp() -> Result<(), Error> {
    let mut host = Host::new(&sandbox!(&needs()))?;
    let _server = Dnsmasq::start(&host.lab.lan, DnsmasqConfig::default())?;
    let before = host.links()?;
    let parent = format!("parent={}", Lan::IFNAME);
    // The LAN's own subnet, so that the server can be pinged.
    host.wire_on(
        &parent,
        "lan",
        &[
            "-o",
            "addresses=docker",
            "--subnet",
            "10.7.0.0/16",
            "--ip-range",
            "10.7.9.0/24",
        ],
    )?;
    host.docker.keep("web", &LAN)?;
    assert_eq!(host.address("web")?.octets()[..3], [10, 7, 9]);
    host.pings("web")?;
    host.docker.docker(&["restart", "-t", "0", "web"])?;
    host.pings("web")?;
    host.docker.docker(&["rm", "--force", "web"])?;
    host.docker.docker(&["network", "rm", "lan"])?;
    host.only_links(&before)?;
    host.lab.daemon().wait_until_empty()?;
    let said = host.seen.dhcp()?;
    assert!(said.is_empty(), "{said:?}");
    Ok(())
}
