//! Interfaces that keep what a lease put there when it ends, until another lease says something else.

use super::rig::*;

fn keeping() -> Policy {
    Policy {
        on_expiry: OnExpiry::Keep,
        ..Policy::default()
    }
}

fn bound(policy: Policy) -> Rig {
    let mut rig = Rig::new(8);
    rig.profile = policy.into();
    rig.options = vec![3, 4, 192, 0, 2, 1];
    rig.bind_slowly();
    rig
}

/// The lease has ended, and its address is on the interface.
fn kept() -> Rig {
    let mut rig = bound(keeping());
    rig.server = Server::Silent;
    rig.run_until(1101.0);
    rig.assert_kept();
    rig
}

impl Rig {
    fn assert_kept(&mut self) {
        assert_eq!((self.on_link(), self.steps.len()), (vec![A.to_owned()], 0));
        assert_eq!(self.only_record().state, RecordState::Seeking);
    }

    /// The server gives this address from now on; a while passes.
    fn is_given(&mut self, address: Ipv4Addr, seconds: f64) {
        (self.server, self.give) = (Server::Up, address);
        self.run_for(seconds);
    }

    /// The interface has this address, and there is nothing left to be done.
    fn assert_settled(&mut self, address: &str) {
        let found = (self.on_link(), self.state("a"));
        assert_eq!(found, (vec![address.to_owned()], "BOUND"));
        let record = self.only_record();
        let found = (record.lease.address.to_string(), &record.former);
        assert_eq!(found, (address.to_owned(), &None));
    }

    /// Returns the requests of the next renewal.
    fn renewal(&mut self) -> Vec<(u8, Ipv4Addr)> {
        let t1 = self.t1();
        self.sent.clear();
        self.run_until(t1 + 0.5);
        self.sent.clone()
    }
}

#[test]
fn a_kept_address_that_is_given_again_is_not_touched() {
    let mut rig = kept();
    rig.is_given(FIRST, 70.0);
    rig.assert_settled(A);
    assert_eq!(rig.steps, []);
    assert_eq!(rig.renewal(), [(3, FIRST)], "from the address");
}

#[test]
fn a_full_disk_keeps_no_used_address_on() {
    for detection in [Detection::Optimistic, Detection::Strict] {
        let mut rig = bound(Policy {
            detection,
            ..keeping()
        });
        rig.server = Server::Silent;
        rig.run_until(1101.0);
        rig.stations.insert(FIRST, NEIGHBOUR);
        rig.disk = Disk::Full;
        rig.hold_looks = true;
        rig.is_given(FIRST, 0.0);
        while !matches!(rig.sent.last(), Some((4, _))) {
            rig.wake();
        }
        // The next lease is there before the first look at the interface has ended.
        rig.run_for(70.0);
        let found = (rig.on_link(), rig.state("a"));
        assert_eq!(found, (vec![A.to_owned()], "BOUND"));
        rig.look_up();
        assert!(
            rig.on_link().is_empty(),
            "{detection:?}: {:?}",
            rig.on_link()
        );
        rig.disk = Disk::Good;
        rig.run_for(70.0);
        rig.assert_settled("192.0.2.51/24");
        // Nothing of the conflict is left: the next end is kept like any other.
        rig.server = Server::Silent;
        rig.run_for(120.0);
        assert_eq!(
            (rig.on_link(), rig.only_record().state),
            (vec!["192.0.2.51/24".to_owned()], RecordState::Seeking)
        );
    }
}

#[test]
fn no_lease_puts_on_a_kept_address_taken_off_by_hand() {
    for restarts in [false, true] {
        let mut rig = kept();
        rig.take_off(A);
        if restarts {
            rig.restart();
        }
        assert_eq!(rig.told(EventKind::AddressRemoved), 0, "nobody lost it");
        rig.is_given(FIRST, 70.0);
        let found = (rig.on_link().len(), rig.state("a"), rig.steps.len());
        assert_eq!(found, (0, "BOUND", 0));
        // No server can answer to it.
        assert_eq!(rig.renewal(), [(3, Ipv4Addr::UNSPECIFIED)]);
        (rig.server, rig.give) = (Server::Naks, OTHER);
        rig.renewal();
        rig.is_given(OTHER, 70.0);
        let found = (rig.on_link().len(), rig.state("a"), rig.steps.len());
        assert_eq!(found, (0, "BOUND", 0));
    }
}

#[test]
fn what_both_keys_keep_goes_when_somebody_else_uses_it() {
    for detection in [Detection::Optimistic, Detection::Strict] {
        let mut rig = bound(Policy {
            on_change: OnChange::Keep,
            detection,
            ..keeping()
        });
        rig.is_given(OTHER, 42.0);
        rig.server = Server::Silent;
        rig.run_until(1200.0);
        rig.assert_kept();
        rig.stations.insert(FIRST, NEIGHBOUR);
        rig.is_given(FIRST, 150.0);
        rig.assert_settled("192.0.2.51/24");
    }
}

#[test]
fn a_lease_renews_from_an_address_kept_with_its_old_mask() {
    let mut rig = bound(Policy {
        on_change: OnChange::Keep,
        ..Policy::default()
    });
    rig.mask = [254, 0];
    assert_eq!(rig.renewal(), [(3, FIRST)]);
    assert_eq!(rig.only_record().lease.address.to_string(), "192.0.2.50/23");
    let found = (rig.on_link(), rig.renewal());
    assert_eq!(found, (vec![A.to_owned()], vec![(3, FIRST)]));
    rig.restart();
    let found = (rig.on_link(), rig.renewal());
    assert_eq!(found, (vec![A.to_owned()], vec![(3, FIRST)]));
}
