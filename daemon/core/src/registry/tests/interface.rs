//! Looks at an interface and changes of it that end later than what they are about.

use std::net::Ipv4Addr;

use super::super::*;
use super::rig::*;
use crate::effect::Failure;
use crate::event::EventKind;
use crate::link::KernelEvent;

const A: &str = "192.0.2.50/24";
const B: &str = "192.0.2.77/24";
const LEASED: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 50);

fn bound() -> Rig {
    let mut rig = Rig::new(8);
    rig.add("a", 1, "a");
    rig.configure(A);
    rig
}

impl Rig {
    fn removals(&self) -> usize {
        self.events.iter().filter(|event| event.kind == EventKind::AddressRemoved).count()
    }

    /// Ends the look that was asked for first.
    fn end_look(&mut self) {
        let (op, outcome) = self.looks.pop_front().unwrap();
        self.input(Input::Done { op, outcome });
    }

    /// Everything is looked at.
    fn miss(&mut self) {
        self.input(Input::Kernel(KernelEvent::Missed));
    }
}

#[test]
fn a_look_from_before_the_address_came_is_no_sign_that_it_went() {
    let mut rig = Rig::new(8);
    rig.add("a", 1, "a");
    rig.hold_looks = true;
    rig.miss();
    rig.configure(A);
    rig.end_look();
    assert_eq!((rig.removals(), rig.looks.len()), (0, 1), "it is looked at once more");
    rig.end_look();
    rig.sent.clear();
    rig.run_until(1050.5);
    assert_eq!((rig.removals(), rig.sent.clone()), (0, vec![(3, LEASED)]), "renewed from its address");
}

#[test]
fn a_look_from_before_the_daemon_put_an_address_on_is_no_sign_that_it_went() {
    let mut rig = bound();
    rig.hold_looks = true;
    rig.miss();
    let before = rig.looks.pop_front().unwrap();
    rig.hold_looks = false;
    rig.give = Ipv4Addr::new(192, 0, 2, 77);
    rig.run_until(1050.5);
    assert_eq!(rig.on_link(), [B]);
    rig.input(Input::Done { op: before.0, outcome: before.1 });
    rig.sent.clear();
    rig.run_until(1101.0);
    assert_eq!((rig.removals(), rig.sent[0]), (0, (3, Ipv4Addr::new(192, 0, 2, 77))));
}

#[test]
fn of_two_reasons_to_look_the_later_one_is_looked_at_after_the_first() {
    let mut rig = bound();
    rig.hold_looks = true;
    rig.miss();
    rig.take_off(A);
    assert_eq!(rig.looks.len(), 1, "two at once could come back in any order");
    rig.end_look();
    assert_eq!(rig.removals(), 0);
    rig.end_look();
    assert_eq!((rig.removals(), rig.looks.len()), (1, 0));
}

#[test]
fn a_look_from_before_carrier_came_back_takes_it_for_away_no_more() {
    let mut rig = bound();
    rig.carrier = false;
    rig.hold_looks = true;
    rig.miss();
    rig.carrier = true;
    let up = || KernelEvent::Carrier { cookie: Cookie(1), ifindex: 2, up: true };
    rig.input(Input::Kernel(up()));
    rig.hold_looks = false;
    rig.end_look();
    rig.run_until(1010.0);
    rig.sent.clear();
    rig.input(Input::Kernel(up()));
    assert_eq!((rig.state("a"), rig.sent.len()), (vec!["BOUND"], 0));
}

#[test]
fn what_an_add_takes_off_in_its_place_was_taken_off_by_nobody_else() {
    let mut rig = bound();
    rig.hold_looks = true;
    let add = rig.add("a", 1, "another");
    rig.end_look();
    assert!(rig.on_link().is_empty(), "cleared");
    rig.input(Input::Kernel(KernelEvent::AddressGone { cookie: Cookie(1), ifindex: 2, address: LEASED }));
    rig.hold_looks = false;
    let (op, outcome) = rig.looks.pop_back().unwrap();
    rig.input(Input::Done { op, outcome });
    rig.end_look();
    rig.run_until(1005.0);
    assert!(matches!(rig.answers[&add], Answer::Leased(_)));
    assert_eq!(rig.removals(), 0);
}

/// The lease was refused, and its address is to go; that is being done for a long time.
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
fn an_add_after_a_del_waits_for_a_change_that_is_still_under_way() {
    let mut rig = slowly_cleared();
    let del = rig.del("a");
    assert_eq!(rig.answers[&del], Answer::Deleted);
    let add = rig.add("a", 1, "a");
    assert!(!rig.answers.contains_key(&add), "its main plugin would see the address go again");
    rig.change_late();
    assert!(rig.on_link().is_empty());
    assert!(matches!(rig.answers[&add], Answer::Leased(_)));
    rig.configure(A);
    assert!(rig.changes.is_empty() && rig.reg.kept().iter().all(|kept| kept.of_bindings || kept.count == 0));
}

#[test]
fn an_add_in_the_place_of_a_lost_lease_waits_for_the_change_that_follows_the_loss() {
    let mut rig = slowly_cleared();
    let add = rig.add("a", 1, "another");
    assert!(!rig.answers.contains_key(&add));
    rig.change_late();
    assert!(matches!(rig.answers[&add], Answer::Leased(_)) && rig.on_link().is_empty());
}

#[test]
fn an_add_that_waits_in_vain_for_a_change_to_end_says_so_and_leaves_nothing() {
    let mut rig = slowly_cleared();
    rig.del("a");
    let add = rig.add("a", 1, "a");
    rig.run_until(1081.0);
    let Answer::Failed(Failure::TimedOut { waiting_for, .. }) = &rig.answers[&add] else { panic!() };
    assert_eq!(*waiting_for, "an earlier change of the interface to end");
    rig.change_late();
    assert!(rig.rows().is_empty() && rig.reg.kept().iter().all(|kept| kept.count == 0), "{:?}", rig.reg.kept());
}

#[test]
fn an_add_waits_for_what_is_taken_off_for_one_that_was_given_up() {
    let mut rig = bound();
    rig.hold_changes = true;
    let given_up = rig.add("a", 1, "another");
    rig.input(Input::HungUp(RequestId(given_up)));
    rig.del("a");
    let add = rig.add("a", 1, "another");
    assert!(!rig.answers.contains_key(&add));
    rig.change_late();
    assert!(matches!(rig.answers[&add], Answer::Leased(_)));
}
