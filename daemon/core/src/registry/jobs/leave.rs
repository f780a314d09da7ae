//! A lease that is given back by its address: the caller is answered when the store has recorded that.

use super::{Job, Next};
use crate::effect::{Answer, Failure, RequestId};
use crate::job::LIMIT;
use crate::record::BindingId;
use crate::registry::Registry;
use crate::time::Now;

/// A call that waits until it is durable that this binding gives its lease back.
#[derive(Debug)]
pub(in crate::registry) struct Leaving(BindingId);

impl Leaving {
    pub(in crate::registry) fn begin(
        core: &mut Registry,
        now: Now,
        id: RequestId,
        binding: BindingId,
    ) -> Next {
        core.time_call(id, now.boot + LIMIT);
        core.leave(now, binding, Some(id));
        Next::Waits(Job::Leave(Self(binding)))
    }

    pub(super) fn time_out(self, core: &mut Registry, id: RequestId) -> Next {
        self.hang_up(core, id);
        let failure = Failure::TimedOut("the store to record it", LIMIT);
        Next::Answers(Answer::Failed(failure))
    }

    pub(super) fn hang_up(self, core: &mut Registry, id: RequestId) -> Next {
        core.leavings.waits_no_more(self.0, id);
        Next::Nothing
    }
}
