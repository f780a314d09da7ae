//! What is held at a moment, in numbers: counted when somebody asks, so that nothing has to be kept in step meanwhile.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::Registry;
use crate::counts::Counts;
use crate::identity::Attachment;
use crate::time::Instant;

/// How many networks are told apart. Runtimes may make one for each container.
const MOST_NETWORKS: usize = 100;

/// What stands for all further networks. No network can have this name.
pub const OTHER_NETWORKS: &str = "(others)";

/// What is held, in numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holdings {
    /// How many leases there are of each kind, those included that are looked for or on their way back.
    pub leases: BTreeMap<Kind, u64>,
    /// Until the first lease ends that no server has extended, or confirmed, although one was asked; `None` if there is none.
    pub next_end: Option<Duration>,
    /// How many addresses the local ranges of each network have, and how many of them are taken.
    pub ranges: BTreeMap<String, (u64, u64)>,
    /// How many containers that ran before the daemon are still to be adopted.
    pub adopting: u64,
}

/// What leases have in common.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Kind {
    /// The front door that asked for it: `cni` or `docker`.
    pub door: &'static str,
    /// The network, Docker's pool, or [`OTHER_NETWORKS`].
    pub network: String,
    /// Who granted it: a `server` or a `range`.
    pub source: &'static str,
    /// Its state, as `list` names it; `HELD` if a range gave it.
    pub state: &'static str,
}

impl Registry {
    /// Returns what was counted since the start.
    pub fn counts(&self) -> &Counts {
        &self.out.counts
    }

    /// Returns what is held.
    pub fn holdings(&self, now: Instant) -> Holdings {
        let mut leases: BTreeMap<(&'static str, &str, &'static str, &'static str), u64> = BTreeMap::new();
        for binding in self.bindings.iter() {
            let (door, network) = named(&binding.attachment);
            let of_range = binding.lease(now).is_some_and(|lease| !lease.source.is_asked());
            let source = if of_range { "range" } else { "server" };
            *leases.entry((door, network, source, binding.state().as_str())).or_default() += 1;
        }
        for (attachment, held) in self.ranges.all_held() {
            let (door, network) = named(attachment);
            let state = if held.is_leaving { "RELEASING" } else { "HELD" };
            *leases.entry((door, network, "range", state)).or_default() += held.record.given.len() as u64;
        }
        let ends = self.bindings.iter().filter_map(|binding| binding.ends_unextended(now));
        Holdings {
            leases: with_names(leases),
            next_end: ends.min().map(|at| at.saturating_since(now)),
            ranges: self.ranges.sizes(),
            adopting: self.adoptions.len() as u64,
        }
    }
}

/// Returns the front door and the network of an attachment.
fn named(attachment: &Attachment) -> (&'static str, &str) {
    match attachment {
        Attachment::Cni { network, .. } => ("cni", network),
        Attachment::Docker { pool, .. } => ("docker", pool),
    }
}

/// Returns the same with names of its own, and with the networks beyond [`MOST_NETWORKS`] in one.
fn with_names(leases: BTreeMap<(&'static str, &str, &'static str, &'static str), u64>) -> BTreeMap<Kind, u64> {
    let all: BTreeSet<&str> = leases.keys().map(|(_, network, ..)| *network).collect();
    let last = all.iter().nth(MOST_NETWORKS).copied();
    let mut named = BTreeMap::new();
    for ((door, network, source, state), count) in &leases {
        let is_told_apart = last.is_none_or(|last| *network < last);
        let network = if is_told_apart { *network } else { OTHER_NETWORKS }.to_owned();
        *named.entry(Kind { door, network, source, state }).or_default() += count;
    }
    named
}
