//! Docker gets its addresses from us, for its own drivers through our IPAM driver.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::process::Command;
use std::thread;

use leasehold_tests::documents::{DOCKER, commands_of};
use netns_fixtures::model::Kind;
use netns_fixtures::server::{Dnsmasq, DnsmasqConfig, Grants};
use netns_fixtures::{
    Capture, DEADLINE, Dhcp, Dockerd, Error, Lab, Lan, Need, Sandbox, assert_says, mac_text,
    sandbox, until_link,
};

/// The network that containers are in unless said otherwise.
pub(crate) const LAN: [&str; 2] = ["--network", "lan"];
/// A container's own Ethernet address.
pub(crate) const MAC: &str = "02:42:c0:ff:ee:01";

/// A host with Docker, and our daemon as its plugin.
pub(crate) struct Host {
    pub(crate) docker: Dockerd,
    pub(crate) lab: Lab,
    pub(crate) seen: Capture,
}

/// Returns what a test needs.
pub(crate) fn needs() -> Vec<Need> {
    [Dockerd::NEEDS, &[Need::Program("dnsmasq")]].concat()
}

impl Host {
    pub(crate) fn new(sandbox: &Sandbox) -> Result<Self, Error> {
        let lab = Lab::with_docker(sandbox)?;
        let seen = Capture::start(&lab.lan.server, Lan::IFNAME)?;
        Ok(Self {
            docker: Dockerd::start(&lab.lan.host)?,
            lab,
            seen,
        })
    }

    /// Makes the network `lan` of macvlans on the LAN, as a user would. An address is given back at once when its
    /// container ends.
    pub(crate) fn create(&self, more: &[&str]) -> Result<(), Error> {
        self.create_with_grace("0", more)
    }

    /// Does the same for identities that are kept for some seconds.
    pub(crate) fn create_with_grace(&self, grace: &str, more: &[&str]) -> Result<(), Error> {
        let grace = format!("grace={grace}");
        let more = [&["--subnet", "10.7.0.0/16", "--ipam-opt", &grace], more].concat();
        self.create_on(Lan::IFNAME, "lan", &more)
    }

    pub(crate) fn create_on(&self, parent: &str, name: &str, more: &[&str]) -> Result<(), Error> {
        let parent = format!("parent={parent}");
        let driver = ["network", "create", "-d", "macvlan", "-o", &parent];
        let ipam = ["--ipam-driver", "leasehold", "--ipam-opt", &parent];
        self.docker
            .docker(&[&driver[..], &ipam, more, &[name]].concat())
            .map(drop)
    }

    /// Returns the address on a container's interface, once Docker also believes in it.
    pub(crate) fn address(&self, name: &str) -> Result<Ipv4Addr, Error> {
        let address = self.docker.address(name, "lan")?;
        let inside = self
            .docker
            .exec(name, &["ip", "-4", "addr", "show", "dev", "eth0"])?;
        assert!(inside.contains(&format!("inet {address}/16 ")), "{inside}");
        Ok(address)
    }

    /// Returns whether a container reaches the server.
    pub(crate) fn pings(&self, name: &str) -> Result<(), Error> {
        self.docker.ping(name, Lan::SERVER)
    }

    /// Starts ten containers at once, each with its own address, and ends them at once.
    pub(crate) fn ten_come_and_go(&self, server: &Dnsmasq) -> Result<(), Error> {
        let names: Vec<_> = (0..10).map(|n| format!("web-{n}")).collect();
        let all = |call: &(dyn Fn(&str) -> Result<(), Error> + Sync)| {
            thread::scope(|scope| {
                let calls: Vec<_> = names
                    .iter()
                    .map(|name| scope.spawn(move || call(name)))
                    .collect();
                calls
                    .into_iter()
                    .try_for_each(|call| call.join().expect("no caller panics"))
            })
        };
        all(&|name| self.docker.keep(name, &LAN))?;
        let addresses = names
            .iter()
            .map(|name| self.address(name))
            .collect::<Result<Vec<_>, _>>()?;
        let found = addresses.iter().collect::<BTreeSet<_>>().len();
        assert_eq!(found, names.len(), "{addresses:?}");
        all(&|name| self.pings(name))?;
        only(server, &addresses)?;
        all(&|name| self.docker.docker(&["rm", "--force", name]).map(drop))?;
        server.wait_until_free()?;
        self.lab.daemon().wait_until_empty()
    }

