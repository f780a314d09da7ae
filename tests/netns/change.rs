//! The interface carries what the lease says: when the lease changes, when it is lost, when there is a new one.

use std::net::Ipv4Addr;

use ipnet::Ipv4Net;
use netns_fixtures::model::{Kind, code};
use netns_fixtures::server::{Dnsmasq, Grants, Kea};
use netns_fixtures::{CallError, Capture, DEADLINE, Dhcp, Lab, Lan, Need, sandbox};

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
    let sandbox = sandbox!(&[Need::Program("dnsmasq"), Need::Program("ip")]);
    let lab = Lab::new(&sandbox)?;
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
fn an_interface_is_left_alone_where_its_network_says_so() -> Result<(), CallError> {
    let sandbox = sandbox!(&[Need::Program("dnsmasq")]);
    let mut lab = Lab::new(&sandbox)?;
    // First the server refuses the old address: the lease is lost.
    lab.config["ipam"]["onChange"] = "keep".into();
    lab.config["ipam"]["onExpiry"] = "keep".into();
    let mut server = Dnsmasq::start(&lab.lan, at_first())?;
    let mut seen = Capture::start(&lab.lan.server, Lan::IFNAME)?;
    let member = lab.attach("c1")?;

    lab.lan
        .server
        .add_address(Lan::IFNAME, Ipv4Net::new_assert(ELSEWHERE, 16))?;
    server.restart(Some(renumbered().into()))?;
    let next = witness::new_lease_after_nak(&mut seen, &member, DEADLINE)?;
    // By the renewal of the new lease, everything that is done at once has been done.
    let renews = |m: &Dhcp| m.ciaddr == next || m.address_option(code::REQUESTED) == Some(next);
    seen.wait_for_dhcp(Kind::Request, DEADLINE, renews)?;
    assert!(
        lab.daemon().list()?[0]["address"]
            .as_str()
            .is_some_and(|held| held.starts_with(&next.to_string()))
    );
    assert_eq!(member.container.addresses()?, [Lan::on_lan(member.address)]);
    lab.detach(&member)
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
    assert!(
        lab.daemon().list()?[0]["address"].is_null(),
        "an address that is not ours is nobody's to be told"
    );

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

#[test]
fn the_late_del_of_an_old_sandbox_frees_nothing() -> Result<(), CallError> {
    let sandbox = sandbox!(&[Need::Program("dnsmasq")]);
    let mut lab = Lab::new(&sandbox)?;
    lab.config["ipam"]["clientId"] = "text:db-0".into();
    lab.config["ipam"]["grace"] = 0.into();
    let server = Dnsmasq::start(&lab.lan, Grants::default())?;
    let mut seen = Capture::start(&lab.lan.server, Lan::IFNAME)?;
    let old = lab.attach("old")?;
    let refused = lab
        .add(lab.lan.container("new")?)
        .expect_err("the old sandbox lives")
        .cni();
    assert!(refused.msg.contains("lan/old/eth0"), "{refused}");

    // By the time of the ADD the kernel may or may not have removed the old namespace, and its lease may have been given back.
    let id = old.container.id.clone();
    drop(old);
    let new = lab.attach("new")?;
    server.wait_for("the new lease alone", DEADLINE, |history| {
        let held: Vec<_> = history.iter().map(|lease| lease.address).collect();
        (held == [new.address]).then_some(())
    })?;
    seen.clear()?;
    let environment = [("CNI_CONTAINERID", id.as_str()), ("CNI_IFNAME", "eth0")];
    lab.shim
        .start_with("DEL", &environment, lab.config.to_string().as_bytes())?
        .wait()?;
    lab.check(&new)?;
    let held: Vec<_> = server
        .leases()?
        .into_iter()
        .map(|lease| lease.mac)
        .collect();
    assert_eq!(held, [new.mac()]);
    assert!(
        seen.dhcp()?.is_empty(),
        "a late DEL says nothing on the wire:\n{seen}"
    );
    lab.detach(&new)?;
    Ok(server.wait_until_free()?)
}
