//! The MTU that comes with an ADD: set before the answer if possible, else afterwards, even after a restart.

use super::networks::{OWN, endpoint, network};
use super::rig::*;

const SMALL: [u8; 4] = [26, 2, 0x05, 0x78]; // 1400

/// An ADD that waits for the store; everything after that is still to come.
fn adding(options: [u8; 4], on_change: OnChange) -> Rig {
    let mut rig = Rig::new(8);
    rig.profile.policy.on_change = on_change;
    rig.options = options.to_vec();
    rig.disk = Disk::Slow;
    rig.add("a", 1, "a");
    rig.disk = Disk::Good;
    rig
}

/// An ADD that was answered although its MTU could not be set; the next `faults` attempts fail too.
fn unsized_add(faults: usize) -> Rig {
    let mut rig = adding(SMALL, OnChange::Apply);
    rig.faults = std::iter::repeat_n((0, LinkCause::TimedOut), faults + 1).collect();
    rig.flush();
    assert!(
        rig.answers
            .values()
            .any(|answer| matches!(answer, Answer::Leased { .. }))
    );
    assert!(rig.is_due() && rig.faults.len() == faults);
    rig
}

impl Rig {
    /// The store knows that the MTU is still to be set.
    fn is_due(&self) -> bool {
        self.only_record()
            .former
            .as_ref()
            .is_some_and(|former| former.mtu_due)
    }
}

#[test]
fn a_refused_mtu_holds_nothing_else_up() {
    let mut rig = unsized_add(0);
    rig.faults = [(0, LinkCause::refused("set the MTU", "no"))].into();
    rig.run_until(1001.3);
    assert!(rig.faults.is_empty() && rig.steps.is_empty() && rig.is_due());
    rig.run_until(1004.0);
    let found = (rig.steps.clone(), rig.only_record().former.clone());
    assert_eq!(found, (vec![Step::Mtu(1400)], None));
}

#[test]
fn an_mtu_that_can_never_be_set_wakes_every_five_minutes() {
    let mut rig = unsized_add(1000);
    rig.plug_all();
    rig.lease = u32::MAX;
    rig.run_until(1060.0);
    rig.run_until(10_000.0);
    let before = rig.faults.len();
    rig.run_until(10_000.0 + 86400.0);
    assert!(
        (250..=330).contains(&(before - rig.faults.len())),
        "{}",
        before - rig.faults.len()
    );
}

#[test]
fn on_change_keep_keeps_the_mtu_of_the_add() {
    let mut rig = adding(SMALL, OnChange::Keep);
    rig.faults = std::iter::repeat_n((0, LinkCause::TimedOut), 30).collect();
    rig.flush();
    rig.configure(A);
    rig.options = vec![26, 2, 0x05, 0x14]; // 1300
    rig.run_until(1051.0);
    rig.restart();
    assert_eq!(rig.steps, []);
    rig.faults.clear();
    rig.restart();
    assert_eq!(rig.steps, [Step::Mtu(1400)]);
    let former = rig
        .only_record()
        .former
        .clone()
        .expect("what is kept there");
    assert_eq!((former.mtu_due, former.grants[0].mtu), (false, Some(1400)));
}

#[test]
fn an_mtu_that_the_link_already_has_costs_no_write() {
    let mut rig = Rig::new(8);
    rig.options = vec![26, 2, 0x05, 0xdc]; // 1500
    rig.add("a", 1, "a");
    let puts = rig
        .persists
        .iter()
        .flatten()
        .filter(|change| matches!(change, Change::Put(..)))
        .count();
    assert_eq!((puts, rig.only_record().former.clone()), (1, None));
}

#[test]
fn the_mtu_of_a_network_goes_before_that_of_a_lease() {
    for leased in [true, false] {
        let mut rig = Rig::new(8);
        rig.options = vec![26, 2, 0x05, 0x14]; // 1300
        let mut wiring = network("n1").wiring;
        wiring.mtu = Some(1400);
        rig.create(NetworkRecord {
            wiring,
            ..network("n1")
        });
        if leased {
            rig.create_endpoint("e1", OWN);
        } else {
            rig.endpoint(OWN.0[5]);
            rig.endpoint_at("e1", OWN, A);
        }
        assert_eq!(
            rig.wired.links[&endpoint()].mtu,
            Some(1400),
            "{:?}",
            rig.answers
        );
        rig.moves_in();
        rig.run_for(5.0);
        assert_eq!(rig.interface.mtu, 1400, "{leased}: {:?}", rig.steps);
        assert_eq!(
            rig.only_record().profile.policy.mtu,
            Some(1400),
            "{leased}: the next daemon knows"
        );
    }
}
