//! What the door for Docker's network driver relies on.

use super::networks::{id, network};
use super::rig::*;
use crate::effect::{Answer, NetworkAnswer, NetworkCall};

#[test]
fn a_network_is_kept_with_the_time_at_which_it_was_created() {
    let mut rig = Rig::new(8);
    rig.bridge = false;
    rig.run_until(100.0);
    let created = rig.now().wall;
    rig.network_call(NetworkCall::Create(Box::new(network("n1"))));
    rig.run_until(200.0);
    let found = rig.network_call(NetworkCall::Find(id("n1")));
    let Answer::Network(NetworkAnswer::Found(record)) = &rig.answers[&found] else { panic!("{:?}", rig.answers) };
    assert_eq!(record.since, created);
    assert_eq!(rig.wired.networks[&id("n1")].since, created, "in the store too");
}
