//! Fallbacks: local ranges for containers that no server answers, and who has which of their addresses.
//!
//! Which address is next is decided by [`leasehold_range`].

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

pub use leasehold_range::{BadRange, Range, RangeAddress, RangeConfig, Sets};

use crate::identity::Attachment;

/// Ranges for containers that no server answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fallback {
    sets: Sets,
    /// How long servers must be silent.
    pub after: Duration,
    /// How far from the first address the first search begins: it follows from the host, so that hosts with the same ranges
    /// seldom try the same address.
    offset: u128,
    /// Addresses that a plugin without a daemon has given in the same network.
    elsewhere: BTreeSet<IpAddr>,
}

/// The addresses of a fallback.
#[derive(Clone, Debug)]
pub struct FallbackAllocator {
    /// Which addresses are free, and which is next.
    range: leasehold_range::Allocator,
    /// What is taken, in the ranges or not.
    taken: BTreeMap<IpAddr, Arc<Attachment>>,
}

/// One range, and its taken addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Usage {
    /// The range.
    pub range: Range,
    /// How many addresses it has for containers.
    pub size: u128,
    /// Those that are taken, in order, and who has each; its attachment may belong to another network on the same LAN.
    pub taken: Vec<(IpAddr, Arc<Attachment>)>,
}

/// That all addresses of a fallback are taken: so many.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "all {0} addresses of the network's fallback are taken: `leasehold list --ranges` says by whom"
)]
pub struct NoAddress(pub u128);

impl Fallback {
    /// Returns a fallback to ranges of IPv4; `None` if there are others, or a second set: each container gets one address.
    pub fn new(sets: Sets, after: Duration, offset: u128) -> Option<Self> {
        let is_v4 = sets
            .ranges()
            .all(|(set, range)| set == 0 && range.first.is_ipv4());
        is_v4.then_some(Self {
            sets,
            after,
            offset,
            elsewhere: BTreeSet::new(),
        })
    }

    /// Has it pass over addresses that a plugin without a daemon has given in the same network.
    pub fn pass_over(&mut self, elsewhere: BTreeSet<IpAddr>) {
        self.elsewhere = elsewhere;
    }

    /// Gives the ranges another gateway.
    pub fn go_by(&mut self, gateway: IpAddr) {
        self.sets.go_by(gateway);
    }

    /// Returns the allocator without any address taken here. `last`: the last address given.
    pub fn allocator(&self, last: Option<IpAddr>) -> FallbackAllocator {
        let mut range = leasehold_range::Allocator::new(self.sets.clone(), self.offset);
        last.into_iter().for_each(|last| range.begin_after(0, last));
        self.elsewhere.iter().for_each(|address| {
            range.take(*address);
        });
        FallbackAllocator {
            range,
            taken: BTreeMap::new(),
        }
    }

    /// Returns an address of the ranges with its prefix and gateway; `None`: they do not have it.
    pub fn take_over(&self, address: IpAddr) -> Option<RangeAddress> {
        self.sets
            .have(address)
            .then(|| self.allocator(None).range.given(0, address))
    }
}

impl FallbackAllocator {
    /// Records an address as taken, in a range or not. Of several holders the first counts.
    pub fn occupy(&mut self, address: IpAddr, by: Arc<Attachment>) {
        self.range.take(address);
        self.taken.entry(address).or_insert(by);
    }

    /// Returns whether an address can be given.
    pub fn is_free(&self, address: IpAddr) -> bool {
        self.range.is_free(address)
    }

    /// Returns the next free address, without taking it.
    ///
    /// # Errors
    /// All are taken.
    pub fn peek(&self) -> Result<RangeAddress, NoAddress> {
        let sets = self.range.sets();
        let size = || sets.ranges().map(|(_, range)| sets.size(range)).sum();
        self.range.peek().map_err(|_| NoAddress(size()))
    }

    /// Returns each range and its taken addresses, in the order of the configuration.
    pub fn usage(&self) -> impl Iterator<Item = Usage> {
        let sets = self.range.sets();
        sets.ranges().map(move |(_, range)| Usage {
            range: *range,
            size: sets.size(range),
            taken: self
                .taken
                .range(range.first..=range.last)
                .map(|(address, by)| (*address, by.clone()))
                .collect(),
        })
    }
}
