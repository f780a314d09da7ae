//! Permits: how many acquisitions of one LAN talk to its servers at once, oldest first.
//!
//! A server that answers one client at a time serves a hundred sooner when they come one after the other than when all
//! of them retransmit.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::identity::Lan;
use crate::record::BindingId;

/// The permits of all LANs.
#[derive(Debug)]
pub(super) struct Pacing {
    permits: usize,
    lans: BTreeMap<Lan, Queue>,
}

#[derive(Debug, Default)]
struct Queue {
    active: BTreeSet<BindingId>,
    waiting: VecDeque<BindingId>,
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
    pub(super) fn ask(&mut self, lan: &Lan, binding: BindingId) -> bool {
        let queue = self.lans.entry(lan.clone()).or_default();
        if queue.active.len() < self.permits {
            return queue.active.insert(binding);
        }
        queue.waiting.push_back(binding);
        false
    }

    /// Takes a permit or a wish for one back. Returns who gets the permit next.
    pub(super) fn leave(&mut self, lan: &Lan, binding: BindingId) -> Option<BindingId> {
        let queue = self.lans.get_mut(lan)?;
        let was_active = queue.active.remove(&binding);
        if !was_active {
            queue.waiting.retain(|waiting| *waiting != binding);
        }
        let next = if was_active { queue.waiting.pop_front() } else { None };
        queue.active.extend(next);
        if queue.active.is_empty() && queue.waiting.is_empty() {
            self.lans.remove(lan);
        }
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permits_go_to_the_oldest_and_come_back() {
        let lan = Lan::Network("a".to_owned());
        let other = Lan::Network("b".to_owned());
        let mut pacing = Pacing::new(2);
        assert!(pacing.ask(&lan, BindingId(1)) && pacing.ask(&lan, BindingId(2)));
        assert!(!pacing.ask(&lan, BindingId(3)) && !pacing.ask(&lan, BindingId(4)) && !pacing.ask(&lan, BindingId(5)));
        assert!(pacing.ask(&other, BindingId(6)), "each LAN has its own");
        assert_eq!(pacing.leave(&lan, BindingId(3)), None, "one that waited goes without a word");
        assert_eq!(pacing.leave(&lan, BindingId(1)), Some(BindingId(4)));
        assert_eq!(pacing.leave(&lan, BindingId(1)), None, "a permit comes back once");
        for id in [2, 4, 5, 6] {
            pacing.leave(if id == 6 { &other } else { &lan }, BindingId(id));
        }
        assert!(pacing.lans.is_empty(), "nothing is left of a LAN at rest");
    }
}
