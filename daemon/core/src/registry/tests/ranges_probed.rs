//! Probes for addresses of local ranges, where the container's interface is there.

use std::net::Ipv4Addr;

use super::rig::*;
use crate::effect::{Call, Failure, RangeAdd};
use crate::event::EventKind;
use crate::grant::policy::Detection;
use crate::identity::{AddressHolder, Attachment};
use crate::range::NoAddress;
use crate::wire::Mac;

const NEIGHBOUR: Mac = Mac([2, 0, 0, 0, 9, 9]);

fn probed(rig: &Rig, who: &str, netns: u64, detection: Detection) -> RangeAdd {
    RangeAdd {
        detection,
        ..rig.range_call(who, netns, 50, 70)
    }
}

fn probes(rig: &Rig, address: &str) -> usize {
    let address: Ipv4Addr = address.parse().unwrap();
    rig.asked
        .iter()
        .filter(|asked| **asked == (ANY, address))
        .count()
}

#[test]
fn nothing_is_probed_for_unless_the_network_wants_it() {
    let mut rig = Rig::new(8);
    let add = probed(&rig, "a", 1, Detection::Off);
    let add = rig.ask_range(add);
    assert_eq!(
        (rig.of_range(add).as_str(), rig.asked.len(), rig.open.len()),
        ("192.0.2.50/24", 0, 0)
    );
}

#[test]
fn an_address_that_nobody_claims_is_given_after_the_first_probe_or_after_all() {
    for (detection, soonest, latest, count) in [
        (Detection::Optimistic, 0.25, 0.3, 2),
        (Detection::Strict, 4.0, 7.1, 3),
    ] {
        let mut rig = Rig::new(8);
        let add = probed(&rig, "a", 1, detection);
        let add = rig.ask_range(add);
        rig.run_until(1000.0 + soonest - 0.01);
        assert!(!rig.answers.contains_key(&add), "{detection:?}");
        rig.run_until(1000.0 + latest);
        assert_eq!(
            (rig.of_range(add).as_str(), probes(&rig, "192.0.2.50")),
            ("192.0.2.50/24", count)
        );
        assert!(
            rig.open.is_empty() && rig.store.ranges.len() == 1,
            "{detection:?}"
        );
    }
}

#[test]
fn an_address_that_a_station_uses_is_passed_over_for_ten_minutes_and_the_event_says_so() {
    for detection in [Detection::Optimistic, Detection::Strict] {
        let mut rig = Rig::new(8);
        rig.stations
            .insert("192.0.2.50".parse().unwrap(), NEIGHBOUR);
        let add = probed(&rig, "a", 1, detection);
        let add = rig.ask_range(add);
        rig.run_until(1010.0);
        assert_eq!(rig.of_range(add), "192.0.2.51/24");
        let event = rig
            .store
            .events
            .iter()
            .find(|event| event.kind == EventKind::Conflict)
            .expect("it is told");
        assert_eq!(event.address, Some("192.0.2.50/24".parse().unwrap()));
        assert!(
            event.cause.contains(&NEIGHBOUR.to_string()),
            "{}",
            event.cause
        );
        let mut asks = probed(&rig, "b", 2, detection);
        asks.asked = vec!["192.0.2.50".parse().unwrap()];
        let add = rig.ask_range(asks.clone());
        let Answer::Failed(Failure::NoAddress {
            none: NoAddress::Taken { by, .. },
            ..
        }) = &rig.answers[&add]
        else {
            panic!("{:?}", rig.answers)
        };
        assert_eq!(*by, AddressHolder::Station(NEIGHBOUR));
        rig.stations.remove(&"192.0.2.50".parse().unwrap());
        rig.run_until(1620.0);
        let add = rig.ask_range(asks);
        rig.run_until(1630.0);
        assert_eq!(rig.of_range(add), "192.0.2.50/24");
    }
}

