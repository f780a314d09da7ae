use super::*;
use crate::dhcpv4::lease;
use crate::time::Instant;
use std::time::Duration;

/// Returns a lease of an address, with routes such as `10.0.0.0/8 192.0.2.9` or, on the link, `10.0.0.0/8`.
fn lease(address: &str, routes: &[&str]) -> Lease {
    let route = |text: &&str| {
        let (destination, via) = text.split_once(' ').map_or((*text, None), |(d, via)| (d, Some(via)));
        lease::Route {
            destination: destination.parse().expect("a subnet"),
            via: via.map(|via| via.parse().expect("an address")),
        }
    };
    let routes: Vec<_> = routes.iter().map(route).collect();
    Lease {
        gateway: routes.iter().find(|route| route.destination.prefix_len() == 0).and_then(|route| route.via),
        routes,
        ..Lease::unknown(address.parse().expect("an address"), Instant::from_boot(Duration::ZERO))
    }
}

fn with_mtu(lease: Lease, mtu: u16) -> Lease {
    Lease { mtu: Some(mtu), ..lease }
}

fn show(step: &Step) -> String {
    let route = |LinkRoute { destination, via, metric, mtu }: &LinkRoute| {
        let via = via.map(|via| format!(" via {via}")).unwrap_or_default();
        let metric = metric.map(|metric| format!(" metric {metric}")).unwrap_or_default();
        let mtu = mtu.map(|mtu| format!(" mtu {mtu}")).unwrap_or_default();
        format!("{destination}{via}{metric}{mtu}")
    };
    match step {
        Step::Up => "up".to_owned(),
        Step::Mtu(mtu) => format!("mtu {mtu}"),
        Step::AddAddress(address) => format!("+{address}"),
        Step::RemoveAddress(address) => format!("-{address}"),
        Step::AddRoute(added) => format!("+{}", route(added)),
        Step::RemoveRoute(removed) => format!("-{}", route(removed)),
    }
}

fn steps(before: &Before<'_>, next: Option<&Lease>, profile: &Profile) -> Vec<String> {
    difference(before, next, profile).iter().map(show).collect()
}

fn from(leases: &[Lease]) -> Before<'_> {
    Before { leases, bare: false, unrouted: false, addresses: &[] }
}

