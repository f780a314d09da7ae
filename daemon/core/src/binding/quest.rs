//! What is asked for, from the call until a lease is held.

use std::net::Ipv4Addr;

use ipnet::Ipv4Net;

use crate::effect::Add;
use crate::limits::Unfit;
use crate::time::Instant;

/// An ADD, or the adoption of a container, from its call until its lease is held.
#[derive(Debug)]
pub(crate) struct Quest {
    /// What it says.
    pub(crate) add: Box<Add>,
    /// When it came in.
    pub(crate) began: Instant,
    /// The address that the container runs with, if it is adopted.
    pub(crate) adopts: Option<Ipv4Net>,
    /// When the interface got carrier, if it had none when the ADD came.
    pub(crate) came_up: Option<Instant>,
}

impl Quest {
    pub(crate) fn new(add: Box<Add>, began: Instant) -> Self {
        Self {
            add,
            began,
            adopts: None,
            came_up: None,
        }
    }

    /// Returns when it must be answered.
    pub(crate) fn limit(&self) -> Instant {
        self.began + self.add.timeout
    }

    /// Returns the same for one that a server grants an address, though servers were silent a moment ago.
    pub(crate) fn whole_limit(&self) -> Instant {
        self.limit() + self.add.hurried
    }

    /// Returns whether the container already runs: whatever happens, its address is not given back from under it.
    pub(crate) fn adopts(&self) -> bool {
        self.adopts.is_some()
    }

    /// Returns the only acceptable address, if only one is.
    pub(crate) fn insists(&self) -> Option<Ipv4Addr> {
        let wanted = self.add.wanted.filter(|wanted| !wanted.preferred);
        let own = self.adopts.map(|address| address.addr());
        own.or(wanted.map(|wanted| wanted.address))
    }

    /// Returns why its limits do not allow an address, if they do not.
    pub(crate) fn unfit(&self, address: Ipv4Addr) -> Option<Unfit> {
        self.add.limits.as_ref()?.refuse(address)
    }
}
