//! A change of a pool of Docker's, or of what is reserved in it, that waits for the store.

use std::net::Ipv4Addr;
use std::time::Duration;

use super::{Job, Next};
use crate::effect::{Answer, Failure, Outcome, RequestId};
use crate::outbox::Waiter;
use crate::pool::PoolId;
use crate::record::Change;
use crate::registry::Registry;
use crate::time::Now;

/// How long a call about a pool may wait for the store.
pub(super) const LIMIT: Duration = Duration::from_secs(20);

/// A call that waits for the store.
#[derive(Debug)]
pub(in crate::registry) struct PoolChange {
    answer: Answer,
    undo: Undo,
}

/// What is undone where the store, or the caller, does not wait for the answer.
#[derive(Debug)]
pub(in crate::registry) enum Undo {
    /// Nothing.
    Nothing,
    /// The pool was not known.
    Pool(PoolId),
    /// The address was not reserved.
    Reserved(PoolId, Ipv4Addr),
}

impl PoolChange {
    /// Answers when the store has taken these changes.
    pub(in crate::registry) fn begin(
        core: &mut Registry,
        now: Now,
        id: RequestId,
        changes: Vec<Change>,
        (answer, undo): (Answer, Undo),
    ) -> Next {
        core.out.write_for(Waiter::Call(id), changes);
        core.time_call(id, now.boot + LIMIT);
        Next::Waits(Job::Pool(Self { answer, undo }))
    }

    pub(super) fn done(self, core: &mut Registry, outcome: Outcome) -> Next {
        match outcome {
            Outcome::Persisted(Err(cause)) => {
                self.undo.carry_out(core);
                Next::Answers(Answer::Failed(Failure::Store(cause)))
            }
            _ => Next::Answers(self.answer),
        }
    }

    pub(super) fn time_out(self, core: &mut Registry) -> Next {
        self.undo.carry_out(core);
        let failure = Failure::TimedOut { waiting_for: "the store to write it down", waited: LIMIT };
        Next::Answers(Answer::Failed(failure))
    }

    pub(super) fn hang_up(self, core: &mut Registry) -> Next {
        self.undo.carry_out(core);
        Next::Nothing
    }
}

impl Undo {
    fn carry_out(self, core: &mut Registry) {
        match self {
            Self::Nothing => {}
            Self::Pool(pool) => core.forget_pool(&pool),
            Self::Reserved(pool, address) => {
                let change = core.unreserve(&pool, address);
                change.into_iter().for_each(|change| core.out.write_alone(change));
            }
        }
    }
}
