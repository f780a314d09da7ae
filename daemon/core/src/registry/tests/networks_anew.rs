//! Endpoints that dockerd lost and creates again.

use super::networks::{OWN, id, with_endpoint, with_network};
use super::rig::*;

/// An endpoint whose link is in a container.
fn in_a_container() -> Rig {
    let mut rig = with_endpoint();
    rig.moves_in();
    rig
}

#[test]
fn a_lost_endpoint_is_made_anew_with_its_address() {
    // Nothing is mounted on the namespace's file any more, or another is.
    for unseen in [
        LinkCause::NotMounted,
        LinkCause::NetnsChanged,
        LinkCause::NoNetns,
    ] {
        let mut rig = in_a_container();
        rig.inside.remove(&OWN);
        rig.unseen = Some(unseen);
        let create = rig.create_endpoint("e2", OWN);
        let Answer::Network(NetworkAnswer::Endpoint(record)) = &rig.answers[&create] else {
            panic!("{:?}", rig.answers)
        };
        assert_eq!(record.address.to_string(), A);
        let found = rig.store.docker.endpoints.keys().collect::<Vec<_>>();
        assert_eq!(found, [&id("e2")]);
        assert_eq!((rig.rows().len(), rig.sends(7)), (1, 0));
        // Calls about the first one come late, and do not concern the lease.
        let delete = rig.delete_endpoint("e1");
        rig.run_for(10.0);
        assert!(rig.is_done(delete));
        assert_eq!(rig.endpoint_ends(), [1, 1, 0]);
        rig.delete_endpoint("e2");
        rig.run_for(10.0);
        assert_eq!(rig.endpoint_ends(), [0, 0, 1]);
        assert!(rig.has_no_endpoint());
    }
}

#[test]
fn a_live_endpoint_keeps_its_lease_from_one_with_its_mac() {
    let mut rig = in_a_container();
    let create = rig.create_endpoint("e2", OWN);
    assert_fails!(rig, create, Failure::Attached { .. });
    rig.run_for(10.0);
    assert_eq!((rig.rows().len(), rig.sends(7)), (1, 0));
    let found = rig.store.docker.endpoints.keys().collect::<Vec<_>>();
    assert_eq!(found, [&id("e1")]);
}

/// dockerd gives up waiting, and asks for another, before the first has its lease.
#[test]
fn of_two_endpoints_made_at_once_the_last_is_kept() {
    let mut rig = with_network();
    rig.server = Server::Silent;
    let creates = ["e1", "e2"].map(|name| rig.create_endpoint(name, OWN));
    rig.server = Server::Up;
    rig.run_for(20.0);
    assert_eq!(*rig.fault(creates[0]), NetworkFault::Ends(id("e1")));
    let links: Vec<_> = rig.wired.links.keys().cloned().collect();
    assert_eq!(links, [crate::link::own::LinkOwner::Endpoint(id("e2"))]);
    assert_eq!((rig.rows().len(), rig.sends(7)), (1, 0));
    rig.delete_endpoint("e2");
    rig.run_for(10.0);
    assert_eq!((rig.rows().len(), rig.sends(7)), (0, 1));
}
