//! Docker at work: what is known about it, and the registry that leases for it.

use crate::effect::{OpId, Outcome, RequestId, Why};
use crate::link::Target;
use crate::outbox::{DoorWaiter, Waiter};
use crate::pool::PoolRecord;
use crate::record::Change;
use crate::registry::{DoorTimer, Registry};
use crate::time::{Instant, Now};

use super::Docker;

/// Docker and its registry.
pub(crate) struct Desk<'a> {
    pub(crate) docker: &'a mut Docker,
    pub(crate) registry: &'a mut Registry,
}

impl Desk<'_> {
    /// Handles the end of an effect.
    pub(crate) fn done(&mut self, now: Now, waiter: DoorWaiter, outcome: Outcome) {
        match waiter {
            DoorWaiter::Call(id) => self.call_done(now, id, outcome),
            DoorWaiter::Endpoint(id) => self.endpoint_done(now, &id, outcome),
            DoorWaiter::OwnLinks => self.own_links(now, outcome),
            DoorWaiter::Nobody => {
                if let Outcome::Unmade(Err(cause)) = outcome {
                    tracing::warn!(%cause, "a link that was made for Docker is still there: trying again");
                    self.list_again(now);
                }
            }
        }
    }

    /// Goes on with somebody whose deadline has come.
    pub(crate) fn on_clock(&mut self, now: Now, timer: DoorTimer) {
        match timer {
            DoorTimer::Call(id) => self.call_timed_out(now, id),
            DoorTimer::Strays => self.end_strays(now),
            DoorTimer::OwnLinks => self.list_own_links(),
        }
    }

    /// Returns the pools, and the links in the host's namespace that daemons with another store made.
    pub(crate) fn list(&mut self, now: Instant) -> (Vec<PoolRecord>, Vec<String>) {
        (
            self.docker.pools.iter().cloned().collect(),
            self.strangers(now),
        )
    }

    pub(super) fn write(&mut self, waiter: DoorWaiter, changes: Vec<Change>) -> OpId {
        self.registry.out.write_for(Waiter::Above(waiter), changes)
    }

    pub(super) fn inspect(&mut self, waiter: DoorWaiter, target: Target) -> OpId {
        self.registry.out.inspect(Waiter::Above(waiter), target)
    }

    pub(super) fn time_call(&mut self, id: RequestId, at: Instant) {
        self.registry
            .set_timer(DoorTimer::Call(id), Some((at, Why::Call)));
    }
}
