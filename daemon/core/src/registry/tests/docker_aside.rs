//! A server in a macvlan beside those of Docker's containers: frames from the LAN's link do not reach it.

use super::docker::*;
use super::rig::*;

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
    let found = (&rig.opened[..], rig.answers.contains_key(&add));
    assert_eq!(found, (&[line(false)][..], false));
    rig.run_until(1001.13);
    let found = (&rig.opened[1], rig.has_lease(add));
    assert_eq!(found, (&line(true), true), "{:?}", rig.answers);
    assert_eq!(rig.sends(1), 2, "no more than without");
    let found = (rig.only_record().link.clone(), rig.rows()[0].link.clone());
    assert_eq!(found, (line(false), Some(line(false))));
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
    let mut rig = Rig::new(8);
    let add = rig.endpoint(1);
    rig.run_until(1040.0);
    assert!(rig.has_lease(add));
    assert!(!rig.opened.contains(&line(true)), "{:?}", rig.opened);
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
        rig.breaks(exchange, LinkCause::Down);
        rig.run_until(1010.0);
        assert_eq!(rig.has_lease(add), !strict, "{:?}", rig.answers);
        assert!(rig.ports.is_empty());
        rig.run_until(1040.0);
        assert!(rig.is_over());
    }
}

#[test]
fn where_no_macvlan_would_be_heard_there_is_none() {
    for (bridge, vlan, on_parent) in [(true, 0, false), (false, 7, false), (false, 0, true)] {
        let mut rig = Rig::new(8);
        (rig.server, rig.bridge, rig.profile.on_parent) = (Server::Silent, bridge, on_parent);
        let mut add = rig.endpoint_call(1);
        add.lan = lan_on("br0", vlan);
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