#[test]
fn a_change_is_its_difference_in_an_order_that_keeps_a_valid_address() {
    const A: &str = "192.0.2.50/24";
    let via = "0.0.0.0/0 192.0.2.1";
    let table: [(&str, Lease, Option<Lease>, &[&str]); 12] = [
        ("nothing", lease(A, &[via]), Some(lease(A, &[via])), &[]),
        (
            "another subnet",
            lease(A, &[via]),
            Some(lease("198.51.100.7/24", &["0.0.0.0/0 198.51.100.1"])),
            &["+198.51.100.7/24", "+0.0.0.0/0 via 198.51.100.1", "-0.0.0.0/0 via 192.0.2.1", "-192.0.2.50/24"],
        ),
        (
            "the same subnet",
            lease(A, &[via]),
            Some(lease("192.0.2.51/24", &[via])),
            &["+192.0.2.51/32", "-192.0.2.50/24", "+192.0.2.51/24", "-192.0.2.51/32"],
        ),
        (
            "the same subnet and another router",
            lease(A, &[via]),
            Some(lease("192.0.2.51/24", &["0.0.0.0/0 192.0.2.2"])),
            &[
                "+192.0.2.51/32",
                "-192.0.2.50/24",
                "+192.0.2.51/24",
                "-192.0.2.51/32",
                "+0.0.0.0/0 via 192.0.2.2",
                "-0.0.0.0/0 via 192.0.2.1",
            ],
        ),
        (
            "another mask: the kernel takes the same address for another one",
            lease(A, &[]),
            Some(lease("192.0.2.50/16", &[])),
            &["+192.0.2.50/16", "-192.0.2.50/24"],
        ),
        (
            "another router",
            lease(A, &[via]),
            Some(lease(A, &["0.0.0.0/0 192.0.2.2"])),
            &["+0.0.0.0/0 via 192.0.2.2", "-0.0.0.0/0 via 192.0.2.1"],
        ),
        (
            "another MTU: the kernel takes routes that differ in it for the same",
            with_mtu(lease(A, &[via]), 1400),
            Some(with_mtu(lease(A, &[via]), 1300)),
            &["-0.0.0.0/0 via 192.0.2.1 mtu 1400", "+0.0.0.0/0 via 192.0.2.1 mtu 1300"],
        ),
        (
            "routes more and less",
            lease(A, &[via, "10.0.0.0/8 192.0.2.9", "172.16.0.0/12"]),
            Some(lease(A, &[via, "10.1.0.0/16 192.0.2.9"])),
            &["+10.1.0.0/16 via 192.0.2.9", "-10.0.0.0/8 via 192.0.2.9", "-172.16.0.0/12"],
        ),
        (
            "a router outside the subnet",
            lease(A, &[via]),
            Some(lease("192.0.2.50/24", &["0.0.0.0/0 203.0.113.1"])),
            &["+203.0.113.1/32", "+0.0.0.0/0 via 203.0.113.1", "-0.0.0.0/0 via 192.0.2.1"],
        ),
        (
            "a router outside the subnet that the server gave a route to",
            lease(A, &[]),
            Some(lease(A, &["0.0.0.0/0 203.0.113.1", "203.0.113.0/24"])),
            &["+203.0.113.0/24", "+0.0.0.0/0 via 203.0.113.1"],
        ),
        (
            "everything goes, what needs another route first",
            lease(A, &["0.0.0.0/0 203.0.113.1"]),
            None,
            &["-0.0.0.0/0 via 203.0.113.1", "-203.0.113.1/32", "-192.0.2.50/24"],
        ),
        (
            "a /32 to another",
            lease("192.0.2.5/32", &[]),
            Some(lease("192.0.2.6/32", &[])),
            &["+192.0.2.6/32", "-192.0.2.5/32"],
        ),
    ];
    for (what, former, next, expected) in table {
        assert_eq!(steps(&from(&[former]), next.as_ref(), &Profile::default()), expected, "{what}");
    }
}

#[test]
fn an_interface_of_which_nothing_is_certain_gets_everything() {
    let lost = lease("192.0.2.50/24", &["0.0.0.0/0 192.0.2.1"]);
    let all = ["+192.0.2.50/24", "+0.0.0.0/0 via 192.0.2.1"];
    for leases in [Vec::new(), vec![lost.clone()]] {
        let before = Before { bare: true, ..from(&leases) };
        assert_eq!(steps(&before, Some(&lost), &Profile::default()), all);
    }
}

#[test]
fn of_two_changes_the_first_of_which_was_cut_short_both_are_undone() {
    let (a, b, c) = (
        lease("192.0.2.50/24", &["0.0.0.0/0 192.0.2.1"]),
        lease("198.51.100.7/24", &["0.0.0.0/0 198.51.100.1"]),
        lease("192.0.2.60/24", &["0.0.0.0/0 192.0.2.1"]),
    );
    let expected = [
        "+192.0.2.60/32",
        "-192.0.2.50/24",
        "+192.0.2.60/24",
        "-192.0.2.60/32",
        "+0.0.0.0/0 via 192.0.2.1",
        "-0.0.0.0/0 via 198.51.100.1",
        "-198.51.100.7/24",
    ];
    assert_eq!(steps(&from(&[a.clone(), b.clone()]), Some(&c), &Profile::default()), expected);
    let back = ["+192.0.2.50/24", "+0.0.0.0/0 via 192.0.2.1", "-0.0.0.0/0 via 198.51.100.1", "-198.51.100.7/24"];
    assert_eq!(steps(&from(&[a.clone(), b]), Some(&a), &Profile::default()), back);
}

