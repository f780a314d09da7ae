//! Docker's calls that are not answered yet, each as a job, as in the registry: what happens to a call is decided here.

mod endpoint;
mod inquire;
mod network;
mod pool;

pub(super) use self::endpoint::EndpointCall;
pub(super) use self::inquire::LanInquiry;
pub(super) use self::network::NetworkChange;
pub(super) use self::pool::{PoolChange, Undo};
use super::Desk;
use crate::effect::{Answer, FrameMeta, NetworkAnswer, NetworkCall, Outcome, PoolCall, RequestId};
use crate::job;
use crate::link::LinkCause;
use crate::network::NetworkFault;
use crate::registry::DoorTimer;
use crate::time::Now;

/// A call that is not answered yet.
#[derive(Debug)]
pub(super) enum DockerJob {
    /// A look at the LAN of a pool that is asked for.
    Inquire(Box<LanInquiry>),
    /// A change of a pool.
    Pool(PoolChange),
    /// A network that is being created or deleted.
    Network(NetworkChange),
    /// A wait for an endpoint.
    Endpoint(EndpointCall),
}

/// What happens to a call next.
pub(super) type Next = job::Next<DockerJob>;

impl From<Result<NetworkAnswer, NetworkFault>> for Next {
    fn from(result: Result<NetworkAnswer, NetworkFault>) -> Self {
        Self::Answers(result.into())
    }
}

impl Desk<'_> {
    /// Begins a call about a pool.
    pub(crate) fn asked_of_pool(&mut self, now: Now, id: RequestId, call: PoolCall) {
        let next = match call {
            PoolCall::Request(request) => self.request_pool(now, id, request),
            PoolCall::Release { id: pool } => self.release_pool(&pool),
            PoolCall::Reserve { pool, address } => self.reserve(now, id, &pool, address),
            PoolCall::ReleaseAddress { pool, address } => {
                self.release_address(now, id, &pool, address)
            }
        };
        self.call_goes_on(id, next);
    }

    /// Begins a call about a network.
    pub(crate) fn asked_of_network(&mut self, now: Now, id: RequestId, call: NetworkCall) {
        let next = self.network_call(now, id, call);
        self.call_goes_on(id, next);
    }

    /// Goes on with a call after one of its effects is done.
    pub(super) fn call_done(&mut self, now: Now, id: RequestId, outcome: Outcome) {
        let Some(job) = self.docker.jobs.remove(&id) else {
            return;
        };
        let next = match job {
            DockerJob::Inquire(job) => job.done(self, now, id, outcome),
            DockerJob::Pool(job) => job.done(self, now, outcome),
            DockerJob::Network(job) => job.done(self, now, id, outcome),
            DockerJob::Endpoint(_) => Next::Waits(job),
        };
        self.call_goes_on(id, next);
    }

    /// Ends a call that has waited for as long as it may.
    pub(super) fn call_timed_out(&mut self, now: Now, id: RequestId) {
        self.registry.set_timer(DoorTimer::Call(id), None);
        let next = match self.docker.jobs.remove(&id) {
            Some(DockerJob::Inquire(job)) => job.time_out(self, now, id),
            Some(DockerJob::Pool(job)) => job.time_out(self, now),
            Some(DockerJob::Network(job)) => job.time_out(self, id),
            Some(DockerJob::Endpoint(job)) => job.time_out(self, now, id),
            None => return,
        };
        self.call_goes_on(id, next);
    }

    /// Drops a call whose caller hung up. Returns false if it is not known here.
    pub(crate) fn hung_up(&mut self, now: Now, id: RequestId) -> bool {
        self.registry.set_timer(DoorTimer::Call(id), None);
        let next = match self.docker.jobs.remove(&id) {
            Some(DockerJob::Inquire(job)) => job.hang_up(self),
            Some(DockerJob::Pool(job)) => job.hang_up(self, now),
            Some(DockerJob::Network(job)) => job.hang_up(self),
            Some(DockerJob::Endpoint(job)) => job.hang_up(self, now, id),
            // The answer may have left at the same moment. What Docker does not know then is kept.
            None => return false,
        };
        self.call_goes_on(id, next);
        true
    }

    /// Handles a frame that came in on a call's sockets.
    pub(crate) fn hears(&mut self, now: Now, id: RequestId, frame: (&[u8], FrameMeta)) {
        self.at_inquiry(id, |desk, inquiry| inquiry.hears(desk, now, id, frame));
    }

    /// Handles the failure of such sockets.
    pub(crate) fn broken(&mut self, now: Now, id: RequestId, cause: LinkCause) {
        self.at_inquiry(id, |desk, inquiry| inquiry.broken(desk, now, id, cause));
    }

    /// Records that the link of such sockets did not take a message.
    pub(crate) fn unsent(&mut self, id: RequestId, cause: &LinkCause) {
        self.at_inquiry(id, |_, inquiry| inquiry.unsent(cause));
    }

    /// Lets a look at a LAN go on. No other call uses sockets.
    fn at_inquiry(&mut self, id: RequestId, f: impl FnOnce(&mut Self, LanInquiry) -> Next) {
        if let Some(DockerJob::Inquire(look)) = self.docker.jobs.remove(&id) {
            let next = f(self, *look);
            self.call_goes_on(id, next);
        }
    }

    /// Answers a call or has it wait.
    pub(super) fn call_goes_on(&mut self, id: RequestId, next: Next) {
        if let Some(answer) = next.settle(id, &mut self.docker.jobs) {
            self.registry.set_timer(DoorTimer::Call(id), None);
            self.registry.out.reply(id, answer);
        }
    }

    /// Answers a call that waits, unless its caller hung up.
    pub(super) fn answer(&mut self, id: RequestId, answer: Answer) {
        if self.docker.jobs.remove(&id).is_some() {
            self.call_goes_on(id, Next::Answers(answer));
        }
    }
}
