//! No lease stays at its server when its binding is gone: every way it could.

use super::rig::*;

impl Rig {
    /// The sockets that are open fail.
    fn break_sockets(&mut self) {
        for exchange in self.open.keys().copied().collect::<Vec<_>>() {
            self.breaks(
                exchange,
                LinkCause::refused("receive", "the network is down"),
            );
        }
    }

    /// Ends the write under way badly.
    fn refuse_write(&mut self) {
        let (op, _) = self.slow.pop_front().unwrap();
        self.end(op, Outcome::Persisted(Err(StoreCause::Full)));
    }
}

#[test]
fn an_unstored_lease_goes_back_though_its_sockets_broke() {
    let mut rig = Rig::new(8);
    rig.disk = Disk::Slow;
    let add = rig.add("a", 1, "a");
    rig.break_sockets();
    rig.disk = Disk::Full;
    rig.refuse_write();
    assert_eq!(*rig.failure(add), Failure::Store(StoreCause::Full));
    assert_eq!((rig.state("a"), rig.sends(7)), ("RELEASING", 0));
    rig.disk = Disk::Good;
    rig.run_until(1010.0);
    assert_eq!(rig.sends(7), 1, "{:?}", rig.sent);
    assert!(rig.rows().is_empty() && rig.store.records().is_empty());
}

#[test]
fn the_next_add_takes_over_what_a_refused_one_owes() {
    let mut rig = Rig::new(8);
    rig.disk = Disk::Slow;
    rig.add("a", 1, "a");
    rig.break_sockets();
    rig.disk = Disk::Full;
    rig.refuse_write();
    rig.disk = Disk::Good;
    let again = rig.add("a", 1, "a");
    rig.assert_leased(again);
    rig.run_until(1040.0);
    let found = (rig.sends(7), rig.state("a"), rig.store.records().len());
    assert_eq!(found, (0, "BOUND", 1));
}

/// Returns a rig with so many containers that hold a lease of hours.
fn node(containers: u64) -> Rig {
    let mut rig = Rig::new(1000);
    rig.lease = 10_000;
    rig.mask = [0, 0];
    rig.profile.policy.detection = Detection::Off;
    rig.live = (1..=containers + 9).collect();
    for n in 1..=containers {
        rig.add(&format!("c{n}"), n, &format!("c{n}"));
    }
    assert_eq!(rig.store.records().len() as u64, containers);
    rig
}

impl Rig {
    /// A link is deleted, and its namespace stays.
    fn link_goes(&mut self, netns: u64) {
        self.kernel(KernelMessage::LinkGone((Cookie(netns), 2)));
    }
}

/// So many namespaces die at once.
fn all_die(rig: &mut Rig, containers: u64) {
    for n in 1..=containers {
        rig.dies(n);
    }
}

#[test]
fn leases_of_dead_namespaces_go_back_in_turn() {
    let mut rig = node(300);
    all_die(&mut rig, 300);
    assert_eq!(rig.sends(7), 128, "some leave at once");
    rig.run_until(1001.0);
    assert_eq!(rig.sends(7), 228);
    assert!(
        rig.open.is_empty(),
        "what waits has no sockets: {:?}",
        rig.open
    );
    rig.run_until(1002.8);
    assert_eq!(rig.ends(), [300, 0, 0]);
}

#[test]
fn a_del_does_not_wait_for_the_leases_of_dead_namespaces() {
    let mut rig = node(201);
    all_die(&mut rig, 200);
    let del = rig.del("c201");
    assert_eq!(
        (rig.answers.get(&del), rig.sends(7)),
        (Some(&Answer::Deleted), 128),
        "the pace is one for all"
    );
    let dead = rig.del("c200");
    // Its RELEASE is noted, and leaves from the host.
    assert_eq!(rig.answers[&dead], Answer::Deleted);
}

#[test]
fn an_add_does_not_wait_for_a_release_that_it_stops() {
    let mut rig = node(200);
    all_die(&mut rig, 200);
    rig.give = "192.0.2.249".parse().unwrap();
    let add = rig.add("next", 201, "c200");
    rig.assert_leased(add);
    rig.run_until(1010.0);
    // And that one is never sent.
    assert_eq!((rig.sends(7), rig.store.records().len()), (199, 1));
}

