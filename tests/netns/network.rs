//! Docker's network driver, as dockerd 25 to 29 call it. Calls that come twice, at the wrong time, or to the next daemon are the
//! core's tests' and the simulation's.

use std::collections::BTreeSet;

use leasehold_tests::documents::block;
use netns_fixtures::engine::played::{EngineVersion, Played};
use netns_fixtures::engine::wired::{WiredContainer, WiredNetwork};
use netns_fixtures::server::{Dnsmasq, DnsmasqConfig, Grants};
use netns_fixtures::{
    DEADLINE, Error, Lab, Lan, Need, Netns, Sandbox, mac, mac_text, sandbox, until_link,
};
use serde_json::json;

use crate::witness;

pub(crate) const NEEDS: &[Need] = &[
    Need::Program("dnsmasq"),
    Need::Program("busybox"),
    Need::Program("ip"),
];
/// A host whose daemon is a Docker plugin, and a server.
pub(crate) struct Host {
    pub(crate) lab: Lab,
    pub(crate) server: Dnsmasq,
    pub(crate) docker: Played,
    /// Its links, without those of containers.
    pub(crate) links: BTreeSet<String>,
}

impl Host {
    pub(crate) fn new(sandbox: &Sandbox, version: EngineVersion) -> Result<Self, Error> {
        let lab = Lab::with_docker(sandbox)?;
        let routes = vec![
            ("0.0.0.0/0".parse().expect("a subnet"), Lan::SERVER),
            (
                "192.0.2.0/24".parse().expect("a subnet"),
                [10, 7, 0, 9].into(),
            ),
        ];
        let grants = Grants {
            routes,
            mtu: Some(1400),
            ..Grants::default()
        };
        let server = Dnsmasq::start(&lab.lan, DnsmasqConfig::from(grants))?;
        let docker = Played::start(&lab.lan.host, version, "leasehold")?;
        let mut host = Self {
            lab,
            server,
            docker,
            links: BTreeSet::new(),
        };
        host.links = host.now()?;
        Ok(host)
    }

    /// Returns the names of its links.
    fn now(&self) -> Result<BTreeSet<String>, Error> {
        links(&self.lab.lan.host)
    }

    /// Makes the network of macvlans on the LAN, whose addresses are given back at once.
    fn network(&self) -> Result<WiredNetwork, Error> {
        self.docker
            .wire(json!({ "parent": Lan::IFNAME, "grace": "0" }), None)
    }

    /// Waits until nothing is left: no link, no lease.
    fn is_as_before(&self) -> Result<(), Error> {
        let as_before = || Ok((self.now()? == self.links).then_some(()));
        until_link(
            &self.lab.lan.host,
            "the links as they were",
            DEADLINE,
            as_before,
        )
        .inspect_err(|_| eprintln!("the links are {:?}", self.now()))?;
        self.server.wait_until_free()?;
        self.lab.daemon().wait_until_empty()
    }

    /// Returns whether a container is on the LAN with everything that its lease gives it.
    pub(crate) fn is_on_lan(&self, web: &WiredContainer) -> Result<(), Error> {
        let container = &web.container;
        let lease = self
            .server
            .lease_of(&mac_text(container.mac))?
            .expect("a lease");
        assert_eq!(web.address, Some(Lan::on_lan(lease.address)));
        assert_eq!(container.addresses()?, [Lan::on_lan(lease.address)]);
        let inside = container.netns.sh("ip route; ip link show eth0")?;
        for expected in ["default via 10.7.0.1 dev eth0", "mtu 1400"] {
            assert!(inside.contains(expected), "{inside}");
        }
        witness::routes(
            container,
            &["192.0.2.0/24 via 10.7.0.9 dev eth0"],
            &[],
            DEADLINE,
        )?;
        let ping = ["ping", "-c", "1", "-W", "10", &Lan::SERVER.to_string()];
        container.netns.run_command("busybox", &ping, "").map(drop)
    }

