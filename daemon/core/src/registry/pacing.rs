//! Permits: how many exchanges of one LAN that may lead to an address talk to its servers at once, oldest first. Turns:
//! how far apart the RELEASEs of one LAN leave, and its leases are extended.
//!
//! A server that answers one client at a time serves a hundred sooner if they come one after the other than if all of them
//! retransmit. Exchanges that no caller waits for have permits of their own, a fourth as many. A permit ends when
//! a message is sent again: a server may answer some of its clients and ignore the rest. A RELEASE has no answer: if a server cannot process it at once, it is lost and the lease stays.
//! Extensions have no permits: if a server is away, a few would occupy them all, the other leases would wait behind these, and
//! some would end.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use crate::identity::Lan;
use crate::record::BindingId;
use crate::time::Instant;

/// How RELEASEs of one LAN leave: a server's socket holds about twice as many (`net.core.rmem_default`), and a server that
/// works on each for 20 ms has processed half of 500 when the last one arrives.
const RELEASES: Pace = Pace {
    at_once: 128,
    apart: Duration::from_millis(10),
};

/// How the due leases of one LAN are extended: after a suspend, all are due. A server that works on an answer for 30 ms has
/// answered each a second later, and 10,000 leases have been requested after five minutes.
const EXTENSIONS: Pace = Pace {
    at_once: 32,
    apart: Duration::from_millis(30),
};

/// The permits of all LANs.
#[derive(Debug)]
pub(super) struct Pacing {
    permits: usize,
    lans: BTreeMap<Lan, Queue>,
}

/// Who waits for an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Urgency {
    /// A caller.
    Caller,
    /// Nobody: a lease is confirmed, looked for again, or given back, or a container is adopted.
    Background,
}

#[derive(Debug, Default)]
struct Queue {
    active: BTreeMap<BindingId, Urgency>,
    waiting: BTreeMap<Urgency, VecDeque<BindingId>>,
}

impl Pacing {
    pub(super) fn new(permits: usize) -> Self {
        Self {
            permits,
            lans: BTreeMap::new(),
        }
    }

    /// Returns how many LANs have somebody who has a permit or waits for one.
    pub(super) fn len(&self) -> usize {
        self.lans.len()
    }

    /// Asks for a permit; true when there is one at once.
    pub(super) fn ask(&mut self, lan: &Lan, binding: BindingId, urgency: Urgency) -> bool {
        let queue = self.lans.entry(lan.clone()).or_default();
        if queue.has_room(self.permits, urgency) {
            queue.active.insert(binding, urgency);
            return true;
        }
        queue.waiting.entry(urgency).or_default().push_back(binding);
        false
    }

    /// Returns whether a caller that asked now would get a permit at once.
    pub(super) fn has_room(&self, lan: &Lan) -> bool {
        self.lans
            .get(lan)
            .is_none_or(|queue| queue.has_room(self.permits, Urgency::Caller))
    }

    /// Takes back a permit or a request for one. Returns who gets the permit next.
    pub(super) fn leave(&mut self, lan: &Lan, binding: BindingId) -> Option<BindingId> {
        let queue = self.lans.get_mut(lan)?;
        let was_active = queue.active.remove(&binding).is_some();
        if !was_active {
            queue
                .waiting
                .values_mut()
                .for_each(|line| line.retain(|waiting| *waiting != binding));
        }
        queue.waiting.retain(|_, line| !line.is_empty());
        let next = if was_active {
            queue.next(self.permits)
        } else {
            None
        };
        if queue.active.is_empty() && queue.waiting.is_empty() {
            self.lans.remove(lan);
        }
        next
    }
}

impl Queue {
    fn has_room(&self, permits: usize, urgency: Urgency) -> bool {
        let most = match urgency {
            Urgency::Caller => permits,
            Urgency::Background => (permits / 4).max(1),
        };
        let active = self.active.values().filter(|active| **active == urgency);
        active.count() < most
    }

    /// Passes a returned permit to the next in line, if there is one.
    fn next(&mut self, permits: usize) -> Option<BindingId> {
        let urgency = *self
            .waiting
            .keys()
            .find(|urgency| self.has_room(permits, **urgency))?;
        let next = self.waiting.get_mut(&urgency)?.pop_front()?;
        self.waiting.retain(|_, line| !line.is_empty());
        self.active.insert(next, urgency);
        Some(next)
    }
}

/// How messages of one kind leave on one LAN.
#[derive(Clone, Copy, Debug)]
struct Pace {
    /// How many leave at the same moment.
    at_once: u32,
    /// How far apart the others leave.
    apart: Duration,
}

/// The turns of messages of one kind, by LAN.
#[derive(Debug)]
pub(super) struct Turns {
    pace: Pace,
    /// Until when the messages that have left or wait use up the pace.
    filled: BTreeMap<Lan, Instant>,
}

impl Turns {
    /// Returns the turns of RELEASEs.
    pub(super) fn of_releases() -> Self {
        Self {
            pace: RELEASES,
            filled: BTreeMap::new(),
        }
    }

