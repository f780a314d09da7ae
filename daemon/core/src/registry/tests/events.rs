//! Events: which there are, and how they reach the store.

use super::rig::*;

impl Rig {
    fn last_event(&self) -> &Event {
        self.store.events.last().expect("there are events")
    }

    /// The transactions that were asked for: how many records and how many events are in each.
    fn shapes(&self) -> Vec<(usize, usize)> {
        let shape = |changes: &Vec<Change>| {
            let notes = changes
                .iter()
                .filter(|change| matches!(change, Change::Note(_)))
                .count();
            (changes.len() - notes, notes)
        };
        self.persists.iter().map(shape).collect()
    }
}

#[test]
fn an_add_costs_one_transaction_with_its_event_in_it() {
    let mut rig = Rig::new(8);
    rig.add("a", 1, "a");
    assert_eq!(rig.shapes(), [(1, 1)]);
    let event = rig.last_event();
    let found = (event.kind, event.cause.as_str());
    assert_eq!(found, (EventKind::Acquired, "ADD"));
    assert_eq!(event.attachment, attachment("a"));
    assert_eq!(event.address, Some(A.parse().unwrap()));
    assert_eq!(event.server, Some("192.0.2.1".parse().unwrap()));
    assert_eq!(event.wall, rig.now().wall);
}

#[test]
fn events_of_a_lease_come_in_order_with_its_writes() {
    let mut rig = Rig::new(8);
    rig.bind();
    rig.run_until(1051.0);
    rig.give = OTHER;
    rig.run_until(1102.0);
    rig.del("a");
    use EventKind::*;
    assert_eq!(rig.events(), [Acquired, Renewed, Changed, Released]);
    assert_eq!(
        rig.store.events[2].cause,
        "renewal at T1: address was 192.0.2.50/24"
    );
    assert_eq!(
        rig.store.events[2].address,
        Some("192.0.2.77/24".parse().unwrap())
    );
    assert_eq!(rig.last_event().cause, "its attachment was deleted");
    // Acquired, renewed, changed, and the interface too; releasing is noted first; then the record goes.
    let found = rig.shapes();
    assert_eq!(found, [(1, 1), (1, 1), (1, 1), (1, 0), (1, 0), (1, 1)]);
}

#[test]
fn an_event_says_that_another_identity_ended_the_lease() {
    let mut rig = Rig::new(8);
    rig.add("a", 1, "a");
    rig.add("a", 1, "another");
    assert_eq!(
        rig.causes(EventKind::Released),
        ["an ADD replaced its attachment under another identity"]
    );
}

#[test]
fn a_silent_servers_lease_expires_and_is_acquired_again() {
    let mut rig = Rig::new(8);
    rig.bind();
    rig.server = Server::Silent;
    rig.run_until(1101.0);
    assert_eq!(
        rig.events(),
        [
            EventKind::Acquired,
            EventKind::ServerSilent,
            EventKind::Expired
        ]
    );
    assert_eq!(
        rig.store.events[1].cause,
        "server 192.0.2.1 of br0 does not extend leases: its only lease waits, and ends in 46s"
    );
    assert_eq!(rig.last_event().cause, "no server had extended it");
    rig.server = Server::Up;
    rig.run_until(1300.0);
    assert_eq!(rig.events()[3], EventKind::Acquired);
    assert_eq!(rig.store.events[3].cause, "new lease after a loss");
}

#[test]
fn a_server_that_comes_back_after_t2_is_a_rebinding() {
    let mut rig = Rig::new(8);
    rig.add("a", 1, "a");
    rig.server = Server::Silent;
    rig.run_until(1087.0);
    rig.server = Server::Up;
    rig.run_until(1099.0);
    assert_eq!(
        rig.events(),
        [
            EventKind::Acquired,
            EventKind::ServerSilent,
            EventKind::Rebound,
            EventKind::ServerBack
        ]
    );
}

