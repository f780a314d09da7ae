//! Interfaces that Docker sets up: what a lease gives one besides the address and the router is put on once Docker has
//! finished.

use super::networks::{OWN, endpoint, network, with_network};
use super::rig::*;

/// How long Docker is left to itself with an interface that is up, in seconds.
const SETUP: f64 = 0.5;

/// An endpoint whose lease has this option 121, and what Docker is told when it joins it.
fn joined(option: &[u8]) -> (Rig, Vec<String>) {
    let mut rig = with_network();
    rig.profile.policy.suppress_default_route = true;
    rig.profile.policy.follow_router = true;
    rig.options = option.to_vec();
    rig.create_endpoint("e1", OWN);
    let told = told(&mut rig);
    (rig, told)
}

fn told(rig: &mut Rig) -> Vec<String> {
    let joined = rig.join("e1");
    let Answer::Network(NetworkAnswer::Joined {
        grant: Some(grant), ..
    }) = &joined
    else {
        panic!("{joined:?}")
    };
    grant
        .routes
        .iter()
        .map(|route| format!("{} via {:?}", route.destination, route.via))
        .collect()
}

impl Rig {
    /// Docker moves the link in, and gives it its address.
    fn is_moved_in(&mut self) {
        self.interface.up = false;
        self.moves_in();
        self.configure(A);
    }

    fn is_up(&mut self) {
        self.interface.up = true;
        self.tell_carrier(true);
    }
}

fn steps(rig: &Rig) -> Vec<String> {
    let of_routes = rig.steps.iter().filter_map(|step| match step {
        Step::AddRoute(route) => Some(format!("+{}", route.destination)),
        Step::RemoveRoute(route) => Some(format!("-{}", route.destination)),
        Step::ReplaceDefault { from, to } => Some(format!("{from} > {to}")),
        _ => None,
    });
    of_routes.collect()
}

const ROUTE: [u8; 10] = [121, 8, 24, 198, 51, 100, 192, 0, 2, 9];

/// Option 121 with a default route by a router of this number, and a route of its own.
fn routed(last: u8) -> [u8; 15] {
    [
        121,
        13,
        24,
        198,
        51,
        100 + last,
        192,
        0,
        2,
        9,
        0,
        192,
        0,
        2,
        last,
    ]
}

#[test]
fn docker_is_told_only_a_route_to_an_outside_router() {
    assert_eq!(joined(&ROUTE).1, [""; 0]);
    assert_eq!(
        joined(&[3, 4, 203, 0, 113, 1]).1,
        ["203.0.113.1/32 via None"]
    );
    assert_eq!(joined(&[3, 4, 192, 0, 2, 1]).1, [""; 0]);
    // The router that the network names.
    let mut rig = Rig::new(8);
    let gateway = Some("203.0.113.7".parse().unwrap());
    rig.create(NetworkRecord {
        gateway,
        ..network("n1")
    });
    rig.options = vec![3, 4, 192, 0, 2, 1];
    rig.create_endpoint("e1", OWN);
    assert_eq!(told(&mut rig), ["203.0.113.7/32 via None"]);
}

#[test]
fn routes_are_put_on_once_after_dockers_setup() {
    for restarts in [false, true] {
        let (mut rig, _) = joined(&ROUTE);
        rig.is_moved_in();
        rig.run_for(3.0);
        rig.is_up();
        rig.run_for(SETUP - 0.01);
        // Docker puts its own on, and checks the next network against all there are.
        assert_eq!(steps(&rig), [""; 0]);
        match restarts {
            true => rig.restart(),
            false => _ = rig.run_for(0.02),
        }
        assert_eq!(steps(&rig), ["+198.51.100.0/24"]);
        rig.run_for(100.0);
        let found = (steps(&rig).len(), rig.only_record().former.clone());
        assert_eq!(found, (1, None));
    }
}

#[test]
fn a_link_set_down_during_setup_is_waited_for_anew() {
    let (mut rig, _) = joined(&ROUTE);
    rig.is_moved_in();
    rig.is_up();
    rig.run_for(SETUP - 0.1);
    rig.interface.up = false;
    rig.kernel(KernelMessage::Down((Cookie(1), 2)));
    rig.run_for(5.0);
    rig.is_up();
    rig.run_for(SETUP - 0.1);
    assert_eq!(steps(&rig), [""; 0]);
    rig.run_for(0.2);
    assert_eq!(steps(&rig), ["+198.51.100.0/24"]);
}

#[test]
fn a_change_moves_on_to_the_next_interface() {
    let (mut rig, _) = joined(&routed(1));
    rig.options = routed(2).to_vec();
    rig.run_until(rig.t1() + 1.0);
    let link = rig.link_of(&endpoint()).expect("Docker's link").clone();
    for goes in [true, false] {
        rig.is_moved_in();
        rig.is_up();
        rig.run_for(SETUP - 0.1);
        if goes {
            rig.inside.remove(&OWN);
            rig.interface.carry([]);
            rig.kernel(KernelMessage::LinkGone((Cookie(1), 2)));
            rig.link_returns(link.clone());
            rig.run_for(1.0);
        }
        assert_eq!(steps(&rig), [""; 0]);
    }
    rig.run_for(0.2);
    assert_eq!(
        steps(&rig),
        [
            "+198.51.102.0/24",
            "-198.51.101.0/24",
            "192.0.2.1 > 192.0.2.2"
        ]
    );
}
