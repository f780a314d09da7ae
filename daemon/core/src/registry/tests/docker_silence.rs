//! A silent server while dockerd starts its containers, one after the other: it waits for each, and retries none.

use super::rig::*;

/// A lease that has been kept for its identity since 1000 s, and a server that no longer answers.
fn kept(lease: u32) -> Rig {
    let mut rig = Rig::new(8);
    (rig.lease, rig.profile.grace) = (lease, Some(60));
    rig.endpoint(1);
    rig.release(FIRST);
    rig.server = Server::Silent;
    rig.sent.clear();
    rig
}

impl Rig {
    /// Asks for an address of an identity that has none, in vain, and returns how long that took.
    fn asks_in_vain(&mut self, last: u8) -> f64 {
        let began = self.at.as_secs_f64();
        let id = self.endpoint(last);
        while !self.answers.contains_key(&id) {
            self.wake();
        }
        assert_fails!(self, id, Failure::NoOffer { .. });
        self.at.as_secs_f64() - began
    }
}

#[test]
fn a_good_lease_is_used_after_five_silent_seconds() {
    for slow in [false, true] {
        let mut rig = kept(1000);
        let add = rig.endpoint(1);
        rig.run_until(1004.99);
        assert!(!rig.answers.contains_key(&add));
        if slow {
            rig.disk = Disk::Slow;
        }
        rig.run_until(1005.0);
        assert_eq!(rig.has_lease(add), !slow, "durable before it is told");
        rig.disk_recovers();
        assert_eq!(rig.leased(add), FIRST);
        let record = rig.only_record();
        let told = record.told.map(|told| told.addr());
        let found = (record.state, record.lease.ip(), told);
        assert_eq!(found, (RecordState::Bound, FIRST, Some(FIRST)));
        let acquired = rig.causes(EventKind::Acquired);
        assert!(acquired[1].contains("no server answered"), "{acquired:?}");
        rig.run_until(1020.0);
        assert_eq!(rig.sends(7), 0);
    }
}

#[test]
fn a_reserved_address_is_not_used_in_silence() {
    for late in [false, true] {
        let mut rig = kept(1000);
        if !late {
            rig.reserve(Some(FIRST));
        }
        let add = rig.endpoint(1);
        rig.run_until(1003.0);
        if late {
            rig.reserve(Some(FIRST));
        }
        rig.run_until(1030.0);
        rig.failure(add);
    }
}

#[test]
fn a_refused_lease_is_not_used_in_silence() {
    let mut rig = kept(1000);
    rig.server = Server::NaksOnly;
    let refused = rig.endpoint(1);
    rig.run_until(1031.0);
    rig.failure(refused);
    rig.server = Server::Silent;
    let again = rig.endpoint(1);
    rig.run_until(1062.0);
    rig.failure(again);
}

#[test]
fn what_an_abandoned_add_gave_back_is_not_trusted() {
    let mut rig = kept(1000);
    rig.disk = Disk::Full;
    let failed = rig.endpoint(1);
    rig.run_until(1005.1);
    assert_fails!(rig, failed, Failure::Store(_));
    rig.disk = Disk::Good;
    rig.run_until(1030.0);
    assert_eq!(rig.sends(7), 1);
    let again = rig.endpoint(1);
    rig.run_until(1061.0);
    rig.failure(again);
}

#[test]
fn the_next_daemon_asks_for_a_lease_that_nobody_confirmed() {
    let mut rig = kept(4000);
    let add = rig.endpoint(1);
    rig.run_until(1010.0);
    assert_eq!(rig.leased(add), FIRST);
    rig.restart();
    rig.sent.clear();
    rig.run_until(1040.0);
    assert!(rig.sends(3) > 1);
}

/// The LAN is known to be silent, so no ADD has more than five seconds; and the macvlan for asking takes a moment to go.
#[test]
fn a_good_lease_is_used_once_its_macvlan_is_gone() {
    let mut rig = Rig::new(8);
    rig.lease = 4000;
    rig.endpoint(1);
    rig.reg = Core::new(rig.config.clone(), 9);
    (rig.at, rig.wall_set, rig.server) = (Duration::from_secs(20), 1100, Server::Silent);
    let records = rig.store.records();
    rig.start("next", records, vec![]);
    assert_eq!(rig.asks_in_vain(2), 30.0);
    let began = rig.at.as_secs_f64();
    let add = rig.endpoint(1);
    rig.run_until(began + 4.9);
    assert!(!rig.ports.is_empty(), "it asks from a macvlan");
    rig.hold_closes = true;
    rig.run_until(began + 5.5);
    assert!(!rig.answers.contains_key(&add), "{:?}", rig.answers[&add]);
    rig.close_late();
    assert_eq!(rig.leased(add), FIRST);
}

