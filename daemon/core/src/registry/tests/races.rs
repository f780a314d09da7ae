//! Two things at once, as the simulation found them.

use super::rig::*;

fn refused() -> LinkCause {
    LinkCause::Refused {
        doing: "try",
        reason: "a test".to_owned(),
    }
}

#[test]
fn an_add_takes_off_what_a_lost_lease_left() {
    for on_change in [OnChange::Apply, OnChange::Keep] {
        let mut rig = Rig::new(8);
        rig.profile.policy.on_change = on_change;
        rig.add("a", 1, "a");
        rig.interface.carry([A.parse().expect("an address")]);
        rig.server = Server::Naks;
        rig.faults.push_back((0, refused()));
        rig.run_until(1050.2);
        // It could not be taken off.
        assert_eq!(rig.interface.addresses().len(), 1);
        (rig.server, rig.give) = (Server::Up, OTHER);
        let again = rig.add("a", 1, "a");
        assert_eq!(rig.leased(again), rig.give);
        assert_eq!(rig.interface.addresses(), [], "{on_change:?}");
    }
}

#[test]
fn repeatedly_lost_messages_let_every_link_have_its_look() {
    let mut rig = Rig::new(8);
    (1..4).for_each(|n| _ = rig.add(&format!("c{n}"), n, &format!("c{n}")));
    rig.config.audits = 1;
    rig.hold_looks = true;
    rig.restart();
    let mut looked_at = Vec::new();
    for _ in 0..6 {
        rig.input(Input::Kernel(KernelMessage::Missed));
        let (op, outcome) = rig.looks.pop_front().unwrap();
        let Outcome::Inspected(Ok(view)) = &outcome else {
            panic!("{outcome:?}")
        };
        looked_at.push(view.cookie.0);
        rig.end(op, outcome);
    }
    assert_eq!(looked_at, [1, 2, 3, 1, 2, 3]);
}
