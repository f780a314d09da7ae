//! What happens to a call that may have to wait: the same for the registry's calls and for those above it.

use std::collections::BTreeMap;

use crate::effect::{Answer, RequestId};

/// What happens to a call next; it waits as a `J`.
#[derive(Debug)]
pub(crate) enum Next<J> {
    /// It waits, for this.
    Waits(J),
    /// It is answered.
    Answers(Answer),
    /// Nothing more happens here: no caller listens, or the call waits elsewhere.
    Nothing,
}

impl<J> Next<J> {
    /// Puts a call that waits into the table. Returns the answer of a call that is over.
    pub(crate) fn settle(
        self,
        id: RequestId,
        waiting: &mut BTreeMap<RequestId, J>,
    ) -> Option<Answer> {
        match self {
            Self::Waits(job) => {
                waiting.insert(id, job);
                None
            }
            Self::Answers(answer) => Some(answer),
            Self::Nothing => None,
        }
    }
}
