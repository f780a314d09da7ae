//! All bindings, with what must agree with them: who holds which identity and address.
//!
//! A binding changes only in [`Index::with`], after which all of it agrees again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::binding::{Binding, Common, Holders, Life};
use crate::identity::{Attachment, IdentityKey, Lan};
use crate::link::LinkView;
use crate::record::BindingId;
use crate::time::Instant;

/// The bindings.
#[derive(Debug, Default)]
pub(super) struct Index {
    /// Boxed: the nodes of a map are half empty.
    bindings: BTreeMap<BindingId, Box<Binding>>,
    /// The last id that was given.
    last: u64,
    /// Who holds which identity, and which address (invariant 4).
    holders: Holders,
    /// The bindings that hold the attachments' leases.
    attachments: BTreeMap<Arc<Attachment>, BindingId>,
    /// Bindings whose deadline may have changed during the current input.
    touched: BTreeSet<BindingId>,
}

impl Index {
    /// Issues only ids above this one.
    pub(super) fn begin_after(&mut self, last: BindingId) {
        self.last = self.last.max(last.0);
    }

    pub(super) fn mint(&mut self) -> BindingId {
        self.last += 1;
        BindingId(self.last)
    }

    pub(super) fn latest(&self) -> BindingId {
        BindingId(self.last)
    }

    pub(super) fn get(&self, id: BindingId) -> Option<&Binding> {
        self.bindings.get(&id).map(|binding| &**binding)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Binding> {
        self.bindings.values().map(|binding| &**binding)
    }

    pub(super) fn note_host(&mut self, lan: &Lan, view: &LinkView) {
        self.holders.note_host(lan, view);
    }

    pub(super) fn holders(&self) -> &Holders {
        &self.holders
    }

    /// Returns the attachments that hold a lease, or look for another, each with its binding.
    pub(super) fn attachments(&self) -> impl Iterator<Item = (&Arc<Attachment>, BindingId)> {
        self.attachments.iter().map(|(known, id)| (known, *id))
    }

    pub(super) fn holder(&self, attachment: &Attachment) -> Option<BindingId> {
        self.attachments.get(attachment).copied()
    }

    /// Returns the binding that holds an attachment's lease, or looks for another.
    pub(super) fn held_by(&self, attachment: &Attachment) -> Option<&Binding> {
        self.get(self.holder(attachment)?)
    }

    pub(super) fn hold(&mut self, attachment: Arc<Attachment>, id: BindingId) {
        self.attachments.insert(attachment, id);
    }

    pub(super) fn vacate(&mut self, attachment: &Attachment, id: BindingId) {
        if self.holder(attachment) == Some(id) {
            self.attachments.remove(attachment);
        }
    }

    /// Adds a binding.
    pub(super) fn insert(&mut self, binding: Binding, now: Instant) {
        let id = binding.id;
        self.holders.note(&binding, now);
        self.bindings.insert(id, Box::new(binding));
        self.touched.insert(id);
    }

    /// Removes a binding.
    pub(super) fn remove(&mut self, id: BindingId) -> Option<Binding> {
        let binding = self.bindings.remove(&id)?;
        self.holders.remove(&binding);
        self.touched.insert(id);
        Some(*binding)
    }

    /// Has a binding handle something, if it exists, and records the result.
    pub(super) fn with(
        &mut self,
        id: BindingId,
        now: Instant,
        f: impl FnOnce(&mut Common, &mut Life, &Holders),
    ) {
        let Some(binding) = self.bindings.get_mut(&id) else {
            return;
        };
        f(&mut binding.common, &mut binding.life, &self.holders);
        self.holders.note(binding, now);
        self.touched.insert(id);
    }

    /// Returns the next identity whose live holder went, or got its address, during the current input.
    pub(super) fn next_stirred(&mut self) -> Option<IdentityKey> {
        self.holders.next_stirred()
    }

    /// Returns, for the next binding that got its address during the current input, those of its LAN that are leaving with the same
    /// address.
    pub(super) fn next_settled(&mut self) -> Option<Vec<BindingId>> {
        let id = self.holders.next_settled()?;
        let lan = self.bindings.get(&id).map(|binding| &binding.identity.lan);
        Some(
            lan.map(|lan| self.holders.leaving_beside(lan, id))
                .unwrap_or_default(),
        )
    }

    /// Returns the bindings whose deadline may have changed since this was last asked.
    pub(super) fn take_touched(&mut self) -> BTreeSet<BindingId> {
        std::mem::take(&mut self.touched)
    }
}
