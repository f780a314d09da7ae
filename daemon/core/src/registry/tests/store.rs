//! Leases that were lost, changed or given back while the store, the server or the boot failed them.

use super::rig::*;

#[test]
fn an_address_of_an_earlier_boot_is_asked_for_first() {
    let address = FIRST;
    for is_anothers in [false, true] {
        let mut rig = Rig::new(8);
        rig.live.clear();
        // It may have been given back while the disk was full, and the note of that was lost at the reboot.
        rig.store.durable = [(BindingId(1), record("a", "before", 900.0))].into();
        if is_anothers {
            rig.stations.insert(address, Mac([2, 0, 0, 0, 9, 9]));
        }
        rig.restart();
        rig.run_until(1605.0);
        assert!(rig.asked.contains(&(Ipv4Addr::UNSPECIFIED, address)));
        assert_eq!(
            (rig.sends(7), rig.rows().len()),
            (usize::from(!is_anothers), 0)
        );
    }
}

#[test]
fn a_regained_address_is_put_on_though_no_write_succeeds() {
    let mut rig = Rig::new(8);
    rig.profile.policy.detection = Detection::Off;
    rig.add("a", 1, "a");
    rig.configure(A);
    rig.server = Server::Naks;
    rig.disk = Disk::Slow;
    rig.run_until(1051.01);
    assert!(rig.on_link().is_empty());
    rig.server = Server::Up;
    rig.run_until(1065.0);
    assert_eq!(
        (rig.state("a"), rig.on_link().len()),
        (vec!["BOUND"], 0),
        "the store may be about to forget it"
    );
    while let Some((op, _)) = rig.slow.pop_front() {
        rig.end(op, Outcome::Persisted(Err(StoreCause::Full)));
    }
    assert_eq!(rig.on_link(), [A], "the store holds it as it was");
}
