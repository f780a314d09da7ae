//! A Docker network in one line: our network driver makes the containers' links, and Docker moves them.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use netns_fixtures::model::Kind;
use netns_fixtures::server::{Dnsmasq, DnsmasqConfig, Grants};
use netns_fixtures::{
    DEADLINE, Dhcp, Error, Lan, Netns, assert_says, mac, mac_text, sandbox, until_link,
};

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

    /// Does something on a network of each kind, one after the other: of Docker's own driver, and of ours in both forms.
    pub(crate) fn on_each_network(
        &self,
        does: impl Fn() -> Result<(), Error>,
    ) -> Result<(), Error> {
        let makes: [&dyn Fn() -> Result<(), Error>; 3] = [
            &|| self.create(&[]),
            &|| self.wire_as("null", "lan", &["grace=0"]),
            &|| self.wire_as("leasehold", "lan", &["grace=0"]),
        ];
        for make in makes {
            make()?;
            does()?;
            self.docker.docker(&["network", "rm", "lan"])?;
        }
        Ok(())
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
    let shown = netns.sh("ip -brief link")?;
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
        assert_says(&printed, &format!("inet {}/16 ", ack.yiaddr));
        assert_says(&printed, &mac_text(ack.chaddr));
        assert_says(&printed, "mtu 1400");
        assert_says(&printed, "default via 10.7.0.1 dev eth0");
        assert_says(&printed, "192.0.2.0/24 via 10.7.0.9 dev eth0");
        server.wait_until_free()?;
        host.only_links(&before)?;
        host.docker.docker(&["network", "rm", "lan"])?;
        host.lab.daemon().wait_until_empty()?;
    }
    Ok(())
}

