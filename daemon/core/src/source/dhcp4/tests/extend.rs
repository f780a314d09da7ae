//! Extending a lease when answers are late, tries are many, or several servers answer.

use std::collections::VecDeque;
use std::net::Ipv4Addr;
use std::time::Duration;

use fastrand::Rng;

use super::super::accept::Refusal;
use super::super::timing::Timer;
use super::super::{Client, Loss, Miss, Output, Signal, StateName, Verdict};
use super::answers::requesting;
use super::script::{ACK, Bench, LEASED, Reply, SERVER, at, lease, name, plain, sent, timed};
use crate::time::Instant;

/// A server that did not grant the lease.
const OTHER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 9);

/// Makes a client extend a lease at a server that is `late` with each answer. Returns how often it did so in `seconds`, and
/// whether it still has the lease.
fn extended(lease: u32, late: Duration, seconds: u32) -> (u32, bool) {
    let mut bench = Bench::bound(lease / 2, lease / 8 * 7, lease);
    let (mut extended, mut answers) = (0, VecDeque::<(Instant, u32)>::new());
    loop {
        let (deadline, _) = bench.deadline();
        let answer = answers.pop_front_if(|(due, _)| *due <= deadline);
        let now = answer.map_or(deadline, |(due, _)| due);
        if now > at(seconds.into()) {
            return (extended, true);
        }
        let mut output = match answer {
            Some(_) if !bench.listening => continue,
            Some((_, xid)) => bench.answer(now, &Reply::new(ACK, xid, lease)),
            None => bench.clock(now),
        };
        while output
            .frames
            .first()
            .is_some_and(|frame| name(frame) == "ARP")
        {
            output = Output {
                verdict: output.verdict,
                ..bench.resolved(now)
            };
        }
        answers.extend(
            output
                .frames
                .iter()
                .map(|frame| (now + late, sent(frame).xid())),
        );
        match output.verdict {
            Some(Verdict::Lost(..)) => return (extended, false),
            Some(_) => extended += 1,
            None => {}
        }
    }
}

#[test]
fn a_slow_server_still_extends_leases() {
    for (late, leases) in [
        (1, &[10, 120, 86_400][..]),
        (6, &[60, 120, 600, 3600, 86_400]),
        (15, &[120, 600, 3600, 86_400]),
    ] {
        for lease in leases {
            let (extended, kept) = extended(*lease, Duration::from_secs(late), lease * 10);
            assert!(
                kept && extended >= 9,
                "{lease} s, {late} s late: extended {extended} times, kept: {kept}"
            );
        }
    }
}

#[test]
fn all_tries_of_a_phase_have_one_xid() {
    let mut bench = Bench::bound(500, 900, 1000);
    bench.next(Timer::Renew, &["ARP"]);
    let xid = bench.resolved(at(500.0)).sent().xid();
    bench.next(Timer::ReceiveWindow, &[]);
    bench.next(Timer::Retransmit, &["ARP"]);
    assert_eq!(bench.resolved(at(700.0)).sent().xid(), xid);
    let mut renewed = bench.clone();
    let output = renewed.answer(at(701.0), &Reply::new(ACK, xid, 1000));
    let lease = output.won();
    let found = (lease.start, renewed.client.state());
    assert_eq!(found, (at(500.0), StateName::Bound));
    let rebind = bench.clock(at(900.0)).sent();
    assert_ne!(rebind.xid(), xid, "other servers may answer this");
    let output = bench.answer(at(900.0), &Reply::new(ACK, xid, 1000));
    assert_eq!(output.refused, Some(Refusal::OtherXid.into()));
    let (again, output) = {
        bench.next(Timer::ReceiveWindow, &[]);
        bench.next(Timer::Retransmit, &["REQUEST"])
    };
    assert_eq!((again, output.sent().xid()), (at(950.0), rebind.xid()));
    let output = bench.answer(at(951.0), &Reply::new(ACK, rebind.xid(), 1000));
    assert!(
        matches!(output.verdict, Some(Verdict::Granted(lease)) if lease.start == at(900.0)),
        "not later than its server's"
    );
}

