//! The host's wall clock jumps; the leases do not notice. The core's tests (`registry/tests/clock.rs`) cover jumps across a
//! reboot.

use std::time::Duration;

use netns_fixtures::model::Kind;
use netns_fixtures::server::{Grants, Kea};
use netns_fixtures::{CallError, Capture, DEADLINE, Lab, Lan, Need, sandbox};
use serde_json::Value;

use crate::witness;

const T1: Duration = Duration::from_secs(3);
const HOUR: i64 = 3600;

#[test]
fn a_wall_clock_an_hour_back_hurts_no_lease() -> Result<(), CallError> {
    let sandbox = sandbox!(&[Need::Program("kea-dhcp4"), Need::OwnClock]);
    let mut lab = Lab::without_daemon(&sandbox)?;
    lab.home().with_own_clock(&lab.lan.host)?;
    let timers = Some((T1, Duration::from_secs(8)));
    let server = Kea::start(
        &lab.lan,
        Grants {
            lease_time: Duration::from_secs(12),
            timers,
            ..Grants::default()
        },
    )?;
    let mut seen = Capture::start(&lab.lan.server, Lan::IFNAME)?;
    lab.start_daemon()?;
    let member = lab.attach("c1")?;

    for (ahead, restarts) in [(-HOUR, false), (HOUR, false), (-HOUR, true)] {
        // Earlier requests, from before the jump, do not count.
        lab.home().set_clock(ahead)?;
        if restarts {
            lab.kill9()?;
            lab.start_daemon()?;
            witness::holds(&lab, [&member])?;
        }
        seen.clear()?;
        for _ in 0..2 {
            witness::renewal(&mut seen, &member, DEADLINE)?;
            seen.wait_for_dhcp(Kind::Ack, DEADLINE, |m| m.yiaddr == member.address)?;
        }
        lab.check(&member)?;
        let [acquired, renewed] = [first(&lab, "acquired")?, last(&lab, "renewed")?];
        assert_eq!(
            renewed < acquired,
            ahead < 0,
            "the daemon reads its own clock: {renewed} after {acquired}"
        );
    }
    assert!(
        !seen.dhcp()?.iter().any(|m| m.kind == Kind::Discover),
        "no lease was lost:\n{seen}"
    );
    // Each line of Kea's file is a grant, which began before the previous one ended.
    let grants: Vec<_> = server
        .history()?
        .into_iter()
        .filter(|lease| lease.held)
        .collect();
    assert!(grants.windows(2).all(|pair| pair[1].address == member.address && pair[1].began <= Some(pair[0].expires)));
    lab.detach(&member)?;
    Ok(server.wait_until_free()?)
}

/// Returns when an event of this kind first happened, by the daemon's clock.
fn first(lab: &Lab, kind: &str) -> Result<String, CallError> {
    Ok(times(lab, kind)?.into_iter().next().expect("there was one"))
}

/// Returns when an event of this kind last happened, by the daemon's clock.
fn last(lab: &Lab, kind: &str) -> Result<String, CallError> {
    Ok(times(lab, kind)?.pop().expect("there was one"))
}

fn times(lab: &Lab, kind: &str) -> Result<Vec<String>, CallError> {
    let lines = lab.daemon().operator(&["events", "--json"])?;
    let events = lines
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).expect("an event is JSON"));
    let times = events
        .filter(|event| event["kind"] == kind)
        .map(|event| event["time"].to_string());
    Ok(times.collect())
}
