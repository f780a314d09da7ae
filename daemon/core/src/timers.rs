//! Deadlines in order of time, one per key.

use std::collections::{BTreeMap, BTreeSet};

use crate::effect::Why;
use crate::time::Instant;

/// Deadlines, each with its key.
#[derive(Debug)]
pub(crate) struct Timers<K> {
    by_time: BTreeSet<(Instant, K, Why)>,
    by_key: BTreeMap<K, (Instant, Why)>,
}

impl<K> Default for Timers<K> {
    fn default() -> Self {
        Self {
            by_time: BTreeSet::new(),
            by_key: BTreeMap::new(),
        }
    }
}

impl<K: Copy + Ord> Timers<K> {
    /// Sets the deadline of a key, unless it has an earlier one.
    pub(crate) fn set_no_later(&mut self, key: K, (at, why): (Instant, Why)) {
        if self.by_key.get(&key).is_none_or(|(before, _)| at < *before) {
            self.set(key, Some((at, why)));
        }
    }

    /// Sets the deadline of a key, or takes it away.
    pub(crate) fn set(&mut self, key: K, deadline: Option<(Instant, Why)>) {
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
    pub(crate) fn due(&self, now: Instant) -> Vec<K> {
        self.by_time
            .iter()
            .take_while(|(at, ..)| *at <= now)
            .map(|(_, key, _)| *key)
            .collect()
    }
}
