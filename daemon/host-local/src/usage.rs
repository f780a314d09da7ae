//! What a directory's files say about a range set, and why it has no address to give: in host-local's words, and more.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use leasehold_api::cni::{Code, Error};
use leasehold_range::{NotGiven, Sets};

use crate::directory::{Directory, Names};
use crate::lock::within;
use crate::note::{Host, Life};

/// How much of a range set is taken, and by whom.
#[derive(Clone, Debug)]
pub struct Usage {
    /// The set's index.
    pub set: usize,
    /// How many addresses it has for containers.
    pub size: u128,
    /// How many are taken.
    pub taken: usize,
    /// How many of these belong to containers that live.
    pub running: usize,
    /// How many belong to containers that are gone.
    pub gone: usize,
    /// The address that somebody has had for the longest time, and who.
    pub longest: Option<(IpAddr, String)>,
    /// Where the files are.
    pub directory: PathBuf,
}

impl Usage {
    /// Reads the files of all addresses of a set that are taken.
    fn of(set: usize, sets: &Sets, directory: &Directory, names: &Names, host: &Host) -> Self {
        let ranges = sets.ranges().filter(|(of, _)| *of == set);
        let is_of_set =
            |address: &IpAddr| sets.have(*address) && sets.range_of(set, *address).is_some();
        let taken: Vec<_> = names.addresses().filter(is_of_set).collect();
        let lives: Vec<_> = taken
            .iter()
            .map(|address| directory.life(names, *address, host))
            .collect();
        let count = |life| lives.iter().filter(|of| **of == life).count();
        let oldest = taken.iter().min_by_key(|address| {
            (
                directory.since(**address).unwrap_or(SystemTime::UNIX_EPOCH),
                **address,
            )
        });
        Self {
            set,
            size: ranges.map(|(_, range)| sets.size(range)).sum(),
            taken: taken.len(),
            running: count(Life::Lives),
            gone: count(Life::Gone),
            longest: oldest
                .and_then(|address| Some((*address, directory.holder(*address)?.container))),
            directory: directory.path().to_owned(),
        }
    }

    /// Returns whether no address is left, and none is proven to be left behind.
    pub fn is_full(&self) -> bool {
        self.taken as u128 >= self.size && self.gone == 0
    }
}

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            set,
            size,
            taken,
            running,
            gone,
            longest,
            directory,
        } = self;
        write!(
            f,
            "{taken} of {size} addresses of range set {set} are taken"
        )?;
        if let Some((address, container)) = longest {
            write!(f, ", {address} the longest, by {container}")?;
        }
        write!(f, "; {running} belong to running containers")?;
        if *gone > 0 {
            write!(
                f,
                ", {gone} to containers that are gone: an ADD that finds the set full frees them"
            )?;
        }
        match taken - running - gone {
            0 => Ok(()),
            unclear => write!(
                f,
                "; nobody can say whether those of the other {unclear} live: a GC frees what no container has, and so does \
                 removing its files in {}",
                directory.display()
            ),
        }
    }
}

/// Returns the usage of each range set, and how many files in the directory say nothing. Nothing is changed. Waits no longer than
/// `patience` for the directory and its lock.
///
/// # Errors
/// The directory cannot be read or locked, in CNI's words.
pub fn look(
    directory: &Directory,
    sets: &Sets,
    patience: Duration,
) -> Result<(Vec<Usage>, usize), Error> {
    let at = directory.clone();
    let sets = sets.clone();
    within(patience, directory.path().to_owned(), move |progress| {
        if !at.exists()? {
            return Ok((Vec::new(), 0));
        }
        let _locked = at.lock(progress)?;
        let names = at.names()?;
        let of = |set| Usage::of(set, &sets, &at, &names, &Host::this());
        Ok(((0..sets.count()).map(of).collect(), names.strays()))
    })
}

/// Returns the error for a refusal. `container`: who asked.
pub(crate) fn refused(
    refusal: NotGiven,
    container: &str,
    sets: &Sets,
    directory: &Directory,
    names: &Names,
    host: &Host,
) -> Error {
    let (code, text) = match refusal {
        NotGiven::Full(set) => {
            let usage = Usage::of(set, sets, directory, names, host);
            (
                Code::TryAgainLater,
                format!("no IP addresses available in range set: {usage}"),
            )
        }
        NotGiven::Duplicate(address) => (
            Code::TryAgainLater,
            format!(
                "{address} has been allocated to {container}, duplicate allocation is not allowed: a DEL gives it back"
            ),
        ),
        NotGiven::Taken(address) => {
            let holder = directory.holder(address).map(|holder| holder.container);
            let holder = holder.as_deref().unwrap_or("nobody that its file names");
            let text = format!(
                "requested IP address {address} is not available in range set: it is taken by {holder}"
            );
            (Code::TryAgainLater, text)
        }
        NotGiven::Gateway(address) => (
            Code::InvalidConfig,
            format!("requested ip is subnet's gateway: {address}"),
        ),
        NotGiven::NotInSets(address) => (
            Code::InvalidConfig,
            format!("failed to allocate all requested IPs: no range set has {address} to give"),
        ),
    };
    Error::new(code, text)
}
