//! The daemon dies; the leases do not.

use std::thread;

use netns_fixtures::model::Kind;
use netns_fixtures::server::{Dnsmasq, DnsmasqConfig, Grants, Kea, Lease};
use netns_fixtures::{CallError, Capture, DEADLINE, Lab, Lan, Mac, Member, Need, Packet, sandbox};

use crate::witness;

const LEASES: usize = 50;

#[test]
fn fifty_leases_outlive_kill_9() -> Result<(), CallError> {
    let mut lab = Lab::new(&sandbox!(&[Need::Program("kea-dhcp4")]))?;
    // T1 leaves room for everything before the first renewal, even on a busy machine.
    let server = Kea::start(&lab.lan, Grants::lasting(40).renewed(20, 30))?;
    let members = each(0..LEASES, |i| lab.attach(&format!("c{i}")))?;
    assert_eq!(server.leases()?.len(), LEASES);

    lab.kill9()?;
    let mut seen = Capture::start(&lab.lan.host, Lan::IFNAME)?;
    lab.start_daemon()?;
    witness::holds_bound(&lab, &members)?;
    each(&members, |member| lab.check(member))?;
    let macs: Vec<Mac> = members.iter().map(|member| member.container.mac).collect();
    let sent: Vec<_> = seen
        .packets()?
        .iter()
        .filter(|packet| is_from(packet, &macs))
        .collect();
    assert!(sent.is_empty(), "the next daemon sent {sent:?}");

    let history = server.wait_for("renewal of every lease", DEADLINE, |history| {
        members
            .iter()
            .all(|member| grants(history, member).len() > 1)
            .then(|| history.to_vec())
    })?;
    for member in &members {
        let grants = grants(&history, member);
        assert!(
            grants.iter().all(|lease| lease.address == member.address),
            "{grants:?}"
        );
        let in_time = grants
            .windows(2)
            .all(|pair| pair[1].began < Some(pair[0].expires));
        assert!(in_time, "a lease ended before it was renewed: {grants:?}");
    }
    let discovers = seen
        .dhcp()?
        .iter()
        .filter(|m| m.kind == Kind::Discover)
        .count();
    assert_eq!(discovers, 0, "a renewal is no new lease");
    each(&members, |member| lab.check(member))?;

    each(&members, |member| lab.detach(member))?;
    server.wait_until_free()?;
    lab.daemon().wait_until_empty()?;
    Ok(())
}

#[test]
fn del_while_the_daemon_is_down_is_not_forgotten() -> Result<(), CallError> {
    let mut lab = Lab::new(&sandbox!(&[Need::Program("dnsmasq")]))?;
    let server = Dnsmasq::start(&lab.lan, DnsmasqConfig::default())?;
    let (gone, stays) = (lab.attach("gone")?, lab.attach("stays")?);
    lab.kill9()?;

    lab.detach(&gone)?;
    // Nobody was there to send a RELEASE.
    assert_eq!(server.leases()?.len(), 2);
    lab.start_daemon()?;
    server.wait_for("the release of one lease", DEADLINE, |leases| {
        let left: Vec<_> = leases.iter().map(|lease| lease.address).collect();
        (left == [stays.address]).then_some(())
    })?;
    lab.daemon().wait_for_event("lan/gone/eth0 released ")?;
    lab.check(&stays)?;
    lab.check(&gone).expect_err("the attachment is gone");
    witness::holds_bound(&lab, [&stays])?;
    Ok(())
}

/// Does the same for each of several, at the same time.
pub(crate) fn each<I: Send, T: Send>(
    items: impl IntoIterator<Item = I>,
    work: impl Fn(I) -> Result<T, CallError> + Sync,
) -> Result<Vec<T>, CallError> {
    thread::scope(|s| {
        let work = &work;
        let running: Vec<_> = items
            .into_iter()
            .map(|item| s.spawn(move || work(item)))
            .collect();
        running
            .into_iter()
            .map(|thread| thread.join().expect("no thread panics"))
            .collect()
    })
}

/// Returns every grant to a member, oldest first.
fn grants(history: &[Lease], member: &Member) -> Vec<Lease> {
    let mac = member.mac();
    history
        .iter()
        .filter(|lease| lease.mac == mac && lease.held)
        .cloned()
        .collect()
}

/// Returns whether a packet is DHCP or an ARP request, and comes from one of these.
fn is_from(packet: &Packet, macs: &[Mac]) -> bool {
    match packet {
        Packet::Dhcp(message) => macs.contains(&message.eth_source),
        Packet::Arp(arp) => arp.request && macs.contains(&arp.sender_mac),
        Packet::Other(_) => false,
    }
}
