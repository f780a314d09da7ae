//! What one call does to another, and to what is under way.

use super::rig::*;
use crate::link::Wire;

#[test]
fn a_look_of_a_dead_add_means_nothing_to_the_next() {
    let mut rig = Rig::new(8);
    rig.interface.carrier = false;
    let first = rig.add("a", 1, "a");
    rig.hold_looks = true;
    rig.tell_carrier(true);
    rig.kernel(KernelMessage::NetnsDied(Cookie(1)));
    assert_fails!(rig, first, Failure::Link { .. });
    rig.add("a", 2, "a");
    rig.end_look();
    assert_eq!(rig.looks.len(), 1, "its own");
}

#[test]
fn all_calls_behind_one_operation_are_answered() {
    let mut rig = Rig::new(8);
    rig.hold_looks = true;
    rig.add("a", 1, "a");
    for _ in 0..20_000 {
        rig.check(&[]);
    }
    let (op, _) = rig.looks.pop_front().unwrap();
    rig.end(
        op,
        Outcome::Applied {
            taken: 0,
            result: Err(LinkCause::Down),
        },
    );
    assert_eq!(rig.answers.len(), 20_001);
}

#[test]
fn an_add_that_was_given_up_does_not_hold_its_identity() {
    let mut rig = Rig::new(8);
    rig.disk = Disk::Slow;
    let a = rig.add("a", 1, "same");
    rig.input(Input::HungUp(RequestId(a)));
    rig.del("a");
    rig.disk = Disk::Good;
    let b = rig.add("b", 2, "same");
    rig.flush();
    rig.run_until(1020.0);
    rig.assert_leased(b);
}

#[test]
fn a_stale_look_is_not_the_answer_to_a_newer_one() {
    let mut rig = Rig::new(8);
    rig.add("a", 1, "same");
    rig.live.remove(&1);
    rig.hold_looks = true;
    rig.kernel(KernelMessage::NetnsDied(Cookie(1))); // Finding, look 1
    assert_eq!(rig.looks.len(), 1);
    let look = rig.looks.pop_front().unwrap();
    rig.hold_looks = false;
    rig.server = Server::Silent;
    let add = rig.add("a", 2, "same"); // pauses it
    rig.hold_looks = true;
    rig.input(Input::HungUp(RequestId(add))); // goes on: look 2
    let stages: usize = rig.looks.len();
    assert_eq!(stages, 1);
    let before = rig.open.len();
    rig.input(Input::Done {
        op: look.0,
        outcome: Outcome::Inspected(Err(LinkCause::TimedOut)),
    });
    let (at, why) = rig.reg.poll_timeout().unwrap();
    assert!(
        why != Why::Release,
        "the first look's failure ended the second try: {before} {at:?} {why:?}"
    );
}

#[test]
fn a_second_add_may_not_insist_on_another_address() {
    let mut rig = Rig::new(8);
    rig.bind();
    let mut insist = |address: &str, preferred| {
        let mut call = rig.call("a", 1, "a");
        call.wanted = Some(Wanted {
            address: address.parse().unwrap(),
            preferred,
        });
        let add = rig.request(Call::Add(call));
        rig.answers[&add].clone()
    };
    // It has that.
    assert!(matches!(insist("192.0.2.50", false), Answer::Leased { .. }));
    // Another will do.
    assert!(matches!(insist("192.0.2.60", true), Answer::Leased { .. }));
    let attached = Failure::Attached {
        attachment: attachment("a"),
        netns: Some("/ns/1".into()),
    };
    assert_eq!(insist("192.0.2.60", false), Answer::Failed(attached));
    let found = (rig.state("a"), rig.on_link());
    assert_eq!(found, ("BOUND", vec!["192.0.2.50/24".to_owned()]));
}

#[test]
fn the_configuration_knows_the_vlan_of_a_bridges_port() {
    // A bridge that filters no VLANs has one LAN, and its default VLAN is the untagged one.
    for (default_pvid, said, vlan) in [(Some(1), 7, 7), (Some(1), 1, 0), (None, 7, 0)] {
        let mut rig = Rig::new(1);
        let lan = |vlan| lan_on("br0", vlan);
        rig.wired.wire = Some(Wire {
            parent: "br0".into(),
            vlan: 0,
            default_pvid,
        });
        let mut call = rig.call("a", 1, "a");
        call.lan = lan(said);
        rig.request(Call::Add(call));
        rig.run_until(1010.0);
        assert_eq!(rig.only_record().identity.lan, lan(vlan));
    }
}

#[test]
fn a_replaced_record_stays_away_if_its_add_is_given_up() {
    let mut rig = Rig::new(8);
    rig.add("a", 1, "same");
    rig.live.remove(&1);
    rig.disk = Disk::Slow;
    let add = rig.add("b", 2, "same");
    assert_eq!(rig.slow.len(), 1, "it takes the record over");
    rig.kernel(KernelMessage::NetnsDied(Cookie(1)));
    rig.input(Input::HungUp(RequestId(add)));
    rig.disk_recovers();
    rig.run_until(1005.0);
    assert_eq!(rig.sends(7), 1, "one RELEASE: {:?}", rig.sent);
    assert!(
        rig.store.records().is_empty() && rig.rows().is_empty(),
        "{:?}",
        rig.store.durable
    );
}
