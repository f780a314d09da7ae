//! RequestPool of an unknown pool: a server's offer is read, and not taken.

use super::docker::*;
use super::rig::*;
use crate::silence::Firewall;
use crate::source::{ClientProfile, Servers};

const OFFERS_ROUTER: [u8; 6] = [3, 4, 192, 0, 2, 254];

/// A rig whose server names a router.
fn rig() -> Rig {
    let mut rig = Rig::new(8);
    rig.options = OFFERS_ROUTER.to_vec();
    rig
}

/// What a LAN that offers all this comes to.
fn known(gateway: Option<Ipv4Addr>) -> Answer {
    Answer::Pool {
        id: pool(),
        gateway,
    }
}

impl Rig {
    /// Returns why no subnet is known.
    fn because(&self, id: u64) -> &str {
        match self.failure(id) {
            Failure::Pool(PoolFault::NoSubnet { because }) => because,
            failure => panic!("{failure}"),
        }
    }

    fn is_idle(&self) -> bool {
        self.open.is_empty()
            && self
                .reg
                .kept()
                .iter()
                .all(|kept| kept.of_bindings || kept.count == 0)
    }
}

#[test]
fn a_network_whose_parent_was_found_keeps_it() {
    let mut rig = rig();
    let call = |rig: &Rig, definition: &str, unclear: Option<&[&str]>| {
        let unclear = unclear.map(|links| links.iter().map(|link| (*link).to_owned()).collect());
        Call::Pool(PoolCall::Request(Box::new(PoolRequest {
            definition: definition.to_owned(),
            unclear,
            ..rig.pool_call(Some("192.0.2.0/24"), None)
        })))
    };
    for (links, said) in [
        (
            &[][..],
            "no link of this host has an address with the prefix of --subnet 192.0.2.0/24",
        ),
        (&["br0", "eth1"], "and br0, eth1 all have an address"),
    ] {
        let asked = call(&rig, "found=", Some(links));
        let id = rig.request(asked);
        let failure = rig.failure(id).to_string();
        assert!(failure.contains(said), "{failure}");
    }
    let first = call(&rig, "found=br0,client-id=mac", None);
    let first = rig.request(first);
    let Answer::Pool { id, gateway } = rig.answers[&first].clone() else {
        panic!("{:?}", rig.answers[&first])
    };
    assert_eq!((id.found(), gateway), (Some("br0"), Some(ROUTER)));
    // The link loses its address, another link gets it, and dockerd asks anew after its restart.
    rig.restart();
    for (definition, unclear) in [
        ("found=,client-id=mac", Some(&[][..])),
        ("found=eth1,client-id=mac", None),
    ] {
        let again = call(&rig, definition, unclear);
        let again = rig.request(again);
        assert_eq!(rig.answers[&again], rig.answers[&first], "{definition}");
    }
    let other = call(&rig, "found=", Some(&[]));
    let other = rig.request(other);
    // Its options are others.
    assert!(matches!(rig.answers[&other], Answer::Failed(_)));
}

#[test]
fn a_look_takes_router_and_subnet_of_an_offer_and_no_more() {
    for (subnet, bridge) in [(Some("192.0.2.0/24"), false), (None, false), (None, true)] {
        let mut rig = rig();
        rig.bridge = bridge;
        let id = rig.pool(subnet, None);
        assert_eq!(rig.answers[&id], known(Some(ROUTER)));
        let found = (rig.kinds(), rig.chaddrs.iter().copied().collect::<Vec<_>>());
        assert_eq!(found, (vec![1], vec![endpoint_mac(0)]));
        let link = Link::Parent {
            ifindex: 2,
            mac: endpoint_mac(0),
            vlan: 0,
            port: bridge,
        };
        let found = (&rig.opened[..], rig.store.docker.pools.len());
        assert_eq!(found, (&[link][..], 1));
        assert!(
            rig.is_idle() && rig.store.records().is_empty() && rig.reg.poll_timeout().is_none()
        );
        let gateway = rig.reserve(None);
        assert_eq!(rig.answers[&gateway], Answer::Reserved(ROUTER));
    }
}

#[test]
fn an_automatic_pool_is_answered_alike_a_few_times() {
    let mut rig = rig();
    // Several networks of one LAN may be made at once.
    for _ in 0..10 {
        let id = rig.pool(None, None);
        assert_eq!(rig.answers[&id], known(Some(ROUTER)));
    }
    let again = rig.pool(None, None);
    assert!(
        matches!(
            rig.failure(again),
            Failure::Pool(PoolFault::Overlaps { .. })
        ),
        "dockerd asks without end"
    );
    rig.run_until(1009.9);
    let again = rig.pool(None, None);
    rig.failure(again);
    rig.at += std::time::Duration::from_millis(100);
    let later = rig.pool(None, None);
    assert_eq!(rig.answers[&later], known(Some(ROUTER)));
    rig.restart();
    rig.server = Server::Silent;
    let later = rig.pool(None, None);
    let found = (&rig.answers[&later], rig.kinds());
    assert_eq!(found, (&known(Some(ROUTER)), vec![1]), "without the wire");
    // What it was answered with names the same pool.
    let named = rig.pool(Some("192.0.2.0/24"), None);
    assert_eq!(rig.answers[&named], known(Some(ROUTER)));
}

#[test]
fn a_released_automatic_pool_may_be_asked_for_at_once() {
    let mut rig = rig();
    rig.pool(None, None);
    rig.request(Call::Pool(PoolCall::Release { id: pool() }));
    let again = rig.pool(None, None);
    let found = (&rig.answers[&again], rig.kinds());
    assert_eq!(found, (&known(Some(ROUTER)), vec![1, 1]));
}

