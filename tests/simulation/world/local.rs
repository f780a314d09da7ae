//! Networks with local ranges: their containers, and host-local's files, which the daemon writes, and a stray host-local as well.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use leasehold_core::effect::{
    Call, Effect, FileCause, FileChange, FoundFile, Input, RangeCall, RequestId,
};
use leasehold_core::identity::Attachment;
use leasehold_core::link::Cookie;
use leasehold_core::range::{Given, Said, Sets};

use super::actor::Phase;
use super::{MILLI, Micros, SECOND, World};
use crate::plan::{Ranges, happens};
use crate::subject::{container, is_in};

/// The beginning of the names of networks with local ranges.
const NETWORK: &str = "local";

/// What is known about local ranges.
#[derive(Debug, Default)]
pub(crate) struct Local {
    pub(super) containers: Vec<Container>,
    /// Whose file each address has, by directory.
    pub(super) files: BTreeMap<(PathBuf, IpAddr), String>,
    /// What a stray host-local has given, by container.
    pub(super) strays: BTreeMap<String, Attachment>,
    /// How many it has given so far.
    pub(super) strayed: u32,
    /// The networks whose directory this run of the daemon has looked at.
    looked: BTreeSet<String>,
    /// Removals of files that are under way.
    removals: BTreeMap<(PathBuf, IpAddr), u32>,
    /// Writes of files that are under way: a caller that is answered a second time does not wait for them.
    pub(super) writes: BTreeMap<IpAddr, u32>,
    /// When the last change of a file happens: changes keep their order.
    changed: Micros,
}

/// A series of containers, one after the other.
#[derive(Debug)]
pub(crate) struct Container {
    pub(super) lan: usize,
    pub(super) network: usize,
    /// Counts the containers.
    pub(super) number: u32,
    pub(super) attachment: Attachment,
    pub(super) path: PathBuf,
    pub(super) netns: Option<Cookie>,
    pub(super) phase: Phase,
    /// The call that the container waits for.
    pub(super) call: Option<RequestId>,
    /// When its first ADD was sent.
    pub(super) since: Micros,
    pub(super) given: Vec<Given>,
    /// When its last namespace disappeared without a DEL.
    pub(super) died: Option<Micros>,
}

/// Returns the name of a network with local ranges.
pub(super) fn network_name(lan: usize, network: usize) -> String {
    format!("{NETWORK}{lan}-{network}")
}

/// Returns the directory of a network's files.
pub(super) fn directory_of(network: &str) -> PathBuf {
    Path::new("/var/lib/cni/networks").join(network)
}

/// Returns a network's ranges. Those of the second network of a LAN begin inside those of the first.
pub(super) fn sets_of(plan: &Ranges, lan: usize, network: usize) -> Sets {
    let first = 2 + network as u32;
    let last = first + plan.size - 1;
    let said = |subnet: String, start: String, end: String| Said {
        subnet: subnet.parse().expect("a subnet"),
        start: Some(start.parse().expect("an address")),
        end: Some(end.parse().expect("an address")),
        gateway: None,
    };
    let v4 = said(
        format!("10.{}.0.0/24", 100 + lan),
        format!("10.{}.0.{first}", 100 + lan),
        format!("10.{}.0.{last}", 100 + lan),
    );
    let v6 = said(
        format!("fd00:{lan}::/64"),
        format!("fd00:{lan}::{first:x}"),
        format!("fd00:{lan}::{last:x}"),
    );
    let sets: Vec<_> = [vec![v4], vec![v6]]
        .into_iter()
        .take(1 + usize::from(plan.both))
        .collect();
    Sets::new(&sets).expect("good ranges")
}

impl Local {
    /// Returns the containers of a plan.
    pub(super) fn new(plan: Option<&Ranges>, lans: usize) -> Self {
        let of_lan = |plan: &Ranges, lan| {
            let networks = plan.networks;
            let one = move |index: usize| Container {
                lan,
                network: index % networks,
                number: 0,
                attachment: Attachment::cni(network_name(lan, index % networks), "", "eth0"),
                path: PathBuf::new(),
                netns: None,
                phase: Phase::Idle,
                call: None,
                since: 0,
                given: Vec::new(),
                died: None,
            };
            (0..plan.containers).map(one).collect::<Vec<_>>()
        };
        let containers = plan
            .into_iter()
            .flat_map(|plan| (0..lans).flat_map(move |lan| of_lan(plan, lan)))
            .collect();
        Self {
            containers,
            ..Self::default()
        }
    }

    /// Handles the end of the daemon, with what it was about to do.
    pub(super) fn daemon_ended(&mut self) {
        self.looked.clear();
        self.removals.clear();
        self.writes.clear();
    }

    /// Returns whether every container either runs or is gone.
    pub(super) fn is_settled(&self) -> bool {
        self.containers
            .iter()
            .all(|one| matches!(one.phase, Phase::Live | Phase::Idle))
    }

    /// Returns the container of an attachment, if the attachment is its present one.
    pub(super) fn of(&self, attachment: &Attachment) -> Option<usize> {
        self.containers
            .iter()
            .position(|one| one.attachment == *attachment)
    }

