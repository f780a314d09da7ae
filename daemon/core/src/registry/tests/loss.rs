//! A lease that ends or is refused: the interface loses it, the link stays, and the daemon patiently looks for another.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use super::super::*;
use super::rig::*;
use crate::event::EventKind;
use crate::grant::policy::{OnChange, OnExpiry, Policy};
use crate::link::{KernelMessage, Step};
use crate::profile::Profile;
use crate::record::RecordState;

const A: &str = "192.0.2.50/24";

fn bound(profile: Profile) -> Rig {
    let mut rig = Rig::new(8);
    rig.profile = profile;
    rig.options = vec![3, 4, 192, 0, 2, 1];
    rig.bind();
    rig
}

#[test]
fn address_and_routes_go_at_expiry_and_come_back() {
    let mut rig = bound(Profile::default());
    rig.server = Server::Silent;
    rig.run_until(1099.9);
    assert_eq!(
        (rig.on_link(), rig.steps.len()),
        (vec![A.to_owned()], 0),
        "used to its end"
    );
    rig.run_until(1100.1);
    assert!(
        rig.on_link().is_empty()
            && rig
                .steps
                .iter()
                .any(|step| matches!(step, Step::RemoveRoute(_)))
    );
    let record = rig.only_record();
    assert_eq!(
        (record.state, record.former.is_some()),
        (RecordState::Seeking, false)
    );
    rig.steps.clear();
    rig.server = Server::Up;
    rig.run_until(1200.0);
    assert_eq!(
        (rig.on_link(), rig.state("a")),
        (vec![A.to_owned()], vec!["BOUND"])
    );
    assert!(
        rig.steps
            .iter()
            .any(|step| matches!(step, Step::AddRoute(_))),
        "{:?}",
        rig.steps
    );
    assert_eq!(
        (rig.only_record().state, rig.only_record().former.is_some()),
        (RecordState::Bound, false)
    );
}

#[test]
fn a_nak_takes_the_address_off_and_begins_a_search() {
    let mut rig = bound(Profile::default());
    rig.server = Server::Naks;
    rig.run_until(1050.01);
    assert!(rig.on_link().is_empty());
    assert!(
        rig.sent.iter().any(|(kind, _)| *kind == 1),
        "{:?}",
        rig.sent
    );
}

#[test]
fn a_refused_address_waits_a_second_for_the_store() {
    for writes in [false, true] {
        let mut rig = bound(Profile::default());
        (rig.server, rig.disk) = (Server::Naks, Disk::Slow);
        let t1 = rig.t1();
        rig.run_until(t1 + 0.9);
        assert_eq!(
            rig.on_link(),
            [A],
            "the next daemon would not know why it is off"
        );
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
    assert!(
        matches!(rig.answers[&add], Answer::Failed(_)),
        "it is offered what the first has"
    );
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
        (vec!["BOUND"], false, 1)
    );
}

#[test]
fn an_expired_address_does_not_wait_for_the_store() {
    let mut rig = bound(Profile::default());
    (rig.server, rig.disk) = (Server::Silent, Disk::Slow);
    rig.run_until(1100.01);
    assert!(rig.on_link().is_empty());
}

#[test]
fn an_address_goes_though_the_store_is_full() {
    let mut rig = bound(Profile::default());
    rig.server = Server::Silent;
    rig.disk = Disk::Full;
    rig.run_until(1100.1);
    assert!(rig.on_link().is_empty());
    rig.server = Server::Up;
    rig.give = Ipv4Addr::new(192, 0, 2, 77);
    rig.run_until(1150.0);
    assert!(
        rig.on_link().is_empty(),
        "a new one waits until it is durable"
    );
    rig.disk = Disk::Good;
    rig.run_until(1300.0);
    assert_eq!(rig.on_link(), ["192.0.2.77/24"]);
}

