//! Everything that a host can do to a daemon, at once: nobody reads its log, its disk fills up, its socket's file disappears, a
//! thousand callers hold their connections, and it is killed. Meanwhile containers come and go. None of a hundred leases is lost.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::net::Ipv4Addr;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use fastrand::Rng;
use netns_fixtures::server::{Grants, Kea, Lease};
use netns_fixtures::{
    CallError, Container, DEADLINE, Error, Lab, Lan, Member, Need, Shim, result_addresses, sandbox,
};
use serde_json::Value;

use crate::crash::each;

/// Containers that keep their leases.
const HELD: usize = 100;
/// Containers that come and go.
const PASSING: usize = 4;
/// Callers that send half of their request and hold the connection.
const CALLERS: usize = 1000;
/// How long it lasts.
const LASTS: Duration = Duration::from_secs(45);
/// Half the longest time for which the disk is full. A daemon cannot know what its predecessor could not write: both times are
/// shorter than the ten seconds that remain of a lease at T1.
const MOST_FULL: Duration = Duration::from_secs(4);
/// The store's disk: several times what it needs.
const DISK: &str = "24m";

#[test]
fn a_hundred_leases_outlive_a_siege() -> Result<(), CallError> {
    let mut lab = Lab::without_daemon(&sandbox!(&[Need::Program("kea-dhcp4")]))?;
    lab.home().on_a_small_disk(&lab.lan.host, DISK)?;
    lab.home().with_stalled_log()?;
    lab.start_daemon()?;
    let server = Kea::start(&lab.lan, Grants::lasting(20))?;
    let members = each(0..HELD, |i| lab.attach(&format!("c{i}")))?;
    let passing = (0..PASSING)
        .map(|i| lab.lan.container(&format!("p{i}")))
        .collect::<Result<Vec<_>, _>>()?;

    let macs = members.iter().map(Member::mac).collect();
    let rounds = meanwhile(&mut lab, &passing, |lab| besiege(lab, &server, &macs))?;
    let unread = lab.home().unread_log()?;
    // Each of its sixteen pages may have lacked room for the next line.
    assert!(
        unread > 40_000,
        "only {unread} bytes of log wait to be read"
    );
    assert!(rounds > PASSING, "only {rounds} containers came and went");

    for container in &passing {
        lab.shim.del(container, &lab.config)?;
    }
    server.wait_for("end of all that only passed", DEADLINE, |history| {
        (holders(history) == members.iter().map(Member::mac).collect()).then_some(())
    })?;
    none_was_lost(&members, &server.history()?)?;
    each(&members, |member| lab.check(member))?;
    each(&members, |member| lab.detach(member))?;
    server.wait_until_free()?;
    lab.daemon().wait_until_empty()?;
    Ok(())
}

/// Does one thing after the other to the daemon, with pauses that the server's file measures.
fn besiege(lab: &mut Lab, server: &Kea, members: &BTreeSet<String>) -> Result<(), CallError> {
    let until = Instant::now() + LASTS;
    let mut rng = Rng::with_seed(10);
    let renewals = |history: &[Lease]| {
        history
            .iter()
            .filter(|lease| members.contains(&lease.mac))
            .count()
    };
    let after = |more: usize, most: Duration| {
        let next = renewals(&server.history()?) + more;
        match server.wait_for("further renewals", most, |history| {
            (renewals(history) >= next).then_some(())
        }) {
            Err(Error::TimedOut { .. }) if most < DEADLINE => Ok(()),
            result => result,
        }
    };
    let mut callers = Vec::new();
    let ballast = lab.home().state_dir().join("ballast");
    for turn in 0.. {
        after(
            rng.usize(1..30),
            if turn % 4 == 3 { MOST_FULL } else { DEADLINE },
        )?;
        match turn % 4 {
            0 => callers = call(&lab.home().socket()),
            1 => match fs::remove_file(lab.home().socket()) {
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    panic!("the socket's file stays: {error}")
                }
                _ => {}
            },
            2 => fill(&ballast),
            _ => {
                // While the disk is full and the callers hold on.
                lab.kill9()?;
                lab.start_daemon()?;
                after(rng.usize(1..20), MOST_FULL)?;
                callers.clear();
                fs::remove_file(&ballast).expect("it is there");
                // What waited is written with the first record that the store takes.
                let witness = lab.attach(&format!("w{turn}"))?;
                lab.detach(&witness)?;
                if Instant::now() > until {
                    return Ok(());
                }
            }
        }
    }
    Ok(())
}

