//! Routes that are put on when the address is there and the link is up: those that the main plugin does not get, and those
//! that the kernel removed with the link.

use super::rig::*;

const HOST: &str = "192.0.2.50/32";

fn route(destination: &str, via: Option<&str>) -> Step {
    Step::AddRoute(LinkRoute {
        destination: destination.parse().unwrap(),
        via: via.map(|via| via.parse().unwrap()),
        ..LinkRoute::default()
    })
}

/// The routes by a router that is not in the subnet.
fn off_link() -> [Step; 2] {
    [
        route("203.0.113.1/32", None),
        route("0.0.0.0/0", Some("203.0.113.1")),
    ]
}

/// An ADD of a /32 with a router elsewhere, whose main plugin cannot add what is not in the subnet.
fn added() -> Rig {
    let mut rig = Rig::new(8);
    rig.profile.policy.late_routes = true;
    (rig.mask, rig.options, rig.lease) = ([255, 255], vec![3, 4, 203, 0, 113, 1], 10_000);
    rig.add("a", 1, "a");
    assert!(
        rig.answers
            .values()
            .any(|answer| matches!(answer, Answer::Leased { .. }))
    );
    rig
}

#[test]
fn late_routes_are_put_on_whatever_on_change_says() {
    let mut rig = Rig::new(8);
    rig.profile.policy.late_routes = true;
    rig.profile.policy.on_change = OnChange::Keep;
    rig.options = vec![3, 4, 203, 0, 113, 1];
    rig.bind();
    assert_eq!(rig.steps, off_link());
}

#[test]
fn an_add_that_comes_again_has_late_routes_again() {
    let mut rig = added();
    rig.configure(HOST);
    rig.take_off(HOST);
    rig.steps.clear();
    rig.add("a", 1, "a");
    rig.configure(HOST);
    assert_eq!(rig.steps, off_link());
}

/// An ADD with a default route, all of which is on the interface.
fn bound(profile: Profile) -> Rig {
    let mut rig = Rig::new(8);
    (rig.profile, rig.lease) = (profile, 10_000);
    rig.options = vec![3, 4, 192, 0, 2, 1];
    rig.bind();
    assert!(rig.steps.is_empty());
    rig
}

#[test]
fn a_link_that_comes_up_without_its_address_has_no_routes() {
    let mut rig = bound(Profile::default());
    rig.set_down(true);
    rig.take_off(A);
    rig.set_down(false);
    assert!(rig.steps.is_empty());
    rig.configure(A);
    // Who takes the address off and puts it on again sees to its routes.
    assert!(rig.steps.is_empty());
}

#[test]
fn a_lease_changed_on_a_down_link_has_all_routes_later() {
    let mut rig = bound(Profile::default());
    rig.set_down(true);
    rig.options = vec![121, 11, 0, 192, 0, 2, 1, 8, 10, 192, 0, 2, 1];
    rig.set_down(false);
    rig.steps.clear();
    rig.set_down(true);
    rig.run_until(6100.0);
    assert!(
        !rig.steps
            .iter()
            .any(|step| matches!(step, Step::AddRoute(_))),
        "{:?}",
        rig.steps
    );
    rig.set_down(false);
    let both = [
        route("0.0.0.0/0", Some("192.0.2.1")),
        route("10.0.0.0/8", Some("192.0.2.1")),
    ];
    assert!(
        both.iter().all(|route| rig.steps.contains(route)),
        "{:?}",
        rig.steps
    );
}

#[test]
fn a_link_down_during_a_change_of_routes_gets_them_again() {
    let mut rig = bound(Profile::default());
    rig.set_down(true);
    rig.hold_changes = true;
    rig.set_down(false);
    rig.interface.up = false;
    rig.kernel(KernelMessage::Down((Cookie(1), 2)));
    rig.faults = [(0, LinkCause::refused("add the route", "Network is down"))].into();
    rig.change_late();
    rig.set_down(false);
    assert_eq!(rig.steps, [route("0.0.0.0/0", Some("192.0.2.1"))]);
}

#[test]
fn a_link_that_comes_up_during_a_look_gets_its_routes() {
    let mut rig = bound(Profile::default());
    rig.hold_looks = true;
    rig.set_down(true);
    let (op, seen_down) = rig
        .looks
        .pop_front()
        .expect("a look at the link that went down");
    rig.set_down(false);
    rig.hold_looks = false;
    rig.end(op, seen_down);
    // The look told of a link that is up by now.
    assert_eq!(rig.steps, [route("0.0.0.0/0", Some("192.0.2.1"))]);
}
