//! A call that waits for a Docker endpoint to be there, or to be gone.

use std::time::Duration;

use super::{DockerJob, Next};
use crate::docker::Desk;
use crate::effect::{Answer, Failure, RequestId};
use crate::identity::DoorId;
use crate::time::Now;

/// A call that waits for an endpoint.
#[derive(Debug)]
pub(in crate::docker) struct EndpointCall {
    endpoint: DoorId,
    /// How long it may wait.
    limit: Duration,
}

impl EndpointCall {
    pub(in crate::docker) fn begin(
        desk: &mut Desk<'_>,
        now: Now,
        id: RequestId,
        endpoint: &DoorId,
        limit: Duration,
    ) {
        desk.time_call(id, now.boot + limit);
        desk.call_goes_on(
            id,
            Next::Waits(DockerJob::Endpoint(Self {
                endpoint: endpoint.clone(),
                limit,
            })),
        );
    }

    pub(super) fn time_out(self, desk: &mut Desk<'_>, now: Now, id: RequestId) -> Next {
        let failure = Failure::TimedOut("the store and the kernel", self.limit);
        self.hang_up(desk, now, id);
        Next::Answers(Answer::Failed(failure))
    }

    /// Ends the endpoint if nobody else waits for it.
    pub(super) fn hang_up(self, desk: &mut Desk<'_>, now: Now, id: RequestId) -> Next {
        desk.await_endpoint_no_more(now, id, &self.endpoint);
        Next::Nothing
    }
}
