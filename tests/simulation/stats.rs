//! Counts of what happened: a simulation in which nothing happens proves nothing.

use std::collections::BTreeMap;

use crate::plan::EffectKind;

/// Counts of one run, or of many.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stats {
    /// Events of the world.
    pub(crate) events: u64,
    /// Deadlines of the core.
    pub(crate) timeouts: u64,
    /// Seconds of virtual time.
    pub(crate) virtual_seconds: u64,
    /// Starts of the daemon.
    pub(crate) starts: u64,
    /// Crashes.
    pub(crate) crashes: u64,
    /// How many of the crashes were the host's.
    pub(crate) reboots: u64,
    /// Crashes by effect, and by whether they came after it.
    pub(crate) crash_points: BTreeMap<(EffectKind, bool), u64>,
    /// Everything else worth counting, by name.
    pub(crate) counts: BTreeMap<&'static str, u64>,
}

impl Stats {
    /// Counts something.
    pub(crate) fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    /// Counts one thing or another.
    pub(crate) fn count_which(
        &mut self,
        is_first: bool,
        first: &'static str,
        second: &'static str,
    ) {
        self.count(if is_first { first } else { second });
    }

    /// Counts something if it is so.
    pub(crate) fn count_if(&mut self, is_so: bool, what: &'static str) {
        self.count_many(what, usize::from(is_so));
    }

    /// Counts several of something.
    pub(crate) fn count_many(&mut self, what: &'static str, count: usize) {
        *self.counts.entry(what).or_default() += count as u64;
    }

    /// Adds another run's counts.
    pub(crate) fn add(&mut self, other: &Self) {
        self.events += other.events;
        self.timeouts += other.timeouts;
        self.virtual_seconds += other.virtual_seconds;
        self.starts += other.starts;
        self.crashes += other.crashes;
        self.reboots += other.reboots;
        for (point, count) in &other.crash_points {
            *self.crash_points.entry(*point).or_default() += count;
        }
        for (what, count) in &other.counts {
            *self.counts.entry(what).or_default() += count;
        }
    }
}
