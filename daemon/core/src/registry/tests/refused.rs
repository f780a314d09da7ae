//! A DEL that the store refuses leaves everything as it was, not only the lease.

use std::net::Ipv4Addr;

use super::rig::*;
use crate::effect::Failure;
use crate::grant::policy::{Detection, OnExpiry, Policy};
use crate::link::KernelMessage;
use crate::profile::Profile;

const A: &str = "192.0.2.50/24";
const B: &str = "192.0.2.77/24";
const OTHER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 77);

fn bound(profile: Profile) -> Rig {
    let mut rig = Rig::new(8);
    rig.profile = profile;
    rig.bind_slowly();
    rig
}

impl Rig {
    /// A DEL comes while the disk is full, then there is room again.
    fn delete_in_vain(&mut self) {
        let disk = std::mem::replace(&mut self.disk, Disk::Full);
        let del = self.del("a");
        assert!(matches!(self.answers[&del], Answer::Failed(Failure::Store(_))));
        self.disk = disk;
    }

    fn set_carrier(&mut self, up: bool) {
        self.interface.carrier = up;
        self.tell_carrier(up);
    }
}

#[test]
fn an_address_that_was_taken_off_is_still_known_to_be_missing() {
    let mut rig = bound(Profile::default());
    rig.lease = 400;
    rig.run_until(1150.0);
    rig.take_off(A);
    rig.delete_in_vain();
    rig.sent.clear();
    rig.run_until(1251.0);
    assert_eq!(rig.sent, [(3, Ipv4Addr::UNSPECIFIED)], "no server can answer to an address that is not there");
}

#[test]
fn an_address_that_waits_for_room_is_still_known_to_be_missing() {
    let mut rig = bound(Profile::from(Policy { detection: Detection::Off, ..Policy::default() }));
    (rig.give, rig.disk) = (OTHER, Disk::Full);
    rig.run_until(1051.0);
    rig.delete_in_vain();
    rig.sent.clear();
    rig.run_until(1101.5);
    assert_eq!((rig.sent.clone(), rig.on_link()), (vec![(3, Ipv4Addr::UNSPECIFIED)], vec![A.to_owned()]));
    rig.disk = Disk::Good;
    rig.run_until(1180.0);
    rig.sent.clear();
    rig.run_until(1203.0);
    assert_eq!((rig.sent.clone(), rig.on_link()), (vec![(3, OTHER)], vec![B.to_owned()]));
}

#[test]
fn what_is_kept_on_the_interface_is_still_known_while_another_address_is_asked_for() {
    let mut rig = bound(Profile::from(Policy { on_expiry: OnExpiry::Keep, ..Policy::default() }));
    (rig.server, rig.give) = (Server::OffersOnly, OTHER);
    rig.run_until(1101.0);
    while rig.state("a") != ["REQUESTING"] {
        rig.wake();
    }
    rig.delete_in_vain();
    rig.server = Server::Up;
    rig.run_until(1200.0);
    assert_eq!((rig.on_link(), rig.state("a")), (vec![B.to_owned()], vec!["BOUND"]));
}

#[test]
fn an_address_that_was_probed_for_is_put_on() {
    let mut rig = bound(Profile::from(Policy { detection: Detection::Strict, ..Policy::default() }));
    rig.lease = 4000;
    rig.run_until(1049.0);
    rig.give = OTHER;
    rig.run_until(1051.0);
    rig.delete_in_vain();
    rig.run_until(1070.0);
    assert_eq!((rig.on_link(), rig.state("a")), (vec![B.to_owned()], vec!["BOUND"]));
    assert_eq!(rig.only_record().former, None);
}

#[test]
fn a_loss_of_carrier_is_still_known() {
    let mut rig = bound(Profile::default());
    rig.set_carrier(false);
    rig.delete_in_vain();
    rig.run_until(1020.0);
    rig.sent.clear();
    rig.set_carrier(true);
    rig.run_until(1031.0);
    assert_eq!(rig.sent, [(3, Ipv4Addr::UNSPECIFIED)], "the lease is confirmed");
}

#[test]
fn a_lease_that_ended_while_the_store_made_up_its_mind_is_taken_off() {
    let mut rig = bound(Profile::default());
    rig.lease = 10;
    rig.run_until(1051.0);
    (rig.disk, rig.server) = (Disk::Slow, Server::Silent);
    let del = rig.del("a");
    rig.run_until(1065.0);
    let (op, _) = rig.slow.pop_front().unwrap();
    rig.disk = Disk::Good;
    rig.unwritten(op);
    assert!(matches!(rig.answers[&del], Answer::Failed(Failure::Store(_))));
    rig.run_until(1066.0);
    assert!(rig.on_link().is_empty() && rig.state("a") != ["BOUND"], "{:?}", rig.on_link());
    (rig.server, rig.give) = (Server::Up, OTHER);
    rig.run_until(1200.0);
    assert_eq!((rig.on_link(), rig.state("a")), (vec![B.to_owned()], vec!["BOUND"]));
}

#[test]
fn a_namespace_that_died_while_the_store_made_up_its_mind_gives_its_lease_back() {
    let mut rig = bound(Profile::default());
    rig.disk = Disk::Slow;
    let del = rig.del("a");
    rig.live.remove(&1);
    rig.input(Input::Kernel(KernelMessage::NetnsDied { cookie: Cookie(1) }));
    let (op, _) = rig.slow.pop_front().unwrap();
    rig.disk = Disk::Good;
    rig.unwritten(op);
    assert!(matches!(rig.answers[&del], Answer::Failed(Failure::Store(_))));
    rig.run_until(1030.0);
    assert!(rig.rows().is_empty() && rig.store.records().is_empty(), "{:?}", rig.rows());
    assert!(rig.sent.iter().any(|(kind, _)| *kind == 7));
}
