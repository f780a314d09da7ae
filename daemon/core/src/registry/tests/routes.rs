//! Routes that are put on when the address is there and the link is up: those that the main plugin does not get, and those
//! that the kernel removed with the link.

use super::super::*;
use super::rig::*;
use crate::grant::policy::{OnChange, OnExpiry, Policy};
use crate::link::{KernelMessage, LinkRoute, Step};
use crate::profile::Profile;
use crate::record::RecordState;

const HOST: &str = "192.0.2.50/32";
const A: &str = "192.0.2.50/24";

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

impl Rig {
    fn routes_due(&self) -> bool {
        self.only_record()
            .former
            .as_ref()
            .is_some_and(|former| former.routes_due)
    }
}

/// An ADD of a /32 with a router elsewhere, whose main plugin cannot add what is not in the subnet.
fn added() -> Rig {
    let mut rig = Rig::new(8);
    rig.profile = Profile::from(Policy {
        late_routes: true,
        ..Policy::default()
    });
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
fn late_routes_are_put_on_with_the_address() {
    let mut rig = added();
    rig.run_until(1010.0);
    assert!(rig.steps.is_empty() && rig.routes_due());
    rig.configure(HOST);
    assert_eq!(
        (rig.steps.clone(), rig.only_record().former.clone()),
        (off_link().to_vec(), None)
    );
    let wakes = rig.run_until(2000.0);
    assert_eq!((rig.steps.len(), wakes < 10), (2, true), "once");
}

#[test]
fn what_the_main_plugin_is_told_of_is_left_to_it() {
    let mut rig = Rig::new(8);
    rig.profile = Profile::from(Policy {
        late_routes: true,
        ..Policy::default()
    });
    // 198.51.100.0/24 on the link, and a default route by a router of the subnet.
    rig.options = vec![121, 13, 24, 198, 51, 100, 0, 0, 0, 0, 0, 192, 0, 2, 1];
    rig.add("a", 1, "a");
    rig.configure(A);
    assert_eq!(rig.steps, [route("198.51.100.0/24", None)]);
}

#[test]
fn they_are_put_on_whatever_the_network_says_of_changes() {
    let mut rig = Rig::new(8);
    rig.profile = Profile::from(Policy {
        late_routes: true,
        on_change: OnChange::Keep,
        ..Policy::default()
    });
    rig.options = vec![3, 4, 203, 0, 113, 1];
    rig.bind();
    assert_eq!(rig.steps, off_link());
}

#[test]
fn a_refused_route_keeps_no_other_route_off() {
    let mut rig = Rig::new(8);
    rig.profile = Profile::from(Policy {
        late_routes: true,
        ..Policy::default()
    });
    // Two routes without a router.
    rig.options = vec![
        121, 16, 24, 198, 51, 100, 0, 0, 0, 0, 24, 203, 0, 113, 0, 0, 0, 0,
    ];
    rig.add("a", 1, "a");
    rig.faults = [(0, LinkCause::refused("add the route", "no"))].into();
    rig.configure(A);
    assert_eq!(
        (rig.steps.clone(), rig.only_record().former.clone()),
        (vec![route("203.0.113.0/24", None)], None)
    );
}

#[test]
fn an_add_that_is_asked_again_has_them_again() {
    let mut rig = added();
    rig.configure(HOST);
    rig.take_off(HOST);
    rig.steps.clear();
    rig.add("a", 1, "a");
    rig.configure(HOST);
    assert_eq!(rig.steps, off_link());
}

#[test]
fn an_adopted_container_keeps_the_routes_that_it_has() {
    let mut rig = Rig::new(8);
    rig.profile = Profile::from(Policy {
        late_routes: true,
        ..Policy::default()
    });
    rig.options = vec![3, 4, 203, 0, 113, 1];
    rig.interface.put(A.parse().unwrap());
    let add = rig.call("a", 1, "a");
    let adoptees = vec![crate::effect::Adoptee {
        mac: None,
        add,
        address: A.parse().unwrap(),
    }];
    rig.input(Input::Start {
        boot: BootId("b".into()),
        records: vec![],
        doors: vec![],
        spooled: vec![],
        adoptees,
    });
    rig.run_until(1020.0);
    assert_eq!((rig.state("a"), rig.steps.clone()), (vec!["BOUND"], vec![]));
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
fn what_the_kernel_took_with_the_link_comes_back_with_it() {
    for on_change in [OnChange::Apply, OnChange::Keep] {
        let mut rig = bound(Profile::from(Policy {
            on_change,
            ..Policy::default()
        }));
        rig.set_down(true);
        rig.run_until(1010.0);
        assert!(
            rig.steps.is_empty(),
            "the kernel takes none while the link is down"
        );
        rig.set_down(false);
        assert_eq!(
            rig.steps,
            [route("0.0.0.0/0", Some("192.0.2.1"))],
            "{on_change:?}"
        );
        rig.run_until(1020.0);
        assert_eq!(
            (rig.steps.len(), rig.only_record().former.clone()),
            (1, None)
        );
    }
}

#[test]
fn a_link_down_without_a_lease_has_its_routes_again() {
    let mut rig = bound(Profile::from(Policy {
        on_expiry: OnExpiry::Keep,
        ..Policy::default()
    }));
    rig.server = Server::Silent;
    rig.run_until(30_000.0);
    assert_eq!(rig.only_record().state, RecordState::Seeking);
    rig.set_down(true);
    rig.run_until(30_010.0);
    rig.set_down(false);
    assert_eq!(rig.steps, [], "without a lease nothing is put on");
    rig.server = Server::Up;
    rig.run_until(30_200.0);
    assert_eq!(
        (rig.on_link(), rig.steps.clone()),
        (
            vec![A.to_owned()],
            vec![route("0.0.0.0/0", Some("192.0.2.1"))]
        )
    );
}

#[test]
fn a_carrier_loss_changes_no_routes() {
    let mut rig = bound(Profile::default());
    rig.tell_carrier(false);
    rig.tell_carrier(true);
    assert!(
        rig.steps.is_empty(),
        "what is missing now was removed by somebody"
    );
}

#[test]
fn a_link_that_comes_up_without_its_address_has_no_routes() {
    let mut rig = bound(Profile::default());
    rig.set_down(true);
    rig.take_off(A);
    rig.set_down(false);
    assert!(rig.steps.is_empty());
    rig.configure(A);
    assert!(
        rig.steps.is_empty(),
        "who takes the address off and puts it on again sees to its routes"
    );
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
    rig.input(Input::Kernel(KernelMessage::Down((Cookie(1), 2))));
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
    rig.input(Input::Done {
        op,
        outcome: seen_down,
    });
    assert_eq!(
        rig.steps,
        [route("0.0.0.0/0", Some("192.0.2.1"))],
        "the look told of a link that is up by now"
    );
}
