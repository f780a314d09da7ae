//! A Docker network in one line: our network driver makes the containers' links, and Docker moves them.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use netns_fixtures::model::Kind;
use netns_fixtures::server::{Dnsmasq, DnsmasqConfig, Grants};
use netns_fixtures::{DEADLINE, Error, Lan, Netns, mac_text, sandbox, until_link};

use crate::docker::{Host, LAN, MAC, needs, only};

/// Our network driver, with the LAN's addresses as the servers hand them out.
const NULL: [&str; 2] = ["--ipam-driver", "null"];
/// The IPAM drivers with which one line makes a network of our driver.
pub(crate) const FORMS: [&str; 2] = ["null", "leasehold"];

impl Host {
    /// Makes a network of our driver on the LAN's link, as a user would.
    pub(crate) fn wire(&self, name: &str, more: &[&str]) -> Result<(), Error> {
        let parent = format!("parent={}", Lan::IFNAME);
        self.wire_on(&parent, name, &[&NULL[..], more].concat())
    }

    /// Makes a network in one of its forms, with more options of leases.
    pub(crate) fn wire_as(&self, form: &str, name: &str, more: &[&str]) -> Result<(), Error> {
        let parent = format!("parent={}", Lan::IFNAME);
        self.wire_on(&parent, name, &of_form(form, &parent, more))
    }

    pub(crate) fn wire_on(&self, option: &str, name: &str, more: &[&str]) -> Result<(), Error> {
        let driver = ["network", "create", "-d", "leasehold", "-o", option];
        self.docker
            .docker(&[&driver, more, &[name]].concat())
            .map(drop)
    }

    /// Returns the names of the host's links.
    pub(crate) fn links(&self) -> Result<BTreeSet<String>, Error> {
        links(&self.lab.lan.host)
    }

    /// Waits until the host has these links and no others.
    pub(crate) fn only_links(&self, expected: &BTreeSet<String>) -> Result<(), Error> {
        let what = "the links of the host as they were";
        until_link(&self.lab.lan.host, what, DEADLINE, || {
            Ok((self.links()? == *expected).then_some(()))
        })
    }
}

/// Returns the options of a network in one of its forms, with these options for its leases.
pub(crate) fn of_form<'a>(form: &'a str, parent: &'a str, leases: &[&'a str]) -> Vec<&'a str> {
    let flag = if form == "null" { "-o" } else { "--ipam-opt" };
    // Up to version 26, Docker needs one if the host has an address on the LAN.
    let named = ["--ipam-opt", parent, "--subnet", "10.7.0.0/16"];
    let named = if form == "null" { &[][..] } else { &named };
    let leases = leases.iter().flat_map(|option| [flag, option]);
    ["--ipam-driver", form]
        .into_iter()
        .chain(named.iter().copied())
        .chain(leases)
        .collect()
}

/// Returns the names of a namespace's links.
pub(crate) fn links(netns: &Netns) -> Result<BTreeSet<String>, Error> {
    let shown = netns.run_command("ip", &["-brief", "link"], "")?;
    let name = |line: &str| line.split([' ', '@']).next().map(str::to_owned);
    // Links that give a lease back over a bridge go by themselves.
    Ok(shown
        .lines()
        .filter_map(name)
        .filter(|name| !name.starts_with("lh-"))
        .collect())
}

#[test]
fn a_first_process_has_its_address_router_and_mtu() -> Result<(), Error> {
    let sandbox = sandbox!(&needs());
    let mut host = Host::new(&sandbox)?;
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
    let before = host.links()?;
    let soon = "until /bin/busybox ip route | /bin/busybox grep 192.0.2.0/24; do /bin/busybox sleep 0.1; done";
    let look = format!(
        "for what in 'addr show dev eth0' 'link show dev eth0' route; do /bin/busybox ip -4 $what; done; {soon}"
    );
    for form in FORMS {
        host.wire_as(form, "lan", &["grace=0"])?;
        host.seen.clear()?;
        let printed = host.docker.run(&LAN, &["sh", "-c", &look])?;
        let ack = host.seen.wait_for_dhcp(Kind::Ack, DEADLINE, |_| true)?;
        assert!(
            printed.contains(&format!("inet {}/16 ", ack.yiaddr)),
            "{printed}"
        );
        assert!(
            printed.contains(&mac_text(ack.chaddr)) && printed.contains("mtu 1400"),
            "{printed}"
        );
        assert!(
            printed.contains("default via 10.7.0.1 dev eth0"),
            "{printed}"
        );
        assert!(
            printed.contains("192.0.2.0/24 via 10.7.0.9 dev eth0"),
            "{printed}"
        );
        server.wait_until_free()?;
        host.only_links(&before)?;
        host.docker.docker(&["network", "rm", "lan"])?;
        host.lab.daemon().wait_until_empty()?;
    }
    Ok(())
}

