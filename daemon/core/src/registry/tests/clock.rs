//! A wall clock that jumps. Within a boot only the times in records and events come from it; deadlines never do.

use std::time::Duration;

use super::super::*;
use super::rig::*;
use crate::event::EventKind;
use crate::record::Record;
use crate::time::WallTime;

const HOUR: i64 = 3600;
const YEAR: i64 = 365 * 24 * HOUR;

/// A lease of 100 s that began at 1000 s, with the wall clock set at 1010 s.
fn set(seconds: i64) -> Rig {
    let mut rig = Rig::new(8);
    rig.add("a", 1, "a");
    rig.run_until(1010.0);
    rig.wall_set = seconds;
    rig
}

#[test]
fn a_renewal_comes_at_t1_whatever_the_wall_clock_does() {
    for seconds in [-HOUR, HOUR, -YEAR, YEAR, i64::MIN] {
        let mut rig = set(seconds);
        rig.run_until(rig.t1() - 0.1);
        assert_eq!(rig.events.len(), 1, "{seconds}");
        rig.run_until(1051.0);
        assert_eq!(rig.events[1].kind, EventKind::Renewed, "{seconds}");
    }
}

#[test]
fn a_restart_goes_on_where_leases_stood_whatever_the_wall_clock_did() {
    for seconds in [-HOUR, HOUR, -YEAR, YEAR, i64::MIN] {
        let mut rig = set(seconds);
        let before: Vec<_> = rig.rows();
        let (records, sent) = (rig.stored.clone().into_iter().collect(), rig.sent.len());
        rig.reg = Registry::new(Config::default(), 8);
        rig.input(Input::Start {
            boot: BootId("b".into()),
            records,
            docker: vec![],
            spooled: vec![],
            adoptees: vec![],
        });
        assert_eq!(rig.rows(), before, "{seconds}");
        rig.run_until(rig.t1() - 0.1);
        assert_eq!(rig.sent.len(), sent, "{seconds}: a restart sends nothing");
        rig.run_until(1051.0);
        assert_eq!(rig.events[1].kind, EventKind::Renewed, "{seconds}");
    }
}

/// A record of the boot before, which began 900 s after it, as the next boot sees it 30 s after its own begin, `later`
/// seconds after the lease's begin by the wall clock.
fn after_a_reboot(later: i64) -> Record {
    let mut record = record("a", "before", 900.0);
    let wall = Duration::from_secs(record.since.since_epoch().as_secs().saturating_add_signed(later));
    let boot = Instant::from_boot(Duration::from_secs(30));
    record.rebase(&BootId("b".into()), Now { boot, wall: WallTime::from_epoch(wall) });
    record
}

#[test]
fn a_wall_clock_that_went_back_over_a_reboot_makes_a_lease_no_older() {
    for later in [0, -1, -HOUR, -YEAR, i64::MIN] {
        let lease = after_a_reboot(later).lease;
        assert_eq!(lease.start.since_boot(), Duration::from_secs(30), "{later}");
        assert_eq!(lease.times, record("a", "before", 900.0).lease.times, "{later}");
    }
}

#[test]
fn time_that_passed_by_the_wall_clock_over_a_reboot_counts() {
    let ends = |later| after_a_reboot(later).lease.expires().unwrap().since_boot();
    // 40,000 s: as many are left of them, from 30 s after the boot on.
    assert_eq!(ends(10), Duration::from_secs(40_020));
    assert_eq!(ends(HOUR), Duration::from_secs(40_030 - 3600));
    assert_eq!(ends(39_000), Duration::from_secs(1030));
    assert_eq!(ends(YEAR), Duration::ZERO);
}
