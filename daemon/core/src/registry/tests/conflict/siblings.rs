//! The kernel copies a macvlan's broadcast for each of its siblings. So they get each message once; repeats, which are for
//! the wire, leave over their parent link.

use std::sync::Arc;

use super::*;

/// The link that the interfaces are macvlans on.
const LOWER: u32 = 7;
const INSIDE: Option<u32> = None;
const WIRE: Option<u32> = Some(LOWER);

/// A rig whose containers have macvlans.
fn crowded(detection: Detection) -> Rig {
    let mut rig = rig(detection);
    rig.wired.lower = Some(LOWER);
    rig
}

#[test]
fn siblings_hear_each_message_once_and_the_wire_all() {
    let mut rig = crowded(Detection::Optimistic);
    rig.bind();
    rig.run_until(1015.0);
    assert_eq!((rig.count(PROBE), rig.count(ANNOUNCEMENT)), (3, 2));
    for question in [PROBE, ANNOUNCEMENT] {
        let ways: Vec<_> = rig
            .asked
            .iter()
            .zip(&rig.wired.asked_over)
            .filter(|(asked, _)| **asked == question)
            .collect();
        let inside = ways.iter().position(|(_, over)| **over == INSIDE);
        assert_eq!(
            inside,
            Some(0),
            "the first of each is heard by all: {ways:?}"
        );
        assert!(ways[1..].iter().all(|(_, over)| **over == WIRE), "{ways:?}");
    }
}

#[test]
fn a_strict_window_probes_siblings_first_then_the_wire() {
    let mut rig = crowded(Detection::Strict);
    let add = rig.add("a", 1, "a");
    rig.run_until(1008.0);
    assert_eq!(rig.leased(add), FIRST);
    let ways = rig
        .asked
        .iter()
        .zip(&rig.wired.asked_over)
        .filter(|(asked, _)| **asked == PROBE)
        .map(|(_, over)| *over);
    assert_eq!(ways.collect::<Vec<_>>(), [INSIDE, WIRE, WIRE]);
}

#[test]
fn an_answer_to_a_repeated_probe_is_heard_inside() {
    for detection in [Detection::Optimistic, Detection::Strict] {
        let mut rig = crowded(detection);
        let add = rig.add("a", 1, "a");
        while rig.count(PROBE) < 2 {
            rig.wake();
        }
        assert_eq!(rig.wired.asked_over.last(), Some(&WIRE));
        rig.answer_probe(FIRST);
        rig.run_until(rig.seconds() + 15.0);
        assert!(
            rig.messages().contains(&4),
            "declined: {:?}",
            rig.messages()
        );
        if detection == Detection::Strict {
            assert_eq!(rig.leased(add), SECOND);
        }
    }
}

#[test]
fn siblings_hear_a_defence_and_a_control() {
    let mut rig = crowded(Detection::Optimistic);
    rig.bind();
    rig.run_until(1000.5);
    let (asked, heard) = (rig.asked.len(), Arp::request(NEIGHBOUR, FIRST, FIRST));
    rig.hear(&heard);
    assert_eq!(rig.asked.len(), asked + 1, "it is defended");
    rig.hear(&heard);
    rig.run_until(1000.95);
    let later = &rig.wired.asked_over[asked..];
    assert!(
        later.len() > 1 && later.iter().all(|over| *over == INSIDE),
        "{later:?}"
    );
}

#[test]
fn where_no_macvlan_was_seen_all_is_asked_from_inside() {
    let mut rig = rig(Detection::Optimistic);
    rig.bind();
    rig.run_until(1015.0);
    assert_eq!(rig.wired.asked_over, [INSIDE; 5]);
}

/// A rig whose server was asked whether it is on the wire, by a first ADD.
fn asked(answers: impl FnOnce(&mut Rig)) -> Rig {
    let mut rig = crowded(Detection::Optimistic);
    answers(&mut rig);
    rig.add("a", 1, "a");
    assert_eq!(
        rig.wired.sent_over,
        [(1, INSIDE), (3, INSIDE)],
        "nothing is known about it yet"
    );
    let question = rig
        .asked
        .iter()
        .position(|asked| *asked == (Ipv4Addr::UNSPECIFIED, SERVER));
    assert_eq!(question.map(|at| rig.wired.asked_over[at]), Some(WIRE));
    rig.wired.sent_over.clear();
    rig
}

#[test]
fn only_a_first_request_leaves_over_the_parent() {
    let mut rig = asked(|_| {});
    rig.server = Server::OffersOnly;
    rig.add("b", 2, "b");
    rig.run_until(rig.seconds() + 2.5);
    assert_eq!(rig.wired.sent_over, [(1, WIRE), (3, WIRE), (3, INSIDE)]);
}

#[test]
fn only_a_first_discover_leaves_over_the_parent() {
    let mut rig = asked(|_| {});
    rig.server = Server::Silent;
    rig.add("b", 2, "b");
    rig.run_until(rig.seconds() + 2.5);
    assert_eq!(rig.wired.sent_over, [(1, WIRE), (1, INSIDE)]);
}

#[test]
fn a_discover_leaves_from_inside_if_no_server_will_do() {
    for is_believed in [true, false] {
        let mut rig = asked(|_| {});
        let mut add = rig.call("b", 2, "b");
        match is_believed {
            true => {
                add.wanted = Some(Wanted {
                    address: SECOND,
                    preferred: true,
                })
            }
            false => Arc::make_mut(&mut add.profile.client).servers.deny = vec![SERVER],
        }
        rig.request(Call::Add(add));
        assert_eq!(rig.wired.sent_over[0], (1, INSIDE));
    }
}

#[test]
fn a_request_to_a_server_off_the_wire_leaves_from_inside() {
    let silent: fn(&mut Rig) = |rig| _ = rig.stations.remove(&SERVER);
    let other: fn(&mut Rig) = |rig| _ = rig.stations.insert(SERVER, NEIGHBOUR);
    for answers in [silent, other] {
        let mut rig = asked(answers);
        rig.add("b", 2, "b");
        assert_eq!(rig.wired.sent_over, [(1, INSIDE), (3, INSIDE)]);
        assert_eq!(
            rig.count((Ipv4Addr::UNSPECIFIED, SERVER)),
            1,
            "it is not asked again for a minute"
        );
    }
}