#[test]
fn addresses_of_others_stay_though_the_kernel_deletes_them_with_the_first_of_their_subnet() {
    let (a, b) = (lease("192.0.2.50/24", &[]), lease("192.0.2.51/24", &[]));
    let addresses: Vec<Ipv4Net> =
        ["192.0.2.50/24", "192.0.2.99/24", "10.0.0.1/8"].map(|a| a.parse().expect("an address")).into();
    let before = Before { addresses: &addresses, ..from(std::slice::from_ref(&a)) };
    let swapped = [
        "+192.0.2.51/32",
        "+192.0.2.99/32",
        "-192.0.2.50/24",
        "+192.0.2.51/24",
        "+192.0.2.99/24",
        "-192.0.2.99/32",
        "-192.0.2.51/32",
    ];
    assert_eq!(steps(&before, Some(&b), &Profile::default()), swapped);
    let lost = ["+192.0.2.99/32", "-192.0.2.50/24", "+192.0.2.99/24", "-192.0.2.99/32"];
    assert_eq!(steps(&before, None, &Profile::default()), lost, "the last address would take all routes with it");
}

#[test]
fn a_crowd_of_others_costs_little_more_than_being_put_back() {
    let a = lease("10.0.0.1/8", &[]);
    let crowd =
        (2..100_000_u32).map(|host| Ipv4Net::new((0x0a00_0000 + host).into(), 8).expect("8 is a prefix length"));
    let addresses: Vec<_> = [a.address].into_iter().chain(crowd).collect();
    let before = Before { addresses: &addresses, ..from(std::slice::from_ref(&a)) };
    assert_eq!(difference(&before, None, &Profile::default()).len(), addresses.len() + 2 * MAX_MEANWHILE);
}

#[test]
fn an_address_that_a_change_put_on_meanwhile_goes_though_the_change_was_cut_short() {
    let [a, b, c] = ["192.0.2.50/24", "192.0.2.51/24", "198.51.100.7/24"].map(|address| lease(address, &[]));
    let addresses = ["192.0.2.50/24", "192.0.2.51/32"].map(|a| a.parse().expect("an address"));
    let again = Before { addresses: &addresses, ..from(std::slice::from_ref(&a)) };
    let swapped = ["+192.0.2.51/32", "-192.0.2.50/24", "+192.0.2.51/24", "-192.0.2.51/32"];
    assert_eq!(steps(&again, Some(&b), &Profile::default()), swapped);
    let on = Before { leases: &[a.clone(), b], ..again };
    let all = ["+198.51.100.7/24", "-192.0.2.50/24", "-192.0.2.51/24", "-192.0.2.51/32"];
    assert_eq!(steps(&on, Some(&c), &Profile::default()), all);
}

#[test]
fn a_profile_shapes_the_routes() {
    let extra = |destination: &str, gateway: Option<&str>| ExtraRoute {
        destination: destination.parse().expect("a subnet"),
        gateway: gateway.map(|gateway| gateway.parse().expect("an address")),
        metric: None,
        mtu: None,
        advmss: None,
        table: None,
        scope: None,
    };
    let profile = Profile {
        suppress_default_route: true,
        metric: Some(7),
        routes: vec![
            extra("10.0.0.0/8", None),
            extra("10.1.0.0/16", Some("192.0.2.9")),
            extra("10.2.0.0/16", Some("0.0.0.0")),
            ExtraRoute { table: Some(7), ..extra("10.3.0.0/16", None) },
            ExtraRoute { metric: Some(3), mtu: Some(1300), ..extra("fd00::/8", None) },
        ],
        ..Profile::default()
    };
    let given = with_mtu(lease("192.0.2.50/24", &["0.0.0.0/0 192.0.2.1", "172.16.0.0/12 192.0.2.8"]), 1400);
    let shown: Vec<_> = routes(&given, &profile)
        .iter()
        .map(|r| format!("{} {:?} {:?} {:?} {:?}", r.destination, r.via, r.metric, r.mtu, r.table))
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
    let gone = steps(&from(&[given]), None, &profile);
    assert!(!gone.iter().any(|step| step.contains("0.0.0.0/0") || step.contains("10.3")), "{gone:?}");
    let told = ["-10.1.0.0/16 via 192.0.2.9 metric 7", "-10.1.0.0/16 via 192.0.2.9"];
    assert_eq!(gone[..2], told, "a main plugin may not have known of metrics");
}

