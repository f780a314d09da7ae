//! Permits: how many exchanges of one LAN that may end in an address talk to its servers at once, oldest first.
//!
//! A server that answers one client at a time serves a hundred sooner when they come one after the other than when all
//! of them retransmit. Those for which a caller waits go before all others.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::identity::Lan;
use crate::record::BindingId;

/// The permits of all LANs.
#[derive(Debug)]
pub(super) struct Pacing {
    permits: usize,
    lans: BTreeMap<Lan, Queue>,
}

/// Who waits for an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Urgency {
    /// A caller.
    Caller,
    /// Nobody: a lease is confirmed, or looked for again.
    Background,
}

#[derive(Debug, Default)]
struct Queue {
    active: BTreeSet<BindingId>,
    callers: VecDeque<BindingId>,
    background: VecDeque<BindingId>,
}

impl Pacing {
    pub(super) fn new(permits: usize) -> Self {
        Self { permits, lans: BTreeMap::new() }
    }

    /// Returns how many LANs have somebody who has a permit or waits for one.
    pub(super) fn len(&self) -> usize {
        self.lans.len()
    }

    /// Asks for a permit; true when there is one at once.
    pub(super) fn ask(&mut self, lan: &Lan, binding: BindingId, urgency: Urgency) -> bool {
        let queue = self.lans.entry(lan.clone()).or_default();
        if queue.active.len() < self.permits {
            return queue.active.insert(binding);
        }
        match urgency {
            Urgency::Caller => queue.callers.push_back(binding),
            Urgency::Background => queue.background.push_back(binding),
        }
        false
    }

    /// Takes a permit or a wish for one back. Returns who gets the permit next.
    pub(super) fn leave(&mut self, lan: &Lan, binding: BindingId) -> Option<BindingId> {
        let queue = self.lans.get_mut(lan)?;
        let was_active = queue.active.remove(&binding);
        if !was_active {
            queue.callers.retain(|waiting| *waiting != binding);
            queue.background.retain(|waiting| *waiting != binding);
        }
        let next = if was_active { queue.callers.pop_front().or_else(|| queue.background.pop_front()) } else { None };
        queue.active.extend(next);
        if queue.active.is_empty() && queue.callers.is_empty() && queue.background.is_empty() {
            self.lans.remove(lan);
        }
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use Urgency::{Background, Caller};

    #[test]
    fn permits_go_to_the_oldest_and_come_back() {
        let lan = Lan::Network("a".to_owned());
        let other = Lan::Network("b".to_owned());
        let mut pacing = Pacing::new(2);
        let mut ask = |lan: &Lan, id, urgency| pacing.ask(lan, BindingId(id), urgency);
        assert!(ask(&lan, 1, Caller) && ask(&lan, 2, Background));
        assert!(!ask(&lan, 3, Caller) && !ask(&lan, 4, Caller) && !ask(&lan, 5, Caller));
        assert!(ask(&other, 6, Caller), "each LAN has its own");
        assert_eq!(pacing.leave(&lan, BindingId(3)), None, "one that waited goes without a word");
        assert_eq!(pacing.leave(&lan, BindingId(1)), Some(BindingId(4)));
        assert_eq!(pacing.leave(&lan, BindingId(1)), None, "a permit comes back once");
        for id in [2, 4, 5, 6] {
            pacing.leave(if id == 6 { &other } else { &lan }, BindingId(id));
        }
        assert!(pacing.lans.is_empty(), "nothing is left of a LAN at rest");
    }

    #[test]
    fn those_for_whom_nobody_waits_come_after_all_callers() {
        let lan = Lan::Network("a".to_owned());
        let mut pacing = Pacing::new(1);
        assert!(pacing.ask(&lan, BindingId(1), Background));
        for (id, urgency) in [(2, Background), (3, Background), (4, Caller), (5, Caller)] {
            assert!(!pacing.ask(&lan, BindingId(id), urgency));
        }
        assert_eq!(pacing.leave(&lan, BindingId(2)), None, "a wish is taken back");
        for (id, next) in [(1, Some(4)), (4, Some(5)), (5, Some(3)), (3, None)] {
            assert_eq!(pacing.leave(&lan, BindingId(id)), next.map(BindingId));
        }
        assert!(pacing.lans.is_empty());
    }
}
