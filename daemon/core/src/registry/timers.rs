//! All deadlines in order of time, one a key.

use std::collections::{BTreeMap, BTreeSet};

use crate::effect::{RequestId, Why};
use crate::interface::At;
use crate::record::BindingId;
use crate::time::Instant;

/// Whose deadline it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Key {
    /// A binding's.
    Binding(BindingId),
    /// A call's that has no binding yet.
    Call(RequestId),
    /// A look at an interface that failed, until it is tried again.
    Audit(At),
    /// The pause before an adoption that failed is tried again.
    Adoption(RequestId),
    /// The links of the host that ADDs wait for carrier of are looked at again.
    Carrier,
    /// The links of ADDs whose Ethernet address another has are set up again.
    Taken,
    /// The next link that went is taken for one without a DEL.
    Orphans,
    /// All namespaces are looked through for an interface that has not come.
    Seek,
    /// The next link that was made for Docker has been in the host's namespace for too long.
    Strays,
    /// The links that were made for Docker are listed again, which failed.
    OwnLinks,
    /// The next LAN whose servers were silent is asked whether one is back.
    Silent,
}

/// The deadlines of the registry.
#[derive(Debug, Default)]
pub(super) struct Timers {
    by_time: BTreeSet<(Instant, Key, Why)>,
    by_key: BTreeMap<Key, (Instant, Why)>,
}

impl Timers {
    /// Sets the deadline of a key, or takes it away.
    pub(super) fn set(&mut self, key: Key, deadline: Option<(Instant, Why)>) {
        let before = match deadline {
            Some(deadline) => self.by_key.insert(key, deadline),
            None => self.by_key.remove(&key),
        };
        if let Some((at, why)) = before {
            self.by_time.remove(&(at, key, why));
        }
        if let Some((at, why)) = deadline {
            self.by_time.insert((at, key, why));
        }
    }

    /// Returns how many deadlines there are.
    pub(super) fn len(&self) -> usize {
        self.by_time.len().max(self.by_key.len())
    }

    /// Returns the earliest deadline.
    pub(super) fn next(&self) -> Option<(Instant, Why)> {
        self.by_time.first().map(|(at, _, why)| (*at, *why))
    }

    /// Returns the keys whose deadline has come, in order of time. They stay until they are set anew.
    pub(super) fn due(&self, now: Instant) -> Vec<Key> {
        self.by_time.iter().take_while(|(at, ..)| *at <= now).map(|(_, key, _)| *key).collect()
    }
}
