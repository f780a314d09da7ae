//! Routes that a result below CNI 1.1.0 cannot describe in full, and routes that somebody removes when a container is set up.

use super::rig::*;
use crate::grant::Route;

const SECONDS: u32 = 10_000;

fn extra(destination: &str, change: impl FnOnce(&mut Route)) -> Route {
    let mut route = Route::new(destination.parse().unwrap(), None);
    change(&mut route);
    route
}

/// Returns a route by way of the server's router.
fn to(destination: &str, change: impl FnOnce(&mut LinkRoute)) -> LinkRoute {
    let (destination, via) = (destination.parse().unwrap(), "192.0.2.1".parse().ok());
    let mut route = LinkRoute {
        destination,
        via,
        ..LinkRoute::default()
    };
    change(&mut route);
    route
}

fn default_route() -> LinkRoute {
    to("0.0.0.0/0", |_| {})
}

fn plain(change: impl FnOnce(&mut Policy)) -> Policy {
    let mut policy = Policy::default();
    (policy.late_routes, policy.plain_routes) = (true, true);
    change(&mut policy);
    policy
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
        extra("0.0.0.0/0", |it| it.table = Some(100)),
        extra("10.0.0.0/8", |it| it.mtu = Some(1300)),
        extra("10.1.0.0/16", |it| it.advmss = Some(1200)),
        extra("10.2.0.0/16", |it| {
            (it.metric, it.table) = (Some(0), Some(254))
        }),
    ];
    let mut rig = bound(plain(|it| it.routes = routes.clone()));
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
    let late = [
        to("0.0.0.0/0", |it| it.table = Some(100)),
        to("10.0.0.0/8", |it| it.mtu = Some(1300)),
        to("10.1.0.0/16", |it| it.advmss = Some(1200)),
    ];
    assert_eq!(rig.steps, late.clone().map(Step::AddRoute));
    // They go with the lease.
    rig.steps.clear();
    rig.server = Server::Silent;
    rig.run_until(1000.0 + f64::from(SECONDS) + 10.0);
    let goes = |route| rig.steps.contains(&Step::RemoveRoute(route));
    assert!(late.into_iter().all(goes), "{:?}", rig.steps);

    let later = plain(|it| (it.routes, it.plain_routes, it.late_routes) = (routes, false, false));
    let rig = bound(later);
    // A later result can say all.
    assert_eq!((told(&rig).len(), rig.steps.len()), (5, 0));
}

#[test]
fn a_route_removed_at_setup_is_not_put_back() {
    let with_metric = plain(|it| it.metric = Some(500));
    for policy in [Policy::default(), plain(|_| {}), with_metric] {
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
            let found = (rig.state("a"), rig.on_link());
            assert_eq!(found, ("BOUND", vec![A.to_owned()]));
            let is_default = |step: &&Step| matches!(step, Step::AddRoute(route) if route.destination.prefix_len() == 0);
            // With the next lease.
            assert_eq!(rig.steps.iter().find(is_default), None);
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
    let policy = plain(|it| it.metric = Some(500));
    let mut rig = bound(policy.clone());
    assert_eq!(lacks(check(&mut rig)), None);
    let missed = Some("0.0.0.0/0 via 192.0.2.1 metric 500");
    for (seconds, lacking) in [(1010.0, None), (1100.0, missed)] {
        rig.run_until(seconds);
        rig.interface.routes = vec![default_route()];
        assert_eq!(lacks(check(&mut rig)).as_deref(), lacking, "{seconds}");
        rig.interface.routes = vec![to("0.0.0.0/0", |it| it.metric = Some(500))];
        assert_eq!(lacks(check(&mut rig)), None);
    }
    rig.interface.routes.clear();
    assert_eq!(lacks(check(&mut rig)).as_deref(), missed);

    let mut multus = bound(policy);
    multus.interface.routes.clear();
    // Removed while the container is set up.
    assert_eq!(lacks(check(&mut multus)), None);
    multus.run_until(1100.0);
    assert_eq!(lacks(check(&mut multus)), None);
}

#[test]
fn a_check_sees_an_mtu_that_a_route_lacks() {
    let routes = vec![extra("10.0.0.0/8", |it| it.mtu = Some(1300))];
    let mut rig = bound(plain(|it| it.routes = routes));
    assert_eq!(lacks(check(&mut rig)), None);
    rig.interface
        .routes
        .iter_mut()
        .for_each(|route| route.mtu = None);
    let missed = lacks(check(&mut rig));
    assert_eq!(missed.as_deref(), Some("10.0.0.0/8 via 192.0.2.1 mtu 1300"));
}
