//! What is held at the moment, in numbers: counted when somebody asks, so that nothing must be kept in step meanwhile.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::Registry;
use super::fallback::is_of_range;
use crate::time::Instant;

/// How many networks are counted separately. Runtimes may make one for each container.
const MOST_NETWORKS: usize = 100;

/// What stands for all further networks. No network can have this name.
pub const OTHER_NETWORKS: &str = "(others)";

/// What is held, in numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holdings {
    /// How many leases there are of each kind, including those being acquired or given back.
    pub leases: BTreeMap<Kind, u64>,
    /// The time until the first lease ends that a server was asked to extend or confirm, but that none has; `None`: there is none.
    pub next_end: Option<Duration>,
    /// Of such leases, how long the one with the least part left will last, and how long it was granted for.
    pub least_left: Option<(Duration, Duration)>,
    /// How many containers that ran before the daemon must still be adopted.
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
    /// Its state, as `list` names it.
    pub state: &'static str,
}

impl Holdings {
    /// Returns what is held.
    pub(crate) fn of(core: &Registry, now: Instant) -> Self {
        let bindings = || core.tables.bindings.iter();
        let name = labels(bindings().map(|binding| binding.attachment.network()));
        let mut leases: BTreeMap<Kind, u64> = BTreeMap::new();
        for binding in bindings() {
            let is_local = is_of_range(binding, now);
            let kind = Kind {
                door: binding.attachment.door(),
                network: name(binding.attachment.network()),
                source: if is_local { "range" } else { "server" },
                state: binding.state().as_str(),
            };
            *leases.entry(kind).or_default() += 1;
        }
        let left = bindings().filter_map(|binding| {
            let (lease, _) = binding.unextended(now)?;
            Some((lease.expires()?.saturating_since(now), lease.times?.end))
        });
        let left: Vec<_> = left.collect();
        let part = |(left, of): &(Duration, Duration)| left.as_secs_f64() / of.as_secs_f64();
        Self {
            leases,
            next_end: left.iter().map(|(left, _)| *left).min(),
            least_left: left.into_iter().min_by(|a, b| part(a).total_cmp(&part(b))),
            adopting: core.adoptions.len() as u64,
        }
    }
}

/// Returns the function that names each of these networks: those beyond [`MOST_NETWORKS`] share one name.
fn labels<'a>(networks: impl Iterator<Item = &'a str>) -> impl Fn(&str) -> String {
    let all: BTreeSet<&str> = networks.collect();
    let last = all.into_iter().nth(MOST_NETWORKS);
    move |network| {
        if last.is_none_or(|last| network < last) {
            network
        } else {
            OTHER_NETWORKS
        }
        .to_owned()
    }
}
