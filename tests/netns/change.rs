//! The interface carries what the lease says: when the lease changes, when it is lost, when there is a new one.

use std::net::Ipv4Addr;

use ipnet::Ipv4Net;
use netns_fixtures::server::{Dnsmasq, Grants, Kea};
use netns_fixtures::{CallError, Capture, DEADLINE, Lab, Lan, Need, sandbox};

use crate::witness;

/// The server's address in another subnet.
const ELSEWHERE: Ipv4Addr = Ipv4Addr::new(10, 8, 0, 1);

/// dnsmasq's first grants: its shortest lease, renewed after five seconds.
fn at_first() -> Grants {
    Grants::lasting(120).renewed(5, 9)
}

/// Its grants after the LAN is renumbered.
fn renumbered() -> Grants {
    let pool = Ipv4Addr::new(10, 8, 1, 0)..=Ipv4Addr::new(10, 8, 1, 255);
    Grants {
        pool,
        router: ELSEWHERE,
        ..at_first()
    }
}

#[test]
fn a_renumbered_lan_renumbers_its_containers() -> Result<(), CallError> {
    let lab = Lab::new(&sandbox!(&[Need::Program("dnsmasq"), Need::Program("ip")]))?;
    let mut server = Dnsmasq::start(&lab.lan, at_first())?;
    let mut seen = Capture::start(&lab.lan.server, Lan::IFNAME)?;
    let member = lab.attach("c1")?;
    let foreign: Ipv4Net = "192.0.2.7/32".parse().expect("a network");
    member.container.netns.add_address("eth0", foreign)?;
    member.container.netns.add_route(
        "eth0",
        "198.51.100.0/24".parse().expect("a network"),
        None,
    )?;

    lab.lan
        .server
        .add_address(Lan::IFNAME, Ipv4Net::new_assert(ELSEWHERE, 16))?;
    server.restart(Some(renumbered().into()))?;
    let next = witness::new_lease_after_nak(&mut seen, &member, DEADLINE)?;
    assert!(renumbered().pool.contains(&next), "{next}");
    member
        .container
        .wait_for_addresses(&[foreign, Ipv4Net::new_assert(next, 16)], DEADLINE)?;
    let wanted = [
        "default via 10.8.0.1 dev eth0",
        "10.8.0.0/16 dev eth0",
        "198.51.100.0/24 dev eth0",
    ];
    witness::routes(&member.container, &wanted, &["10.7."], DEADLINE)?;

    let stale = lab
        .check(&member)
        .expect_err("the runtime believes in the previous address")
        .cni();
    assert!(stale.msg.contains(&next.to_string()), "{stale}");
    lab.detach(&member)?;
    seen.wait_for_release(next, DEADLINE)?;
    Ok(server.wait_until_free()?)
}

#[test]
fn the_interface_loses_an_expired_lease_and_gets_the_next() -> Result<(), CallError> {
    let sandbox = sandbox!(&[Need::Program("kea-dhcp4"), Need::Program("ip")]);
    let lab = Lab::new(&sandbox)?;
    let mut server = Kea::start(&lab.lan, Grants::lasting(10))?;
    let member = lab.attach("c1")?;
    server.stop()?;
    member.container.wait_for_addresses(&[], DEADLINE)?;
    assert!(member.container.netns.is_up("eth0")?, "the link stays up");
    witness::routes(&member.container, &[], &["default", "10.7."], DEADLINE)?;
    // An address that is not ours is nobody's to be told.
    assert!(lab.daemon().list()?[0]["address"].is_null());

    server.forget_leases()?;
    server.restart(None)?;
    let address = server.wait_for_lease(&member.mac(), "the next lease", DEADLINE, |lease| {
        Some(lease.address)
    })?;
    member
        .container
        .wait_for_addresses(&[Lan::on_lan(address)], DEADLINE)?;
    witness::routes(
        &member.container,
        &["default via 10.7.0.1 dev eth0"],
        &[],
        DEADLINE,
    )?;
    lab.detach(&member)?;
    Ok(server.wait_until_free()?)
}
