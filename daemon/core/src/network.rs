//! Docker networks with our own driver: what their endpoints' links are made of, and what is kept about each.
//!
//! Values, without DHCP. dockerd names a network once, when it is created, and never again: what is not kept is
//! lost.

use std::net::Ipv4Addr;

use ipnet::Ipv4Net;
use serde::{Deserialize, Serialize};

use crate::identity::{Attachment, DoorId, Lan};
use crate::link::own::{LinkKind, LinkOwner, MacvlanMode, OwnLink};
use crate::time::WallTime;
use crate::wire::Mac;

/// How many networks are kept at most: more than any host has, with those that Docker has forgotten.
pub const MOST_NETWORKS: usize = 4096;

/// How many endpoints are kept at most.
pub const MOST_ENDPOINTS: usize = 16_384;

/// No PoolID begins with this, because each begins with a subnet.
const IN_NETWORK: &str = "network ";

/// Returns the substitute for a PoolID for the endpoints of a network with our own driver.
pub fn in_network(network: &str) -> String {
    format!("{IN_NETWORK}{network}")
}

/// Returns whether an attachment is an endpoint of our own network driver, whose address was leased with it.
pub(crate) fn is_in_network(attachment: &Attachment) -> bool {
    matches!(attachment, Attachment::Docker { pool, .. } if pool.starts_with(IN_NETWORK))
}

/// How a network's endpoints join its LAN.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Each is a macvlan of the parent.
    Macvlan(MacvlanMode),
    /// Each is an ipvlan of the parent, in L2 mode: all have its Ethernet address.
    Ipvlan,
    /// Each is one end of a veth, whose other end is a port of the bridge.
    Bridge,
}

/// What the links of a network's endpoints are made of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wiring {
    /// How they join the LAN.
    pub mode: Mode,
    /// The host's link: the parent or the bridge.
    pub on: String,
    /// The parent's VLAN that they are in, on a link that is made for it; 0: none.
    #[serde(default, skip_serializing_if = "crate::link::is_zero")]
    pub vlan: u16,
    /// Their MTU, in bytes; `None`: the lease's, else the parent's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u16>,
}

impl Wiring {
    /// Returns the LAN.
    pub fn lan(&self) -> Lan {
        Lan::Link {
            parent: (&self.on).into(),
            vlan: self.vlan,
        }
    }

    /// Returns whether a LAN is this one.
    pub(crate) fn is_on(&self, lan: &Lan) -> bool {
        lan.is(&self.lan())
    }

    /// Returns the link of the VLAN, if there is one.
    pub fn vlan(&self) -> Option<OwnLink> {
        let owner = LinkOwner::Vlan {
            on: self.on.clone(),
            vlan: self.vlan,
        };
        let make = LinkKind::Vlan(self.vlan);
        (self.vlan != 0).then(|| OwnLink {
            owner,
            kind: make,
            on: self.on.clone(),
            mac: None,
            mtu: None,
        })
    }

    /// Returns the name of the link that endpoints' links are made on.
    pub fn parent(&self) -> String {
        self.vlan()
            .map_or_else(|| self.on.clone(), |vlan| vlan.owner.ifname())
    }

    /// Returns the link of an endpoint, whose lease may name an MTU.
    pub fn endpoint(&self, id: &DoorId, mac: Mac, mtu: Option<u16>) -> OwnLink {
        let kind = match self.mode {
            Mode::Macvlan(mode) => LinkKind::Macvlan(mode),
            Mode::Ipvlan => LinkKind::Ipvlan,
            Mode::Bridge => LinkKind::Port,
        };
        let on = self.parent();
        // An ipvlan has its parent's.
        let mac = (kind != LinkKind::Ipvlan).then_some(mac);
        OwnLink {
            owner: LinkOwner::Endpoint(id.clone()),
            kind,
            on,
            mac,
            mtu: self.mtu.or(mtu).map(u32::from),
        }
    }
}

/// A network as the store holds it. JSON there, so that an operator can read a dump.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetworkRecord {
    /// Its name.
    pub id: DoorId,
    /// The door's spelling of all options.
    pub definition: String,
    /// What its endpoints' links are made of.
    pub wiring: Wiring,
    /// The router that the network's creator named, which takes precedence over the lease's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<Ipv4Addr>,
    /// The subnet that Docker's IPAM driver gave it; 0.0.0.0/0 is everything.
    pub pool: Ipv4Net,
    /// Whether that driver is ours.
    pub leases: bool,
    /// When it was created.
    pub since: WallTime,
}

