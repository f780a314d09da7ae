//! A lease that ends or is refused: the interface loses it, the link stays, and the daemon patiently looks for another.

use super::rig::*;

fn bound(profile: Profile) -> Rig {
    let mut rig = Rig::new(8);
    rig.profile = profile;
    rig.options = vec![3, 4, 192, 0, 2, 1];
    rig.bind();
    rig
}

#[test]
fn a_refused_address_waits_a_second_for_the_store() {
    for writes in [false, true] {
        let mut rig = bound(Profile::default());
        (rig.server, rig.disk) = (Server::Naks, Disk::Slow);
        let t1 = rig.t1();
        rig.run_until(t1 + 0.9);
        // The next daemon would not know why it is off.
        assert_eq!(rig.on_link(), [A]);
        if writes {
            rig.flush();
        } else {
            rig.run_until(t1 + 1.1);
        }
        assert!(rig.on_link().is_empty(), "writes {writes}");
    }
}

#[test]
fn a_confirmation_goes_on_after_a_failed_early_renewal() {
    let mut rig = plugged_in_again(100_000);
    rig.granted.clear();
    rig.server = Server::OffersOnly;
    let add = rig.add("b", 2, "b");
    rig.run_until(1100.0);
    // It is offered what the first has.
    assert!(matches!(rig.answers[&add], Answer::Failed(_)));
    assert!(
        rig.sent
            .iter()
            .any(|(kind, ciaddr)| *kind == 3 && !ciaddr.is_unspecified()),
        "{:?}",
        rig.sent
    );
    assert!(rig.only_record().unconfirmed);
    rig.server = Server::Up;
    rig.run_until(1400.0);
    assert_eq!(
        (
            rig.state("a"),
            rig.only_record().unconfirmed,
            rig.granted.len()
        ),
        ("BOUND", false, 1)
    );
}

#[test]
fn an_address_goes_though_the_store_is_full() {
    for disk in [Disk::Full, Disk::Slow] {
        let mut rig = bound(Profile::default());
        (rig.server, rig.disk) = (Server::Silent, disk);
        rig.run_until(1100.01);
        assert!(rig.on_link().is_empty(), "it waits for a {disk:?} store");
        (rig.server, rig.give) = (Server::Up, OTHER);
        rig.run_until(1150.0);
        assert!(rig.on_link().is_empty(), "a new one is not durable");
        rig.disk_recovers();
        rig.run_until(1300.0);
        assert_eq!(rig.on_link(), [B], "{disk:?}");
    }
}

#[test]
fn a_search_backs_off_from_a_server_that_only_offers() {
    let mut rig = bound(Profile::default());
    rig.server = Server::OffersOnly;
    rig.run_until(1400.0);
    rig.sent.clear();
    for minute in 1..=60 {
        rig.run_until(1400.0 + 60.0 * f64::from(minute));
    }
    let discovers = rig.sends(1);
    assert!((45..=70).contains(&discovers), "{discovers} in an hour");
    rig.server = Server::Up;
    rig.run_until(1400.0 + 3670.0);
    assert_eq!(rig.state("a"), "BOUND");
}

#[test]
fn carrier_back_without_a_lease_brings_another_try_soon() {
    // Carrier is lost before a try and back during it, lost and back during it, or lost and back after it.
    for (lost_before, during_a_try) in [(true, true), (false, true), (false, false)] {
        let mut rig = bound(Profile::default());
        rig.server = Server::Silent;
        rig.run_until(1400.0);
        if lost_before {
            rig.tell_carrier(false);
            rig.run_for(10.0);
        }
        rig.sent.clear();
        while rig.sent.is_empty() || rig.open.is_empty() == during_a_try {
            rig.wake();
        }
        if !lost_before {
            rig.tell_carrier(false);
            rig.run_for(3.1);
        }
        (rig.server, rig.wished) = (Server::Up, None);
        rig.tell_carrier(true);
        rig.run_for(10.1);
        assert_eq!(
            (rig.state("a"), rig.on_link()),
            ("BOUND", vec![A.to_owned()]),
            "{lost_before} {during_a_try}"
        );
        let first = Some(FIRST);
        assert_eq!(
            rig.wished, first,
            "a server that forgot all may give it again"
        );
    }
}

/// A lease of a day, whose interface had no carrier for ten seconds; nothing is forwarded to or from its server.
fn plugged_in_again(lease: u32) -> Rig {
    let mut rig = Rig::new(8);
    rig.lease = lease;
    rig.bind();
    rig.tell_carrier(false);
    rig.run_until(1010.0);
    (rig.server, rig.at) = (Server::Silent, Duration::from_secs(1010));
    rig.sent.clear();
    rig.tell_carrier(true);
    rig
}

#[test]
fn an_unconfirmed_lease_is_renewed_and_rebound() {
    let mut rig = plugged_in_again(1000);
    let states = |rig: &mut Rig, until| {
        rig.run_until(until);
        let asked: BTreeSet<_> = rig.sent.drain(..).map(|(_, ciaddr)| ciaddr).collect();
        (rig.state("a"), asked.into_iter().collect::<Vec<_>>())
    };
    let (none, address) = (Ipv4Addr::UNSPECIFIED, FIRST);
    let t1 = rig.t1();
    let before = states(&mut rig, t1 - 0.1);
    assert!(
        before.0.contains("REBOOT") && before.1 == [none],
        "{before:?}"
    );
    assert_eq!(states(&mut rig, t1 + 10.0), ("RENEWING", vec![address]));
    assert!(rig.only_record().unconfirmed);
    let rebound = ("REBINDING", vec![address]);
    let at = (rig.at.as_secs()..2000).find(|at| states(&mut rig, *at as f64) == rebound);
    assert!(at.is_some_and(|at| (1800..1880).contains(&at)), "{at:?}");
    assert_eq!(rig.on_link(), [A]);
    rig.server = Server::Up;
    rig.run_until(2000.0);
    let found = (rig.state("a"), rig.only_record().unconfirmed);
    assert_eq!(found, ("BOUND", false));
}

#[test]
fn a_lease_past_t1_is_confirmed_first_and_then_renewed() {
    let mut rig = Rig::new(8);
    rig.lease = 1000;
    rig.bind();
    rig.server = Server::Silent;
    rig.run_until(1600.0);
    rig.tell_carrier(false);
    rig.run_until(1610.0);
    rig.sent.clear();
    rig.tell_carrier(true);
    rig.run_until(1640.0);
    let confirmed = rig
        .sent
        .iter()
        .filter(|(_, ciaddr)| ciaddr.is_unspecified())
        .count();
    assert!(confirmed == 2 && rig.sent.len() > 2, "{:?}", rig.sent);
    assert_eq!(rig.state("a"), "RENEWING");
    rig.sent.clear();
    rig.run_until(1720.0);
    assert!(!rig.sent.is_empty(), "its port may not have forwarded yet");
}
