//! A server in a macvlan beside those of Docker's containers: frames from the LAN's link do not reach it.

use std::net::Ipv4Addr;

use super::docker::*;
use super::rig::*;
use crate::effect::{Call, Failure};
use crate::grant::policy::Detection;
use crate::identity::Lan;
use crate::link::{Link, LinkCause};
use crate::record::RecordState;
use crate::silence::Survey;

const FIRST: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 50);

/// A rig whose server is in a macvlan.
fn rig() -> Rig {
    let mut rig = Rig::new(8);
    (rig.beside, rig.lease) = (true, 1000);
    rig
}

/// The LAN's link on behalf of the first endpoint; `port`: a macvlan beside it.
fn line(port: bool) -> Link {
    Link::Parent {
        ifindex: 2,
        mac: endpoint_mac(1),
        vlan: 0,
        port,
    }
}

impl Rig {
    fn has_lease(&self, id: u64) -> bool {
        matches!(self.answers.get(&id), Some(Answer::Leased { .. }))
    }

    fn is_over(&self) -> bool {
        self.reg
            .kept()
            .iter()
            .all(|kept| kept.of_bindings || kept.count == 0)
    }
}

#[test]
fn a_second_discover_leaves_from_a_macvlan() {
    let mut rig = rig();
    let add = rig.endpoint(1);
    rig.run_until(1000.87);
    assert_eq!(
        (&rig.opened[..], rig.answers.contains_key(&add)),
        (&[line(false)][..], false)
    );
    rig.run_until(1001.13);
    assert_eq!(
        (&rig.opened[1], rig.has_lease(add)),
        (&line(true), true),
        "{:?}",
        rig.answers
    );
    assert_eq!(rig.count_sent(1), 2, "no more than without");
    assert_eq!(
        (rig.only_record().link.clone(), rig.rows()[0].link.clone()),
        (line(false), Some(line(false)))
    );
    assert!(rig.ports.is_empty());
    rig.run_until(1020.0);
    assert!(rig.is_over());
    // It watches the address, and asks for more time, from the LAN's link.
    assert!(
        rig.opened[2..].iter().all(|link| *link == line(false)),
        "{:?}",
        rig.opened
    );
}

#[test]
fn a_server_that_answers_within_a_second_needs_no_macvlan() {
    for server in [Server::Up, Server::OffersOnly] {
        let mut rig = Rig::new(8);
        rig.server = server;
        let add = rig.endpoint(1);
        rig.run_until(1040.0);
        assert_eq!(rig.has_lease(add), server == Server::Up);
        assert!(
            rig.count_sent(3) > 0 && !rig.opened.contains(&line(true)),
            "{:?}",
            rig.opened
        );
    }
}

#[test]
fn the_answer_waits_until_the_macvlan_is_gone() {
    let mut rig = rig();
    rig.hold_closes = true;
    let add = rig.endpoint(1);
    rig.run_until(1010.0);
    assert_eq!(
        (rig.store.records().len(), rig.answers.len()),
        (1, 0),
        "it is durable"
    );
    assert_eq!(rig.only_record().state, RecordState::Bound);
    rig.close_late();
    assert!(rig.has_lease(add) && rig.is_over());
}

#[test]
fn an_add_in_vain_is_answered_when_the_macvlan_is_gone() {
    let mut rig = rig();
    (rig.server, rig.survey, rig.hold_closes) = (Server::Silent, Some(Survey::default()), true);
    let add = rig.endpoint(1);
    rig.run_until(1035.0);
    assert!(rig.answers.is_empty() && rig.open.is_empty());
    rig.close_late();
    assert!(
        matches!(rig.failure(add), Failure::NoOffer { .. }),
        "{:?}",
        rig.answers
    );
    assert!(rig.is_over() && rig.rows().is_empty());
}

#[test]
fn an_add_waits_for_its_macvlan_no_longer_than_its_limit() {
    let mut rig = rig();
    rig.hold_closes = true;
    let add = rig.endpoint(1);
    rig.run_until(1029.9);
    assert_eq!((rig.count_sent(7), rig.answers.len()), (0, 0));
    rig.beside = false;
    rig.run_until(1031.0);
    assert_eq!(rig.count_sent(7), 1, "the lease goes back");
    rig.close_late();
    assert!(
        rig.failure(add).to_string().contains("macvlan"),
        "{}",
        rig.failure(add)
    );
    assert!(rig.store.records().is_empty() && rig.is_over());
}

#[test]
fn an_add_whose_store_is_slow_fails_at_its_limit() {
    let mut rig = rig();
    rig.disk = Disk::Slow;
    let add = rig.endpoint(1);
    rig.run_until(1029.99);
    assert!(rig.answers.is_empty());
    rig.run_until(1030.0);
    assert!(
        rig.failure(add).to_string().contains("the store"),
        "{}",
        rig.failure(add)
    );
    rig.disk = Disk::Good;
    rig.flush();
    rig.run_until(1040.0);
    assert!(rig.store.records().is_empty() && rig.is_over());
}

#[test]
fn where_no_macvlan_can_be_made_the_lans_link_asks_on() {
    let taken = LinkCause::MacTaken(endpoint_mac(1));
    for cause in [
        taken,
        LinkCause::refused("make a macvlan", "Device or resource busy"),
    ] {
        let mut rig = rig();
        rig.no_port = Some(cause);
        let add = rig.endpoint(1);
        rig.run_until(1002.0);
        assert_eq!(&rig.opened[..], &[line(false), line(true), line(false)]);
        rig.beside = false;
        rig.run_until(1010.0);
        assert!(rig.has_lease(add), "{:?}", rig.answers);
        assert!(rig.is_over());
    }
}

