//! How often addresses are declined: ten times an ADD, with growing pauses, and for a whole LAN once a minute after that.

use super::*;
use crate::conflict::lans::MAX_CONFLICTS;
use crate::effect::Call;

impl Rig {
    fn declines(&self) -> usize {
        self.messages().iter().filter(|kind| **kind == 4).count()
    }

    /// A neighbour uses every address that the server has.
    fn all_taken(&mut self) {
        self.stations
            .extend((0..200).map(|n| (Ipv4Addr::from_bits(FIRST.to_bits() + n), NEIGHBOUR)));
    }
}

/// A LAN on which an ADD has just failed with its ten conflicts.
fn hostile() -> Rig {
    let mut rig = rig(Detection::Optimistic);
    offend(&mut rig);
    rig
}

fn offend(rig: &mut Rig) {
    rig.all_taken();
    let mut call = rig.call("a", 1, "a");
    call.timeout = Duration::from_secs(100);
    let add = rig.request(Call::Add(call));
    while !rig.answers.contains_key(&add) {
        rig.wake();
    }
}

#[test]
fn an_add_declines_ten_addresses_at_most_and_says_who_uses_them() {
    let mut rig = hostile();
    assert_eq!((rig.declines(), MAX_CONFLICTS), (10, 10));
    assert!(
        rig.seconds() < 1022.0,
        "within an ordinary time-out: {}",
        rig.seconds()
    );
    let Some(Answer::Failed(failure)) = rig.answers.get(&1) else {
        panic!()
    };
    let Failure::Conflicts { declined, .. } = failure else {
        panic!("{failure}")
    };
    assert_eq!(declined.len(), 10);
    let text = failure.to_string();
    let begin = "10 addresses that were offered on br0 are in use, and were declined: \
                 192.0.2.50 by 02:00:00:00:09:09, 192.0.2.51 by 02:00:00:00:09:09, ";
    let end = "192.0.2.59 by 02:00:00:00:09:09; take them out of the server's pool, or find out why these Ethernet \
               addresses answer for them";
    assert!(text.starts_with(begin) && text.ends_with(end), "{text}");
    assert!(rig.rows().is_empty() && rig.store.records().is_empty() && rig.open.is_empty());
    rig.run_until(1100.0);
    assert_eq!(rig.declines(), 10, "nothing goes on");
}

#[test]
fn an_add_does_not_forget_who_uses_an_address_that_it_is_offered_again() {
    let mut rig = rig(Detection::Optimistic);
    rig.server = Server::OffersOnly;
    let add = rig.add("a", 1, "a");
    rig.answer_probe(FIRST);
    while !rig.messages().ends_with(&[1, 3]) || rig.messages().len() < 4 {
        rig.wake();
    }
    assert_eq!(
        rig.messages(),
        [1, 3, 3, 3, 1, 3],
        "offered once more, not acknowledged"
    );
    rig.server = Server::Up;
    rig.run_until(1030.0);
    assert_eq!((rig.leased(add), rig.declines()), (SECOND, 1));
}

#[test]
fn nor_where_the_server_refuses_it_before_the_control_is_over() {
    let mut rig = rig(Detection::Optimistic);
    rig.server = Server::Naks;
    rig.stations.insert(FIRST, NEIGHBOUR);
    let add = rig.add("a", 1, "a");
    rig.stations.remove(&FIRST);
    rig.run_until(1001.0);
    rig.server = Server::Up;
    rig.run_until(1030.0);
    assert_eq!((rig.leased(add), rig.declines()), (SECOND, 1));
}

#[test]
fn an_add_out_of_time_names_all_that_it_declined() {
    let mut rig = rig(Detection::Optimistic);
    rig.all_taken();
    let mut call = rig.call("a", 1, "a");
    call.timeout = Duration::from_millis(2500);
    let add = rig.request(Call::Add(call));
    rig.run_until(1010.0);
    let declined = vec![(FIRST, NEIGHBOUR), (SECOND, NEIGHBOUR)];
    let lan = Lan::Link {
        parent: "br0".into(),
        vlan: 0,
    };
    assert_eq!(
        rig.answers[&add],
        Answer::Failed(Failure::Conflicts { lan, declined })
    );
}

#[test]
fn a_server_that_has_but_one_address_which_is_in_use_fails_the_add_with_who_uses_it() {
    let mut rig = rig(Detection::Optimistic);
    rig.stations.insert(FIRST, NEIGHBOUR);
    let add = rig.add("a", 1, "a");
    rig.run_until(1001.0);
    rig.server = Server::Silent;
    rig.run_until(1030.0);
    let Answer::Failed(failure) = &rig.answers[&add] else {
        panic!()
    };
    let expected = "192.0.2.50 is in use by 02:00:00:00:09:09, and was declined: give that station another address, or take \
                    192.0.2.50 out of the server's pool";
    assert_eq!(failure.to_string(), expected);
}

