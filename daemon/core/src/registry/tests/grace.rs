//! Leases that are kept after DEL for an identity that can return.

use super::rig::*;

/// Attachment `a` holds a lease of an hour under the identity `pod`, which is kept for a minute.
fn bound() -> Rig {
    let mut rig = Rig::new(8);
    rig.lease = 3600;
    rig.profile = returning(60);
    rig.add("a", 1, "pod");
    rig
}

fn returning(grace: u32) -> Profile {
    Profile {
        grace: Some(grace),
        ..Profile::default()
    }
}

/// Its DEL was answered at 1000 s, and its namespace is gone.
fn kept() -> Rig {
    let mut rig = bound();
    let del = rig.del("a");
    assert_eq!(rig.answers[&del], Answer::Deleted);
    rig.dies(1);
    rig.sent.clear();
    rig
}

impl Rig {
    /// It is kept until then and not a moment longer; the RELEASE leaves from the host.
    fn assert_kept_until(&mut self, seconds: f64) {
        self.run_until(seconds - 0.001);
        let found = (self.state("a"), self.sent.as_slice());
        assert_eq!(found, ("KEPT", [].as_slice()));
        self.run_until(seconds + 2.0);
        assert_eq!(self.sent, [(7, FIRST)]);
        assert!(matches!(self.opened.last(), Some(Link::Parent { .. })));
        assert!(self.rows().is_empty());
    }
}

#[test]
fn a_collection_ends_the_grace_of_what_it_does_not_name() {
    let mut rig = kept();
    let keep = vec![("a".to_owned(), "eth0".to_owned())];
    rig.request(Call::Collect {
        network: "lan".into(),
        keep,
    });
    rig.request(Call::Collect {
        network: "other".into(),
        keep: vec![],
    });
    rig.run_until(1002.0);
    assert_eq!(rig.state("a"), "KEPT");
    let gc = rig.request(Call::Collect {
        network: "lan".into(),
        keep: vec![],
    });
    assert_eq!(rig.answers[&gc], Answer::Collected);
    rig.run_until(1004.0);
    assert_eq!((rig.sent.len(), rig.rows().len()), (1, 0));
}

#[test]
fn a_lease_that_is_shorter_than_its_grace_just_ends() {
    let mut rig = Rig::new(8);
    rig.profile = returning(600);
    rig.add("a", 1, "pod");
    rig.del("a");
    rig.sent.clear();
    rig.run_until(1099.9);
    assert_eq!(rig.state("a"), "KEPT");
    rig.run_until(1101.0);
    assert!(
        rig.rows().is_empty() && rig.sent.is_empty(),
        "{:?}",
        rig.sent
    );
    let last = rig.store.events.last().unwrap();
    assert_eq!(
        (last.kind, last.cause.as_str()),
        (
            EventKind::Expired,
            "was kept for its container until it ended"
        )
    );
}

#[test]
fn a_kept_lease_does_not_end_while_its_identity_returns() {
    let mut rig = Rig::new(8);
    rig.profile = returning(600);
    rig.add("a", 1, "pod");
    rig.del("a");
    rig.run_until(1098.0);
    rig.profile.policy.detection = Detection::Strict;
    let add = rig.add("b", 2, "pod");
    rig.run_until(1110.0);
    rig.assert_leased(add);
    assert_eq!(rig.told(EventKind::Expired), 0);
}

#[test]
fn an_add_that_waits_in_vain_ends_no_grace() {
    let mut rig = kept();
    rig.server = Server::Silent;
    rig.run_until(1010.0);
    let add = rig.add("c", 3, "new");
    rig.run_until(1041.0);
    let said = rig.failure(add).to_string();
    assert!(
        said.ends_with(
            "; 1 lease there is kept for containers that may return (`grace`): if the server has no other address \
             left, give it more or shorten `grace`"
        ),
        "{said}"
    );
    rig.sent.clear();
    rig.assert_kept_until(1060.0);
}

