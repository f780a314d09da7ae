//! What a caller asks, and what it is answered: the calls of every front door.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::time::Duration;

use ipnet::Ipv4Net;

use crate::dhcpv4::StateName;
use crate::dhcpv4::lease::Lease;
use crate::dhcpv4::profile::{Profile, Wanted};
use crate::failure::Failure;
use crate::grant::Grant;
use crate::identity::{Attachment, ClientIdRule, Identity, Lan};
use crate::link::{Link, Place};
use crate::network::{DockerId, EndpointRecord, NetworkRecord};
use crate::pool::{PoolId, PoolRecord};
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
    /// Does the attachment still hold what it was told?
    Check {
        /// The attachment.
        attachment: Attachment,
        /// The addresses that the caller believes in (`prevResult`); empty: it did not say.
        expected: Vec<Ipv4Net>,
    },
    /// Give back what a network's attachments hold that the caller does not know any more (CNI GC).
    Collect {
        /// The network.
        network: String,
        /// The attachments that are still valid, by container and interface name.
        keep: Vec<(String, String)>,
    },
    /// Could an ADD be served now? (CNI STATUS)
    Status {
        /// The host's link that ADDs of the caller's network would use, if it is known.
        parent: Option<String>,
    },
    /// All bindings.
    List,
    /// A pool of addresses for a network of Docker's.
    RequestPool(Box<PoolRequest>),
    /// A network of Docker's gives its pool back.
    ReleasePool {
        /// The pool.
        id: PoolId,
    },
    /// Keep an address of a pool from all endpoints: no lease is behind it.
    Reserve {
        /// The pool.
        pool: PoolId,
        /// The address; `None`: the pool's gateway.
        address: Option<Ipv4Addr>,
    },
    /// Give back what Docker was told, an endpoint's address or a reserved one. It is not waited for.
    ReleaseAddress {
        /// The pool.
        pool: PoolId,
        /// The address.
        address: Ipv4Addr,
    },
    /// Something about a network of Docker's whose driver is this one.
    Network(NetworkCall),
}

/// What is asked about a network of Docker's whose driver is this one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NetworkCall {
    /// A dockerd has started: it asks what this plugin is once, before all else. No container of the one before it is still to come.
    Started,
    /// Keep a network, of which dockerd will not tell again.
    Create(Box<NetworkRecord>),
    /// Forget a network. One that is not known is success.
    Delete(DockerId),
    /// What was said of a network when it was created?
    Find(DockerId),
    /// Make an endpoint's link, and lease an address where Docker has none.
    CreateEndpoint(Box<EndpointRequest>),
    /// Delete an endpoint and its link. One that is not known is success.
    DeleteEndpoint(DockerId),
    /// What is an endpoint's link called, and what is to be put on it? Docker is about to move it.
    Join {
        /// The network.
        network: DockerId,
        /// The endpoint.
        endpoint: DockerId,
        /// What Docker calls the container's namespace, or nothing.
        sandbox: String,
    },
}

/// What an endpoint is to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointRequest {
    /// Its name.
    pub id: DockerId,
    /// Its network.
    pub network: DockerId,
    /// The Ethernet address of its link.
    pub mac: Mac,
    /// Its address.
    pub address: EndpointAddress,
}

/// Where an endpoint has its address from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EndpointAddress {
    /// From Docker, which had it from an IPAM driver: ours or another.
    Told(Ipv4Net),
    /// From a DHCP server, by this ADD.
    Leased(Box<Add>),
}

/// What a pool is to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolRequest {
    /// The door's spelling of all options.
    pub definition: String,
    /// The subnet; `None`: that of the LAN, as a server offers it.
    pub subnet: Option<Ipv4Net>,
    /// The part of the subnet for endpoints, if that is not all of it.
    pub range: Option<Ipv4Net>,
    /// The name of the LAN's link.
    pub ifname: String,
    /// The Ethernet address to look from.
    pub mac: Mac,
    /// The wire.
    pub lan: Lan,
    /// Which servers are believed, and what else is said to them.
    pub profile: Profile,
    /// From the request to its answer, at most.
    pub timeout: Duration,
}

impl PoolRequest {
    /// Returns where it is looked from.
    pub(crate) fn place(&self) -> Place {
        Place::Parent { ifname: self.ifname.clone(), mac: self.mac }
    }
}

