//! The ranges of a network: what a configuration says, completed and checked as host-local does.
//!
//! host-local gives out the network's and the broadcast address if a range names them as its start or end, and one
//! range's gateway if another range contains it. None of these is an address for a container: such ranges are
//! accepted, and these addresses are left out.

use std::collections::BTreeSet;
use std::net::IpAddr;

use ipnet::IpNet;

use super::free::{after, before, plus};

/// A range as its configuration states it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RangeConfig {
    /// The subnet, whose prefix each address gets.
    pub subnet: IpNet,
    /// The first address; without it, the first after the network's.
    pub start: Option<IpAddr>,
    /// The last address; without it, the last before the broadcast address, which IPv6 does not have.
    pub end: Option<IpAddr>,
    /// The gateway; without it, the first address after the network's.
    pub gateway: Option<IpAddr>,
}

/// A range of addresses for containers. Gateways may lie in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// The subnet.
    pub subnet: IpNet,
    /// The first address.
    pub first: IpAddr,
    /// The last address.
    pub last: IpAddr,
    /// The gateway of its addresses; it need not lie in the subnet.
    pub gateway: IpAddr,
}

/// The range sets of a network, each of one family, none of which overlap. An ADD gets an address of each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sets(Vec<Vec<Range>>);

/// Why ranges cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadRange {
    /// There is no set.
    #[error("no IP ranges specified")]
    NoSets,
    /// A set without a range.
    #[error("empty range set {0}")]
    EmptySet(usize),
    /// A /31, /32, /127 or /128.
    #[error(
        "subnet {0} is too small to allocate from: it has no room for a gateway and a container"
    )]
    TooSmall(IpNet),
    /// An address of the subnet instead of the subnet.
    #[error("subnet {subnet} has host bits set: did you mean {network}?")]
    HostBits {
        /// What was said.
        subnet: IpNet,
        /// The subnet that it lies in.
        network: IpNet,
    },
    /// A start or an end that is not in the range's subnet.
    #[error("{address} is not in network {subnet}")]
    OutOfSubnet {
        /// The start or end.
        address: IpAddr,
        /// The range's subnet.
        subnet: IpNet,
    },
    /// A gateway of the other family.
    #[error("gateway {gateway} is not of the family of subnet {subnet}")]
    ForeignGateway {
        /// The gateway.
        gateway: IpAddr,
        /// The range's subnet.
        subnet: IpNet,
    },
    /// A range that ends before it starts, or holds the network's and broadcast address only.
    #[error("no address for a container from {start} to {end} in subnet {subnet}")]
    EmptyRange {
        /// Its start.
        start: IpAddr,
        /// Its end.
        end: IpAddr,
        /// Its subnet.
        subnet: IpNet,
    },
    /// A set of both families.
    #[error("mixed address families in range set {0}")]
    MixedFamilies(usize),
    /// Two ranges with the same addresses.
    #[error("range sets {} and {} overlap: both have {first} to {last}", .sets[0], .sets[1])]
    Overlap {
        /// Their sets, which may be one.
        sets: [usize; 2],
        /// The first address of both.
        first: IpAddr,
        /// The last address of both.
        last: IpAddr,
    },
}

impl Range {
    fn new(said: &RangeConfig) -> Result<Self, BadRange> {
        let RangeConfig {
            subnet,
            start,
            end,
            gateway,
        } = *said;
        let is_family = |address: IpAddr| address.is_ipv4() == matches!(subnet, IpNet::V4(_));
        if subnet.prefix_len() > subnet.max_prefix_len() - 2 {
            return Err(BadRange::TooSmall(subnet));
        }
        if subnet.trunc() != subnet {
            return Err(BadRange::HostBits {
                subnet,
                network: subnet.trunc(),
            });
        }
        if let Some(address) = [start, end]
            .into_iter()
            .flatten()
            .find(|address| !subnet.contains(address))
        {
            return Err(BadRange::OutOfSubnet { address, subnet });
        }
        if let Some(gateway) = gateway.filter(|gateway| !is_family(*gateway)) {
            return Err(BadRange::ForeignGateway { gateway, subnet });
        }
        let lowest = after(subnet.network()).expect("a subnet of four addresses at least");
        let highest = match subnet {
            IpNet::V4(_) => {
                before(subnet.broadcast()).expect("a subnet of four addresses at least")
            }
            IpNet::V6(_) => subnet.broadcast(),
        };
        let start = start.unwrap_or(lowest);
        let end = end.unwrap_or(highest);
        let first = start.max(lowest);
        let last = end.min(highest);
        if first > last {
            return Err(BadRange::EmptyRange { start, end, subnet });
        }
        Ok(Self {
            subnet,
            first,
            last,
            gateway: gateway.unwrap_or(lowest),
        })
    }