    /// Checks that no lease has begun or ended since the capture was cleared.
    pub(crate) fn only_renewals(&mut self) -> Result<(), Error> {
        let is_other = |m: &Dhcp| m.kind != Kind::Request && m.kind != Kind::Ack;
        let said: Vec<_> = self.seen.dhcp()?.into_iter().filter(is_other).collect();
        assert!(said.is_empty(), "{said:?}");
        Ok(())
    }
}

/// Ends dockerd with SIGKILL while it carries out a command, when `inside` returns. Its containers go on.
pub(crate) fn kill_in(
    docker: &Dockerd,
    command: impl FnOnce() -> Result<(), Error> + Send,
    inside: impl FnOnce() -> Result<(), Error>,
) -> Result<(), Error> {
    thread::scope(|scope| {
        let command = scope.spawn(command);
        inside()?;
        let killed = Command::new("kill")
            .args(["-KILL", &docker.id().to_string()])
            .status();
        assert!(killed.is_ok_and(|status| status.success()));
        command
            .join()
            .expect("a caller does not panic")
            .expect_err("nobody is there to answer");
        Ok(())
    })
}

/// Returns the addresses that a server has leased.
fn leased(server: &Dnsmasq) -> Result<BTreeSet<Ipv4Addr>, Error> {
    Ok(server
        .leases()?
        .into_iter()
        .map(|lease| lease.address)
        .collect())
}

/// Waits until a server has leased these addresses and no others.
pub(crate) fn only(server: &Dnsmasq, addresses: &[Ipv4Addr]) -> Result<(), Error> {
    let addresses: BTreeSet<_> = addresses.iter().copied().collect();
    server.wait_for("the leases of what runs", DEADLINE, |_| {
        (leased(server).ok()? == addresses).then_some(())
    })
}

#[test]
fn a_macvlan_container_gets_its_routes_from_the_lan() -> Result<(), Error> {
    let mut host = Host::new(&sandbox!(&needs()))?;
    let to = |subnet: &str| subnet.parse().expect("a subnet");
    let routes = vec![
        (to("0.0.0.0/0"), Lan::SERVER),
        (to("192.0.2.0/24"), [10, 7, 0, 9].into()),
    ];
    let config = Grants {
        routes,
        mtu: Some(1400),
        ..Grants::default()
    };
    let server = Dnsmasq::start(&host.lab.lan, DnsmasqConfig::from(config))?;
    host.create(&[])?;
    host.docker.keep("web", &LAN)?;
    let ack = host.seen.wait_for_dhcp(Kind::Ack, DEADLINE, |_| true)?;
    assert_eq!(host.address("web")?, ack.yiaddr);
    host.pings("web")?;
    // Docker's own at the start, the server's others soon after.
    let routes = host.docker.exec("web", &["ip", "route"])?;
    assert!(routes.contains("default via 10.7.0.1 dev eth0"), "{routes}");
    let inside = host.docker.netns("web")?;
    until_link(
        &inside,
        "the server's route and MTU inside",
        DEADLINE,
        || {
            let seen = inside.run_command("busybox", &["sh", "-c", "ip route; ip link"], "")?;
            Ok(
                (seen.contains("192.0.2.0/24 via 10.7.0.9 dev eth0") && seen.contains("mtu 1400"))
                    .then_some(()),
            )
        },
    )?;
    drop(inside);
    only(&server, &[ack.yiaddr])?;

    host.docker.docker(&["restart", "web"])?;
    let again = host.address("web")?;
    host.pings("web")?;
    only(&server, &[again])?;
    host.docker.docker(&["rm", "--force", "web"])?;
    host.seen.wait_for_release(again, DEADLINE)?;
    server.wait_until_free()?;
    host.lab.daemon().wait_until_empty()?;
    host.docker.docker(&["network", "rm", "lan"])?;
    Ok(())
}

/// By the document's command.
#[test]
fn a_container_on_a_bridge_has_its_address_from_the_lan() -> Result<(), Error> {
    let host = Host::new(&sandbox!(&needs()))?;
    host.lab.lan.add_host_bridge()?;
    let server = Dnsmasq::start(&host.lab.lan, DnsmasqConfig::default())?;
    let printed = commands_of(DOCKER, "## Networks");
    let create = printed.concat().join(" ");
    let create = create
        .replace("192.168.1.0/24", "10.7.0.0/16")
        .replace("192.168.1.1", "10.7.0.1")
        .replace("br7", Lan::BRIDGE);
    host.docker
        .docker(&create.split(' ').skip(1).collect::<Vec<_>>())?;
    host.docker.keep("web", &LAN)?;
    let address = host.address("web")?;
    host.pings("web")?;
    only(&server, &[address])?;
    host.docker.docker(&["rm", "--force", "web"])?;
    server.wait_until_free()?;
    host.docker.docker(&["network", "rm", "lan"])?;
    Ok(())
}

