//! Every timer of the client: nothing just before its deadline, the message at it.

use std::time::Duration;

use fastrand::Rng;

use super::super::profile::Wanted;
use super::super::timing::Timer;
use super::super::{Client, Loss, Output, Signal, StateName, Verdict};
use super::script::{ACK, Bench, LEASED, MAC, Reply, SERVER_MAC, STATION, at, lease, plain, sent};
use crate::wire::Mac;

fn between(value: Duration, low: f64, high: f64) {
    assert!(
        (low..=high).contains(&value.as_secs_f64()),
        "{value:?} is not in {low}..={high}"
    );
}

#[test]
fn discover_is_sent_again_after_1_2_4_8_8_seconds() {
    let mut bench = Bench::acquiring();
    let first = bench.clock(at(0.0));
    assert_eq!(first.sent().kind(), "DISCOVER");
    let mut last = at(0.0);
    for base in [1.0, 2.0, 4.0, 8.0, 8.0, 8.0] {
        let (when, output) = bench.next(Timer::Retransmit, &["DISCOVER"]);
        between(when.saturating_since(last), base * 0.875, base * 1.125);
        assert!(output.listen, "a caller waits: the sockets stay open");
        assert_eq!(output.sent().xid(), first.sent().xid());
        assert_eq!(u64::from(output.sent().secs()), when.since_boot().as_secs());
        last = when;
    }
}

/// Returns whether the broadcast flag is set in the only frame.
fn is_flagged(output: &Output) -> bool {
    let [frame] = &output.frames[..] else {
        panic!("{} frames", output.frames.len())
    };
    sent(frame).payload[10] & 0x80 != 0
}

#[test]
fn the_broadcast_flag_is_set_from_the_third_discover() {
    let mut bench = Bench::acquiring();
    let first = bench.clock(at(0.0));
    let xid = first.sent().xid();
    let mut flags = vec![is_flagged(&first)];
    let mut last = at(0.0);
    for _ in 0..3 {
        let (when, output) = bench.next(Timer::Retransmit, &["DISCOVER"]);
        flags.push(is_flagged(&output));
        last = when;
    }
    assert_eq!(flags, [false, false, true, true]);
    let request = bench.offer(last, xid);
    assert!(is_flagged(&request), "its answer would be lost without it");
    bench.ack(last, xid);
    assert!(bench.client.flag_helped());
}

#[test]
fn an_answer_in_time_needs_no_broadcast_flag() {
    let mut bench = Bench::acquiring();
    let xid = bench.begin();
    let (when, again) = bench.next(Timer::Retransmit, &["DISCOVER"]);
    let request = bench.offer(when, xid);
    assert!(!is_flagged(&again) && !is_flagged(&request));
    assert!(!bench.client.flag_helped());
    let again: Vec<_> = (0..2)
        .map(|_| is_flagged(&bench.next(Timer::Retransmit, &["REQUEST"]).1))
        .collect();
    assert_eq!(again, [false, true]);
}

#[test]
fn a_request_is_sent_three_times_before_a_new_discover() {
    let mut bench = Bench::acquiring();
    let xid = bench.begin();
    let request = bench.offer(at(0.1), xid);
    assert_eq!(request.sent().kind(), "REQUEST");
    let mut last = at(0.1);
    for base in [1.0, 2.0] {
        let (when, output) = bench.next(Timer::Retransmit, &["REQUEST"]);
        between(when.saturating_since(last), base * 0.875, base * 1.125);
        assert_eq!(output.sent().xid(), xid);
        last = when;
    }
    let (_, output) = bench.next(Timer::Retransmit, &["DISCOVER"]);
    assert_ne!(output.sent().xid(), xid, "a new transaction");
}

#[test]
fn an_init_reboot_is_sent_twice_before_a_discover() {
    let client = Client::reacquire(plain(), lease().into(), at(0.0), Rng::with_seed(7));
    let mut bench = Bench::new(client);
    let outputs = [
        bench.clock(at(0.0)),
        bench.next(Timer::Retransmit, &["REQUEST"]).1,
        bench.next(Timer::Retransmit, &["DISCOVER"]).1,
    ];
    let [first, _, discover] = outputs.each_ref().map(|output| output.sent());
    let found = (first.kind(), first.address(50), first.address(54));
    assert_eq!(found, ("REQUEST", Some(LEASED), None));
    assert_eq!(discover.address(50), Some(LEASED));
    let flagged = outputs.each_ref().map(is_flagged);
    assert_eq!(flagged, [false, false, true], "these messages count too");
}

