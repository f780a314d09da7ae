//! Everything at once: a hundred containers whose leases are renewed every five seconds, a daemon that is killed again and again,
//! and containers that come and go.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use fastrand::Rng;
use netns_fixtures::server::{Kea, KeaConfig, Lease};
use netns_fixtures::{
    CallError, Container, DEADLINE, Lab, Lan, Member, Need, Shim, result_addresses, sandbox,
};
use serde_json::Value;

use crate::crash::each;

/// Containers that keep their leases.
const HELD: usize = 100;
/// Containers that come and go.
const PASSING: usize = 4;
/// How often the daemon is killed.
const KILLS: usize = 20;
/// How long a lease lasts, and its T1 and T2. On a busy machine the kernel takes seconds to end a killed daemon with its sockets:
/// what remains of a lease at T1 must be longer than a few of these pauses.
const LEASE: Duration = Duration::from_secs(30);
const TIMERS: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(25));
/// The average number of renewals between two kills. Each lease is renewed every five seconds, so this makes three seconds, and a
/// minute in all.
const RENEWALS: usize = 60;

#[test]
fn a_hundred_leases_outlive_a_minute_of_kills() -> Result<(), CallError> {
    let sandbox = sandbox!(&[Need::Program("kea-dhcp4")]);
    let mut lab = Lab::new(&sandbox)?;
    let server = Kea::start(
        &lab.lan,
        KeaConfig {
            lease_time: LEASE,
            timers: Some(TIMERS),
            ..KeaConfig::default()
        },
    )?;
    let members = each(0..HELD, |i| lab.attach(&format!("c{i}")))?;
    let passing = (0..PASSING)
        .map(|i| lab.lan.container(&format!("p{i}")))
        .collect::<Result<Vec<_>, _>>()?;

    let macs = members.iter().map(Member::mac).collect();
    let rounds = meanwhile(&mut lab, &passing, come_and_go, |lab| {
        kill_again_and_again(lab, &server, &macs)
    })?;
    assert!(rounds > KILLS, "only {rounds} containers came and went");

    server.wait_for("release of all that only passed", DEADLINE, |history| {
        (holders(history) == members.iter().map(Member::mac).collect()).then_some(())
    })?;
    let history = server.history()?;
    none_was_lost(&members, &history)?;
    each(&members, |member| lab.check(member))?;
    each(&members, |member| lab.detach(member))?;
    server.wait_until_free()?;
    lab.daemon().wait_until_empty()?;
    Ok(())
}

/// Makes a container come and go until it is over, and returns how often it did.
pub(crate) type Traffic = fn(&Shim, &Container, &Value, &AtomicBool) -> Result<usize, CallError>;

/// Does something to the daemon while containers come and go, and returns how often they did.
pub(crate) fn meanwhile(
    lab: &mut Lab,
    passing: &[Container],
    come_and_go: Traffic,
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

/// Kills the daemon and starts the next one again and again, at moments that the server's file decides, not a clock.
fn kill_again_and_again(
    lab: &mut Lab,
    server: &Kea,
    members: &BTreeSet<String>,
) -> Result<(), CallError> {
    let mut rng = Rng::with_seed(5);
    let renewals = |history: &[Lease]| {
        history
            .iter()
            .filter(|lease| members.contains(&lease.mac))
            .count()
    };
    for _ in 0..KILLS {
        let next = renewals(&server.history()?) + rng.usize(1..2 * RENEWALS);
        server.wait_for("further renewals", DEADLINE, |history| {
            (renewals(history) >= next).then_some(())
        })?;
        lab.kill9()?;
        lab.start_daemon()?;
    }
    Ok(())
}

/// Attaches and detaches a container until it is `over`, and returns how often.
fn come_and_go(
    shim: &Shim,
    container: &Container,
    config: &Value,
    over: &AtomicBool,
) -> Result<usize, CallError> {
    let mut rounds = 0;
    while !over.load(Ordering::Relaxed) {
        let result = shim.add(container, config)?;
        assert_eq!(result_addresses(&result)?.len(), 1, "{result}");
        shim.del(container, config)?;
        rounds += 1;
    }
    Ok(rounds)
}

/// Asserts that each member has had its one lease without a gap, and still has its address.
pub(crate) fn none_was_lost(members: &[Member], history: &[Lease]) -> Result<(), CallError> {
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
pub(crate) fn holders(history: &[Lease]) -> BTreeSet<String> {
    let latest: BTreeMap<Ipv4Addr, &Lease> =
        history.iter().map(|lease| (lease.address, lease)).collect();
    latest
        .into_values()
        .filter(|lease| lease.held)
        .map(|lease| lease.mac.clone())
        .collect()
}
