//! An address that somebody took off the interface stays off, even with later leases.

use super::rig::*;

/// A container whose address somebody took off, as KubeVirt does for its virtual machine.
fn taken_off(profile: Profile) -> Rig {
    let mut rig = Rig::new(8);
    rig.profile = profile;
    rig.options = vec![3, 4, 192, 0, 2, 1];
    rig.bind();
    rig.run_until(1001.0);
    rig.take_off(A);
    rig.steps.clear();
    rig
}

/// Has the lease refused and another one given.
fn refuse(rig: &mut Rig) {
    rig.server = Server::Naks;
    rig.run_for(60.0);
    (rig.server, rig.give) = (Server::Up, OTHER);
    rig.run_for(120.0);
}

fn puts_on(rig: &Rig) -> bool {
    rig.steps
        .iter()
        .any(|step| matches!(step, Step::AddAddress(_) | Step::AddRoute(_) | Step::Mtu(_)))
}

#[test]
fn a_lease_after_a_nak_puts_no_removed_address_on() {
    for (on_change, on_expiry) in [
        (OnChange::Apply, OnExpiry::Remove),
        (OnChange::Keep, OnExpiry::Remove),
        (OnChange::Apply, OnExpiry::Keep),
    ] {
        let mut rig = taken_off(Profile::from(Policy {
            on_change,
            on_expiry,
            ..Policy::default()
        }));
        refuse(&mut rig);
        let case = format!("{on_change:?}, {on_expiry:?}");
        let found = (rig.state("a"), rig.on_link().len(), puts_on(&rig));
        assert_eq!(found, ("BOUND", 0, false), "{case}");
        let found = rig.rows()[0].tenure.as_ref().unwrap().net().to_string();
        assert_eq!(found, B, "{case}");
        let found = (rig.only_record().state, rig.only_record().taken_off);
        assert_eq!(found, (RecordState::Bound, true));
        let says = |event: &&Event| {
            event
                .cause
                .contains("the previous address was not there either")
        };
        let told: Vec<_> = rig
            .store
            .events
            .iter()
            .filter(says)
            .map(|event| event.address.unwrap().to_string())
            .collect();
        assert_eq!(told, [B], "{:?}", rig.store.events);
        let extended = rig.sent.len();
        rig.run_for(100.0);
        let renewals: Vec<_> = rig.sent[extended..].to_vec();
        assert!(
            renewals
                .iter()
                .all(|sent| *sent == (3, Ipv4Addr::UNSPECIFIED))
                && !renewals.is_empty(),
            "{renewals:?}"
        );
    }
}

#[test]
fn a_restart_keeps_off_what_was_taken_off_before_it() {
    for seeking in [false, true] {
        let mut rig = taken_off(Profile::default());
        if seeking {
            rig.server = Server::Silent;
            rig.run_until(1150.0);
        }
        assert_eq!(rig.only_record().state == RecordState::Seeking, seeking);
        rig.at += std::time::Duration::from_secs(if seeking { 1 } else { 200 });
        let removals = rig.store.events.len();
        rig.restart();
        rig.server = Server::Up;
        rig.run_until(1500.0);
        let found = (rig.state("a"), rig.on_link().len(), puts_on(&rig));
        assert_eq!(found, ("BOUND", 0, false), "{seeking}");
        let told = |event: &Event| event.kind == EventKind::AddressRemoved;
        // It was told before.
        assert!(!rig.store.events[removals..].iter().any(told));
    }
}

#[test]
fn a_release_after_a_restart_names_no_removed_address() {
    let mut rig = taken_off(Profile::default());
    rig.hold_sends = true;
    rig.del("a");
    assert_eq!(rig.only_record().state, RecordState::Releasing);
    rig.asked.clear();
    rig.restart();
    rig.run_for(5.0);
    assert_eq!((rig.sends(7), &rig.asked[..]), (2, &[][..]));
}

#[test]
fn a_look_shows_a_removal_that_was_not_recorded() {
    let mut rig = taken_off(Profile::default());
    rig.store
        .durable
        .values_mut()
        .for_each(|record| record.taken_off = false);
    rig.lease = 1000;
    rig.run_until(1070.0);
    rig.store
        .durable
        .values_mut()
        .for_each(|record| record.taken_off = false);
    rig.at += std::time::Duration::from_secs(100);
    rig.restart();
    refuse(&mut rig);
    rig.run_until(3000.0);
    let found = (rig.state("a"), rig.on_link().len(), puts_on(&rig));
    assert_eq!(found, ("BOUND", 0, false));
}