#[test]
fn secs_counts_from_the_first_request_of_an_extension() {
    let mut bench = Bench::bound(500, 900, 1000);
    bench.next(Timer::Renew, &["ARP"]);
    let mut said = vec![bench.resolved(at(500.6)).sent().secs()];
    bench.clock(at(705.0));
    said.push(bench.resolved(at(705.0)).sent().secs());
    for when in [900.0, 950.0] {
        said.push(bench.clock(at(when)).sent().secs());
    }
    assert_eq!(said, [0, 204, 399, 449]);
}

#[test]
fn a_lease_shorter_than_the_silence_gets_a_new_xid() {
    let mut bench = Bench::bound(500, 900, 1000);
    bench.next(Timer::Renew, &["ARP"]);
    bench.resolved(at(500.0));
    for (again, taken) in [(700.0, false), (800.0, true)] {
        bench.next(Timer::ReceiveWindow, &[]);
        bench.next(Timer::Retransmit, &["ARP"]);
        let xid = bench.resolved(at(again)).sent().xid();
        let output = bench.answer(at(again), &Reply::new(ACK, xid, 120));
        assert_eq!(
            output.refused,
            (!taken).then_some(Refusal::Ended.into()),
            "at {again}"
        );
        let start = bench.client.lease().map(|lease| lease.start);
        assert_eq!(start, Some(at(if taken { again } else { 0.0 })));
    }
}

#[test]
fn any_server_may_extend_a_lease() {
    for (when, state) in [(500.0, StateName::Renewing), (900.0, StateName::Rebinding)] {
        let mut bench = Bench::bound(500, 900, 1000);
        let mut request = bench.clock(at(when));
        if name(&request.frames[0]) == "ARP" {
            request = bench.resolved(at(when));
        }
        assert_eq!(bench.client.state(), state);
        let ack = Reply::new(ACK, request.sent().xid(), 1000).with(54, &OTHER.octets());
        let output = bench.answer(at(when), &ack);
        let lease = output.won();
        let found = (lease.server, lease.ip(), lease.start);
        assert_eq!(found, (OTHER, LEASED, at(when)));
    }
}

/// A client whose REQUEST another server refused, with its xid.
fn refused_by_another(client: Client, when: f64) -> (Bench, u32) {
    let mut bench = Bench::new(client);
    let xid = bench.clock(at(when)).sent().xid();
    let output = bench.answer(at(when), &Reply::nak(xid).with(54, &OTHER.octets()));
    assert!(
        output.verdict.is_none() && output.refused.is_none() && output.listen,
        "{output:?}"
    );
    (bench, xid)
}

fn rebinding() -> (Bench, u32) {
    refused_by_another(Bench::bound(500, 600, 1000).client, 600.0)
}

fn confirming() -> (Bench, u32) {
    let client = Bench::confirming().client;
    let begins = client
        .deadline()
        .expect("it begins")
        .0
        .since_boot()
        .as_secs_f64();
    refused_by_another(client, begins)
}

fn lost_by(output: &Output) -> Ipv4Addr {
    let Some(Verdict::Lost(lost, Loss::Nak { server, .. })) = &output.verdict else {
        panic!("{output:?}")
    };
    assert_eq!(lost.ip(), LEASED);
    *server
}

#[test]
fn an_ack_of_its_own_server_overrules_an_earlier_nak() {
    for (mut bench, xid) in [rebinding(), confirming()] {
        let (until, _) = bench.deadline();
        let output = bench.answer(until, &Reply::new(ACK, xid, 1000));
        assert!(
            matches!(output.verdict, Some(Verdict::Granted(_))),
            "{output:?}"
        );
        assert_eq!(bench.client.state(), StateName::Bound);
    }
}

#[test]
fn a_foreign_nak_counts_once_its_own_server_is_late() {
    let (mut bench, _) = rebinding();
    let (when, output) = bench.next(Timer::ReceiveWindow, &["DISCOVER"]);
    assert_eq!((when, lost_by(&output)), (at(604.0), OTHER));
    let (mut bench, _) = confirming();
    bench.next(Timer::Retransmit, &["REQUEST"]);
    let (_, output) = bench.next(Timer::Retransmit, &["DISCOVER"]);
    assert_eq!(lost_by(&output), OTHER, "on another LAN it is right");
}

