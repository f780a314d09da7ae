//! All bindings, with what is known of each elsewhere: who holds which identity and address, and who lives in which namespace.
//!
//! A binding changes only in [`Index::with`], after which all of it agrees again.

use std::collections::{BTreeMap, BTreeSet};

use crate::binding::{Binding, ByNetns, Holders};
use crate::identity::IdentityKey;
use crate::link::Cookie;
use crate::record::BindingId;
use crate::time::Instant;
use crate::wire::Mac;

/// The bindings.
#[derive(Debug, Default)]
pub(super) struct Index {
    /// Boxed: the nodes of a map are half empty.
    bindings: BTreeMap<BindingId, Box<Binding>>,
    /// The last id that was given.
    last: u64,
    /// Who holds which identity, and which address (invariant 4).
    holders: Holders,
    by_netns: ByNetns,
    /// Bindings whose deadline may have changed during the input at hand.
    touched: BTreeSet<BindingId>,
}

impl Index {
    /// Makes no id that is not above this one.
    pub(super) fn begin_after(&mut self, last: BindingId) {
        self.last = self.last.max(last.0);
    }

    /// Returns an id that no binding has had.
    pub(super) fn mint(&mut self) -> BindingId {
        self.last += 1;
        BindingId(self.last)
    }

    pub(super) fn get(&self, id: BindingId) -> Option<&Binding> {
        self.bindings.get(&id).map(|binding| &**binding)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Binding> {
        self.bindings.values().map(|binding| &**binding)
    }

    pub(super) fn holders(&self) -> &Holders {
        &self.holders
    }

    pub(super) fn by_netns(&self) -> &ByNetns {
        &self.by_netns
    }

    /// Adds a binding.
    pub(super) fn insert(&mut self, binding: Binding, now: Instant) {
        let id = binding.id;
        self.holders.note(&binding, now);
        if let Some((cookie, mac)) = place(&binding) {
            self.by_netns.insert((cookie, id), mac);
        }
        self.bindings.insert(id, Box::new(binding));
        self.touched.insert(id);
    }

    /// Removes a binding.
    pub(super) fn remove(&mut self, id: BindingId) -> Option<Binding> {
        let binding = self.bindings.remove(&id)?;
        self.holders.remove(&binding);
        if let Some((cookie, _)) = place(&binding) {
            self.by_netns.remove(&(cookie, id));
        }
        self.touched.insert(id);
        Some(*binding)
    }

    /// Lets a binding handle something, if there is such a one, and takes in what that made of it.
    pub(super) fn with(&mut self, id: BindingId, now: Instant, f: impl FnOnce(&mut Binding, &Holders, &ByNetns)) {
        let Some(binding) = self.bindings.get_mut(&id) else { return };
        let before = place(binding);
        f(binding, &self.holders, &self.by_netns);
        self.holders.note(binding, now);
        let after = place(binding);
        if before != after {
            before.into_iter().for_each(|(cookie, _)| _ = self.by_netns.remove(&(cookie, id)));
            after.into_iter().for_each(|(cookie, mac)| _ = self.by_netns.insert((cookie, id), mac));
        }
        self.touched.insert(id);
    }

    /// Returns the next identity whose live holder went, or came to its address, during the input at hand.
    pub(super) fn next_stirred(&mut self) -> Option<IdentityKey> {
        self.holders.next_stirred()
    }

    /// Returns, for the next binding that came to its address during the input at hand, those of its LAN that leave beside it.
    pub(super) fn next_settled(&mut self) -> Option<Vec<BindingId>> {
        let id = self.holders.next_settled()?;
        let lan = self.bindings.get(&id).map(|binding| &binding.identity.lan);
        Some(lan.map(|lan| self.holders.leaving_beside(lan, id)).unwrap_or_default())
    }

    /// Returns the bindings whose deadline may have changed since this was last asked.
    pub(super) fn take_touched(&mut self) -> BTreeSet<BindingId> {
        std::mem::take(&mut self.touched)
    }

    /// Returns how many bindings there are, how many places in namespaces, and how many bindings were touched.
    pub(super) fn sizes(&self) -> [usize; 3] {
        [self.bindings.len(), self.by_netns.len(), self.touched.len()]
    }
}

/// Returns the namespace that a binding lives in, with the Ethernet address of its interface.
fn place(binding: &Binding) -> Option<(Cookie, Mac)> {
    binding.link.in_netns().map(|(cookie, _)| (cookie, binding.link.mac()))
}
