//! Local ranges: addresses that a network's configuration gives, without any server.
//!
//! An [`Allocator`] knows which addresses of one network are taken, and by whom. It gives the next one as host-local
//! does: round robin from the address after the last one given. It searches spans of free addresses, so an allocation
//! costs the same however many addresses are taken, and the same in a /8 or a /64 as in a /28.
//!
//! It does no I/O: it knows neither packets, nor files, nor which interface carries an address.

mod free;
mod sets;
mod taken;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use self::free::{Free, after};
use self::taken::Taken;
use crate::identity::{AddressHolder, Attachment};
use crate::time::WallTime;

pub use self::sets::{BadRange, Overlap, Range, Said, Sets, overlaps};
pub use self::taken::Holding;

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
    /// What is taken, in the ranges or not.
    taken: Taken,
}

/// Ranges for containers that no server answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fallback {
    sets: Sets,
    /// How long servers must be silent.
    pub after: Duration,
    /// How far from the first address the first search begins: it follows from the host, so that hosts with the same ranges
    /// seldom try the same address.
    offset: u128,
}

/// Says who else has an address: a holder that no allocator knows of.
pub type Others<'a> = dyn Fn(IpAddr) -> Option<AddressHolder> + 'a;

/// An address that was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Given {
    /// The address with its subnet's prefix.
    pub address: IpNet,
    /// The gateway.
    pub gateway: IpAddr,
}

/// One range, and its taken addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Usage<'a> {
    /// The index of its set.
    pub set: usize,
    /// The range.
    pub range: &'a Range,
    /// How many addresses it has for containers.
    pub size: u128,
    /// Those that are taken, in order, and who has each.
    pub taken: Vec<(IpAddr, &'a Holding)>,
}

/// Why no address was given.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoAddress {
    /// All addresses of a set are taken.
    #[error("{taken} of {size} addresses of range set {set} are taken{}", longest(.oldest))]
    Full {
        /// The set's index.
        set: usize,
        /// How many addresses it has for containers.
        size: u128,
        /// How many are taken.
        taken: usize,
        /// The one that was taken first, and who has it. `None`: the set has none but gateways.
        oldest: Option<Box<(IpAddr, Holding)>>,
    },
    /// The caller has an address of the set already.
    #[error("{by} has {address} already")]
    Duplicate {
        /// The address.
        address: IpAddr,
        /// The caller.
        by: Arc<Attachment>,
    },
    /// The requested address is taken, by another or by the caller itself.
    #[error("{address} is taken by {by}")]
    Taken {
        /// The address.
        address: IpAddr,
        /// Who has it.
        by: AddressHolder,
    },
    /// The requested address is a gateway.
    #[error("{0} is a gateway")]
    Gateway(IpAddr),
    /// A requested address is in no set, or is the second in one.
    #[error("no range set has {0} to give")]
    NotInSets(IpAddr),
}

fn longest(oldest: &Option<Box<(IpAddr, Holding)>>) -> String {
    oldest
        .as_deref()
        .map_or_else(String::new, |(address, holding)| {
            format!(", {address} the longest, by {}", holding.by)
        })
}

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
        })
    }

    /// Gives the ranges another gateway.
    pub fn go_by(&mut self, gateway: IpAddr) {
        self.sets.go_by(gateway);
    }

    /// Returns the allocator without any address taken. `last`: the last address given.
    pub fn allocator(&self, last: Option<IpAddr>) -> Allocator {
        let mut allocator = Allocator::new(self.sets.clone(), self.offset);
        last.into_iter()
            .for_each(|last| allocator.begin_after(0, last));
        allocator
    }

    /// Returns an address of the ranges with its prefix and gateway; `None`: they do not have it.
    pub fn take_over(&self, address: IpAddr) -> Option<Given> {
        self.sets
            .have(address)
            .then(|| self.allocator(None).given(0, address))
    }
}