#[test]
fn dels_of_a_whole_node_wait_for_no_turn() {
    let mut rig = node(1000);
    let dels: Vec<_> = (1..=1000).map(|n| rig.del(&format!("c{n}"))).collect();
    let answered = |rig: &Rig| {
        dels.iter()
            .filter(|del| rig.answers.get(del) == Some(&Answer::Deleted))
            .count()
    };
    assert_eq!((answered(&rig), rig.sends(7)), (1000, 128));
    // The main plugins delete the links of those that are answered.
    (501..=1000).for_each(|n| rig.link_goes(n));
    rig.run_until(1002.0);
    assert_eq!(rig.sends(7), 328, "the pace on the wire stays");
    let is_inside = |link: &&Link| matches!(link, Link::InNetns { .. });
    // From inside while that is there.
    assert_eq!(rig.opened[1000..].iter().filter(is_inside).count(), 328);
    rig.give = "192.0.4.37".parse().unwrap();
    let again = rig.add("c500", 500, "c500");
    rig.assert_leased(again);
    rig.opened.clear();
    rig.run_until(1009.0);
    assert_eq!((rig.sends(7), rig.store.records().len()), (999, 1));
    assert_eq!(
        (
            rig.opened.iter().filter(is_inside).count(),
            rig.opened.len()
        ),
        (171, 671),
        "from the host afterwards"
    );
}

#[test]
fn a_del_that_waits_for_no_turn_is_stored_first() {
    let mut rig = node(200);
    rig.disk = Disk::Slow;
    let dels: Vec<_> = (1..=200).map(|n| rig.del(&format!("c{n}"))).collect();
    assert!(dels.iter().all(|del| !rig.answers.contains_key(del)) && rig.sends(7) == 0);
    rig.disk_recovers();
    assert!(dels.iter().all(|del| rig.answers[del] == Answer::Deleted));
}

#[test]
fn an_add_does_not_wait_for_the_turn_of_an_earlier_del() {
    let mut rig = node(200);
    rig.disk = Disk::Slow;
    let dels: Vec<_> = (1..=200).map(|n| rig.del(&format!("c{n}"))).collect();
    let add = rig.add("c200", 200, "c200");
    rig.disk_recovers();
    rig.assert_leased(add);
    assert_eq!(rig.answers[&dels[199]], Answer::Deleted);
    assert_eq!(rig.sends(7), 128);
}

#[test]
fn a_del_of_what_waits_for_its_turn_is_answered_at_once() {
    let mut rig = node(296);
    rig.disk = Disk::Slow;
    let add = rig.add("late", 297, "late");
    rig.input(Input::HungUp(RequestId(add)));
    // The lease is durable, its pending release is not.
    let (op, changes) = rig.slow.pop_front().unwrap();
    rig.disk = Disk::Full;
    rig.written(op, changes);
    rig.disk = Disk::Good;
    for n in 1..=296 {
        rig.del(&format!("c{n}"));
    }
    rig.run_until(1001.3);
    let del = rig.del("late");
    assert_eq!(rig.answers.get(&del), Some(&Answer::Deleted));
    assert!(rig.sends(7) < 296);
    rig.run_until(1002.8);
    assert_eq!((rig.sends(7), rig.store.records().len()), (297, 0));
    // From inside.
    assert!(matches!(rig.opened.last(), Some(Link::InNetns { .. })));
}

#[test]
fn a_release_waits_until_the_hosts_link_has_carrier() {
    for bridge in [false, true] {
        let mut rig = node(1);
        (rig.interface.carrier, rig.bridge) = (false, bridge);
        all_die(&mut rig, 1);
        rig.run_until(1100.0);
        // What is sent by a port of its own reaches a server on the bridge itself, and gives the bridge carrier.
        assert_eq!(rig.sends(7), usize::from(bridge), "bridge: {bridge}");
        rig.interface.carrier = true;
        rig.run_until(1300.0);
        let found = (rig.sends(7), rig.store.records().len());
        assert_eq!(found, (1, 0), "bridge: {bridge}");
    }
}

#[test]
fn the_older_of_two_bindings_goes_back_at_the_start() {
    let mut rig = Rig::new(8);
    let mut older = record("a", "b", 900.0);
    older.lease.address = "192.0.2.40/24".parse().unwrap();
    older.identity.client_id = ClientId::new(b"\0older".to_vec()).unwrap();
    rig.store.durable = [
        (BindingId(1), older),
        (BindingId(2), record("a", "b", 950.0)),
    ]
    .into();
    rig.restart();
    rig.run_until(1002.0);
    assert_eq!((rig.state("a"), rig.store.records().len()), ("BOUND", 1));
    assert_eq!(rig.sent, [(7, "192.0.2.40".parse().unwrap())]);
    let del = rig.del("a");
    assert!(rig.answers[&del] == Answer::Deleted && rig.rows().is_empty());
}

#[test]
fn a_lease_left_to_expire_does_so_after_a_reboot() {
    let mut rig = Rig::new(8);
    let profile = Profile {
        release: false,
        ..Profile::default()
    };
    rig.store.durable = [(
        BindingId(1),
        Record {
            profile,
            ..record("a", "before", 900.0)
        },
    )]
    .into();
    rig.live.clear();
    rig.restart();
    rig.run_until(2000.0);
    assert_eq!((rig.sends(7), rig.store.records().len()), (0, 0));
}
