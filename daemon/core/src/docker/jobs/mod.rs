//! Docker's calls that are not answered yet, each as a job, as in the registry: what happens to a call is decided here.

mod inquire;
mod network;
mod pool;

use std::time::Duration;

use self::inquire::LanInquiry;
pub(super) use self::network::NetworkChange;
use self::pool::PoolChange;
use super::Desk;
use super::pools::{AGAIN, OFTEN};
use crate::effect::{
    Answer, Failure, FrameMeta, NetworkAnswer, NetworkCall, OpId, Outcome, PoolCall, PoolRequest,
    RequestId, Why,
};
use crate::identity::DoorId;
use crate::job;
use crate::link::LinkCause;
use crate::network::NetworkFault;
use crate::outbox::{DoorWaiter, Outbox, Waiter};
use crate::pool::{PoolFault, PoolId, PoolRecord, found};
use crate::record::Change;
use crate::registry::{DoorTimer, Key};
use crate::time::{Instant, Now};

/// A call that is not answered yet.
#[derive(Debug)]
pub(super) enum DockerJob {
    /// A look at the LAN of a pool that is asked for.
    Inquire(Box<LanInquiry>),
    /// A change of a pool.
    Pool(PoolChange),
    /// A network that is being created or deleted.
    Network(NetworkChange),
    /// A wait for an endpoint to be there, or to be gone, and how long it may take.
    Endpoint(DoorId, Duration),
}

/// What happens to a call next.
pub(super) type Next = job::Next<DockerJob>;

impl From<Result<NetworkAnswer, NetworkFault>> for Next {
    fn from(result: Result<NetworkAnswer, NetworkFault>) -> Self {
        Self::Answers(result.into())
    }
}

