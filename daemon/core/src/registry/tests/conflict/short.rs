//! Strict detection and leases that are shorter than its probes.

use super::*;

#[test]
fn a_strict_add_of_too_short_a_lease_fails_at_once() {
    for seconds in [6, 7] {
        let mut rig = rig(Detection::Strict);
        rig.lease = seconds;
        let add = rig.add("a", 1, "a");
        let Answer::Failed(failure) = &rig.answers[&add] else {
            panic!("{:?}", rig.answers[&add])
        };
        let expected = format!(
            "server 192.0.2.1 grants {FIRST} for {seconds}s, and strict conflict detection takes up to 7s: set \
             conflictDetection to optimistic, or let the server grant longer leases"
        );
        assert_eq!(failure.to_string(), expected);
        assert_eq!((rig.messages(), rig.asked.len()), (vec![1, 3, 7], 0));
        assert_eq!(rig.run_until(1060.0), 0, "nothing goes on");
        assert!(rig.rows().is_empty() && rig.store.records().is_empty() && rig.open.is_empty());
    }
}

#[test]
fn a_strict_add_takes_a_lease_that_outlasts_its_probes() {
    let mut rig = rig(Detection::Strict);
    rig.lease = 8;
    let add = rig.add("a", 1, "a");
    rig.run_until(1007.0);
    assert_eq!(rig.leased(add), FIRST);
    rig.run_until(1060.0);
    assert!(
        matches!(rig.state("a")[..], ["BOUND" | "RENEWING"]),
        "{:?}",
        rig.state("a")
    );
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
    assert_eq!(rig.messages(), [1, 3, 1, 3]);
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
    rig.disk = Disk::Good;
    rig.flush();
    let Some(Answer::Leased { tenures }) = rig.answers.get(&add) else {
        panic!("{:?}", rig.answers.get(&add))
    };
    assert!(
        tenures[0]
            .times
            .is_some_and(|times| rig.now().boot < times.ends)
    );
    assert_eq!(rig.messages(), [1, 3, 1, 3]);
    use EventKind::*;
    assert_eq!(rig.kinds_of_events(), [Acquired, Expired, Acquired]);
}

/// A strict attachment whose lease has ended.
fn lost() -> Rig {
    let mut rig = rig(Detection::Strict);
    rig.lease = 20;
    rig.add("a", 1, "a");
    rig.configure("192.0.2.50/24");
    rig.run_until(1009.0);
    rig.server = Server::Silent;
    rig.run_until(1021.0);
    rig
}

#[test]
fn a_short_background_lease_is_extended_while_probed_for() {
    let mut rig = lost();
    (rig.server, rig.lease) = (Server::Up, 6);
    while !rig.messages().ends_with(&[1, 3]) {
        rig.wake();
    }
    let got = rig.seconds();
    rig.asked.clear();
    rig.run_until(got + 3.9);
    assert!(
        rig.asked.iter().all(|asked| *asked == PROBE),
        "{:?}",
        rig.asked
    );
    assert!(rig.on_link().is_empty());
    rig.run_until(got + 7.1);
    assert_eq!(rig.on_link(), ["192.0.2.50/24"]);
    let told = rig.rows()[0].tenure.clone().expect("a lease");
    assert!(told.times.is_some_and(|times| rig.now().boot < times.ends));
}

#[test]
fn a_background_lease_that_ends_in_its_probes_is_unused() {
    let mut rig = lost();
    rig.lease = 6;
    let (before, sent) = (rig.store.events.len(), rig.messages().len());
    for _ in 0..20 {
        rig.server = Server::Up;
        while !rig.messages().ends_with(&[1, 3]) {
            rig.wake();
        }
        // The host sleeps.
        rig.server = Server::Silent;
        rig.at += Duration::from_secs(6);
        rig.run_until(rig.seconds());
        assert!(rig.on_link().is_empty() && rig.rows()[0].tenure.is_none());
    }
    assert!(
        rig.messages().len() - sent < 20 * 8,
        "{} messages",
        rig.messages().len() - sent
    );
    assert!(!rig.kinds_of_events()[before..].contains(&EventKind::Acquired));
}
