//! Servers that are slow: what is sent to one twice delays everybody.

use super::rig::*;

/// The containers that start at once.
const CROWD: u64 = 200;

/// How many containers have a permit at once.
const PERMITS: usize = 32;

fn slow(permits: usize) -> Rig {
    let mut rig = Rig::new(permits);
    (rig.live, rig.backlog) = ((1..=CROWD).collect(), Some(VecDeque::new()));
    // It has an address for each.
    let address = |n: u64| Ipv4Addr::from_bits(rig.give.to_bits() + n as u32);
    rig.granted = (1..=CROWD)
        .map(|n| (address(n), format!("\0c{n}").into_bytes()))
        .collect();
    rig.granted.insert(rig.give, Vec::new());
    rig
}

/// Returns how many messages a server has got that takes this long for each, in seconds, once all of a crowd are served.
fn served(answer: f64) -> usize {
    let mut rig = slow(PERMITS);
    let adds: Vec<_> = (1..=CROWD)
        .map(|n| rig.add(&format!("c{n}"), n, &format!("c{n}")))
        .collect();
    let mut now = 1000.0;
    while rig.answers.len() < adds.len() {
        now += answer;
        rig.run_until(now);
        rig.answer_next();
        assert!(now < 1031.0, "{} of {CROWD} are served", rig.answers.len());
    }
    let served = rig
        .answers
        .values()
        .filter(|answer| matches!(answer, Answer::Leased { .. }))
        .count();
    assert_eq!(served, adds.len());
    rig.sent.len() + rig.backlog.map_or(0, |backlog| backlog.len())
}

#[test]
fn a_crowd_does_not_ask_a_slow_server_twice() {
    let once = 2 * CROWD as usize;
    // Each has its answer before it would ask again.
    assert_eq!(served(0.02), once);
    // 32 of them wait for 1.6 s: those that ask first ask again after 1 s.
    let sent = served(0.05);
    assert!(sent < once * 3 / 2, "{sent} messages");
}

/// Returns how many messages the server has not answered.
fn asked(rig: &Rig) -> usize {
    rig.backlog.as_ref().map_or(0, VecDeque::len)
}

/// Checks how many messages wait for an answer, so many seconds after a client's first.
fn assert_asked(rig: &mut Rig, table: &[(f64, usize)]) {
    let began = rig.at.as_secs_f64();
    for (after, sent) in table {
        rig.run_until(began + after);
        assert_eq!(asked(rig), *sent, "after {after} s");
    }
}

#[test]
fn a_client_that_waited_asks_again_after_four_seconds() {
    let mut rig = slow(1);
    rig.add("c1", 1, "c1");
    rig.add("c2", 2, "c2");
    rig.run_until(1000.5);
    // Its offer, and its acknowledgement.
    rig.answer_next();
    rig.answer_next();
    assert_asked(&mut rig, &[(0.0, 1), (3.49, 1), (4.51, 2)]);
}

/// A host's leases.
const LEASES: u64 = 1000;

/// Their term, in seconds.
const TERM: u32 = 180;

/// How long the server works on a message, in seconds.
const MESSAGE: f64 = 0.02;

/// How long it took to grant each lease.
const GRANT: f64 = 0.058;

/// Returns the record of one of the leases.
fn lease(n: u64) -> Record {
    let mut record = record(&format!("c{n}"), "b", 1000.0 + n as f64 * GRANT);
    let mac = Mac([2, 0, 0, 2, (n >> 8) as u8, n as u8]);
    record.identity.client_id = ClientId::new(format!("\0c{n}").into_bytes()).unwrap();
    record.identity.chaddr = mac;
    record.lease.address = format!("192.0.{}.{}/16", 4 + n / 250, 1 + n % 250)
        .parse()
        .unwrap();
    let seconds = |part| Duration::from_secs(TERM.into()).mul_f64(part);
    record.lease.times = Some(LeaseTimes {
        t1: seconds(0.5),
        t2: seconds(0.875),
        end: seconds(1.0),
    });
    record.link = Link::InNetns {
        path: format!("/ns/{}", 1000 + n).into(),
        cookie: Cookie(1000 + n),
        ifindex: 2,
        mac,
    };
    record
}

/// A daemon that starts again with these leases, after so much of their term.
fn returns(leases: impl Iterator<Item = Record>, part: f64) -> Rig {
    let mut rig = Rig::new(PERMITS);
    (rig.backlog, rig.lease, rig.mask) = (Some(VecDeque::new()), TERM, [0, 0]);
    for (n, record) in (1..).zip(leases) {
        let client = record.identity.client_id.as_bytes().to_vec();
        rig.granted.insert(record.lease.ip(), client);
        rig.live.insert(1000 + n);
        rig.store.durable.insert(BindingId(n), record);
    }
    rig.granted.insert(rig.give, Vec::new());
    rig.at = Duration::from_secs_f64(1000.0 + LEASES as f64 * GRANT + f64::from(TERM) * part);
    rig.restart();
    rig
}

#[test]
fn a_slow_server_extends_all_leases_after_an_absence() {
    let mut rig = returns((1..=LEASES).map(lease), 0.65);
    let began = rig.at.as_secs_f64();
    let mut now = began;
    let due = |rig: &mut Rig| rig.rows().iter().filter(|row| row.state != BOUND).count();
    while due(&mut rig) > 0 {
        for _ in 0..50 {
            now += MESSAGE;
            rig.run_until(now);
            rig.answer_next();
        }
        assert!(now < began + 40.0, "{} are still due", due(&mut rig));
    }
    let kept = |row: &Row| row.tenure.is_some();
    assert!(rig.rows().iter().all(kept));
    // Only those that T2 finds unanswered are asked for twice.
    let sent = rig.sent.len() + asked(&rig);
    assert!(sent < LEASES as usize * 11 / 10, "{sent} messages");
}