impl Desk<'_> {
    /// Handles the end of an effect.
    pub(crate) fn done(&mut self, waiter: DoorWaiter, outcome: Outcome) {
        match waiter {
            DoorWaiter::Call(id) => self.call_done(id, outcome),
            DoorWaiter::Endpoint(id) => self.endpoint_done(&id, outcome),
            DoorWaiter::OwnLinks => self.own_links(outcome),
            DoorWaiter::Nobody => {
                if let Outcome::Unmade(Err(cause)) = outcome {
                    tracing::warn!(%cause, "a link that was made for Docker is still there: trying again");
                    self.list_again();
                }
            }
        }
    }

    /// Goes on with somebody whose deadline has come.
    pub(crate) fn on_clock(&mut self, timer: DoorTimer) {
        match timer {
            DoorTimer::Call(id) => self.call_timed_out(id),
            DoorTimer::Strays => self.end_strays(),
            DoorTimer::OwnLinks => self.list_own_links(),
        }
    }

    /// Returns the pools, and the links in the host's namespace that daemons with another store made.
    pub(crate) fn list(&mut self) -> (Vec<PoolRecord>, Vec<String>) {
        (
            self.docker.pools.by_id.values().cloned().collect(),
            self.strangers(),
        )
    }

    pub(super) fn now(&self) -> Now {
        self.registry.tables.now
    }

    pub(super) fn out(&mut self) -> &mut Outbox {
        &mut self.registry.tables.out
    }

    /// Sets a deadline, or takes it away.
    pub(super) fn set_timer(&mut self, timer: DoorTimer, deadline: Option<(Instant, Why)>) {
        let timers = &mut self.registry.tables.timers;
        timers.set(Key::Above(timer), deadline);
    }

    pub(super) fn write(&mut self, waiter: DoorWaiter, changes: Vec<Change>) -> OpId {
        self.out().write_for(Waiter::Above(waiter), changes)
    }

    /// Makes the core ignore the outcomes of a call's effects.
    fn forget(&mut self, id: RequestId) {
        let own = Waiter::Above(DoorWaiter::Call(id));
        self.out().forget_all(|waiter| *waiter == own);
    }

    pub(super) fn time_call(&mut self, id: RequestId, at: Instant) {
        self.set_timer(DoorTimer::Call(id), Some((at, Why::Call)));
    }

    /// Begins a call about a pool.
    pub(crate) fn asked_of_pool(&mut self, id: RequestId, call: PoolCall) {
        let next = match call {
            PoolCall::Request(request) => self.request_pool(id, request),
            PoolCall::Release { id: pool } => pool::release_pool(self, &pool),
            PoolCall::Reserve { pool, address } => PoolChange::reserve(self, id, &pool, address),
            PoolCall::ReleaseAddress { pool, address } => {
                PoolChange::release(self, id, &pool, address)
            }
        };
        self.call_goes_on(id, next);
    }

    /// Handles RequestPool: a known pool is answered as before.
    fn request_pool(&mut self, id: RequestId, request: Box<PoolRequest>) -> Next {
        let PoolRequest {
            definition,
            subnet,
            range,
            ..
        } = &*request;
        let fail = |fault| Answer::Failed(Failure::Pool(fault));
        if let (Some(subnet), Some(range)) = (subnet, range)
            && !subnet.contains(range)
        {
            return Next::Answers(fail(PoolFault::RangeBeyond {
                range: *range,
                subnet: *subnet,
            }));
        }
        let asked = subnet.map(|subnet| PoolId::new(definition, subnet, *range));
        let known = match &asked {
            Some(pool) => self
                .docker
                .pools
                .by_id
                .get(pool)
                .or_else(|| self.docker.pools.found(pool)),
            None => self.docker.pools.automatic(definition),
        };
        if let Some(record) = known {
            let pool = record.id.clone();
            let gateway = record.gateway;
            let subnet = pool.subnet;
            let answer = match asked.is_none()
                && self.docker.pools.is_asked_too_often(&pool, self.now().boot)
            {
                true => fail(PoolFault::Overlaps {
                    subnet,
                    times: OFTEN,
                    within: AGAIN,
                }),
                false => Answer::Pool { id: pool, gateway },
            };
            return Next::Answers(answer);
        }
        if let (Some(subnet), Some(links)) = (*subnet, &request.unclear) {
            let links = links.clone();
            return Next::Answers(fail(PoolFault::NoParent { subnet, links }));
        }
        if let Some((parent, _)) = found(definition) {
            tracing::info!(%parent, ?subnet, "the one link with an address of the subnet is a network's parent: none was named");
        }
        LanInquiry::begin(self, id, request)
    }

    /// Begins a call about a network or an endpoint.
    pub(crate) fn asked_of_network(&mut self, id: RequestId, call: NetworkCall) {
        let next = match call {
            NetworkCall::Started => {
                self.abandon_strays();
                self.registry
                    .seeking
                    .wait_less_for_all(&mut self.registry.tables);
                Ok(NetworkAnswer::Done).into()
            }
            NetworkCall::Create(record) => NetworkChange::make(self, id, record),
            NetworkCall::Delete(network) => NetworkChange::forget(self, id, &network),
            NetworkCall::Find(network) => {
                let found = self.docker.networks.get(&network).cloned();
                found
                    .map(|record| NetworkAnswer::Found(Box::new(record)))
                    .into()
            }
            NetworkCall::CreateEndpoint(request) => self.create_endpoint(id, *request),
            NetworkCall::DeleteEndpoint(endpoint) => self.delete_endpoint(id, &endpoint),
            NetworkCall::Join {
                network,
                endpoint,
                sandbox,
            } => self.join(&network, &endpoint, &sandbox).into(),
        };
        self.call_goes_on(id, next);
    }

    /// Goes on with a call after one of its effects is done.
    fn call_done(&mut self, id: RequestId, outcome: Outcome) {
        let Some(job) = self.docker.jobs.remove(&id) else {
            return;
        };
        let next = match job {
            DockerJob::Inquire(job) => job.done(self, id, outcome),
            DockerJob::Pool(job) => job.done(self, outcome),
            DockerJob::Network(job) => job.done(self, id, outcome),
            DockerJob::Endpoint(..) => Next::Waits(job),
        };
        self.call_goes_on(id, next);
    }

    /// Ends a call that has waited for as long as it may.
    fn call_timed_out(&mut self, id: RequestId) {
        self.set_timer(DoorTimer::Call(id), None);
        let next = match self.docker.jobs.remove(&id) {
            Some(DockerJob::Inquire(job)) => job.time_out(self, id),
            Some(DockerJob::Pool(job)) => job.time_out(self),
            Some(DockerJob::Network(job)) => job.time_out(self, id),
            Some(DockerJob::Endpoint(name, limit)) => {
                self.await_endpoint_no_more(id, &name);
                let failure = Failure::TimedOut("the store and the kernel", limit);
                Next::Answers(Answer::Failed(failure))
            }
            None => return,
        };
        self.call_goes_on(id, next);
    }

    /// Drops a call whose caller hung up.
    pub(crate) fn hung_up(&mut self, id: RequestId) {
        self.set_timer(DoorTimer::Call(id), None);
        match self.docker.jobs.remove(&id) {
            Some(DockerJob::Inquire(job)) => job.hang_up(self, id),
            Some(DockerJob::Pool(job)) => job.hang_up(self),
            Some(DockerJob::Network(job)) => job.hang_up(self, id),
            Some(DockerJob::Endpoint(name, _)) => self.await_endpoint_no_more(id, &name),
            // The answer may have left at the same moment. What Docker does not know then is kept.
            None => {}
        }
    }

    /// Handles a frame that came in on a call's sockets.
    pub(crate) fn hears(&mut self, id: RequestId, frame: (&[u8], FrameMeta)) {
        self.at_inquiry(id, |desk, inquiry| inquiry.hears(desk, id, frame));
    }

    /// Handles the failure of such sockets.
    pub(crate) fn broken(&mut self, id: RequestId, cause: LinkCause) {
        self.at_inquiry(id, |desk, inquiry| inquiry.broken(desk, id, cause));
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
    fn call_goes_on(&mut self, id: RequestId, next: Next) {
        if let Some(answer) = next.settle(id, &mut self.docker.jobs) {
            self.set_timer(DoorTimer::Call(id), None);
            self.out().reply(id, answer);
        }
    }

    /// Answers a call that waits, unless its caller hung up.
    pub(super) fn answer(&mut self, id: RequestId, answer: Answer) {
        if self.docker.jobs.remove(&id).is_some() {
            self.call_goes_on(id, Next::Answers(answer));
        }
    }
}
