//! Servers that are slow: what is sent to one twice delays everybody.

use std::collections::VecDeque;
use std::net::Ipv4Addr;

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
fn a_crowd_is_served_by_a_slow_server_which_it_does_not_ask_twice() {
    let once = 2 * CROWD as usize;
    assert_eq!(
        served(0.02),
        once,
        "each has its answer before it would ask again"
    );
    // 32 of them wait for 1.6 s: those that ask first cannot know that, and a REQUEST is repeated after 2 s.
    let sent = served(0.05);
    assert!(sent < once * 3 / 2, "{sent} messages");
}

/// Lets one lease be acquired where each answer takes so long, in seconds. Then those that wait for its permit have their turn.
fn warned(permits: usize, others: u64, (offer, ack): (f64, f64)) -> Rig {
    let mut rig = slow(permits);
    rig.add("c1", 1, "c1");
    let asks = 1000.0 + offer;
    rig.run_until(asks);
    rig.answer_next();
    (2..2 + others).for_each(|n| _ = rig.add(&format!("c{n}"), n, &format!("c{n}")));
    rig.run_until(asks + ack);
    rig.answer_next();
    rig
}

/// Returns how many messages the server has not answered.
fn asked(rig: &Rig) -> usize {
    rig.backlog.as_ref().map_or(0, VecDeque::len)
}

/// Checks how many messages wait for an answer, so many seconds after a second client's first.
fn assert_asked(rig: &mut Rig, table: &[(f64, usize)]) {
    let began = rig.at.as_secs_f64();
    for (after, sent) in table {
        rig.run_until(began + after);
        assert_eq!(asked(rig), *sent, "after {after} s");
    }
}

/// When the second message leaves that is repeated after twice 0.8 s, and after a second: within an eighth.
const PATIENT: [(f64, usize); 3] = [(0.0, 1), (1.39, 1), (1.81, 2)];
const AS_EVER: [(f64, usize); 3] = [(0.0, 1), (0.87, 1), (1.13, 2)];

#[test]
fn one_of_many_repeats_nothing_before_an_answer_that_takes_long_can_come() {
    assert_asked(&mut warned(1, 1, (0.8, 0.8)), &PATIENT);
}

#[test]
fn after_an_answer_that_comes_at_once_one_of_many_asks_again_as_soon_as_ever() {
    let mut rig = warned(1, 2, (0.8, 0.8));
    // DISCOVER, and REQUEST; then it is the next one's turn.
    rig.answer_next();
    rig.answer_next();
    assert_asked(&mut rig, &AS_EVER);
}

#[test]
fn who_has_its_permit_at_once_asks_again_as_soon_as_ever() {
    let mut rig = warned(8, 0, (0.8, 0.8));
    rig.add("c2", 2, "c2");
    assert_asked(&mut rig, &AS_EVER);
}

#[test]
fn where_only_offers_take_long_a_request_is_repeated_as_soon_as_ever() {
    let mut rig = slow(1);
    rig.add("c1", 1, "c1");
    rig.add("c2", 2, "c2");
    rig.run_until(1000.8);
    // Its offer, and its acknowledgement at once.
    rig.answer_next();
    rig.answer_next();
    assert_asked(&mut rig, &PATIENT[..2]);
    rig.answer_next();
    assert_asked(&mut rig, &AS_EVER);
}

#[test]
fn an_answer_that_comes_at_once_to_a_repeated_message_says_nothing() {
    let mut rig = slow(1);
    rig.add("c1", 1, "c1");
    rig.add("c2", 2, "c2");
    // The first was lost.
    rig.run_until(1000.5);
    rig.backlog.iter_mut().for_each(VecDeque::clear);
    while asked(&rig) == 0 {
        rig.wake();
    }
    rig.answer_next();
    rig.answer_next();
    assert_asked(&mut rig, &AS_EVER);
}