    /// Returns whether a container of this name exists, or is a stray's.
    pub(super) fn lives(&self, name: &str) -> bool {
        let is_it =
            |one: &Container| container(&one.attachment) == name && one.phase != Phase::Idle;
        self.strays.contains_key(name) || self.containers.iter().any(is_it)
    }

    /// Returns what a GC of a network must keep.
    pub(super) fn valid(&self, network: &str) -> Vec<(String, String)> {
        let lives = self
            .containers
            .iter()
            .filter(|one| matches!(one.phase, Phase::Adding | Phase::Live));
        let all = lives.map(|one| &one.attachment).chain(self.strays.values());
        let of_network = all.filter(|by| is_in(by, network));
        of_network
            .map(|by| (container(by).to_owned(), "eth0".to_owned()))
            .collect()
    }

    /// Returns whether an attachment has its files.
    pub(super) fn has_files(&self, attachment: &Attachment, addresses: &[IpAddr]) -> bool {
        let Attachment::Cni { network, .. } = attachment else {
            return false;
        };
        let of = |address: &IpAddr| self.files.get(&(directory_of(network), *address));
        addresses
            .iter()
            .all(|address| of(address).is_some_and(|by| by == container(attachment)))
    }

    fn change(
        &mut self,
        key: (PathBuf, IpAddr),
        of: &str,
        change: FileChange,
    ) -> Result<(), FileCause> {
        match (change, self.files.get(&key)) {
            (FileChange::Write { .. }, Some(other)) if other != of => {
                return Err(FileCause::Taken(other.clone()));
            }
            (FileChange::Write { .. }, _) => _ = self.files.insert(key, of.to_owned()),
            (FileChange::Remove, there) => {
                if there.is_some_and(|by| by == of) {
                    self.files.remove(&key);
                }
            }
        }
        Ok(())
    }
}

impl World {
    /// Makes the daemon look at a network's directory before a call about a network with local ranges.
    pub(super) fn look_first(&mut self, call: &Call) {
        let network = match call {
            Call::Ranges(RangeCall::Add(add)) => &add.attachment,
            Call::Del { attachment, .. } | Call::Check { attachment, .. } => attachment,
            _ => return,
        };
        if let Attachment::Cni { network, .. } = network
            && network.starts_with(NETWORK)
        {
            self.look_into(&network.clone(), false);
        }
    }

    /// Returns when the change of a file happens.
    pub(super) fn next_file(&mut self, effect: &Effect) -> Micros {
        let slow = self.plan.ranges.as_ref().map_or(0, |ranges| ranges.slow);
        let most = if happens(&mut self.rng, slow) {
            3 * SECOND
        } else {
            2 * MILLI
        };
        let delay = self.rng.u64(20..most);
        match effect {
            Effect::File {
                directory,
                address,
                change: FileChange::Remove,
                ..
            } => {
                *self
                    .local
                    .removals
                    .entry((directory.clone(), *address))
                    .or_default() += 1;
            }
            Effect::File { address, .. } => *self.local.writes.entry(*address).or_default() += 1,
            _ => {}
        }
        self.local.changed = (self.local.changed + 1).max(self.now + delay);
        self.local.changed
    }

    /// Changes a file.
    pub(super) fn change_file(
        &mut self,
        (directory, address): (PathBuf, IpAddr),
        of: &Attachment,
        change: FileChange,
    ) -> Result<(), FileCause> {
        let key = (directory, address);
        match change {
            FileChange::Remove => ends(&mut self.local.removals, &key),
            FileChange::Write { .. } => ends(&mut self.local.writes, &key.1),
        }
        let result = self.local.change(key, container(of), change);
        self.stats.count(if result.is_ok() {
            "files of addresses"
        } else {
            "files of others that were in the way"
        });
        result
    }

    /// Makes the daemon look at a network's directory: before the network's first call in a run, and now and then later. `now`
    /// means that it must.
    pub(super) fn look_into(&mut self, network: &str, now: bool) {
        let is_first = self.local.looked.insert(network.to_owned());
        if self.daemon.is_none() || !is_first && !now && self.rng.u32(..4) > 0 {
            return;
        }
        let directory = directory_of(network);
        // Later only strays come, and their runtime has yet to say that they run.
        let knows = is_first && self.rng.bool();
        let there = self
            .local
            .files
            .iter()
            .filter(|(key, _)| key.0 == directory && !self.local.removals.contains_key(key));
        let found = there.map(|((_, address), by)| FoundFile {
            address: *address,
            container: Some(by.clone()),
            ifname: Some("eth0".to_owned()),
            gone: knows && !self.local.lives(by),
        });
        let found = found.collect();
        self.note(|| format!("> files of {network}: {found:?}"));
        self.feed(Input::Files {
            network: network.to_owned(),
            directory,
            found,
            last: Vec::new(),
        });
    }
}

/// Counts one operation fewer under way.
fn ends<K: Ord>(under_way: &mut BTreeMap<K, u32>, key: &K) {
    let Some(count) = under_way.get_mut(key) else {
        return;
    };
    *count -= 1;
    if *count == 0 {
        under_way.remove(key);
    }
}
