//! Network interfaces of containers: who lives on each, what each binding has and wants there, the Ethernet address and carrier,
//! and the one change under way.
//!
//! An [`Interface`] exists from its first binding, or its first change, to its last. It serves any number of bindings, each with
//! a [`Seat`]; a binding whose packets go over the host's link has none. Whoever wants to change an interface asks here first,
//! and is called when the previous change is over.

mod given;
mod holding;
mod news;
mod presence;
mod seat;
#[cfg(test)]
mod tests;
mod work;

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::time::Duration;

pub(crate) use self::holding::{Holding, Wish};
pub(crate) use self::news::News;
pub(crate) use self::presence::Presence;
pub(crate) use self::seat::{Seat, without};
pub(crate) use self::work::{Act, Done, Lack, Work, Worked};
use crate::effect::OpId;
pub(crate) use crate::link::At;
use crate::link::{Cookie, Link};
use crate::record::BindingId;
use crate::time::Instant;
use crate::wire::Mac;

/// All interfaces that bindings live on, or that are being changed.
#[derive(Debug, Default)]
pub(crate) struct Interfaces {
    all: BTreeMap<At, Interface>,
    /// Where the changes under way are. They go on even if nobody waits for their outcome any more.
    changes: BTreeMap<OpId, At>,
}

/// One interface.
#[derive(Debug, Default)]
struct Interface {
    /// Its Ethernet address, as last known.
    mac: Mac,
    /// The index of the host's link under it, if it is a macvlan and that was seen.
    lower: Option<NonZeroU32>,
    /// Since when it has no carrier.
    carrier_lost: Option<Instant>,
    /// What each binding has there, in the order of the bindings.
    seats: Vec<Seat>,
    /// The change under way.
    change: Option<OpId>,
    /// How often something happened there: a report from the kernel, or the end of a change.
    news: u64,
}

/// How much had happened at an interface when a look at it was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NewsCount(u64);

impl Interfaces {
    /// What an interface with one binding costs, in bytes, without its place in the map.
    #[cfg(test)]
    pub(crate) const SIZE: usize = size_of::<Interface>() + size_of::<Seat>();

    /// Records that a binding now lives on an interface; a binding on a host link lives on none.
    pub(crate) fn enter(&mut self, link: &Link, id: BindingId) {
        let Some(at) = link.in_netns() else { return };
        let interface = self.all.entry(at).or_default();
        interface.mac = link.mac();
        if let Err(place) = interface.place(id) {
            // Usually there is one.
            interface.seats.reserve_exact(1);
            interface.seats.insert(place, Seat::new(id));
        }
    }

    /// Records that a binding no longer lives there.
    pub(crate) fn leave(&mut self, link: &Link, id: BindingId) {
        let Some(at) = link.in_netns() else { return };
        if let Some(interface) = self.all.get_mut(&at) {
            interface.seats.retain(|seat| seat.binding != id);
        }
        self.forget_idle(at);
    }

    pub(crate) fn seat(&self, link: &Link, id: BindingId) -> Option<&Seat> {
        self.of(link)?.seat(id)
    }

    pub(crate) fn seat_mut(&mut self, link: &Link, id: BindingId) -> Option<&mut Seat> {
        let interface = self.all.get_mut(&link.in_netns()?)?;
        let place = interface.place(id).ok()?;
        interface.seats.get_mut(place)
    }

    /// Returns whether it is still unknown what an ADD's caller did with its answer, for any binding of an interface.
    pub(crate) fn is_settling(&self, at: At) -> bool {
        self.all
            .get(&at)
            .is_some_and(|interface| interface.seats.iter().any(Seat::is_settling))
    }

    /// Returns whether a binding's address is on its interface, as far as is known. On a host link it never is.
    pub(crate) fn presence(&self, link: &Link, id: BindingId) -> Presence {
        if link.in_netns().is_none() {
            return Presence::Missing;
        }
        self.seat(link, id).map(Seat::presence).unwrap_or_default()
    }

    /// Records the host's link under an interface, if that is a macvlan.
    pub(crate) fn is_on(&mut self, at: At, lower: Option<u32>) {
        let interface = self.all.get_mut(&at);
        interface
            .into_iter()
            .for_each(|interface| interface.lower = lower.and_then(NonZeroU32::new));
    }

    /// Returns the index of the host's link under an interface, if it is a macvlan and that was seen.
    pub(crate) fn lower(&self, link: &Link) -> Option<u32> {
        self.of(link)?.lower.map(NonZeroU32::get)
    }

    /// Records that an interface is up.
    pub(crate) fn on_up(&mut self, at: At, now: Instant) {
        let seats = self
            .all
            .get_mut(&at)
            .into_iter()
            .flat_map(|interface| &mut interface.seats);
        seats.for_each(|seat| seat.on_up(now));
    }

