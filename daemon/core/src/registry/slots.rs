//! Attachments: what each holds, what it is doing, and who waits for that to end.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use ipnet::{IpNet, Ipv4Net};

use super::operation::Operation;
use crate::effect::{Add, RequestId};
use crate::identity::Attachment;
use crate::record::BindingId;
use crate::time::Instant;

/// All attachments that hold or do something.
#[derive(Debug, Default)]
pub(super) struct Slots(BTreeMap<Arc<Attachment>, Slot>);

/// One attachment.
#[derive(Debug, Default)]
pub(super) struct Slot {
    /// The binding that holds its lease.
    pub(super) holder: Option<BindingId>,
    pub(super) operation: Option<Operation>,
    pub(super) waiting: VecDeque<Waiting>,
    /// Waiting calls are being begun, one after the other.
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
    /// A CHECK, with the addresses that the caller believes in.
    Check(Vec<IpNet>),
}

impl Slots {
    /// Returns how many attachments there are.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn contains(&self, attachment: &Attachment) -> bool {
        self.0.contains_key(attachment)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&Arc<Attachment>, &Slot)> {
        self.0.iter()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (&Arc<Attachment>, &mut Slot)> {
        self.0.iter_mut()
    }

    pub(super) fn get(&self, attachment: &Attachment) -> Option<&Slot> {
        self.0.get(attachment)
    }

    pub(super) fn get_mut(&mut self, attachment: &Attachment) -> Option<&mut Slot> {
        self.0.get_mut(attachment)
    }

    /// Returns the slot of an attachment, which is made if there is none.
    pub(super) fn make(&mut self, attachment: Arc<Attachment>) -> &mut Slot {
        self.0.entry(attachment).or_default()
    }

    /// Returns an attachment as shared with its slot, if it has one.
    pub(super) fn shared(&self, attachment: &Attachment) -> Arc<Attachment> {
        let known = self.0.get_key_value(attachment).map(|(known, _)| known.clone());
        known.unwrap_or_else(|| Arc::new(attachment.clone()))
    }

    /// Returns the binding that holds an attachment's lease.
    pub(super) fn holder(&self, attachment: &Attachment) -> Option<BindingId> {
        self.get(attachment)?.holder
    }

    /// Returns what an attachment is doing.
    pub(super) fn operation(&self, attachment: &Attachment) -> Option<&Operation> {
        self.get(attachment)?.operation.as_ref()
    }

    /// Records that a binding holds nothing for its attachment any more.
    pub(super) fn vacate(&mut self, attachment: &Attachment, id: BindingId) {
        if let Some(slot) = self.get_mut(attachment) {
            slot.holder.take_if(|holder| *holder == id);
        }
    }

    /// Forgets an attachment that holds and does nothing. One that stays keeps no room for calls: usually none comes as long
    /// as its container lives.
    pub(super) fn forget_idle(&mut self, attachment: &Attachment) {
        let Some(slot) = self.get_mut(attachment) else { return };
        if slot.operation.is_none() && slot.holder.is_none() {
            self.0.remove(attachment);
        } else if slot.waiting.is_empty() {
            slot.waiting = VecDeque::new();
        }
    }
}