#[test]
fn after_ten_conflicts_a_lan_has_one_new_try_a_minute() {
    let mut rig = hostile();
    let last = rig.seconds();
    let sent = rig.messages().len();
    let add = rig.add("b", 2, "b");
    let Answer::Failed(failure) = &rig.answers[&add] else {
        panic!("{:?}", rig.answers[&add])
    };
    let expected = "new addresses on br0 are paused for 60s: the last 10 that were offered there were in use, 192.0.2.59 by \
                    02:00:00:00:09:09; find out why that Ethernet address answers for it";
    assert_eq!(failure.to_string(), expected);
    assert_eq!(rig.messages().len(), sent, "nothing is sent");
    let mut call = rig.call("c", 3, "c");
    call.lan = Lan::Link {
        parent: "br1".into(),
        vlan: 0,
    };
    let other = rig.request(Call::Add(call));
    assert_eq!(
        rig.messages().last(),
        Some(&3),
        "another LAN has nothing to do with it"
    );
    rig.del("c");
    assert!(matches!(
        rig.answers[&other],
        Answer::Failed(Failure::Cancelled(_))
    ));
    rig.run_until(last + 40.0);
    rig.sent.clear();
    // Its time is long enough.
    let (first, second) = (rig.add("d", 4, "d"), rig.add("e", 5, "e"));
    rig.run_until(last + 59.999);
    assert!(rig.sent.is_empty() && !rig.answers.contains_key(&first));
    rig.run_until(last + 60.0);
    assert_eq!(rig.messages(), [1, 3], "one of the two");
    assert!(
        rig.answers.contains_key(&first) != rig.answers.contains_key(&second),
        "the other one has no time left"
    );
    rig.run_until(last + 61.0);
    assert_eq!(rig.messages(), [1, 3, 4]);
    rig.run_until(last + 120.0);
    assert_eq!(rig.messages(), [1, 3, 4]);
}

#[test]
fn nor_does_an_add_try_one_beside_whose_earlier_lease_is_not_confirmed() {
    for refused in [false, true] {
        let mut rig = rig(Detection::Optimistic);
        rig.profile.grace = Some(3600);
        rig.give = Ipv4Addr::from_bits(FIRST.to_bits() + 100);
        rig.add("k", 7, "k");
        rig.del("k");
        rig.give = FIRST;
        rig.run_until(1010.0);
        offend(&mut rig);
        let last = rig.seconds();
        rig.sent.clear();
        rig.server = if refused {
            Server::NaksOnly
        } else {
            Server::Silent
        };
        let mut call = rig.call("k", 8, "k");
        call.timeout = Duration::from_secs(100);
        let add = rig.request(Call::Add(call));
        rig.run_until(last + 2.0);
        assert_eq!(rig.messages()[0], 3, "INIT-REBOOT");
        rig.server = Server::Up;
        rig.run_until(last + 59.999);
        let asked = |rig: &Rig| {
            rig.messages()
                .into_iter()
                .skip_while(|kind| *kind == 3)
                .any(|kind| kind == 3)
        };
        assert!(
            !asked(&rig) && !rig.answers.contains_key(&add),
            "refused {refused}: {:?}",
            rig.messages()
        );
        assert!(rig.messages().contains(&1), "it looks for another");
        rig.run_until(last + 60.1);
        assert!(asked(&rig), "refused {refused}: {:?}", rig.messages());
        assert_eq!(rig.declines(), 0, "{:?}", rig.messages());
        rig.run_until(last + 100.0);
        assert_eq!(rig.declines(), 1, "{:?}", rig.messages());
    }
}

#[test]
fn an_add_with_too_little_time_left_for_its_try_fails_at_once() {
    for (later, fails) in [(38.0, true), (38.1, false)] {
        let mut rig = hostile();
        rig.run_until(rig.seconds() + later);
        let add = rig.add("b", 2, "b");
        assert_eq!(rig.answers.contains_key(&add), fails, "{later}");
    }
}

#[test]
fn an_address_that_is_free_ends_the_minute() {
    let mut rig = hostile();
    rig.stations.retain(|address, _| *address < FIRST);
    rig.run_until(rig.seconds() + 60.0);
    let add = rig.add("b", 2, "b");
    assert!(matches!(rig.answers[&add], Answer::Leased { .. }));
    let add = rig.add("c", 3, "c");
    assert!(
        matches!(rig.answers[&add], Answer::Leased { .. }),
        "nobody has claimed the one before: {:?}",
        rig.answers[&add]
    );
    rig.del("b");
    rig.del("c");
    let add = rig.add("d", 4, "d");
    assert!(
        matches!(rig.answers[&add], Answer::Leased { .. }),
        "nor while they lived: {:?}",
        rig.answers[&add]
    );
}

#[test]
fn one_that_is_claimed_after_its_add_has_the_lan_wait_again() {
    let mut rig = hostile();
    rig.stations.retain(|address, _| *address < FIRST);
    rig.run_until(rig.seconds() + 60.0);
    let add = rig.add("b", 2, "b");
    let address = rig.leased(add);
    rig.stations.insert(address, NEIGHBOUR);
    rig.run_until(rig.seconds() + 3.0);
    assert_eq!(rig.declines(), 11);
    let add = rig.add("c", 3, "c");
    assert!(
        matches!(rig.answers[&add], Answer::Failed(Failure::HeldBack { .. })),
        "{:?}",
        rig.answers[&add]
    );
}

