//! Addresses of a network's ranges, given out as host-local does: round robin from the address after the last one given, one of
//! each set, past the gateways.
//!
//! An [`Allocator`] knows which addresses are free, not who has the others. It searches spans of free addresses, so an
//! allocation costs the same however many addresses are taken, and the same in a /8 or a /64 as in a /28.
//!
//! It does no I/O: it knows neither packets, nor files, nor which interface carries an address.

mod free;
mod sets;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use self::free::{Free, after};

pub use self::sets::{BadRange, Range, RangeConfig, Sets};

/// The addresses of one network.
#[derive(Clone, Debug)]
pub struct Allocator {
    sets: Sets,
    /// How far from a set's first address its first search begins.
    offset: u128,
    /// The last address given of each set. It may lie outside, since the ranges may have changed.
    last: BTreeMap<usize, IpAddr>,
    /// What can be given: in a range, no gateway, not taken.
    free: Free,
}

/// Says whether somebody has an address that the allocator believes to be free.
pub type IsTaken<'a> = dyn Fn(IpAddr) -> bool + 'a;

/// An address that was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RangeAddress {
    /// The address with its subnet's prefix.
    pub address: IpNet,
    /// The gateway.
    pub gateway: IpAddr,
}

/// Why no address was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotGiven {
    /// All addresses of a set are taken.
    #[error("all addresses of range set {0} are taken")]
    Full(usize),
    /// The caller has this address of the set already.
    #[error("the caller has {0} already")]
    Duplicate(IpAddr),
    /// The requested address is taken, by another or by the caller itself.
    #[error("{0} is taken")]
    Taken(IpAddr),
    /// The requested address is a gateway.
    #[error("{0} is a gateway")]
    Gateway(IpAddr),
    /// A requested address is in no set, or is the second in one.
    #[error("no range set has {0} to give")]
    NotInSets(IpAddr),
}

impl Allocator {
    /// Returns the allocator of a network without any address taken. The first search in each set begins `offset` addresses after
    /// the set's first one, wrapping around at its end.
    pub fn new(sets: Sets, offset: u128) -> Self {
        let free = free_of(&sets);
        Self {
            sets,
            offset,
            last: BTreeMap::new(),
            free,
        }
    }

    /// Returns the network's ranges.
    pub fn sets(&self) -> &Sets {
        &self.sets
    }

    /// Records an address as taken. Returns whether it could have been given.
    pub fn take(&mut self, address: IpAddr) -> bool {
        self.free.take(address)
    }

    /// Records that nobody has an address any more.
    pub fn give_back(&mut self, address: IpAddr) {
        if self.sets.have(address) && !self.is_free(address) {
            self.free.add(address, address);
        }
    }

    /// Returns whether an address can be given.
    pub fn is_free(&self, address: IpAddr) -> bool {
        self.free.first_in(address, address).is_some()
    }

    /// Has the next search in a set begin after an address, as if that had been given last.
    pub fn begin_after(&mut self, set: usize, address: IpAddr) {
        self.last.insert(set, address);
    }

    /// Returns the last address given of each set, by the set's index.
    pub fn last(&self) -> impl Iterator<Item = (usize, IpAddr)> {
        self.last.iter().map(|(set, address)| (*set, *address))
    }

    /// Gives an address of each set, in the order of the sets: the one among `asked` that the set contains, else the next free
    /// one. `own`: the addresses that the caller has already. An address that `is_taken` is not given.
    ///
    /// # Errors
    /// The first set that cannot give its address, or an address of `asked` that is left over. Nothing is taken then, but
    /// the next search begins after what would have been.
    pub fn allocate(
        &mut self,
        own: &[IpAddr],
        asked: &[IpAddr],
        is_taken: &IsTaken<'_>,
    ) -> Result<Vec<RangeAddress>, NotGiven> {
        let mut given = Vec::with_capacity(self.sets.count());
        let asked = asked.iter().copied().collect();
        let outcome = self.allocate_each(own, asked, is_taken, &mut given);
        if outcome.is_err() {
            given
                .iter()
                .for_each(|given| self.give_back(given.address.addr()));
        }
        outcome.map(|()| given)
    }

