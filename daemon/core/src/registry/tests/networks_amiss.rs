//! Networks whose two drivers, ours both, were told different things.

use super::super::*;
use super::networks::{LEASED, OWN, endpoint, id, network};
use super::rig::*;
use crate::effect::{EndpointAddress, EndpointRequest, NetworkCall};
use crate::identity::Lan;
use crate::network::{Mode, NetworkRecord, Wiring};
use crate::wire::Mac;

#[test]
fn an_address_that_our_driver_leased_on_another_lan_or_for_ipvlan_is_refused_with_the_way_out() {
    // What the IPAM driver was told, on which wiring, and what is said.
    let flat = network("n1").wiring;
    let vlan = |on: &str, vlan| Wiring { on: on.into(), vlan, ..flat.clone() };
    let ipvlan = Wiring { mode: Mode::Ipvlan, ..vlan("br1", 0) };
    let of = |parent: &str, vlan| Lan::Link { parent: parent.into(), vlan };
    let table = [
        (of("br0", 0), false, flat.clone(), None),
        (
            of("br0", 0),
            false,
            vlan("br1", 0),
            Some("leased on br0, and the network is on br1: create it with --ipam-opt parent=br1"),
        ),
        (of("br0", 0), false, vlan("br0", 10), Some("--ipam-opt parent=br0.10")),
        (of("br0.10", 0), false, vlan("br0", 10), None),
        (of("br0", 10), false, vlan("br0", 10), None),
        (of("br0", 0), true, flat.clone(), Some("create the network with --ipam-driver leasehold")),
        (of("br0", 0), true, Wiring { mode: Mode::Ipvlan, ..flat.clone() }, None),
        (of("br0", 0), true, ipvlan, Some("--ipam-opt parent=br1")),
    ];
    for (lan, on_parent, wiring, said) in table {
        let mut rig = Rig::new(8);
        rig.bridge = false;
        rig.create(NetworkRecord { wiring: wiring.clone(), leases: true, ..network("n1") });
        let mut add = rig.endpoint_call(OWN.0[5]);
        (add.lan, add.profile.on_parent) = (lan.clone(), on_parent);
        rig.request(Call::Add(add));
        let address = EndpointAddress::Told(LEASED.parse().unwrap());
        let mac = if on_parent && wiring.on != "br0" { Mac([2, 0, 0, 0, 0, 9]) } else { OWN };
        let request = EndpointRequest { id: id("e1"), network: id("n1"), mac, address };
        let create = rig.network_call(NetworkCall::CreateEndpoint(Box::new(request)));
        let what = format!("{lan} {on_parent} {wiring:?}: {:?}", rig.answers[&create]);
        assert_eq!(matches!(rig.answers[&create], Answer::Failed(_)), said.is_some(), "{what}");
        assert_eq!(rig.link_of(&endpoint()).is_some(), said.is_none(), "{what}");
        if let Some(said) = said {
            assert!(rig.failure(create).to_string().contains(said), "{what}");
        }
    }
}
