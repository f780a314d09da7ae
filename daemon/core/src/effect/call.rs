//! What callers ask, and what they are answered: the calls of every front door.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use ipnet::IpNet;

use super::{
    Add, NetworkAnswer, NetworkCall, Obeyed, Order, PoolCall, RangeRow, Row, Shown, Verb, Which,
};
use crate::failure::Failure;
use crate::grant::policy::Policy;
use crate::identity::Attachment;
use crate::network::NetworkFault;
use crate::pool::{PoolId, PoolRecord};
use crate::source::Lease;
use crate::tenure::Tenure;

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
        /// The addresses that the caller expects (`prevResult`); empty: it did not say.
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
    /// Could an ADD be recorded now?
    Ready,
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
    /// All ranges of fallbacks, and their addresses in use.
    Ranges,
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
            Self::Ready => "ready",
            Self::List => "list",
            Self::Show(_) => "show",
            Self::Order(order) => match order.verb {
                Verb::Renew => "renew",
                Verb::Release { .. } => "release",
            },
            Self::Pool(call) => call.name(),
            Self::Network(call) => call.name(),
            Self::Ranges => "list_ranges",
        }
    }
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
    /// To `Status`: an ADD could be served. To `Ready`: one could be recorded.
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
        refused: BTreeMap<String, u64>,
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
    Ranges(Vec<RangeRow>),
    /// To any: it could not be done.
    Failed(Failure),
}

impl Answer {
    /// Returns the answer to an ADD that has a lease.
    pub fn leased(lease: &Lease, policy: &Policy) -> Self {
        Self::Leased {
            tenures: vec![lease.tenure(policy).without_late()],
        }
    }
}

impl From<Result<NetworkAnswer, NetworkFault>> for Answer {
    fn from(result: Result<NetworkAnswer, NetworkFault>) -> Self {
        result.map_or_else(|fault| Self::Failed(Failure::Network(fault)), Self::Network)
    }
}
