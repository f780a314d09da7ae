//! What a seed decides about networks of type `dhcp` with a fallback.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use fastrand::Rng;
use leasehold_core::range::{self, RangeConfig, Sets};

use super::{Plan, pick};

/// The first address of the range, counted within a LAN.
const FIRST: u32 = 482;

/// A local range for containers that no server answers, outside every server's pool.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fallback {
    /// How long servers have to be silent.
    pub(crate) after: Duration,
    /// How many addresses it has.
    pub(crate) size: u32,
    /// A neighbour that uses one of them.
    pub(crate) squatter: Option<u32>,
}

impl Fallback {
    /// Returns one of its addresses on a LAN.
    pub(crate) fn address(lan: usize, nth: u32) -> Ipv4Addr {
        Ipv4Addr::from_bits(Ipv4Addr::new(10, lan as u8, 0, 0).to_bits() + FIRST + nth)
    }

    /// Returns whether it has an address of a LAN.
    pub(crate) fn has(&self, lan: usize, address: Ipv4Addr) -> bool {
        (Self::address(lan, 0)..Self::address(lan, self.size)).contains(&address)
    }

    /// Returns it in the form that an ADD carries.
    pub(crate) fn of_add(&self, lan: usize) -> range::Fallback {
        let end = |nth| Some(IpAddr::V4(Self::address(lan, nth)));
        let subnet = format!("10.{lan}.0.0/22").parse().expect("a subnet");
        let said = RangeConfig {
            subnet,
            start: end(0),
            end: end(self.size - 1),
            gateway: None,
        };
        let sets = Sets::new(&[vec![said]]).expect("good ranges");
        range::Fallback::new(sets, self.after, 3).expect("one set of IPv4")
    }
}

impl Plan {
    /// Draws whether there are fallbacks. In three of four cases, nobody can reach the servers now and then.
    pub(super) fn with_fallback(mut self, rng: &mut Rng) -> Self {
        // Nobody could tell whose silence it was.
        let is_plain = self.sharers == 1
            && !self.ipvlan
            && self.knows == netns_fixtures::model::Knows::ClientId;
        if rng.bool() || !is_plain {
            return self;
        }
        self.fallback = Some(Fallback {
            after: Duration::from_secs(pick(rng, &[2, 4, 6, 15])),
            size: pick(rng, &[2, 20, 20]),
            squatter: pick(rng, &[None, Some(3), Some(4)]),
        });
        // No pool comes to lie on its addresses.
        self.renumbers = None;
        if rng.u32(..4) > 0 {
            self.partitions = Some(self.active / 4);
        }
        self
    }
}
