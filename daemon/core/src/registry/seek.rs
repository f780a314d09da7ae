//! Finds the interfaces of an engine that does not say where it puts them: Docker asks for an address before there is an
//! interface, and never names its namespace.
//!
//! Until then the binding lives on the LAN's link. The kernel reports a link with its Ethernet address in an unknown
//! namespace, and that namespace is searched. Missed interfaces are found by a search through all namespaces: at the start,
//! after lost messages, and some time after the lease was given.
//!
//! If an interface never appears, its engine abandoned it silently: it was killed at that moment. Its lease is given back,
//! but only if every existing namespace was searched.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::Registry;
use super::timers::Key;
use crate::backoff::RARELY;
use crate::binding::{Binding, Leave};
use crate::effect::{Outcome, Why};
use crate::event::{Event, EventKind};
use crate::identity::Attachment;
use crate::link::{LinkCause, Sighting, Sightings, Sought};
use crate::patience::NEXT_STEP;
use crate::record::BindingId;
use crate::time::{Instant, Now};
use crate::wire::Mac;

/// When to search all namespaces first for an interface that the kernel has not reported. They are searched once more before
/// the interface is given up.
const FIRST_LOOK: Duration = Duration::from_secs(10);

/// What is searched for, and how far the search is.
#[derive(Debug, Default)]
pub(super) struct Seeking {
    /// The searches under way, by the Ethernet address; `None`: the one for all.
    searches: BTreeMap<Option<Mac>, Search>,
    /// The bindings whose interface has not been seen yet.
    awaited: BTreeMap<BindingId, Awaited>,
    /// The ADDs that wait for the next search for all.
    adds: BTreeSet<Attachment>,
}

/// A search under way.
#[derive(Debug, Default)]
struct Search {
    /// It is repeated, in the namespace of this number or in all: there was news meanwhile.
    again: Option<Option<i32>>,
    /// The bindings that are given up if it does not find their interface.
    last_for: BTreeSet<BindingId>,
    /// The ADDs that wait for it.
    adds: BTreeSet<Attachment>,
}

/// An interface that has not been seen yet, or has disappeared.
#[derive(Debug)]
struct Awaited {
    /// When it is looked for in all namespaces.
    next: Instant,
    /// After this time, a look that sees everything is the last.
    until: Instant,
    /// Whether it should have come by now.
    is_late: bool,
    /// Whether the next search through all is its last.
    is_last: bool,
    /// The event that says that it disappeared.
    went: Option<Box<Event>>,
}

impl Seeking {
    /// Waits for a binding's interface from now on: a search under way, which may come too early, is not the last one.
    fn wait(&mut self, id: BindingId, next: Instant, until: Instant, went: Option<Box<Event>>) {
        for search in self.searches.values_mut() {
            search.last_for.remove(&id);
        }
        let awaited = Awaited {
            next,
            until,
            is_late: went.is_some(),
            is_last: false,
            went,
        };
        self.awaited.insert(id, awaited);
    }

    /// Returns how many searches are under way.
    pub(super) fn under_way(&self) -> usize {
        self.searches.len()
    }

    /// Returns how many interfaces have not been seen yet.
    pub(super) fn awaited(&self) -> usize {
        self.awaited.len()
    }
}

impl Registry {
    /// Waits for the interface of a binding that lives on the LAN's link, if it is sought.
    pub(super) fn await_interface(&mut self, now: Now, id: BindingId) {
        let binding = self.tables.bindings.get(id);
        if let Some(long) = binding.and_then(|it| it.profile.wants.sought_for) {
            self.await_interface_for(now, id, long);
        }
    }

    /// Waits for it this long.
    pub(crate) fn await_interface_for(&mut self, now: Now, id: BindingId, long: Duration) {
        if self.tables.bindings.is_sought(id) {
            let (next, until) = (now.boot + FIRST_LOOK, now.boot + long);
            self.seeking.wait(id, next, until, None);
            self.time_seeking();
        }
    }