#[test]
fn each_destination_is_there_once_and_the_subnets_own_is_the_kernels() {
    let twice = ["0.0.0.0/0 192.0.2.1", "0.0.0.0/0 192.0.2.2", "10.0.0.0/8 192.0.2.3", "10.0.0.0/8 192.0.2.3"];
    let more = ["192.0.2.0/24", "203.0.113.1/32", "198.51.100.0/24 203.0.113.1", "172.16.0.0/12 192.0.2.4"];
    let given = lease("192.0.2.50/24", &[&twice[..], &more].concat());
    let own = ExtraRoute {
        destination: "172.16.9.9/12".parse().expect("a subnet"),
        gateway: Some("192.0.2.9".parse().expect("an address")),
        metric: None,
        mtu: None,
        advmss: None,
        table: None,
        scope: None,
    };
    let elsewhere = [ExtraRoute { metric: Some(7), ..own.clone() }, ExtraRoute { table: Some(9), ..own.clone() }];
    let profile = Profile { routes: [vec![own], elsewhere.into()].concat(), ..Profile::default() };
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
    assert_eq!(routes(&given, &profile).iter().map(show).collect::<Vec<_>>(), expected);
}

#[test]
fn a_main_plugin_that_cannot_add_what_is_beyond_the_subnet_is_not_told_of_it() {
    let late = Profile { late_routes: true, ..Profile::default() };
    let told = |lease: &Lease, profile: &Profile| {
        let show = |r: &Route| format!("{} {}", r.destination, r.via.map(|via| via.to_string()).unwrap_or_default());
        (told(lease, profile).iter().map(show).collect::<Vec<_>>(), has_late(lease, profile))
    };
    let off_link = ["203.0.113.1/32 ".to_owned(), "0.0.0.0/0 203.0.113.1".to_owned()];
    for address in ["192.0.2.50/32", "192.0.2.50/24"] {
        let lease = lease(address, &["0.0.0.0/0 203.0.113.1"]);
        assert_eq!(told(&lease, &late), (vec![], true), "{address}");
        assert_eq!(told(&lease, &Profile::default()), (off_link.to_vec(), false), "{address}");
    }
    let mixed = lease("192.0.2.50/24", &["0.0.0.0/0 192.0.2.1", "10.0.0.0/8", "172.16.0.0/12 10.0.0.1"]);
    assert_eq!(told(&mixed, &late), (vec!["0.0.0.0/0 192.0.2.1".to_owned()], true));
    let plain = lease("192.0.2.50/24", &["0.0.0.0/0 192.0.2.1"]);
    assert_eq!(told(&plain, &late), (vec!["0.0.0.0/0 192.0.2.1".to_owned()], false));
}

#[test]
fn routes_that_may_be_missing_are_all_put_on_and_the_address_is_left_alone() {
    let given = lease("192.0.2.50/24", &["0.0.0.0/0 203.0.113.1"]);
    let all = ["+203.0.113.1/32", "+0.0.0.0/0 via 203.0.113.1"];
    let unrouted = |leases| Before { unrouted: true, ..from(leases) };
    assert_eq!(steps(&unrouted(&[]), Some(&given), &Profile::default()), all);
    assert_eq!(steps(&unrouted(std::slice::from_ref(&given)), Some(&given), &Profile::default()), all);
}

#[test]
fn a_routes_mtu_is_said_only_where_any_link_can_have_it() {
    let mtu = |mtu| {
        let lease = with_mtu(lease("192.0.2.50/24", &["0.0.0.0/0 192.0.2.1"]), mtu);
        routes(&lease, &Profile::default())[0].mtu
    };
    assert_eq!((mtu(1500), mtu(9000)), (Some(1500), None));
}

#[test]
fn the_mtu_is_set_only_where_it_is_new() {
    let (plain, small) = (lease("192.0.2.50/24", &[]), with_mtu(lease("192.0.2.50/24", &[]), 1400));
    assert_eq!(mtu(&from(std::slice::from_ref(&plain)), Some(&small)), Some(1400));
    assert_eq!(mtu(&from(std::slice::from_ref(&small)), Some(&small)), None);
    assert_eq!(mtu(&Before { bare: true, ..from(std::slice::from_ref(&small)) }, Some(&small)), Some(1400));
    assert_eq!(mtu(&from(std::slice::from_ref(&small)), Some(&plain)), None);
    assert!(!same(&plain, &small, &Profile::default()) && same(&small, &small, &Profile::default()));
}
