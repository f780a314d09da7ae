//! The calls that are not answered yet, each as a job: what becomes of one is read here.
//!
//! A job is what one kind of call waits for. It says what it does when an effect of its own is over, at its time-out, and when
//! its caller hangs up; for as long as it says that, it is not in the table.

mod collect;
mod endpoint;
mod leave;
mod look;
mod network;
mod pool;
mod status;

use std::collections::BTreeMap;

use self::collect::Collection;
pub(super) use self::endpoint::EndpointCall;
pub(super) use self::leave::Leaving;
pub(super) use self::look::Looking;
pub(super) use self::network::NetworkChange;
pub(super) use self::pool::{PoolChange, Undo};
use self::status::StatusCheck;
use super::Registry;
use super::timers::Key;
use crate::effect::{Answer, FrameMeta, NetworkAnswer, Outcome, RequestId, Why};
use crate::link::LinkCause;
use crate::network::NetworkFault;
use crate::time::{Instant, Now};

/// A call that is not answered yet.
#[derive(Debug)]
pub(super) enum Job {
    /// A GC.
    Collect(Collection),
    /// A STATUS.
    Status(StatusCheck),
    /// A look at the LAN of a pool that is asked for.
    Look(Box<Looking>),
    /// A change of a pool.
    Pool(PoolChange),
    /// An address that Docker gives back.
    Leave(Leaving),
    /// A network that comes or goes.
    Network(NetworkChange),
    /// What waits for an endpoint.
    Endpoint(EndpointCall),
}

/// What becomes of a call.
#[derive(Debug)]
pub(super) enum Next {
    /// It waits, for this.
    Waits(Job),
    /// It is answered.
    Answers(Answer),
    /// Nothing more: nobody is to hear of it, or that is seen to already.
    Nothing,
}

/// The calls that are not answered yet.
#[derive(Debug, Default)]
pub(super) struct Jobs {
    by_id: BTreeMap<RequestId, Job>,
}

impl Jobs {
    /// Returns how many there are.
    pub(super) fn len(&self) -> usize {
        self.by_id.len()
    }

    /// Returns the networks that come or go.
    pub(super) fn networks(&self) -> impl Iterator<Item = &NetworkChange> {
        self.by_id.values().filter_map(|job| if let Job::Network(change) = job { Some(change) } else { None })
    }
}

impl From<Result<NetworkAnswer, NetworkFault>> for Next {
    fn from(result: Result<NetworkAnswer, NetworkFault>) -> Self {
        Self::Answers(result.into())
    }
}

impl Registry {
    /// Goes on with a call one of whose effects is over.
    pub(super) fn call_done(&mut self, now: Now, id: RequestId, outcome: Outcome) {
        let Some(job) = self.jobs.by_id.remove(&id) else { return };
        let next = match job {
            Job::Status(job) => job.done(self, outcome),
            Job::Look(job) => job.done(self, now, id, outcome),
            Job::Pool(job) => job.done(self, outcome),
            Job::Network(job) => job.done(self, now, id, outcome),
            Job::Collect(_) | Job::Leave(_) | Job::Endpoint(_) => Next::Waits(job),
        };
        self.call_goes_on(id, next);
    }

    /// A call has waited for as long as it may.
    pub(super) fn call_timed_out(&mut self, now: Now, id: RequestId) {
        self.timers.set(Key::Call(id), None);
        let next = match self.jobs.by_id.remove(&id) {
            Some(Job::Collect(job)) => job.time_out(),
            Some(Job::Status(job)) => job.time_out(self),
            Some(Job::Look(job)) => job.time_out(self, now, id),
            Some(Job::Pool(job)) => job.time_out(self),
            Some(Job::Leave(job)) => job.time_out(self, id),
            Some(Job::Network(job)) => job.time_out(self, id),
            Some(Job::Endpoint(job)) => job.time_out(self, now, id),
            None => return self.other_timed_out(now, id),
        };
        self.call_goes_on(id, next);
    }

    /// A caller went away.
    pub(super) fn hung_up(&mut self, now: Now, id: RequestId) {
        self.timers.set(Key::Call(id), None);
        let next = match self.jobs.by_id.remove(&id) {
            // Its DELs go on.
            Some(Job::Collect(_)) => Next::Nothing,
            Some(Job::Status(job)) => job.hang_up(self),
            Some(Job::Look(job)) => job.hang_up(self),
            Some(Job::Pool(job)) => job.hang_up(self),
            Some(Job::Leave(job)) => job.hang_up(self, id),
            Some(Job::Network(job)) => job.hang_up(self),
            Some(Job::Endpoint(job)) => job.hang_up(self, now, id),
            None => return self.other_hung_up(now, id),
        };
        self.call_goes_on(id, next);
    }

    /// A frame came in over a call's sockets.
    pub(super) fn call_hears(&mut self, now: Now, id: RequestId, frame: (&[u8], FrameMeta)) {
        self.at_look(id, |core, look| look.hears(core, now, id, frame));
    }

    /// A call's sockets failed.
    pub(super) fn call_broken(&mut self, now: Now, id: RequestId, cause: LinkCause) {
        self.at_look(id, |core, look| look.broken(core, now, id, cause));
    }

    /// The link did not take a call's message.
    pub(super) fn call_unsent(&mut self, id: RequestId, cause: &LinkCause) {
        self.at_look(id, |_, look| look.unsent(cause));
    }

    /// Lets a look at a LAN go on. No other call asks anything over its sockets.
    fn at_look(&mut self, id: RequestId, f: impl FnOnce(&mut Self, Looking) -> Next) {
        let next = match self.jobs.by_id.remove(&id) {
            Some(Job::Look(look)) => f(self, *look),
            Some(job) => Next::Waits(job),
            None => return,
        };
        self.call_goes_on(id, next);
    }

    /// Answers a call or has it wait.
    pub(super) fn call_goes_on(&mut self, id: RequestId, next: Next) {
        match next {
            Next::Waits(job) => _ = self.jobs.by_id.insert(id, job),
            Next::Answers(answer) => {
                self.timers.set(Key::Call(id), None);
                self.out.reply(id, answer);
            }
            Next::Nothing => {}
        }
    }

    /// Answers a call that waits, unless its caller hung up.
    pub(super) fn answer(&mut self, id: RequestId, answer: Answer) {
        if self.jobs.by_id.remove(&id).is_some() {
            self.call_goes_on(id, Next::Answers(answer));
        }
    }

    /// Sets until when a call may wait, or when its job next has something to do.
    pub(super) fn time_call(&mut self, id: RequestId, at: Instant) {
        self.timers.set(Key::Call(id), Some((at, Why::Call)));
    }
}