#[test]
fn a_relayed_nak_waits_for_an_ack_beside_it() {
    let relay = Ipv4Addr::new(192, 0, 2, 254);
    let relayed = |reply| Reply {
        giaddr: relay,
        ..reply
    };
    let renewing = || {
        let mut bench = Bench::bound(500, 900, 1000);
        bench.next(Timer::Renew, &["ARP"]);
        let xid = bench.resolved(at(500.0)).sent().xid();
        (bench, 500.0, xid)
    };
    let rebooting = || {
        let client = Client::reacquire(plain(), lease().into(), at(0.0), Rng::with_seed(7));
        let mut bench = Bench::new(client);
        let xid = bench.begin();
        (bench, 0.0, xid)
    };
    let requesting = || {
        let (bench, xid) = requesting();
        (bench, 0.0, xid)
    };
    for (mut bench, now, xid) in [renewing(), rebooting(), requesting()] {
        let state = bench.client.state();
        let nak = bench.answer(at(now), &relayed(Reply::nak(xid)));
        assert!(nak.verdict.is_none() && nak.frames.is_empty(), "{nak:?}");
        assert_eq!(bench.client.state(), state);
        let (mut alone, until) = (bench.clone(), bench.deadline().0);
        let ack = bench.answer(
            until - Duration::from_millis(100),
            &relayed(Reply::new(ACK, xid, 1000)),
        );
        assert!(matches!(ack.verdict, Some(Verdict::Granted(_))), "{ack:?}");
        match state {
            StateName::Renewing => {
                let (when, output) = alone.next(Timer::ReceiveWindow, &["DISCOVER"]);
                assert_eq!((when, lost_by(&output)), (at(504.0), SERVER));
            }
            StateName::Requesting => {
                let (_, output) = alone.next(Timer::Retransmit, &["DISCOVER"]);
                let missed = output.missed.expect("nothing came of the offer");
                assert!(missed.server == SERVER && matches!(missed.miss, Miss::Nak { .. }));
            }
            _ => _ = alone.next(Timer::Retransmit, &["DISCOVER"]),
        }
    }
}

#[test]
fn a_relayed_nak_counts_only_for_what_is_in_sight() {
    for out_of_sight in [false, true] {
        let mut bench = Bench::bound(500, 900, 1000);
        bench.client.set_addressed(false);
        bench.client.set_out_of_sight(out_of_sight);
        let (sent, output) = bench.next(Timer::Renew, &["REQUEST"]);
        let nak = Reply {
            giaddr: Ipv4Addr::new(192, 0, 2, 254),
            ..Reply::nak(output.sent().xid())
        };
        bench.answer(sent, &nak);
        let frames: &[_] = if out_of_sight { &[] } else { &["DISCOVER"] };
        let (_, output) = bench.next(Timer::ReceiveWindow, frames);
        assert_eq!(output.verdict.is_none(), out_of_sight, "{output:?}");
    }
}

#[test]
fn its_own_servers_nak_is_obeyed_at_once() {
    for (mut bench, xid) in [rebinding(), confirming()] {
        let (until, _) = bench.deadline();
        let output = bench.nak(until - Duration::from_millis(500), xid);
        assert_ne!(lost_by(&output), OTHER);
    }
}

#[test]
fn a_nak_of_another_server_is_forgotten_with_its_try() {
    let (mut bench, _) = rebinding();
    bench.signal(at(601.0), super::super::Signal::Unopened);
    bench.listening = false;
    let (_, output) = bench.next(Timer::Retransmit, &["REQUEST"]);
    assert!(output.verdict.is_none());
    let (_, output) = bench.next(Timer::ReceiveWindow, &[]);
    assert!(output.verdict.is_none() && bench.client.lease().is_some());
}

