//! The contract between core and shell: what comes in, what goes out, and the ids that join them.
//!
//! Three rules hold for every shell, the real one and the simulated ones:
//! * Each [`Effect`] that bears an [`OpId`] is answered by exactly one [`Input::Done`]: success, failure, or the
//!   shell's own limit.
//! * Effects of one [`ExchangeId`] keep their order; so do transactions. Nothing else is ordered by position: what must
//!   come after something waits for its `Done`.
//! * A `Done`, `Frame` or `HungUp` with an id that the core no longer knows is counted and dropped.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use ipnet::Ipv4Net;

use crate::dhcpv4::StateName;
use crate::dhcpv4::lease::Lease;
use crate::dhcpv4::profile::{Profile, Wanted};
use crate::dhcpv4::timing::Timer;
pub use crate::failure::{Failure, StoreCause};
use crate::grant::{Dns, Grant};
pub use crate::identity::ClientIdRule;
use crate::identity::{Attachment, Identity, Lan};
use crate::link::{Hears, KernelEvent, Link, LinkCause, LinkView, Place, Sightings, Sockets, Sought, Step, Target};
use crate::network::{DockerId, EndpointRecord, LinkOwner, NetworkRecord, OwnLink, OwnLinks};
use crate::pool::{PoolId, PoolRecord};
use crate::record::{BindingId, Change, DockerRecord, Record};
use crate::silence::Survey;
use crate::time::BootId;
use crate::wire::Mac;
pub use crate::wire::frame::FrameMeta;

/// One open request. Minted by the shell, below 2^63, never used again in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// One effect that reports back. Minted by the core, never used again in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OpId(pub u64);

/// The sockets of one exchange. Minted by the core, never used again in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ExchangeId(pub u64);

/// What happened outside.
#[derive(Debug)]
pub enum Input<'a> {
    /// The first input, once: after the socket listens, before the first request is accepted.
    Start {
        /// The present boot.
        boot: BootId,
        /// All that the store holds.
        records: Vec<(BindingId, Record)>,
        /// What it holds of Docker's.
        docker: Vec<DockerRecord>,
        /// Calls that were left while no daemon ran. Answered like any other; the shell forgets a call when it is
        /// answered with success.
        spooled: Vec<(RequestId, Call)>,
        /// Containers that run although the store does not know them: it is new, or had to be set aside.
        adoptees: Vec<Adoptee>,
    },
    /// A caller asks.
    Request {
        /// The request, until it is answered or hangs up.
        id: RequestId,
        /// What it asks.
        call: Call,
    },
    /// A caller went away before its answer.
    HungUp(RequestId),
    /// An effect is over.
    Done {
        /// The effect.
        op: OpId,
        /// How it ended.
        outcome: Outcome,
    },
    /// A frame came in on an exchange's packet socket.
    Frame {
        /// The exchange.
        exchange: ExchangeId,
        /// The frame from its Ethernet header on.
        bytes: &'a [u8],
        /// What the kernel said of it.
        meta: FrameMeta,
    },
    /// An exchange's socket failed; nothing more comes from it. The core still closes it.
    Broken {
        /// The exchange.
        exchange: ExchangeId,
        /// Why.
        cause: LinkCause,
    },
    /// The link did not take a frame whose [`Effect::Send`] bears no op.
    Unsent {
        /// The exchange.
        exchange: ExchangeId,
        /// Why.
        cause: LinkCause,
    },
    /// The kernel told something, unasked.
    Kernel(KernelEvent),
}

/// How an effect ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Of [`Effect::Persist`]: all of it is durable, or none.
    Persisted(Result<(), StoreCause>),
    /// Of [`Effect::Open`].
    Opened(Result<(), LinkCause>),
    /// Of [`Effect::Send`]: the link took the frame, or why it did not.
    Sent(Result<(), LinkCause>),
    /// Of [`Effect::Inspect`].
    Inspected(Result<LinkView, LinkCause>),
    /// Of [`Effect::Apply`].
    Applied {
        /// How many steps were taken, from the first.
        taken: usize,
        /// The link after the last step, or why the next step (or the look after it) failed.
        result: Result<LinkView, LinkCause>,
    },
    /// Of [`Effect::Prepare`].
    Prepared {
        /// The link, or why it could not be set up or looked at.
        result: Result<LinkView, LinkCause>,
        /// The exchange, where its sockets are open.
        exchange: Option<ExchangeId>,
    },
    /// Of [`Effect::Survey`]. What could not be found out says so.
    Surveyed(Survey),
    /// Of [`Effect::Seek`], or why no namespace could be looked at.
    Sought(Result<Sightings, LinkCause>),
    /// Of [`Effect::Make`]: the link is there.
    Made(Result<(), LinkCause>),
    /// Of [`Effect::Unmake`]: the link is not there.
    Unmade(Result<(), LinkCause>),
    /// Of [`Effect::ListOwn`]: the links that are there.
    OwnLinks(Result<OwnLinks, LinkCause>),
    /// Of [`Effect::Close`]: the exchange is closed, and no link is left that was made for it.
    Closed,
}

