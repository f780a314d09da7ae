//! Permits: how many exchanges of one LAN that may lead to an address talk to its servers at once, oldest first. Turns: when
//! its leases are extended, and how far apart its RELEASEs leave.
//!
//! A server that answers one client at a time serves a hundred sooner if they come one after the other than if all of them
//! retransmit. Exchanges that no caller waits for have permits of their own, a fourth as many. An ADD's permit ends when a message
//! is sent again, because a server may answer some of its clients and ignore the rest; a lost lease's permit ends when its sockets
//! close. A RELEASE has no answer: if a server cannot process it at once, it is lost and the lease stays.
//! An extension has its turn until it is answered, but only for the time that a client listens: a silent server must not keep
//! others from being asked.

use std::collections::{BTreeMap, VecDeque};
use std::net::Ipv4Addr;
use std::time::Duration;

use super::tables::Tables;
use super::timers::Key;
use crate::effect::Why;
use crate::identity::Lan;
use crate::record::BindingId;
use crate::rules::{Rule, cut};
use crate::source::{Client, RECEIVE_WINDOW, Timer};
use crate::time::Instant;

/// How RELEASEs of one LAN leave: a server's socket holds about twice as many (`net.core.rmem_default`), and a server that
/// works on each for 20 ms has processed half of 500 when the last one arrives.
const RELEASES_AT_ONCE: u32 = 128;
const RELEASES_APART: Duration = Duration::from_millis(10);

/// How many extensions of one LAN wait for an answer: a server that works on each for 100 ms answers the last before its client
/// stops listening.
const EXTENSIONS: usize = 32;

/// The permits and the turns of all LANs.
#[derive(Debug)]
pub(super) struct Turns {
    pub(super) permits: Pacing,
    pub(super) extensions: Extensions,
    releases: Releases,
}

impl Turns {
    pub(super) fn new(permits: usize) -> Self {
        Self {
            permits: Pacing::new(permits.max(1)),
            extensions: Extensions::default(),
            releases: Releases::default(),
        }
    }

    /// Asks for a turn to have a binding's lease extended, or for a permit to look for another.
    pub(super) fn want_permit(&mut self, tables: &mut Tables, id: BindingId) {
        let Some(binding) = tables.bindings.get(id) else {
            return;
        };
        let lan = binding.identity.lan.clone();
        if let Some(lease) = binding.client().and_then(Client::lease) {
            // One without end is in no hurry.
            let endless = tables.now.boot + Duration::from_secs(u32::MAX.into());
            let ends = lease.expires().unwrap_or(endless);
            self.extensions.wait(lan, id, lease.server, ends);
            self.extend_next(tables);
        } else if self.permits.ask(&lan, id, Urgency::Background) {
            tables.with(id, |life, cx| life.on_permit(None, cx));
        }
    }

    /// Gives each free turn to the next lease that is to be extended.
    pub(super) fn extend_next(&mut self, tables: &mut Tables) {
        while let Some(next) = self.extensions.next(tables.now.boot) {
            tables.with(next, |life, cx| life.on_permit(None, cx));
        }
        let next = self.extensions.deadline();
        let why = Why::Dhcp(Timer::ReceiveWindow);
        tables.timers.set(Key::Extensions, next.map(|at| (at, why)));
    }

    /// Takes back a binding's permit or turn.
    pub(super) fn end(&mut self, tables: &mut Tables, id: BindingId) {
        let Some(lan) = tables.lan(id) else { return };
        self.extensions.leave(&lan, id);
        self.extend_next(tables);
        if let Some(next) = self.permits.leave(&lan, id) {
            tables.with(next, |life, cx| life.on_permit(None, cx));
        }
    }

    /// Gives a binding the next turn of its LAN's RELEASEs.
    pub(super) fn want_release(&mut self, tables: &mut Tables, id: BindingId) {
        let Some(lan) = tables.lan(id) else { return };
        let at = self.releases.take(lan, tables.now.boot);
        tables.at_release(id, |release, cx| release.on_turn(at, cx));
    }
}

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
    /// Nobody: a lost lease is looked for again, or a container is adopted.
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
        if cut(Rule::BackgroundShare) {
            return self.active.len() < permits;
        }
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

/// The turns of extensions: the next with each answer, or when one was waited for in vain.
#[derive(Debug, Default)]
pub(super) struct Extensions(BTreeMap<Lan, Extending>);

/// The extensions of one LAN.
#[derive(Debug, Default)]
struct Extending {
    /// Those that have their turn: at which server, and until when.
    active: BTreeMap<BindingId, (Ipv4Addr, Instant)>,
    /// Those that wait: at which server, and until when their lease lasts.
    waiting: BTreeMap<BindingId, (Ipv4Addr, Instant)>,
}

impl Extensions {
    /// Returns how long the turns of so many leases take if nobody answers.
    pub(super) fn longest(count: usize) -> Duration {
        RECEIVE_WINDOW * u32::try_from(count / EXTENSIONS).unwrap_or(u32::MAX)
    }

    /// Waits for a turn to have a lease of this server extended, which ends then.
    pub(super) fn wait(&mut self, lan: Lan, binding: BindingId, server: Ipv4Addr, ends: Instant) {
        let extending = self.0.entry(lan).or_default();
        extending.waiting.insert(binding, (server, ends));
    }

