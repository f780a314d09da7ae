//! Addresses from local ranges where no server answers: with a real server that comes and goes, and a port that forwards late.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::thread;

use netns_fixtures::server::{Dnsmasq, DnsmasqConfig};
use netns_fixtures::{CallError, Daemon, Error, Lab, Lan, Member, Need, sandbox};
use serde_json::{Value, json};

use crate::crash::each;

/// How many containers start at once.
const CROWD: usize = 100;

/// Returns ranges outside every server's pool.
fn fallback(after: u32) -> Value {
    let range =
        json!({"subnet": Lan::SUBNET, "rangeStart": "10.7.200.1", "rangeEnd": "10.7.203.254"});
    json!({"ranges": [[range]], "after": after})
}

fn is_local(address: Ipv4Addr) -> bool {
    (200..=203).contains(&address.octets()[2])
}

fn local(running: &[Member]) -> usize {
    running
        .iter()
        .filter(|member| is_local(member.address))
        .count()
}

/// Starts a crowd: the first quarter finds no server, the second one does, and the server leaves while the others start.
fn comes_and_goes(server: &mut Dnsmasq, lab: &Lab) -> Result<Vec<Member>, CallError> {
    let start = |n| lab.attach(&format!("c{n}"));
    let quarter = |n: usize| each(n * CROWD / 4..(n + 1) * CROWD / 4, start);
    server.stop()?;
    let mut running = quarter(0)?;
    assert_eq!(local(&running), running.len());
    server.restart(None)?;
    let served = quarter(1)?;
    assert_eq!(local(&served), 0);
    let (going, last) = thread::scope(|scope| {
        let going = scope.spawn(|| quarter(2));
        server.stop()?;
        let last = quarter(3);
        Ok::<_, CallError>((going.join().expect("no thread panics")?, last?))
    })?;
    running.extend(served.into_iter().chain(going).chain(last));
    let addresses: BTreeSet<_> = running.iter().map(|member| member.address).collect();
    // No two have one address.
    assert_eq!((running.len(), addresses.len()), (CROWD, CROWD));
    assert!(local(&running) >= CROWD / 2);
    Ok(running)
}

/// Returns how many leases of the list come from ranges.
fn of_ranges(daemon: &Daemon) -> Result<usize, Error> {
    Ok(daemon
        .list()?
        .iter()
        .filter(|binding| binding["source"] == "range")
        .count())
}

#[test]
fn a_hundred_containers_start_on_a_flaky_server() -> Result<(), CallError> {
    let mut lab = Lab::new(&sandbox!(&[Need::Program("dnsmasq")]))?;
    lab.config["ipam"]["fallback"] = fallback(3);
    lab.config["ipam"]["timeout"] = 60.into();
    let mut server = Dnsmasq::start(&lab.lan, DnsmasqConfig::default())?;
    let members = comes_and_goes(&mut server, &lab)?;

    // Restarted, the daemon goes on, and the next one is served.
    lab.kill9()?;
    lab.start_daemon()?;
    server.restart(None)?;
    let next = lab.attach("next")?;
    lab.daemon().wait_for_event("server_back")?;
    assert!(!is_local(next.address), "{}", next.address);
    // Those that have one keep it.
    assert_eq!(of_ranges(lab.daemon())?, local(&members));
    each(&members, |member| lab.check(member))?;
    each(members.iter().chain([&next]), |member| lab.detach(member))?;
    Ok(lab.daemon().wait_until_empty()?)
}

/// The plugin gives addresses without asking the daemon, in a network of the same name.
#[test]
fn a_fallback_passes_over_what_has_a_file_of_host_local() -> Result<(), CallError> {
    let mut lab = Lab::new(&sandbox!(&[]))?;
    let pods = "mount -t tmpfs none /var/lib; mkdir -p /var/lib/cni/networks/lan; cd /var/lib/cni/networks/lan; \
                touch lock 10.7.200.1 10.7.200.2 10.7.200.4";
    lab.lan.host.sh(pods)?;
    lab.config["name"] = "lan".into();
    let range =
        json!({"subnet": Lan::SUBNET, "rangeStart": "10.7.200.1", "rangeEnd": "10.7.200.5"});
    lab.config["ipam"]["fallback"] = json!({"ranges": [[range]], "after": 1});
    let mut members = Vec::new();
    for id in ["c1", "c2"] {
        members.push(lab.attach(id)?);
    }
    let given: BTreeSet<_> = members.iter().map(|member| member.address).collect();
    assert_eq!(given, [3, 5].map(|n| Ipv4Addr::new(10, 7, 200, n)).into());
    each(&members, |member| lab.detach(member)).map(drop)
}

#[test]
fn a_port_that_forwards_late_is_waited_for() -> Result<(), CallError> {
    let mut lab = Lab::new(&sandbox!(&[Need::Program("dnsmasq")]))?;
    lab.lan.add_host_bridge()?;
    lab.config = Lan::bridge_config(&lab.daemon().socket());
    lab.config["ipam"]["fallback"] = fallback(20);
    lab.config["ipam"]["timeout"] = 60.into();
    let server = Dnsmasq::start(&lab.lan, DnsmasqConfig::default())?;
    // Twice 7.5 s, listening and learning.
    let late = [
        "link",
        "set",
        Lan::BRIDGE,
        "type",
        "bridge",
        "forward_delay",
        "750",
        "stp_state",
        "1",
    ];
    lab.lan.host.run_command("ip", &late, "")?;
    let member = lab.add(lab.lan.bridged_container("c1")?)?;
    assert!(!is_local(member.address), "{}", member.address);
    lab.detach(&member)?;
    Ok(server.wait_until_free()?)
}