#[test]
fn an_add_fails_after_ten_addresses_in_use() {
    let mut rig = Rig::new(8);
    for n in 50..=70 {
        rig.stations.insert(Ipv4Addr::new(192, 0, 2, n), NEIGHBOUR);
    }
    let add = probed(&rig, "a", 1, Detection::Optimistic);
    let add = rig.ask_range(add);
    rig.run_until(1010.0);
    assert!(
        matches!(
            rig.answers[&add],
            Answer::Failed(Failure::Conflict { by: NEIGHBOUR, .. })
        ),
        "{:?}",
        rig.answers
    );
    assert!(rig.store.ranges.is_empty() && rig.open.is_empty());
}

#[test]
fn without_an_interface_nothing_is_probed_for() {
    for detection in [Detection::Optimistic, Detection::Strict] {
        let mut rig = Rig::new(8);
        rig.live.remove(&1);
        let add = probed(&rig, "a", 1, detection);
        let add = rig.ask_range(add);
        assert_eq!(
            (rig.of_range(add).as_str(), rig.asked.len()),
            ("192.0.2.50/24", 0)
        );
    }
}

#[test]
fn probes_wait_for_carrier() {
    let mut rig = Rig::new(8);
    rig.interface.carrier = false;
    let add = probed(&rig, "a", 1, Detection::Optimistic);
    let add = rig.ask_range(add);
    rig.run_until(1003.0);
    assert!(!rig.answers.contains_key(&add) && rig.asked.is_empty());
    rig.interface.carrier = true;
    rig.tell_carrier(true);
    rig.run_until(1004.0);
    assert_eq!(
        (rig.of_range(add).as_str(), probes(&rig, "192.0.2.50")),
        ("192.0.2.50/24", 2)
    );
}

/// The port of a bridge forwards a moment after its link has carrier.
#[test]
fn a_station_that_the_first_frame_does_not_reach_is_heard() {
    let mut rig = Rig::new(8);
    let add = probed(&rig, "a", 1, Detection::Optimistic);
    let add = rig.ask_range(add);
    rig.run_until(1000.124);
    assert_eq!(probes(&rig, "192.0.2.50"), 1);
    rig.stations
        .insert("192.0.2.50".parse().unwrap(), NEIGHBOUR);
    rig.run_until(1001.0);
    assert_eq!(rig.of_range(add), "192.0.2.51/24");
}

#[test]
fn who_hangs_up_or_is_deleted_during_the_probes_leaves_nothing() {
    for deletes in [false, true] {
        let mut rig = Rig::new(8);
        let add = probed(&rig, "a", 1, Detection::Strict);
        let add = rig.ask_range(add);
        rig.run_until(1002.0);
        match deletes {
            false => rig.input(Input::HungUp(crate::effect::RequestId(add))),
            true => {
                rig.request(Call::Del {
                    attachment: Attachment::cni("pods", "a", "eth0"),
                    grace: None,
                });
                assert!(matches!(
                    rig.answers[&add],
                    Answer::Failed(Failure::Cancelled(_))
                ));
            }
        }
        rig.run_until(1020.0);
        assert!(
            rig.store.ranges.is_empty() && rig.open.is_empty() && rig.reg.poll_timeout().is_none()
        );
        let add = probed(&rig, "b", 2, Detection::Off);
        rig.ask_range(add);
        let mut wants = probed(&rig, "c", 3, Detection::Off);
        wants.asked = vec!["192.0.2.50".parse().unwrap()];
        let add = rig.ask_range(wants);
        assert_eq!(rig.of_range(add), "192.0.2.50/24", "it is free");
    }
}

#[test]
fn an_add_whose_time_is_over_during_the_probes_fails() {
    let mut rig = Rig::new(8);
    let add = RangeAdd {
        timeout: std::time::Duration::from_secs(2),
        ..probed(&rig, "a", 1, Detection::Strict)
    };
    let add = rig.ask_range(add);
    rig.run_until(1003.0);
    assert!(
        matches!(rig.answers[&add], Answer::Failed(Failure::TimedOut { .. })),
        "{:?}",
        rig.answers
    );
    assert!(rig.store.ranges.is_empty() && rig.open.is_empty());
}