#[test]
fn a_macvlan_that_fails_is_left_for_the_lans_link() {
    for strict in [false, true] {
        let mut rig = rig();
        rig.server = if strict { Server::Up } else { Server::Silent };
        if strict {
            rig.profile.policy.detection = Detection::Strict;
        }
        let add = rig.endpoint(1);
        rig.run_until(1001.5);
        let exchange = *rig.open.keys().next().expect("it asks, or probes");
        (rig.beside, rig.server) = (false, Server::Up);
        rig.input(Input::Broken {
            exchange,
            cause: LinkCause::Down,
        });
        rig.run_until(1010.0);
        assert_eq!(rig.has_lease(add), !strict, "{:?}", rig.answers);
        assert!(rig.ports.is_empty());
        rig.run_until(1040.0);
        assert!(rig.is_over());
    }
}

#[test]
fn strict_probes_leave_by_the_macvlan() {
    for used in [false, true] {
        let mut rig = rig();
        rig.profile.policy.detection = Detection::Strict;
        if used {
            rig.stations
                .insert(FIRST, crate::wire::Mac([2, 0, 0, 0, 9, 9]));
        }
        let add = rig.endpoint(1);
        rig.run_until(1001.1);
        assert!(!rig.answers.contains_key(&add));
        rig.run_until(1025.0);
        assert!(rig.has_lease(add), "{:?}", rig.answers);
        assert_eq!(rig.count_sent(4), usize::from(used));
        assert_eq!(rig.only_record().lease.ip() == FIRST, !used);
        let strays = rig.opened[1..]
            .iter()
            .filter(|link| **link == line(false))
            .count();
        assert!(
            strays <= 1,
            "but for what is sent after the answer: {:?}",
            rig.opened
        );
        assert!(rig.ports.is_empty() && rig.is_over());
    }
}

#[test]
fn a_declined_address_is_replaced_over_the_macvlan() {
    let mut rig = rig();
    rig.stations
        .insert(FIRST, crate::wire::Mac([2, 0, 0, 0, 9, 9]));
    let add = rig.endpoint(1);
    rig.run_until(1010.0);
    assert!(rig.has_lease(add), "{:?}", rig.answers);
    assert_eq!((rig.count_sent(4), rig.ports.len()), (1, 0));
    assert!(rig.is_over());
}

#[test]
fn a_lease_that_is_kept_is_confirmed_over_the_macvlan() {
    let mut rig = rig();
    rig.profile.grace = Some(60);
    rig.endpoint(1);
    rig.run_until(1005.0);
    rig.release(FIRST);
    rig.sent.clear();
    let add = rig.endpoint(1);
    rig.run_until(1006.5);
    assert!(rig.has_lease(add), "{:?}", rig.answers);
    assert_eq!(
        (rig.count_sent(1), rig.only_record().lease.ip()),
        (0, FIRST)
    );
}

#[test]
fn where_no_macvlan_would_be_heard_there_is_none() {
    for (bridge, vlan, on_parent) in [(true, 0, false), (false, 7, false), (false, 0, true)] {
        let mut rig = Rig::new(8);
        (rig.server, rig.bridge, rig.profile.on_parent) = (Server::Silent, bridge, on_parent);
        let mut add = rig.endpoint_call(1);
        add.lan = Lan::Link {
            parent: "br0".into(),
            vlan,
        };
        rig.request(Call::Add(add));
        rig.run_until(1020.0);
        assert_eq!(rig.opened.len(), 1, "{:?}", rig.opened);
    }
    let mut inside = Rig::new(8);
    inside.server = Server::Silent;
    inside.add("a", 1, "a");
    inside.run_until(1020.0);
    assert_eq!(inside.opened.len(), 1);
}

#[test]
fn a_pool_look_goes_on_from_a_macvlan_after_a_second() {
    let mut rig = rig();
    let id = rig.pool(None, None);
    rig.run_until(1000.87);
    assert_eq!((rig.opened.len(), rig.answers.len()), (1, 0));
    rig.run_until(1001.13);
    assert_eq!(
        rig.answers[&id],
        Answer::Pool {
            id: pool(),
            gateway: None
        }
    );
    let aside = Link::Parent {
        ifindex: 2,
        mac: endpoint_mac(0),
        vlan: 0,
        port: true,
    };
    assert_eq!((&rig.opened[1], rig.open.len()), (&aside, 0));
    assert!(rig.is_over());
}

#[test]
fn a_pool_look_without_a_macvlan_goes_on_from_the_link() {
    let mut rig = rig();
    rig.no_port = Some(LinkCause::TimedOut);
    let id = rig.pool(None, None);
    rig.run_until(1001.5);
    assert_eq!((rig.opened.len(), rig.answers.len()), (3, 0));
    rig.beside = false;
    rig.run_until(1002.95);
    assert!(rig.answers.is_empty() || matches!(rig.answers[&id], Answer::Pool { .. }));
    rig.run_until(1003.0);
    assert!(rig.open.is_empty() && rig.is_over() && rig.answers.contains_key(&id));
    let mut bridge = Rig::new(8);
    (bridge.server, bridge.bridge) = (Server::Silent, true);
    bridge.pool(None, None);
    bridge.run_until(1005.0);
    assert_eq!(bridge.opened.len(), 1);
}
