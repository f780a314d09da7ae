//! Routes that a result below CNI 1.1.0 cannot describe in full, and routes that somebody removes when a container is set up.

use super::rig::*;
use crate::grant::Route;

const SECONDS: u32 = 10_000;

fn extra(destination: &str) -> Route {
    Route::new(destination.parse().unwrap(), None)
}

fn default_route() -> LinkRoute {
    LinkRoute {
        destination: "0.0.0.0/0".parse().unwrap(),
        via: Some("192.0.2.1".parse().unwrap()),
        ..LinkRoute::default()
    }
}

fn metric_500() -> LinkRoute {
    LinkRoute {
        metric: Some(500),
        ..default_route()
    }
}

fn plain(policy: Policy) -> Policy {
    Policy {
        late_routes: true,
        plain_routes: true,
        ..policy
    }
}

/// A container in a network with this policy and a default route, which its main plugin has set up.
fn bound(policy: Policy) -> Rig {
    let mut rig = Rig::new(8);
    (rig.profile, rig.lease) = (policy.into(), SECONDS);
    rig.options = vec![3, 4, 192, 0, 2, 1];
    rig.bind();
    rig
}

fn check(rig: &mut Rig) -> Answer {
    let check = rig.check(&[]);
    rig.answers.remove(&check).expect("an answer")
}

fn lacks(answer: Answer) -> Option<String> {
    match answer {
        Answer::Checked => None,
        Answer::Failed(Failure::NoRoute { route, .. }) => Some(route.to_string()),
        answer => panic!("{answer:?}"),
    }
}

#[test]
fn a_route_that_no_result_can_describe_is_put_on_by_us() {
    let routes = vec![
        Route {
            table: Some(100),
            ..extra("0.0.0.0/0")
        },
        Route {
            mtu: Some(1300),
            ..extra("10.0.0.0/8")
        },
        Route {
            advmss: Some(1200),
            ..extra("10.1.0.0/16")
        },
        Route {
            metric: Some(0),
            table: Some(254),
            ..extra("10.2.0.0/16")
        },
    ];
    let mut rig = bound(plain(Policy {
        routes: routes.clone(),
        ..Policy::default()
    }));
    let told = |rig: &Rig| match &rig.answers[&1] {
        Answer::Leased { tenures } => tenures[0]
            .grant
            .routes
            .iter()
            .map(|route| route.destination.to_string())
            .collect::<Vec<_>>(),
        answer => panic!("{answer:?}"),
    };
    assert_eq!(told(&rig), ["0.0.0.0/0", "10.2.0.0/16"]);
    let to = |destination: &str| LinkRoute {
        destination: destination.parse().unwrap(),
        ..default_route()
    };
    let late = [
        LinkRoute {
            table: Some(100),
            ..default_route()
        },
        LinkRoute {
            mtu: Some(1300),
            ..to("10.0.0.0/8")
        },
        LinkRoute {
            advmss: Some(1200),
            ..to("10.1.0.0/16")
        },
    ];
    assert_eq!(rig.steps, late.clone().map(Step::AddRoute));
    // They go with the lease.
    rig.steps.clear();
    rig.server = Server::Silent;
    rig.run_until(1000.0 + f64::from(SECONDS) + 10.0);
    assert!(
        late.into_iter()
            .all(|route| rig.steps.contains(&Step::RemoveRoute(route))),
        "{:?}",
        rig.steps
    );

    let rig = bound(Policy {
        routes,
        ..Policy::default()
    });
    assert_eq!(
        (told(&rig).len(), rig.steps.len()),
        (5, 0),
        "a later result can say all"
    );
}

#[test]
fn a_route_removed_at_setup_is_not_put_back() {
    for policy in [
        Policy::default(),
        plain(Policy::default()),
        plain(Policy {
            metric: Some(500),
            ..Policy::default()
        }),
    ] {
        for restarts in [false, true] {
            let mut rig = bound(policy.clone());
            // As Multus does for the networks that are not to have the default route.
            rig.interface.routes.clear();
            rig.steps.clear();
            rig.run_until(1061.0);
            if restarts {
                rig.restart();
            }
            rig.set_down(true);
            rig.set_down(false);
            assert_eq!(rig.steps, [], "after the link was down");
            rig.server = Server::Silent;
            rig.run_until(1000.0 + f64::from(SECONDS) + 10.0);
            assert!(rig.on_link().is_empty());
            rig.server = Server::Up;
            rig.run_until(1000.0 + f64::from(SECONDS) + 400.0);
            assert_eq!(
                (rig.state("a"), rig.on_link()),
                (vec!["BOUND"], vec![A.to_owned()])
            );
            let is_default = |step: &&Step| matches!(step, Step::AddRoute(route) if route.destination.prefix_len() == 0);
            assert_eq!(
                rig.steps.iter().find(is_default),
                None,
                "with the next lease"
            );
            assert_eq!(lacks(check(&mut rig)), None);
            // The next ADD begins again.
            rig.del("a");
            rig.interface.carry([]);
            rig.bind();
            assert_eq!(rig.interface.routes.len(), 1);
        }
    }
}

#[test]
fn a_check_misses_a_route_of_the_daemon_that_is_gone() {
    let mut rig = bound(plain(Policy {
        metric: Some(500),
        ..Policy::default()
    }));
    assert_eq!(lacks(check(&mut rig)), None);
    let replaced = Some("0.0.0.0/0 via 192.0.2.1 metric 500");
    for (seconds, lacking) in [(1010.0, None), (1100.0, replaced)] {
        rig.run_until(seconds);
        rig.interface.routes = vec![default_route()];
        assert_eq!(lacks(check(&mut rig)).as_deref(), lacking, "{seconds}");
        rig.interface.routes = vec![metric_500()];
        assert_eq!(lacks(check(&mut rig)), None);
    }
    rig.interface.routes.clear();
    assert_eq!(
        lacks(check(&mut rig)).as_deref(),
        Some("0.0.0.0/0 via 192.0.2.1 metric 500")
    );

    let mut multus = bound(plain(Policy {
        metric: Some(500),
        ..Policy::default()
    }));
    multus.interface.routes.clear();
    assert_eq!(
        lacks(check(&mut multus)),
        None,
        "removed while the container is set up"
    );
    multus.run_until(1100.0);
    assert_eq!(lacks(check(&mut multus)), None);
}

#[test]
fn a_check_sees_an_mtu_that_a_route_lacks() {
    let routes = vec![Route {
        mtu: Some(1300),
        ..extra("10.0.0.0/8")
    }];
    let mut rig = bound(plain(Policy {
        routes,
        ..Policy::default()
    }));
    assert_eq!(lacks(check(&mut rig)), None);
    rig.interface
        .routes
        .iter_mut()
        .for_each(|route| route.mtu = None);
    assert_eq!(
        lacks(check(&mut rig)).as_deref(),
        Some("10.0.0.0/8 via 192.0.2.1 mtu 1300")
    );
}
