//! When leases are extended: in turns.

use super::rig::*;

/// A daemon that goes on with so many leases of one LAN: T1 at 20,000 s, T2 at 30,000 s, the end at 40,000 s.
fn holding(leases: u8) -> Rig {
    let mut rig = Rig::new(8);
    rig.reg = Core::new(Config::default(), 8);
    rig.give = "192.0.2.100".parse().unwrap();
    let records = (1..=leases).map(|n| {
        let mut held = record(&format!("c{n}"), "b", 0.0);
        let (cookie, mac) = (Cookie(n.into()), Mac([2, 0, 0, 0, 1, n]));
        rig.live.insert(n.into());
        held.identity.client_id = ClientId::new(vec![0, n]).unwrap();
        held.lease.address = format!("192.0.2.{}/24", 99 + n).parse().unwrap();
        rig.granted.insert(held.lease.ip(), vec![0, n]);
        held.identity.chaddr = mac;
        held.link = Link::InNetns {
            path: format!("/ns/{n}").into(),
            cookie,
            ifindex: 2,
            mac,
        };
        (BindingId(n.into()), held)
    });
    let records: Vec<_> = records.collect();
    rig.store.durable = records.iter().cloned().collect();
    rig.start("b", records, vec![]);
    rig
}

/// The host sleeps until then.
fn wake_at(rig: &mut Rig, seconds: f64) {
    rig.at = Duration::from_secs_f64(seconds);
    rig.run_until(seconds);
}

fn requests(rig: &Rig) -> usize {
    rig.sends(3)
}

#[test]
fn leases_granted_together_are_renewed_apart() {
    let mut rig = Rig::new(8);
    for n in 1..=9_u8 {
        rig.give = std::net::Ipv4Addr::new(192, 0, 2, 50 + n);
        rig.add(&n.to_string(), n.into(), &n.to_string());
    }
    let t1: BTreeSet<_> = rig.rows().into_iter().map(|row| row.extended).collect();
    assert_eq!(t1.len(), 9, "{t1:?}");
}

/// Checks how many REQUESTs have left by then, in seconds.
fn assert_requests(rig: &mut Rig, table: &[(f64, usize)]) {
    for (seconds, sent) in table {
        rig.run_until(*seconds);
        assert_eq!(requests(rig), *sent, "at {seconds}");
    }
}

#[test]
fn each_answer_lets_the_next_lease_have_its_turn() {
    let mut rig = holding(100);
    wake_at(&mut rig, 25_000.0);
    assert_requests(&mut rig, &[(25_000.0, 100)]);
    assert!(rig.rows().iter().all(|row| row.state == BOUND));
}

#[test]
fn tries_that_had_no_answer_take_turns_too() {
    let mut rig = holding(100);
    rig.server = Server::Silent;
    wake_at(&mut rig, 20_000.0);
    assert_requests(&mut rig, &[(24_999.0, 100)]);
    wake_at(&mut rig, 26_000.0);
    assert_requests(&mut rig, &[(26_000.0, 132), (26_012.1, 200)]);
}

#[test]
fn rebind_leaves_by_the_parent_after_a_renew_from_inside() {
    let mut rig = Rig::new(8);
    (rig.profile.on_parent, rig.lease) = (true, 10);
    rig.bind();
    rig.server = Server::Silent;
    let t1 = rig.t1();
    let t2 = rig
        .only_record()
        .lease
        .t2()
        .unwrap()
        .since_boot()
        .as_secs_f64();
    rig.opened.clear();
    rig.run_until(t2 - 0.01);
    assert!(
        t1 < t2 && matches!(rig.opened[..], [Link::InNetns { .. }]),
        "{:?}",
        rig.opened
    );
    let before = requests(&rig);
    rig.run_until(t2 + 0.2);
    assert!(
        matches!(rig.opened[1..], [Link::Parent { .. }]),
        "{:?}",
        rig.opened
    );
    assert_eq!((requests(&rig), rig.open.len()), (before + 1, 1));
}
