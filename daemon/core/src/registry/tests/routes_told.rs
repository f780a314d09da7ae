//! Routes that Docker was told of when it joined an endpoint, and that its lease has no more by the time they are on.

use super::super::*;
use super::networks::{LEASED, OWN, endpoint, id, with_network};
use super::rig::*;
use crate::dhcpv4::profile::{OnChange, Profile};
use crate::effect::NetworkCall;
use crate::link::{KernelEvent, Step};

/// Joins an endpoint whose lease has another route soon, which the interface is found with. `down`: before it is set up.
fn rerouted(on_change: OnChange, down: bool) -> Rig {
    let mut rig = with_network();
    rig.profile = Profile { on_change, suppress_default_route: true, ..Profile::default() };
    rig.options = vec![121, 8, 24, 198, 51, 100, 192, 0, 2, 9];
    rig.create_endpoint("e1", OWN);
    rig.network_call(NetworkCall::Join { network: id("n1"), endpoint: id("e1") });
    rig.options = vec![121, 8, 24, 203, 0, 113, 192, 0, 2, 9];
    rig.run_until(rig.t1() + 1.0);
    rig.link_leaves(&endpoint());
    rig.inside.insert(OWN, 1);
    rig.down = down;
    rig.addresses = vec![LEASED.parse().unwrap()];
    rig.input(Input::Kernel(KernelEvent::Appeared { number: 1, mac: OWN }));
    rig
}

fn steps(rig: &Rig) -> Vec<String> {
    let of_routes = rig.steps.iter().filter_map(|step| match step {
        Step::AddRoute(route) => Some(format!("+{}", route.destination)),
        Step::RemoveRoute(route) => Some(format!("-{}", route.destination)),
        _ => None,
    });
    of_routes.collect()
}

#[test]
fn where_docker_puts_routes_on_that_the_lease_has_no_more_the_leases_are_put_in_their_place() {
    for down in [false, true] {
        let mut rig = rerouted(OnChange::Apply, down);
        rig.run_until(rig.at.as_secs_f64() + 5.0);
        if down {
            assert_eq!(steps(&rig), Vec::<String>::new(), "Docker is about to put its own on");
            rig.down = false;
            rig.tell_carrier(true);
        }
        rig.run_until(rig.at.as_secs_f64() + 5.0);
        assert_eq!(steps(&rig), ["+203.0.113.0/24", "-198.51.100.0/24"], "{down}");
        assert_eq!(rig.only_record().former, None);
    }
}

#[test]
fn a_profile_that_keeps_what_is_there_keeps_the_routes_that_docker_was_told_of() {
    let mut rig = rerouted(OnChange::Keep, false);
    rig.run_until(rig.at.as_secs_f64() + 5.0);
    assert_eq!(steps(&rig), Vec::<String>::new());
}
