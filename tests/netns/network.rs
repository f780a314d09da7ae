//! Docker's network driver, as dockerd 25 to 29 call it: each call in its order, twice, at the wrong time, and after the end of a
//! daemon. No link is left.

use std::collections::BTreeSet;
use std::time::Duration;

use leasehold_tests::documents::block;
use netns_fixtures::engine::played::{EngineVersion, Played};
use netns_fixtures::engine::wired::{WiredContainer, WiredNetwork};
use netns_fixtures::server::{Dnsmasq, DnsmasqConfig, Grants, Lease};
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
/// How long Docker may stay silent about what it has forgotten.
pub(crate) const UNSAID: Duration = Duration::from_secs(60);

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
    pub(crate) fn is_as_before(&self) -> Result<(), Error> {
        self.is_as_before_within(DEADLINE)
    }

    pub(crate) fn is_as_before_within(&self, limit: Duration) -> Result<(), Error> {
        let as_before = || Ok((self.now()? == self.links).then_some(()));
        until_link(
            &self.lab.lan.host,
            "the links as they were",
            limit,
            as_before,
        )
        .inspect_err(|_| eprintln!("the links are {:?}", self.now()))?;
        let none = |leases: &[Lease]| leases.iter().all(|lease| !lease.held).then_some(());
        self.server
            .wait_for("the release of every lease", limit, none)?;
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
        let inside = container.netns.run_command(
            "busybox",
            &["sh", "-c", "ip route; ip link show eth0"],
            "",
        )?;
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
    let shown = netns.run_command("ip", &["-brief", "link"], "")?;
    let names = shown
        .lines()
        .filter_map(|line| line.split([' ', '@']).next().map(str::to_owned));
    Ok(names.filter(|name| !name.starts_with("lh-")).collect())
}

