//! What is asked about Docker's pools, and about the networks of our own driver, and what is answered.

use std::net::Ipv4Addr;
use std::time::Duration;

use ipnet::Ipv4Net;

use super::Add;
use crate::grant::Grant;
use crate::identity::{DoorId, Lan};
use crate::link::Place;
use crate::network::{EndpointRecord, NetworkRecord};
use crate::pool::PoolId;
use crate::profile::Profile;
use crate::wire::Mac;

/// What is asked about the pools of Docker's IPAM driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PoolCall {
    /// Get a pool of addresses for a Docker network.
    Request(Box<PoolRequest>),
    /// Give back the pool of a Docker network.
    Release {
        /// The pool.
        id: PoolId,
    },
    /// Reserve an address of a pool: no endpoint gets it, and it has no lease.
    Reserve {
        /// The pool.
        pool: PoolId,
        /// The address; `None`: the pool's gateway.
        address: Option<Ipv4Addr>,
    },
    /// Give back an address that Docker was told: an endpoint's, or a reserved one. Docker does not wait for the wire.
    ReleaseAddress {
        /// The pool.
        pool: PoolId,
        /// The address.
        address: Ipv4Addr,
    },
}

impl PoolCall {
    pub(super) const fn name(&self) -> &'static str {
        match self {
            Self::Request(_) => "request_pool",
            Self::Release { .. } => "release_pool",
            Self::Reserve { .. } => "reserve_address",
            Self::ReleaseAddress { .. } => "release_address",
        }
    }
}

/// What is asked about a Docker network of our own driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NetworkCall {
    /// A dockerd has started: it first asks, once, what this plugin is. No container of the previous dockerd is still to come.
    Started,
    /// Keep a network, which dockerd names only once.
    Create(Box<NetworkRecord>),
    /// Forget a network. It is also a success if it is not known.
    Delete(DoorId),
    /// What was said about a network when it was created?
    Find(DoorId),
    /// Make an endpoint's link, and lease an address if Docker has none.
    CreateEndpoint(Box<EndpointRequest>),
    /// Delete an endpoint and its link. It is also a success if it is not known.
    DeleteEndpoint(DoorId),
    /// What is an endpoint's link called, and what should be put on it? Docker is about to move it.
    Join {
        /// The network.
        network: DoorId,
        /// The endpoint.
        endpoint: DoorId,
        /// Docker's name for the container's namespace, or nothing.
        sandbox: String,
    },
}

impl NetworkCall {
    pub(super) const fn name(&self) -> &'static str {
        match self {
            Self::Started => "capabilities",
            Self::Create(_) => "create_network",
            Self::Delete(_) => "delete_network",
            Self::Find(_) => "find_network",
            Self::CreateEndpoint(_) => "create_endpoint",
            Self::DeleteEndpoint(_) => "delete_endpoint",
            Self::Join { .. } => "join",
        }
    }
}

/// The requested endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointRequest {
    /// Its name.
    pub id: DoorId,
    /// Its network.
    pub network: DoorId,
    /// The Ethernet address of its link.
    pub mac: Mac,
    /// Its address.
    pub address: EndpointAddress,
}

/// Where an endpoint gets its address from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EndpointAddress {
    /// From an IPAM driver, ours or another, as Docker says.
    Ipam(Ipv4Net),
    /// From a DHCP server, by this ADD.
    Leased(Box<Add>),
}

/// The requested pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolRequest {
    /// The door's spelling of all options.
    pub definition: String,
    /// The subnet; `None`: the LAN's, as a server offers it.
    pub subnet: Option<Ipv4Net>,
    /// The part of the subnet for endpoints, if not all of it.
    pub range: Option<Ipv4Net>,
    /// The name of the LAN's link.
    pub ifname: String,
    /// The Ethernet address to ask from.
    pub mac: Mac,
    /// The wire.
    pub lan: Lan,
    /// Which servers are believed, and what else the client says to them.
    pub profile: Profile,
    /// The longest time from the request to its answer.
    pub timeout: Duration,
    /// The links that have an address with the subnet's prefix, where the LAN's link was to be found by that and not exactly one
    /// has: such a pool is only answered if it is known.
    pub unclear: Option<Vec<String>>,
}

impl PoolRequest {
    /// Returns where the look at the LAN takes place.
    pub(crate) fn place(&self) -> Place {
        Place::Parent {
            ifname: self.ifname.clone(),
            mac: self.mac,
        }
    }
}

/// An answer to a [`NetworkCall`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NetworkAnswer {
    /// To `Started`; to `Create`, durable; to `Delete` and `DeleteEndpoint`, whatever the network or endpoint.
    Done,
    /// To `Find`.
    Found(Box<NetworkRecord>),
    /// To `CreateEndpoint`: the endpoint, durable, and its link is there.
    Endpoint(Box<EndpointRecord>),
    /// To `Join`.
    Joined {
        /// The name of the link in the host's namespace.
        ifname: String,
        /// What the endpoint's lease gives it, with the default router; `None`: there is no lease.
        grant: Option<Box<Grant>>,
        /// The router that the network names, which takes precedence over the lease's.
        gateway: Option<Ipv4Addr>,
    },
}
