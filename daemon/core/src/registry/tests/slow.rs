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
    rig.granted = (1..=CROWD).map(|n| (address(n), format!("\0c{n}").into_bytes())).collect();
    rig.granted.insert(rig.give, Vec::new());
    rig
}

/// Returns how many messages a server has got that takes this long for each, in seconds, once all of a crowd are served.
fn served(answer: f64) -> usize {
    let mut rig = slow(PERMITS);
    let adds: Vec<_> = (1..=CROWD).map(|n| rig.add(&format!("c{n}"), n, &format!("c{n}"))).collect();
    let mut now = 1000.0;
    while rig.answers.len() < adds.len() {
        now += answer;
        rig.run_until(now);
        rig.answer_next();
        assert!(now < 1031.0, "{} of {CROWD} are served", rig.answers.len());
    }
    assert!(rig.answers.values().all(|answer| matches!(answer, Answer::Leased { .. })), "{:?}", rig.answers);
    rig.sent.len() + rig.backlog.map_or(0, |backlog| backlog.len())
}

#[test]
fn a_crowd_on_a_slow_server_asks_little_more_than_once() {
    let once = 2 * CROWD as usize;
    assert_eq!(served(0.02), once, "each has its answer before it would ask again");
    // 32 of them wait for 1.6 s: those that ask first cannot know that.
    let sent = served(0.05);
    assert!(sent < once + 2 * PERMITS, "{sent} messages");
}

/// Lets one lease be acquired where each answer takes 0.8 s. Others wait for its permit.
fn warned(permits: usize, others: u64) -> Rig {
    let mut rig = slow(permits);
    rig.add("c1", 1, "c1");
    for answered in [1000.8, 1001.6] {
        rig.run_until(answered);
        assert_eq!(asked(&rig), 1);
        if answered > 1001.0 {
            (2..2 + others).for_each(|n| _ = rig.add(&format!("c{n}"), n, &format!("c{n}")));
            rig.run_until(answered + 0.01);
        }
        rig.answer_next();
    }
    rig
}

fn asked(rig: &Rig) -> usize {
    rig.backlog.as_ref().map_or(0, VecDeque::len)
}

#[test]
fn one_of_many_repeats_nothing_before_an_answer_that_takes_long_can_come() {
    let mut rig = warned(1, 1);
    for (at, sent) in [(1001.7, 1), (1003.2, 1), (1003.25, 2)] {
        rig.run_until(at);
        assert_eq!(asked(&rig), sent, "{at}");
    }
}

#[test]
fn after_an_answer_that_comes_at_once_one_of_many_asks_again_as_soon_as_ever() {
    let mut rig = warned(1, 2);
    // DISCOVER, and REQUEST; then it is the next one's turn.
    rig.answer_next();
    rig.answer_next();
    for (at, sent) in [(1002.4, 1), (1002.8, 2)] {
        rig.run_until(at);
        assert_eq!(asked(&rig), sent, "{at}");
    }
}

#[test]
fn who_has_its_permit_at_once_asks_again_as_soon_as_ever() {
    let mut rig = warned(8, 0);
    rig.add("c2", 2, "c2");
    for (at, sent) in [(1002.4, 1), (1002.8, 2)] {
        rig.run_until(at);
        assert_eq!(asked(&rig), sent, "{at}");
    }
}
