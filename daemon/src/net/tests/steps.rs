//! Addresses and routes, as the kernel and `ip` see them.

use std::net::Ipv4Addr;

use leasehold_core::link::{LinkCause, LinkRoute, LinkView, Step, Target};

use super::lab::{Lab, Netns, in_lab};

/// Returns a namespace with a link that is up, and so is its other end.
async fn up(lab: &mut Lab) -> Netns {
    let (netns, _, _) = lab.pair().await;
    netns
}

async fn done(lab: &mut Lab, netns: &Netns, steps: &[Step]) -> LinkView {
    let (taken, view) = lab.apply(netns.eth0(), steps).await;
    assert_eq!(taken, steps.len(), "{view:?}");
    view.unwrap()
}

/// Does the same, and gives the link an address.
async fn with_address(lab: &mut Lab) -> Netns {
    let netns = up(lab).await;
    let address = Step::AddAddress("192.0.2.7/24".parse().unwrap());
    done(lab, &netns, &[address]).await;
    netns
}

fn route(destination: &str, via: Option<&str>, metric: Option<u32>) -> LinkRoute {
    let via = via.map(|via| via.parse().unwrap());
    LinkRoute {
        destination: destination.parse().unwrap(),
        via,
        metric,
        ..LinkRoute::default()
    }
}

/// The routes of the main table, without the spaces that `ip` leaves behind.
fn routes(netns: &Netns) -> Vec<String> {
    netns
        .ip("-4 route show table main")
        .lines()
        .map(|line| line.trim().to_owned())
        .collect()
}

fn lines(expected: &[&str]) -> Vec<String> {
    expected.iter().map(|line| (*line).to_owned()).collect()
}

#[test]
fn a_link_in_the_way_is_deleted_if_ours_or_else_renamed() {
    in_lab(async |mut lab: Lab| {
        let netns = up(&mut lab).await;
        let index = lab.inspect(netns.eth0()).await.unwrap().ifindex;
        done(&mut lab, &netns, &[Step::Abandon]).await;
        let shown = netns.ip("-brief link");
        assert!(
            shown.contains(&format!("left{index}")) && !shown.contains("eth0"),
            "{shown}"
        );
        netns.ip(&format!("link set left{index} name eth0"));
        let own = format!("leasehold 0123456789abcdef endpoint {}", "ab".repeat(32));
        netns.ip_link(&format!("set eth0 alias \"{own}\""));
        let (_, gone) = lab.apply(netns.eth0(), &[Step::Abandon]).await;
        assert!(matches!(gone, Err(LinkCause::NoLink(_))), "{gone:?}");
        assert!(!netns.ip("-brief link").contains("eth0"));
    });
}

#[test]
fn an_address_comes_and_goes_and_twice_is_as_good_as_once() {
    in_lab(async |mut lab: Lab| {
        let netns = up(&mut lab).await;
        let (address, single) = (
            "192.0.2.7/24".parse().unwrap(),
            "198.51.100.1/32".parse().unwrap(),
        );
        let pair = "203.0.113.2/31".parse().unwrap();
        let add = [address, single, pair].map(Step::AddAddress);
        for _ in 0..2 {
            let view = done(&mut lab, &netns, &add).await;
            assert_eq!(view.addresses, [address, single, pair]);
        }
        let shown = netns.ip("-4 addr show dev eth0");
        assert!(
            shown.contains("inet 192.0.2.7/24 brd 192.0.2.255 scope global eth0"),
            "{shown}"
        );
        assert!(
            shown.contains("inet 198.51.100.1/32 scope global eth0"),
            "{shown}"
        );
        assert!(
            shown.contains("inet 203.0.113.2/31 scope global eth0"),
            "{shown}"
        );

        // Another prefix, or another address of the subnet, is another address.
        for other in ["192.0.2.7/25", "192.0.2.8/24"] {
            let view = done(
                &mut lab,
                &netns,
                &[Step::RemoveAddress(other.parse().unwrap())],
            )
            .await;
            assert_eq!(view.addresses, [address, single, pair]);
        }
        for _ in 0..2 {
            let view = done(
                &mut lab,
                &netns,
                &[Step::RemoveAddress(address), Step::RemoveAddress(pair)],
            )
            .await;
            assert_eq!(view.addresses, [single]);
        }
    });
}

