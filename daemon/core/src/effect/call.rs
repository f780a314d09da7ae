//! What callers ask, and what they are answered: the calls of every front door.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::time::Duration;

use ipnet::{IpNet, Ipv4Net};

use super::{Obeyed, Order, RangeAnswer, RangeCall, Row, Shown, Verb, Which};
use crate::dhcpv4::lease::Lease;
use crate::dhcpv4::profile::Wanted;
use crate::failure::Failure;
use crate::grant::Grant;
use crate::grant::policy::Policy;
use crate::identity::{Attachment, ClientIdRule, DoorId, Lan};
use crate::limits::Limits;
use crate::link::Place;
use crate::network::{EndpointRecord, NetworkFault, NetworkRecord};
use crate::pool::{PoolId, PoolRecord};
use crate::profile::Profile;
use crate::range::Fallback;
use crate::tenure::Tenure;
use crate::wire::Mac;

/// What a caller asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call {
    /// Get or keep a lease for an attachment.
    Add(Box<Add>),
    /// Give an attachment's lease back.
    Del {
        /// The attachment.
        attachment: Attachment,
        /// For how many seconds its network keeps the lease of an identity that can return; `None`: as its ADD said.
        grace: Option<u32>,
    },
    /// Does the attachment still hold what its ADD was given?
    Check {
        /// The attachment.
        attachment: Attachment,
        /// The addresses that the caller believes in (`prevResult`); empty: it did not say.
        expected: Vec<IpNet>,
    },
    /// Give back what a network's attachments hold if the caller no longer knows them (CNI GC).
    Collect {
        /// The network.
        network: String,
        /// The attachments that are still valid, by container and interface name.
        keep: Vec<(String, String)>,
    },
    /// Could an ADD be served now? (CNI STATUS)
    Status {
        /// The host's link that ADDs of the caller's network would use, if known.
        parent: Option<String>,
    },
    /// All bindings.
    List,
    /// Everything about one lease.
    Show(Box<Which>),
    /// An operator extends leases, or gives them back.
    Order(Box<Order>),
    /// Something about the pools of Docker's IPAM driver.
    Pool(PoolCall),
    /// Something about a Docker network of our own driver.
    Network(NetworkCall),
    /// Something about local ranges.
    Ranges(RangeCall),
}

impl Call {
    /// Returns the call's name, which is for programs and stays as it is.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Add(_) => "add",
            Self::Del { .. } => "del",
            Self::Check { .. } => "check",
            Self::Collect { .. } => "gc",
            Self::Status { .. } => "status",
            Self::List => "list",
            Self::Show(_) => "show",
            Self::Order(order) => match order.verb {
                Verb::Renew => "renew",
                Verb::Release { .. } => "release",
            },
            Self::Pool(call) => call.name(),
            Self::Network(call) => call.name(),
            Self::Ranges(RangeCall::Add(_)) => "add_from_ranges",
            Self::Ranges(RangeCall::List) => "list_ranges",
        }
    }
}

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
    const fn name(&self) -> &'static str {
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
    const fn name(&self) -> &'static str {
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
    /// From Docker, which got it from an IPAM driver: ours or another.
    Told(Ipv4Net),
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
}

impl PoolRequest {
    /// Returns where the look at the LAN takes place.
    pub(crate) fn place(&self) -> Place {
        Place::Parent { ifname: self.ifname.clone(), mac: self.mac }
    }
}

/// An ADD.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Add {
    /// Who asks.
    pub attachment: Attachment,
    /// Where the binding should live.
    pub place: Place,
    /// The wire of this place.
    pub lan: Lan,
    /// How to make option 61.
    pub client_id: ClientIdRule,
    /// The client's hardware address, if not the interface's own.
    pub chaddr: Option<Mac>,
    /// The address to ask for.
    pub wanted: Option<Wanted>,
    /// What else the client says and wants.
    pub profile: Profile,
    /// The longest time from the request to its answer.
    pub timeout: Duration,
    /// The addresses that it may get; `None`: any.
    pub limits: Option<Limits>,
    /// The local ranges that give it an address if no server answers.
    pub fallback: Option<Box<Fallback>>,
}

impl Add {
    /// Returns whether the sockets of its first exchange are on the link of its place.
    pub(crate) fn opens_at_once(&self) -> bool {
        match self.place {
            Place::InNetns(_) => !self.profile.on_parent,
            Place::Parent { .. } => true,
        }
    }
}

/// A container that already ran when this daemon learned about it, with an address that somebody else gave it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Adoptee {
    /// Its ADD, as it would be now.
    pub add: Box<Add>,
    /// The address that it was given.
    pub address: Ipv4Net,
    /// The Ethernet address that its interface had then, if that is known.
    pub mac: Option<Mac>,
}

/// An answer to a [`Call`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// To `Add`: what was granted, durable, as it is given to the caller.
    Leased {
        /// One for each source. Their grants leave out the routes that the daemon adds itself.
        tenures: Vec<Tenure>,
    },
    /// To `Del`: the attachment holds nothing any more.
    Deleted,
    /// To `Check`: everything is as in the ADD's answer.
    Checked,
    /// To `Collect`: everything that had to be given back is being given back.
    Collected,
    /// To `Status`: an ADD could be served.
    Ready,
    /// To `List`, in order of attachment.
    Bindings {
        /// The bindings.
        rows: Vec<Row>,
        /// Docker's pools.
        pools: Vec<PoolRecord>,
        /// The containers that could not be adopted, and why.
        not_adopted: Vec<(Attachment, String)>,
        /// Links in the host's namespace that daemons with another store made.
        strangers: Vec<String>,
        /// How often input was refused, by cause.
        refused: BTreeMap<&'static str, u64>,
    },
    /// To `Show`, in order of attachment. If several leases match, only their rows.
    Shown(Vec<Shown>),
    /// To `Order`, in order of attachment: the outcome for each selected lease.
    Obeyed(Vec<Obeyed>),
    /// To `PoolCall::Request`: the pool, durable.
    Pool {
        /// The pool.
        id: PoolId,
        /// The router, if a server named one.
        gateway: Option<Ipv4Addr>,
    },
    /// To `PoolCall::Release`, whatever the pool.
    PoolReleased,
    /// To `PoolCall::Reserve`: the address, which is durably reserved.
    Reserved(Ipv4Addr),
    /// To `PoolCall::ReleaseAddress`, whatever the address.
    Released,
    /// To `Network`.
    Network(NetworkAnswer),
    /// To `Ranges`.
    Ranges(RangeAnswer),
    /// To any: it could not be done.
    Failed(Failure),
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

impl Answer {
    /// Returns the answer to an ADD that has a lease.
    pub fn leased(lease: &Lease, policy: &Policy) -> Self {
        Self::Leased { tenures: vec![lease.tenure(policy).without_late()] }
    }
}

impl From<Result<NetworkAnswer, NetworkFault>> for Answer {
    fn from(result: Result<NetworkAnswer, NetworkFault>) -> Self {
        result.map_or_else(|fault| Self::Failed(Failure::Network(fault)), Self::Network)
    }
}
