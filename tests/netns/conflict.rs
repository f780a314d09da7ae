//! A neighbour has the address that the server gives out. dnsmasq, which does not ping here, logs what it receives.

use std::net::Ipv4Addr;
use std::time::Duration;

use netns_fixtures::model::{Arp, Config, Event, Kind, code};
use netns_fixtures::server::{Dnsmasq, DnsmasqConfig, Grants, IscDhcpd, ModelServer};
use netns_fixtures::{
    CallError, Capture, Container, DEADLINE, Error, Lab, Lan, Mac, Member, Need, Netns, Packet,
    mac_text, sandbox,
};

const NEEDS: &[Need] = &[Need::Program("dnsmasq")];
/// The address that the server keeps for the container.
const KEPT: Ipv4Addr = Ipv4Addr::new(10, 7, 0, 77);
const CONTAINER: Mac = [2, 0x6c, 0, 0, 9, 77];
/// A LAN on which the server keeps [`KEPT`] for [`CONTAINER`].
struct Stage {
    lab: Lab,
    server: Dnsmasq,
    /// A capture of the server's link.
    seen: Capture,
    neighbour: Netns,
}

impl Stage {
    fn new(sandbox: &netns_fixtures::Sandbox, detection: Option<&str>) -> Result<Self, Error> {
        let mut lab = Lab::new(sandbox)?;
        if let Some(detection) = detection {
            lab.config["ipam"]["conflictDetection"] = detection.into();
        }
        let mut config = DnsmasqConfig::default();
        config
            .more
            .push(format!("--dhcp-host={},{KEPT}", mac_text(CONTAINER)));
        let server = Dnsmasq::start(&lab.lan, config)?;
        let seen = Capture::start(&lab.lan.server, Lan::IFNAME)?;
        let neighbour = lab.lan.machine("neighbour", Ipv4Addr::new(10, 7, 0, 9))?;
        Ok(Self {
            lab,
            server,
            seen,
            neighbour,
        })
    }

    fn container(&self) -> Result<Container, Error> {
        self.lab.lan.container_on(Lan::IFNAME, "c1", CONTAINER)
    }

    fn attach(&self) -> Result<Member, CallError> {
        let member = self.lab.add(self.container()?)?;
        member.container.configure(&member.result)?;
        Ok(member)
    }

    /// Makes the neighbour take the address.
    fn take(&self) -> Result<(), Error> {
        self.neighbour.add_address(Lan::IFNAME, Lan::on_lan(KEPT))
    }

    /// Waits until the server has been told that the address is in use.
    fn declined(&mut self) -> Result<(), Error> {
        let decline = self
            .seen
            .wait_for_dhcp(Kind::Decline, DEADLINE, |m| m.chaddr == CONTAINER)?;
        assert_eq!(decline.address(code::REQUESTED), Some(KEPT));
        assert_eq!(decline.address(code::SERVER), Some(Lan::SERVER));
        assert!(
            decline.ciaddr.is_unspecified()
                && decline.source.is_unspecified()
                && decline.destination.is_broadcast()
        );
        self.server
            .wait_for_line(&format!("DHCPDECLINE({}) {KEPT}", Lan::IFNAME))?;
        self.server
            .wait_for_line(&format!("disabling DHCP static address {KEPT}"))
    }

    /// Waits for the container's ARP request from `sender` about `target`.
    fn asked(&mut self, sender: Ipv4Addr, target: Ipv4Addr) -> Result<(), Error> {
        self.seen.wait_for(
            &format!("ARP from {sender} about {target}"),
            DEADLINE,
            |packet| {
                is_from_container(packet)
                    .filter(|arp| (arp.sender, arp.target) == (sender, target))
                    .map(drop)
            },
        )
    }

    /// Returns how many probes for an address there have been.
    fn probes(&mut self, address: Ipv4Addr) -> Result<usize, Error> {
        let asked = self.seen.packets()?.iter().filter_map(is_from_container);
        Ok(asked
            .filter(|arp| arp.sender.is_unspecified() && arp.target == address)
            .count())
    }
}

fn is_from_container(packet: &Packet) -> Option<&Arp> {
    match packet {
        Packet::Arp(arp) if arp.request && arp.sender_mac == CONTAINER => Some(arp),
        Packet::Arp(_) | Packet::Dhcp(_) | Packet::Other(_) => None,
    }
}

#[test]
fn a_free_address_is_probed_for_and_announced() -> Result<(), CallError> {
    let mut stage = Stage::new(&sandbox!(NEEDS), None)?;
    let member = stage.attach()?;
    assert_eq!(member.address, KEPT);
    let none = Ipv4Addr::UNSPECIFIED;
    (0..2).try_for_each(|_| stage.asked(none, KEPT))?;
    // The main plugin has put the address on the interface, between the probes.
    stage.seen.rewind();
    (0..2).try_for_each(|_| stage.asked(KEPT, KEPT))?;
    stage.lab.detach(&member)?;
    Ok(stage.server.wait_until_free()?)
}

