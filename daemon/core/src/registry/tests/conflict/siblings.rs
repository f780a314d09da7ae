//! The kernel copies a macvlan's broadcast for each of its siblings. So they get each ARP question once; repeats, which are for
//! the wire, leave over their parent link.

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
fn siblings_hear_each_question_once_and_the_wire_all() {
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
