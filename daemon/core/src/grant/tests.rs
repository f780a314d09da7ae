use std::num::NonZeroU16;
use std::time::Duration;

use super::Route;
use super::policy::Policy;
use crate::source::{Lease, lease};
use crate::time::Instant;

/// Returns a lease of an address, with routes such as `10.0.0.0/8 192.0.2.9` or, on the link, `10.0.0.0/8`.
pub(crate) fn lease(address: &str, routes: &[&str]) -> Lease {
    let route = |text: &&str| {
        let (destination, via) = text
            .split_once(' ')
            .map_or((*text, None), |(d, via)| (d, Some(via)));
        lease::LeaseRoute {
            destination: destination.parse().expect("a subnet"),
            via: via.map(|via| via.parse().expect("an address")),
        }
    };
    let routes: Vec<_> = routes.iter().map(route).collect();
    Lease {
        gateway: routes
            .iter()
            .find(|route| route.destination.prefix_len() == 0)
            .and_then(|route| route.via),
        routes,
        ..Lease::unknown(
            address.parse().expect("an address"),
            Instant::from_boot(Duration::ZERO),
        )
    }
}

pub(crate) fn with_mtu(lease: Lease, mtu: u16) -> Lease {
    Lease {
        mtu: NonZeroU16::new(mtu),
        ..lease
    }
}

/// Returns a route of a configuration.
pub(crate) fn extra(destination: &str, gateway: Option<&str>) -> Route {
    Route::new(
        destination.parse().expect("a subnet"),
        gateway.map(|gateway| gateway.parse().expect("an address")),
    )
}

#[test]
fn a_profile_shapes_the_routes() {
    let policy = Policy {
        suppress_default_route: true,
        metric: Some(7),
        routes: vec![
            extra("10.0.0.0/8", None),
            extra("10.1.0.0/16", Some("192.0.2.9")),
            extra("10.2.0.0/16", Some("0.0.0.0")),
            Route {
                table: Some(7),
                ..extra("10.3.0.0/16", None)
            },
            Route {
                metric: Some(3),
                mtu: Some(1300),
                ..extra("fd00::/8", None)
            },
        ],
        ..Policy::default()
    };
    let given = with_mtu(
        lease(
            "192.0.2.50/24",
            &["0.0.0.0/0 192.0.2.1", "172.16.0.0/12 192.0.2.8"],
        ),
        1400,
    );
    let shown: Vec<_> = given
        .grant(&policy)
        .routes
        .iter()
        .map(|r| {
            format!(
                "{} {:?} {:?} {:?} {:?}",
                r.destination, r.via, r.metric, r.mtu, r.table
            )
        })
        .collect();
    assert_eq!(
        shown,
        [
            "10.2.0.0/16 None Some(7) None None",
            "fd00::/8 None Some(3) Some(1300) None",
            "172.16.0.0/12 Some(192.0.2.8) Some(7) Some(1400) None",
            "10.0.0.0/8 Some(192.0.2.1) Some(7) None None",
            "10.1.0.0/16 Some(192.0.2.9) Some(7) None None",
            "10.3.0.0/16 Some(192.0.2.1) Some(7) None Some(7)",
        ]
    );
}

#[test]
fn a_grant_has_each_destination_once() {
    let twice = [
        "0.0.0.0/0 192.0.2.1",
        "0.0.0.0/0 192.0.2.2",
        "10.0.0.0/8 192.0.2.3",
        "10.0.0.0/8 192.0.2.3",
    ];
    let more = [
        "192.0.2.0/24",
        "203.0.113.1/32",
        "198.51.100.0/24 203.0.113.1",
        "172.16.0.0/12 192.0.2.4",
    ];
    let given = lease("192.0.2.50/24", &[&twice[..], &more].concat());
    let own = extra("172.16.9.9/12", Some("192.0.2.9"));
    let elsewhere = [
        Route {
            metric: Some(7),
            ..own.clone()
        },
        Route {
            table: Some(9),
            ..own.clone()
        },
    ];
    let policy = Policy {
        routes: [vec![own], elsewhere.into()].concat(),
        ..Policy::default()
    };
    let show = |r: &Route| {
        let via = r.via.map(|via| via.to_string()).unwrap_or_default();
        format!("{} {via} {:?} {:?}", r.destination, r.metric, r.table)
    };
    let expected = [
        "203.0.113.1/32  None None",
        "0.0.0.0/0 192.0.2.1 None None",
        "10.0.0.0/8 192.0.2.3 None None",
        "198.51.100.0/24 203.0.113.1 None None",
        "172.16.9.9/12 192.0.2.9 None None",
        "172.16.9.9/12 192.0.2.9 Some(7) None",
        "172.16.9.9/12 192.0.2.9 None Some(9)",
    ];
    assert_eq!(
        given
            .grant(&policy)
            .routes
            .iter()
            .map(show)
            .collect::<Vec<_>>(),
        expected
    );
}

#[test]
fn a_main_plugin_is_not_told_routes_that_it_cannot_add() {
    let late = Policy {
        late_routes: true,
        ..Policy::default()
    };
    let told = |lease: &Lease, policy: &Policy| {
        let show = |r: &Route| {
            format!(
                "{} {}",
                r.destination,
                r.via.map(|via| via.to_string()).unwrap_or_default()
            )
        };
        let grant = lease.grant(policy);
        let has_late = grant.has_late();
        (
            grant
                .without_late()
                .routes
                .iter()
                .map(show)
                .collect::<Vec<_>>(),
            has_late,
        )
    };
    let off_link = [
        "203.0.113.1/32 ".to_owned(),
        "0.0.0.0/0 203.0.113.1".to_owned(),
    ];
    for address in ["192.0.2.50/32", "192.0.2.50/24"] {
        let lease = lease(address, &["0.0.0.0/0 203.0.113.1"]);
        assert_eq!(told(&lease, &late), (vec![], true), "{address}");
        let found = told(&lease, &Policy::default());
        assert_eq!(found, (off_link.to_vec(), false), "{address}");
    }
    let mixed = lease(
        "192.0.2.50/24",
        &[
            "0.0.0.0/0 192.0.2.1",
            "10.0.0.0/8",
            "172.16.0.0/12 10.0.0.1",
        ],
    );
    let found = told(&mixed, &late);
    assert_eq!(found, (vec!["0.0.0.0/0 192.0.2.1".to_owned()], true));
    let plain = lease("192.0.2.50/24", &["0.0.0.0/0 192.0.2.1"]);
    let found = told(&plain, &late);
    assert_eq!(found, (vec!["0.0.0.0/0 192.0.2.1".to_owned()], false));
}

#[test]
fn a_routes_mtu_is_said_only_where_any_link_can_have_it() {
    let mtu = |mtu| {
        let lease = with_mtu(lease("192.0.2.50/24", &["0.0.0.0/0 192.0.2.1"]), mtu);
        lease.grant(&Policy::default()).routes[0].mtu
    };
    assert_eq!((mtu(1500), mtu(9000)), (Some(1500), None));
}
