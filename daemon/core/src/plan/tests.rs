use std::net::Ipv4Addr;

use super::*;
use crate::grant::Route;
use crate::grant::policy::Policy;
use crate::grant::tests::{extra, lease, with_mtu};
use crate::source::Lease;

fn show(step: &Step) -> String {
    match step {
        Step::Up => "up".to_owned(),
        Step::Mtu(mtu) => format!("mtu {mtu}"),
        Step::AddAddress(address) => format!("+{address}"),
        Step::RemoveAddress(address) => format!("-{address}"),
        Step::AddRoute(added) => format!("+{added}"),
        Step::RemoveRoute(removed) => format!("-{removed}"),
        Step::ReplaceDefault { from, to } => format!("{from} > {to}"),
        Step::Abandon => "abandon".to_owned(),
    }
}

/// What an interface carries of leases.
#[derive(Clone, Copy)]
struct From<'a> {
    leases: &'a [&'a Lease],
    bare: bool,
    unrouted: bool,
    addresses: &'a [IpNet],
}

fn from<'a>(leases: &'a [&'a Lease]) -> From<'a> {
    From {
        leases,
        bare: false,
        unrouted: false,
        addresses: &[],
    }
}

fn way(from: &From<'_>, next: Option<&Lease>, policy: &Policy) -> Vec<Step> {
    let From {
        leases,
        bare,
        unrouted,
        addresses,
    } = *from;
    let grants: Vec<_> = leases.iter().map(|lease| lease.grant(policy)).collect();
    let next = next.map(|lease| lease.grant(policy));
    difference(
        &Before {
            grants: &grants,
            bare,
            unrouted,
            router: None,
            addresses,
        },
        next.as_ref(),
    )
}

/// Returns the steps as text.
fn shown(steps: &[Step]) -> String {
    steps.iter().map(show).collect::<Vec<_>>().join(", ")
}

fn steps(from: &From<'_>, next: Option<&Lease>) -> String {
    shown(&way(from, next, &Policy::default()))
}

#[test]
fn a_change_keeps_a_valid_address_at_every_step() {
    const A: &str = "192.0.2.50/24";
    let via = "0.0.0.0/0 192.0.2.1";
    let table: [(&str, Lease, Option<Lease>, &str); 12] = [
        ("nothing", lease(A, &[via]), Some(lease(A, &[via])), ""),
        (
            "another subnet",
            lease(A, &[via]),
            Some(lease("198.51.100.7/24", &["0.0.0.0/0 198.51.100.1"])),
            "+198.51.100.7/24, +0.0.0.0/0 via 198.51.100.1, -0.0.0.0/0 via 192.0.2.1, \
             -192.0.2.50/24",
        ),
        (
            "the same subnet",
            lease(A, &[via]),
            Some(lease("192.0.2.51/24", &[via])),
            "+192.0.2.51/32, -192.0.2.50/24, +192.0.2.51/24, -192.0.2.51/32",
        ),
        (
            "the same subnet and another router",
            lease(A, &[via]),
            Some(lease("192.0.2.51/24", &["0.0.0.0/0 192.0.2.2"])),
            "+192.0.2.51/32, -192.0.2.50/24, +192.0.2.51/24, -192.0.2.51/32, \
             +0.0.0.0/0 via 192.0.2.2, -0.0.0.0/0 via 192.0.2.1",
        ),
        (
            "another mask: the kernel takes the same address for another one",
            lease(A, &[]),
            Some(lease("192.0.2.50/16", &[])),
            "+192.0.2.50/16, -192.0.2.50/24",
        ),
        (
            "another router",
            lease(A, &[via]),
            Some(lease(A, &["0.0.0.0/0 192.0.2.2"])),
            "+0.0.0.0/0 via 192.0.2.2, -0.0.0.0/0 via 192.0.2.1",
        ),
        (
            "another MTU: the kernel takes routes that differ in it for the same",
            with_mtu(lease(A, &[via]), 1400),
            Some(with_mtu(lease(A, &[via]), 1300)),
            "-0.0.0.0/0 via 192.0.2.1 mtu 1400, +0.0.0.0/0 via 192.0.2.1 mtu 1300",
        ),
        (
            "routes more and less",
            lease(A, &[via, "10.0.0.0/8 192.0.2.9", "172.16.0.0/12"]),
            Some(lease(A, &[via, "10.1.0.0/16 192.0.2.9"])),
            "+10.1.0.0/16 via 192.0.2.9, -10.0.0.0/8 via 192.0.2.9, -172.16.0.0/12",
        ),
        (
            "a router outside the subnet",
            lease(A, &[via]),
            Some(lease("192.0.2.50/24", &["0.0.0.0/0 203.0.113.1"])),
            "+203.0.113.1/32, +0.0.0.0/0 via 203.0.113.1, -0.0.0.0/0 via 192.0.2.1",
        ),
        (
            "a router outside the subnet that the server gave a route to",
            lease(A, &[]),
            Some(lease(A, &["0.0.0.0/0 203.0.113.1", "203.0.113.0/24"])),
            "+203.0.113.0/24, +0.0.0.0/0 via 203.0.113.1",
        ),
        (
            "everything goes, what needs another route first",
            lease(A, &["0.0.0.0/0 203.0.113.1"]),
            None,
            "-0.0.0.0/0 via 203.0.113.1, -203.0.113.1/32, -192.0.2.50/24",
        ),
        (
            "a /32 to another",
            lease("192.0.2.5/32", &[]),
            Some(lease("192.0.2.6/32", &[])),
            "+192.0.2.6/32, -192.0.2.5/32",
        ),
    ];
    for (what, former, next, expected) in table {
        assert_eq!(steps(&from(&[&former]), next.as_ref()), expected, "{what}");
    }
}

#[test]
fn an_unknown_interface_gets_everything() {
    let lost = lease("192.0.2.50/24", &["0.0.0.0/0 192.0.2.1"]);
    let all = "+192.0.2.50/24, +0.0.0.0/0 via 192.0.2.1";
    for leases in [vec![], vec![&lost]] {
        let mut before = from(&leases);
        before.bare = true;
        assert_eq!(steps(&before, Some(&lost)), all);
    }
}

#[test]
fn two_changes_are_undone_if_the_first_was_cut_short() {
    let a = lease("192.0.2.50/24", &["0.0.0.0/0 192.0.2.1"]);
    let b = lease("198.51.100.7/24", &["0.0.0.0/0 198.51.100.1"]);
    let c = lease("192.0.2.60/24", &["0.0.0.0/0 192.0.2.1"]);
    let expected = "+192.0.2.60/32, -192.0.2.50/24, +192.0.2.60/24, -192.0.2.60/32, +0.0.0.0/0 via 192.0.2.1, \
     -0.0.0.0/0 via 198.51.100.1, -198.51.100.7/24";
    assert_eq!(steps(&from(&[&a, &b]), Some(&c)), expected);
    let back =
        "+192.0.2.50/24, +0.0.0.0/0 via 192.0.2.1, -0.0.0.0/0 via 198.51.100.1, -198.51.100.7/24";
    assert_eq!(steps(&from(&[&a, &b]), Some(&a)), back);
}

#[test]
fn foreign_addresses_that_the_kernel_deletes_are_put_back() {
    let (a, b) = (lease("192.0.2.50/24", &[]), lease("192.0.2.51/24", &[]));
    let addresses: Vec<IpNet> = ["192.0.2.50/24", "192.0.2.99/24", "10.0.0.1/8"]
        .map(|a| a.parse().expect("an address"))
        .into();
    let held = [&a];
    let mut before = from(&held);
    before.addresses = &addresses;
    let swapped = "+192.0.2.51/32, +192.0.2.99/32, -192.0.2.50/24, +192.0.2.51/24, +192.0.2.99/24, \
     -192.0.2.99/32, -192.0.2.51/32";
    assert_eq!(steps(&before, Some(&b)), swapped);
    let lost = "+192.0.2.99/32, -192.0.2.50/24, +192.0.2.99/24, -192.0.2.99/32";
    // The last address would take all routes with it.
    assert_eq!(steps(&before, None), lost);
}

#[test]
fn many_foreign_addresses_cost_one_step_each() {
    let a = lease("10.0.0.1/8", &[]);
    let crowd = (2..100_000_u32).map(|host| {
        let host = Ipv4Addr::from(0x0a00_0000 + host);
        IpNet::new(host.into(), 8).expect("8 is a prefix length")
    });
    let addresses: Vec<_> = [a.address.into()].into_iter().chain(crowd).collect();
    let held = [&a];
    let mut before = from(&held);
    before.addresses = &addresses;
    let found = way(&before, None, &Policy::default()).len();
    assert_eq!(found, addresses.len() + 2 * MAX_MEANWHILE);
}

#[test]
fn a_cut_change_removes_its_temporary_address() {
    let [a, b, c] =
        ["192.0.2.50/24", "192.0.2.51/24", "198.51.100.7/24"].map(|address| lease(address, &[]));
    let addresses = ["192.0.2.50/24", "192.0.2.51/32"].map(|a| a.parse().expect("an address"));
    let (held, both) = ([&a], [&a, &b]);
    let mut again = from(&held);
    again.addresses = &addresses;
    let swapped = "+192.0.2.51/32, -192.0.2.50/24, +192.0.2.51/24, -192.0.2.51/32";
    assert_eq!(steps(&again, Some(&b)), swapped);
    let mut on = again;
    on.leases = &both;
    let all = "+198.51.100.7/24, -192.0.2.50/24, -192.0.2.51/24, -192.0.2.51/32";
    assert_eq!(steps(&on, Some(&c)), all);
}

#[test]
fn missing_routes_are_put_on_without_the_address() {
    let given = lease("192.0.2.50/24", &["0.0.0.0/0 203.0.113.1"]);
    let all = "+203.0.113.1/32, +0.0.0.0/0 via 203.0.113.1";
    let unrouted = |leases| From {
        unrouted: true,
        ..from(leases)
    };
    assert_eq!(steps(&unrouted(&[]), Some(&given)), all);
    assert_eq!(steps(&unrouted(&[&given]), Some(&given)), all);
}

#[test]
fn what_differs_in_its_mtu_is_not_the_same() {
    let [plain, small] = [
        lease("192.0.2.50/24", &[]),
        with_mtu(lease("192.0.2.50/24", &[]), 1400),
    ]
    .map(|lease| lease.grant(&Policy::default()));
    assert!(!same(&plain, &small) && same(&small, &small));
}

#[test]
fn other_tables_and_families_are_left_to_the_main_plugin() {
    let policy = Policy {
        suppress_default_route: true,
        metric: Some(7),
        routes: vec![
            extra("10.1.0.0/16", Some("192.0.2.9")),
            Route {
                table: Some(7),
                ..extra("10.3.0.0/16", None)
            },
            extra("fd00::/8", Some("fd00::1")),
        ],
        ..Policy::default()
    };
    let gone = shown(&way(
        &from(&[&lease("192.0.2.50/24", &["0.0.0.0/0 192.0.2.1"])]),
        None,
        &policy,
    ));
    assert_eq!(gone, "-10.1.0.0/16 via 192.0.2.9 metric 7, -192.0.2.50/24");
}

#[test]
fn a_foreign_default_route_follows_the_leases_router() {
    let policy = Policy {
        suppress_default_route: true,
        follow_router: true,
        ..Policy::default()
    };
    let by = |address: &str, router: Option<&str>| {
        let via: Vec<_> = router
            .iter()
            .map(|router| format!("0.0.0.0/0 {router}"))
            .collect();
        lease(address, &via.iter().map(String::as_str).collect::<Vec<_>>())
    };
    const A: &str = "192.0.2.50/24";
    let [one, two, none] = [Some("192.0.2.1"), Some("192.0.2.2"), None].map(|router| by(A, router));
    let elsewhere = by("198.51.100.7/24", Some("198.51.100.1"));
    let table: [(&[&Lease], Option<&Lease>, &str); 7] = [
        (&[], Some(&one), ""),
        (&[&one], Some(&one), ""),
        (&[&one], Some(&two), "192.0.2.1 > 192.0.2.2"),
        (&[&one, &two], Some(&none), ""),
        (&[&one, &two], Some(&one), "192.0.2.2 > 192.0.2.1"),
        (
            &[&one],
            Some(&elsewhere),
            "+198.51.100.7/24, 192.0.2.1 > 198.51.100.1, -192.0.2.50/24",
        ),
        (&[&one], None, "-192.0.2.50/24"),
    ];
    for (before, next, expected) in table {
        let found = shown(&way(&from(before), next, &policy));
        assert_eq!(found, expected, "{before:?} to {next:?}");
    }
    let lost = Before {
        grants: &[],
        bare: true,
        unrouted: false,
        router: one.gateway.map(Into::into),
        addresses: &[],
    };
    let found = difference(&lost, Some(&two.grant(&policy)));
    assert_eq!(shown(&found), "+192.0.2.50/24, 192.0.2.1 > 192.0.2.2");
    let mut left_alone = policy;
    left_alone.follow_router = false;
    assert!(shown(&way(&from(&[&one]), Some(&two), &left_alone)).is_empty());
    let [one, two] = [one, two].map(|lease| {
        (
            lease.grant(&left_alone),
            lease.grant(&Policy {
                follow_router: true,
                ..left_alone.clone()
            }),
        )
    });
    assert!(same(&one.0, &two.0) && !same(&one.1, &two.1));
}

/// There is no IPv6 lease yet. What an interface carries of IPv6 is planned as for IPv4, except for the kernel's secondary
/// addresses, which IPv6 does not have.
#[test]
fn an_interface_carries_two_families_side_by_side() {
    let v4 = lease("192.0.2.50/24", &["0.0.0.0/0 192.0.2.1"]).grant(&Policy::default());
    let via = |destination: &str, via: &str| {
        let destination = destination.parse().expect("a subnet");
        let via = via.parse().expect("an address");
        Route::new(destination, Some(via))
    };
    let v6 = |host: &str, router: &str| Grant {
        addresses: vec![host.parse().expect("an address")],
        routes: vec![via("::/0", router)],
        ..Grant::default()
    };
    let seen: Vec<IpNet> = [&v4, &v6("2001:db8::5/64", "fe80::1")]
        .iter()
        .flat_map(|grant| grant.addresses.clone())
        .collect();
    let carried = |grants, bare| Before {
        grants,
        bare,
        unrouted: false,
        router: None,
        addresses: &seen,
    };
    let shown = |before: &Before<'_>, next| shown(&difference(before, next));
    let first = v6("2001:db8::5/64", "fe80::1");
    let found = shown(&carried(&[], true), Some(&first));
    assert_eq!(found, "+2001:db8::5/64, +::/0 via fe80::1");
    let next = v6("2001:db8::6/64", "fe80::2");
    let changed = "+2001:db8::6/64, +::/0 via fe80::2, -::/0 via fe80::1, -2001:db8::5/64";
    assert_eq!(
        shown(&carried(std::slice::from_ref(&first), false), Some(&next)),
        changed
    );
    let lost = "-0.0.0.0/0 via 192.0.2.1, -192.0.2.50/24";
    let found = shown(&carried(std::slice::from_ref(&v4), false), None);
    assert_eq!(found, lost, "the other family is left alone");
}
