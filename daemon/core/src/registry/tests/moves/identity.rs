//! Who holds an identity whose lease has not found its interface.

use super::*;

#[test]
fn a_late_search_takes_no_identity_from_a_newer_add() {
    let mut rig = leased();
    rig.hold_seeks = true;
    let first = rig.add_endpoint(OTHER_MAC, "a");
    rig.release_endpoint(OWN);
    let next = rig.add_endpoint(Mac([2, 0, 0, 0, 7, 7]), "a");
    rig.assert_leased(next);
    rig.hold_seeks = false;
    rig.end_seek();
    assert_fails!(rig, first, Failure::Held { .. });
    assert_eq!(rig.rows()[0].attachment, endpoint(Mac([2, 0, 0, 0, 7, 7])));
}

#[test]
fn an_add_goes_on_when_no_interface_is_sought_any_more() {
    let mut rig = leased();
    rig.hold_seeks = true;
    rig.add_endpoint(OTHER_MAC, "a");
    let waits_for_the_next = rig.add_endpoint(Mac([2, 0, 0, 0, 7, 7]), "a");
    rig.release_endpoint(OTHER_MAC);
    rig.release_endpoint(OWN);
    rig.hold_seeks = false;
    rig.end_seek();
    rig.assert_leased(waits_for_the_next);
}

#[test]
fn an_identity_is_given_away_only_after_a_whole_search() {
    for (is_there, sees_part) in [(true, false), (false, true)] {
        let mut rig = leased();
        rig.sees_part = sees_part;
        // The daemon never heard that it came.
        rig.inside.extend(is_there.then_some((OWN, 1)));
        let next = rig.add_endpoint(OTHER_MAC, "a");
        let Failure::Held { holder, .. } = rig.failure(next) else {
            panic!("{:?}", rig.answers[&next])
        };
        assert_eq!((holder, rig.seeks.clone()), (&endpoint(OWN), vec![None]));
        assert_eq!(rig.link().in_netns().is_some(), is_there);
    }
}