#[test]
fn a_container_back_during_the_write_asks_for_its_address() {
    let mut rig = Rig::new(8);
    rig.profile = returning(0);
    rig.add("a", 1, "pod");
    rig.interface.put(A.parse().unwrap());
    rig.disk = Disk::Slow;
    rig.del("a");
    let (op, changes) = rig.slow.pop_front().unwrap();
    rig.written(op, changes);
    assert_eq!(rig.sent.last().unwrap().0, 7);
    rig.add("b", 2, "pod");
    assert_eq!(rig.wished, Some(FIRST));
    rig.disk_recovers();
    rig.run_until(1010.0);
    let found = (rig.only_record().state, rig.state("b"));
    assert_eq!(found, (RecordState::Bound, "BOUND"));
}

#[test]
fn no_more_identities_are_remembered_than_a_start_reads() {
    let mut rig = Rig::new(8);
    let past = |n: u64| {
        let mut record = Record {
            state: RecordState::Past,
            ..record("a", "b", n as f64)
        };
        record.identity.client_id = ClientId::new(format!("\0{n}").into_bytes()).unwrap();
        (BindingId(5000 - n), record)
    };
    rig.store.durable = (1..=1030).map(past).collect();
    rig.restart();
    assert_eq!(rig.store.records().len(), 1024);
    assert!(
        !rig.store.durable.contains_key(&BindingId(4994))
            && rig.store.durable.contains_key(&BindingId(4993)),
        "the oldest go"
    );
    assert!(rig.rows().is_empty());
}

const CHADDR: Mac = Mac([2, 0, 0, 0, 1, 1]);

impl Rig {
    fn conflicts(&self) -> usize {
        self.told(EventKind::Conflict)
    }
}

#[test]
fn an_address_in_use_on_another_host_is_not_released() {
    for by in [NEIGHBOUR, CHADDR] {
        for restarts in [false, true] {
            let mut rig = kept();
            rig.bridge = true;
            rig.asked_from.clear();
            rig.stations.insert(FIRST, by);
            if restarts {
                rig.restart();
            }
            rig.run_until(1100.0);
            let found = (rig.rows().len(), rig.conflicts(), rig.sent.as_slice());
            assert_eq!(found, (0, 1, [].as_slice()), "{by}, {restarts}");
            let cause =
                format!("not given back: {by} has it, perhaps the same client on another host");
            assert_eq!(rig.store.events.last().unwrap().cause, cause);
            // A station with that address would not answer.
            assert!(!rig.asked_from.contains(&CHADDR));
        }
    }
}

/// A DEL of an identity that can return, which is not kept, and a GC.
fn ends(rig: &mut Rig, collects: bool) -> u64 {
    match collects {
        true => rig.request(Call::Collect {
            network: "lan".into(),
            keep: vec![],
        }),
        false => rig.del("a"),
    }
}

#[test]
fn an_address_not_seen_inside_is_asked_for_before_release() {
    for (collects, elsewhere) in [(false, true), (false, false), (true, true), (true, false)] {
        let mut rig = Rig::new(8);
        rig.lease = 3600;
        rig.profile = returning(if collects { 60 } else { 0 });
        rig.add("a", 1, "pod");
        (rig.asked, rig.opened) = (Vec::new(), Vec::new());
        if elsewhere {
            rig.stations.insert(FIRST, NEIGHBOUR);
        }
        let call = ends(&mut rig, collects);
        assert!(
            matches!(rig.answers[&call], Answer::Deleted | Answer::Collected),
            "nobody waits for the question"
        );
        rig.run_until(1002.0);
        assert!(rig.asked.contains(&(Ipv4Addr::UNSPECIFIED, FIRST)));
        assert!(
            rig.opened
                .iter()
                .all(|link| matches!(link, Link::Parent { .. })),
            "it is asked from the host"
        );
        assert_eq!(
            (rig.sends(7), rig.conflicts()),
            if elsewhere { (0, 1) } else { (1, 0) }
        );
        assert!(rig.rows().is_empty(), "collects: {collects}");
    }
}
