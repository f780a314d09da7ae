//! What the core counts: the outcomes of messages, what was refused, how long leases took.
//!
//! Counts only grow, from the daemon's start on, and cost nothing at rest: there is one for each name of what happens, and none
//! for a lease or a container. What is held at the moment is counted when somebody asks (`Core::holdings`).

use std::collections::BTreeMap;
use std::time::Duration;

use crate::event::EventKind;
use crate::names::named;
use crate::source::{Fate, Form};

/// All counts since the start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    refused: BTreeMap<String, u64>,
    events: BTreeMap<EventKind, u64>,
    messages: BTreeMap<(Form, Fate), u64>,
    phases: BTreeMap<AddPhase, Histogram>,
    extensions: BTreeMap<Form, Histogram>,
}

impl Counts {
    /// Counts an input that was refused, or a part of one, by its cause. What follows a colon in that is a value.
    pub(crate) fn refused(&mut self, cause: impl ToString) {
        let mut cause = cause.to_string();
        cause.truncate(cause.find(':').unwrap_or(cause.len()));
        *self.refused.entry(cause).or_default() += 1;
    }

    pub(crate) fn event(&mut self, kind: EventKind) {
        *self.events.entry(kind).or_default() += 1;
    }

    /// Counts a message whose fate is known now, if there is one.
    pub(crate) fn settled(&mut self, message: Option<(Form, Fate)>) {
        message
            .into_iter()
            .for_each(|message| *self.messages.entry(message).or_default() += 1);
    }

    pub(crate) fn phase(&mut self, phase: AddPhase, took: Duration) {
        self.phases.entry(phase).or_default().observe(took);
    }

    pub(crate) fn extended(&mut self, by: Form, took: Duration) {
        self.extensions.entry(by).or_default().observe(took);
    }

    /// Returns how often input, or a part of it, was refused, by its cause.
    pub fn refusals(&self) -> &BTreeMap<String, u64> {
        &self.refused
    }

    /// Returns how many events there were of each kind, whether or not the store took them.
    pub fn events(&self) -> impl Iterator<Item = (EventKind, u64)> {
        EventKind::ALL
            .into_iter()
            .map(|kind| (kind, self.events.get(&kind).copied().unwrap_or_default()))
    }

    /// Returns the number of messages sent for leases, for each form and fate. Not counted: questions about a LAN that take no
    /// lease, and DECLINEs, each of which is an event.
    pub fn messages(&self) -> impl Iterator<Item = (Form, Fate, u64)> {
        let all = Form::ALL
            .into_iter()
            .flat_map(|form| form.fates().iter().map(move |fate| (form, *fate)));
        all.map(|message| {
            (
                message.0,
                message.1,
                self.messages.get(&message).copied().unwrap_or_default(),
            )
        })
    }

    /// Returns how long the phases took in ADDs that got their lease from a server.
    pub fn phases(&self) -> &BTreeMap<AddPhase, Histogram> {
        &self.phases
    }

    /// Returns how long it took to extend held leases, from the first message of the phase to the ACK.
    pub fn extensions(&self) -> &BTreeMap<Form, Histogram> {
        &self.extensions
    }
}

named! {
    /// A phase of an ADD, in order.
    AddPhase {
        /// Other ADDs of its LAN went first.
        Queue = "queue",
        /// From its first DISCOVER to the offer that was taken. An ADD that asks for an earlier lease has no such phase.
        Offer = "offer",
        /// From there to the ACK.
        Ack = "ack",
        /// From there to the record on disk.
        Store = "store",
    }
}

/// How many durations there were between bounds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    /// Those up to each bound and above the one before; then those above all bounds.
    counts: [u64; Self::BOUNDS.len() + 1],
    sum: Duration,
}

impl Histogram {
    /// The bounds, in microseconds: from a look at the disk to the longest patience of a runtime.
    pub const BOUNDS: [u64; 15] = [
        500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000,
        2_500_000, 5_000_000, 10_000_000, 30_000_000,
    ];

    /// Counts a duration.
    pub fn observe(&mut self, took: Duration) {
        let at = Self::BOUNDS.partition_point(|bound| u128::from(*bound) < took.as_micros());
        self.counts[at] += 1;
        self.sum += took;
    }

    /// Returns the bounds in seconds, the last of which is infinite, each with the number of durations up to it and above the one
    /// before.
    pub fn buckets(&self) -> impl Iterator<Item = (f64, u64)> {
        let seconds = Self::BOUNDS
            .iter()
            .map(|bound| *bound as f64 / 1e6)
            .chain([f64::INFINITY]);
        seconds.zip(self.counts)
    }

    /// Returns how many durations there were.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Returns the sum of all durations.
    pub fn sum(&self) -> Duration {
        self.sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_counts_in_the_first_bucket_that_holds_it() {
        let mut histogram = Histogram::default();
        let micros = [0, 500, 501, 1_000, 29_999_999, 30_000_000, 30_000_001];
        micros
            .into_iter()
            .for_each(|micros| histogram.observe(Duration::from_micros(micros)));
        let filled: Vec<_> = histogram
            .buckets()
            .filter(|(_, count)| *count > 0)
            .collect();
        assert_eq!(
            filled,
            [(0.0005, 2), (0.001, 2), (30.0, 2), (f64::INFINITY, 1)]
        );
        assert_eq!(
            (histogram.count(), histogram.sum()),
            (7, Duration::from_micros(90_002_001))
        );
    }
}
