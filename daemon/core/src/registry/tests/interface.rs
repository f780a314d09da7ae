//! Looks at an interface, and changes of it, that end after their binding or interface is gone.

use super::rig::*;

fn bound() -> Rig {
    let mut rig = Rig::new(8);
    rig.bind();
    rig
}

impl Rig {
    fn removals(&self) -> usize {
        self.told(EventKind::AddressRemoved)
    }

    /// Everything is looked at.
    fn miss(&mut self) {
        self.kernel(KernelMessage::Missed);
    }
}

#[test]
fn a_second_look_waits_for_the_first() {
    let mut rig = bound();
    rig.hold_looks = true;
    rig.miss();
    rig.take_off(A);
    // Two at once could come back in any order.
    assert_eq!(rig.looks.len(), 1);
    rig.end_look();
    assert_eq!(rig.removals(), 0);
    rig.end_look();
    assert_eq!((rig.removals(), rig.looks.len()), (1, 0));
}

#[test]
fn a_look_from_before_carrier_came_back_does_not_count() {
    let mut rig = bound();
    rig.interface.carrier = false;
    rig.hold_looks = true;
    rig.miss();
    rig.interface.carrier = true;
    rig.tell_carrier(true);
    rig.hold_looks = false;
    rig.end_look();
    rig.run_until(1010.0);
    rig.sent.clear();
    rig.tell_carrier(true);
    assert_eq!((rig.state("a"), rig.sent.len()), ("BOUND", 0));
}

#[test]
fn a_removal_for_an_add_is_not_reported() {
    let mut rig = bound();
    rig.hold_looks = true;
    let add = rig.add("a", 1, "another");
    rig.end_look();
    assert!(rig.on_link().is_empty(), "cleared");
    rig.kernel(KernelMessage::AddressGone((Cookie(1), 2), FIRST.into()));
    rig.hold_looks = false;
    let (op, outcome) = rig.looks.pop_back().unwrap();
    rig.end(op, outcome);
    rig.end_look();
    rig.run_until(1005.0);
    rig.assert_leased(add);
    assert_eq!(rig.removals(), 0);
}

/// The lease was refused, and the removal of its address takes a long time.
fn slowly_cleared() -> Rig {
    let mut rig = bound();
    rig.server = Server::Naks;
    rig.hold_changes = true;
    rig.run_until(1050.01);
    rig.server = Server::Up;
    assert_eq!((rig.on_link(), rig.changes.len()), (vec![A.to_owned()], 1));
    rig
}

#[test]
fn an_add_waits_for_the_change_after_a_loss() {
    let mut rig = slowly_cleared();
    let add = rig.add("a", 1, "another");
    let found = (rig.answers.contains_key(&add), rig.changes.len());
    assert_eq!(found, (false, 1));
    rig.change_late();
    assert!(matches!(rig.answers[&add], Answer::Leased { .. }) && rig.on_link().is_empty());
}

#[test]
fn an_add_out_of_time_names_the_change_it_waits_for() {
    let mut rig = slowly_cleared();
    rig.del("a");
    let add = rig.add("a", 1, "a");
    rig.run_until(1081.0);
    let Answer::Failed(Failure::TimedOut(waiting_for, _)) = &rig.answers[&add] else {
        panic!()
    };
    assert_eq!(*waiting_for, "an earlier change of the interface to end");
    rig.change_late();
    assert!(
        rig.rows().is_empty() && rig.reg.kept().iter().all(|kept| kept.count == 0),
        "{:?}",
        rig.reg.kept()
    );
}

