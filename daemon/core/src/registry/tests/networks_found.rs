//! Links of Docker's networks that exist, or do not, without the core having heard about that in time.

use super::networks::{OWN, endpoint, id, in_vlan, vlan, with_endpoint, with_network};
use super::rig::*;
use crate::link::own::OwnLinks;
use crate::network::MOST_ENDPOINTS;

impl Rig {
    /// The links are being listed. Nothing else is held back.
    fn listing(&mut self) -> OpId {
        self.wired.hold = false;
        let (op, _) = self.wired.held.pop_front().expect("a list");
        op
    }
}

#[test]
fn the_links_are_listed_again_when_that_failed() {
    let mut rig = with_endpoint();
    let left = rig.wired.links[&endpoint()].clone();
    rig.delete_endpoint("e1");
    rig.wired.links.insert(endpoint(), left);
    rig.wired.hold = true;
    rig.restart();
    let op = rig.listing();
    rig.end(op, Outcome::OwnLinks(Err(LinkCause::TimedOut)));
    assert!(!rig.wired.links.is_empty(), "nothing is known about it");
    rig.run_for(2.0);
    assert!(rig.wired.links.is_empty());
}

#[test]
fn a_list_does_not_count_for_links_heard_of_since() {
    let mut rig = with_endpoint();
    rig.wired.hold = true;
    rig.kernel(KernelMessage::Missed);
    let listed = Outcome::OwnLinks(Ok(OwnLinks {
        owners: vec![endpoint()],
        strangers: Vec::new(),
    }));
    let op = rig.listing();
    rig.moves_in();
    rig.end(op, listed);
    rig.run_for(100.0);
    assert_eq!(rig.endpoint_ends(), [1, 1, 0], "it is in its container");
}

#[test]
fn a_list_does_not_count_for_links_made_meanwhile() {
    let mut rig = with_network();
    rig.wired.hold = true;
    rig.kernel(KernelMessage::Missed);
    let op = rig.listing();
    rig.create_endpoint("e1", OWN);
    rig.end(op, Outcome::OwnLinks(Ok(OwnLinks::default())));
    rig.kernel(KernelMessage::Missed);
    rig.run_for(599.0);
    // Its container may be slow to start.
    assert!(rig.wired.links.contains_key(&endpoint()));
}

#[test]
fn a_vlan_link_that_is_gone_is_made_anew() {
    let mut rig = Rig::new(8);
    rig.create(in_vlan("n1"));
    // The host has rebooted: dockerd does not describe the network again.
    rig.wired.links.clear();
    rig.restart();
    rig.create_endpoint("e1", OWN);
    let found = rig.wired.links.keys().collect::<Vec<_>>();
    assert_eq!(found, [&endpoint(), &vlan()]);
    rig.delete_endpoint("e1");
    rig.delete_network("n1");
    assert!(rig.wired.links.is_empty());
}

#[test]
fn a_stray_link_is_deleted_with_growing_pauses() {
    for owner in [endpoint(), vlan()] {
        let mut rig = with_endpoint();
        let mut left = rig.wired.links[&endpoint()].clone();
        left.owner = owner.clone();
        rig.delete_endpoint("e1");
        rig.run_for(20.0);
        rig.wired.refuses = Some(LinkCause::TimedOut);
        rig.link_returns(left);
        for pause in [1.0, 2.0, 4.0] {
            let before = rig.at.as_secs_f64();
            rig.wake();
            let waited = rig.at.as_secs_f64() - before;
            assert!(
                (pause * 0.87..pause * 1.13).contains(&waited),
                "{owner}: {waited} s, not {pause}"
            );
        }
        assert!(rig.wired.links.contains_key(&owner));
        rig.wired.refuses = None;
        rig.run_for(10.0);
        assert!(rig.wired.links.is_empty(), "{owner}");
    }
}

#[test]
fn a_vlan_link_that_cannot_be_deleted_is_tried_again() {
    let mut rig = Rig::new(8);
    rig.create(in_vlan("n1"));
    rig.wired.refuses = Some(LinkCause::TimedOut);
    let delete = rig.delete_network("n1");
    assert!(rig.is_done(delete) && !rig.wired.links.is_empty());
    rig.wired.refuses = None;
    rig.run_for(2.0);
    assert!(rig.wired.links.is_empty());
}

#[test]
fn an_endpoint_outlives_the_release_of_an_earlier_lease() {
    let mut rig = with_endpoint();
    rig.hold_sends = true;
    rig.delete_endpoint("e1");
    rig.run_for(1.0);
    assert_eq!(rig.rows().len(), 1, "its RELEASE is under way");
    // The server knows this one by another name.
    let mut add = rig.endpoint_add(OWN);
    add.client_id = ClientIdRule::Bytes(ClientId::ethernet(Mac([2, 0, 0, 0, 0, 9])));
    rig.give = OTHER;
    rig.endpoint_with("e2", OWN, add);
    let owner = LinkOwner::Endpoint(id("e2"));
    assert!(rig.wired.links.contains_key(&owner), "{:?}", rig.answers);
    rig.inside.insert(OWN, 1);
    rig.link_leaves(&owner);
    rig.interface_appears(1, OWN);
    rig.hold_sends = false;
    rig.run_for(1000.0);
    assert_eq!(rig.rows().len(), 1, "the first one's is over");
    let found = rig.store.docker.endpoints.keys().collect::<Vec<_>>();
    assert_eq!(found, [&id("e2")]);
}

