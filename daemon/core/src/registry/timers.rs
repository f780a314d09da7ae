//! Deadlines in order of time, one for each who has one.

use std::collections::{BTreeMap, BTreeSet};

use crate::effect::{RequestId, Why};
use crate::interface::At;
use crate::record::BindingId;
use crate::time::Instant;

/// Whose deadline it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Key {
    /// A binding's.
    Binding(BindingId),
    /// A call's that has no binding yet.
    Call(RequestId),
    /// A look at an interface that failed, until it is tried again.
    Audit(At),
    /// The pause before a failed adoption is tried again.
    Adoption,
    /// What ADDs wait for is looked at again: the carrier of host links, and Ethernet addresses that others have.
    Look,
    /// The next link that disappeared counts as one without a DEL.
    Orphans,
    /// All namespaces are searched for an interface that has not appeared.
    Seek,
    /// A lease waits for its turn to be extended.
    Extensions,
    /// A deadline of a door above the registry.
    Above(DoorTimer),
}

/// Whose deadline it is above the registry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum DoorTimer {
    /// A call's.
    Call(RequestId),
    /// A link that the daemon made has been in the host's namespace for too long.
    Strays,
    /// The links that the daemon made are listed again, because that failed.
    OwnLinks,
}

/// Deadlines, each with its key.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    by_time: BTreeSet<(Instant, Key, Why)>,
    by_key: BTreeMap<Key, (Instant, Why)>,
}

impl Timers {
    /// Sets the deadline of a key, unless it has an earlier one.
    pub(crate) fn set_no_later(&mut self, key: Key, (at, why): (Instant, Why)) {
        if self.by_key.get(&key).is_none_or(|(before, _)| at < *before) {
            self.set(key, Some((at, why)));
        }
    }

    /// Sets the deadline of a key, or takes it away.
    pub(crate) fn set(&mut self, key: Key, deadline: Option<(Instant, Why)>) {
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

    pub(crate) fn next(&self) -> Option<(Instant, Why)> {
        self.by_time.first().map(|(at, _, why)| (*at, *why))
    }

    /// Returns the keys whose deadline has come, in order of time. They stay until they are set again.
    pub(crate) fn due(&self, now: Instant) -> Vec<Key> {
        self.by_time
            .iter()
            .take_while(|(at, ..)| *at <= now)
            .map(|(_, key, _)| *key)
            .collect()
    }
}
