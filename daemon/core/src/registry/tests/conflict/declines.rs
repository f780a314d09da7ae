//! What is declined, and when: only the address in conflict, and never after the lease is given up.

use super::*;

/// A client that takes a lease in two messages, which was offered FIRST in vain and keeps looking.
fn rig_after_an_offer_in_vain() -> (Rig, u64) {
    let mut rig = rig(Detection::Optimistic);
    Arc::make_mut(&mut rig.profile.client).rapid_commit = true;
    rig.options = vec![80, 0];
    rig.server = Server::OffersOnly;
    let add = rig.add("a", 1, "a");
    assert_eq!((rig.kinds(), rig.count(PROBE)), (vec![1, 3], 1));
    (rig, add)
}

#[test]
fn a_conflict_does_not_count_for_another_address() {
    let (mut rig, add) = rig_after_an_offer_in_vain();
    rig.answer_probe(FIRST);
    (rig.server, rig.give) = (Server::Commits, SECOND);
    rig.run_until(1012.0);
    assert_eq!(rig.leased(add), SECOND);
    assert!(!rig.kinds().contains(&4), "{:?}", rig.kinds());
    // It has a window of its own.
    assert_eq!(rig.count((Ipv4Addr::UNSPECIFIED, SECOND)), 3);
}

#[test]
fn an_add_out_of_time_with_a_conflict_in_hand_declines() {
    let mut rig = rig(Detection::Optimistic);
    rig.disk = Disk::Slow;
    let add = rig.add("a", 1, "a");
    rig.answer_probe(FIRST);
    rig.run_until(1030.0);
    assert_fails!(rig, add, Failure::TimedOut(..));
    while !rig.slow.is_empty() {
        rig.flush();
    }
    assert_eq!(rig.kinds(), [1, 3, 4]);
    rig.assert_nothing_is_left();
}

#[test]
fn an_add_that_the_store_refuses_declines_a_used_address() {
    for cancelled in [false, true] {
        let mut rig = rig(Detection::Optimistic);
        rig.disk = Disk::Slow;
        let add = rig.add("a", 1, "a");
        rig.answer_probe(FIRST);
        if cancelled {
            rig.del("a");
        }
        let (op, _) = rig.slow.pop_front().expect("the record");
        rig.disk = Disk::Good;
        rig.unwritten(op);
        rig.run_until(1010.0);
        assert_fails!(rig, add, Failure::Store(_) | Failure::Cancelled(_));
        assert_eq!(rig.kinds(), [1, 3, 4], "cancelled {cancelled}");
        rig.assert_nothing_is_left();
    }
}

#[test]
fn a_background_search_declines_at_its_end_too() {
    let mut rig = rig(Detection::Optimistic);
    rig.lease = 10;
    rig.add("a", 1, "a");
    rig.server = Server::Silent;
    rig.run_until(1011.0);
    rig.server = Server::OffersOnly;
    while !rig.kinds().ends_with(&[1, 3]) {
        rig.wake();
    }
    rig.answer_probe(FIRST);
    rig.del("a");
    rig.run_until(1100.0);
    assert!(rig.kinds().ends_with(&[3, 4]), "{:?}", rig.kinds());
    rig.assert_nothing_is_left();
}

#[test]
fn an_address_is_declined_before_a_successor_asks_for_it() {
    let mut rig = rig(Detection::Optimistic);
    rig.add("a", 1, "same");
    rig.run_until(1000.5);
    rig.disk = Disk::Slow;
    rig.answer_probe(FIRST);
    rig.del("a");
    assert_eq!(rig.kinds(), [1, 3, 4]);
    rig.add("b", 2, "same");
    assert_eq!(rig.kinds(), [1, 3, 4, 1, 3]);
}

#[test]
fn a_used_address_of_a_dead_link_is_released_by_the_host() {
    for written in [true, false] {
        let mut rig = rig(Detection::Optimistic);
        rig.disk = Disk::Slow;
        let add = rig.add("a", 1, "a");
        rig.claim(NEIGHBOUR, FIRST);
        if written {
            rig.flush();
        }
        rig.live.remove(&1);
        rig.kernel(KernelMessage::LinkGone((Cookie(1), 2)));
        for exchange in rig.open.keys().copied().collect::<Vec<_>>() {
            rig.breaks(exchange, LinkCause::NoLink("2".to_owned()));
        }
        rig.disk_recovers();
        rig.run_until(1010.0);
        assert_fails!(rig, add, Failure::Link { .. });
        assert_eq!(rig.kinds(), [1, 3, 7], "written {written}");
        assert!(matches!(rig.opened.last(), Some(Link::Parent { .. })));
        rig.assert_nothing_is_left();
    }
}