    /// Goes on after a binding's link is gone. If the binding lives on without it, the link may have appeared elsewhere unnoticed;
    /// else its lease is released soon.
    pub(super) fn link_went(&mut self, now: Now, id: BindingId, event: Box<Event>) {
        let Some(mac) = self.tables.bindings.get(id).and_then(Binding::sought) else {
            return self.orphans.add(id, event, now.boot);
        };
        self.audit.sight.forget(id);
        if self.left_inside(now, id) {
            return;
        }
        let until = now.boot + NEXT_STEP;
        self.seeking.wait(id, until, until, Some(event));
        self.time_seeking();
        self.seek(Some(mac), None);
    }

    /// Gives a binding's interface no more than a minute to be found: no other link will become it.
    pub(crate) fn await_interface_soon(&mut self, now: Now, id: BindingId) {
        if let Some(awaited) = self.seeking.awaited.get_mut(&id) {
            awaited.until = awaited.until.min(now.boot + NEXT_STEP);
            awaited.next = awaited.next.min(awaited.until);
            self.time_seeking();
        }
    }

    pub(crate) fn await_all_interfaces_soon(&mut self, now: Now) {
        let all: Vec<_> = self.seeking.awaited.keys().copied().collect();
        all.into_iter()
            .for_each(|id| self.await_interface_soon(now, id));
    }

    pub(super) fn await_interface_no_more(&mut self, id: BindingId) {
        if self.seeking.awaited.remove(&id).is_some() {
            self.time_seeking();
        }
    }

    fn time_seeking(&mut self) {
        let awaited = self.seeking.awaited.values();
        let next = awaited.map(|awaited| awaited.next).min();
        self.tables
            .timers
            .set(Key::Seek, next.map(|at| (at, Why::Work)));
    }

    /// Searches all namespaces for interfaces that should have appeared by now.
    pub(super) fn seek_on_clock(&mut self, now: Now) {
        let bindings = &self.tables.bindings;
        let awaited = &mut self.seeking.awaited;
        awaited.retain(|id, _| bindings.is_sought(*id));
        for awaited in awaited.values_mut().filter(|it| now.boot >= it.next) {
            (awaited.is_late, awaited.is_last) = (true, now.boot >= awaited.until);
            awaited.next = if awaited.is_last {
                now.boot + RARELY
            } else {
                awaited.until
            };
        }
        self.time_seeking();
        self.seek(None, None);
    }

    /// Looks for the sought interfaces with this Ethernet address: one was seen in the namespace with this number, or in a known
    /// one.
    pub(super) fn appeared(&mut self, mac: Mac, number: Option<i32>) {
        if self.tables.bindings.sought_by(mac).next().is_some() {
            self.seek(Some(mac), number);
        }
    }

    /// Looks for all interfaces that are sought, on behalf of an ADD.
    pub(super) fn search_for(&mut self, attachment: &Attachment) {
        self.seeking.adds.insert(attachment.clone());
        self.seek(None, None);
    }

    pub(super) fn seek_all(&mut self) {
        self.seek(None, None);
    }

    /// Looks for the interfaces with this Ethernet address, or for all, in the namespace of this number, or in all.
    fn seek(&mut self, mac: Option<Mac>, number: Option<i32>) {
        if let Some(search) = self.seeking.searches.get_mut(&mac) {
            // Two different namespaces: a search through all covers both.
            let both = search.again.is_some_and(|other| other != number);
            search.again = Some(number.filter(|_| !both));
            return;
        }
        let wanted = |binding: &Binding| {
            Some(Sought {
                mac: binding.sought()?,
                lan: binding.identity.lan.clone(),
            })
        };
        let sought: BTreeSet<Sought> = match mac {
            Some(mac) => self
                .tables
                .bindings
                .sought_by(mac)
                .filter_map(wanted)
                .collect(),
            None => self.tables.bindings.sought().filter_map(wanted).collect(),
        };
        if sought.is_empty() {
            return;
        }
        let mut search = Search::default();
        if mac.is_none() {
            search.adds = std::mem::take(&mut self.seeking.adds);
            let awaited = self.seeking.awaited.iter_mut();
            let last = |it: &mut Awaited| std::mem::take(&mut it.is_last);
            let last_for = awaited.filter_map(|(id, it)| last(it).then_some(*id));
            search.last_for = last_for.collect();
        }
        self.seeking.searches.insert(mac, search);
        self.tables
            .out
            .seek(mac, sought.into_iter().collect(), number);
    }