#[test]
fn an_unconfirmed_lease_is_asked_for_until_confirmed() {
    let mut bench = Bench::confirming();
    let (mut last, mut xid) = (at(0.0), 0);
    for (least, most) in [
        (0.0, 10.0),
        (7.0, 9.0),
        (14.0, 18.0),
        (28.0, 36.0),
        (52.5, 67.5),
        (52.5, 67.5),
    ] {
        let (when, _) = bench.next(Timer::Discover, &["REQUEST"]);
        between(when.saturating_since(last), least, most);
        let (_, output) = bench.next(Timer::Retransmit, &["REQUEST"]);
        xid = output.sent().xid();
        let (given_up, output) = bench.next(Timer::Retransmit, &[]);
        let found = (bench.client.state(), output.listen);
        assert_eq!(found, (StateName::InitReboot, false));
        assert!(bench.client.lease().is_some() && bench.client.is_unconfirmed());
        last = given_up;
    }
    assert!(bench.ack(last, xid).verdict.is_none(), "nobody listens");
    let xid = bench.next(Timer::Discover, &["REQUEST"]).1.sent().xid();
    let answered = bench.deadline().0 - Duration::from_millis(1);
    assert!(bench.ack(answered, xid).verdict.is_some());
    let found = (bench.client.state(), bench.client.is_unconfirmed());
    assert_eq!(found, (StateName::Bound, false));
}

#[test]
fn a_server_silent_to_arp_gets_renew_at_its_last_mac() {
    for (begun, to) in [(500.0, SERVER_MAC), (800.0, Mac::BROADCAST)] {
        let mut bench = Bench::bound(500, 875, 1000);
        bench.clock(at(begun));
        assert_eq!(bench.deadline(), (at(begun + 0.2), Timer::Resolve));
        bench.next(Timer::Resolve, &["ARP"]);
        bench.next(Timer::Resolve, &["ARP"]);
        let (when, output) = bench.next(Timer::Resolve, &["REQUEST"]);
        let request = output.sent();
        let found = (when, request.to, request.source);
        assert_eq!(found, (at(begun + 0.6), to, LEASED));
    }
}

#[test]
fn each_renewal_listens_longer_and_halves_the_wait() {
    let mut bench = Bench::bound(500, 900, 1000);
    bench.next(Timer::Renew, &["ARP"]);
    let request = bench.resolved(at(500.0)).sent();
    let found = (request.kind(), request.to, request.ciaddr());
    assert_eq!(found, ("REQUEST", SERVER_MAC, LEASED));
    for (window, again) in [(504.0, 700.0), (708.0, 800.0), (816.0, 850.0)] {
        let (when, output) = bench.next(Timer::ReceiveWindow, &[]);
        // The sockets close.
        assert_eq!((when, output.listen), (at(window), false));
        let (when, _) = bench.next(Timer::Retransmit, &["ARP"]);
        assert_eq!(when, at(again));
        assert_eq!(bench.resolved(at(again)).frames.len(), 1);
    }
    bench.next(Timer::ReceiveWindow, &[]);
    let (when, output) = bench.next(Timer::Rebind, &["REQUEST"]);
    let request = output.sent();
    let found = (when, request.to, request.source, request.ciaddr());
    assert_eq!(found, (at(900.0), Mac::BROADCAST, LEASED, LEASED));
    assert_eq!(bench.client.state(), StateName::Rebinding);
}

#[test]
fn each_rebinding_halves_the_wait_until_the_end() {
    let mut bench = Bench::bound(500, 600, 1000);
    bench.clock(at(600.0));
    for (window, again) in [(604.0, 800.0), (808.0, 900.0), (916.0, 950.0)] {
        assert_eq!(bench.next(Timer::ReceiveWindow, &[]).0, at(window));
        assert_eq!(bench.next(Timer::Retransmit, &["REQUEST"]).0, at(again));
    }
    bench.next(Timer::ReceiveWindow, &[]);
    let (when, output) = bench.next(Timer::Expire, &["DISCOVER"]);
    assert_eq!(when, at(1000.0));
    assert!(matches!(
        output.verdict,
        Some(Verdict::Lost(_, Loss::Expired { .. }))
    ));
    // The same address, if it may be.
    assert_eq!(output.sent().address(50), Some(LEASED));
    assert!(bench.client.lease().is_none());
}

