use std::path::PathBuf;

use super::*;

const AT: At = (Cookie(1), 2);
const MAC: Mac = Mac([2, 0, 0, 0, 1, 1]);
const OTHER: Mac = Mac([2, 0, 0, 0, 1, 2]);
const NOW: Instant = Instant::from_boot(Duration::from_secs(1000));

fn link(at: At, mac: Mac) -> Link {
    Link::InNetns {
        path: PathBuf::from("/ns/1"),
        cookie: at.0,
        ifindex: at.1,
        mac,
    }
}

/// An interface with two bindings.
fn shared() -> Interfaces {
    let mut interfaces = Interfaces::default();
    interfaces.enter(&link(AT, MAC), BindingId(2));
    interfaces.enter(&link(AT, MAC), BindingId(1));
    interfaces
}

#[test]
fn an_interface_goes_with_its_last_binding() {
    let mut interfaces = shared();
    interfaces.enter(&link((Cookie(1), 3), OTHER), BindingId(3));
    interfaces.enter(&link((Cookie(2), 2), OTHER), BindingId(4));
    let found = interfaces.bindings(AT.0, Some(AT.1));
    assert_eq!(found, [BindingId(1), BindingId(2)]);
    let found = interfaces.bindings(AT.0, None);
    assert_eq!(found, [BindingId(1), BindingId(2), BindingId(3)]);
    interfaces.leave(&link(AT, MAC), BindingId(1));
    interfaces.leave(&link(AT, MAC), BindingId(2));
    let found = (interfaces.bindings(AT.0, Some(AT.1)), interfaces.all.len());
    assert_eq!(found, (vec![], 2));
}

#[test]
fn a_binding_may_get_an_interface_and_lose_it() {
    let mut interfaces = Interfaces::default();
    let (parent, id) = (Link::parent(7, MAC), BindingId(1));
    interfaces.enter(&parent, id);
    assert!(interfaces.all.is_empty());
    interfaces.enter(&link(AT, MAC), id);
    assert_eq!(interfaces.bindings(AT.0, None), [id]);
    interfaces.leave(&link(AT, MAC), id);
    interfaces.enter(&parent, id);
    assert!(interfaces.all.is_empty());
}

#[test]
fn returned_carrier_is_reported_once_with_its_absence() {
    let (mut interfaces, at) = (shared(), |seconds| {
        Instant::from_boot(Duration::from_secs(seconds))
    });
    // It never went.
    assert_eq!(interfaces.on_carrier(AT, true, at(1)), None);
    assert_eq!(interfaces.on_carrier(AT, false, at(2)), None);
    // The kernel says so again.
    assert_eq!(interfaces.on_carrier(AT, false, at(4)), None);
    assert!(
        !interfaces.has_carrier(&link(AT, MAC)) && interfaces.has_carrier(&Link::parent(7, MAC))
    );
    let found = interfaces.on_carrier(AT, true, at(7));
    assert_eq!(found, Some(Duration::from_secs(5)));
    assert_eq!(interfaces.on_carrier(AT, true, at(8)), None);
    assert!(interfaces.has_carrier(&link(AT, MAC)));
}

#[test]
fn whether_an_address_is_there_is_known_for_each_binding() {
    let (mut interfaces, own) = (shared(), link(AT, MAC));
    let [a, b] = [1, 2].map(BindingId);
    interfaces.seat_mut(&own, a).unwrap().see(true, None, NOW);
    // A lease of just now, or of long ago.
    let (young, old) = (Some(NOW), Some(Instant::from_boot(Duration::ZERO)));
    let seen = [
        (false, young),
        (true, young),
        (true, young),
        (false, young),
        (false, old),
        (true, old),
    ];
    let seen = seen.map(|(there, start)| {
        interfaces
            .seat_mut(&own, b)
            .unwrap()
            .see(there, start, NOW)
            .1
    });
    use Presence::*;
    assert_eq!(seen, [Missing, There, There, TakenOff, TakenOff, There]);
    let found = [a, b].map(|id| interfaces.presence(&own, id));
    assert_eq!(found, [There, There]);
    // Over the host's link.
    assert_eq!(interfaces.presence(&Link::parent(7, MAC), a), Missing);
}

#[test]
fn a_new_mac_is_reported_once_and_with_carrier() {
    let (mut interfaces, own) = (shared(), link(AT, MAC));
    let [a, b] = [1, 2].map(BindingId);
    interfaces.seat_mut(&own, a).unwrap().see(true, None, NOW);
    [a, b]
        .into_iter()
        .for_each(|id| interfaces.seat_mut(&own, id).unwrap().moves());
    interfaces.on_carrier(AT, false, Instant::from_boot(Duration::from_secs(1)));
    assert!(!interfaces.take_moved(&own, a));
    interfaces.on_carrier(AT, true, Instant::from_boot(Duration::from_secs(2)));
    let found = [a, a, b].map(|id| interfaces.take_moved(&own, id));
    assert_eq!(found, [true, false, false], "nobody knows the other's");
}

#[test]
fn a_change_ends_where_it_began() {
    let (mut interfaces, b) = (shared(), (Cookie(1), 3));
    interfaces.begin_change(AT, OpId(7));
    interfaces.begin_change(b, OpId(8));
    assert!(interfaces.is_changing(AT) && interfaces.is_changing(b));
    assert_eq!(interfaces.end_change(OpId(9)), None, "no change");
    assert_eq!(interfaces.end_change(OpId(7)), Some(AT));
    assert!(!interfaces.is_changing(AT) && interfaces.is_changing(b));
    let found = (interfaces.end_change(OpId(8)), interfaces.all.len());
    assert_eq!(found, (Some(b), 1), "nobody lives there");
}

#[test]
fn a_look_is_outdated_once_something_happened() {
    let (mut interfaces, other) = (shared(), (Cookie(1), 3));
    interfaces.enter(&link(other, OTHER), BindingId(3));
    let asked = interfaces.asked(AT);
    interfaces.has_news(other);
    interfaces.begin_change(AT, OpId(7));
    assert_eq!(interfaces.asked(AT), asked, "nothing yet");
    interfaces.end_change(OpId(7));
    assert_ne!(interfaces.asked(AT), asked);
    let asked = interfaces.asked(AT);
    interfaces.has_news(AT);
    assert_ne!(interfaces.asked(AT), asked);
}

#[test]
fn a_change_outlives_the_binding_that_it_was_for() {
    let mut interfaces = shared();
    interfaces.begin_change(AT, OpId(7));
    interfaces.leave(&link(AT, MAC), BindingId(1));
    interfaces.leave(&link(AT, MAC), BindingId(2));
    assert!(interfaces.is_changing(AT));
    let found = (interfaces.end_change(OpId(7)), interfaces.all.len());
    assert_eq!(found, (Some(AT), 0));
}
