//! What an attachment can be doing: one operation at a time (invariant 2).
//!
//! Values only. What an ADD does next is in `admission` and `add`, what a CHECK does in `check`.

use super::admission::Admission;
use super::check::Check;
use crate::effect::{OpId, RequestId};
use crate::record::BindingId;

/// What an attachment is doing.
#[derive(Debug)]
pub(super) enum Operation {
    /// An ADD whose link is being made ready.
    Adding(Box<Admission>),
    /// An ADD whose binding is acquiring.
    Acquiring(RequestId, BindingId),
    /// A binding gives back what it has, after a DEL or an abandoned ADD.
    Leaving(BindingId),
    /// A CHECK that looks at the link.
    Checking(Check),
}

impl Operation {
    /// Returns the look at a link that is under way for it.
    pub(super) fn op(&self) -> Option<OpId> {
        match self {
            Self::Adding(admission) => admission.op(),
            Self::Checking(check) => Some(check.look),
            Self::Acquiring(..) | Self::Leaving(_) => None,
        }
    }
}