#[test]
fn a_new_ethernet_address_is_announced_to_the_lan() -> Result<(), CallError> {
    const OTHER: Mac = [2, 0x6c, 0, 0, 9, 78];
    let mut stage = Stage::new(&sandbox!(&[NEEDS, &[Need::Program("ip")]].concat()), None)?;
    let member = stage.attach()?;
    // As the plugin `tuning` does, after the main plugin.
    let set = |change: &[&str]| {
        member.container.netns.run_command(
            "ip",
            &[&["link", "set", "dev", "eth0"], change].concat(),
            "",
        )
    };
    set(&["down"])?;
    set(&["address", &mac_text(OTHER)])?;
    stage.seen.clear()?;
    set(&["up"])?;
    let mut asked = |target| {
        stage.seen.wait_for(
            &format!("ARP about {target}"),
            DEADLINE,
            |packet| match packet {
                Packet::Arp(arp) if arp.request && (arp.sender, arp.target) == (KEPT, target) => {
                    assert_eq!(mac_text(arp.sender_mac), mac_text(OTHER));
                    Some(())
                }
                Packet::Arp(_) | Packet::Dhcp(_) | Packet::Other(_) => None,
            },
        )
    };
    asked(KEPT)?;
    asked(KEPT)?;
    stage.lab.detach(&member)?;
    // A request for the server's address does not claim the previous address either.
    asked(Lan::SERVER)?;
    Ok(stage.server.wait_until_free()?)
}

/// The neighbour is a macvlan beside the container's, and hears the container but not their parent.
#[test]
fn an_address_that_a_sibling_uses_is_declined() -> Result<(), CallError> {
    let sandbox = sandbox!(&[]);
    for detection in ["optimistic", "strict"] {
        let mut lab = Lab::new(&sandbox)?;
        lab.config["ipam"]["conflictDetection"] = detection.into();
        let pool = (KEPT, Ipv4Addr::new(10, 7, 0, 99));
        let answer_time = Duration::from_millis(500);
        let server = ModelServer::start(
            &lab.lan,
            Config {
                pool,
                answer_time,
                ..Config::new(Lan::SUBNET)
            },
        )?;
        let _sibling = lab.lan.sibling("sibling", KEPT)?;
        let member = lab.attach("c1")?;
        assert_ne!(member.address, KEPT, "{detection}");
        server.wait_for("DECLINE", 0, DEADLINE, |event| {
            (*event == Event::Declined(KEPT)).then_some(())
        })?;
        assert_eq!(server.violations(), [], "{detection}");
        lab.check(&member)?;
    }
    Ok(())
}

/// The kernel answers on each interface for the addresses of all.
#[test]
fn a_static_macvlan_beside_the_leased_one_claims_nothing() -> Result<(), CallError> {
    let mut stage = Stage::new(&sandbox!(NEEDS), None)?;
    let member = stage.attach()?;
    let (inside, lan) = (&member.container.netns, &stage.lab.lan);
    lan.host
        .add_macvlan(Lan::IFNAME, inside, "net1", [2, 0x6c, 0, 0, 9, 79])?;
    inside.add_address("net1", Lan::on_lan(Ipv4Addr::new(10, 7, 0, 8)))?;
    inside.set_up("net1")?;
    let mut heard = Capture::start(inside, "eth0")?;
    stage.seen.clear()?;
    lan.interrupt(&lan.host, Lan::LONG)?;
    heard.wait_for("net1's answer", DEADLINE, |packet| match packet {
        Packet::Arp(arp) if !arp.request && arp.sender == KEPT => Some(()),
        Packet::Arp(_) | Packet::Dhcp(_) | Packet::Other(_) => None,
    })?;
    (0..2).try_for_each(|_| stage.asked(Ipv4Addr::UNSPECIFIED, KEPT))?;
    let log = stage.lab.daemon().log().lines().join("\n");
    assert!(!log.contains("another station"), "{log}");
    assert_eq!(stage.lab.daemon().list()?[0]["state"], "BOUND");
    stage.lab.detach(&member)?;
    Ok(stage.server.wait_until_free()?)
}

