//! Looks at interfaces when the kernel's reports may have been lost, or leave something open.
//!
//! A daemon with the wrong `--host-prefix`, or in a mount or PID namespace that does not show those of the containers, sees
//! none of them, and would give back the leases of running containers. So missing is not gone. A namespace whose path no
//! longer leads to it is gone if its directory shows any other ([`LinkCause::NetnsRemoved`]). Otherwise nothing is given back
//! before a DEL, a GC, a report from the kernel or the lease's end, with which its row ends; until then looks go on, and a lease
//! whose namespace is seen again goes on where it was. A namespace without a path that the kernel still knows is not missing
//! ([`LinkCause::NoPath`]).
//!
//! So if a host's last container ended without a DEL while no daemon ran, it may keep its address until the lease's end, or
//! until the next container shows that this daemon can see: that hurts nobody. An address that is given away under a running
//! container costs two containers their network.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::slots::Slots;
use super::tables::Tables;
use super::timers::Key;
use crate::backoff::{Backoff, LONGEST_PAUSE};
use crate::binding::Binding;
use crate::effect::{Outcome, Why};
use crate::interface::{At, Interfaces, News, NewsCount};
use crate::link::{LinkCause, LinkView, Target, directory_of};
use crate::outbox::Waiter;
use crate::record::BindingId;

/// Interfaces that must still be looked at, a few at a time. One look serves all bindings there.
#[derive(Debug)]
pub(super) struct Audit {
    /// How many are looked at at once.
    most: usize,
    waiting: VecDeque<At>,
    /// The looks under way, one for each interface, with the time of asking; `None`: it is to be repeated.
    under_way: BTreeMap<At, Option<NewsCount>>,
    /// How often the look at an interface failed, for those that are tried again.
    failures: BTreeMap<At, Backoff>,
}

impl Audit {
    pub(super) fn new(most: usize) -> Self {
        Self {
            most: most.max(1),
            waiting: VecDeque::new(),
            under_way: BTreeMap::new(),
            failures: BTreeMap::new(),
        }
    }

    /// Has a look that is under way repeated. Returns whether there is one.
    fn repeat(&mut self, at: At) -> bool {
        self.under_way
            .get_mut(&at)
            .map(|asked| *asked = None)
            .is_some()
    }

    /// Looks at an interface if one of those that hold a lease there has reason to.
    pub(super) fn look_if(
        &mut self,
        tables: &mut Tables,
        at: At,
        has_reason: impl Fn(&Binding, &Interfaces) -> bool,
    ) {
        let mut held = tables.held_at(at).into_iter();
        if held.any(|binding| has_reason(binding, &tables.interfaces)) {
            self.look_at(tables, at);
        }
    }

    /// Looks at the interface of a binding that is held, if it has one.
    pub(super) fn look_for(&mut self, tables: &mut Tables, id: BindingId) {
        let at = tables.bindings.get(id).and_then(Binding::watched);
        at.into_iter().for_each(|at| self.look_at(tables, at));
    }

    /// Looks at an interface.
    fn look_at(&mut self, tables: &mut Tables, at: At) {
        if !self.waiting.contains(&at) {
            self.waiting.push_back(at);
        }
        self.look_at_next(tables);
    }

    pub(super) fn look_again(&mut self, tables: &mut Tables, at: At) {
        tables.timers.set(Key::Audit(at), None);
        self.look_at(tables, at);
    }

    /// Looks at the interface of every held binding: the kernel reports nothing about a namespace that has not been
    /// looked at since it lost messages. Those that wait already keep their turn: if somebody floods a namespace with
    /// changes, messages may be lost more often than all interfaces can be looked at.
    pub(super) fn look_at_all(&mut self, tables: &mut Tables) {
        let bindings = tables.bindings.iter();
        let mut all: BTreeSet<_> = bindings.filter_map(Binding::watched).collect();
        self.waiting.iter().for_each(|waits| _ = all.remove(waits));
        self.waiting.extend(all);
        self.look_at_next(tables);
    }

    fn look_at_next(&mut self, tables: &mut Tables) {
        while self.under_way.len() < self.most {
            let Some(at) = self.waiting.pop_front() else {
                return;
            };
            let held = tables.held_at(at);
            let settles = tables.interfaces.is_settling(at);
            match held.first().map(|first| Target::Known(first.link.clone())) {
                // Two at once could come back in any order.
                Some(_) if self.repeat(at) => {}
                Some(target) => {
                    self.under_way.insert(at, Some(tables.interfaces.asked(at)));
                    tables.out.inspect_with(Waiter::Audit(at), target, settles);
                }
                None => _ = self.failures.remove(&at),
            }
        }
    }

