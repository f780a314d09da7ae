//! A container on two LANs, each with its own server. Docker chooses which of them its default route uses.

use std::net::Ipv4Addr;

use netns_fixtures::server::{Dnsmasq, DnsmasqConfig, Grants};
use netns_fixtures::{DEADLINE, Dockerd, Error, Lan, sandbox, until_link};

use crate::docker::{Host, LAN, needs, only};

/// A LAN as a container sees it.
struct Side {
    network: &'static str,
    /// The container's interface there.
    ifname: &'static str,
    /// The router, which is also the server.
    router: Ipv4Addr,
    subnet: &'static str,
    server: Dnsmasq,
}

impl Side {
    fn first(host: &Host) -> Result<Self, Error> {
        let server = Dnsmasq::start(&host.lab.lan, DnsmasqConfig::default())?;
        Ok(Self {
            network: "lan",
            ifname: "eth0",
            router: Lan::SERVER,
            subnet: "10.7.0.0/16",
            server,
        })
    }

    fn second(host: &Host, network: &'static str) -> Result<Self, Error> {
        let pool = Ipv4Addr::new(10, 8, 1, 0)..=Ipv4Addr::new(10, 8, 1, 255);
        let grants = Grants {
            pool,
            router: Lan::SECOND_SERVER,
            ..Grants::default()
        };
        let server = Dnsmasq::start_in(&host.lab.lan.add_second()?, grants)?;
        Ok(Self {
            network,
            ifname: "eth1",
            router: Lan::SECOND_SERVER,
            subnet: "10.8.0.0/16",
            server,
        })
    }

    /// Checks that the container's address there is the only one that its server has leased, and that it reaches its router.
    /// Returns the address.
    fn reached(&self, host: &Host) -> Result<Ipv4Addr, Error> {
        let address = host.docker.address("web", self.network)?;
        let inside = host
            .docker
            .exec("web", &["ip", "-4", "addr", "show", "dev", self.ifname])?;
        assert!(inside.contains(&format!("inet {address}/16 ")), "{inside}");
        host.docker.ping("web", self.router)?;
        only(&self.server, &[address])?;
        Ok(address)
    }

    /// Returns the route that the kernel adds with an address.
    fn own_route(&self, address: Ipv4Addr) -> String {
        format!(
            "{} dev {} scope link  src {address}",
            self.subnet, self.ifname
        )
    }

    fn default_route(&self) -> String {
        format!("default via {} dev {}", self.router, self.ifname)
    }
}

/// Waits until this many leases have found their interfaces, so that everything is on them.
fn found(host: &Host, count: usize) -> Result<(), Error> {
    until_link(
        &host.docker.netns("web")?,
        "each lease inside",
        DEADLINE,
        || {
            let rows = host.lab.daemon().list()?;
            let inside = rows
                .iter()
                .filter(|row| row.to_string().contains(Dockerd::NETNS))
                .count();
            Ok((inside == count && rows.len() == count).then_some(()))
        },
    )
}

/// Returns a container's routes, sorted as text.
fn routes(host: &Host) -> Result<Vec<String>, Error> {
    let printed = host.docker.exec("web", &["ip", "route"])?;
    let mut routes: Vec<_> = printed.lines().map(|line| line.trim().to_owned()).collect();
    routes.sort();
    Ok(routes)
}

/// Checks a container on both LANs. Docker prefers the first of its networks by name. `second` is the second LAN's name.
fn lives(
    second: &'static str,
    make: impl Fn(&Host, &str, &Side) -> Result<(), Error>,
) -> Result<(), Error> {
    let host = Host::new(&sandbox!(&needs()))?;
    let (first, second) = (Side::first(&host)?, Side::second(&host, second)?);
    let before = host.links()?;
    make(&host, Lan::IFNAME, &first)?;
    make(&host, Lan::SECOND_IFNAME, &second)?;
    host.docker.keep("web", &LAN)?;
    host.docker
        .docker(&["network", "connect", second.network, "web"])?;
    let (one, two) = (first.reached(&host)?, second.reached(&host)?);
    found(&host, 2)?;
    let chosen = if first.network < second.network {
        &first
    } else {
        &second
    };
    assert_eq!(
        routes(&host)?,
        [
            first.own_route(one),
            second.own_route(two),
            chosen.default_route()
        ]
    );

    // The network with the default route goes, and Docker chooses the other.
    let (gone, stays, address) = if chosen.network == first.network {
        (&first, &second, two)
    } else {
        (&second, &first, one)
    };
    host.docker
        .docker(&["network", "disconnect", gone.network, "web"])?;
    only(&gone.server, &[])?;
    found(&host, 1)?;
    assert_eq!(stays.reached(&host)?, address);
    let seen = routes(&host)?;
    assert_eq!(seen, [stays.own_route(address), stays.default_route()]);
    host.docker.docker(&["rm", "--force", "web"])?;
    stays.server.wait_until_free()?;
    host.lab.daemon().wait_until_empty()?;
    host.docker
        .docker(&["network", "rm", first.network, second.network])?;
    host.only_links(&before)
}