#[test]
fn on_expiry_keep_leaves_the_address_for_the_next_lease() {
    let mut rig = bound(Profile::from(Policy {
        on_expiry: OnExpiry::Keep,
        ..Policy::default()
    }));
    rig.server = Server::Silent;
    rig.run_until(1101.0);
    assert_eq!((rig.on_link(), rig.steps.len()), (vec![A.to_owned()], 0));
    assert_eq!(rig.only_record().state, RecordState::Seeking);
    rig.server = Server::Up;
    rig.give = Ipv4Addr::new(192, 0, 2, 77);
    rig.run_until(1300.0);
    assert_eq!(rig.on_link(), ["192.0.2.77/24"]);
}

#[test]
fn an_add_finds_nothing_of_a_lease_that_just_ended() {
    let mut rig = bound(Profile::from(Policy {
        on_change: OnChange::Keep,
        ..Policy::default()
    }));
    rig.server = Server::Silent;
    rig.run_until(1099.0);
    rig.hold_looks = true;
    let add = rig.add("a", 1, "a");
    rig.run_until(1100.1);
    rig.hold_looks = false;
    rig.server = Server::Up;
    rig.give = Ipv4Addr::new(192, 0, 2, 77);
    // The ADD has its link before the work on the old lease has looked at it.
    while let Some((op, outcome)) = rig.looks.pop_front() {
        rig.input(Input::Done { op, outcome });
    }
    assert!(
        matches!(rig.answers.get(&add), Some(Answer::Leased { .. })),
        "{:?}",
        rig.rows()
    );
    assert!(rig.on_link().is_empty(), "{:?}", rig.on_link());
}

#[test]
fn a_search_opens_sockets_once_a_minute() {
    let mut rig = bound(Profile::default());
    rig.server = Server::Silent;
    rig.run_until(1100.0 + 300.0);
    rig.sent.clear();
    let (mut open, mut samples) = (0, 0);
    for second in 0..3600 {
        rig.run_until(1400.0 + f64::from(second));
        open += usize::from(!rig.open.is_empty());
        samples += 1;
    }
    assert_eq!(rig.state("a"), ["SELECTING"]);
    let discovers = rig.sent.iter().filter(|(kind, _)| *kind == 1).count();
    assert!((53..=69).contains(&discovers), "{discovers} in an hour");
    assert!(
        open * 60 <= samples * 5,
        "open in {open} of {samples} seconds"
    );
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
    let discovers = rig.sent.iter().filter(|(kind, _)| *kind == 1).count();
    assert!((45..=70).contains(&discovers), "{discovers} in an hour");
    rig.server = Server::Up;
    rig.run_until(1400.0 + 3670.0);
    assert_eq!(rig.state("a"), ["BOUND"]);
}

/// Returns how many sockets are open at once at most, from now until then.
fn most_open(rig: &mut Rig, until: f64) -> usize {
    let mut most = 0;
    while let Some((at, _)) = rig
        .reg
        .poll_timeout()
        .filter(|(at, _)| at.since_boot().as_secs_f64() < until)
    {
        rig.run_until(at.since_boot().as_secs_f64() + 0.000_001);
        most = most.max(rig.open.len());
    }
    most
}

#[test]
fn background_searches_leave_permits_to_callers() {
    let mut rig = Rig::new(2);
    for n in 1..8 {
        rig.add(&format!("c{n}"), n, &format!("c{n}"));
    }
    rig.server = Server::Silent;
    rig.run_until(1099.0);
    let most = most_open(&mut rig, 1160.0);
    assert!((1..=2).contains(&most), "{most} at once");
    rig.run_until(1160.0);
    let add = rig.add("caller", 8, "caller");
    rig.server = Server::Up;
    rig.run_until(1165.1);
    assert!(
        matches!(rig.answers.get(&add), Some(Answer::Leased { .. })),
        "the next permit is a caller's"
    );
    rig.run_until(1300.0);
    assert!(
        rig.rows().iter().all(|row| row.state == BOUND),
        "{:?}",
        rig.rows()
    );
    assert!(rig.open.is_empty());
}

