//! A RELEASE that its link does not accept does not count: it is sent another way, or later.

use super::rig::*;

const RELEASE: u8 = 7;

fn refused() -> LinkCause {
    LinkCause::refused("send", "no buffer space available")
}

/// A lease whose next RELEASEs are not accepted by their links.
fn bound(unsent: impl IntoIterator<Item = LinkCause>) -> Rig {
    let mut rig = Rig::new(8);
    rig.bind();
    rig.sent.clear();
    rig.unsent.extend(unsent);
    rig
}

#[test]
fn a_release_refused_by_all_links_is_tried_again() {
    let mut rig = bound([refused(), refused(), refused(), refused()]);
    let del = rig.del("a");
    rig.run_until(1002.0);
    // A DEL does not wait for it.
    assert_eq!(rig.answers[&del], Answer::Deleted);
    assert_eq!((rig.sent.clone(), rig.state("a")), (vec![], "RELEASING"));
    assert!(rig.told(EventKind::Released) == 0);

    rig.restart();
    rig.run_until(1060.0);
    assert_eq!(rig.sends(RELEASE), 1);
    assert!(rig.rows().is_empty() && rig.store.records().is_empty());
}

#[test]
fn a_release_under_way_at_a_takeover_is_sent_once() {
    let mut rig = bound([]);
    rig.hold_sends = true;
    rig.del("a");
    rig.run_until(1001.0);
    let add = rig.add("b", 2, "a");
    rig.hold_sends = false;
    rig.run_until(1030.0);
    rig.assert_leased(add);
    assert_eq!(rig.sends(RELEASE), 1);
    assert_eq!(rig.rows().len(), 1);
}
