//! Namespaces that are missing: gone, or out of this daemon's sight.

use super::rig::*;

/// The ways in which a daemon sees no namespace: without the directory, with an empty one, with files on which nothing is
/// mounted, among the processes of others.
const WAYS: [fn(std::path::PathBuf) -> LinkCause; 4] = [
    LinkCause::NoDirectory,
    LinkCause::NoNetns,
    LinkCause::NotANetns,
    LinkCause::NetnsChanged,
];

/// A daemon with three leases of 100 s, in namespaces 1 to 3.
fn three() -> Rig {
    let mut rig = Rig::new(8);
    for (who, netns) in [("a", 1), ("b", 2), ("c", 3)] {
        rig.add(who, netns, who);
    }
    rig.sent.clear();
    rig
}

impl Rig {
    fn bound(&mut self) -> usize {
        self.rows().iter().filter(|row| row.state == BOUND).count()
    }

    fn released(&self) -> usize {
        self.sends(7)
    }
}

#[test]
fn a_restart_that_sees_no_namespace_gives_nothing_back() {
    for way in WAYS {
        let mut rig = three();
        rig.unseen = Some(way);
        rig.restart();
        rig.run_until(1080.0);
        let found = (rig.rows().len(), rig.store.records().len(), rig.sent.len());
        assert_eq!(found, (3, 3, 0), "{:?}", way("/ns/1".into()));
        assert!(
            rig.store
                .all()
                .all(|record| record.state == RecordState::Bound)
        );
        rig.unseen = None;
        rig.run_until(1099.0);
        // Renewed before their end.
        assert_eq!((rig.bound(), rig.released()), (3, 0));
        assert!(
            rig.store
                .all()
                .all(|record| record.lease.start > Instant::from_boot(Duration::from_secs(1050)))
        );
        rig.run_until(1145.0);
        let busy = rig
            .reg
            .kept()
            .into_iter()
            .filter(|kept| !kept.of_bindings && kept.count > 0);
        assert_eq!(busy.collect::<Vec<_>>(), []);
    }
}

#[test]
fn a_renewal_without_sight_gives_nothing_back() {
    for way in WAYS {
        let mut rig = three();
        rig.unseen = Some(way);
        rig.run_until(1099.0);
        assert_eq!((rig.rows().len(), rig.sent.len()), (3, 0), "at T1 and T2");
        // At the end, where the addresses are to be taken off.
        rig.run_until(1105.0);
        assert_eq!((rig.rows().len(), rig.sent.len()), (0, 0));
        assert_eq!(rig.store.records().len(), 0);
    }
}

#[test]
fn a_namespace_missing_beside_a_seen_one_is_gone() {
    for restarts in [true, false] {
        let mut rig = three();
        rig.live.remove(&1);
        rig.live.remove(&3);
        rig.missing = LinkCause::NetnsRemoved;
        match restarts {
            true => rig.restart(),
            false => rig.input(Input::Kernel(KernelMessage::Missed)),
        }
        rig.run_until(1001.0);
        let found = (rig.bound(), rig.rows().len(), rig.released());
        assert_eq!(found, (1, 1, 2), "restarts: {restarts}");
    }
}

#[test]
fn the_next_container_shows_whether_a_namespace_is_gone() {
    let mut rig = Rig::new(8);
    rig.add("a", 1, "a");
    rig.live.remove(&1);
    rig.restart();
    rig.run_until(1020.0);
    // That it ended or that it is not seen looks the same.
    assert_eq!((rig.state("a"), rig.released()), ("BOUND", 0));
    rig.missing = LinkCause::NetnsRemoved;
    rig.run_until(1045.0);
    assert_eq!((rig.state("a"), rig.released()), ("", 1));
}

#[test]
fn an_unseen_holder_keeps_its_identity() {
    for way in [LinkCause::NoDirectory, LinkCause::NotANetns] {
        let mut rig = three();
        rig.blind = Some(way("/ns/1".into()));
        let add = rig.add("d", 4, "a");
        assert_fails!(rig, add, Failure::Held { .. });
    }
}

#[test]
fn many_unseen_leases_are_reported_once() {
    let mut rig = Rig::new(8);
    for n in 1..=100_u32 {
        let mut record = record(&format!("c{n}"), "b", 900.0);
        record.identity.client_id = ClientId::new(n.to_be_bytes().to_vec()).unwrap();
        record.lease.address = format!("192.0.2.{n}/24").parse().unwrap();
        let (path, cookie) = (format!("/ns/{n}").into(), Cookie(n.into()));
        record.link = Link::InNetns {
            path,
            cookie,
            ifindex: 2,
            mac: Default::default(),
        };
        rig.store.durable.insert(BindingId(n.into()), record);
    }
    rig.unseen = Some(LinkCause::NoNetns);
    rig.restart();
    rig.run_until(1300.0);
    let wakes = rig.run_until(1600.0);
    assert!(
        (400..=700).contains(&wakes),
        "once a minute each, not {wakes} times in five minutes"
    );
    assert_eq!((rig.rows().len(), rig.sent.len()), (100, 0));
    assert!(rig.told(EventKind::OrphanFound) == 0);
}
