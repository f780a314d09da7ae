//! A change of a Docker pool, or of its reservations, that waits for the store.

use std::net::Ipv4Addr;

use super::{DockerJob, Next};
use crate::docker::Desk;
use crate::effect::{Answer, Failure, Outcome, RequestId};
use crate::job::LIMIT;
use crate::outbox::DoorWaiter;
use crate::pool::PoolId;
use crate::record::Change;
use crate::time::Now;

/// A call that waits for the store.
#[derive(Debug)]
pub(in crate::docker) struct PoolChange {
    answer: Answer,
    undo: Undo,
}

/// What is undone if the store fails, or the caller hangs up.
#[derive(Debug)]
pub(in crate::docker) enum Undo {
    /// Nothing.
    Nothing,
    /// The pool was not known.
    Pool(PoolId),
    /// The address was not reserved.
    Reserved(PoolId, Ipv4Addr),
}

impl PoolChange {
    /// Answers when the store has taken these changes.
    pub(in crate::docker) fn begin(
        desk: &mut Desk<'_>,
        now: Now,
        id: RequestId,
        changes: Vec<Change>,
        (answer, undo): (Answer, Undo),
    ) -> Next {
        desk.write(DoorWaiter::Call(id), changes);
        desk.time_call(id, now.boot + LIMIT);
        Next::Waits(DockerJob::Pool(Self { answer, undo }))
    }

    pub(super) fn done(self, desk: &mut Desk<'_>, now: Now, outcome: Outcome) -> Next {
        match outcome {
            Outcome::Persisted(Err(cause)) => {
                self.undo.carry_out(desk, now);
                Next::Answers(Answer::Failed(Failure::Store(cause)))
            }
            _ => Next::Answers(self.answer),
        }
    }

    pub(super) fn time_out(self, desk: &mut Desk<'_>, now: Now) -> Next {
        self.undo.carry_out(desk, now);
        let failure = Failure::TimedOut {
            waiting_for: "the store to record it",
            waited: LIMIT,
        };
        Next::Answers(Answer::Failed(failure))
    }

    pub(super) fn hang_up(self, desk: &mut Desk<'_>, now: Now) -> Next {
        self.undo.carry_out(desk, now);
        Next::Nothing
    }
}

impl Undo {
    fn carry_out(self, desk: &mut Desk<'_>, now: Now) {
        match self {
            Self::Nothing => {}
            Self::Pool(pool) => desk.forget_pool(&pool),
            Self::Reserved(pool, address) => {
                let change = desk.unreserve(now, &pool, address);
                change
                    .into_iter()
                    .for_each(|change| desk.registry.out.write_alone(change));
            }
        }
    }
}