    fn allocate_each(
        &mut self,
        own: &[IpAddr],
        mut asked: BTreeSet<IpAddr>,
        is_taken: &IsTaken<'_>,
        given: &mut Vec<RangeAddress>,
    ) -> Result<(), NotGiven> {
        for set in 0..self.sets.count() {
            let is_of_set = |address: &IpAddr| self.sets.range_of(set, *address).is_some();
            let address = match asked.iter().copied().find(is_of_set) {
                Some(address) => self.available(address, is_taken)?,
                None => match own.iter().copied().find(is_of_set) {
                    Some(address) => return Err(NotGiven::Duplicate(address)),
                    None => self.next(set, is_taken)?,
                },
            };
            asked.remove(&address);
            given.push(self.given(set, address));
            self.take(address);
            self.begin_after(set, address);
        }
        asked
            .first()
            .map_or(Ok(()), |address| Err(NotGiven::NotInSets(*address)))
    }

    /// Returns a requested address of a set, if it can be given. A caller that has another one may have it too.
    fn available(&self, address: IpAddr, is_taken: &IsTaken<'_>) -> Result<IpAddr, NotGiven> {
        if !self.sets.have(address) {
            return Err(NotGiven::Gateway(address));
        }
        if self.is_free(address) && !is_taken(address) {
            Ok(address)
        } else {
            Err(NotGiven::Taken(address))
        }
    }

    /// Returns an address of a set with its prefix and gateway.
    ///
    /// # Panics
    /// The set does not contain the address.
    pub fn given(&self, set: usize, address: IpAddr) -> RangeAddress {
        let (_, range) = self
            .sets
            .range_of(set, address)
            .expect("the set gives what it contains");
        let prefix = range.subnet.prefix_len();
        let with_prefix =
            IpNet::new(address, prefix).expect("the prefix of a subnet of this family");
        RangeAddress {
            address: with_prefix,
            gateway: range.gateway,
        }
    }

    /// Returns the next free address of the first set, without taking it.
    ///
    /// # Errors
    /// All addresses of the set are taken.
    pub fn peek(&self) -> Result<RangeAddress, NotGiven> {
        Ok(self.given(0, self.next(0, &|_| false)?))
    }

    fn next(&self, set: usize, is_taken: &IsTaken<'_>) -> Result<IpAddr, NotGiven> {
        let ranges = self.sets.set(set);
        let last = self
            .last
            .get(&set)
            .and_then(|last| Some((self.sets.range_of(set, *last)?.0, *last)));
        let (at, from) = match last {
            Some((at, last)) => (at, after(last)),
            None => {
                let (at, from) = self.sets.nth(set, self.offset);
                (at, Some(from))
            }
        };
        let rest = self.first_free(from, ranges[at].last, is_taken);
        // Once around, with the beginning of the same range last.
        let mut around = ranges[at + 1..].iter().chain(&ranges[..=at]);
        rest.or_else(|| {
            around.find_map(|range| self.first_free(Some(range.first), range.last, is_taken))
        })
        .ok_or(NotGiven::Full(set))
    }

    /// Returns the first free address from one on that nobody else has.
    fn first_free(
        &self,
        from: Option<IpAddr>,
        last: IpAddr,
        is_taken: &IsTaken<'_>,
    ) -> Option<IpAddr> {
        let free = |from: Option<IpAddr>| self.free.first_in(from?, last);
        std::iter::successors(free(from), |address| free(after(*address)))
            .find(|address| !is_taken(*address))
    }
}

fn free_of(sets: &Sets) -> Free {
    let mut free = Free::default();
    sets.ranges()
        .for_each(|(_, range)| free.add(range.first, range.last));
    sets.gateways().into_iter().for_each(|gateway| {
        free.take(gateway);
    });
    free
}
