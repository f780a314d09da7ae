//! A lease that changes: it is stored first, then put on the interface.

use super::rig::*;

/// An ADD whose address is on the interface.
fn bound() -> Rig {
    let mut rig = Rig::new(8);
    rig.bind();
    rig
}

/// The server renews with another address from here on.
fn give_another(rig: &mut Rig) {
    rig.give = OTHER;
}

#[test]
fn a_change_that_comes_while_another_is_under_way_wins() {
    let mut rig = bound();
    give_another(&mut rig);
    rig.hold_looks = true;
    rig.run_until(1050.5);
    let (look, seen) = rig.looks.pop_front().unwrap();
    rig.input(Input::Done {
        op: look,
        outcome: seen,
    });
    assert_eq!(rig.looks.len(), 1, "one change at a time");
    rig.options = vec![3, 4, 192, 0, 2, 9];
    rig.run_until(1101.0);
    assert_eq!(rig.looks.len(), 1, "one change at a time");
    assert_eq!(
        rig.only_record()
            .former
            .as_ref()
            .map(|former| former.grants.len()),
        Some(2)
    );
    rig.hold_looks = false;
    rig.end_look();
    assert_eq!(rig.on_link(), [B]);
    assert!(
        matches!(rig.steps.last(), Some(Step::AddRoute(_))),
        "{:?}",
        rig.steps
    );
    assert_eq!(rig.only_record().former, None);
}

#[test]
fn on_change_keep_records_and_leaves_the_interface_alone() {
    let mut rig = Rig::new(8);
    rig.profile.policy.on_change = OnChange::Keep;
    rig.bind();
    give_another(&mut rig);
    rig.run_until(1050.5);
    assert_eq!((rig.on_link(), rig.steps.len()), (vec![A.to_owned()], 0));
    assert_eq!(rig.only_record().lease.address.to_string(), B);
    rig.sent.clear();
    rig.run_until(1101.0);
    // No server can answer to an address that is not there.
    assert_eq!(rig.sent[0], (3, Ipv4Addr::UNSPECIFIED));
    // What was kept is known: it goes when there is no lease any more.
    rig.server = Server::Silent;
    rig.restart();
    rig.run_until(1300.0);
    assert!(rig.on_link().is_empty(), "{:?}", rig.on_link());
}

#[test]
fn another_mtu_is_set_at_most_to_the_parents() {
    let mut rig = bound();
    rig.options = vec![26, 2, 0x05, 0x78]; // 1400
    rig.run_until(1050.5);
    assert_eq!(rig.steps, [Step::Mtu(1400)]);
    rig.options = vec![26, 2, 0x23, 0x28]; // 9000
    rig.run_until(1101.0);
    assert_eq!(
        rig.steps.len(),
        1,
        "the parent has 1500, and so has the interface: {:?}",
        rig.steps
    );
    assert_eq!(rig.only_record().former, None);
}

#[test]
fn an_address_taken_off_by_hand_is_not_put_back() {
    let mut rig = bound();
    rig.take_off(A);
    assert_eq!(rig.told(EventKind::AddressRemoved), 1);
    rig.sent.clear();
    rig.run_until(1050.5);
    assert_eq!(rig.sent, [(3, Ipv4Addr::UNSPECIFIED)], "INIT-REBOOT form");
    let found = (rig.state("a"), rig.steps.len(), rig.on_link().len());
    assert_eq!(found, ("BOUND", 0, 0));
    rig.options = vec![3, 4, 192, 0, 2, 9];
    rig.run_until(1101.0);
    assert_eq!(rig.steps.len(), 0, "nor are its routes");
    rig.configure(A);
    rig.sent.clear();
    rig.run_until(1151.5);
    assert_eq!(rig.sent, [(3, FIRST)], "renewed as usual");
}

#[test]
fn an_interface_with_a_new_mac_is_still_ours() {
    let mut rig = bound();
    // As KubeVirt does it: the virtual machine has both addresses from here on, behind a bridge.
    rig.readdressed = true;
    rig.take_off(A);
    let t1 = rig.t1();
    rig.run_until(1051.0);
    let start = rig.only_record().lease.start.since_boot().as_secs_f64();
    assert_eq!((rig.state("a"), start), ("BOUND", t1), "extended");
}