    pub(super) fn done(&mut self, tables: &mut Tables, slots: &Slots, at: At, outcome: Outcome) {
        let asked = self.under_way.remove(&at);
        // What it shows may be older than what is known by now: it only proves that the link is there.
        let outdated = asked != Some(Some(tables.interfaces.asked(at)));
        tables.timers.set(Key::Audit(at), None);
        let held = tables.held_at(at).into_iter();
        let held: Vec<_> = held.map(|binding| binding.id).collect();
        let Outcome::Inspected(result) = outcome else {
            return self.look_at_next(tables);
        };
        match result {
            Ok(_) if outdated => self.look_at(tables, at),
            Ok(view) => self.saw_interface(tables, slots, at, held, &view),
            Err(cause) => self.missed_interface(tables, at, held, cause, outdated),
        }
        self.look_at_next(tables);
    }

    /// Tells the bindings of an interface what a look showed there.
    fn saw_interface(
        &mut self,
        tables: &mut Tables,
        slots: &Slots,
        at: At,
        mut held: Vec<BindingId>,
        view: &LinkView,
    ) {
        self.failures.remove(&at);
        // If something is missing there, nobody else removed it.
        held.retain(|id| {
            let binding = tables.bindings.get(*id);
            !binding.is_some_and(|binding| slots.is_being_cleared(&binding.attachment))
        });
        if held.is_empty() {
            return;
        }
        tables.has_ethernet(at, view.mac);
        let back = tables
            .interfaces
            .on_carrier(at, view.carrier, tables.now.boot);
        if view.up {
            tables.interfaces.on_up(at, tables.now.boot);
        }
        for id in held {
            tables.with(id, |life, cx| life.on_news(News::Seen { view, back }, cx));
        }
    }

    /// Tells the bindings of an interface that it is gone, if the look that failed shows that; else it is tried again.
    fn missed_interface(
        &mut self,
        tables: &mut Tables,
        at: At,
        held: Vec<BindingId>,
        cause: LinkCause,
        outdated: bool,
    ) {
        let now = tables.now;
        let mut backoff = self.failures.remove(&at).unwrap_or_default();
        for id in held {
            let is_pathless = matches!(cause, LinkCause::NoPath(_));
            // Whether or not this daemon is blind: without a lease there is nothing to give back; an interface that is found by
            // its Ethernet address is searched for in all namespaces first; and if no path led there before, the kernel was
            // asked, and no longer knows it.
            let is_over = !outdated
                && cause.is_unseen()
                && !is_pathless
                && tables.bindings.get(id).is_some_and(|binding| {
                    binding.lacks_lease(now.boot)
                        || binding.profile.wants.is_found_later()
                        || binding.is_pathless && cause.is_missing()
                });
            let is_gone = cause.is_gone() && !cause.is_missing() || is_over;
            if is_gone || is_pathless && !outdated {
                tables.with(id, |life, cx| life.on_news(News::Gone(cause.clone()), cx));
            }
        }
        let held = tables.held_at(at);
        let Some(attachment) = held.first().map(|binding| binding.attachment.clone()) else {
            return;
        };
        if outdated {
            return self.look_at(tables, at);
        }
        let is_news = match &cause {
            // The look beside goes through all leases.
            _ if backoff.has_failed() => false,
            // Where others are seen, one whose file was unmounted says nothing about this daemon's sight.
            LinkCause::NoPath(_) => !self.is_beside(tables, at, false),
            cause => cause.is_unseen() && !self.is_beside(tables, at, true),
        };
        backoff.fail();
        let pause = backoff.pause(LONGEST_PAUSE, &mut tables.rng);
        match (cause.is_unseen(), is_news) {
            (_, true) => tracing::error!(
                %attachment, %cause,
                "a network namespace with a lease is out of sight: it ended while no daemon ran, or this daemon does not see \
                 the containers of its directory (--host-prefix, mounts, PID namespace); a lease there is kept until its end, \
                 a DEL or a GC, and renewed only if the kernel knows the namespace, from the host's link"
            ),
            (true, false) => {
                tracing::debug!(%attachment, %cause, ?pause, "namespace not seen: looking again")
            }
            (false, _) => {
                tracing::warn!(%attachment, %cause, ?pause, "link could not be looked at: trying again")
            }
        }
        self.failures.insert(at, backoff);
        let next = Some((now.boot + pause, Why::Work));
        tables.timers.set(Key::Audit(at), next);
    }

    /// Returns whether the last look at another namespace in the same directory has `failed`, or may not have.
    fn is_beside(&self, tables: &Tables, at: At, failed: bool) -> bool {
        let here = tables.held_at(at).first().and_then(|it| it.link.netns());
        let here = here.map(directory_of);
        let mut others = tables.bindings.iter().filter(|it| !it.is_pathless);
        others.any(|it| {
            let is_one = |other| other != at && self.failures.contains_key(&other) == failed;
            it.watched().is_some_and(is_one) && it.link.netns().map(directory_of) == here
        })
    }
}