#[test]
fn a_link_that_goes_before_its_del_is_no_orphan() {
    let mut rig = Rig::new(8);
    rig.add("a", 1, "a");
    rig.add("b", 2, "b");
    for cookie in [1, 2] {
        rig.dies(cookie);
    }
    rig.run_until(1059.0);
    rig.del("a");
    rig.run_until(1070.0);
    let orphans = rig
        .store
        .events
        .iter()
        .filter(|event| event.kind == EventKind::OrphanFound);
    assert_eq!(
        orphans
            .map(|event| event.attachment.container().unwrap())
            .collect::<Vec<_>>(),
        ["b"]
    );
}

#[test]
fn a_lease_that_is_left_to_end_says_so() {
    let mut rig = Rig::new(8);
    rig.profile.release = false;
    rig.add("a", 1, "a");
    rig.del("a");
    assert_eq!(rig.last_event().kind, EventKind::Released);
    assert_eq!(
        rig.last_event().cause,
        "left to expire, as its network's `release` says"
    );
}

#[test]
fn an_event_is_written_with_its_record_or_later() {
    let mut rig = Rig::new(8);
    rig.bind();
    rig.give = OTHER;
    rig.disk = Disk::Full;
    rig.run_until(1050.5);
    rig.disk = Disk::Good;
    rig.give = "192.0.2.51".parse().unwrap();
    rig.add("b", 2, "b");
    let told_before = rig.events().contains(&EventKind::Changed);
    let known = rig
        .store
        .all()
        .any(|record| record.lease.ip() == "192.0.2.77".parse::<std::net::Ipv4Addr>().unwrap());
    assert_eq!(told_before, known, "the event and the record come together");
    rig.run_until(1060.0);
    assert_eq!(rig.told(EventKind::Changed), 1);
}

#[test]
fn events_that_the_store_never_takes_are_dropped() {
    let mut rig = Rig::new(8);
    rig.add("a", 1, "a");
    rig.disk = Disk::Full;
    let mut at = 1050.5;
    // Each renewal reports something new.
    let mut other = Some("192.0.2.53".parse().unwrap());
    while rig.reg.events_dropped() == 0 {
        at += 50.0;
        std::mem::swap(&mut rig.dns, &mut other);
        rig.run_until(at);
        assert!(
            at < 1_000_000.0,
            "{} wait",
            rig.persists.last().map_or(0, Vec::len)
        );
    }
    let most = rig
        .shapes()
        .into_iter()
        .map(|(_, notes)| notes)
        .max()
        .unwrap();
    assert!(most <= 1001, "{most} events in one transaction");
}

#[test]
fn a_restart_writes_no_event() {
    let mut rig = Rig::new(8);
    rig.add("a", 1, "a");
    let records = rig.store.records();
    rig.reg = Core::new(Config::default(), 8);
    let before = rig.persists.len();
    rig.start("b", records, vec![]);
    rig.run_for(Duration::from_secs(5).as_secs_f64());
    assert_eq!(rig.persists.len(), before);
}

#[test]
fn a_lease_too_short_to_hold_is_refused_with_its_seconds() {
    let mut rig = Rig::new(8);
    rig.lease = 1;
    let id = rig.add("a", 1, "a");
    rig.run_until(1040.0);
    let said = rig.failure(id).to_string();
    assert_says(&said, "lease time below the minimum of 6 s: 1 s");
}

#[test]
fn a_full_disk_is_not_tried_again_for_an_event_alone() {
    let mut rig = Rig::new(8);
    rig.lease = 86400;
    for n in 1..=9 {
        rig.add(&format!("c{n}"), n, &format!("c{n}"));
    }
    rig.disk = Disk::Full;
    rig.server = Server::Silent;
    let before = rig.persists.len();
    for n in 1..=9 {
        rig.dies(n);
    }
    rig.run_until(1600.0);
    let tries = rig.persists.len() - before;
    assert!(tries < 9 * 20, "{tries} tries in ten minutes");
    rig.disk = Disk::Good;
    rig.run_until(1800.0);
    assert_eq!(rig.told(EventKind::OrphanFound), 9);
    assert_eq!(rig.reg.events_dropped(), 0);
}