#[test]
fn a_pool_look_waits_five_seconds_for_a_server() {
    let mut rig = rig();
    rig.server = Server::Silent;
    let (with, without) = (rig.pool(Some("192.0.2.0/24"), None), rig.pool(None, None));
    rig.run_until(1004.9);
    assert!(!rig.answers.contains_key(&with) && !rig.answers.contains_key(&without));
    assert!(
        (4..=6).contains(&rig.kinds().len()),
        "at 0, 1 and 3 s: {:?}",
        rig.kinds()
    );
    rig.run_until(1005.0);
    assert_eq!(rig.answers[&with], known(None));
    let text = rig.failure(without).to_string();
    assert!(
        text.starts_with("no usable DHCP offer on") && text.ends_with("; pass --subnet"),
        "{text}"
    );
    assert!(rig.is_idle());
}

#[test]
fn a_server_that_is_not_allowed_is_not_believed() {
    let mut rig = rig();
    let servers = Servers {
        deny: vec![SERVER],
        ..Servers::default()
    };
    let denied = Profile::from(ClientProfile {
        servers,
        ..ClientProfile::default()
    });
    let call = |rig: &Rig, subnet| PoolRequest {
        profile: denied.clone(),
        ..rig.pool_call(subnet, None)
    };
    let without = call(&rig, None);
    let without = rig.request(Call::Pool(PoolCall::Request(Box::new(without))));
    let with = call(&rig, Some("192.0.2.0/24"));
    let with = rig.request(Call::Pool(PoolCall::Request(Box::new(with))));
    rig.run_until(1005.5);
    assert_says(&rig.because(without), "server not allowed");
    assert_eq!(rig.answers[&with], known(None));
}

#[test]
fn a_router_outside_of_the_subnet_is_no_gateway() {
    let mut rig = rig();
    let id = rig.pool(Some("192.0.2.0/25"), None);
    let narrow = PoolId::new("parent=br0", "192.0.2.0/25".parse().unwrap(), None);
    assert_eq!(
        rig.answers[&id],
        Answer::Pool {
            id: narrow,
            gateway: None
        }
    );
}

#[test]
fn a_link_without_carrier_is_waited_for() {
    let mut rig = rig();
    rig.interface.carrier = false;
    let (with, without) = (rig.pool(Some("192.0.2.0/24"), None), rig.pool(None, None));
    rig.run_until(1004.9);
    assert!(rig.sent.is_empty() && rig.answers.is_empty());
    rig.run_until(1005.0);
    assert_eq!(rig.answers[&with], known(None));
    assert_says(&rig.because(without), "has no carrier");
    let late = rig.pool(None, None);
    rig.run_until(1006.5);
    rig.interface.carrier = true;
    rig.run_until(1007.5);
    assert_eq!(rig.answers[&late], known(Some(ROUTER)));
    assert!(rig.is_idle());
}

#[test]
fn a_missing_link_fails_only_a_pool_without_a_subnet() {
    let mut rig = rig();
    rig.blind = Some(LinkCause::NoLink("br0".to_owned()));
    let (with, without) = (rig.pool(Some("192.0.2.0/24"), None), rig.pool(None, None));
    assert_eq!(rig.answers[&with], known(None));
    assert!(
        matches!(
            rig.failure(without),
            Failure::Link {
                cause: LinkCause::NoLink(_),
                ..
            }
        ),
        "a subnet would not help"
    );
    assert!(rig.is_idle());
}

#[test]
fn a_silence_that_the_hosts_firewall_makes_is_explained() {
    let mut rig = rig();
    (rig.bridge, rig.server) = (true, Server::Silent);
    rig.survey = Some(Survey {
        firewall: Firewall {
            bridge_nf: Some(true),
            forward_drop: Some(true),
            docker_user: true,
        },
        parent_is_bridge: true,
        received: Some(42),
        ..Survey::default()
    });
    let id = rig.pool(None, None);
    rig.run_until(1005.0);
    let because = rig.because(id);
    assert_says(&because, "iptables -I DOCKER-USER -i br0 -o br0 -j ACCEPT");
    assert!(because.contains("42 frames came in on br0"), "{because}");
    assert!(rig.surveys == 1 && rig.is_idle());
}

#[test]
fn sockets_that_fail_end_a_look() {
    for broken in [true, false] {
        let mut rig = rig();
        (rig.bridge, rig.server) = (true, Server::Silent);
        let id = rig.pool(None, None);
        let exchange = *rig.open.keys().next().expect("it asks");
        let cause = LinkCause::refused("send", "blocked");
        match broken {
            true => rig.input(Input::Broken { exchange, cause }),
            false => rig.input(Input::Unsent { exchange, cause }),
        }
        rig.run_until(1005.0);
        assert!(rig.because(id).contains("blocked"), "{}", rig.because(id));
        assert!(rig.is_idle());
    }
}

#[test]
fn a_look_that_takes_too_long_is_not_waited_for() {
    let mut rig = rig();
    rig.hold_looks = true;
    let (with, without) = (rig.pool(Some("192.0.2.0/24"), None), rig.pool(None, None));
    rig.run_until(1005.0);
    assert_eq!(rig.answers[&with], known(None));
    assert_says(&rig.because(without), "still waiting");
    rig.look_up();
    assert!(rig.is_idle());
}

#[test]
fn an_offer_without_a_mask_tells_of_no_subnet() {
    // A mask that is not contiguous counts as none.
    let mut rig = rig();
    rig.mask = [0, 255];
    let id = rig.pool(None, None);
    rig.run_until(1004.0);
    assert_says(&rig.because(id), "names no subnet mask");
}