/// An endpoint as the store holds it. JSON there, so that an operator can read a dump.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndpointRecord {
    /// Its name.
    pub id: DoorId,
    /// Its network.
    pub network: DoorId,
    /// The Ethernet address of its link.
    pub mac: Mac,
    /// Its address, as Docker knows it.
    pub address: Ipv4Net,
    /// Where that came from.
    pub source: AddressSource,
    /// When it was created.
    pub since: WallTime,
}

/// Where the address of an endpoint came from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AddressSource {
    /// Leased when the endpoint was created, because Docker had none; the lease is given back with the endpoint.
    Leased(Attachment),
    /// From Docker's IPAM driver. If that is ours, there is a lease, which is given back when Docker says so.
    #[serde(rename = "told")]
    Ipam,
}

/// Why a call about a network or an endpoint fails.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NetworkFault {
    /// The network is not known.
    #[error(
        "network {0} is not known to leasehold, whose store may have been lost: remove the network and create it again \
         (docker network rm, docker network create)"
    )]
    Unknown(DoorId),
    /// The endpoint is not known.
    #[error("endpoint {0} is not known to leasehold: stop its container and start it again")]
    UnknownEndpoint(DoorId),
    /// The endpoint is being deleted.
    #[error("endpoint {0} is being deleted: try again")]
    Ends(DoorId),
    /// The network exists, with other options.
    #[error("network {0} exists with other options")]
    Differs(DoorId),
    /// The IPAM driver was given a LAN other than the network driver's.
    #[error(
        "its addresses are leased on {leased}, but the network is on {own}: create it with --ipam-opt parent={own}"
    )]
    Elsewhere {
        /// Where they are leased.
        leased: Lan,
        /// Where the network is.
        own: Lan,
    },
    /// The container is in the subnet already, through another network.
    #[error(
        "the container is already in {subnet}, through network {}, and Docker refuses two interfaces in one subnet in a container: \
         disconnect it from one of the two (docker network disconnect); on one LAN, one network is enough", other.short()
    )]
    Twice {
        /// That network.
        other: DoorId,
        /// The subnet.
        subnet: Ipv4Net,
    },
    /// The IPAM driver is the one for ipvlan.
    #[error(
        "--ipam-driver leasehold-ipvlan is for -o mode=ipvlan, where all containers have the parent's Ethernet address: \
         create the network with --ipam-driver leasehold"
    )]
    ForIpvlan,
    /// No more can be kept.
    #[error("leasehold keeps {0} endpoints at most: remove containers, or a network")]
    Crowded(usize),
    /// No more can be kept.
    #[error("leasehold keeps {0} networks at most: remove some (docker network rm)")]
    Full(usize),
    /// Endpoints cannot be made on the link.
    #[error("-o {option}={value}: {why}")]
    BadLink {
        /// The option that names it.
        option: &'static str,
        /// Its name.
        value: String,
        /// Why not, and what to do.
        why: String,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(text: &str) -> DoorId {
        DoorId::try_from(text.to_owned()).expect("an id")
    }

    fn wiring(mode: Mode, vlan: u16) -> Wiring {
        Wiring {
            mode,
            on: "eth0".to_owned(),
            vlan,
            mtu: None,
        }
    }

    #[test]
    fn an_endpoint_is_made_on_its_networks_vlan() {
        let mac = Mac([2, 0, 0, 0, 0, 1]);
        let flat = wiring(Mode::Macvlan(MacvlanMode::Bridge), 0);
        assert_eq!(flat.vlan(), None);
        assert_eq!(flat.endpoint(&id("e1"), mac, None).on, "eth0");
        let tagged = wiring(Mode::Macvlan(MacvlanMode::Bridge), 10);
        assert_eq!(
            tagged.vlan().map(|link| (link.owner.ifname(), link.on)),
            Some(("eth0.10".into(), "eth0".into()))
        );
        assert_eq!(tagged.endpoint(&id("e1"), mac, None).on, "eth0.10");
        assert_eq!(
            tagged.lan(),
            Lan::Link {
                parent: "eth0".into(),
                vlan: 10
            }
        );
    }

    #[test]
    fn a_networks_mtu_goes_before_its_leases() {
        let mac = Mac([2, 0, 0, 0, 0, 1]);
        let mut wiring = wiring(Mode::Bridge, 0);
        assert_eq!(wiring.endpoint(&id("e1"), mac, Some(1400)).mtu, Some(1400));
        wiring.mtu = Some(9000);
        assert_eq!(wiring.endpoint(&id("e1"), mac, Some(1400)).mtu, Some(9000));
    }

    #[test]
    fn an_ipvlan_has_the_ethernet_address_of_its_parent() {
        let mac = Mac([2, 0, 0, 0, 0, 1]);
        let link = wiring(Mode::Ipvlan, 0).endpoint(&id("e1"), mac, None);
        assert_eq!((link.kind, link.mac), (LinkKind::Ipvlan, None));
    }
}