    /// Returns whether an address lies in the range.
    pub fn contains(&self, address: IpAddr) -> bool {
        (self.first..=self.last).contains(&address)
    }

    /// Returns how many addresses lie from the first to the last. The network's address is not counted, so that the
    /// number fits even for `::/0`.
    fn length(&self) -> u128 {
        let bits = |address| match address {
            IpAddr::V4(address) => u128::from(address.to_bits()),
            IpAddr::V6(address) => address.to_bits(),
        };
        bits(self.last) - bits(self.first) + 1
    }
}

impl Sets {
    /// Completes and checks the ranges of a network, set by set.
    ///
    /// # Errors
    /// The first fault found.
    pub fn new(said: &[Vec<RangeConfig>]) -> Result<Self, BadRange> {
        if said.is_empty() {
            return Err(BadRange::NoSets);
        }
        let set = |(index, ranges): (usize, &Vec<RangeConfig>)| {
            let ranges: Vec<_> = ranges.iter().map(Range::new).collect::<Result<_, _>>()?;
            let first = ranges.first().ok_or(BadRange::EmptySet(index))?;
            let is_mixed = ranges
                .iter()
                .any(|range| range.first.is_ipv4() != first.first.is_ipv4());
            if is_mixed {
                Err(BadRange::MixedFamilies(index))
            } else {
                Ok(ranges)
            }
        };
        let sets = Self(said.iter().enumerate().map(set).collect::<Result<_, _>>()?);
        match shared(sets.ranges()).first() {
            Some(&(set, other, first, last)) => Err(BadRange::Overlap {
                sets: [set.min(other), set.max(other)],
                first,
                last,
            }),
            None => Ok(sets),
        }
    }

    /// Returns all ranges in order, each with the index of its set.
    pub fn ranges(&self) -> impl Iterator<Item = (usize, &Range)> {
        self.0
            .iter()
            .enumerate()
            .flat_map(|(set, ranges)| ranges.iter().map(move |range| (set, range)))
    }

    /// Returns how many addresses a range has for containers.
    pub fn size(&self, range: &Range) -> u128 {
        let gateways = self.gateways();
        let within = gateways.range(range.first..=range.last).count();
        range.length() - within as u128
    }

    /// Returns how many sets there are.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Gives the ranges another gateway.
    pub fn go_by(&mut self, gateway: IpAddr) {
        self.0
            .iter_mut()
            .flatten()
            .for_each(|range| range.gateway = gateway);
    }

    pub(super) fn set(&self, set: usize) -> &[Range] {
        &self.0[set]
    }

    /// Returns the range of a set that an address lies in, and its index.
    pub fn range_of(&self, set: usize, address: IpAddr) -> Option<(usize, &Range)> {
        self.0[set]
            .iter()
            .enumerate()
            .find(|(_, range)| range.contains(address))
    }

    /// Returns whether a range has an address for containers.
    pub fn have(&self, address: IpAddr) -> bool {
        let within = self.ranges().any(|(_, range)| range.contains(address));
        within && self.ranges().all(|(_, range)| range.gateway != address)
    }

    pub(super) fn gateways(&self) -> BTreeSet<IpAddr> {
        self.ranges().map(|(_, range)| range.gateway).collect()
    }

    /// Returns the address of a set that is `n` after its first one, wrapping around, and the index of its range.
    pub(super) fn nth(&self, set: usize, n: u128) -> (usize, IpAddr) {
        let ranges = self.set(set);
        let mut n = n % ranges.iter().map(Range::length).sum::<u128>();
        for (index, range) in ranges.iter().enumerate() {
            match plus(range.first, n).filter(|address| range.contains(*address)) {
                Some(address) => return (index, address),
                None => n -= range.length(),
            }
        }
        (0, ranges[0].first)
    }
}

/// Returns what ranges share with their predecessors in address order: whose the two are, and the first and last address
/// that they share.
fn shared<'a, Whose: Copy>(
    ranges: impl Iterator<Item = (Whose, &'a Range)>,
) -> Vec<(Whose, Whose, IpAddr, IpAddr)> {
    let mut ranges: Vec<_> = ranges.collect();
    ranges.sort_by_key(|(_, range)| range.first);
    let mut shared = Vec::new();
    let mut reaching: Option<(Whose, IpAddr)> = None;
    for (whose, range) in ranges {
        match reaching {
            Some((before, end)) if range.first <= end => {
                shared.push((before, whose, range.first, range.last.min(end)));
                if range.last > end {
                    reaching = Some((whose, range.last));
                }
            }
            _ => reaching = Some((whose, range.last)),
        }
    }
    shared
}