/// An ADD.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Add {
    /// Who asks.
    pub attachment: Attachment,
    /// Where the binding is to live.
    pub place: Place,
    /// The wire that this is on.
    pub lan: Lan,
    /// What option 61 is to be.
    pub client_id: ClientIdRule,
    /// The hardware address to be known by, if not the interface's own.
    pub chaddr: Option<Mac>,
    /// The address to ask for.
    pub wanted: Option<Wanted>,
    /// What the client says and wants beside.
    pub profile: Profile,
    /// From the request to its answer, at most.
    pub timeout: Duration,
    /// The pool that the address has to be of.
    pub pool: Option<PoolId>,
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

/// A container that was running before this daemon knew of it, with an address from somebody else's hand.
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
    /// To `Add`: the lease, durable, and what of it the caller is told.
    Leased {
        /// The lease.
        lease: Box<Lease>,
        /// What it gives the interface, but for the routes that the daemon adds itself.
        grant: Box<Grant>,
    },
    /// To `Del`: the attachment holds nothing any more.
    Deleted,
    /// To `Check`: all as it was told.
    Checked,
    /// To `Collect`: all that was to go is on its way.
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
        /// How often what came in was refused, by cause; causes beyond a bound are counted together.
        refused: BTreeMap<String, u64>,
    },
    /// To `RequestPool`: the pool, durable.
    Pool {
        /// The pool.
        id: PoolId,
        /// The router, where a server told of one.
        gateway: Option<Ipv4Addr>,
    },
    /// To `ReleasePool`, of whatever pool.
    PoolReleased,
    /// To `Reserve`: the address, which is durably reserved.
    Reserved(Ipv4Addr),
    /// To `ReleaseAddress`, of whatever address.
    Released,
    /// To `Network`.
    Network(NetworkAnswer),
    /// To any: it could not be done.
    Failed(Failure),
}

/// An answer to a [`NetworkCall`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NetworkAnswer {
    /// To `Started`; to `Create`, durable; to `Delete` and `DeleteEndpoint`, of whatever network or endpoint.
    Done,
    /// To `Find`.
    Found(Box<NetworkRecord>),
    /// To `CreateEndpoint`: the endpoint, durable, whose link is there.
    Endpoint(Box<EndpointRecord>),
    /// To `Join`.
    Joined {
        /// The name of the link in the host's namespace.
        ifname: String,
        /// What the endpoint's lease gives it, with the default router; `None`: there is no lease.
        grant: Option<Box<Grant>>,
        /// The router that the network names, which goes before the lease's.
        gateway: Option<Ipv4Addr>,
    },
}

impl Answer {
    /// Returns the answer to an ADD that has a lease.
    pub fn leased(lease: Lease, profile: &Profile) -> Self {
        let grant = Grant::v4(&lease, profile).told();
        Self::Leased { lease: Box::new(lease), grant: Box::new(grant) }
    }
}

/// What a binding is at, as `list` shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BindingState {
    /// It has a lease or looks for one: the state of its client.
    Client(StateName),
    /// Its lease is kept for its container to return.
    Kept,
    /// Its lease is on its way back.
    Releasing,
}

impl BindingState {
    /// Returns its name: that of RFC 2131, `KEPT` or `RELEASING`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Client(state) => state.as_str(),
            Self::Kept => "KEPT",
            Self::Releasing => "RELEASING",
        }
    }
}

/// One binding as `list` shows it. Durations count from the time of the answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Who holds the lease.
    pub attachment: Attachment,
    /// What the server knows it by.
    pub identity: Identity,
    /// What it is at.
    pub state: BindingState,
    /// The address that Docker was told.
    pub told: Option<Ipv4Net>,
    /// The lease; `None` while the first one is being acquired, or after it was lost.
    pub lease: Option<Lease>,
    /// Until T1; zero when past, `None` for ever.
    pub t1: Option<Duration>,
    /// Until T2; zero when past, `None` for ever.
    pub t2: Option<Duration>,
    /// Until expiry; zero when past, `None` for ever.
    pub expires: Option<Duration>,
    /// Until a lease that is kept for its container to return goes back.
    pub kept: Option<Duration>,
    /// No path leads to the namespace of its interface any more, which lives.
    pub pathless: bool,
    /// What keeps the RELEASE of one that is RELEASING, and for how long something has.
    pub held_up: Option<(Duration, String)>,
    /// Where its packets go.
    pub link: Link,
}