    /// Goes on after a search.
    pub(super) fn sought(&mut self, now: Now, by: Option<Mac>, outcome: Outcome) {
        let Some(Search {
            again,
            last_for,
            adds,
        }) = self.seeking.searches.remove(&by)
        else {
            return;
        };
        let Outcome::Sought(result) = outcome else {
            return;
        };
        let whole = matches!(&result, Ok(Sightings { whole: true, .. }));
        if by.is_none() && !whole {
            self.seek_before_long(now);
        }
        match result {
            Ok(Sightings { found, unseen, .. }) => {
                found
                    .into_iter()
                    .for_each(|sighting| self.found_inside(now, sighting));
                if let Some(cause) = unseen {
                    self.warn_of_unseen(&cause);
                }
            }
            Err(cause) => tracing::warn!(%cause, "cannot look for the interfaces of containers"),
        }
        last_for
            .into_iter()
            .filter(|_| whole)
            .for_each(|id| self.give_up(now, id));
        adds.into_iter()
            .for_each(|attachment| self.rival_sought(now, &attachment, whole));
        if let Some(number) = again {
            self.seek(by, number);
        }
    }

    /// Searches again before long for what a search through all namespaces may have missed.
    fn seek_before_long(&mut self, now: Now) {
        for awaited in self.seeking.awaited.values_mut() {
            awaited.next = awaited.next.min(now.boot + RARELY);
        }
        self.time_seeking();
    }

    /// Says why leases stay without an interface that should have appeared by now.
    fn warn_of_unseen(&self, cause: &LinkCause) {
        let awaited = self.seeking.awaited.values();
        let waiting = awaited.filter(|awaited| awaited.is_late).count();
        if waiting > 0 {
            tracing::warn!(
                %cause, leases = waiting,
                "the interfaces of containers may be where the daemon cannot look: their leases are renewed from the host's link, \
                 and not given back",
            );
        }
    }

    /// Moves the bindings that sought an interface onto it.
    fn found_inside(&mut self, now: Now, sighting: Sighting) {
        let Sighting {
            sought: Sought { mac, lan },
            ..
        } = &sighting;
        let of_lan = self.tables.bindings.sought_by(*mac);
        let of_lan = of_lan.filter(|binding| binding.identity.lan == *lan);
        let Some(id) = of_lan.map(|binding| binding.id).min() else {
            return;
        };
        let link = sighting.link();
        let view = sighting.view;
        self.await_interface_no_more(id);
        self.tables.with(now, id, |binding, cx| {
            binding.holds(cx, |hold, common, cx| hold.move_in(common, link, &view, cx))
        });
        self.tables
            .interfaces
            .on_carrier(view.at(), view.carrier, now.boot);
        // What has happened there since the search was reported before anybody listened.
        self.audit.look_for(&mut self.tables, id);
    }

    /// Gives back the lease of an interface that has not appeared.
    fn give_up(&mut self, now: Now, id: BindingId) {
        let binding = self.tables.bindings.get(id);
        let Some(binding) = binding.filter(|binding| binding.sought().is_some()) else {
            return;
        };
        tracing::warn!(attachment = %binding.attachment, mac = %binding.link.mac(), "no interface was found: giving the lease back");
        let went = self.seeking.awaited.remove(&id).and_then(|it| it.went);
        self.time_seeking();
        self.tables.with(now, id, |binding, cx| {
            match went {
                Some(event) => {
                    let wall = now.wall;
                    cx.out.note_alone(id, Event { wall, ..*event });
                }
                None => binding.note_lease(
                    EventKind::OrphanFound,
                    "no interface with its Ethernet address appeared",
                    cx,
                ),
            }
            binding.give_back(Leave::LinkGone, cx);
        });
    }
}
