//! What the daemon must say, and what a capture of the server's link must show.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::time::Duration;

use netns_fixtures::model::{Kind, code};
use netns_fixtures::{Capture, Container, Dhcp, Error, Lab, Lan, Member, until_link};
use serde_json::Value;

/// Asserts that the daemon lists each of the members with its address, and nobody else. Returns the rows.
pub(crate) fn holds<'a>(
    lab: &Lab,
    members: impl IntoIterator<Item = &'a Member>,
) -> Result<Vec<Value>, Error> {
    let rows = lab.daemon().list()?;
    let holding = |row: &Value| {
        let address = row["address"]
            .as_str()
            .and_then(|a| a.split('/').next()?.parse().ok());
        (
            row["attachment"]["container"]
                .as_str()
                .unwrap_or_default()
                .to_owned(),
            address,
        )
    };
    let expected = members
        .into_iter()
        .map(|member| (member.container.id.clone(), Some(member.address)));
    let expected: BTreeMap<_, Option<Ipv4Addr>> = expected.collect();
    assert_eq!(
        rows.iter().map(holding).collect::<BTreeMap<_, _>>(),
        expected
    );
    Ok(rows)
}

/// Does the same, and asserts that each lease is at rest.
pub(crate) fn holds_bound<'a>(
    lab: &Lab,
    members: impl IntoIterator<Item = &'a Member>,
) -> Result<(), Error> {
    let rows = holds(lab, members)?;
    assert!(rows.iter().all(|row| row["state"] == "BOUND"), "{rows:?}");
    Ok(())
}

/// Waits for a RENEW of a member: a REQUEST from its address to the server alone, by IP and by Ethernet.
pub(crate) fn renewal(
    witness: &mut Capture,
    member: &Member,
    limit: Duration,
) -> Result<Dhcp, Error> {
    let request = claim(witness, member, limit)?;
    assert!(
        request.is_unicast(),
        "a RENEW goes to the server alone: {request:?}"
    );
    let found = (request.source, request.destination);
    assert_eq!(found, (member.address, Lan::SERVER));
    assert_eq!((request.source_port, request.destination_port), (68, 67));
    Ok(request)
}

/// Waits for a REBIND of a member: a REQUEST from its address to everybody.
pub(crate) fn rebinding(
    witness: &mut Capture,
    member: &Member,
    limit: Duration,
) -> Result<Dhcp, Error> {
    let request = witness.wait_for_dhcp(Kind::Request, limit, |m| {
        m.ciaddr == member.address
            && m.chaddr == member.container.mac
            && m.destination.is_broadcast()
    })?;
    let found = (request.source, request.destination);
    assert_eq!(found, (member.address, Ipv4Addr::BROADCAST));
    // A REBIND names no server (RFC 2131 table 5).
    assert_eq!(request.option(code::SERVER), None);
    // A REBIND requests by ciaddr (RFC 2131 table 5).
    assert_eq!(request.option(code::REQUESTED), None);
    Ok(request)
}

/// Waits for a member to ask whether it may keep its address: a REQUEST to everybody, from no address yet.
pub(crate) fn init_reboot(
    witness: &mut Capture,
    member: &Member,
    limit: Duration,
) -> Result<Dhcp, Error> {
    let request = witness.wait_for_dhcp(Kind::Request, limit, |m| {
        m.chaddr == member.container.mac
            && m.ciaddr.is_unspecified()
            && m.option(code::SERVER).is_none()
    })?;
    let found = (request.source, request.destination);
    assert_eq!(found, (Ipv4Addr::UNSPECIFIED, Ipv4Addr::BROADCAST));
    assert_eq!(request.address(code::REQUESTED), Some(member.address));
    Ok(request)
}

/// Waits for the RELEASE of a member, from its address to the server alone.
pub(crate) fn release(
    witness: &mut Capture,
    member: &Member,
    limit: Duration,
) -> Result<(), Error> {
    let release = witness.wait_for_release(member.address, limit)?;
    let found = (release.source, release.destination);
    assert_eq!(found, (member.address, Lan::SERVER));
    assert_eq!(release.chaddr, member.container.mac);
    assert_eq!(release.address(code::SERVER), Some(Lan::SERVER));
    Ok(())
}

/// Waits until a member goes back to INIT after a NAK, and returns the address of its next lease.
pub(crate) fn new_lease_after_nak(
    witness: &mut Capture,
    member: &Member,
    limit: Duration,
) -> Result<Ipv4Addr, Error> {
    let own = |m: &Dhcp| m.chaddr == member.container.mac;
    for kind in [Kind::Nak, Kind::Discover, Kind::Offer, Kind::Request] {
        witness.wait_for_dhcp(kind, limit, own)?;
    }
    witness
        .wait_for_dhcp(Kind::Ack, limit, own)
        .map(|ack| ack.yiaddr)
}

/// Waits for the next REQUEST with the member's address in ciaddr.
fn claim(witness: &mut Capture, member: &Member, limit: Duration) -> Result<Dhcp, Error> {
    let request = witness.wait_for_dhcp(Kind::Request, limit, |m| {
        m.ciaddr == member.address && m.chaddr == member.container.mac
    })?;
    // A RENEW names no server (RFC 2131 table 5).
    assert_eq!(request.option(code::SERVER), None);
    // A RENEW requests by ciaddr (RFC 2131 table 5).
    assert_eq!(request.option(code::REQUESTED), None);
    Ok(request)
}

/// Waits until a container's routes have a line that begins with each of `wanted`, and none that contains any of `gone`.
pub(crate) fn routes(
    container: &Container,
    wanted: &[&str],
    gone: &[&str],
    limit: Duration,
) -> Result<(), Error> {
    let netns = &container.netns;
    until_link(
        netns,
        &format!("routes {wanted:?} without {gone:?}"),
        limit,
        || {
            let routes = netns.sh("ip -4 route")?;
            let has = |wanted: &&str| routes.lines().any(|line| line.starts_with(wanted));
            Ok(
                (wanted.iter().all(has) && !gone.iter().any(|gone| routes.contains(gone)))
                    .then_some(()),
            )
        },
    )
}
