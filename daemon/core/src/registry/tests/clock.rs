//! A wall clock that jumps. Within a boot only the times in records and events come from it, never deadlines; but if it is set
//! forward, the boot clock may have stood still.

use super::rig::*;

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

/// The daemon reads its clocks.
fn looks(rig: &mut Rig) {
    rig.rows();
}

#[test]
fn a_wall_clock_set_forward_has_leases_confirmed() {
    for (forward, confirms) in [(60, true), (YEAR, true), (59, false), (-HOUR, false)] {
        let mut rig = Rig::new(8);
        (rig.lease, rig.give) = (4000, FIRST);
        rig.bind();
        rig.sent.clear();
        rig.wall_set = forward;
        looks(&mut rig);
        rig.run_until(1011.0);
        let confirmed = [(3, std::net::Ipv4Addr::UNSPECIFIED)];
        assert_eq!(rig.sent, confirmed[..usize::from(confirms)], "{forward} s");
        assert_eq!(rig.state("a"), "BOUND");
    }
}

/// When the only lease began, by its record and by the clocks now.
fn since(rig: &Rig) -> [Duration; 2] {
    let record = rig.only_record();
    let age = rig.now().boot.saturating_since(record.lease.start);
    [
        record.since.since_epoch(),
        rig.now().wall.since_epoch() - age,
    ]
}

#[test]
fn a_record_follows_the_wall_clock_as_it_is_set() {
    for seconds in [-HOUR, HOUR, -YEAR, YEAR] {
        let mut rig = set(seconds);
        looks(&mut rig);
        let [said, is] = since(&rig);
        assert_eq!(said, is, "{seconds}");
        rig.wall_set = 0;
        let sent = rig.sent.len();
        rig.restart();
        let [said, is] = since(&rig);
        assert_eq!(said, is, "{seconds}: it was set while no daemon ran");
        assert_eq!(rig.sent.len(), sent);
    }
    let mut rig = Rig::new(8);
    (rig.profile.grace, rig.lease) = (Some(1000), 4000);
    rig.add("a", 1, "a");
    rig.del("a");
    rig.wall_set = YEAR;
    looks(&mut rig);
    let [said, is] = since(&rig);
    assert_eq!(said, is, "one that is kept too");
}

/// A record of the previous boot, whose lease began 900 s after that boot, as the next boot sees it 30 s after its own
/// start, `later` seconds after the lease's start by the wall clock.
fn after_a_reboot(later: i64) -> Record {
    let mut record = record("a", "before", 900.0);
    let wall = Duration::from_secs(
        record
            .since
            .since_epoch()
            .as_secs()
            .saturating_add_signed(later),
    );
    let boot = Instant::from_boot(Duration::from_secs(30));
    record.rebase(
        &BootId("b".into()),
        Now {
            boot,
            wall: WallTime::from_epoch(wall),
        },
    );
    record
}

#[test]
fn wall_time_that_passed_over_a_reboot_counts() {
    let ends = |later| after_a_reboot(later).lease.expires().unwrap().since_boot();
    // 40,000 s remain, counted from 30 s after the boot.
    assert_eq!(ends(10), Duration::from_secs(40_020));
    assert_eq!(ends(HOUR), Duration::from_secs(40_030 - 3600));
    assert_eq!(ends(39_000), Duration::from_secs(1030));
    assert_eq!(ends(YEAR), Duration::ZERO);
}