#[test]
fn every_docker_puts_containers_on_the_lan() -> Result<(), Error> {
    for version in EngineVersion::ALL {
        let sandbox = sandbox!(NEEDS);
        let host = Host::new(&sandbox, version)?;
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
fn a_bridge_port_goes_with_its_container() -> Result<(), Error> {
    let sandbox = sandbox!(NEEDS);
    let mut host = Host::new(&sandbox, EngineVersion::V29)?;
    host.lab.lan.add_host_bridge()?;
    host.links = host.now()?;
    let network = host
        .docker
        .wire(json!({ "bridge": Lan::BRIDGE, "grace": "0" }), None)?;
    host.lives(&network)?;
    host.docker.unwire(&network)
}

#[test]
fn every_call_may_come_twice() -> Result<(), Error> {
    let sandbox = sandbox!(NEEDS);
    let host = Host::new(&sandbox, EngineVersion::V29)?;
    let docker = &host.docker;
    let network = host.network()?;
    docker.create_wired(&network)?;
    let mut web = docker.prepare_wired(&network, "web", None)?;
    docker.create_endpoint(&mut web)?;
    let (mac, address) = (web.container.mac, web.address);
    web.container.mac = Default::default();
    web.address = None;
    docker.create_endpoint(&mut web)?;
    assert_eq!(
        (web.container.mac, web.address),
        (mac, address),
        "it is the same endpoint"
    );
    assert_eq!(docker.ask_join(&web)?, docker.ask_join(&web)?);
    docker.join_wired(&web)?;
    host.is_on_lan(&web)?;
    for method in [
        "ProgramExternalConnectivity",
        "EndpointOperInfo",
        "RevokeExternalConnectivity",
        "Leave",
    ] {
        docker
            .plugin
            .call(&format!("NetworkDriver.{method}"), &web.named())?;
    }
    docker.leave_wired(&web)?;
    docker.delete_endpoint(&web)?;
    docker.delete_endpoint(&web)?;
    host.is_as_before()?;
    docker.unwire(&network)?;
    docker.unwire(&network)
}

#[test]
fn calls_that_overtake_each_other_leave_nothing() -> Result<(), Error> {
    let sandbox = sandbox!(NEEDS);
    let host = Host::new(&sandbox, EngineVersion::V29)?;
    let docker = &host.docker;
    let network = host.network()?;
    // An endpoint ends while its link is still in its container.
    let web = docker.run_wired(&network, "web", None)?;
    docker.delete_endpoint(&web)?;
    docker.ask_join(&web).expect_err("it is gone");
    host.server.wait_until_free()?;
    // The daemon made the link, and deletes it.
    let netns = &web.container.netns;
    until_link(netns, "the link's end", DEADLINE, || {
        Ok((!links(netns)?.contains("eth0")).then_some(()))
    })?;
    docker.plugin.call("NetworkDriver.Leave", &web.named())?;
    host.is_as_before()?;
    // An endpoint that was never joined ends, and then comes what should have come before.
    let mut web = docker.prepare_wired(&network, "web", None)?;
    docker.create_endpoint(&mut web)?;
    docker.delete_endpoint(&web)?;
    docker.plugin.call("NetworkDriver.Leave", &web.named())?;
    host.is_as_before()?;
    // A network with a container ends; the container runs on.
    let web = docker.run_wired(&network, "web", None)?;
    docker.unwire(&network)?;
    host.is_on_lan(&web)?;
    docker.stop_wired(&web)?;
    host.is_as_before()
}

#[test]
fn unknown_endpoints_fail_to_join_but_can_be_deleted() -> Result<(), Error> {
    let sandbox = sandbox!(NEEDS);
    let host = Host::new(&sandbox, EngineVersion::V29)?;
    let docker = &host.docker;
    let network = host.network()?;
    let mut web = docker.prepare_wired(&network, "web", None)?;
    let unknown = docker
        .ask_join(&web)
        .expect_err("there is no endpoint")
        .to_string();
    assert!(unknown.contains("is not known to leasehold"), "{unknown}");
    docker.unwire(&network)?;
    let unknown = docker
        .create_endpoint(&mut web)
        .expect_err("there is no network")
        .to_string();
    assert!(
        unknown.contains("docker network rm, docker network create"),
        "{unknown}"
    );
    docker.delete_endpoint(&web)?;
    for method in [
        "Leave",
        "EndpointOperInfo",
        "RevokeExternalConnectivity",
        "DiscoverNew",
        "DiscoverDelete",
        "FreeNetwork",
    ] {
        for body in [json!({}), web.named()] {
            docker
                .plugin
                .call(&format!("NetworkDriver.{method}"), &body)?;
        }
    }
    // Calls that say nothing, and broken calls that come again without their body.
    for method in [
        "CreateNetwork",
        "DeleteNetwork",
        "CreateEndpoint",
        "DeleteEndpoint",
        "Join",
    ] {
        let method = format!("NetworkDriver.{method}");
        let error = docker
            .plugin
            .call(&method, &json!({}))
            .expect_err("it names nothing")
            .to_string();
        assert!(error.contains("not a Docker id"), "{error}");
        for body in ["", "{", "null", "7"] {
            assert_eq!(
                docker.plugin.send(&method, body)?.answer()?.status,
                400,
                "{method} {body}"
            );
        }
    }
    host.is_as_before()
}

#[test]
fn the_documents_command_deletes_a_forgotten_network() -> Result<(), Error> {
    let sandbox = sandbox!(&[NEEDS, &[Need::Program("curl")]].concat());
    let host = Host::new(&sandbox, EngineVersion::V29)?;
    let network = host.network()?;
    let command = block("daemon/docs/docker.md", "To delete it by its id:");
    let command = command.replace("\"ID\"", &format!("\"{}\"", network.id));
    let said = host
        .lab
        .lan
        .host
        .run_command("sh", &["-ec", &command], "")?;
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

/// What dockerd does with a container, one call after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    Create,
    Join,
    Leave,
    Delete,
}

const STEPS: [Step; 4] = [Step::Create, Step::Join, Step::Leave, Step::Delete];

impl Host {
    fn step(&self, web: &mut WiredContainer, step: Step) -> Result<(), Error> {
        match step {
            Step::Create => self.docker.create_endpoint(web),
            Step::Join => self.docker.join_wired(web),
            Step::Leave => self.docker.leave_wired(web),
            Step::Delete => self.docker.delete_endpoint(web),
        }
    }
}

/// Runs a dockerd that is killed after this call, and forgets.
fn forgets_after(last: Step) -> Result<(), Error> {
    let sandbox = sandbox!(NEEDS);
    let host = Host::new(&sandbox, EngineVersion::V29)?;
    let network = host.network()?;
    let mut web = host.docker.prepare_wired(&network, "web", None)?;
    for step in STEPS.into_iter().filter(|step| *step <= last) {
        host.step(&mut web, step)?;
    }
    // The container's namespace goes with all that is in it.
    drop(web);
    host.docker.restart()?;
    host.is_as_before_within(UNSAID + DEADLINE)?;
    host.docker.unwire(&network)
}

#[test]
fn docker_may_forget_an_endpoint_that_it_just_made() -> Result<(), Error> {
    forgets_after(Step::Create)
}

#[test]
fn docker_may_forget_an_endpoint_in_a_container() -> Result<(), Error> {
    forgets_after(Step::Join)
}

#[test]
fn docker_may_forget_an_endpoint_that_has_left() -> Result<(), Error> {
    forgets_after(Step::Leave)
}

#[test]
fn a_start_deletes_only_stray_links_of_its_own_store() -> Result<(), Error> {
    let sandbox = sandbox!(NEEDS);
    let mut host = Host::new(&sandbox, EngineVersion::V29)?;
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

#[test]
fn a_name_keeps_its_address_under_our_network_driver() -> Result<(), Error> {
    let sandbox = sandbox!(NEEDS);
    let host = Host::new(&sandbox, EngineVersion::V29)?;
    let options = || json!({ "parent": Lan::IFNAME });
    let network = host.docker.wire(options(), Some(options()))?;
    let first = host.docker.run_wired(&network, "web", None)?;
    host.is_on_lan(&first)?;
    host.docker.stop_wired(&first)?;
    host.docker.unwire(&network)?;

    let network = host.docker.wire(options(), Some(options()))?;
    let other = host.docker.run_wired(&network, "db", None)?;
    let again = host.docker.run_wired(&network, "web", None)?;
    assert_eq!(again.address, first.address);
    assert_ne!(other.address, first.address);
    assert_ne!(
        again.container.mac, first.container.mac,
        "it is not by its Ethernet address"
    );
    assert_eq!(host.server.leases()?.len(), 2);
    Ok(())
}

#[test]
fn a_server_in_a_macvlan_serves_endpoints_beside_it() -> Result<(), Error> {
    let sandbox = sandbox!(NEEDS);
    let mut host = Host::new(&sandbox, EngineVersion::V28)?;
    host.server.stop()?;
    let machine = host.lab.lan.sibling("server-c", [10, 7, 0, 3].into())?;
    let grants = Grants {
        router: [10, 7, 0, 3].into(),
        ..Grants::default()
    };
    let beside = Dnsmasq::start_in(&machine, DnsmasqConfig::from(grants))?;
    host.links = host.now()?;
    let network = host.network()?;
    let web = host.docker.run_wired(&network, "web", None)?;
    let lease = beside
        .lease_of(&mac_text(web.container.mac))?
        .expect("a lease");
    assert_eq!(web.address, Some(Lan::on_lan(lease.address)));
    assert_eq!(
        host.now()?,
        host.links,
        "what asked on beside it is gone, and the link is inside"
    );
    web.container
        .netns
        .run_command("busybox", &["ping", "-c", "1", "-W", "10", "10.7.0.3"], "")?;
    host.docker.stop_wired(&web)?;
    beside.wait_until_free()?;
    host.lab.daemon().wait_until_empty()?;
    host.docker.unwire(&network)
}