#[test]
fn a_lease_of_ten_seconds_is_asked_for_at_each_chance() {
    let mut bench = Bench::bound(5, 8, 10);
    bench.next(Timer::Renew, &["ARP"]);
    bench.resolved(at(5.0));
    // The window is open all along.
    assert_eq!(bench.next(Timer::Retransmit, &["ARP"]).0, at(6.5));
    bench.resolved(at(6.5));
    assert_eq!(bench.next(Timer::Rebind, &["REQUEST"]).0, at(8.0));
    assert_eq!(bench.next(Timer::Retransmit, &["REQUEST"]).0, at(9.0));
    assert_eq!(bench.next(Timer::Expire, &["DISCOVER"]).0, at(10.0));
}

#[test]
fn no_try_leaves_in_the_last_second_before_t2_or_the_end() {
    for lease in (10..400).chain([600, 3600, 86_400]) {
        let mut bench = Bench::bound(lease / 2, lease - lease / 8, lease);
        let held = bench.client.shared().expect("a lease");
        let t2 = held.t2().expect("it has an end");
        let end = held.expires().expect("it has an end");
        let mut rebinds = 0;
        while bench.client.lease().is_some() {
            let (now, _) = bench.deadline();
            let output = bench.clock(now);
            match (output.frames.is_empty(), bench.client.state()) {
                (false, StateName::Renewing) => {
                    assert!(now + Duration::from_secs(1) <= t2, "{lease}: {now:?}");
                    bench.resolved(now);
                }
                (false, StateName::Rebinding) => {
                    assert!(
                        now == t2 || now + Duration::from_secs(1) <= end,
                        "{lease}: {now:?}"
                    );
                    rebinds += 1;
                }
                _ => {}
            }
        }
        assert!(rebinds > 0, "{lease}");
    }
}

#[test]
fn a_background_discovery_slows_down_to_once_a_minute() {
    let mut bench = Bench::bound(1, 2, 3);
    bench.clock(at(3.0));
    let mut last = at(3.0);
    for base in [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0] {
        if base > 4.6 {
            let (when, output) = bench.next(Timer::ReceiveWindow, &[]);
            assert_eq!(when, last + Duration::from_secs(4));
            assert!(!output.listen);
        } else if bench.deadline().1 == Timer::ReceiveWindow {
            bench.next(Timer::ReceiveWindow, &[]);
        }
        let (when, _) = bench.next(Timer::Retransmit, &["DISCOVER"]);
        between(when.saturating_since(last), base * 0.875, base * 1.125);
        last = when;
    }
}

#[test]
fn the_second_nak_starts_over_after_a_pause() {
    let mut bench = Bench::acquiring();
    let xid = bench.begin();
    bench.offer(at(0.0), xid);
    let output = bench.nak(at(0.0), xid);
    let discover = output.sent();
    assert_eq!((discover.kind(), discover.address(50)), ("DISCOVER", None));
    bench.offer(at(0.0), discover.xid());
    let (asked, _) = bench.next(Timer::Choose, &["REQUEST"]);
    let output = bench.nak(asked, discover.xid());
    assert!(output.frames.is_empty() && !output.listen);
    let (when, _) = bench.next(Timer::Discover, &["DISCOVER"]);
    between(when.saturating_since(asked), 0.875, 1.125);
}

#[test]
fn missing_sockets_are_asked_for_again_at_the_next_try() {
    let mut bench = Bench::bound(500, 900, 1000);
    assert!(bench.signal(at(500.0), Signal::Clock).listen);
    let output = bench.signal(at(500.0), Signal::Unopened);
    assert!(!output.listen);
    assert_eq!(bench.deadline(), (at(700.0), Timer::Retransmit));
    bench.listening = false;
    bench.next(Timer::Retransmit, &["ARP"]);
}

#[test]
fn missing_sockets_are_asked_for_once_a_minute_in_the_end() {
    let mut bench = Bench::new(Client::seek(plain(), at(0.0), Rng::with_seed(7)));
    let mut last = bench.deadline().0;
    for base in [8.0, 16.0, 32.0, 60.0, 60.0] {
        assert!(bench.signal(last, Signal::Clock).listen);
        assert!(!bench.signal(last, Signal::Unopened).listen);
        let (when, _) = bench.deadline();
        between(when.saturating_since(last), base * 0.875, base * 1.125);
        last = when;
    }
}

