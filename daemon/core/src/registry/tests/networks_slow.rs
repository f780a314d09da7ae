//! Links of Docker's networks whose containers start slowly, or never.

use super::networks::{OWN, STRAY, endpoint, id, with_network};
use super::rig::*;

impl Rig {
    /// Asks for an endpoint whose address Docker has from a pool of ours.
    fn told_endpoint(&mut self, name: &str, pool: &str) -> u64 {
        let mut add = self.endpoint_add(OWN);
        add.attachment = Attachment::Docker {
            pool: pool.into(),
            endpoint: OWN.to_string().into(),
        };
        add.profile.wants = pool::wants(pool.parse().ok().as_ref());
        let add = self.request(Call::Add(add));
        self.assert_leased(add);
        self.endpoint_at(name, OWN, A)
    }
}

/// Up to Docker 27 the link is made before volumes are relabelled and the runtime is started.
#[test]
fn a_slow_container_finds_its_link_and_its_lease() {
    for (pool, restarts) in [
        ("192.0.2.0/24;;parent=br0", false),
        ("0.0.0.0/0;;grace=0", false),
        ("0.0.0.0/0;;grace=0", true),
    ] {
        for told in [false, true] {
            let mut rig = with_network();
            let began = rig.at.as_secs_f64();
            match told {
                true => _ = rig.told_endpoint("e1", pool),
                false => _ = rig.create_endpoint("e1", OWN),
            }
            if restarts {
                rig.run_until(began + 50.0);
                rig.restart();
            }
            rig.run_until(began + STRAY - 1.0);
            rig.moves_in();
            rig.configure(A);
            rig.run_until(began + 2.0 * STRAY);
            let at = format!("{pool}, told: {told}, restarts: {restarts}");
            assert_eq!(rig.endpoint_ends(), [1, 1, 0], "{at}");
            assert!(
                rig.rows()[0]
                    .link
                    .as_ref()
                    .and_then(Link::in_netns)
                    .is_some(),
                "{at}"
            );
        }
    }
}

/// dockerd was killed after the first link had its container, and has forgotten it: the link is nowhere any more.
#[test]
fn a_forgotten_endpoint_does_not_hurry_its_successor() {
    let mut rig = with_network();
    let pool = "192.0.2.0/24;;parent=br0";
    rig.told_endpoint("e1", pool);
    rig.link_leaves(&endpoint());
    rig.told_endpoint("e2", pool);
    let began = rig.at.as_secs_f64();
    rig.request(Call::List);
    rig.run_until(began + STRAY - 1.0);
    assert_eq!((rig.rows().len(), rig.sends(7)), (1, 0));
}

/// It starts none of the containers that the previous one was about to start.
#[test]
fn a_new_dockerd_leaves_a_waiting_link_one_minute() {
    for told in [false, true] {
        let mut rig = with_network();
        match told {
            true => _ = rig.told_endpoint("e1", "192.0.2.0/24;;parent=br0"),
            false => _ = rig.create_endpoint("e1", OWN),
        }
        rig.run_for(100.0);
        let started = rig.network_call(NetworkCall::Started);
        assert!(rig.is_done(started));
        let began = rig.at.as_secs_f64();
        rig.run_until(began + 59.9);
        let found = (rig.wired.links.len(), rig.sends(7));
        assert_eq!(found, (1, 0), "told: {told}");
        rig.run_until(began + 70.0);
        assert!(rig.has_no_endpoint(), "told: {told}");
        let found = (rig.sends(7), rig.store.records().len());
        assert_eq!(found, (1, 0), "told: {told}");
    }
}

#[test]
fn a_stray_link_goes_at_once_for_a_new_one_with_its_mac() {
    for told in [false, true] {
        let mut rig = with_network();
        for name in ["e1", "e2"] {
            let create = match told {
                true => rig.told_endpoint(name, "192.0.2.0/24;;parent=br0"),
                false => rig.create_endpoint(name, OWN),
            };
            assert!(
                matches!(
                    rig.answers[&create],
                    Answer::Network(NetworkAnswer::Endpoint(_))
                ),
                "{:?}",
                rig.answers
            );
        }
        let links: Vec<_> = rig.wired.links.keys().cloned().collect();
        assert_eq!(links, [LinkOwner::Endpoint(id("e2"))], "told: {told}");
        assert_eq!(rig.endpoint_ends(), [1, 1, 0], "told: {told}");
    }
}

/// The daemon could not see the container until Docker took its link back for a moment.
#[test]
fn a_link_back_during_the_last_search_keeps_its_lease() {
    let mut rig = with_network();
    rig.create_endpoint("e1", OWN);
    let link = rig.link_of(&endpoint()).cloned().unwrap();
    rig.link_leaves(&endpoint());
    let left = rig.at.as_secs_f64();
    rig.run_until(left + 59.0);
    rig.hold_seeks = true;
    rig.run_until(left + 61.0);
    rig.link_returns(link);
    rig.hold_seeks = false;
    rig.end_seek();
    assert_eq!((rig.rows().len(), rig.sends(7)), (1, 0));
}
