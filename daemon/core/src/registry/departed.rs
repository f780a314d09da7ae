//! Interfaces on their way out: the Ethernet addresses that an identity's holders had a moment ago.
//!
//! After a DEL, and after a namespace's path went, the kernel takes some time to take the interface down, and answers ARP for
//! its address until then. To a successor under the same identity, which is offered that address again, it is nobody else.

use std::collections::VecDeque;
use std::time::Duration;

use crate::identity::IdentityKey;
use crate::time::Instant;
use crate::wire::Mac;

/// How long an interface may take to go.
const GOING: Duration = Duration::from_secs(60);

/// Interfaces that are remembered, the last ones. More than come and go in the moment that most need.
const MOST: usize = 1024;

/// The interfaces whose leases were given up last, oldest first.
#[derive(Debug, Default)]
pub(super) struct Departed(VecDeque<(Instant, IdentityKey, Mac)>);

impl Departed {
    /// Notes that a holder of an identity, with this Ethernet address, is no more.
    pub(super) fn add(&mut self, key: IdentityKey, mac: Mac, now: Instant) {
        while self.0.len() == MOST || self.0.front().is_some_and(|(at, ..)| now >= *at + GOING) {
            self.0.pop_front();
        }
        self.0.push_back((now, key, mac));
    }

    /// Returns the Ethernet addresses of an identity's holders that may still be on their way out.
    pub(super) fn of<'a>(&'a self, key: &'a IdentityKey, now: Instant) -> impl Iterator<Item = Mac> + 'a {
        self.0.iter().filter(move |(at, of, _)| of == key && now < *at + GOING).map(|(.., mac)| *mac)
    }
}
