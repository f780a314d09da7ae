//! The kernel copies a macvlan's broadcast for each of its siblings. So they get each message once; repeats, which are for
//! the wire, leave over their parent link.

use super::*;
use crate::wire::frame::ArpOp;

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
    // Nothing is known about it yet.
    assert_eq!(rig.wired.sent_over, [(1, INSIDE), (3, INSIDE)]);
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
fn a_request_to_a_server_off_the_wire_leaves_from_inside() {
    let mut rig = asked(|rig| _ = rig.stations.remove(&SERVER));
    rig.add("b", 2, "b");
    assert_eq!(rig.wired.sent_over, [(1, INSIDE), (3, INSIDE)]);
    let asked = rig.count((Ipv4Addr::UNSPECIFIED, SERVER));
    assert_eq!(asked, 1, "it is not asked again for ten minutes");
}

#[test]
fn an_answer_to_a_container_shows_no_server_on_the_wire() {
    let mut rig = asked(|rig| _ = rig.stations.remove(&SERVER));
    let own = Mac([2, 0, 0, 0, 1, 1]);
    rig.hear(&Arp {
        op: ArpOp::Reply,
        target_mac: own,
        destination_mac: own,
        ..Arp::request(NEIGHBOUR, SERVER, Ipv4Addr::new(192, 0, 2, 50))
    });
    rig.add("b", 2, "b");
    assert_eq!(rig.wired.sent_over, [(1, INSIDE), (3, INSIDE)]);
}
