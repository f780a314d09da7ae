//! What happens to a call that may have to wait: the same for the registry's calls and for those above it.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::effect::{Answer, RequestId};

/// How long a call may wait for the store and the kernel. dockerd and kubelets give up after 30 s or more; what the call began goes
/// on.
pub(crate) const LIMIT: Duration = Duration::from_secs(20);

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