    /// Takes back a turn or a request for one.
    pub(super) fn leave(&mut self, lan: &Lan, binding: BindingId) {
        let Some(extending) = self.0.get_mut(lan) else {
            return;
        };
        extending.active.remove(&binding);
        extending.waiting.remove(&binding);
        if extending.active.is_empty() && extending.waiting.is_empty() {
            self.0.remove(lan);
        }
    }

    /// Gives the next turn that is free; returns who has it.
    pub(super) fn next(&mut self, now: Instant) -> Option<BindingId> {
        self.0.values_mut().find_map(|lan| lan.next(now))
    }

    /// Returns when the next turn is free for somebody who waits.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let waited_for = self.0.values().filter(|lan| !lan.waiting.is_empty());
        let until = waited_for.flat_map(|lan| lan.active.values().map(|(_, until)| *until));
        until.min()
    }
}

impl Extending {
    /// Gives a free turn to the server that is asked least, so that a silent one holds up no other. Of its leases the
    /// one that ends first goes first.
    fn next(&mut self, now: Instant) -> Option<BindingId> {
        self.active.retain(|_, (_, until)| *until > now);
        if self.active.len() >= EXTENSIONS {
            return None;
        }
        let mut asked: BTreeMap<Ipv4Addr, usize> = BTreeMap::new();
        for (server, _) in self.active.values() {
            *asked.entry(*server).or_default() += 1;
        }
        let order = |(id, (server, ends)): &(&BindingId, &(Ipv4Addr, Instant))| {
            (asked.get(server).copied(), *server, *ends, **id)
        };
        let (next, (server, _)) = self.waiting.iter().min_by_key(order)?;
        let (next, server) = (*next, *server);
        self.waiting.remove(&next);
        self.active.insert(next, (server, now + RECEIVE_WINDOW));
        Some(next)
    }
}

/// The turns of RELEASEs, by LAN: until when those that have left or wait use up the pace.
#[derive(Debug, Default)]
pub(super) struct Releases(BTreeMap<Lan, Instant>);

impl Releases {
    /// Takes the next turn; returns when it comes. Past turns leave no trace: what is kept is bounded by the messages of the last
    /// moments.
    pub(super) fn take(&mut self, lan: Lan, now: Instant) -> Instant {
        self.0.retain(|_, filled| *filled > now);
        let filled = self.0.entry(lan).or_insert(now);
        let ahead = filled.saturating_since(now);
        if cut(Rule::ReleaseTurns) {
            return now;
        }
        *filled = *filled + RELEASES_APART;
        now + ahead.saturating_sub(RELEASES_APART * (RELEASES_AT_ONCE - 1))
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
        // One that waited goes without a word.
        assert_eq!(pacing.leave(&lan, BindingId(3)), None);
        assert_eq!(pacing.leave(&lan, BindingId(1)), Some(BindingId(4)));
        // A permit comes back once.
        assert_eq!(pacing.leave(&lan, BindingId(1)), None);
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
    fn releases_leave_in_turn_after_the_first_few() {
        let at = |millis| Instant::from_boot(Duration::from_millis(millis));
        let (lan, other) = (Lan::Network("a".into()), Lan::Network("b".into()));
        let mut turns = Releases::default();
        let taken: Vec<_> = (0..300)
            .map(|_| turns.take(lan.clone(), at(1000)))
            .collect();
        assert!(taken[..128].iter().all(|turn| *turn == at(1000)));
        assert_eq!(
            (taken[128], taken[129], taken[299]),
            (at(1010), at(1020), at(2720))
        );
        // Each LAN has its own.
        assert_eq!(turns.take(other.clone(), at(1000)), at(1000));
        // It goes on where it was.
        assert_eq!(turns.take(lan.clone(), at(1500)), at(2730));
        assert_eq!(turns.take(lan.clone(), at(3995)), at(3995));
        turns.take(other.clone(), at(10_000));
        assert_eq!(turns.0.len(), 1, "what is past is forgotten");
    }

    #[test]
    fn a_silent_server_holds_up_no_other() {
        let at = |millis| Instant::from_boot(Duration::from_millis(millis));
        let lan = Lan::Network("a".into());
        let (silent, other) = (Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(192, 0, 2, 2));
        let mut turns = Extensions::default();
        let mut wait = |id, server, ends| turns.wait(lan.clone(), BindingId(id), server, at(ends));
        (1..=100).for_each(|id| wait(id, silent, 100_000 - id));
        let given: Vec<_> = std::iter::from_fn(|| turns.next(at(0))).collect();
        let expected: Vec<_> = (69..=100).rev().map(BindingId).collect();
        assert_eq!(given, expected, "so many, and the next to end first");
        turns.wait(lan.clone(), BindingId(200), other, at(900_000));
        assert_eq!(
            (turns.next(at(3999)), turns.deadline()),
            (None, Some(at(4000)))
        );
        let next: Vec<_> = std::iter::from_fn(|| turns.next(at(4000))).collect();
        assert_eq!((next.len(), next.contains(&BindingId(200))), (32, true));
        turns.leave(&lan, BindingId(200));
        assert_eq!(turns.next(at(4000)), Some(BindingId(37)), "with an answer");
        turns.wait(lan.clone(), BindingId(1), other, at(1));
        turns.leave(&lan, BindingId(37));
        assert_eq!(turns.next(at(4000)), Some(BindingId(1)), "it waits once");
        (1..=100).for_each(|id| turns.leave(&lan, BindingId(id)));
        assert_eq!((turns.0.len(), turns.deadline()), (0, None));
    }
}