#[test]
fn a_change_within_a_subnet_keeps_the_routes() {
    in_lab(async |mut lab: Lab| {
        let netns = up(&mut lab).await;
        let net = |address: &str| address.parse().unwrap();
        let default = route("0.0.0.0/0", Some("192.0.2.1"), None);
        done(
            &mut lab,
            &netns,
            &[
                Step::AddAddress(net("192.0.2.7/24")),
                Step::AddRoute(default),
            ],
        )
        .await;
        let steps = [
            Step::AddAddress(net("192.0.2.8/32")),
            Step::RemoveAddress(net("192.0.2.7/24")),
            Step::AddAddress(net("192.0.2.8/24")),
            Step::RemoveAddress(net("192.0.2.8/32")),
        ];
        for _ in 0..2 {
            let view = done(&mut lab, &netns, &steps).await;
            assert_eq!(view.addresses, [net("192.0.2.8/24")]);
        }
        let expected = [
            "default via 192.0.2.1 dev eth0",
            "192.0.2.0/24 dev eth0 proto kernel scope link src 192.0.2.8",
        ];
        assert_eq!(routes(&netns), lines(&expected));

        let simple = [
            Step::AddAddress(net("192.0.2.9/24")),
            Step::RemoveAddress(net("192.0.2.8/24")),
        ];
        // Both are gone, hence the order above.
        assert_eq!(done(&mut lab, &netns, &simple).await.addresses, []);
    });
}

#[test]
fn routes_of_others_outlive_the_removal_of_their_address() {
    in_lab(async |mut lab: Lab| {
        let netns = up(&mut lab).await;
        let net = |address: &str| address.parse().unwrap();
        for command in [
            "addr add 192.0.2.7/24 dev eth0",
            "addr add 192.0.2.99/24 dev eth0",
            "route add 203.0.113.0/24 via 192.0.2.9",
            "route add 198.51.100.0/24 via 192.0.2.9 src 192.0.2.99",
        ] {
            netns.ip(command);
        }
        let steps = [
            Step::AddAddress(net("192.0.2.99/32")),
            Step::RemoveAddress(net("192.0.2.7/24")),
            Step::AddAddress(net("192.0.2.99/24")),
            Step::RemoveAddress(net("192.0.2.99/32")),
        ];
        let view = done(&mut lab, &netns, &steps).await;
        assert_eq!(view.addresses, [net("192.0.2.99/24")]);
        let expected = [
            "192.0.2.0/24 dev eth0 proto kernel scope link src 192.0.2.99",
            "198.51.100.0/24 via 192.0.2.9 dev eth0 src 192.0.2.99",
            "203.0.113.0/24 via 192.0.2.9 dev eth0",
        ];
        assert_eq!(routes(&netns), lines(&expected));
    });
}

#[test]
fn a_default_route_over_another_link_stays() {
    in_lab(async |mut lab: Lab| {
        let netns = up(&mut lab).await;
        for command in [
            "link add eth1 type veth peer name peer1",
            "link set eth1 up",
            "link set peer1 up",
            "addr add 198.51.100.2/24 dev eth1",
            "route add default via 198.51.100.1 dev eth1",
            "route add default via 198.51.100.1 dev eth1 metric 100",
        ] {
            netns.ip(command);
        }
        done(
            &mut lab,
            &netns,
            &[Step::AddAddress("192.0.2.7/24".parse().unwrap())],
        )
        .await;
        let before = routes(&netns);

        let ours = [None, Some(100)].map(|metric| route("0.0.0.0/0", Some("192.0.2.1"), metric));
        for _ in 0..2 {
            done(&mut lab, &netns, &ours.clone().map(Step::AddRoute)).await;
            let expected = [
                "default via 198.51.100.1 dev eth1",
                "default via 192.0.2.1 dev eth0",
                "default via 198.51.100.1 dev eth1 metric 100",
                "default via 192.0.2.1 dev eth0 metric 100",
            ];
            assert_eq!(routes(&netns)[..4], lines(&expected));
        }
        for _ in 0..2 {
            done(&mut lab, &netns, &ours.clone().map(Step::RemoveRoute)).await;
            assert_eq!(routes(&netns), before);
        }
    });
}

