//! The store is lost. The next one begins with its copy.

use std::net::Ipv4Addr;

use super::docker::endpoint_mac;
use super::networks::{OWN, endpoint, id, with_endpoint};
use super::rig::*;
use crate::effect::NetworkCall;
use crate::link::KernelMessage;

const FIRST: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 50);

impl Rig {
    /// Loses the store except for its copy, and starts the next daemon. Docker's own facts are copied unchanged.
    fn loses_its_store(&mut self) {
        self.store.lose();
        self.sent.clear();
        self.restart();
        self.run_until(self.at.as_secs_f64() + 20.0);
    }
}

#[test]
fn a_docker_lease_outlives_a_lost_store() {
    for inside in [false, true] {
        let mut rig = Rig::new(8);
        rig.endpoint(1);
        if inside {
            rig.inside.insert(endpoint_mac(1), 1);
            rig.input(Input::Kernel(KernelMessage::Appeared {
                number: 1,
                mac: endpoint_mac(1),
            }));
            rig.configure("192.0.2.50/24");
            rig.run_until(rig.at.as_secs_f64() + 1.0);
        }
        rig.loses_its_store();
        assert_eq!(
            rig.sent,
            [(3, Ipv4Addr::UNSPECIFIED)],
            "in INIT-REBOOT form, {inside}"
        );
        let record = rig.only_record();
        assert!(
            (record.lease.ip(), record.unconfirmed) == (FIRST, false),
            "{inside}: {record:?}"
        );
        assert_eq!(rig.rows()[0].state.as_str(), "BOUND", "{inside}");
        assert_eq!(rig.on_link().len(), usize::from(inside));
        rig.run_until(rig.t1() + 10.0);
        assert_eq!(rig.sends(3), 2, "it is renewed, {inside}");
        rig.release(FIRST);
        rig.run_until(rig.at.as_secs_f64() + 10.0);
        assert_eq!(
            (rig.sends(7), rig.rows().len(), rig.store.records().len()),
            (1, 0, 0),
            "{inside}"
        );
    }
}

#[test]
fn an_unconfirmed_lease_stays_so_over_a_restart() {
    let mut rig = Rig::new(8);
    rig.endpoint(1);
    rig.server = Server::Silent;
    rig.loses_its_store();
    assert!(
        rig.only_record().unconfirmed && rig.rows()[0].state.as_str() != "SELECTING",
        "{:?}",
        rig.rows()
    );
    rig.restart();
    rig.server = Server::Up;
    rig.run_until(rig.at.as_secs_f64() + 60.0);
    assert_eq!(
        (rig.only_record().unconfirmed, rig.only_record().lease.ip()),
        (false, FIRST)
    );
}

#[test]
fn a_lease_of_cnis_is_left_to_the_runtimes_cache() {
    let mut rig = Rig::new(8);
    rig.bind();
    rig.loses_its_store();
    assert!(rig.store.records().is_empty() && rig.sent.is_empty() && rig.rows().is_empty());
}

#[test]
fn networks_and_endpoints_outlive_a_lost_store() {
    for joined in [false, true] {
        let mut rig = with_endpoint();
        let link = rig.link_of(&endpoint()).cloned().expect("its link");
        if joined {
            rig.inside.insert(OWN, 1);
            rig.link_leaves(&endpoint());
            rig.input(Input::Kernel(KernelMessage::Appeared {
                number: 1,
                mac: OWN,
            }));
        }
        rig.loses_its_store();
        assert_eq!(
            (rig.link_of(&endpoint()).is_some(), rig.rows().len()),
            (!joined, 1),
            "{joined}"
        );
        match joined {
            true => {
                rig.inside.remove(&OWN);
                rig.link_returns(link);
            }
            false => {
                let call = NetworkCall::Join {
                    network: id("n1"),
                    endpoint: id("e1"),
                    sandbox: String::new(),
                };
                let join = rig.network_call(call);
                assert!(
                    matches!(rig.answers[&join], Answer::Network(_)),
                    "{:?}",
                    rig.answers[&join]
                );
            }
        }
        let delete = rig.delete_endpoint("e1");
        assert!(rig.is_done(delete), "{joined}: {:?}", rig.answers[&delete]);
        let delete = rig.network_call(NetworkCall::Delete(id("n1")));
        assert!(rig.is_done(delete), "{joined}");
        rig.run_until(rig.at.as_secs_f64() + 10.0);
        assert!(
            rig.wired.links.is_empty()
                && rig.store.docker.endpoints.is_empty()
                && rig.store.docker.networks.is_empty()
        );
        assert_eq!(
            (rig.sends(7), rig.store.records().len()),
            (1, 0),
            "{joined}"
        );
    }
}
