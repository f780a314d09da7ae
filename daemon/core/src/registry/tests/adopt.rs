//! Adoption: containers that already ran are taken over, sooner or later.

use super::rig::*;

/// Returns a rig whose daemon starts while container `a` runs in namespace 1 with the address .50.
fn running(prepare: impl FnOnce(&mut Rig)) -> Rig {
    let mut rig = Rig::new(8);
    rig.lease = 86_400;
    rig.interface.carry([A.parse().unwrap()]);
    prepare(&mut rig);
    rig.adopts(rig.running());
    rig
}

/// Nothing waits, and nothing is kept.
fn assert_at_rest(rig: &mut Rig) {
    assert_eq!(rig.reg.poll_timeout(), None);
    assert!(rig.reg.registry.adoptions.len() == 0 && rig.reg.registry.jobs.by_id.is_empty());
}

impl Rig {
    pub(super) fn not_adopted(&mut self) -> Vec<String> {
        let id = self.request(Call::List);
        let Some(Answer::Bindings { not_adopted, .. }) = self.answers.remove(&id) else {
            panic!()
        };
        not_adopted
            .into_iter()
            .map(|(attachment, reason)| format!("{attachment}: {reason}"))
            .collect()
    }
}

#[test]
fn an_adoption_that_timed_out_is_tried_again() {
    let mut rig = running(|rig| rig.blind = Some(LinkCause::TimedOut));
    assert_eq!(
        rig.not_adopted(),
        ["lan/a/eth0: eth0 in /ns/1: no result within the time limit"]
    );
    rig.run_until(1010.0);
    assert_eq!((rig.sent.len(), rig.not_adopted().len()), (0, 1));
    rig.blind = None;
    rig.run_until(1020.0);
    let found = (rig.state("a"), rig.not_adopted().len(), rig.kinds());
    assert_eq!(found, ("BOUND", 0, vec![3]));
    assert_eq!(rig.store.records().len(), 1);
}

#[test]
fn an_adoption_waits_for_the_slow_server_that_knows_it() {
    let mut rig = running(|rig| (rig.server, rig.give) = (Server::Discreet, OTHER));
    while rig.discovers.len() < 2 {
        rig.wake();
    }
    rig.give = FIRST;
    let (exchange, discover) = rig.discovers[0].clone();
    rig.serve(exchange, &discover, None);
    rig.drain();
    assert_eq!((rig.state("a"), rig.opened.len()), ("BOUND", 1));
}

#[test]
fn an_add_that_waits_in_vain_leaves_the_adoption() {
    let mut rig = running(|rig| rig.server = Server::Silent);
    let mut call = rig.call("a", 1, "a");
    call.timeout = Duration::from_secs(5);
    let add = rig.request(Call::Add(call));
    rig.run_until(1040.0);
    let failed = matches!(rig.answers[&add], Answer::Failed(Failure::TimedOut(..)));
    assert!(failed);
    rig.server = Server::Up;
    rig.run_until(1700.0);
    assert_eq!((rig.state("a"), rig.not_adopted().len()), ("BOUND", 0));
}

#[test]
fn an_adoption_ends_once_its_interface_is_surely_gone() {
    let missing: [fn(std::path::PathBuf) -> LinkCause; 2] =
        [LinkCause::NoNetns, |_| LinkCause::NoLink("eth0".to_owned())];
    for (cause, tried_again) in missing.into_iter().zip([1, 0]) {
        let mut rig = running(|rig| {
            rig.missing = cause;
            rig.live.remove(&1);
        });
        rig.run_until(3000.0);
        let found = (rig.reg.registry.adoptions.len(), rig.not_adopted().len());
        assert_eq!(
            found,
            (tried_again, 1),
            "it may be this daemon that is blind"
        );
    }
}

#[test]
fn what_a_runtime_says_of_a_container_ends_its_adoption() {
    for under_way in [false, true] {
        let held_up = |rig: &mut Rig| match under_way {
            true => rig.server = Server::Silent,
            false => rig.blind = Some(LinkCause::TimedOut),
        };
        let mut rig = running(held_up);
        let del = rig.del("a");
        assert_eq!(rig.answers[&del], Answer::Deleted);
        assert!(rig.not_adopted().is_empty() && !rig.kinds().contains(&7));
        assert_at_rest(&mut rig);

        let mut rig = running(held_up);
        let gc = rig.collect();
        assert_eq!(rig.answers[&gc], Answer::Collected);
        assert!(rig.not_adopted().is_empty());
        assert_at_rest(&mut rig);

        let mut rig = running(held_up);
        let add = rig.add("a", 1, "a");
        (rig.server, rig.blind) = (Server::Up, None);
        rig.run_until(1040.0);
        assert!(
            matches!(rig.answers.get(&add), Some(Answer::Leased { .. })) || !under_way,
            "{:?}",
            rig.answers[&add]
        );
        assert!(
            rig.not_adopted().is_empty()
                && rig.reg.registry.adoptions.len() == 0
                && rig.reg.registry.jobs.by_id.is_empty()
        );
    }
}

#[test]
fn an_add_takes_off_an_address_that_was_not_adopted() {
    for under_way in [false, true] {
        let mut rig = running(|rig| rig.server = Server::Silent);
        rig.interface.put("192.0.2.9/24".parse().unwrap());
        rig.run_until(if under_way { 1010.0 } else { 1031.0 });
        (rig.server, rig.give) = (Server::Up, [192, 0, 2, 77].into());
        let add = rig.add("a", 1, "a");
        rig.run_until(1040.0);
        assert_eq!(rig.leased(add), OTHER);
        assert_eq!(
            rig.wished,
            Some([192, 0, 2, 50].into()),
            "it asks for the same; under way: {under_way}"
        );
        assert_eq!(
            rig.on_link(),
            ["192.0.2.9/24"],
            "before its main plugin puts another on; under way: {under_way}"
        );
        assert!(
            rig.steps
                .contains(&Step::AddAddress("192.0.2.9/24".parse().unwrap())),
            "it may go with the first"
        );
    }
}

#[test]
fn a_replaced_lease_goes_once_its_adoption_is_written() {
    for renewed in [false, true] {
        let mut rig = running(|rig| (rig.blind, rig.lease) = (Some(LinkCause::TimedOut), 100));
        rig.blind = None;
        rig.add("b", 2, "a");
        rig.disk = Disk::Full;
        rig.dies(2);
        rig.run_until(1010.0);
        assert_eq!((rig.state("a"), rig.state("b")), ("BOUND", "RELEASING"));
        rig.run_until(if renewed { 1070.0 } else { 1011.0 });
        rig.disk = Disk::Good;
        rig.run_until(1140.0);
        let found = (rig.state("a"), rig.state("b"), rig.store.records().len());
        assert_eq!(found, ("BOUND", "", 1), "renewed: {renewed}");
    }
}

#[test]
fn an_adoption_finds_the_link_that_its_server_knows() {
    let mut rig = Rig::new(8);
    rig.lease = 100;
    rig.ifname = "0123abcd-nic".to_owned();
    rig.adopts(rig.running());
    // It may be any other.
    assert_eq!((rig.state("a"), rig.not_adopted().len()), ("", 1));
    rig.adopts(Adoptee {
        mac: Some(Mac([2, 0, 0, 0, 1, 1])),
        ..rig.running()
    });
    rig.run_until(1200.0);
    let found = (rig.state("a"), rig.on_link().len(), rig.not_adopted().len());
    assert_eq!(found, ("BOUND", 0, 0));
    assert!(rig.only_record().taken_off);
}