impl Allocator {
    /// Returns the allocator of a network without any address taken. The first search in each set begins `offset` addresses after
    /// the set's first one, wrapping around at its end.
    pub fn new(sets: Sets, offset: u128) -> Self {
        let (last, taken) = (BTreeMap::new(), Taken::default());
        let free = free_of(&sets, &taken);
        Self {
            sets,
            offset,
            last,
            free,
            taken,
        }
    }

    /// Returns the network's ranges.
    pub fn sets(&self) -> &Sets {
        &self.sets
    }

    /// Changes the network's ranges. What is taken stays taken.
    pub fn set_ranges(&mut self, sets: Sets) {
        self.free = free_of(&sets, &self.taken);
        self.sets = sets;
    }

    /// Records an address as taken, in a range or not. Returns whether nobody had it.
    pub fn occupy(&mut self, address: IpAddr, holding: Holding) -> bool {
        let is_new = self.taken.get(address).is_none();
        self.free.take(address);
        self.taken.insert(address, holding);
        is_new
    }

    /// Has the next search in a set begin after an address, as if that had been given last.
    pub fn begin_after(&mut self, set: usize, address: IpAddr) {
        self.last.insert(set, address);
    }

    /// Gives an attachment an address of each set, in the order of the sets: the one among `asked` that the set contains, else the
    /// next free one. An address that one of the `others` has is not given.
    ///
    /// # Errors
    /// The first set that cannot give its address, or an address of `asked` that is left over. Nothing is taken then, but
    /// the next search begins after what would have been.
    pub fn allocate(
        &mut self,
        by: &Arc<Attachment>,
        asked: &[IpAddr],
        others: &Others<'_>,
        now: WallTime,
    ) -> Result<Vec<Given>, NoAddress> {
        let mut given = Vec::with_capacity(self.sets.count());
        let outcome =
            self.allocate_each(by, asked.iter().copied().collect(), others, now, &mut given);
        if outcome.is_err() {
            given
                .iter()
                .for_each(|given| self.vacate(given.address.addr(), by));
        }
        outcome.map(|()| given)
    }

    fn allocate_each(
        &mut self,
        by: &Arc<Attachment>,
        mut asked: BTreeSet<IpAddr>,
        others: &Others<'_>,
        now: WallTime,
        given: &mut Vec<Given>,
    ) -> Result<(), NoAddress> {
        for set in 0..self.sets.count() {
            let wanted = asked
                .iter()
                .copied()
                .find(|address| self.sets.range_of(set, *address).is_some());
            let address = match wanted {
                Some(address) => self.available(address, others)?,
                None => self.next(set, by, others)?,
            };
            asked.remove(&address);
            given.push(self.given(set, address));
            self.occupy(
                address,
                Holding {
                    by: by.clone(),
                    since: now,
                },
            );
            self.begin_after(set, address);
        }
        asked
            .first()
            .map_or(Ok(()), |address| Err(NoAddress::NotInSets(*address)))
    }

    /// Returns an address of a set with its prefix and gateway.
    fn given(&self, set: usize, address: IpAddr) -> Given {
        let (_, range) = self
            .sets
            .range_of(set, address)
            .expect("the set gives what it contains");
        let prefix = range.subnet.prefix_len();
        let with_prefix =
            IpNet::new(address, prefix).expect("the prefix of a subnet of this family");
        Given {
            address: with_prefix,
            gateway: range.gateway,
        }
    }

    /// Returns a requested address of a set, if it can be given. An attachment that has another one may have it too.
    fn available(&self, address: IpAddr, others: &Others<'_>) -> Result<IpAddr, NoAddress> {
        if !self.sets.have(address) {
            return Err(NoAddress::Gateway(address));
        }
        let own = self
            .taken
            .get(address)
            .map(|holding| AddressHolder::Attachment(holding.by.clone()));
        match own.or_else(|| others(address)) {
            Some(by) => Err(NoAddress::Taken { address, by }),
            None => Ok(address),
        }
    }

