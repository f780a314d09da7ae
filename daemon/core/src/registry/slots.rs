//! What each attachment is doing, and who waits for that to end.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use ipnet::IpNet;

use super::admission::Admission;
use super::operation::Operation;
use crate::effect::{Add, RequestId};
use crate::identity::Attachment;
use crate::time::Instant;

/// All attachments that do something. Most hold a lease and do nothing.
#[derive(Debug, Default)]
pub(super) struct Slots {
    pub(super) by_attachment: BTreeMap<Arc<Attachment>, Slot>,
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
    /// An ADD.
    Add(Box<Add>),
    /// A DEL.
    Del,
    /// A CHECK, with the addresses that the caller expects.
    Check(Vec<IpNet>),
}

impl Slots {
    /// Returns the slot of an attachment, which is made if there is none.
    pub(super) fn make(&mut self, attachment: &Attachment) -> &mut Slot {
        let attachment = self.shared(attachment);
        self.by_attachment.entry(attachment).or_default()
    }

    /// Returns the copy of an attachment that its slot has, or a new one.
    pub(super) fn shared(&self, attachment: &Attachment) -> Arc<Attachment> {
        let known = self.by_attachment.get_key_value(attachment);
        known.map_or_else(|| Arc::new(attachment.clone()), |(known, _)| known.clone())
    }

    pub(super) fn operation(&self, attachment: &Attachment) -> Option<&Operation> {
        self.by_attachment.get(attachment)?.operation.as_ref()
    }

    pub(super) fn operation_mut(&mut self, attachment: &Attachment) -> Option<&mut Operation> {
        self.by_attachment.get_mut(attachment)?.operation.as_mut()
    }

    /// Returns the ADD of an attachment that has no binding yet.
    pub(super) fn admission(&mut self, attachment: &Attachment) -> Option<&mut Admission> {
        match self.operation_mut(attachment)? {
            Operation::Adding(admission) => Some(admission),
            _ => None,
        }
    }

    /// Returns all ADDs that have no binding yet.
    pub(super) fn admissions(&mut self) -> impl Iterator<Item = &mut Admission> {
        self.by_attachment
            .values_mut()
            .filter_map(|slot| match &mut slot.operation {
                Some(Operation::Adding(admission)) => Some(&mut **admission),
                _ => None,
            })
    }

    /// Returns whether an attachment's interface is being cleared for an ADD that replaces its binding.
    pub(super) fn is_being_cleared(&self, attachment: &Attachment) -> bool {
        let operation = self.operation(attachment);
        matches!(operation, Some(Operation::Adding(admission)) if admission.cleared)
    }

    /// Forgets what an attachment does, if that is nothing.
    pub(super) fn forget_idle(&mut self, attachment: &Attachment) {
        let slot = self.by_attachment.get(attachment);
        if slot.is_some_and(|slot| slot.operation.is_none() && slot.waiting.is_empty()) {
            self.by_attachment.remove(attachment);
        }
    }
}
