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

use super::tables::Tables;
use super::timers::Key;
use super::watch::Audit;
use crate::backoff::RARELY;
use crate::binding::{Binding, Leave};
use crate::effect::{Outcome, Why};
use crate::event::{Event, EventKind};
use crate::identity::Attachment;
use crate::link::{Sighting, Sightings, Sought};
use crate::patience::NEXT_STEP;
use crate::record::BindingId;
use crate::time::Instant;
use crate::wire::Mac;

/// When to search all namespaces first for an interface that the kernel has not reported. They are searched once more before
/// the interface is given up.
const FIRST_LOOK: Duration = Duration::from_secs(10);

/// What is searched for, and how far the search is.
#[derive(Debug, Default)]
pub(crate) struct Seeking {
    /// The searches under way, by the Ethernet address; `None`: the one for all.
    searches: BTreeMap<Option<Mac>, Search>,
    /// The bindings whose interface has not been seen yet.
    awaited: BTreeMap<BindingId, Awaited>,
    /// The ADDs that wait for the next search for all.
    adds: BTreeSet<Attachment>,
}

/// A search under way.
#[derive(Debug)]
pub(super) struct Search {
    began: Instant,
    /// It is repeated, in all namespaces: there was news meanwhile.
    pub(super) again: bool,
    /// The ADDs that wait for it.
    pub(super) adds: BTreeSet<Attachment>,
}

/// An interface that has not been seen yet, or has disappeared.
#[derive(Debug)]
struct Awaited {
    /// When it is looked for in all namespaces.
    next: Instant,
    /// A search that begins later, and sees everything, is the last.
    until: Instant,
    /// The event that says that it disappeared.
    went: Option<Box<Event>>,
}

impl Seeking {
    /// Waits for the interface of a binding that lives on the LAN's link, if it is sought.
    pub(super) fn wait(&mut self, tables: &mut Tables, id: BindingId) {
        let binding = tables.bindings.get(id);
        if let Some(long) = binding.and_then(|it| it.profile.wants.sought_for) {
            self.wait_for(tables, id, long);
        }
    }

    /// Waits for it this long.
    pub(crate) fn wait_for(&mut self, tables: &mut Tables, id: BindingId, long: Duration) {
        let binding = tables.bindings.get(id);
        if binding.is_some_and(|it| it.sought().is_some()) {
            let (next, until) = (tables.now.boot + FIRST_LOOK, tables.now.boot + long);
            self.begin(tables, id, next, until, None);
        }
    }

    /// Gives a binding's interface no more than a minute to be found: no other link will become it.
    pub(crate) fn wait_less(&mut self, tables: &mut Tables, id: BindingId) {
        if let Some(awaited) = self.awaited.get_mut(&id) {
            awaited.until = awaited.until.min(tables.now.boot + NEXT_STEP);
            awaited.next = awaited.next.min(awaited.until);
            self.time(tables);
        }
    }

    pub(crate) fn wait_less_for_all(&mut self, tables: &mut Tables) {
        let all: Vec<_> = self.awaited.keys().copied().collect();
        all.into_iter().for_each(|id| self.wait_less(tables, id));
    }

    /// Waits for the interface of a binding whose link is gone, and looks for it: it may have appeared elsewhere unnoticed.
    pub(super) fn wait_again(
        &mut self,
        tables: &mut Tables,
        id: BindingId,
        mac: Mac,
        went: Box<Event>,
    ) {
        let until = tables.now.boot + NEXT_STEP;
        self.begin(tables, id, until, until, Some(went));
        self.seek(tables, Some(mac), None);
    }

    /// Waits for a binding's interface from now on.
    fn begin(
        &mut self,
        tables: &mut Tables,
        id: BindingId,
        next: Instant,
        until: Instant,
        went: Option<Box<Event>>,
    ) {
        let awaited = Awaited { next, until, went };
        self.awaited.insert(id, awaited);
        self.time(tables);
    }

    pub(super) fn wait_no_more(&mut self, tables: &mut Tables, id: BindingId) {
        if self.awaited.remove(&id).is_some() {
            self.time(tables);
        }
    }

    fn time(&mut self, tables: &mut Tables) {
        let awaited = self.awaited.values();
        let next = awaited.map(|awaited| awaited.next).min();
        tables.timers.set(Key::Seek, next.map(|at| (at, Why::Work)));
    }