/// Writes until the disk is full.
fn fill(ballast: &Path) {
    let mut file = File::create(ballast).expect("a file can be made");
    for size in [65_536, 512, 1] {
        while file.write_all(&vec![0; size]).is_ok() {}
    }
}

/// Calls the daemon a thousand times at once. Calls that it refuses do not count.
fn call(socket: &Path) -> Vec<UnixStream> {
    let calls = (0..CALLERS).filter_map(|_| {
        let mut stream = UnixStream::connect(socket).ok()?;
        stream.write_all(b"GET /v1/bindings HTTP/1.1\r\n").ok()?;
        Some(stream)
    });
    calls.collect()
}

/// Attaches and detaches a container until it is `over`. Returns how often; a failed ADD does not count, and must fail with a CNI
/// error.
fn come_and_go(
    shim: &Shim,
    container: &Container,
    config: &Value,
    over: &AtomicBool,
) -> Result<usize, CallError> {
    let mut rounds = 0;
    while !over.load(Ordering::Relaxed) {
        match shim.add(container, config) {
            Ok(result) => {
                assert_eq!(result_addresses(&result)?.len(), 1, "{result}");
                rounds += 1;
            }
            Err(CallError::Cni { .. }) => {}
            Err(error) => return Err(error),
        }
        match shim.del(container, config) {
            Ok(()) | Err(CallError::Cni { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(rounds)
}

/// Does something to the daemon while containers come and go, and returns how often they did.
fn meanwhile(
    lab: &mut Lab,
    passing: &[Container],
    work: impl FnOnce(&mut Lab) -> Result<(), CallError>,
) -> Result<usize, CallError> {
    let (shim, config, over) = (lab.shim.clone(), lab.config.clone(), AtomicBool::new(false));
    thread::scope(|scope| {
        let traffic: Vec<_> = passing
            .iter()
            .map(|container| scope.spawn(|| come_and_go(&shim, container, &config, &over)))
            .collect();
        let done = work(lab);
        over.store(true, Ordering::Relaxed);
        let rounds = traffic
            .into_iter()
            .map(|thread| thread.join().expect("no caller panics"));
        let rounds = rounds.sum::<Result<usize, CallError>>()?;
        done.map(|()| rounds)
    })
}

/// Asserts that each member has had its one lease without a gap, and still has its address.
fn none_was_lost(members: &[Member], history: &[Lease]) -> Result<(), CallError> {
    for member in members {
        let grants: Vec<_> = history
            .iter()
            .filter(|lease| lease.mac == member.mac())
            .collect();
        assert!(
            grants.iter().all(|lease| lease.address == member.address),
            "a second lease: {grants:?}"
        );
        let no_gap = grants
            .windows(2)
            .all(|pair| pair[1].began <= Some(pair[0].expires));
        assert!(
            no_gap && grants.iter().all(|lease| lease.held),
            "a gap: {grants:?}"
        );
        assert_eq!(member.container.addresses()?, [Lan::on_lan(member.address)]);
    }
    Ok(())
}

/// Returns the hardware addresses of the holders of leases, according to the server's file.
fn holders(history: &[Lease]) -> BTreeSet<String> {
    let latest: BTreeMap<Ipv4Addr, &Lease> =
        history.iter().map(|lease| (lease.address, lease)).collect();
    latest
        .into_values()
        .filter(|lease| lease.held)
        .map(|lease| lease.mac.clone())
        .collect()
}