    /// Returns the turns of extensions.
    pub(super) fn of_extensions() -> Self {
        Self {
            pace: EXTENSIONS,
            filled: BTreeMap::new(),
        }
    }

    /// Returns how long this many messages of one LAN take.
    pub(super) fn all(&self, count: usize) -> Duration {
        self.pace.apart * u32::try_from(count).unwrap_or(u32::MAX)
    }

    /// Takes the next turn; returns when it comes.
    pub(super) fn take(&mut self, lan: Lan, now: Instant) -> Instant {
        let at = self.next(&lan, now);
        let filled = self.filled.entry(lan).or_insert(now);
        *filled = *filled + self.pace.apart;
        at
    }

    /// Takes the next turn, if it comes by `latest`.
    pub(super) fn take_by(&mut self, lan: Lan, now: Instant, latest: Instant) -> Option<Instant> {
        let comes = self.next(&lan, now) <= latest;
        comes.then(|| self.take(lan, now))
    }

    /// Returns when the next turn comes. Past turns leave no trace: what is kept is bounded by the messages of the last moments.
    fn next(&mut self, lan: &Lan, now: Instant) -> Instant {
        self.filled.retain(|_, filled| *filled > now);
        let filled = self
            .filled
            .get(lan)
            .map_or(Duration::ZERO, |until| until.saturating_since(now));
        now + filled.saturating_sub(self.pace.apart * (self.pace.at_once - 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use Urgency::{Background, Caller};

    #[test]
    fn permits_go_to_the_oldest_and_come_back() {
        let lan = Lan::Network("a".into());
        let other = Lan::Network("b".into());
        let mut pacing = Pacing::new(2);
        let mut ask = |lan: &Lan, id, urgency| pacing.ask(lan, BindingId(id), urgency);
        assert!(ask(&lan, 1, Caller) && ask(&lan, 2, Caller));
        assert!(!ask(&lan, 3, Caller) && !ask(&lan, 4, Caller) && !ask(&lan, 5, Caller));
        assert!(ask(&other, 6, Caller), "each LAN has its own");
        assert_eq!(
            pacing.leave(&lan, BindingId(3)),
            None,
            "one that waited goes without a word"
        );
        assert_eq!(pacing.leave(&lan, BindingId(1)), Some(BindingId(4)));
        assert_eq!(
            pacing.leave(&lan, BindingId(1)),
            None,
            "a permit comes back once"
        );
        for id in [2, 4, 5, 6] {
            pacing.leave(if id == 6 { &other } else { &lan }, BindingId(id));
        }
        assert!(pacing.lans.is_empty(), "nothing is left of a LAN at rest");
    }

    #[test]
    fn those_for_whom_nobody_waits_have_permits_of_their_own() {
        let lan = Lan::Network("a".into());
        let mut pacing = Pacing::new(8);
        let mut ask = |id, urgency| pacing.ask(&lan, BindingId(id), urgency);
        assert!((1..=8).all(|id| ask(id, Caller)) && !ask(9, Caller));
        assert!((11..=12).all(|id| ask(id, Background)) && !ask(13, Background));
        for (id, next) in [(1, Some(9)), (2, None), (11, Some(13)), (12, None)] {
            assert_eq!(
                pacing.leave(&lan, BindingId(id)),
                next.map(BindingId),
                "{id}"
            );
        }
        for id in [3, 4, 5, 6, 7, 8, 9, 13] {
            assert_eq!(pacing.leave(&lan, BindingId(id)), None, "{id}");
        }
        assert!(pacing.lans.is_empty());
    }

    #[test]
    fn a_crowd_of_releases_leaves_one_after_the_other_and_a_few_at_once() {
        let at = |millis| Instant::from_boot(Duration::from_millis(millis));
        let (lan, other) = (Lan::Network("a".into()), Lan::Network("b".into()));
        let mut turns = Turns::of_releases();
        let taken: Vec<_> = (0..300)
            .map(|_| turns.take(lan.clone(), at(1000)))
            .collect();
        assert!(taken[..128].iter().all(|turn| *turn == at(1000)));
        assert_eq!(
            (taken[128], taken[129], taken[299]),
            (at(1010), at(1020), at(2720))
        );
        assert_eq!(
            turns.take(other.clone(), at(1000)),
            at(1000),
            "each LAN has its own"
        );
        assert_eq!(
            turns.take(lan.clone(), at(1500)),
            at(2730),
            "it goes on where it was"
        );
        assert_eq!(turns.take(lan.clone(), at(3995)), at(3995));
        turns.take(other.clone(), at(10_000));
        assert_eq!(turns.filled.len(), 1, "what is past is forgotten");
    }

    #[test]
    fn who_cannot_wait_for_its_turn_takes_none() {
        let at = |millis| Instant::from_boot(Duration::from_millis(millis));
        let lan = Lan::Network("a".into());
        let mut turns = Turns::of_extensions();
        let mut take = |latest| turns.take_by(lan.clone(), at(0), at(latest));
        assert!((0..32).all(|_| take(0) == Some(at(0))));
        assert_eq!(
            [take(29), take(30), take(59), take(60)],
            [None, Some(at(30)), None, Some(at(60))]
        );
    }
}
