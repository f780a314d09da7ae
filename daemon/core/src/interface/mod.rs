//! Network interfaces of containers: who lives on each, its Ethernet address, and the one change of it under way.
//!
//! An [`Interface`] is there from its first tenant, or its first change, to its last. It serves any number of bindings; one whose
//! packets go over the host's link has none. Whoever is to change an interface asks here first, and is called when the change
//! before is over.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use crate::effect::OpId;
use crate::identity::Attachment;
use crate::link::{Cookie, Link};
use crate::record::BindingId;
use crate::wire::Mac;

/// Where an interface is: the namespace, and the index there.
pub(crate) type At = (Cookie, u32);

/// All interfaces that bindings live on, or that are being changed.
#[derive(Debug, Default)]
pub(crate) struct Interfaces {
    all: BTreeMap<At, Interface>,
    /// Where the changes under way are. They go on when nobody waits for their outcome any more.
    changes: BTreeMap<OpId, At>,
    /// The ADDs that wait for a change to end.
    adds: BTreeSet<(At, Attachment)>,
    /// The CHECKs that wait for what a binding does at its interface.
    checks: BTreeSet<Attachment>,
}

/// One interface.
#[derive(Debug, Default)]
struct Interface {
    /// Its Ethernet address, as far as it is known.
    mac: Mac,
    /// The bindings that live on it, in order.
    tenants: Vec<BindingId>,
    /// The change under way.
    change: Option<OpId>,
}

impl Interfaces {
    /// Records that a binding lives on an interface from here on; one on a link of the host lives on none.
    pub(crate) fn enter(&mut self, link: &Link, id: BindingId) {
        let Some(at) = link.in_netns() else { return };
        let interface = self.all.entry(at).or_default();
        interface.mac = link.mac();
        if let Err(place) = interface.tenants.binary_search(&id) {
            // Mostly there is one.
            interface.tenants.reserve_exact(1);
            interface.tenants.insert(place, id);
        }
    }

    /// Records that a binding lives there no more.
    pub(crate) fn leave(&mut self, link: &Link, id: BindingId) {
        let Some(at) = link.in_netns() else { return };
        if let Some(interface) = self.all.get_mut(&at) {
            interface.tenants.retain(|tenant| *tenant != id);
        }
        self.forget_idle(at);
    }

    /// Returns the bindings that live on an interface, or with `None` on any of the namespace, in order.
    pub(crate) fn tenants(&self, cookie: Cookie, ifindex: Option<u32>) -> Vec<BindingId> {
        let all = self.in_netns(cookie).filter(|((_, index), _)| ifindex.is_none_or(|wanted| wanted == *index));
        let mut tenants: Vec<_> = all.flat_map(|(_, interface)| interface.tenants.iter().copied()).collect();
        tenants.sort_unstable();
        tenants
    }

    /// Records the Ethernet address of an interface.
    pub(crate) fn on_ethernet(&mut self, at: At, mac: Mac) {
        if let Some(interface) = self.all.get_mut(&at) {
            interface.mac = mac;
        }
    }

    /// Returns whether a tenant of this namespace has an Ethernet address.
    pub(crate) fn has_inside(&self, cookie: Cookie, mac: Mac) -> bool {
        self.in_netns(cookie).any(|(_, interface)| interface.mac == mac && !interface.tenants.is_empty())
    }

    /// Returns whether an interface is being changed, on whosever behalf.
    pub(crate) fn is_changing(&self, at: At) -> bool {
        self.all.get(&at).is_some_and(|interface| interface.change.is_some())
    }

    /// Records that a change of an interface is under way. No other begins before it is over.
    pub(crate) fn begin_change(&mut self, at: At, op: OpId) {
        self.all.entry(at).or_default().change = Some(op);
        self.changes.insert(op, at);
    }

    /// Records that an effect is over. Returns which interface it was to change.
    pub(crate) fn end_change(&mut self, op: OpId) -> Option<At> {
        let at = self.changes.remove(&op)?;
        if let Some(interface) = self.all.get_mut(&at) {
            interface.change.take_if(|change| *change == op);
        }
        self.forget_idle(at);
        Some(at)
    }

    /// Lets an ADD wait until the change under way is over.
    pub(crate) fn await_change(&mut self, at: At, attachment: &Attachment) {
        self.adds.insert((at, attachment.clone()));
    }

    /// Takes out the ADDs that waited for a change of an interface.
    pub(crate) fn take_adds(&mut self, at: At) -> Vec<Attachment> {
        let adds = self.adds.extract_if(.., |(waits_at, _)| *waits_at == at);
        adds.map(|(_, attachment)| attachment).collect()
    }

    /// Lets a CHECK wait until its binding has done what it does at its interface.
    pub(crate) fn await_work(&mut self, attachment: &Attachment) {
        self.checks.insert(attachment.clone());
    }

    /// Takes out the CHECKs that wait.
    pub(crate) fn take_checks(&mut self) -> BTreeSet<Attachment> {
        std::mem::take(&mut self.checks)
    }

    /// Returns how many CHECKs wait.
    pub(crate) fn checks(&self) -> usize {
        self.checks.len()
    }

    /// Returns how many tenants there are; and how many changes are under way, and ADDs and CHECKs wait for one.
    pub(crate) fn sizes(&self) -> (usize, [(&'static str, usize); 4]) {
        let tenants = self.all.values().map(|interface| interface.tenants.len()).sum();
        let idle = self.all.values().filter(|interface| interface.tenants.is_empty()).count();
        let under_way = [
            ("interfaces without a binding", idle),
            ("changes of interfaces", self.changes.len()),
            ("ADDs that wait for a change to end", self.adds.len()),
            ("CHECKs that wait for a change to end", self.checks.len()),
        ];
        (tenants, under_way)
    }

    fn in_netns(&self, cookie: Cookie) -> impl Iterator<Item = (&At, &Interface)> {
        self.all.range((cookie, 0)..=(cookie, u32::MAX))
    }

    fn forget_idle(&mut self, at: At) {
        if self.all.get(&at).is_some_and(|interface| interface.tenants.is_empty() && interface.change.is_none()) {
            self.all.remove(&at);
        }
    }
}