/// A server that keeps FIRST for "a", where a neighbour uses it, and offers that again whatever "a" declines.
fn with_a_squatted_reservation() -> Rig {
    let mut rig = rig(Detection::Optimistic);
    (rig.give, rig.reserved) = (SECOND, Some((Mac([2, 0, 0, 0, 1, 1]), FIRST)));
    rig.stations.insert(FIRST, NEIGHBOUR);
    rig
}

#[test]
fn an_add_declines_one_address_three_times_at_most_and_names_it_once() {
    let mut rig = with_a_squatted_reservation();
    let add = rig.add("a", 1, "a");
    rig.run_until(1006.0);
    assert_eq!(
        rig.answers.get(&add),
        Some(&Answer::Failed(Failure::Conflict {
            address: FIRST,
            by: NEIGHBOUR
        }))
    );
    assert_eq!(rig.declines(), 3);
    assert!(rig.rows().is_empty() && rig.store.records().is_empty() && rig.open.is_empty());
}

#[test]
fn a_reservation_that_somebody_else_uses_holds_up_nobody_but_its_own_container() {
    let mut rig = with_a_squatted_reservation();
    for _ in 0..5 {
        let add = rig.add("a", 1, "a");
        rig.run_until(rig.seconds() + 30.0);
        assert!(
            matches!(rig.answers[&add], Answer::Failed(Failure::Conflict { .. })),
            "{:?}",
            rig.answers[&add]
        );
    }
    let add = rig.add("b", 2, "b");
    assert_eq!(rig.leased(add), SECOND);
}

#[test]
fn who_conflicted_last_leaves_the_minutes_turn_to_others() {
    let mut rig = hostile();
    let last = rig.seconds();
    rig.run_until(last + 1.0);
    for (who, netns) in [("a", 1), ("b", 2)] {
        let mut call = rig.call(who, netns, who);
        call.timeout = Duration::from_secs(100);
        rig.request(Call::Add(call));
    }
    rig.chaddrs.clear();
    rig.run_until(last + 60.5);
    assert_eq!(
        rig.chaddrs,
        [Mac([2, 0, 0, 0, 1, 2])].into(),
        "the one that met the ten conflicts waits"
    );
}

#[test]
fn without_detection_nothing_is_held_back() {
    let mut rig = hostile();
    rig.profile.policy.detection = Detection::Off;
    let add = rig.add("b", 2, "b");
    assert!(
        matches!(rig.answers[&add], Answer::Leased { .. }),
        "{:?}",
        rig.answers[&add]
    );
}

#[test]
fn in_the_background_the_pauses_grow_to_ten_minutes_and_no_address_in_use_is_ever_taken() {
    let mut rig = rig(Detection::Optimistic);
    let add = rig.add("a", 1, "a");
    rig.configure("192.0.2.50/24");
    assert_eq!(rig.leased(add), FIRST);
    rig.all_taken();
    rig.run_until(1003.0);
    let mut at = Vec::new();
    while at.len() < 11 {
        let (messages, seconds) = (rig.declines(), rig.seconds());
        rig.wake();
        if rig.declines() > messages {
            at.push(seconds);
            assert!(rig.on_link().is_empty());
        }
    }
    let pauses: Vec<_> = at
        .windows(2)
        .map(|pair| (pair[1] - pair[0]).round() as u64)
        .collect();
    // A second each for the control.
    assert_eq!(pauses, [21, 41, 81, 161, 321, 601, 601, 601, 601, 601]);
    assert!(!rig.kinds_of_events().contains(&EventKind::DetectionOff));
}

#[test]
fn conflicts_in_the_background_count_for_the_lan() {
    let mut rig = rig(Detection::Optimistic);
    for (n, who) in ["a", "b", "c", "d", "e"].into_iter().enumerate() {
        rig.give = Ipv4Addr::from_bits(FIRST.to_bits() + 100 + n as u32);
        rig.add(who, n as u64 + 1, who);
    }
    rig.give = FIRST;
    rig.all_taken();
    let declined = |rig: &Rig| {
        let declined = rig
            .store
            .events
            .iter()
            .filter(|event| event.kind == EventKind::Declined);
        declined
            .filter_map(|event| event.address)
            .collect::<std::collections::BTreeSet<_>>()
            .len()
    };
    while declined(&rig) < MAX_CONFLICTS {
        rig.wake();
    }
    let add = rig.add("f", 6, "f");
    assert!(matches!(
        rig.answers[&add],
        Answer::Failed(Failure::HeldBack {
            conflicts: 10..,
            ..
        })
    ));
    // Nor do those that wait in the background exceed the pace.
    let (from, declined) = (rig.seconds(), rig.declines());
    rig.run_until(from + 600.0);
    assert!(
        rig.declines() - declined <= 10,
        "{}",
        rig.declines() - declined
    );
}