/// A client that is offered, at `offered`, an address that it does not want.
fn offered_another(offered: f64) -> Bench {
    let wanted = Wanted {
        address: "192.0.2.60".parse().expect("an address"),
        preferred: true,
    };
    let mut bench = Bench::new(Client::acquire(
        plain(),
        Some(wanted),
        at(0.0),
        Rng::with_seed(7),
    ));
    let xid = bench.begin();
    let (retransmit, _) = bench.deadline();
    assert!(
        at(offered) < retransmit && retransmit < at(offered + 0.2),
        "{retransmit:?}"
    );
    assert!(bench.offer(at(offered), xid).frames.is_empty());
    bench
}

#[test]
fn while_an_offer_waits_no_discover_is_due() {
    let (when, _) = offered_another(0.9).next(Timer::Choose, &["REQUEST"]);
    assert_eq!(when, at(1.1));
}

#[test]
fn an_offer_that_waits_is_forgotten_with_its_sockets() {
    let mut bench = offered_another(0.9);
    let output = bench.signal(at(1.0), Signal::Unopened);
    assert!(!output.listen, "not at once again");
    bench.listening = false;
    let (when, _) = bench.next(Timer::Retransmit, &["DISCOVER"]);
    between(when.saturating_since(at(1.0)), 7.0, 9.0);
}

#[test]
fn a_late_arp_answer_renews_no_lease_that_is_over() {
    for (when, frames) in [
        (899.9, vec!["REQUEST"]),
        (900.0, vec!["REQUEST"]),
        (1000.0, vec!["DISCOVER"]),
    ] {
        let mut bench = Bench::bound(500, 900, 1000);
        bench.next(Timer::Renew, &["ARP"]);
        let output = bench.resolved(at(when));
        assert_eq!(output.names(), frames, "at {when}");
        let found = output.sent().destination.is_broadcast();
        assert_eq!(found, when >= 900.0, "at {when}");
    }
}

#[test]
fn what_is_overdue_after_a_restart_is_put_off_a_little() {
    for (now, latest, state) in [
        (600.0, 610.0, StateName::Renewing),
        (899.0, 899.5, StateName::Renewing),
        (950.0, 960.0, StateName::Rebinding),
    ] {
        let times = super::super::timing::times(1000, Some(500), Some(900));
        let held = super::super::lease::Lease { times, ..lease() };
        let client = Client::resume(plain(), held.into(), at(now), Rng::with_seed(3));
        let bench = Bench::new(client);
        assert_eq!(bench.client.state(), state);
        let (when, timer) = bench.deadline();
        assert_eq!(timer, Timer::Retransmit);
        assert!(at(now) <= when && when <= at(latest), "{when:?}");
    }
}

#[test]
fn a_lease_counts_from_the_sending_of_its_request() {
    let mut bench = Bench::acquiring();
    let xid = bench.begin();
    bench.offer(at(0.5), xid);
    bench.next(Timer::Retransmit, &["REQUEST"]);
    let output = bench.ack(at(2.0), xid);
    let lease = output.won();
    // The first REQUEST: the ACK may answer that one.
    assert_eq!(lease.start, at(0.5));
    let t1 = lease
        .t1()
        .expect("it has an end")
        .saturating_since(lease.start);
    between(t1, 300.0 * 15.0 / 16.0, 300.0);
}

#[test]
fn unanswered_messages_alternate_between_both_macs() {
    let source = |output: &Output| Mac(output.frames[0][6..12].try_into().expect("six bytes"));
    let mut bench = Bench::bound(500, 600, 1000);
    bench.client.set_station(STATION);
    // Switches that snoop on DHCP want it.
    assert_eq!(source(&bench.clock(at(600.0))), MAC);
    let mut xid = 0;
    for from in [STATION, MAC, STATION] {
        bench.next(Timer::ReceiveWindow, &[]);
        let (_, output) = bench.next(Timer::Retransmit, &["REQUEST"]);
        assert_eq!(source(&output), from);
        xid = u32::from_be_bytes(output.frames[0][46..50].try_into().expect("four bytes"));
    }
    assert!(
        bench
            .answer(at(951.0), &Reply::new(ACK, xid, 1000))
            .verdict
            .is_some()
    );
    bench.next(Timer::Renew, &["ARP"]);
    let (at_t1, _) = bench.deadline();
    assert_eq!(source(&bench.resolved(at_t1)), STATION, "that was answered");
}