    /// Returns the bindings whose interface is sought. Each of them is awaited.
    fn sought<'a>(&self, tables: &'a Tables) -> impl Iterator<Item = &'a Binding> {
        let awaited = self.awaited.keys();
        let awaited = awaited.filter_map(|id| tables.bindings.get(*id));
        awaited.filter(|binding| binding.sought().is_some())
    }

    /// Searches all namespaces for interfaces that should have appeared by now.
    pub(super) fn on_clock(&mut self, tables: &mut Tables) {
        let now = tables.now;
        let bindings = &tables.bindings;
        let awaited = &mut self.awaited;
        let is_sought = |id| bindings.get(id).is_some_and(|it| it.sought().is_some());
        awaited.retain(|id, _| is_sought(*id));
        for awaited in awaited.values_mut().filter(|it| now.boot >= it.next) {
            awaited.next = if now.boot >= awaited.until {
                now.boot + RARELY
            } else {
                awaited.until
            };
        }
        self.time(tables);
        self.seek(tables, None, None);
    }

    /// Looks for all interfaces that are sought, on behalf of an ADD.
    pub(super) fn seek_for(&mut self, tables: &mut Tables, attachment: &Attachment) {
        self.adds.insert(attachment.clone());
        self.seek(tables, None, None);
    }

    /// Looks for the interfaces with this Ethernet address, or for all, in the namespace of this number, or in all.
    pub(super) fn seek(&mut self, tables: &mut Tables, mac: Option<Mac>, number: Option<i32>) {
        if let Some(search) = self.searches.get_mut(&mac) {
            search.again = true;
            return;
        }
        let is_meant = |it: &&Binding| mac.is_none() || it.sought() == mac;
        let wanted = |binding: &Binding| {
            Some(Sought {
                mac: binding.sought()?,
                lan: binding.identity.lan.clone(),
            })
        };
        let meant = self.sought(tables).filter(is_meant);
        let sought: BTreeSet<Sought> = meant.filter_map(wanted).collect();
        if sought.is_empty() {
            return;
        }
        let search = Search {
            began: tables.now.boot,
            again: false,
            adds: match mac {
                Some(_) => BTreeSet::new(),
                None => std::mem::take(&mut self.adds),
            },
        };
        self.searches.insert(mac, search);
        tables.out.seek(mac, sought.into_iter().collect(), number);
    }

    /// Handles the end of a search. Returns it, and whether it saw every namespace.
    pub(super) fn done(
        &mut self,
        tables: &mut Tables,
        audit: &mut Audit,
        by: Option<Mac>,
        outcome: Outcome,
    ) -> Option<(Search, bool)> {
        let mut search = self.searches.remove(&by)?;
        let Outcome::Sought(result) = outcome else {
            return None;
        };
        let whole = matches!(&result, Ok(Sightings { whole: true, .. }));
        // What a search through all namespaces may have missed is searched for again before long.
        if by.is_none() && !whole {
            for awaited in self.awaited.values_mut() {
                awaited.next = awaited.next.min(tables.now.boot + RARELY);
            }
            self.time(tables);
        }
        match result {
            Ok(Sightings { found, unseen, .. }) => {
                found
                    .into_iter()
                    .for_each(|sighting| self.found(tables, audit, sighting));
                if let Some(cause) = unseen.filter(|_| by.is_none() && !self.awaited.is_empty()) {
                    tracing::warn!(
                        %cause, leases = self.awaited.len(),
                        "the interfaces of containers may be where the daemon cannot look: their leases are renewed from the \
                         host's link, and not given back",
                    );
                }
            }
            Err(cause) => tracing::warn!(%cause, "cannot look for the interfaces of containers"),
        }
        let is_over = |it: &Awaited| by.is_none() && whole && search.began >= it.until;
        let awaited = self.awaited.iter().filter(|(_, it)| is_over(it));
        for id in awaited.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.give_up(tables, id);
        }
        // There will be no other search for ADDs to wait for.
        if self.sought(tables).next().is_none() {
            search.adds.append(&mut self.adds);
        }
        Some((search, whole))
    }

    /// Moves the bindings that sought an interface onto it.
    fn found(&mut self, tables: &mut Tables, audit: &mut Audit, sighting: Sighting) {
        let Sighting {
            sought: Sought { mac, lan },
            ..
        } = &sighting;
        let is_it = |it: &&Binding| it.sought() == Some(*mac) && it.identity.lan == *lan;
        let Some(id) = self.sought(tables).find(is_it).map(|it| it.id) else {
            return;
        };
        let link = sighting.link();
        let view = sighting.view;
        self.wait_no_more(tables, id);
        tables.with(id, |life, cx| {
            life.holds(cx, |hold, cx| hold.move_in(link, &view, cx))
        });
        tables
            .interfaces
            .on_carrier(view.at(), view.carrier, tables.now.boot);
        // What has happened there since the search was reported before anybody listened.
        audit.look_for(tables, id);
    }

    /// Gives back the lease of an interface that has not appeared.
    fn give_up(&mut self, tables: &mut Tables, id: BindingId) {
        let now = tables.now;
        let binding = tables.bindings.get(id);
        let Some(binding) = binding.filter(|binding| binding.sought().is_some()) else {
            return;
        };
        tracing::warn!(attachment = %binding.attachment, mac = %binding.link.mac(), "no interface was found: giving the lease back");
        let went = self.awaited.remove(&id).and_then(|it| it.went);
        self.time(tables);
        tables.with(id, |life, cx| {
            match went {
                Some(event) => {
                    let wall = now.wall;
                    cx.out.note_alone(id, Event { wall, ..*event });
                }
                None => life.keeps(cx, |hold, cx| {
                    let cause = "no interface with its Ethernet address appeared";
                    cx.note(EventKind::OrphanFound, &hold.last, cause);
                }),
            }
            life.give_back(Leave::LinkGone, cx);
        });
    }
}