    /// Records that something happened at an interface: a look that was asked for earlier may show an older state.
    pub(crate) fn has_news(&mut self, at: At) {
        self.all
            .get_mut(&at)
            .into_iter()
            .for_each(|interface| interface.news += 1);
    }

    /// Returns the mark of a look at an interface that is asked for now.
    pub(crate) fn asked(&self, at: At) -> NewsCount {
        NewsCount(self.all.get(&at).map_or(0, |interface| interface.news))
    }

    /// Returns the bindings that live on an interface, or with `None` on any interface of the namespace, in order.
    pub(crate) fn bindings(&self, cookie: Cookie, ifindex: Option<u32>) -> Vec<BindingId> {
        let all = self
            .in_netns(cookie)
            .filter(|((_, index), _)| ifindex.is_none_or(|wanted| wanted == *index));
        let mut bindings: Vec<_> = all
            .flat_map(|(_, interface)| interface.seats.iter().map(|seat| seat.binding))
            .collect();
        bindings.sort_unstable();
        bindings
    }

    /// Records the carrier of an interface. Returns for how long it was away, if it is back.
    pub(crate) fn on_carrier(&mut self, at: At, up: bool, now: Instant) -> Option<Duration> {
        let interface = self.all.get_mut(&at)?;
        if !up {
            interface.carrier_lost.get_or_insert(now);
            return None;
        }
        interface
            .carrier_lost
            .take()
            .map(|since| now.saturating_since(since))
    }

    /// Returns whether a link has carrier, as far as is known.
    pub(crate) fn has_carrier(&self, link: &Link) -> bool {
        self.of(link)
            .is_none_or(|interface| interface.carrier_lost.is_none())
    }

    /// Returns whether a binding's interface moved to another Ethernet address, and has carrier there.
    pub(crate) fn has_moved(&self, link: &Link, id: BindingId) -> bool {
        self.seat(link, id).is_some_and(|seat| seat.moved) && self.has_carrier(link)
    }

    /// Returns the same, once; false also if the binding's address is no longer there.
    pub(crate) fn take_moved(&mut self, link: &Link, id: BindingId) -> bool {
        let moved = self.has_moved(link, id);
        let Some(seat) = self.seat_mut(link, id).filter(|_| moved) else {
            return false;
        };
        seat.moved = false;
        seat.presence() == Presence::There
    }

    /// Records the Ethernet address of an interface.
    pub(crate) fn on_ethernet(&mut self, at: At, mac: Mac) {
        if let Some(interface) = self.all.get_mut(&at)
            && std::mem::replace(&mut interface.mac, mac) != mac
        {
            interface.seats.iter_mut().for_each(Seat::moves);
        }
    }

    /// Returns whether an interface is being changed, for any binding.
    pub(crate) fn is_changing(&self, at: At) -> bool {
        self.all
            .get(&at)
            .is_some_and(|interface| interface.change.is_some())
    }

    /// Records that a change of an interface is under way. No other begins before it is over.
    pub(crate) fn begin_change(&mut self, at: At, op: OpId) {
        self.all.entry(at).or_default().change = Some(op);
        self.changes.insert(op, at);
    }

    /// Records that an effect is over. Returns the interface that it changed, if any.
    pub(crate) fn end_change(&mut self, op: OpId) -> Option<At> {
        let at = self.changes.remove(&op)?;
        if let Some(interface) = self.all.get_mut(&at) {
            interface.change.take_if(|change| *change == op);
            interface.news += 1;
        }
        self.forget_idle(at);
        Some(at)
    }

    /// Returns the interface of a link, if bindings live there or it is being changed.
    fn of(&self, link: &Link) -> Option<&Interface> {
        self.all.get(&link.in_netns()?)
    }

    fn in_netns(&self, cookie: Cookie) -> impl Iterator<Item = (&At, &Interface)> {
        self.all.range((cookie, 0)..=(cookie, u32::MAX))
    }

    fn forget_idle(&mut self, at: At) {
        if self
            .all
            .get(&at)
            .is_some_and(|interface| interface.seats.is_empty() && interface.change.is_none())
        {
            self.all.remove(&at);
        }
    }
}

impl Interface {
    /// Returns the position of a binding's seat, or where it should be inserted.
    fn place(&self, id: BindingId) -> Result<usize, usize> {
        self.seats.binary_search_by_key(&id, |seat| seat.binding)
    }

    fn seat(&self, id: BindingId) -> Option<&Seat> {
        self.place(id).ok().and_then(|place| self.seats.get(place))
    }
}