#[test]
fn confirmations_after_a_loss_of_carrier_take_no_permits() {
    let mut rig = Rig::new(2);
    rig.lease = 86400;
    for n in 1..8 {
        rig.add(&format!("c{n}"), n, &format!("c{n}"));
    }
    let carrier = |rig: &mut Rig, up| {
        for n in 1..8 {
            rig.input(Input::Kernel(KernelMessage::Carrier((Cookie(n), 2), up)));
        }
    };
    carrier(&mut rig, false);
    rig.run_until(1010.0);
    carrier(&mut rig, true);
    rig.server = Server::Silent;
    rig.sent.clear();
    rig.run_until(1024.5);
    assert_eq!(rig.sent.len(), 14, "all have asked twice");
    rig.run_until(1100.0);
    assert!(
        rig.rows().iter().all(|row| row.tenure.is_some()),
        "used on in silence"
    );
    assert!(rig.sent.len() >= 28, "each is tried again: {:?}", rig.sent);
    rig.server = Server::Up;
    rig.run_until(1180.0);
    assert!(
        rig.rows().iter().all(|row| row.state == BOUND) && rig.open.is_empty(),
        "all turns are back"
    );
}

#[test]
fn a_del_gives_back_a_permit_or_the_wish_for_one() {
    let mut rig = Rig::new(1);
    for n in 1..4 {
        rig.add(&format!("c{n}"), n, &format!("c{n}"));
    }
    rig.server = Server::Silent;
    rig.run_until(1101.0);
    for n in 1..4 {
        rig.del(&format!("c{n}"));
    }
    rig.server = Server::Up;
    let add = rig.add("caller", 8, "caller");
    assert!(
        matches!(rig.answers.get(&add), Some(Answer::Leased { .. })),
        "{:?}",
        rig.rows()
    );
}

#[test]
fn carrier_back_after_the_leases_end_confirms_nothing() {
    let mut rig = bound(Profile::default());
    rig.tell_carrier(false);
    // The host sleeps, and hears about the link before it looks at the clock.
    rig.at = Duration::from_secs(1150);
    rig.server = Server::Silent;
    rig.tell_carrier(true);
    rig.run_until(1151.0);
    assert_eq!(
        (rig.on_link().len(), rig.only_record().state),
        (0, RecordState::Seeking)
    );
    assert!(
        rig.store
            .events
            .iter()
            .any(|event| event.kind == EventKind::Expired)
    );
}

#[test]
fn carrier_back_after_the_leases_end_hastens_a_search() {
    let mut rig = bound(Profile::default());
    rig.server = Server::Silent;
    rig.run_until(1400.0);
    rig.sent.clear();
    while rig.sent.is_empty() || !rig.open.is_empty() {
        rig.wake();
    }
    rig.tell_carrier(false);
    rig.run_until(rig.at.as_secs_f64() + 3.1);
    rig.server = Server::Up;
    rig.tell_carrier(true);
    rig.run_until(rig.at.as_secs_f64() + 10.1);
    assert_eq!(
        (rig.state("a"), rig.on_link()),
        (vec!["BOUND"], vec![A.to_owned()])
    );
}

#[test]
fn carrier_back_during_a_search_brings_another_try_soon() {
    let mut rig = bound(Profile::default());
    rig.server = Server::Silent;
    rig.run_until(1400.0);
    rig.tell_carrier(false);
    rig.run_until(1410.0);
    rig.sent.clear();
    while rig.sent.is_empty() {
        rig.wake();
    }
    assert!(!rig.open.is_empty());
    (rig.server, rig.wished) = (Server::Up, None);
    rig.tell_carrier(true);
    rig.run_until(rig.at.as_secs_f64() + 10.1);
    assert_eq!(
        (rig.state("a"), rig.on_link()),
        (vec!["BOUND"], vec![A.to_owned()])
    );
    assert_eq!(
        rig.wished,
        Some(Ipv4Addr::new(192, 0, 2, 50)),
        "a server that forgot all may give it again"
    );
}