    /// Returns the next free address of a set for an attachment that has none of it.
    fn next(
        &self,
        set: usize,
        by: &Arc<Attachment>,
        others: &Others<'_>,
    ) -> Result<IpAddr, NoAddress> {
        match self
            .taken
            .of(by)
            .find(|address| self.sets.range_of(set, *address).is_some())
        {
            Some(address) => Err(NoAddress::Duplicate {
                address,
                by: by.clone(),
            }),
            None => self.next_free(set, others),
        }
    }

    /// Returns the next free address of the first set, without taking it.
    pub fn peek(&self) -> Result<Given, NoAddress> {
        Ok(self.given(0, self.next_free(0, &|_| None)?))
    }

    fn next_free(&self, set: usize, others: &Others<'_>) -> Result<IpAddr, NoAddress> {
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
        let rest = self.first_free(from, ranges[at].last, others);
        // Once around, with the beginning of the same range last.
        let mut around = ranges[at + 1..].iter().chain(&ranges[..=at]);
        rest.or_else(|| {
            around.find_map(|range| self.first_free(Some(range.first), range.last, others))
        })
        .ok_or_else(|| self.full(set))
    }

    /// Returns the first free address from one on that none of the others has.
    fn first_free(
        &self,
        from: Option<IpAddr>,
        last: IpAddr,
        others: &Others<'_>,
    ) -> Option<IpAddr> {
        let free = |from: Option<IpAddr>| self.free.first_in(from?, last);
        std::iter::successors(free(from), |address| free(after(*address)))
            .find(|address| others(*address).is_none())
    }

    /// Returns that the set is full. Looks at every taken address of it.
    fn full(&self, set: usize) -> NoAddress {
        let of_set: Vec<_> = self.usage().filter(|usage| usage.set == set).collect();
        let taken = of_set.iter().flat_map(|usage| &usage.taken);
        NoAddress::Full {
            set,
            size: of_set.iter().map(|usage| usage.size).sum(),
            taken: taken.clone().count(),
            oldest: taken
                .min_by_key(|(_, holding)| holding.since)
                .map(|(address, holding)| Box::new((*address, (*holding).clone()))),
        }
    }

    /// Forgets that an attachment has an address, which is free then unless another has it too.
    pub fn vacate(&mut self, address: IpAddr, by: &Attachment) {
        if self.taken.remove(address, by) && self.sets.have(address) {
            self.free.add(address, address);
        }
    }

    /// Returns whether an address can be given.
    pub fn is_free(&self, address: IpAddr) -> bool {
        self.sets.have(address) && self.taken.get(address).is_none()
    }

    /// Returns the last address given of each set, by the set's index.
    pub fn last(&self) -> impl Iterator<Item = (usize, IpAddr)> {
        self.last.iter().map(|(set, address)| (*set, *address))
    }

    /// Returns all taken addresses in order, in the ranges or not.
    pub fn taken(&self) -> impl Iterator<Item = (IpAddr, &Holding)> {
        self.taken.all()
    }

    /// Returns each range and its taken addresses, in the order of the configuration.
    pub fn usage(&self) -> impl Iterator<Item = Usage<'_>> {
        let gateways = self.sets.gateways();
        self.sets.ranges().map(move |(set, range)| {
            let within = gateways.range(range.first..=range.last).count();
            let taken = self.taken.within(range.first, range.last).collect();
            Usage {
                set,
                range,
                size: range.length() - within as u128,
                taken,
            }
        })
    }
}

fn free_of(sets: &Sets, taken: &Taken) -> Free {
    let mut free = Free::default();
    sets.ranges()
        .for_each(|(_, range)| free.add(range.first, range.last));
    let unavailable = sets
        .gateways()
        .into_iter()
        .chain(taken.all().map(|(address, _)| address));
    unavailable.for_each(|address| {
        free.take(address);
    });
    free
}
