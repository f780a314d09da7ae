//! What an operator orders: renewals and releases before their time.

use super::rig::*;
use crate::effect::{Obeyed, Shown, Upshot};

fn named(name: &str) -> Which {
    Which {
        name: Some(name.to_owned()),
        ..Which::default()
    }
}

impl Rig {
    fn order(&mut self, verb: Verb, which: Which) -> u64 {
        self.request(Call::Order(Box::new(Order { verb, which })))
    }

    fn renew(&mut self, which: Which) -> u64 {
        self.order(Verb::Renew, which)
    }

    fn give_up(&mut self, which: Which, force: bool) -> u64 {
        self.order(Verb::Release { force }, which)
    }

    /// Returns the outcome of an order, with the containers.
    fn upshots(&self, order: u64) -> Vec<(String, Upshot)> {
        let Some(Answer::Obeyed(obeyed)) = self.answers.get(&order) else {
            panic!("{:?}", self.answers.get(&order))
        };
        let of = |Obeyed {
                      attachment, upshot, ..
                  }: &Obeyed| (container(attachment), upshot.clone());
        obeyed.iter().map(of).collect()
    }

    fn upshot(&self, order: u64) -> Upshot {
        let [(_, upshot)] = &self.upshots(order)[..] else {
            panic!("{:?}", self.upshots(order))
        };
        upshot.clone()
    }
}

#[test]
fn a_lease_can_be_extended_before_its_time() {
    let mut rig = Rig::new(8);
    rig.bind();
    rig.run_for(20.0);
    let order = rig.renew(Which::default());
    assert_eq!(
        rig.upshot(order),
        Upshot::Extended {
            server: SERVER.into(),
            ends: Some(Duration::from_secs(100))
        },
        "by RENEW, at once"
    );
    assert!(matches!(
        rig.only_record().lease.start.since_boot().as_secs(),
        1020..
    ));
    let again = rig.renew(Which::default());
    // Nobody is asked twice in a moment.
    assert_eq!(rig.upshot(again), Upshot::Fresh(Duration::ZERO));
}

#[test]
fn a_lease_that_no_server_granted_needs_none_to_extend_it() {
    let mut rig = super::fallback::fallen_back();
    rig.run_for(60.0);
    let (sent, order) = (rig.sent.len(), rig.renew(Which::default()));
    assert_eq!((rig.upshot(order), rig.sent.len()), (Upshot::Local, sent));
}

#[test]
fn an_unanswered_order_leaves_the_lease_as_it_was() {
    let mut rig = Rig::new(8);
    rig.lease = 1000;
    rig.bind();
    rig.run_for(20.0);
    rig.server = Server::Silent;
    let order = rig.renew(Which::default());
    rig.run_for(27.0);
    assert!(!rig.answers.contains_key(&order), "it tries three times");
    rig.run_for(2.0);
    let found = (rig.upshot(order), rig.state("a"));
    assert_eq!(found, (Upshot::Unanswered(None), "BOUND"));
}

#[test]
fn an_unrecorded_extension_is_not_called_unanswered() {
    let mut rig = Rig::new(8);
    rig.lease = 1000;
    rig.bind();
    rig.run_for(20.0);
    (rig.disk, rig.dns) = (Disk::Full, Some([192, 0, 2, 53].into()));
    let order = rig.renew(Which::default());
    rig.run_for(35.0);
    assert_eq!(rig.upshot(order), Upshot::Unrecorded);
}

#[test]
fn a_renewal_on_a_link_without_carrier_says_so_at_once() {
    let mut rig = Rig::new(8);
    rig.lease = 1000;
    rig.bind();
    rig.run_for(20.0);
    rig.set_down(true);
    let order = rig.renew(Which::default());
    assert_eq!(
        rig.upshot(order),
        Upshot::Unanswered(Some("its interface has no carrier".to_owned()))
    );
}

#[test]
fn a_renewal_tells_that_a_lease_was_lost() {
    let mut rig = Rig::new(8);
    rig.bind();
    rig.run_for(20.0);
    rig.server = Server::Naks;
    let order = rig.renew(Which::default());
    assert_eq!(rig.upshot(order), Upshot::Lost);
}

#[test]
fn a_name_that_fits_several_leases_means_none() {
    let mut rig = Rig::new(8);
    for (n, who) in ["a1", "a2", "b"].into_iter().enumerate() {
        rig.add(who, n as u64 + 1, who);
    }
    rig.run_for(20.0);
    let sent = rig.sends(3);
    for order in [rig.renew(named("a")), rig.give_up(named("a"), true)] {
        assert_eq!(
            rig.upshots(order),
            ["a1", "a2"].map(|who| (who.to_owned(), Upshot::Ambiguous))
        );
    }
    assert_eq!((rig.sends(3), rig.rows().len()), (sent, 3));
    let order = rig.renew(named("a1"));
    assert!(matches!(rig.upshot(order), Upshot::Extended { .. }));
}

