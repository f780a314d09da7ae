//! Local ranges: callers' questions and answers, and host-local's files.

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::grant::policy::Detection;
use crate::identity::{Attachment, ClientId, Lan};
use crate::range::{Given, Holding, Range, Sets, Usage};
use crate::time::WallTime;

/// The time of addresses that have been taken for an unknown time.
pub(crate) const LONG_AGO: WallTime = WallTime::from_epoch(Duration::ZERO);

/// What callers ask of local ranges. DEL, CHECK, GC and STATUS are those of any attachment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RangeCall {
    /// Give an attachment an address of each set.
    Add(Box<RangeAdd>),
    /// All ranges, and their addresses in use.
    List,
}

/// An answer to a [`RangeCall`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RangeAnswer {
    /// To `Add`: an address of each set, durable.
    Given(Vec<Given>),
    /// To `List`.
    Rows(Vec<RangeRow>),
}

/// An ADD of a network with local ranges.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RangeAdd {
    /// Who asks.
    pub attachment: Attachment,
    /// The path of its namespace. It need not exist.
    pub netns: PathBuf,
    /// The wire of its network.
    pub lan: Lan,
    /// The client that gets the same addresses again in another container, if any.
    pub returns_as: Option<ClientId>,
    /// The network's ranges.
    pub sets: Sets,
    /// The addresses to give, at most one of each set.
    pub asked: Vec<IpAddr>,
    /// The directory of the network's files.
    pub directory: PathBuf,
    /// Whether and how long its IPv4 addresses are probed for, if its interface is there.
    pub detection: Detection,
    /// The longest time from the request to its answer.
    pub timeout: Duration,
}

impl RangeAdd {
    /// Returns the name of its interface.
    pub(crate) fn ifname(&self) -> &str {
        if let Attachment::Cni { ifname, .. } = &self.attachment {
            ifname
        } else {
            ""
        }
    }
}

/// One range as `list` shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RangeRow {
    /// The network.
    pub network: String,
    /// Its wire.
    pub lan: Lan,
    /// The index of the range's set.
    pub set: usize,
    /// The range.
    pub range: Range,
    /// How many addresses it has for containers.
    pub size: u128,
    /// Whether containers get its addresses only while no server answers.
    pub is_fallback: bool,
    /// Its addresses in use, in order.
    pub taken: Vec<TakenRow>,
}

impl RangeRow {
    /// Returns the row of a network's range.
    pub(crate) fn of(network: &str, lan: &Lan, usage: Usage<'_>, is_fallback: bool) -> Self {
        let taken = |(address, Holding { by, since }): (IpAddr, &Holding)| TakenRow {
            address,
            by: by.clone(),
            since: Some(*since).filter(|since| *since != LONG_AGO),
        };
        Self {
            network: network.to_owned(),
            lan: lan.clone(),
            set: usage.set,
            range: *usage.range,
            size: usage.size,
            is_fallback,
            taken: usage.taken.into_iter().map(taken).collect(),
        }
    }
}

/// One taken address as `list` shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TakenRow {
    /// The address.
    pub address: IpAddr,
    /// Who has it; the attachment may belong to another network on the same LAN.
    pub by: Arc<Attachment>,
    /// Since when; `None`: only its file says that it is taken.
    pub since: Option<WallTime>,
}

/// The file of an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundFile {
    /// The address.
    pub address: IpAddr,
    /// The container, if the file names one.
    pub container: Option<String>,
    /// The interface, if the file names one.
    pub ifname: Option<String>,
    /// Whether the container is known to be gone.
    pub gone: bool,
}

/// What should happen to an address's file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileChange {
    /// It is written.
    Write {
        /// The index of the address's range set.
        set: usize,
    },
    /// It is removed, if it is the attachment's.
    Remove,
}

/// Why a file is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FileCause {
    /// Somebody else's file is there.
    #[error("its file is {0}'s")]
    Taken(String),
    /// It could not be changed now, and will be tried again.
    #[error("{0}")]
    Later(String),
}