#[test]
fn a_chosen_ethernet_address_keeps_its_address_over_rm() -> Result<(), Error> {
    let mut host = Host::new(&sandbox!(&needs()))?;
    let server = Dnsmasq::start(&host.lab.lan, DnsmasqConfig::default())?;
    host.wire("lan", &[])?;
    let how = [&LAN[..], &["--mac-address", MAC]].concat();
    host.docker.keep("web", &how)?;
    let first = host.address("web")?;
    let discover = host
        .seen
        .wait_for_dhcp(Kind::Discover, DEADLINE, |m| mac_text(m.chaddr) == MAC)?;
    assert_eq!(discover.option(61).map(|id| id[0]), Some(1));
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
    let host = Host::new(&sandbox!(&needs()))?;
    let server = Dnsmasq::start(&host.lab.lan, DnsmasqConfig::default())?;
    let inner = ["--internal", "--subnet", "172.20.0.0/24", "inner"];
    host.docker
        .docker(&[&["network", "create"], &inner[..]].concat())?;
    let before = host.links()?;
    for form in FORMS {
        host.wire_as(form, "lan", &["grace=0"])?;
        host.wire_as(form, "same", &["grace=0"])?;
        host.docker.keep("web", &["--network", "inner"])?;
        // With our IPAM driver users may choose an address.
        let ip = ["--ip", "10.7.2.77"];
        let ip = if form == "null" { &[][..] } else { &ip };
        host.docker
            .keep("db", &[&["--network", "same"], ip].concat())?;
        host.docker.docker(&["network", "connect", "lan", "web"])?;
        let web = host.docker.address("web", "lan")?;
        let db = host.docker.address("db", "same")?;
        assert_ne!(web, db);
        assert!(ip.is_empty() || db == Ipv4Addr::new(10, 7, 2, 77), "{db}");
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
fn a_container_on_a_bridge_has_a_port_of_it() -> Result<(), Error> {
    let host = Host::new(&sandbox!(&needs()))?;
    host.lab.lan.add_host_bridge()?;
    let server = Dnsmasq::start(&host.lab.lan, DnsmasqConfig::default())?;
    let before = host.links()?;
    // dockerd drops others' traffic on bridges, if that goes through iptables.
    let through = [
        "-I",
        "FORWARD",
        "-i",
        Lan::BRIDGE,
        "-o",
        Lan::BRIDGE,
        "-j",
        "ACCEPT",
    ];
    host.lab.lan.host.run_command("iptables", &through, "")?;
    host.wire_on(&format!("bridge={}", Lan::BRIDGE), "lan", &NULL)?;
    host.docker.keep("web", &LAN)?;
    let address = host.address("web")?;
    host.pings("web")?;
    only(&server, &[address])?;
    // The bridge's end of its veth.
    assert_eq!(host.links()?.difference(&before).count(), 1);
    host.docker.docker(&["rm", "--force", "web"])?;
    server.wait_until_free()?;
    host.only_links(&before)?;
    host.docker.docker(&["network", "rm", "lan"])?;
    Ok(())
}

#[test]
fn a_bad_option_is_refused_with_the_way_out() -> Result<(), Error> {
    let host = Host::new(&sandbox!(&needs()))?;
    let before = host.links()?;
    let refused = |option: &str, more: &[&str], said: &str| {
        let error = host
            .wire_on(option, "lan", &[&NULL[..], more].concat())
            .expect_err(option)
            .to_string();
        assert!(error.contains(said), "{option} {more:?}: {error}");
    };
    let parent = format!("parent={}", Lan::IFNAME);
    refused(
        "parent=none",
        &[],
        "-o parent=none: the host has no such link",
    );
    refused(&format!("bridge={}", Lan::IFNAME), &[], "not a bridge");
    refused(&parent, &["-o", "vlan=5000"], "from 1 to 4094");
    refused(&parent, &["-o", "colour=red"], "-o colour: unknown");
    refused(&parent, &["--internal"], "--internal");
    for subnet in [&[][..], &["--subnet", "10.7.0.0/16"]] {
        let error = host
            .wire_on(&parent, "lan", subnet)
            .expect_err("Docker's own numbers")
            .to_string();
        assert!(error.contains("-o addresses=docker"), "{error}");
    }
    host.wire_on(
        &parent,
        "own",
        &["--subnet", "10.7.0.0/16", "-o", "addresses=docker"],
    )?;
    host.docker.docker(&["network", "rm", "own"])?;
    // Docker's own drivers take no network without a subnet.
    let macvlan = [
        "network",
        "create",
        "-d",
        "macvlan",
        "-o",
        &parent,
        "--ipam-driver",
        "leasehold",
        "lan",
    ];
    host.docker
        .docker(&macvlan)
        .expect_err("nobody said which LAN this is");
    // Nobody answers.
    host.wire("lan", &["-o", "timeout=2"])?;
    let error = host
        .docker
        .run(&LAN, &["true"])
        .expect_err("there is no server")
        .to_string();
    assert!(error.contains("no usable DHCP offer"), "{error}");
    host.lab.daemon().wait_until_empty()?;
    host.only_links(&before)
}

/// A server that recognises clients by Ethernet address gives the host's own address to a container with its parent's Ethernet
/// address.
#[test]
fn the_address_of_the_host_is_given_to_no_container() -> Result<(), Error> {
    let mut host = Host::new(&sandbox!(&needs()))?;
    let own = Ipv4Addr::new(10, 7, 1, 1);
    let mac = mac(1);
    host.lab.lan.host.set_mac(Lan::IFNAME, mac)?;
    let mac = mac_text(mac);
    host.lab
        .lan
        .host
        .add_address(Lan::IFNAME, Lan::on_lan(own))?;
    let mut config = DnsmasqConfig::default();
    config.more.push(format!("--dhcp-host={mac},{own}"));
    let server = Dnsmasq::start(&host.lab.lan, config)?;
    host.on_each_network(|| {
        let run = host
            .docker
            .run(&[&LAN[..], &["--mac-address", &mac]].concat(), &["true"]);
        let error = run.expect_err("the host has that address").to_string();
        assert_says(&error, &own.to_string());
        assert_says(&error, "this host itself");
        assert_says(&error, &mac);
        Ok(())
    })?;
    let given_back = |m: &Dhcp| [Kind::Release, Kind::Decline].contains(&m.kind);
    let said: Vec<_> = host.seen.dhcp()?.into_iter().filter(given_back).collect();
    assert!(said.is_empty(), "{said:?}");
    drop(server);
    host.lab.daemon().wait_until_empty()
}
