//! Addresses of local ranges where no server answers: with a real server that comes and goes, and a port that forwards late.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::thread;

use netns_fixtures::server::{Dnsmasq, DnsmasqConfig};
use netns_fixtures::{CallError, Lab, Lan, Member, Need, sandbox};
use serde_json::{Value, json};

use crate::crash::each;

/// How many containers start at once.
const CROWD: usize = 100;

/// Returns ranges outside every server's pool.
fn fallback(after: u32) -> Value {
    let range = json!({"subnet": Lan::SUBNET, "rangeStart": "10.7.200.1", "rangeEnd": "10.7.203.254"});
    json!({"ranges": [[range]], "after": after})
}

fn is_local(address: Ipv4Addr) -> bool {
    (200..=203).contains(&address.octets()[2])
}

fn local(members: &[Member]) -> usize {
    members.iter().filter(|member| is_local(member.address)).count()
}

#[test]
fn a_hundred_containers_start_although_their_server_comes_and_goes() -> Result<(), CallError> {
    let Some(sandbox) = sandbox(&[Need::Program("dnsmasq")]) else { return Ok(()) };
    let mut lab = Lab::new(&sandbox)?;
    lab.config["ipam"]["fallback"] = fallback(3);
    lab.config["ipam"]["timeout"] = 60.into();
    let crowd = |from: usize| each(from..from + CROWD / 4, |i| lab.attach(&format!("c{i}")));
    // The first find no server.
    let mut members = crowd(0)?;
    assert_eq!(local(&members), members.len());
    let mut server = Dnsmasq::start(&lab.lan, DnsmasqConfig::default())?;
    let served = crowd(CROWD / 4)?;
    assert_eq!(local(&served), 0);
    // It goes while others are being served.
    let (going, last) = thread::scope(|scope| {
        let going = scope.spawn(|| crowd(CROWD / 2));
        server.stop()?;
        let last = crowd(CROWD * 3 / 4);
        Ok::<_, CallError>((going.join().expect("no thread panics")?, last?))
    })?;
    members.extend(served.into_iter().chain(going).chain(last));
    let addresses: BTreeSet<_> = members.iter().map(|member| member.address).collect();
    assert_eq!((members.len(), addresses.len()), (CROWD, CROWD), "no two have one address");
    assert!(local(&members) >= CROWD / 2);

    // Restarted, the daemon goes on: one container asks for all, and the next one is served.
    lab.kill9()?;
    lab.start_daemon()?;
    server.restart(None)?;
    lab.daemon().wait_for_event("server_back")?;
    let next = lab.attach("next")?;
    assert!(!is_local(next.address), "{}", next.address);
    let of_ranges = lab.daemon().list()?.iter().filter(|binding| binding["source"] == "range").count();
    assert_eq!(of_ranges, local(&members), "those that have one keep it");
    each(&members, |member| lab.check(member))?;
    each(members.iter().chain([&next]), |member| lab.detach(member))?;
    Ok(lab.daemon().wait_until_empty()?)
}

#[test]
fn a_port_that_forwards_late_is_waited_for() -> Result<(), CallError> {
    let Some(sandbox) = sandbox(&[Need::Program("dnsmasq")]) else { return Ok(()) };
    let mut lab = Lab::new(&sandbox)?;
    lab.lan.add_host_bridge()?;
    lab.config = Lan::bridge_config(&lab.daemon().socket());
    lab.config["ipam"]["fallback"] = fallback(20);
    lab.config["ipam"]["timeout"] = 60.into();
    let server = Dnsmasq::start(&lab.lan, DnsmasqConfig::default())?;
    // Twice 7.5 s, listening and learning.
    let late = ["link", "set", Lan::BRIDGE, "type", "bridge", "forward_delay", "750", "stp_state", "1"];
    lab.lan.host.run_command("ip", &late, "")?;
    let member = lab.add(lab.lan.bridged_container("c1")?)?;
    assert!(!is_local(member.address), "{}", member.address);
    lab.detach(&member)?;
    Ok(server.wait_until_free()?)
}
