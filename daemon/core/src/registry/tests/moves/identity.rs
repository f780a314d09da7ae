//! Who holds an identity whose lease has not found its interface.

use super::*;

#[test]
fn an_identity_without_an_interface_goes_to_the_next() {
    let mut rig = leased();
    let next = rig.add_endpoint(OTHER, "a");
    let Answer::Leased { tenures } = &rig.answers[&next] else {
        panic!("{:?}", rig.answers[&next])
    };
    assert_eq!(
        (tenures[0].net().to_string(), rig.sends(1)),
        (LEASED.to_owned(), 1),
        "asked for by INIT-REBOOT"
    );
    let rows = rig.rows();
    assert_eq!(
        (rows.len(), rows[0].attachment.clone()),
        (1, endpoint(OTHER))
    );
    assert_eq!((rig.sends(7), rig.store.records().len()), (0, 1));
}

#[test]
fn a_late_search_takes_no_identity_from_a_newer_add() {
    let mut rig = leased();
    rig.hold_seeks = true;
    let first = rig.add_endpoint(OTHER, "a");
    rig.release_endpoint(OWN);
    let next = rig.add_endpoint(Mac([2, 0, 0, 0, 7, 7]), "a");
    assert!(
        matches!(rig.answers[&next], Answer::Leased { .. }),
        "{:?}",
        rig.answers[&next]
    );
    rig.hold_seeks = false;
    let (op, outcome) = rig.held_seeks.pop_front().unwrap();
    rig.input(Input::Done { op, outcome });
    assert!(
        matches!(rig.answers[&first], Answer::Failed(Failure::Held { .. })),
        "{:?}",
        rig.answers[&first]
    );
    assert_eq!(rig.rows()[0].attachment, endpoint(Mac([2, 0, 0, 0, 7, 7])));
}

#[test]
fn an_identity_whose_interface_is_there_stays_its_holders() {
    let mut rig = moved_in();
    let next = rig.add_endpoint(OTHER, "a");
    let Answer::Failed(Failure::Held { holder, .. }) = &rig.answers[&next] else {
        panic!("{:?}", rig.answers[&next])
    };
    assert_eq!(*holder, endpoint(OWN));
    assert_eq!((rig.link(), rig.sends(7)), (inside(1), 0));
}

#[test]
fn an_identity_is_given_away_only_after_a_whole_search() {
    for (is_there, sees_part) in [(true, false), (false, true)] {
        let mut rig = leased();
        rig.sees_part = sees_part;
        // The daemon never heard that it came.
        rig.inside.extend(is_there.then_some((OWN, 1)));
        let next = rig.add_endpoint(OTHER, "a");
        let Answer::Failed(Failure::Held { holder, .. }) = &rig.answers[&next] else {
            panic!("{:?}", rig.answers[&next])
        };
        assert_eq!((holder, rig.seeks.clone()), (&endpoint(OWN), vec![None]));
        assert_eq!(rig.link().in_netns().is_some(), is_there);
    }
}

#[test]
fn an_add_in_a_search_ends_with_its_caller_or_time() {
    for hangs_up in [true, false] {
        let mut rig = leased();
        rig.lease = 10_000;
        rig.hold_seeks = true;
        let next = rig.add_endpoint(OTHER, "a");
        if hangs_up {
            rig.input(Input::HungUp(RequestId(next)));
        } else {
            rig.run_until(1029.0);
            assert!(!rig.answers.contains_key(&next));
            rig.run_until(1031.0);
            assert!(matches!(
                rig.answers[&next],
                Answer::Failed(Failure::TimedOut(..))
            ));
        }
        let (op, outcome) = rig.held_seeks.pop_front().unwrap();
        rig.input(Input::Done { op, outcome });
        assert_eq!(rig.rows()[0].attachment, endpoint(OWN));
    }
}
