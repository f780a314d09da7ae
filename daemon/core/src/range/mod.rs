//! Local ranges: addresses that a network's configuration gives, without any server, and who has them.
//!
//! Which address is next is decided by [`leasehold_range`].

mod taken;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use leasehold_range::Refusal;
pub use leasehold_range::{BadRange, Given, Overlap, Range, Said, Sets, overlaps};

use self::taken::Taken;
use crate::identity::{AddressHolder, Attachment};
use crate::time::WallTime;

pub use self::taken::Holding;

/// The addresses of one network.
#[derive(Clone, Debug)]
pub struct Allocator {
    /// Which addresses are free, and which is next.
    range: leasehold_range::Allocator,
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
    /// Addresses that a plugin without a daemon has given in the same network.
    elsewhere: BTreeSet<IpAddr>,
}

/// Says who else has an address: a holder that no allocator knows of.
pub type Others<'a> = dyn Fn(IpAddr) -> Option<AddressHolder> + 'a;

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

    /// Returns the allocator without any address taken. `last`: the last address given.
    pub fn allocator(&self, last: Option<IpAddr>) -> Allocator {
        let mut allocator = Allocator::new(self.sets.clone(), self.offset);
        last.into_iter()
            .for_each(|last| allocator.begin_after(0, last));
        self.elsewhere.iter().for_each(|address| {
            allocator.range.take(*address);
        });
        allocator
    }

    /// Returns an address of the ranges with its prefix and gateway; `None`: they do not have it.
    pub fn take_over(&self, address: IpAddr) -> Option<Given> {
        self.sets
            .have(address)
            .then(|| self.allocator(None).range.given(0, address))
    }
}

impl Allocator {
    /// Returns the allocator of a network without any address taken. The first search in each set begins `offset` addresses after
    /// the set's first one, wrapping around at its end.
    pub fn new(sets: Sets, offset: u128) -> Self {
        Self {
            range: leasehold_range::Allocator::new(sets, offset),
            taken: Taken::default(),
        }
    }

    /// Returns the network's ranges.
    pub fn sets(&self) -> &Sets {
        self.range.sets()
    }

    /// Changes the network's ranges. What is taken stays taken.
    pub fn set_ranges(&mut self, sets: Sets) {
        let taken = self.taken.all().map(|(address, _)| address);
        self.range.set_ranges(sets, taken);
    }

    /// Records an address as taken, in a range or not. Returns whether nobody had it.
    pub fn occupy(&mut self, address: IpAddr, holding: Holding) -> bool {
        let is_new = self.taken.get(address).is_none();
        self.range.take(address);
        self.taken.insert(address, holding);
        is_new
    }

    /// Has the next search in a set begin after an address, as if that had been given last.
    pub fn begin_after(&mut self, set: usize, address: IpAddr) {
        self.range.begin_after(set, address);
    }

    /// Gives an attachment an address of each set, as [`leasehold_range::Allocator::allocate`] does. An address that one of the
    /// `others` has is not given.
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
        let own: Vec<_> = self.taken.of(by).collect();
        let given = self
            .range
            .allocate(&own, asked, &|address| others(address).is_some())
            .map_err(|refusal| self.explain(refusal, by, others))?;
        for given in &given {
            let holding = Holding {
                by: by.clone(),
                since: now,
            };
            self.taken.insert(given.address.addr(), holding);
        }
        Ok(given)
    }

    /// Returns the refusal with those who have the addresses.
    fn explain(&self, refusal: Refusal, by: &Arc<Attachment>, others: &Others<'_>) -> NoAddress {
        match refusal {
            Refusal::Full(set) => self.full(set),
            Refusal::Duplicate(address) => NoAddress::Duplicate {
                address,
                by: by.clone(),
            },
            Refusal::Taken(address) => {
                let own = self.taken.get(address);
                let by = own
                    .map(|holding| AddressHolder::Attachment(holding.by.clone()))
                    .or_else(|| others(address))
                    .expect("somebody has what is taken");
                NoAddress::Taken { address, by }
            }
            Refusal::Gateway(address) => NoAddress::Gateway(address),
            Refusal::NotInSets(address) => NoAddress::NotInSets(address),
        }
    }

    /// Returns the next free address of the first set, without taking it.
    pub fn peek(&self) -> Result<Given, NoAddress> {
        // The one set of a fallback is the only one that is looked into.
        self.range.peek().map_err(|_| self.full(0))
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
        if self.taken.remove(address, by) {
            self.range.give_back(address);
        }
    }

    /// Returns whether an address can be given.
    pub fn is_free(&self, address: IpAddr) -> bool {
        self.range.is_free(address)
    }

    /// Returns the last address given of each set, by the set's index.
    pub fn last(&self) -> impl Iterator<Item = (usize, IpAddr)> {
        self.range.last()
    }

    /// Returns all taken addresses in order, in the ranges or not.
    pub fn taken(&self) -> impl Iterator<Item = (IpAddr, &Holding)> {
        self.taken.all()
    }

    /// Returns each range and its taken addresses, in the order of the configuration.
    pub fn usage(&self) -> impl Iterator<Item = Usage<'_>> {
        let sets = self.range.sets();
        sets.ranges().map(move |(set, range)| Usage {
            set,
            range,
            size: sets.size(range),
            taken: self.taken.within(range.first, range.last).collect(),
        })
    }
}
