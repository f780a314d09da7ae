//! Why a network has no address to give, in host-local's words and more.

use std::time::SystemTime;

use leasehold_api::cni::{Code, Error};
use leasehold_range::{NotGiven, Sets};

use crate::directory::{Directory, Names};
use crate::note::{Host, Life};

/// Returns the error for a refusal. `container`: who asked.
pub(crate) fn error(
    refusal: NotGiven,
    container: &str,
    sets: &Sets,
    directory: &Directory,
    names: &Names,
    host: &Host,
) -> Error {
    let holder = |address| {
        let holder = directory.holder(address);
        holder.map_or("nobody that its file names".to_owned(), |holder| {
            holder.container
        })
    };
    let (code, text) = match refusal {
        NotGiven::Full(set) => (Code::TryAgainLater, full(set, sets, directory, names, host)),
        NotGiven::Duplicate(address) => (
            Code::TryAgainLater,
            format!(
                "{address} has been allocated to {container}, duplicate allocation is not allowed: a DEL gives it back"
            ),
        ),
        NotGiven::Taken(address) => (
            Code::TryAgainLater,
            format!(
                "requested IP address {address} is not available in range set: it is taken by {}",
                holder(address)
            ),
        ),
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

/// Says by what a set is full. Reads the file of each address of it.
fn full(set: usize, sets: &Sets, directory: &Directory, names: &Names, host: &Host) -> String {
    let of_set = || sets.ranges().filter(|(of, _)| *of == set);
    let size: u128 = of_set().map(|(_, range)| sets.size(range)).sum();
    let taken: Vec<_> = names
        .addresses()
        .filter(|address| sets.have(*address) && sets.range_of(set, *address).is_some())
        .collect();
    let running = taken
        .iter()
        .filter(|address| directory.life(names, **address, host) == Life::Lives)
        .count();
    let oldest = taken
        .iter()
        .min_by_key(|address| directory.since(**address).unwrap_or(SystemTime::UNIX_EPOCH));
    let longest = oldest.and_then(|address| Some((address, directory.holder(*address)?)));
    let longest = longest.map_or(String::new(), |(address, holder)| {
        format!(", {address} the longest, by {}", holder.container)
    });
    let unclear = taken.len() - running;
    let rest = match unclear {
        0 => String::new(),
        _ => format!(
            "; nobody can say whether those of the other {unclear} live: a GC frees what no container has, and so does \
             removing its files in {}",
            directory.path().display()
        ),
    };
    format!(
        "no IP addresses available in range set: {} of {size} addresses of range set {set} are taken{longest}; {running} \
         belong to running containers{rest}",
        taken.len()
    )
}
