//! Attachments: what each holds, what it is doing, and who waits for that to end.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use ipnet::{IpNet, Ipv4Net};

use super::operation::Operation;
use crate::effect::{Add, RequestId};
use crate::identity::Attachment;
use crate::record::BindingId;
use crate::time::Instant;

/// All attachments that hold or do something. Most hold a lease and do nothing.
#[derive(Debug, Default)]
pub(super) struct Slots {
    /// The bindings that hold the attachments' leases.
    holders: BTreeMap<Arc<Attachment>, BindingId>,
    busy: BTreeMap<Arc<Attachment>, Slot>,
}

/// What one attachment is doing.
#[derive(Debug, Default)]
pub(super) struct Slot {
    pub(super) operation: Option<Operation>,
    pub(super) waiting: VecDeque<Waiting>,
    /// Whether waiting calls are being begun, one after the other.
    pub(super) beginning: bool,
}

/// A call that waits for the operation before it.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) id: RequestId,
    pub(super) asked: Asked,
    pub(super) since: Instant,
}

/// What is asked of an attachment.
#[derive(Debug)]
pub(super) enum Asked {
    /// An ADD, with the address of a running container whose adoption it ended.
    Add(Box<Add>, Option<Ipv4Net>),
    /// A DEL.
    Del,
    /// A CHECK, with the addresses that the caller expects.
    Check(Vec<IpNet>),
}

impl Slots {
    /// Returns how many attachments there are.
    pub(super) fn len(&self) -> usize {
        self.holders.len()
            + self
                .busy
                .keys()
                .filter(|attachment| !self.holders.contains_key(*attachment))
                .count()
    }

    pub(super) fn contains(&self, attachment: &Attachment) -> bool {
        self.holders.contains_key(attachment) || self.busy.contains_key(attachment)
    }

    /// Returns the attachments that hold something or are busy; those that are both come twice.
    pub(super) fn attachments(&self) -> impl Iterator<Item = &Arc<Attachment>> {
        self.holders.keys().chain(self.busy.keys())
    }

    pub(super) fn holders(&self) -> impl Iterator<Item = (&Arc<Attachment>, BindingId)> {
        self.holders
            .iter()
            .map(|(attachment, id)| (attachment, *id))
    }

    pub(super) fn busy(&self) -> impl Iterator<Item = (&Arc<Attachment>, &Slot)> {
        self.busy.iter()
    }

    pub(super) fn busy_mut(&mut self) -> impl Iterator<Item = (&Arc<Attachment>, &mut Slot)> {
        self.busy.iter_mut()
    }

    pub(super) fn get(&self, attachment: &Attachment) -> Option<&Slot> {
        self.busy.get(attachment)
    }

    pub(super) fn get_mut(&mut self, attachment: &Attachment) -> Option<&mut Slot> {
        self.busy.get_mut(attachment)
    }

    /// Returns the slot of an attachment, which is made if there is none.
    pub(super) fn make(&mut self, attachment: &Attachment) -> &mut Slot {
        let attachment = self.shared(attachment);
        self.busy.entry(attachment).or_default()
    }

    /// Returns an attachment as shared with those that are known, if it is one of them.
    pub(super) fn shared(&self, attachment: &Attachment) -> Arc<Attachment> {
        let holds = self.holders.get_key_value(attachment);
        let holds = holds.map(|(known, _)| known);
        let known = holds.or_else(|| self.busy.get_key_value(attachment).map(|(known, _)| known));
        known
            .cloned()
            .unwrap_or_else(|| Arc::new(attachment.clone()))
    }

    pub(super) fn holder(&self, attachment: &Attachment) -> Option<BindingId> {
        self.holders.get(attachment).copied()
    }

    pub(super) fn operation(&self, attachment: &Attachment) -> Option<&Operation> {
        self.get(attachment)?.operation.as_ref()
    }

    pub(super) fn hold(&mut self, attachment: Arc<Attachment>, id: BindingId) {
        self.holders.insert(attachment, id);
    }

    pub(super) fn vacate(&mut self, attachment: &Attachment, id: BindingId) {
        if self.holder(attachment) == Some(id) {
            self.holders.remove(attachment);
        }
    }

    /// Forgets what an attachment does, if that is nothing.
    pub(super) fn forget_idle(&mut self, attachment: &Attachment) {
        if self
            .get(attachment)
            .is_some_and(|slot| slot.operation.is_none() && slot.waiting.is_empty())
        {
            self.busy.remove(attachment);
        }
    }
}