#[test]
fn carrier_lost_during_the_write_leads_to_a_confirmation() {
    let mut rig = Rig::new(8);
    rig.disk = Disk::Slow;
    rig.add("a", 1, "a");
    rig.tell_carrier(false);
    rig.run_until(1002.0);
    rig.disk = Disk::Good;
    rig.flush();
    rig.configure(A);
    rig.run_until(1003.5);
    rig.sent.clear();
    rig.tell_carrier(true);
    rig.run_until(1014.0);
    assert_eq!(
        (rig.sent.clone(), rig.state("a")),
        (vec![(3, Ipv4Addr::UNSPECIFIED)], vec!["BOUND"])
    );
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

fn began(rig: &Rig) -> f64 {
    rig.only_record().lease.start.since_boot().as_secs_f64()
}

#[test]
fn a_lease_is_confirmed_behind_a_port_that_forwards_late() {
    let mut rig = plugged_in_again(86_400);
    rig.run_until(1040.0);
    rig.server = Server::Up;
    rig.run_until(1090.0);
    assert!(began(&rig) > 1040.0, "{}", began(&rig));
    assert_eq!(
        (rig.state("a"), rig.on_link()),
        (vec!["BOUND"], vec![A.to_owned()])
    );
}

#[test]
fn an_unconfirmed_lease_is_used_and_asked_for_ever_less() {
    let mut rig = plugged_in_again(86_400);
    for (until, least, most) in [(1110.0, 6, 12), (1310.0, 4, 10), (2310.0, 20, 44)] {
        rig.run_until(until);
        assert!(
            (least..=most).contains(&rig.sent.len()),
            "until {until}: {}",
            rig.sent.len()
        );
        assert!(
            rig.sent
                .iter()
                .all(|sent| *sent == (3, Ipv4Addr::UNSPECIFIED)),
            "{:?}",
            rig.sent
        );
        assert_eq!(rig.on_link(), [A]);
        rig.sent.clear();
    }
    rig.server = Server::Up;
    rig.run_until(2400.0);
    assert!(began(&rig) > 2310.0);
    rig.sent.clear();
    rig.run_until(rig.t1() - 1.0);
    assert!(rig.sent.is_empty() && rig.open.is_empty());
}

#[test]
fn an_unconfirmed_lease_is_renewed_and_rebound() {
    let mut rig = plugged_in_again(1000);
    let states = |rig: &mut Rig, until| {
        rig.run_until(until);
        let asked: BTreeSet<_> = rig.sent.drain(..).map(|(_, ciaddr)| ciaddr).collect();
        (rig.state("a")[0], asked.into_iter().collect::<Vec<_>>())
    };
    let (none, address) = (Ipv4Addr::UNSPECIFIED, Ipv4Addr::new(192, 0, 2, 50));
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
    assert_eq!(
        (rig.state("a"), rig.only_record().unconfirmed),
        (vec!["BOUND"], false)
    );
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
    assert_eq!(rig.state("a"), ["RENEWING"]);
    rig.sent.clear();
    rig.run_until(1720.0);
    assert!(!rig.sent.is_empty(), "its port may not have forwarded yet");
}

#[test]
fn an_unconfirmed_lease_past_t2_leaves_no_socket_open() {
    let mut rig = Rig::new(8);
    rig.lease = 10_000;
    rig.bind();
    rig.server = Server::Silent;
    rig.run_until(9900.0);
    rig.tell_carrier(false);
    rig.run_until(9910.0);
    rig.tell_carrier(true);
    rig.run_until(9930.0);
    rig.sent.clear();
    rig.run_until(9970.0);
    assert_eq!((rig.state("a"), rig.open.len()), (vec!["REBINDING"], 0));
}

#[test]
fn a_lease_on_another_network_goes_once_its_server_speaks() {
    let mut rig = plugged_in_again(86_400);
    rig.run_until(1040.0);
    (rig.server_id, rig.server, rig.give) = (
        Ipv4Addr::new(192, 0, 2, 9),
        Server::NaksOnly,
        Ipv4Addr::new(192, 0, 2, 77),
    );
    rig.run_until(1120.0);
    assert!(
        rig.on_link().is_empty()
            && rig
                .store
                .events
                .iter()
                .any(|event| event.kind == EventKind::Lost)
    );
}

#[test]
fn a_short_unconfirmed_lease_is_asked_for_until_its_end() {
    let mut rig = plugged_in_again(40);
    rig.run_until(1039.9);
    assert!((4..10).contains(&rig.sent.len()), "{:?}", rig.sent);
    assert_eq!(rig.on_link(), [A]);
    rig.run_until(1040.1);
    assert!(rig.on_link().is_empty());
}