/// The kernel copies what a macvlan broadcasts for each of its siblings.
#[test]
fn siblings_hear_each_message_once_and_the_wire_all() -> Result<(), CallError> {
    let mut stage = Stage::new(&sandbox!(NEEDS), None)?;
    let sibling = stage
        .lab
        .lan
        .sibling("sibling", Ipv4Addr::new(10, 7, 0, 8))?;
    let mut beside = Capture::start(&sibling, Lan::IFNAME)?;
    // The server turns out to be on the wire.
    let first = stage.lab.attach("c0")?;
    stage.seen.wait_for(
        "the answer from the wire",
        DEADLINE,
        |packet| match packet {
            Packet::Arp(arp) if !arp.request && arp.sender == Lan::SERVER => Some(()),
            Packet::Arp(_) | Packet::Dhcp(_) | Packet::Other(_) => None,
        },
    )?;
    stage.lab.check(&first)?;
    beside.clear()?;
    stage.seen.clear()?;
    let member = stage.attach()?;
    let none = Ipv4Addr::UNSPECIFIED;
    (0..3).try_for_each(|_| stage.asked(none, KEPT))?;
    stage.seen.rewind();
    (0..2).try_for_each(|_| stage.asked(KEPT, KEPT))?;
    assert_eq!(stage.probes(KEPT)?, 3, "on the wire");
    let asked: Vec<_> = beside
        .packets()?
        .iter()
        .filter_map(is_from_container)
        .map(|arp| arp.sender)
        .collect();
    assert_eq!(asked, [none, KEPT], "a probe and an announcement");
    let told: Vec<_> = beside
        .dhcp()?
        .into_iter()
        .filter(|m| m.chaddr == CONTAINER)
        .collect();
    assert!(
        told.is_empty(),
        "a server may be in a sibling; this one is not: {told:?}"
    );
    stage.lab.check(&member)
}

/// The kernel can own whole subnets ("AnyIP") and answer ARP for each of their addresses.
#[test]
fn a_station_that_claims_all_addresses_stops_nobody() -> Result<(), CallError> {
    let sandbox = sandbox!(&[NEEDS, &[Need::Program("ip")]].concat());
    let stage = Stage::new(&sandbox, Some("strict"))?;
    // The LAN's own route is longer than the first.
    for net in ["0.0.0.0/0", "10.7.0.64/26"] {
        let own = ["route", "add", "local", net, "dev", "lo"];
        stage.neighbour.run_command("ip", &own, "")?;
    }
    let member = stage.attach()?;
    assert_eq!(member.address, KEPT);
    let events = stage.lab.daemon().events()?;
    let told = events.iter().filter(|line| line.contains("detection_off"));
    let told: Vec<_> = told.collect();
    assert!(
        matches!(told[..], [line] if line.contains(&format!("claims {KEPT}"))),
        "{events:?}"
    );
    stage.lab.check(&member)
}

#[test]
fn an_address_that_a_neighbour_takes_later_is_replaced() -> Result<(), CallError> {
    let mut stage = Stage::new(&sandbox!(NEEDS), None)?;
    let member = stage.attach()?;
    assert_eq!(member.address, KEPT);
    stage.take()?;
    stage.declined()?;
    let next = stage
        .seen
        .wait_for_dhcp(Kind::Ack, DEADLINE, |m| m.chaddr == CONTAINER)?
        .yiaddr;
    assert_ne!(next, KEPT);
    // It is on the interface, or it would not be announced.
    stage.asked(next, next)?;
    assert_eq!(member.container.addresses()?, [Lan::on_lan(next)]);
    Ok(())
}

#[test]
fn strict_detection_answers_when_the_probes_are_over() -> Result<(), CallError> {
    let mut stage = Stage::new(&sandbox!(NEEDS), Some("strict"))?;
    stage.take()?;
    let member = stage.lab.add(stage.container()?)?;
    member.container.configure(&member.result)?;
    assert_ne!(member.address, KEPT);
    assert_eq!(stage.probes(member.address)?, 3, "before the answer");
    stage.declined()?;
    (0..2).try_for_each(|_| stage.asked(member.address, member.address))?;
    stage.lab.check(&member)
}

/// ISC dhcpd offers a `fixed-address` again after each DECLINE.
#[test]
fn a_fixed_address_in_use_fails_only_its_own_containers() -> Result<(), CallError> {
    let needs = [Need::Program("dhcpd"), Need::Program("busybox")];
    let lab = Lab::new(&sandbox!(&needs))?;
    let server = IscDhcpd::start(
        &lab.lan,
        Grants {
            fixed: vec![(CONTAINER, KEPT)],
            ..Grants::default()
        },
    )?;
    let neighbour = lab.lan.machine("neighbour", Ipv4Addr::new(10, 7, 0, 9))?;
    neighbour.add_address(Lan::IFNAME, Lan::on_lan(KEPT))?;
    // The switch forwards to a new machine a moment after it is plugged in.
    lab.lan.server.sh("busybox ping -c 1 -W 10 10.7.0.9")?;
    for id in ["c1", "c2", "c3", "c4"] {
        let container = lab.lan.container_on(Lan::IFNAME, id, CONTAINER)?;
        let Err(CallError::Cni { error, .. }) = lab.shim.add(&container, &lab.config) else {
            panic!("{id} has an address")
        };
        let said = error.to_string();
        assert!(said.contains(&format!("{KEPT} is in use by ")), "{said}");
        lab.shim.del(&container, &lab.config)?;
    }
    let other = lab.attach("c5")?;
    assert_ne!(other.address, KEPT);
    lab.detach(&other)?;
    Ok(server.wait_until_free()?)
}