#[test]
fn only_the_default_route_by_that_router_is_replaced() {
    in_lab(async |mut lab: Lab| {
        let netns = up(&mut lab).await;
        let to = |from: &str, to: &str| {
            [Step::ReplaceDefault {
                from: from.parse().unwrap(),
                to: to.parse().unwrap(),
            }]
        };
        let replaced = to("192.0.2.1", "192.0.2.9");
        done(&mut lab, &netns, &replaced).await;
        // None is added, though the namespace has no table yet.
        assert!(routes(&netns).is_empty());
        for command in [
            "addr add 192.0.2.7/24 dev eth0",
            "link add eth1 type veth peer name peer1",
            "link set eth1 up",
            "link set peer1 up",
            "addr add 198.51.100.2/24 dev eth1",
            "route add default via 198.51.100.1 dev eth1",
        ] {
            netns.ip(command);
        }
        let without = routes(&netns);
        done(&mut lab, &netns, &replaced).await;
        assert_eq!(routes(&netns), without);

        // Before another one of its metric, and behind one.
        netns.ip("route prepend default via 192.0.2.1 dev eth0 proto static");
        netns.ip("route add default via 198.51.100.1 dev eth1 metric 100");
        netns.ip("route append default via 192.0.2.1 dev eth0 metric 100");
        netns.ip("route add default via 192.0.2.2 dev eth0 metric 200");
        for _ in 0..2 {
            done(&mut lab, &netns, &replaced).await;
            let expected = [
                "default via 198.51.100.1 dev eth1",
                "default via 192.0.2.9 dev eth0 proto static metric 1",
                "default via 198.51.100.1 dev eth1 metric 100",
                "default via 192.0.2.9 dev eth0 metric 100",
                "default via 192.0.2.2 dev eth0 metric 200",
            ];
            assert_eq!(routes(&netns)[..5], lines(&expected));
        }
        let before = routes(&netns);
        let (_, refused) = lab
            .apply(netns.eth0(), &to("192.0.2.2", "203.0.113.1"))
            .await;
        assert!(
            matches!(
                refused,
                Err(LinkCause::Refused {
                    doing: "replace the default route",
                    ..
                })
            ),
            "{refused:?}"
        );
        // What goes nowhere does not take its place.
        assert_eq!(routes(&netns), before);
    });
}

#[test]
fn only_the_very_same_route_is_removed() {
    in_lab(async |mut lab: Lab| {
        let netns = with_address(&mut lab).await;
        netns.ip("route add 203.0.113.0/24 via 192.0.2.1 metric 5");
        netns.ip("route add 198.51.100.0/24 dev eth0 scope link");
        netns.ip("route add 203.0.113.0/24 via 192.0.2.1 table 7");
        let before = routes(&netns);
        for other in [
            route("203.0.113.0/24", Some("192.0.2.1"), None),
            route("203.0.113.0/24", Some("192.0.2.1"), Some(6)),
            route("203.0.113.0/24", Some("192.0.2.2"), Some(5)),
            route("203.0.113.0/25", Some("192.0.2.1"), Some(5)),
            route("203.0.113.0/24", None, Some(5)),
            route("198.51.100.0/24", Some("192.0.2.1"), None),
            // The kernel's own, which goes with its address.
            route("192.0.2.0/24", None, None),
        ] {
            done(&mut lab, &netns, &[Step::RemoveRoute(other.clone())]).await;
            assert_eq!(routes(&netns), before, "{other:?}");
        }
        assert!(!netns.ip("route show table 7").is_empty());
    });
}

#[test]
fn a_route_made_by_another_program_counts_as_ours() {
    in_lab(async |mut lab: Lab| {
        let netns = with_address(&mut lab).await;
        let ours = [
            route("203.0.113.0/24", Some("192.0.2.1"), None),
            route("198.51.100.0/24", None, Some(7)),
        ];
        netns.ip("route add 203.0.113.0/24 via 192.0.2.1 proto static mtu 1400");
        netns.ip("route add 198.51.100.0/24 dev eth0 scope link proto dhcp metric 7");
        let before = routes(&netns);
        done(&mut lab, &netns, &ours.clone().map(Step::AddRoute)).await;
        assert_eq!(routes(&netns), before);
        done(&mut lab, &netns, &ours.map(Step::RemoveRoute)).await;
        assert_eq!(routes(&netns).len(), 1, "the subnet's own");
    });
}

#[test]
fn a_route_without_the_wanted_mtu_is_replaced() {
    in_lab(async |mut lab: Lab| {
        let netns = with_address(&mut lab).await;
        netns.ip("route add default via 192.0.2.1 proto static metric 77");
        let ours = LinkRoute {
            mtu: Some(1400),
            ..route("0.0.0.0/0", Some("192.0.2.1"), Some(77))
        };
        done(&mut lab, &netns, &[Step::AddRoute(ours.clone())]).await;
        let expected = lines(&["default via 192.0.2.1 dev eth0 metric 77 mtu 1400"]);
        assert_eq!(
            routes(&netns)
                .into_iter()
                .filter(|line| line.starts_with("default"))
                .collect::<Vec<_>>(),
            expected
        );
        netns.ip("route replace default via 192.0.2.1 proto static metric 77 mtu 1400 advmss 1200");
        let before = routes(&netns);
        done(&mut lab, &netns, &[Step::AddRoute(ours)]).await;
        assert_eq!(routes(&netns), before, "what else it has does not matter");
    });
}