#[test]
fn an_interface_cleared_for_an_add_has_no_other_change() {
    let mut rig = bound();
    rig.hold_looks = true;
    rig.server = Server::Naks;
    rig.run_until(1050.01);
    let add = rig.add("a", 1, "another");
    rig.hold_changes = true;
    let (prepared, outcome) = rig.looks.pop_back().unwrap();
    rig.input(Input::Done {
        op: prepared,
        outcome,
    });
    rig.end_look();
    // The binding before has looked, and waits.
    assert_eq!(rig.changes.len(), 1);
    rig.input(Input::HungUp(RequestId(add)));
    rig.hold_looks = false;
    rig.change_late();
    rig.run_until(1050.02);
    let found = (rig.on_link().len(), rig.only_record().former.clone());
    assert_eq!(found, (0, None), "it went on");
}

/// A daemon that looks at two interfaces at once, started on nine records like this.
fn restarted_on_nine(make: impl Fn(&mut Record)) -> Rig {
    let mut rig = Rig::new(8);
    rig.config.audits = 2;
    for n in 1..=9 {
        let mut record = record(&format!("c{n}"), "b", 900.0);
        record.identity.client_id = ClientId::new(vec![0, n]).unwrap();
        record.link = Link::InNetns {
            path: "/ns".into(),
            cookie: Cookie(n.into()),
            ifindex: 2,
            mac: Mac::default(),
        };
        make(&mut record);
        rig.store.durable.insert(BindingId(n.into()), record);
    }
    rig.server = Server::Silent;
    rig.hold_looks = true;
    rig.restart();
    rig
}

#[test]
fn changes_cut_by_a_restart_go_on_a_few_at_once() {
    let mut rig = restarted_on_nine(|record| {
        record.state = RecordState::Seeking;
        record.former = Some(Box::new(Former {
            grants: vec![record.lease.grant(&record.profile.policy)],
            ..Former::default()
        }));
    });
    // The first is deleted while it is being put right, the last before.
    rig.del("c9");
    rig.del("c1");
    let mut most = 0;
    while !rig.looks.is_empty() {
        most = most.max(rig.looks.len());
        rig.end_look();
    }
    assert_eq!(most, 6, "two that are looked at, and the few that were");
    assert!(
        rig.store.all().all(|record| record.former.is_none()),
        "{:?}",
        rig.store.durable
    );
    assert_eq!(rig.store.records().len(), 7);
    let busy = rig
        .reg
        .kept()
        .into_iter()
        .filter(|kept| !kept.of_bindings && kept.count > 0);
    assert_eq!(busy.collect::<Vec<_>>(), []);
}

#[test]
fn lost_messages_during_an_add_lead_to_a_look() {
    let mut rig = Rig::new(8);
    rig.server = Server::Silent;
    let add = rig.add("a", 1, "a");
    rig.hold_looks = true;
    rig.miss();
    // Nothing is heard of its namespace before that.
    assert_eq!(rig.looks.len(), 1);
    rig.end_look();
    rig.server = Server::Up;
    rig.run_until(1005.0);
    rig.assert_leased(add);
    assert_eq!((rig.removals(), rig.looks.len()), (0, 0));
    rig.add("b", 2, "b");
    rig.end_look();
    assert_eq!(rig.looks.len(), 0, "one that came later needs none");
}

#[test]
fn repeated_removals_are_reported_each_ten_minutes() {
    let mut rig = bound();
    for until in [1000.0, 1119.0] {
        rig.run_until(until);
        for _ in 0..10 {
            rig.take_off(A);
            rig.configure(A);
        }
        assert_eq!(rig.removals(), 1, "at {until}");
    }
    rig.take_off(A);
    rig.sent.clear();
    rig.run_until(1170.0);
    // It is known all the same.
    assert_eq!(rig.sent[0], (3, Ipv4Addr::UNSPECIFIED));
    for (until, told) in [(1599.9, 1), (1600.1, 2)] {
        rig.run_until(until);
        rig.configure(A);
        rig.take_off(A);
        assert_eq!(rig.removals(), told, "at {until}");
    }
    rig.configure(A);
    rig.run_until(1800.0);
    assert!(!rig.only_record().taken_off);
    rig.take_off(A);
    // It is written all the same.
    assert_eq!((rig.removals(), rig.only_record().taken_off), (2, true));
}