#[test]
fn a_foreign_nak_to_a_caller_counts_after_one_more_try() {
    let client = Client::reacquire(plain(), lease().into(), at(0.0), Rng::with_seed(7));
    let (mut bench, xid) = refused_by_another(client, 0.0);
    let (_, output) = bench.clone().next(Timer::Retransmit, &["DISCOVER"]);
    assert!(output.verdict.is_none(), "there was no lease to lose");
    let output = bench.answer(at(0.5), &Reply::new(ACK, xid, 1000));
    assert!(matches!(output.verdict, Some(Verdict::Granted(lease)) if lease.ip() == LEASED));
}

#[test]
fn an_early_renewal_is_tried_three_times() {
    let mut bench = Bench::bound(500, 900, 1000);
    bench.client.renew_early(at(100.0));
    let mut asked = Vec::new();
    for when in [100.0, 104.0, 112.0] {
        let output = bench.clock(at(when));
        assert_eq!(output.names(), ["ARP"], "at {when}");
        asked.push(bench.resolved(at(when)).sent().xid());
    }
    assert!(asked.iter().all(|xid| *xid == asked[0]), "{asked:?}");
    let mut late = bench.clone();
    let output = late.answer(at(127.9), &Reply::new(ACK, asked[0], 1000));
    assert!(
        matches!(output.verdict, Some(Verdict::Granted(lease)) if lease.start == at(100.0)),
        "{:?}",
        output.refused
    );
    bench.clock(at(128.0));
    let found = (bench.client.state(), bench.listening);
    assert_eq!(found, (StateName::Bound, false));
    assert_eq!(bench.next(Timer::Renew, &["ARP"]).0, at(500.0));
}

#[test]
fn an_endless_lease_is_renewed_if_its_address_is_offered() {
    let offered = |mut bench: Bench| {
        bench.client.renew_early(at(100.0));
        bench.clock(at(100.0));
        let renew = bench.resolved(at(100.0)).sent();
        let found = (renew.kind(), renew.ciaddr(), renew.destination);
        assert_eq!(found, ("REQUEST", LEASED, SERVER));
        (bench, renew)
    };
    let confirming = Bench::confirming();
    assert_eq!(confirming.client.state(), StateName::InitReboot);
    offered(confirming);
    let held = Bench::bound(0, 0, u32::MAX);
    assert_eq!(held.client.deadline(), None, "nothing is due");
    let (mut bench, renew) = offered(held);
    let mut silent = bench.clone();
    for when in [104.0, 112.0] {
        silent.clock(at(when));
        silent.resolved(at(when));
    }
    silent.clock(at(128.0));
    let found = (silent.client.state(), silent.client.deadline());
    assert_eq!(found, (StateName::Bound, None));
    let output = bench.answer(at(100.1), &Reply::new(ACK, renew.xid(), u32::MAX));
    assert!(matches!(output.verdict, Some(Verdict::Granted(lease)) if lease.times.is_none()));
    let found = (bench.client.state(), bench.client.deadline());
    assert_eq!(found, (StateName::Bound, None));
}

#[test]
fn a_renewal_before_t1_that_gets_no_sockets_waits_for_t1() {
    for (lease, t1) in [
        (lease(), None),
        (timed(500, 900, 1000), Some((at(500.0), Timer::Renew))),
    ] {
        let mut bench = Bench::holding(lease);
        bench.client.renew_early(at(100.0));
        assert!(bench.signal(at(100.0), Signal::Clock).listen);
        let output = bench.signal(at(100.0), Signal::Unopened);
        assert!(!output.listen && output.frames.is_empty());
        let found = (bench.client.state(), bench.client.deadline());
        assert_eq!(found, (StateName::Bound, t1));
    }
}

#[test]
fn an_early_renewal_repeats_one_without_sockets() {
    let mut bench = Bench::holding(timed(500, 900, 1000));
    bench.signal(at(500.0), Signal::Clock);
    bench.signal(at(500.0), Signal::Unopened);
    assert!(
        bench
            .client
            .deadline()
            .is_some_and(|(next, _)| next > at(600.0))
    );
    bench.client.renew_early(at(510.0));
    assert!(bench.signal(at(510.0), Signal::Clock).listen);
}
