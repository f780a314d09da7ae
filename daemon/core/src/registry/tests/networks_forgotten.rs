//! Networks that Docker does not know: their call broke after everything was done. It never says which networks it has.

use super::networks::{id, in_vlan, network};
use super::rig::*;
use crate::network::MOST_NETWORKS;

fn hangs_up(rig: &mut Rig, call: u64) {
    rig.input(Input::HungUp(RequestId(call)));
}

fn knows(rig: &mut Rig, name: &str) -> bool {
    let find = rig.network_call(NetworkCall::Find(id(name)));
    let knows = matches!(rig.answers[&find], Answer::Network(_));
    assert!(knows || *rig.fault(find) == NetworkFault::Unknown(id(name)));
    // In the store.
    assert_eq!(knows, rig.store.docker.networks.contains_key(&id(name)));
    knows
}

#[test]
fn a_network_whose_caller_left_before_the_answer_goes() {
    let mut rig = Rig::new(8);
    let kept = rig.create(network("n0"));
    rig.disk = Disk::Slow;
    let create = rig.create(in_vlan("n1"));
    assert!(!rig.answers.contains_key(&create) && rig.wired.links.len() == 1);
    hangs_up(&mut rig, create);
    rig.flush();
    assert!(!knows(&mut rig, "n1") && knows(&mut rig, "n0"));
    assert!(rig.wired.links.is_empty(), "nor is there a VLAN of it");
    assert!(rig.is_done(kept));
}

#[test]
fn too_many_networks_is_an_error_and_none_is_forgotten() {
    let mut rig = Rig::new(8);
    for n in 0..MOST_NETWORKS {
        rig.create(network(&format!("n{n}")));
    }
    let again = rig.create(network("n3"));
    assert!(rig.is_done(again), "it was there");
    let create = rig.create(network("more"));
    assert_eq!(*rig.fault(create), NetworkFault::Full(MOST_NETWORKS));
    assert!(knows(&mut rig, "n0") && !knows(&mut rig, "more"));
}
