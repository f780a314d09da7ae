//! Strict detection and leases that are shorter than its probes.

use super::*;

#[test]
fn a_strict_add_of_too_short_a_lease_fails_at_once() {
    for seconds in [6, 7] {
        let mut rig = rig(Detection::Strict);
        rig.lease = seconds;
        let add = rig.add("a", 1, "a");
        let failure = rig.failure(add);
        let expected = format!(
            "server 192.0.2.1 grants {FIRST} for {seconds}s, and strict conflict detection takes up to 7s: set \
             conflictDetection to optimistic, or let the server grant longer leases"
        );
        assert_eq!(failure.to_string(), expected);
        assert_eq!((rig.kinds(), rig.asked.len()), (vec![1, 3, 7], 0));
        assert_eq!(rig.run_until(1060.0), 0, "nothing goes on");
        rig.assert_nothing_is_left();
    }
}

#[test]
fn a_lease_that_ends_during_its_probes_is_asked_for_anew() {
    let mut rig = rig(Detection::Strict);
    rig.lease = 10;
    let add = rig.add("a", 1, "a");
    // The host sleeps.
    rig.at = Duration::from_secs(1011);
    rig.run_until(1011.0);
    assert!(!rig.answers.contains_key(&add) && rig.store.records().is_empty());
    assert_eq!(rig.kinds(), [1, 3, 1, 3]);
    rig.run_until(1018.0);
    assert_eq!(rig.leased(add), FIRST);
}

#[test]
fn a_lease_that_ends_during_its_write_is_told_to_nobody() {
    let mut rig = rig(Detection::Optimistic);
    (rig.lease, rig.disk) = (6, Disk::Slow);
    let add = rig.add("a", 1, "a");
    rig.run_until(1007.0);
    rig.flush();
    assert!(!rig.answers.contains_key(&add), "{:?}", rig.answers[&add]);
    rig.disk_recovers();
    let Some(Answer::Leased { tenures }) = rig.answers.get(&add) else {
        panic!("{:?}", rig.answers.get(&add))
    };
    assert!(
        tenures[0]
            .times
            .is_some_and(|times| rig.now().boot < times.ends)
    );
    assert_eq!(rig.kinds(), [1, 3, 1, 3]);
    use EventKind::*;
    assert_eq!(rig.events(), [Acquired, Expired, Acquired]);
}
