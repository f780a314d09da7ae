//! Identities that come back: with another container, or with the same one, whose engine starts it again.

use super::rig::*;

fn id(text: &str) -> ClientId {
    ClientId::new(format!("\0{text}").into_bytes()).unwrap()
}

fn del(grace: u32) -> Call {
    Call::Del {
        attachment: attachment("a"),
        grace: Some(grace),
    }
}

impl Rig {
    /// A daemon starts with this record of attachment `a`, whose namespace is there.
    fn of_record(record: Record) -> Self {
        let mut rig = Self::new(8);
        rig.store.durable = [(BindingId(1), record)].into();
        rig.restart();
        rig
    }
}

#[test]
fn a_restarted_container_asks_for_its_old_address() {
    for restarts in [false, true] {
        let mut rig = Rig::new(8);
        rig.add("a", 1, "a/lan/eth0");
        rig.del("a");
        let found = (rig.sends(7), rig.rows().len(), rig.only_record().state);
        assert_eq!(found, (1, 0, RecordState::Past));
        if restarts {
            rig.restart();
        }
        rig.add("a", 2, "a/lan/eth0");
        assert_eq!((rig.wished, rig.store.records().len()), (Some(FIRST), 1));
    }
}

#[test]
fn a_del_says_for_how_long_the_lease_is_kept() {
    for (said, profile) in [
        (
            5,
            Profile {
                grace: Some(60),
                ..Profile::default()
            },
        ),
        (90, Profile::default()),
    ] {
        let mut rig = Rig::new(8);
        (rig.lease, rig.profile) = (3600, profile);
        rig.add("a", 1, "pod");
        rig.request(del(said));
        let ends = 1000.0 + f64::from(said);
        rig.restart();
        rig.run_until(ends - 0.1);
        assert_eq!((rig.state("a"), rig.sends(7)), ("KEPT", 0));
        rig.run_until(ends + 2.0);
        assert_eq!((rig.rows().len(), rig.sends(7)), (0, 1));
    }
}

#[test]
fn a_del_keeps_no_lease_of_its_container_alone() {
    let mut rig = Rig::new(8);
    rig.add("a", 1, "a/lan/eth0");
    rig.request(del(60));
    assert_eq!((rig.rows().len(), rig.sends(7)), (0, 1));
}

#[test]
fn a_known_client_keeps_its_whole_long_name() {
    let call = |rig: &Rig, netns| {
        let mut add = rig.call("a", netns, "x");
        add.client_id = ClientIdRule::Hashed {
            sent: id("hash"),
            known: Some(id("whole")),
        };
        add
    };
    let known = |state: RecordState| {
        let mut record = Record {
            state,
            ..record("a", "b", 900.0)
        };
        (record.identity.client_id, record.profile.grace) = (id("whole"), Some(60));
        record
    };
    let mut anew = Rig::new(8);
    let again = [
        RecordState::Bound,
        RecordState::Releasing,
        RecordState::Past,
    ]
    .map(|state| Rig::of_record(known(state)));
    anew.request(Call::Add(call(&anew, 1)));
    assert_eq!(
        anew.rows()[0].identity.as_ref().unwrap().client_id,
        id("hash")
    );
    for mut rig in again {
        let add = rig.request(Call::Add(call(&rig, 1)));
        rig.run_until(1010.0);
        rig.assert_leased(add);
        assert_eq!(
            (
                rig.rows().len(),
                &rig.rows()[0].identity.as_ref().unwrap().client_id
            ),
            (1, &id("whole"))
        );
    }
    let mut ran = Rig::new(8);
    ran.interface.carry([A.parse().unwrap()]);
    ran.adopts(ran.running_as(call(&ran, 1)));
    ran.run_until(1010.0);
    assert_eq!(
        ran.rows()[0].identity.as_ref().unwrap().client_id,
        id("whole")
    );
}

/// The server knows its clients by Ethernet address, and has leased the address that `b` insists on to `a`, whose lease is kept.
fn blocked(a: &str) -> (Rig, u64) {
    let mut rig = Rig::new(8);
    (rig.lease, rig.by_chaddr) = (3600, true);
    rig.profile.grace = Some(60);
    rig.add("a", 1, a);
    rig.add("c", 3, "other");
    rig.del("c");
    rig.del("a");
    rig.sent.clear();
    // It refuses to confirm the address.
    rig.server = Server::Naks;
    let mut call = rig.call("b", 2, "pod");
    call.wanted = Some(Wanted {
        address: FIRST,
        preferred: false,
    });
    let add = rig.request(Call::Add(call));
    rig.server = Server::Up;
    (rig, add)
}

#[test]
fn a_kept_lease_goes_back_for_an_add_that_insists_on_it() {
    // The same identity has its lease confirmed first, which this server refuses.
    for (a, first) in [("pod", vec![3, 7]), ("another", vec![7])] {
        let (mut rig, add) = blocked(a);
        rig.run_until(1003.4);
        // The server counts in seconds: it lets go of the address after one.
        assert_eq!(rig.kinds(), first);
        rig.run_until(1004.0);
        assert_eq!(rig.kinds(), [&first[..], &[1, 3]].concat());
        assert_eq!(rig.leased(add), FIRST);
        // Only what is in its way.
        assert_eq!((rig.sends(7), rig.state("c")), (1, "KEPT"));
        rig.run_until(1100.0);
        assert_eq!((rig.sends(7), rig.state("b")), (2, "BOUND"));
    }
}