#[test]
fn a_list_that_is_due_waits_for_the_one_under_way() {
    let mut rig = with_endpoint();
    rig.wired.hold = true;
    let mut left = rig.wired.links[&endpoint()].clone();
    left.owner = LinkOwner::Endpoint(id("e9"));
    rig.link_returns(left);
    let (op, _) = rig.wired.held.pop_front().expect("it is being deleted");
    rig.kernel(KernelMessage::Missed);
    rig.end(op, Outcome::Unmade(Err(LinkCause::TimedOut)));
    rig.run_for(5.0);
    assert_eq!(rig.wired.held.len(), 1, "one list is under way");
    let (op, outcome) = rig.wired.held.pop_front().expect("it is");
    rig.end(op, outcome);
    assert_eq!(rig.wired.held.len(), 1, "and then the next");
}

#[test]
fn there_may_be_so_many_endpoints_and_no_more() {
    let mut rig = with_endpoint();
    let known = rig.store.docker.endpoints[&id("e1")].clone();
    for n in 2..=MOST_ENDPOINTS {
        let record = EndpointRecord {
            id: id(&format!("f{n}")),
            source: AddressSource::Ipam,
            ..known.clone()
        };
        rig.store.docker.endpoints.insert(record.id.clone(), record);
    }
    rig.restart();
    let create = rig.create_endpoint("e2", Mac([2, 0, 0, 0, 0, 0x77]));
    assert_eq!(
        rig.answers[&create],
        Answer::Failed(Failure::Network(NetworkFault::Crowded(MOST_ENDPOINTS)))
    );
}

#[test]
fn a_network_that_one_of_two_calls_has_kept_is_known() {
    for first in [true, false] {
        let mut rig = Rig::new(8);
        rig.disk = Disk::Slow;
        let creates = [(); 2].map(|()| rig.create(in_vlan("n1")));
        assert!(rig.answers.is_empty(), "it is not durable");
        for is_first in [true, false] {
            let (op, changes) = rig.slow.pop_front().expect("both are being written");
            match is_first == first {
                true => rig.written(op, changes),
                false => rig.unwritten(op),
            }
        }
        rig.disk_recovers();
        assert_eq!(creates.map(|create| rig.is_done(create)), [first, !first]);
        let find = rig.network_call(NetworkCall::Find(id("n1")));
        assert!(
            matches!(rig.answers[&find], Answer::Network(_)),
            "{first}: {:?}",
            rig.answers[&find]
        );
        let found = (rig.store.docker.networks.len(), rig.wired.links.len());
        assert_eq!(found, (1, 1), "{first}");
    }
}

#[test]
fn an_unreadable_record_ends_no_link_and_no_lease() {
    let mut rig = Rig::new(8);
    rig.profile.on_parent = true;
    rig.create(in_vlan("n1"));
    rig.create_endpoint("e1", OWN);
    rig.store.docker.networks.clear();
    rig.store.docker.endpoints.clear();
    rig.store.docker.unread = vec![DockerKey::Network(id("n1")), DockerKey::Endpoint(id("e1"))];
    rig.restart();
    rig.run_for(1000.0);
    let found = (rig.wired.links.len(), rig.rows().len(), rig.sends(7));
    assert_eq!(found, (2, 1, 0));
    // Docker ends the container, and then removes the network.
    rig.delete_endpoint("e1");
    rig.delete_network("n1");
    rig.run_for(100.0);
    assert!(rig.store.docker.unread.is_empty());
    rig.restart();
    rig.run_for(100.0);
    assert_eq!((rig.rows().len(), rig.sends(7)), (0, 1));
    assert!(rig.wired.links.is_empty());
}

/// The kernel has made a link and reported it, and whoever asked for it has waited for too long.
fn made_late(rig: &mut Rig, owner: LinkOwner) {
    let (op, _) = rig.wired.held.pop_front().expect("the link is being made");
    rig.wired.hold = false;
    rig.kernel(KernelMessage::OwnLink { owner, there: true });
    rig.end(op, Outcome::Made(Err(LinkCause::TimedOut)));
}

fn failed_and_left_no_link(rig: &Rig, create: u64) {
    assert_fails!(
        rig,
        create,
        Failure::Link {
            cause: LinkCause::TimedOut,
            ..
        }
    );
    assert!(rig.wired.links.is_empty(), "{:?}", rig.wired.links);
}

#[test]
fn a_link_made_despite_an_error_is_deleted() {
    let mut rig = with_network();
    rig.wired.hold = true;
    let create = rig.create_endpoint("e1", OWN);
    made_late(&mut rig, endpoint());
    failed_and_left_no_link(&rig, create);
}

#[test]
fn a_vlan_link_made_despite_an_error_is_deleted() {
    let mut rig = Rig::new(8);
    rig.wired.hold = true;
    let create = rig.create(in_vlan("n1"));
    made_late(&mut rig, vlan());
    failed_and_left_no_link(&rig, create);
}
