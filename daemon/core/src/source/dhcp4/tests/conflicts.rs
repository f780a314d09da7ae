//! An address that another station uses: declined, and replaced.

use std::time::Duration;

use super::super::timing::Timer;
use super::super::{Loss, Output, Signal, StateName, Verdict};
use super::answers::requesting;
use super::script::{ACK, Bench, LEASED, OFFER, Reply, SERVER, at};
use crate::wire::Mac;

const NEIGHBOUR: Mac = Mac([2, 0, 0, 0, 0, 9]);
const CONFLICT: Signal<'_> = Signal::Conflict { by: NEIGHBOUR };

#[track_caller]
fn assert_declined(output: &Output) {
    let decline = output.sent();
    let found = (decline.kind(), decline.address(50));
    assert_eq!(found, ("DECLINE", Some(LEASED)));
    assert_eq!(decline.address(54), Some(SERVER));
    let Some(Verdict::Lost(lost, Loss::Conflict { by: NEIGHBOUR })) = &output.verdict else {
        panic!("{output:?}")
    };
    assert_eq!(lost.ip(), LEASED);
}

#[test]
fn an_address_in_use_is_declined_once_it_is_granted() {
    let (mut bench, xid) = requesting();
    assert_eq!(bench.client.requesting(), Some((LEASED, false)));
    let output = bench.signal(at(0.0), CONFLICT);
    assert!(
        output.frames.is_empty() && output.verdict.is_none(),
        "DECLINE answers the ACK: {output:?}"
    );
    bench.next(Timer::Retransmit, &["REQUEST"]);
    assert_eq!(bench.client.requesting(), Some((LEASED, true)));
    let output = bench.ack(at(2.0), xid);
    assert_declined(&output);
    assert_eq!((output.names(), output.listen), (vec!["DECLINE"], false));
    assert_eq!(bench.client.tally().declined, Some((LEASED, NEIGHBOUR)));
    assert_eq!(
        bench.deadline(),
        (at(2.0) + Duration::from_millis(100), Timer::Discover)
    );
    let (now, output) = bench.next(Timer::Discover, &["DISCOVER"]);
    let discover = output.sent();
    assert_eq!(discover.address(50), None, "not the same address again");
    assert_ne!(discover.xid(), xid);
    assert_eq!(bench.client.owed(now), None, "nothing is to be released");
    // The conflict does not concern the next offer.
    bench.offer(now, discover.xid());
    let output = bench.ack(now, discover.xid());
    output.won();
}

#[test]
fn a_server_that_offers_used_addresses_comes_last() {
    for waited_for in [true, false] {
        let (mut bench, mut xid) = requesting();
        if !waited_for {
            bench.client.not_waited_for();
        }
        for round in 1..=2 {
            let now = bench.deadline().0 - Duration::from_millis(500);
            bench.signal(now, CONFLICT);
            assert_declined(&bench.ack(now, xid));
            let (now, output) = bench.next(Timer::Discover, &["DISCOVER"]);
            xid = output.sent().xid();
            let offered = bench.offer(now, xid);
            // An address that is in use does not make a bad server.
            assert_eq!(offered.names().is_empty(), round == 2);
        }
        let now = bench.deadline().0 - Duration::from_millis(1);
        let good = Reply::new(OFFER, xid, 600)
            .giving([192, 0, 2, 60].into())
            .with(54, &[192, 0, 2, 9]);
        let found = bench.answer(now, &good).sent().address(54);
        assert_eq!(found, Some([192, 0, 2, 9].into()));
        bench.answer(
            now,
            &Reply::new(ACK, xid, 600)
                .giving([192, 0, 2, 60].into())
                .with(54, &[192, 0, 2, 9]),
        );
        bench.client.is_free();
        // A client that holds a lease remembers nothing of that.
        assert_eq!(bench.client.tally().declined, None);
    }
}

#[test]
fn a_held_address_in_conflict_is_declined_at_once() {
    for (asked, state) in [(300.0, StateName::Renewing), (525.0, StateName::Rebinding)] {
        let mut bench = Bench::bound(300, 525, 600);
        bench.clock(at(asked));
        assert_eq!(bench.client.state(), state);
        let output = bench.signal(at(asked + 1.0), CONFLICT);
        assert_declined(&output);
        assert!(!output.listen);
    }
    let mut bench = Bench::bound(300, 525, 600);
    let output = bench.signal(at(5.0), CONFLICT);
    assert_declined(&output);
    assert_eq!((output.names(), output.listen), (vec!["DECLINE"], false));
    assert_eq!(
        (
            bench.client.state(),
            bench.client.lease(),
            bench.client.owed(at(0.0))
        ),
        (StateName::Init, None, None)
    );
    // Carrier that was away makes it no sooner.
    assert!(!bench.client.seek_anew(at(6.0)));
    let found = bench.deadline();
    assert_eq!(found, (at(5.0) + Duration::from_secs(10), Timer::Discover));
    let (_, output) = bench.next(Timer::Discover, &["DISCOVER"]);
    assert_eq!(output.sent().address(50), None);
}

/// The pauses after this many conflicts in a row, in milliseconds, each just before its end and at it.
fn pauses(waited_for: bool, count: u32) -> Vec<u128> {
    let mut bench = Bench::acquiring();
    if !waited_for {
        bench.client.not_waited_for();
    }
    let mut now = at(0.0);
    let mut output = bench.clock(now);
    (0..count)
        .map(|_| {
            let xid = output.sent().xid();
            let offered = bench.offer(now, xid);
            if offered.frames.is_empty() {
                // Its server waits for another from the second on.
                now = bench.next(Timer::Choose, &["REQUEST"]).0;
            }
            bench.signal(now, CONFLICT);
            assert_declined(&bench.ack(now, xid));
            let (due, next) = bench.next(Timer::Discover, &["DISCOVER"]);
            let pause = due.saturating_since(now).as_millis();
            (now, output) = (due, next);
            pause
        })
        .collect()
}

#[test]
fn pauses_between_conflicts_grow_if_no_caller_waits() {
    assert_eq!(pauses(true, 3), [100, 100, 100]);
    let seconds: Vec<_> = pauses(false, 9)
        .into_iter()
        .map(|millis| millis / 1000)
        .collect();
    assert_eq!(seconds, [10, 20, 40, 80, 160, 320, 600, 600, 600]);
}

#[test]
fn a_free_address_resets_the_pauses_after_conflicts() {
    let mut bench = Bench::bound(300, 525, 600);
    for (now, pause) in [(5.0, 10), (100.0, 20)] {
        assert_declined(&bench.signal(at(now), CONFLICT));
        assert_eq!(
            bench.deadline(),
            (at(now) + Duration::from_secs(pause), Timer::Discover)
        );
        let (due, output) = bench.next(Timer::Discover, &["DISCOVER"]);
        let xid = output.sent().xid();
        let offered = bench.offer(due, xid);
        // Its server waits for another from the second on.
        let waits = offered.frames.is_empty();
        let due = if waits {
            bench.next(Timer::Choose, &["REQUEST"]).0
        } else {
            due
        };
        bench.ack(due, xid);
    }
    bench.client.is_free();
    assert_declined(&bench.signal(at(200.0), CONFLICT));
    assert_eq!(bench.deadline(), (at(210.0), Timer::Discover));
}

#[test]
fn without_an_address_there_is_no_conflict() {
    let mut bench = Bench::acquiring();
    bench.clock(at(0.0));
    let output = bench.signal(at(0.5), CONFLICT);
    assert!(
        output.frames.is_empty() && output.verdict.is_none() && output.listen,
        "{output:?}"
    );
}
