//! Local ranges beside DHCP servers on one LAN: an address has one live holder, whoever gave it.

use super::rig::*;
use crate::effect::{Call, Failure};
use crate::event::EventKind;
use crate::identity::{AddressHolder, Attachment};
use crate::range::NoAddress;

const DECLINE: u8 = 4;

#[test]
fn what_a_server_offers_that_a_range_gave_is_refused() {
    let mut rig = Rig::new(8);
    let add = rig.range_call("pod", 2, 50, 60);
    let add = rig.ask_range(add);
    assert_eq!(rig.of_range(add), "192.0.2.50/24");
    // The server gives .50 to everybody.
    rig.one_for_all = true;
    let add = rig.add("a", 1, "a");
    rig.run_until(1029.0);
    assert!(
        matches!(
            &rig.answers[&add],
            Answer::Failed(Failure::AddressHeld { .. })
        ),
        "{:?}",
        rig.answers
    );
    assert_eq!(rig.sends(DECLINE), 0);
    let held: Vec<_> = rig
        .store
        .events
        .iter()
        .filter(|event| event.kind == EventKind::AddressHeld)
        .collect();
    assert!(
        held.iter()
            .any(|event| event.cause.contains("pods/pod/eth0")),
        "{held:?}"
    );
}

#[test]
fn an_address_of_a_range_is_free_for_a_server_again_once_it_is_given_back() {
    let mut rig = Rig::new(8);
    let add = rig.range_call("pod", 2, 50, 60);
    rig.ask_range(add);
    rig.request(Call::Del {
        attachment: Attachment::cni("pods", "pod", "eth0"),
        grace: None,
    });
    let add = rig.add("a", 1, "a");
    let Some(Answer::Leased { tenures }) = rig.answers.get(&add) else {
        panic!("{:?}", rig.answers)
    };
    assert_eq!(
        (tenures[0].net().to_string().as_str(), rig.sends(DECLINE)),
        ("192.0.2.50/24", 0)
    );
}

#[test]
fn a_range_passes_over_what_a_server_leased_or_the_host_has() {
    let mut rig = Rig::new(8);
    rig.add("a", 1, "a");
    rig.run_until(1001.0);
    let add = rig.range_call("pod", 2, 50, 51);
    let add = rig.ask_range(add);
    assert_eq!(rig.of_range(add), "192.0.2.51/24");
    let mut wants = rig.range_call("other", 3, 50, 51);
    wants.asked = vec!["192.0.2.50".parse().unwrap()];
    let add = rig.ask_range(wants);
    let Answer::Failed(Failure::NoAddress {
        none: NoAddress::Taken { by, .. },
        ..
    }) = &rig.answers[&add]
    else {
        panic!("{:?}", rig.answers)
    };
    assert!(
        matches!(by, AddressHolder::Attachment(by) if *by.to_string() == *attachment("a").to_string()),
        "{by}"
    );
    // It is free once the lease has gone back.
    rig.del("a");
    rig.run_until(1010.0);
    let add = rig.range_call("other", 3, 50, 51);
    let add = rig.ask_range(add);
    assert_eq!(rig.of_range(add), "192.0.2.50/24");
}

#[test]
fn a_daemon_that_starts_knows_what_ranges_gave() {
    let mut rig = Rig::new(8);
    let add = rig.range_call("pod", 2, 50, 60);
    rig.ask_range(add);
    rig.restart();
    // The server gives .50 to everybody.
    rig.one_for_all = true;
    let add = rig.add("a", 1, "a");
    rig.run_until(1029.0);
    assert!(
        matches!(
            rig.answers[&add],
            Answer::Failed(Failure::AddressHeld { .. })
        ),
        "{:?}",
        rig.answers
    );
}