#[test]
fn an_on_link_route_is_removed_whatever_its_scope() {
    in_lab(async |mut lab: Lab| {
        let netns = with_address(&mut lab).await;
        // As a main plugin that is given no scope makes it, before CNI 1.1.0.
        netns.ip("route add 198.51.100.0/24 dev eth0 scope global");
        let ours = route("198.51.100.0/24", None, None);
        let default = route("0.0.0.0/0", Some("198.51.100.1"), None);
        // It leads to no next hop: ours does.
        done(
            &mut lab,
            &netns,
            &[ours.clone(), default.clone()].map(Step::AddRoute),
        )
        .await;
        assert_eq!(routes(&netns).len(), 4);
        done(&mut lab, &netns, &[default, ours].map(Step::RemoveRoute)).await;
        assert_eq!(routes(&netns).len(), 1, "the subnet's own");
    });
}

#[test]
fn a_gateway_outside_the_subnet_needs_a_route_first() {
    in_lab(async |mut lab: Lab| {
        let netns = up(&mut lab).await;
        let gateway = Ipv4Addr::new(198, 51, 100, 1);
        let on_link = route("198.51.100.1/32", None, None);
        let default = LinkRoute {
            mtu: Some(1400),
            ..route("0.0.0.0/0", Some(&gateway.to_string()), Some(3))
        };
        let address = Step::AddAddress("192.0.2.7/32".parse().unwrap());

        let (taken, refused) = lab
            .apply(netns.eth0(), &[address, Step::AddRoute(default.clone())])
            .await;
        let Err(LinkCause::Refused {
            doing: "add the route",
            reason,
        }) = refused
        else {
            panic!("{refused:?}")
        };
        assert_eq!(taken, 1);
        assert!(reason.contains("gateway"), "{reason}");

        done(&mut lab, &netns, &[on_link, default].map(Step::AddRoute)).await;
        let expected = [
            "default via 198.51.100.1 dev eth0 metric 3 mtu 1400",
            "198.51.100.1 dev eth0 scope link",
        ];
        assert_eq!(routes(&netns), lines(&expected));
    });
}

#[test]
fn a_look_tells_bridges_apart_and_counts_frames() {
    in_lab(async |mut lab: Lab| {
        let (netns, _, outside) = lab.pair().await;
        let before = lab.inspect(netns.eth0()).await.unwrap();
        let sender = lab.open(outside, super::lab::PLAIN).await.unwrap();
        lab.send(sender, super::frames::arp());
        // Each look turns the loop, until the frame is out.
        let counted = async {
            loop {
                let view = lab.inspect(netns.eth0()).await.unwrap();
                if view.received > before.received {
                    return view;
                }
            }
        };
        let view = tokio::time::timeout(super::lab::DEADLINE, counted)
            .await
            .expect("the frame is counted");
        assert!(!view.bridge);
        super::lab::make_bridge();
        assert!(
            lab.inspect(Target::Host {
                ifname: "br0".to_owned()
            })
            .await
            .unwrap()
            .bridge
        );
    });
}

#[test]
fn ipv6_addresses_and_routes_come_and_go_beside_ipv4() {
    in_lab(async |mut lab: Lab| {
        let netns = up(&mut lab).await;
        let net = |address: &str| address.parse().unwrap();
        let (v4, v6) = (
            route("0.0.0.0/0", Some("192.0.2.1"), None),
            route("::/0", Some("fe80::1"), None),
        );
        let on_link = route("2001:db8:1::/48", None, Some(7));
        let steps = [
            Step::AddAddress(net("192.0.2.7/24")),
            Step::AddAddress(net("2001:db8::7/64")),
            Step::AddRoute(v4),
            Step::AddRoute(v6.clone()),
            Step::AddRoute(on_link.clone()),
        ];
        for _ in 0..2 {
            done(&mut lab, &netns, &steps).await;
        }
        let six = || netns.ip("-6 route show table main");
        for line in [
            "default via fe80::1 dev eth0 metric 1024",
            "2001:db8:1::/48 dev eth0 metric 7",
        ] {
            assert_eq!(six().matches(line).count(), 1, "{}", six());
        }
        assert!(
            netns
                .ip("-6 addr show dev eth0")
                .contains("inet6 2001:db8::7/64 scope global")
        );
        let away = [
            Step::RemoveRoute(on_link),
            Step::RemoveRoute(v6),
            Step::RemoveAddress(net("2001:db8::7/64")),
        ];
        for _ in 0..2 {
            done(&mut lab, &netns, &away).await;
        }
        assert!(
            !six().contains("default") && !six().contains("2001:db8"),
            "{}",
            six()
        );
        let expected = [
            "default via 192.0.2.1 dev eth0",
            "192.0.2.0/24 dev eth0 proto kernel scope link src 192.0.2.7",
        ];
        assert_eq!(routes(&netns), lines(&expected));
    });
}