#[test]
fn the_lease_of_a_living_container_goes_only_by_force() {
    let mut rig = Rig::new(8);
    rig.bind();
    rig.interface
        .carry([rig.only_record().lease.address.into()]);
    rig.run_for(70.0);
    let order = rig.give_up(Which::default(), false);
    let found = (rig.upshot(order), rig.state("a"));
    assert_eq!(found, (Upshot::Lives { interface: true }, "BOUND"));
    let order = rig.give_up(Which::default(), true);
    assert_eq!(rig.upshot(order), Upshot::Leaves);
    // Its runtime does not take the address off.
    assert_eq!(rig.on_link(), Vec::<String>::new());
    rig.run_for(5.0);
    assert_eq!(rig.ends(), [1, 0, 0]);
    let event = rig.store.events.last().expect("an event");
    let found = (event.kind, event.cause.as_str());
    assert_eq!(found, (EventKind::Released, "an operator gave it back"));
    let del = rig.del("a");
    // The runtime's own DEL comes later.
    assert_eq!(rig.answers[&del], Answer::Deleted);
}

#[test]
fn the_address_is_off_before_the_lease_goes_back() {
    let mut rig = Rig::new(8);
    rig.bind();
    rig.interface
        .carry([rig.only_record().lease.address.into()]);
    rig.run_for(70.0);
    rig.hold_changes = true;
    let order = rig.give_up(Which::default(), true);
    assert!(
        (rig.sends(7), rig.answers.contains_key(&order)) == (0, false) && rig.changes.len() == 1
    );
    let add = rig.add("a", 1, "a");
    assert!(!rig.answers.contains_key(&add), "an ADD waits");
    let del = rig.del("a");
    // A DEL does not: its interface goes.
    assert_eq!(rig.answers[&del], Answer::Deleted);
    assert_eq!((rig.upshot(order), rig.sends(7)), (Upshot::Leaves, 1));
}

#[test]
fn an_ordered_release_ends_a_grace_at_once() {
    let mut rig = Rig::new(8);
    rig.profile.grace = Some(60);
    rig.bind();
    rig.del("a");
    assert_eq!((rig.state("a"), rig.sends(7)), ("KEPT", 0));
    let order = rig.give_up(
        Which {
            state: Some("kept".to_owned()),
            ..Which::default()
        },
        false,
    );
    rig.run_for(1.0);
    assert_eq!((rig.upshot(order), rig.sends(7)), (Upshot::Leaves, 1));
}

#[test]
fn a_lease_released_by_force_is_not_kept() {
    let mut rig = Rig::new(8);
    rig.profile.grace = Some(60);
    rig.bind();
    rig.run_for(70.0);
    rig.give_up(Which::default(), true);
    rig.run_for(1.0);
    assert_eq!((rig.sends(7), rig.rows().len()), (1, 0));
}

#[test]
fn a_release_that_the_store_refuses_says_so() {
    let mut rig = Rig::new(8);
    rig.bind();
    rig.disk = Disk::Full;
    let order = rig.give_up(Which::default(), true);
    rig.run_for(1.0);
    let found = rig.upshot(order);
    assert_eq!(found, Upshot::Failed(Failure::Store(StoreCause::Full)));
}

fn shown(rig: &mut Rig, name: &str) -> Vec<Shown> {
    let id = rig.request(Call::Show(Box::new(named(name))));
    let Some(Answer::Shown(shown)) = rig.answers.remove(&id) else {
        panic!("no story")
    };
    shown
}

#[test]
fn show_tells_what_the_server_said_and_the_interface_has() {
    let mut rig = Rig::new(8);
    rig.bind();
    let [story] = &shown(&mut rig, "a")[..] else {
        panic!("one lease")
    };
    assert_eq!(story.lease.as_ref().map(|lease| lease.server), Some(SERVER));
    assert!(
        matches!(&story.interface, Some(Ok(view)) if view.ifname == "eth0"),
        "{:?}",
        story.interface
    );

    rig.hold_looks = true;
    let id = rig.request(Call::Show(Box::new(named("a"))));
    rig.run_for(20.0);
    let Some(Answer::Shown(held)) = rig.answers.remove(&id) else {
        panic!("an interface that takes too long")
    };
    assert_eq!(held[0].interface, Some(Err(LinkCause::TimedOut)));
}