#[test]
fn a_user_chooses_the_address_and_the_ethernet_address() -> Result<(), Error> {
    let mut host = Host::new(&sandbox!(&needs()))?;
    let server = Dnsmasq::start(&host.lab.lan, DnsmasqConfig::default())?;
    host.create(&["--ipam-opt", "hostname=printer", "--ipam-opt", "timeout=5"])?;
    let chosen = Ipv4Addr::new(10, 7, 2, 77);
    host.docker.keep(
        "web",
        &[&LAN[..], &["--mac-address", MAC, "--ip", "10.7.2.77"]].concat(),
    )?;
    let discover = host
        .seen
        .wait_for_dhcp(Kind::Discover, DEADLINE, |m| mac_text(m.chaddr) == MAC)?;
    assert_eq!(discover.option(12), Some(&b"printer"[..]));
    assert_eq!(discover.address(50), Some(chosen));
    assert_eq!(host.address("web")?, chosen);
    let inside = host
        .docker
        .exec("web", &["ip", "link", "show", "dev", "eth0"])?;
    assert!(inside.contains(MAC), "{inside}");
    only(&server, &[chosen])?;

    // An address that this server does not give.
    let error = host
        .docker
        .run(&[&LAN[..], &["--ip", "10.7.9.9"]].concat(), &["true"])
        .expect_err("not its own");
    assert_says(&error, "instead of --ip 10.7.9.9");
    only(&server, &[chosen])
}

#[test]
fn reserved_addresses_are_given_to_no_container() -> Result<(), Error> {
    let host = Host::new(&sandbox!(&needs()))?;
    let one = Ipv4Addr::new(10, 7, 1, 1);
    let config = DnsmasqConfig {
        pool: one..=one,
        ..DnsmasqConfig::default()
    };
    let server = Dnsmasq::start(&host.lab.lan, config)?;
    let unfit = [
        (["--aux-address", "router=10.7.1.1"], ""),
        (["--ip-range", "10.7.2.0/24"], "10.7.2.0/24"),
    ];
    for (options, part) in unfit {
        host.create(&options)?;
        let error = host
            .docker
            .run(&LAN, &["true"])
            .expect_err("the only address is no container's")
            .to_string();
        assert_says(&error, "10.7.1.1");
        assert_says(&error, part);
        server.wait_until_free()?;
        host.docker.docker(&["network", "rm", "lan"])?;
    }
    host.create(&[
        "--ip-range",
        "10.7.1.0/24",
        "--aux-address",
        "router=10.7.9.1",
    ])?;
    host.docker.keep("web", &LAN)?;
    assert_eq!(host.address("web")?, one);
    only(&server, &[one])
}

#[test]
fn a_network_without_a_subnet_has_that_of_the_lan() -> Result<(), Error> {
    let host = Host::new(&sandbox!(&needs()))?;
    let server = Dnsmasq::start(&host.lab.lan, DnsmasqConfig::default())?;
    host.create_on(Lan::IFNAME, "lan", &[])?;
    host.docker.keep("web", &LAN)?;
    let address = host.address("web")?;
    host.pings("web")?;
    only(&server, &[address])?;
    host.docker.docker(&["rm", "--force", "web"])?;
    host.docker.docker(&["network", "rm", "lan"])?;

    // This dockerd asks again as long as the host has a route to the subnet.
    host.lab
        .lan
        .host
        .add_address(Lan::IFNAME, Lan::on_lan([10, 7, 0, 2].into()))?;
    let error = host
        .create_on(Lan::IFNAME, "lan", &[])
        .expect_err("it would ask without end");
    assert!(error.to_string().contains("--subnet"), "{error}");
    Ok(())
}

#[test]
fn ten_containers_start_and_end_at_once() -> Result<(), Error> {
    let host = Host::new(&sandbox!(&needs()))?;
    let server = Dnsmasq::start(&host.lab.lan, DnsmasqConfig::default())?;
    let before = host.links()?;
    host.on_each_network(|| {
        host.ten_come_and_go(&server)?;
        host.only_links(&before)
    })
}