/// Makes a network of our driver.
fn of_our_own(host: &Host, parent: &str, side: &Side) -> Result<(), Error> {
    host.wire_on(
        &format!("parent={parent}"),
        side.network,
        &["--ipam-driver", "null", "-o", "grace=0"],
    )
}

/// Makes a network of Docker's macvlan driver, with our addresses.
fn of_dockers(host: &Host, parent: &str, side: &Side) -> Result<(), Error> {
    host.create_on(
        parent,
        side.network,
        &["--subnet", side.subnet, "--ipam-opt", "grace=0"],
    )
}

#[test]
fn a_second_lan_leaves_the_default_route_as_it_was() -> Result<(), Error> {
    lives("other", of_our_own)
}

#[test]
fn a_second_lan_gets_the_default_route_if_docker_prefers() -> Result<(), Error> {
    lives("again", of_our_own)
}

#[test]
fn two_lans_over_dockers_macvlan_give_one_default_route() -> Result<(), Error> {
    lives("other", of_dockers)
}

/// Docker's own network comes after the LAN's by name, and its subnet lies within a route of the LAN. Both LANs name that route.
#[test]
fn overlapping_routes_keep_no_container_from_starting() -> Result<(), Error> {
    let host = Host::new(&sandbox!(&needs()))?;
    let far = |by| {
        vec![
            ("0.0.0.0/0".parse().expect("a subnet"), by),
            ("172.16.0.0/12".parse().expect("a subnet"), by),
        ]
    };
    let first = Grants {
        routes: far(Lan::SERVER),
        ..Grants::default()
    };
    let _first = Dnsmasq::start(&host.lab.lan, DnsmasqConfig::from(first))?;
    let pool = Ipv4Addr::new(10, 8, 1, 0)..=Ipv4Addr::new(10, 8, 1, 255);
    let second = Grants {
        pool,
        router: Lan::SECOND_SERVER,
        routes: far(Lan::SECOND_SERVER),
        ..Grants::default()
    };
    let _second = Dnsmasq::start_in(&host.lab.lan.add_second()?, second)?;
    for (parent, name) in [(Lan::IFNAME, "a-lan"), (Lan::SECOND_IFNAME, "b-lan")] {
        host.wire_on(
            &format!("parent={parent}"),
            name,
            &["--ipam-driver", "null", "-o", "grace=0"],
        )?;
    }
    host.docker
        .docker(&["network", "create", "--subnet", "172.20.0.0/24", "c-inner"])?;
    host.docker.keep("web", &["--network", "a-lan"])?;
    host.docker.docker(&["stop", "web"])?;
    ["b-lan", "c-inner"].iter().try_for_each(|name| {
        host.docker
            .docker(&["network", "connect", name, "web"])
            .map(drop)
    })?;
    for _ in 0..3 {
        host.docker.docker(&["start", "web"])?;
        let routed = |line: &String| line.starts_with("172.16.0.0/12 via 10.");
        until_link(
            &host.docker.netns("web")?,
            "the route of one LAN or the other",
            DEADLINE,
            || Ok(routes(&host)?.iter().any(routed).then_some(())),
        )?;
        host.docker.docker(&["stop", "web"])?;
    }
    Ok(())
}

/// Docker prefers the second network, by its name.
#[test]
fn docker_may_move_a_default_route_that_we_changed() -> Result<(), Error> {
    let host = Host::new(&sandbox!(&needs()))?;
    let grants = Grants::lasting(120).renewed(4, 8);
    let mut server = Dnsmasq::start(&host.lab.lan, DnsmasqConfig::from(grants.clone()))?;
    let second = Side::second(&host, "again")?;
    host.wire("lan", &["-o", "grace=0"])?;
    of_our_own(&host, Lan::SECOND_IFNAME, &second)?;
    host.docker.keep("web", &LAN)?;
    let next = Ipv4Addr::from(u32::from(Lan::SERVER) + 1);
    server.restart(Some(
        Grants {
            router: next,
            ..grants
        }
        .into(),
    ))?;
    let by = |router| format!("default via {router} dev eth0");
    let leads_by = |default: &str| {
        until_link(
            &host.docker.netns("web")?,
            "the default route",
            DEADLINE,
            || {
                // The one that counts comes first.
                let printed = host.docker.exec("web", &["ip", "route"])?;
                Ok(printed
                    .lines()
                    .next()
                    .is_some_and(|first| first.starts_with(default))
                    .then_some(()))
            },
        )
    };
    leads_by(&by(next))?;
    host.docker
        .docker(&["network", "connect", second.network, "web"])?;
    leads_by(&second.default_route())?;
    host.docker
        .docker(&["network", "disconnect", second.network, "web"])?;
    // Docker knows about no other.
    leads_by(&by(Lan::SERVER))
}
