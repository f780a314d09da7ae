//! Docker, as a user of the registry: its pools, and what its network driver makes.
//!
//! An address is leased by an ADD and given back by its address, like any other. `pools` are those of the IPAM driver; `networks` and
//! `endpoints` are those of the network driver, and `strays` sees which links of theirs there are. What each of its calls waits for is
//! in `jobs`.

mod endpoints;
mod networks;
mod pools;
mod strays;

use self::endpoints::Endpoints;
use self::networks::Wired;
use self::pools::Ipam;
use self::strays::Strays;

/// What is known of Docker's.
#[derive(Debug, Default)]
pub(super) struct Docker {
    pub(super) ipam: Ipam,
    pub(super) wired: Wired,
    endpoints: Endpoints,
    strays: Strays,
}