#[test]
fn ten_containers_on_links_of_ours_start_and_end_at_once() -> Result<(), Error> {
    let sandbox = sandbox!(&needs());
    let host = Host::new(&sandbox)?;
    let server = Dnsmasq::start(&host.lab.lan, DnsmasqConfig::default())?;
    let before = host.links()?;
    for form in FORMS {
        host.wire_as(form, "lan", &["grace=0"])?;
        host.ten_come_and_go(&server)?;
        host.only_links(&before)?;
        host.docker.docker(&["network", "rm", "lan"])?;
    }
    Ok(())
}

#[test]
fn a_chosen_ethernet_address_keeps_its_address_over_rm() -> Result<(), Error> {
    let sandbox = sandbox!(&needs());
    let mut host = Host::new(&sandbox)?;
    let server = Dnsmasq::start(&host.lab.lan, DnsmasqConfig::default())?;
    host.wire("lan", &[])?;
    let how = [&LAN[..], &["--mac-address", MAC]].concat();
    host.docker.keep("web", &how)?;
    let first = host.address("web")?;
    let discover = host
        .seen
        .wait_for_dhcp(Kind::Discover, DEADLINE, |_| true)?;
    assert_eq!(mac_text(discover.chaddr), MAC, "the first");
    assert_eq!(discover.option(61).as_deref().map(|id| id[0]), Some(1));
    let inside = host
        .docker
        .exec("web", &["ip", "link", "show", "dev", "eth0"])?;
    assert!(inside.contains(MAC), "{inside}");
    host.docker.docker(&["restart", "web"])?;
    assert_eq!(host.address("web")?, first);
    host.docker.docker(&["rm", "--force", "web"])?;
    host.docker.keep("again", &how)?;
    assert_eq!(host.address("again")?, first);
    host.pings("again")?;
    only(&server, &[first])
}

#[test]
fn two_networks_may_share_a_parent() -> Result<(), Error> {
    let sandbox = sandbox!(&needs());
    let host = Host::new(&sandbox)?;
    let server = Dnsmasq::start(&host.lab.lan, DnsmasqConfig::default())?;
    host.docker.docker(&[
        "network",
        "create",
        "--internal",
        "--subnet",
        "172.20.0.0/24",
        "inner",
    ])?;
    let before = host.links()?;
    for form in FORMS {
        host.wire_as(form, "lan", &["grace=0"])?;
        host.wire_as(form, "same", &["grace=0"])?;
        host.docker.keep("web", &["--network", "inner"])?;
        host.docker.keep("db", &["--network", "same"])?;
        host.docker.docker(&["network", "connect", "lan", "web"])?;
        let (web, db) = (
            host.docker.address("web", "lan")?,
            host.docker.address("db", "same")?,
        );
        assert_ne!(web, db);
        let inside = host
            .docker
            .exec("web", &["ip", "-4", "addr", "show", "dev", "eth1"])?;
        assert!(inside.contains(&format!("inet {web}/16 ")), "{inside}");
        host.pings("web")?;
        host.pings("db")?;
        only(&server, &[web, db])?;
        host.docker
            .docker(&["network", "disconnect", "lan", "web"])?;
        only(&server, &[db])?;
        host.docker.docker(&["rm", "--force", "db", "web"])?;
        server.wait_until_free()?;
        host.only_links(&before)?;
        host.docker.docker(&["network", "rm", "lan", "same"])?;
    }
    Ok(())
}

#[test]
fn our_two_drivers_together_let_users_choose_an_address() -> Result<(), Error> {
    let sandbox = sandbox!(&needs());
    let host = Host::new(&sandbox)?;
    let server = Dnsmasq::start(&host.lab.lan, DnsmasqConfig::default())?;
    let before = host.links()?;
    let parent = format!("parent={}", Lan::IFNAME);
    let error = host
        .wire_on(&parent, "lan", &["--ipam-driver", "leasehold"])
        .expect_err("no LAN is named")
        .to_string();
    assert!(
        error.contains("--ipam-driver leasehold --ipam-opt parent=eth0 lan"),
        "{error}"
    );
    let ours = [
        "--ipam-driver",
        "leasehold",
        "--ipam-opt",
        &parent,
        "--ipam-opt",
        "grace=0",
        "--subnet",
        "10.7.0.0/16",
    ];
    host.wire_on(&parent, "lan", &ours)?;
    let chosen = Ipv4Addr::new(10, 7, 2, 77);
    host.docker
        .keep("web", &[&LAN[..], &["--ip", "10.7.2.77"]].concat())?;
    for restarted in [false, true] {
        if restarted {
            host.docker.docker(&["restart", "web"])?;
        }
        assert_eq!(host.address("web")?, chosen);
        host.pings("web")?;
        only(&server, &[chosen])?;
    }
    host.docker.docker(&["rm", "--force", "web"])?;
    server.wait_until_free()?;
    host.only_links(&before)
}