#[test]
fn a_server_that_speaks_is_heard() {
    let mut refuses = kept(1000);
    refuses.server = Server::NaksOnly;
    let add = refuses.endpoint(1);
    refuses.run_until(1010.0);
    assert!(!refuses.answers.contains_key(&add), "the lease is no good");
    let mut late = kept(1000);
    let add = late.endpoint(1);
    late.run_until(1003.2);
    late.server = Server::Up;
    late.give = FIRST;
    late.run_until(1031.0);
    assert_eq!(late.leased(add), FIRST);
    let mut offers = kept(1000);
    let add = offers.endpoint(1);
    offers.run_until(1002.0);
    offers.server = Server::OffersOnly;
    offers.run_until(1010.0);
    // It is asked for what it offered.
    assert!(!offers.answers.contains_key(&add));
}

#[test]
fn strict_probes_after_a_silence_have_their_time() {
    let mut rig = Rig::new(8);
    rig.profile.policy.detection = Detection::Strict;
    rig.server = Server::Silent;
    rig.asks_in_vain(1);
    let began = rig.at.as_secs_f64();
    let add = rig.endpoint(2);
    rig.server = Server::Up;
    rig.run_until(began + 15.0);
    assert_eq!(rig.leased(add), FIRST);
    assert!(rig.sends(4) == 0);
}

#[test]
fn a_server_whose_answers_are_refused_is_not_silent() {
    let mut rig = Rig::new(8);
    Arc::make_mut(&mut rig.profile.client).servers.deny = vec![super::rig::SERVER];
    assert_eq!([1, 2].map(|last| rig.asks_in_vain(last)), [30.0, 30.0]);
}

#[test]
fn a_released_address_serves_the_next_waiting_request() {
    let mut rig = Rig::new(8);
    rig.lease = 4000;
    rig.endpoint(1);
    rig.server = Server::Silent;
    assert_eq!([2, 3].map(|last| rig.asks_in_vain(last)), [30.0, 5.0]);
    rig.release(FIRST);
    let add = rig.endpoint(2);
    rig.run_until(1040.0);
    assert_eq!(rig.sends(7), 1);
    rig.server = Server::Up;
    rig.run_until(1050.0);
    assert_eq!(rig.leased(add), FIRST);
}

#[test]
fn a_request_that_is_given_up_soon_says_why() {
    let mut rig = Rig::new(8);
    rig.server = Server::Silent;
    for (last, soon) in [(1, false), (2, true)] {
        rig.asks_in_vain(last);
        let Some(Answer::Failed(failure)) = rig.answers.values().next_back() else {
            panic!("{:?}", rig.answers)
        };
        let said = failure.to_string();
        assert_eq!(
            said.contains("in 5s, given up early because the last request there got none either: "),
            soon,
            "{said}"
        );
    }
}

#[test]
fn a_lease_whose_release_is_out_will_not_do() {
    let mut rig = Rig::new(8);
    (rig.lease, rig.hold_sends) = (1000, true);
    rig.endpoint(1);
    rig.release(FIRST);
    assert_eq!(rig.sends(7), 1, "the link has not said that it took it");
    rig.server = Server::Silent;
    let add = rig.endpoint(1);
    rig.run_until(1036.0);
    assert_fails!(rig, add, Failure::NoOffer { .. });
}

#[test]
fn a_timer_that_is_late_hides_no_reason() {
    let mut rig = Rig::new(8);
    rig.server = Server::Silent;
    rig.asks_in_vain(1);
    let (began, add) = (rig.at.as_secs_f64(), rig.endpoint(2));
    rig.run_until(began + 4.9995);
    rig.at += Duration::from_millis(2);
    rig.run_until(began + 5.002);
    assert!(rig.failure(add).to_string().contains("given up early"));
    rig.profile.wants.patience = None;
    let mut call = rig.endpoint_call(3);
    call.timeout = Duration::from_secs(3);
    let (began, add) = (rig.at.as_secs_f64(), rig.request(Call::Add(call)));
    rig.run_until(began + 4.0);
    let said = rig.failure(add).to_string();
    assert!(!said.contains("given up early"), "it asked for 3 s: {said}");
}
