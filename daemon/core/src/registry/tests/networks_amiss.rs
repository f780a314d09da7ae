//! Networks with both of our drivers, which were told different things.

use super::networks::{OWN, endpoint, network};
use super::rig::*;

#[test]
fn an_address_leased_on_another_lan_is_refused() {
    // What the IPAM driver was told, on which wiring, and what is said.
    let flat = network("n1").wiring;
    let vlan = |on: &str, vlan| Wiring {
        on: on.into(),
        vlan,
        ..flat.clone()
    };
    let mut ipvlan = vlan("br1", 0);
    ipvlan.mode = Mode::Ipvlan;
    let table = [
        (lan_on("br0", 0), false, flat.clone(), None),
        (
            lan_on("br0", 0),
            false,
            vlan("br1", 0),
            Some("leased on br0, but the network is on br1: create it with --ipam-opt parent=br1"),
        ),
        (
            lan_on("br0", 0),
            false,
            vlan("br0", 10),
            Some("--ipam-opt parent=br0.10"),
        ),
        (lan_on("br0.10", 0), false, vlan("br0", 10), None),
        (lan_on("br0", 10), false, vlan("br0", 10), None),
        (
            lan_on("br0", 0),
            true,
            flat.clone(),
            Some("create the network with --ipam-driver leasehold"),
        ),
        (
            lan_on("br0", 0),
            true,
            Wiring {
                mode: Mode::Ipvlan,
                ..flat.clone()
            },
            None,
        ),
        (
            lan_on("br0", 0),
            true,
            ipvlan,
            Some("--ipam-opt parent=br1"),
        ),
    ];
    for (lan, on_parent, wiring, said) in table {
        let mut rig = Rig::new(8);
        rig.create(NetworkRecord {
            wiring: wiring.clone(),
            leases: true,
            ..network("n1")
        });
        let mut add = rig.endpoint_call(OWN.0[5]);
        (add.lan, add.profile.on_parent) = (lan.clone(), on_parent);
        rig.request(Call::Add(add));
        let mac = if on_parent && wiring.on != "br0" {
            Mac([2, 0, 0, 0, 0, 9])
        } else {
            OWN
        };
        let create = rig.endpoint_at("e1", mac, A);
        let what = format!("{lan} {on_parent} {wiring:?}: {:?}", rig.answers[&create]);
        let found = matches!(rig.answers[&create], Answer::Failed(_));
        assert_eq!(found, said.is_some(), "{what}");
        assert_eq!(rig.link_of(&endpoint()).is_some(), said.is_none(), "{what}");
        if let Some(said) = said {
            assert!(rig.failure(create).to_string().contains(said), "{what}");
        }
    }
}

#[test]
fn a_network_whose_pool_is_on_another_lan_is_refused() {
    let mut rig = Rig::new(8);
    rig.pool(Some("192.0.2.0/24"), None);
    let on = |link: &str, pool: &str| NetworkRecord {
        wiring: Wiring {
            on: link.into(),
            ..network("n1").wiring
        },
        leases: true,
        pool: pool.parse().unwrap(),
        ..network("n1")
    };
    let other = rig.create(on("br1", "192.0.2.0/24"));
    assert_says(&rig.failure(other), "--ipam-opt parent=br1");
    let numbered = rig.create(NetworkRecord {
        leases: false,
        ..on("br1", "192.0.2.0/24")
    });
    assert!(rig.is_done(numbered), "Docker's own pool is on no LAN");
    rig.delete_network("n1");
    for (link, pool) in [("br0", "192.0.2.0/24"), ("br1", "198.51.100.0/24")] {
        let create = rig.create(on(link, pool));
        assert!(
            rig.is_done(create),
            "{link} {pool}: {:?}",
            rig.answers[&create]
        );
        rig.delete_network("n1");
    }
    let lan = lan_on("br1", 0);
    let beside = crate::effect::PoolRequest {
        lan,
        definition: "parent=br1".into(),
        ..rig.pool_call(Some("192.0.2.0/24"), None)
    };
    rig.request(Call::Pool(PoolCall::Request(Box::new(beside))));
    let create = rig.create(on("br1", "192.0.2.0/24"));
    assert!(
        rig.is_done(create),
        "it is one of the two: {:?}",
        rig.answers[&create]
    );
}

#[test]
fn a_second_network_in_one_subnet_is_refused() {
    for (sandbox, second, refused) in [
        ("netns/1", "192.0.2.99/24", true),
        ("netns/1", "192.0.2.99/16", true),
        ("netns/1", "198.51.100.9/24", false),
        ("netns/2", "192.0.2.99/24", false),
        ("", "192.0.2.99/24", false),
    ] {
        let mut rig = Rig::new(8);
        let mut join = |network: &str, endpoint: &str, address: &str, mac, sandbox: &str| {
            rig.create(super::networks::network(network));
            let address = EndpointAddress::Ipam(address.parse().unwrap());
            rig.endpoint_in(network, endpoint, mac, address);
            rig.join_from(network, endpoint, sandbox)
        };
        let first = if sandbox.is_empty() { "" } else { "netns/1" };
        for _ in 0..2 {
            assert!(
                matches!(join("n1", "e1", A, OWN, first), Answer::Network(_)),
                "it is asked again"
            );
        }
        let answer = join("n2", "e2", second, Mac([2, 0, 0, 0, 0, 9]), sandbox);
        let said = if let Answer::Failed(failure) = answer {
            failure.to_string()
        } else {
            String::new()
        };
        let found = said.contains("network n1");
        assert_eq!(found, refused, "{sandbox} {second}: {said}");
        let delete = rig.delete_endpoint("e1");
        assert!(rig.is_done(delete));
        let again = rig.join_from("n2", "e2", sandbox);
        assert!(matches!(again, Answer::Network(_)), "the first has gone");
    }
}
