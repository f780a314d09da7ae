//! The store is lost. The next one begins with its copy.

use super::networks::{OWN, endpoint, with_endpoint};
use super::rig::*;

impl Rig {
    /// Loses the store except for its copy, and starts the next daemon. Docker's own facts are copied unchanged.
    fn loses_its_store(&mut self) {
        self.store.lose();
        self.sent.clear();
        self.restart();
        self.run_for(20.0);
    }
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
            rig.moves_in();
        }
        rig.loses_its_store();
        let found = (rig.link_of(&endpoint()).is_some(), rig.rows().len());
        assert_eq!(found, (!joined, 1), "{joined}");
        match joined {
            true => {
                rig.inside.remove(&OWN);
                rig.link_returns(link);
            }
            false => assert!(matches!(rig.join("e1"), Answer::Network(_))),
        }
        let delete = rig.delete_endpoint("e1");
        assert!(rig.is_done(delete), "{joined}: {:?}", rig.answers[&delete]);
        let delete = rig.delete_network("n1");
        assert!(rig.is_done(delete), "{joined}");
        rig.run_for(10.0);
        assert!(rig.has_no_endpoint() && rig.store.docker.networks.is_empty());
        let found = (rig.sends(7), rig.store.records().len());
        assert_eq!(found, (1, 0), "{joined}");
    }
}