/// What is to be done outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Makes changes durable, in one transaction.
    Persist {
        /// Answered by [`Outcome::Persisted`].
        op: OpId,
        /// The transaction. An empty one asks whether one could be written.
        changes: Vec<Change>,
    },
    /// Opens the sockets of an exchange.
    Open {
        /// Answered by [`Outcome::Opened`].
        op: OpId,
        /// The exchange.
        exchange: ExchangeId,
        /// Where.
        link: Link,
        /// Which.
        want: Sockets,
    },
    /// Looks at a link. From then on the shell tells of the link's namespace too ([`Input::Kernel`]), where that is a container's.
    Inspect {
        /// Answered by [`Outcome::Inspected`].
        op: OpId,
        /// Which link.
        target: Target,
    },
    /// Changes a link step by step, then looks at it as [`Effect::Inspect`] does.
    Apply {
        /// Answered by [`Outcome::Applied`].
        op: OpId,
        /// Which link.
        target: Target,
        /// The steps, in order; the first failure ends them.
        steps: Vec<Step>,
    },
    /// Sets a link up and looks at it, and opens the sockets of an exchange there in the same visit. A link of the host is not
    /// set up. Where the link has no carrier then, or sockets would take a port, or cannot be had at once, it opens none.
    Prepare {
        /// Answered by [`Outcome::Prepared`].
        op: OpId,
        /// Where.
        place: Place,
        /// The wire that this is on.
        lan: Lan,
        /// The exchange. It hears answers by ARP, and holds no port.
        exchange: ExchangeId,
        /// The hardware address by which answers name the client; `None`: that of the place.
        chaddr: Option<Mac>,
    },
    /// Looks for what could explain that no DHCP server answers.
    Survey {
        /// Answered by [`Outcome::Surveyed`].
        op: OpId,
        /// The container's link.
        link: Link,
        /// The host's link that is its LAN, if it is known by one.
        lan_parent: Option<String>,
    },
    /// Looks for interfaces in the namespaces of an engine that does not say where it puts them: Docker's. From then on the shell
    /// tells of the namespaces in which it finds any.
    Seek {
        /// Answered by [`Outcome::Sought`].
        op: OpId,
        /// The interfaces.
        sought: Vec<Sought>,
        /// The number of the one namespace to be looked through; `None`: all are.
        number: Option<i32>,
    },
    /// Makes a link in the host's namespace, with an alias that names its owner; that of a VLAN is set up, any other is down.
    /// One of this owner that is there already is success.
    Make {
        /// Answered by [`Outcome::Made`].
        op: OpId,
        /// The link.
        link: Box<OwnLink>,
    },
    /// Deletes the link with this owner from the host's namespace. One that is not there is success, and so is one of that name
    /// whose alias says otherwise, which stays.
    Unmake {
        /// Answered by [`Outcome::Unmade`].
        op: OpId,
        /// Whose link.
        owner: LinkOwner,
    },
    /// Lists the links in the host's namespace that were made for Docker.
    ListOwn {
        /// Answered by [`Outcome::OwnLinks`].
        op: OpId,
    },
    /// Sends a frame, from its Ethernet header on. A loss is the network's.
    Send {
        /// Answered by [`Outcome::Sent`], if anybody wants to know, unless the exchange breaks or is closed first.
        op: Option<OpId>,
        /// The exchange.
        exchange: ExchangeId,
        /// The frame.
        frame: Vec<u8>,
    },
    /// Has the packet socket of an open exchange hear nothing but this of ARP. Where that cannot be done the exchange breaks.
    Hear {
        /// The exchange.
        exchange: ExchangeId,
        /// What it hears from here on.
        arp: Hears,
    },
    /// Closes an exchange, opened or still opening, once what was to be sent over it is out.
    Close {
        /// Answered by [`Outcome::Closed`], if anybody waits for that.
        op: Option<OpId>,
        /// The exchange.
        exchange: ExchangeId,
    },
    /// Answers a request.
    Reply {
        /// The request.
        id: RequestId,
        /// The answer.
        answer: Answer,
    },
    /// Lets the host's programs read an attachment's name servers, in place of what they read before; `None`: it has none
    /// any more. Nothing is answered. The shell keeps the order, and at start forgets what no effect of the start names.
    Publish {
        /// Whose.
        attachment: Arc<Attachment>,
        /// What its lease, which is durable, says.
        dns: Option<Dns>,
    },
}

/// What the next deadline of the core is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Why {
    /// A call has to be answered.
    Call,
    /// The DHCP client of a binding goes on.
    Dhcp(Timer),
    /// Conflict detection goes on.
    Conflict,
    /// A RELEASE goes on, or is tried again.
    Release,
    /// A lease that could not be given back ends by itself.
    LeaseEnds,
    /// A failed write is tried again.
    Store,
    /// A failed change of an interface, or a failed look at one, is tried again.
    Work,
    /// The DEL of a link that went has not come.
    Orphan,
}

/// What a caller asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call {
    /// Get or keep a lease for an attachment.
    Add(Box<Add>),
    /// Give an attachment's lease back.
    Del {
        /// The attachment.
        attachment: Attachment,
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
    /// Keep a network, of which dockerd will not tell again.
    Create(Box<NetworkRecord>),
    /// Forget a network. One that is not known is success.
    Delete(DockerId),
    /// What was said of a network when it was created?
    Find(DockerId),
    /// The same of the only network whose addresses come from a pool of ours that is all there is (0.0.0.0/0): Docker names no
    /// network when it asks for an address.
    FindByPool,
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
    /// To `Create`, durable; to `Delete` and `DeleteEndpoint`, of whatever network or endpoint.
    Done,
    /// To `Find` and `FindByPool`.
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
        let grant = Grant::v4(&lease, profile).told(profile);
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
    /// What keeps the RELEASE of one that is RELEASING, and for how long something has.
    pub held_up: Option<(Duration, String)>,
    /// Where its packets go.
    pub link: Link,
}