    pub(crate) fn lives(&self, network: &WiredNetwork) -> Result<(), Error> {
        let web = self.docker.run_wired(network, "web", None)?;
        self.is_on_lan(&web)?;
        self.docker.stop_wired(&web)?;
        self.is_as_before()
    }
}

/// Returns the names of a namespace's links, except for those that disappear by themselves.
fn links(netns: &Netns) -> Result<BTreeSet<String>, Error> {
    let shown = netns.sh("ip -brief link")?;
    let names = shown
        .lines()
        .filter_map(|line| line.split([' ', '@']).next().map(str::to_owned));
    Ok(names.filter(|name| !name.starts_with("lh-")).collect())
}

#[test]
fn every_docker_puts_containers_on_the_lan() -> Result<(), Error> {
    for version in EngineVersion::ALL {
        let host = Host::new(&sandbox!(NEEDS), version)?;
        let options = json!({ "parent": Lan::IFNAME, "grace": "0" });
        // The names of those who have the LAN's leases.
        let parent = json!({ "parent": Lan::IFNAME });
        for (wiring, ipam) in [(&options, None), (&parent, Some(options.clone()))] {
            let network = host.docker.wire(wiring.clone(), ipam)?;
            host.lives(&network)?;
            host.docker.unwire(&network)?;
        }
    }
    Ok(())
}

#[test]
fn the_documents_command_deletes_a_forgotten_network() -> Result<(), Error> {
    let sandbox = sandbox!(&[NEEDS, &[Need::Program("curl")]].concat());
    let host = Host::new(&sandbox, EngineVersion::V29)?;
    let network = host.network()?;
    let command = block("daemon/docs/docker.md", "To delete it by its id:");
    let command = command.replace("\"ID\"", &format!("\"{}\"", network.id));
    let said = host.lab.lan.host.sh(&command)?;
    assert_eq!(said.trim(), "{}");
    let mut web = host.docker.prepare_wired(&network, "web", None)?;
    let unknown = host
        .docker
        .create_endpoint(&mut web)
        .expect_err("there is no network")
        .to_string();
    assert!(unknown.contains("docker network create"), "{unknown}");
    host.is_as_before()
}

#[test]
fn a_start_deletes_only_stray_links_of_its_own_store() -> Result<(), Error> {
    let mut host = Host::new(&sandbox!(NEEDS), EngineVersion::V29)?;
    let network = host.network()?;
    let mut web = host.docker.prepare_wired(&network, "web", None)?;
    host.docker.create_endpoint(&mut web)?;
    let link = web.link_name();
    let alias =
        host.lab
            .lan
            .host
            .run_command("cat", &[&format!("/sys/class/net/{link}/ifalias")], "");
    let shown = host
        .lab
        .lan
        .host
        .run_command("ip", &["link", "show", &link], "")?;
    let alias = alias.ok().filter(|text| !text.is_empty()).unwrap_or(shown);
    let (_, alias) = alias.split_once("leasehold ").expect("it bears an alias");
    let store = alias
        .split(' ')
        .next()
        .expect("the store's name")
        .to_owned();
    host.docker.delete_endpoint(&web)?;
    host.is_as_before()?;

    host.lab.kill9()?;
    let gone = format!("leasehold {store} endpoint {}", "0".repeat(64));
    let other = format!("leasehold {} endpoint {}", "0".repeat(16), "1".repeat(64));
    for (name, alias) in [("lh000000000000", gone), ("lh111111111111", other)] {
        let netns = &host.lab.lan.host;
        netns.add_macvlan(Lan::IFNAME, netns, name, mac(77))?;
        netns.run_command("ip", &["link", "set", name, "alias", &alias], "")?;
    }
    host.lab.start_daemon()?;
    let mut expected = host.links.clone();
    expected.insert("lh111111111111".to_owned());
    until_link(
        &host.lab.lan.host,
        "the end of a link without an endpoint",
        DEADLINE,
        || Ok((host.now()? == expected).then_some(())),
    )
}
