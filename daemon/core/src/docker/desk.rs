//! Docker at work: what is known about it, and the registry that leases for it.

use crate::effect::{Answer, ExchangeId, OpId, Outcome, RequestId, Why};
use crate::identity::DoorId;
use crate::link::own::{LinkOwner, OwnLink};
use crate::link::{Link, Sockets, Target};
use crate::outbox::{self, Owner};
use crate::pool::PoolRecord;
use crate::record::Change;
use crate::registry::Registry;
use crate::time::{Instant, Now};

use super::Docker;

/// Docker and its registry.
pub(crate) struct Desk<'a> {
    pub(crate) docker: &'a mut Docker,
    pub(crate) registry: &'a mut Registry,
}

/// Who hears an outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Waiter {
    /// A call's job.
    Call(RequestId),
    /// An endpoint.
    Endpoint(DoorId),
    /// The list of the links that were made for Docker.
    OwnLinks,
    /// Nobody. A link that stays is looked for again.
    Nobody,
}

/// Whose deadline it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Key {
    /// A call's.
    Call(RequestId),
    /// A link that was made for Docker has been in the host's namespace for too long.
    Strays,
    /// The links that were made for Docker are listed again, because that failed.
    OwnLinks,
}

impl Desk<'_> {
    /// An effect is over.
    pub(crate) fn done(&mut self, now: Now, op: OpId, outcome: Outcome) {
        match self.docker.waiters.remove(&op) {
            Some(Waiter::Call(id)) => self.call_done(now, id, outcome),
            Some(Waiter::Endpoint(id)) => self.endpoint_done(now, &id, outcome),
            Some(Waiter::OwnLinks) => self.own_links(now, outcome),
            Some(Waiter::Nobody) => {
                if let Outcome::Unmade(Err(cause)) = outcome {
                    tracing::warn!(%cause, "a link that was made for Docker is still there: trying again");
                    self.list_again(now);
                }
            }
            None => {}
        }
    }

    /// Goes on with somebody whose deadline has come.
    pub(crate) fn on_clock(&mut self, now: Now, key: Key) {
        match key {
            Key::Call(id) => self.call_timed_out(now, id),
            Key::Strays => self.end_strays(now),
            Key::OwnLinks => self.list_own_links(),
        }
    }

    /// Returns the pools, and the links in the host's namespace that daemons with another store made.
    pub(crate) fn list(&mut self, now: Instant) -> (Vec<PoolRecord>, Vec<String>) {
        (self.docker.pools.iter().cloned().collect(), self.strangers(now))
    }

    pub(super) fn write(&mut self, waiter: Waiter, changes: Vec<Change>) -> OpId {
        let op = self.registry.out.write_for(outbox::Waiter::Above, changes);
        self.waits(op, waiter)
    }

    pub(super) fn inspect(&mut self, waiter: Waiter, target: Target) -> OpId {
        let op = self.registry.out.inspect(outbox::Waiter::Above, target);
        self.waits(op, waiter)
    }

    pub(super) fn open(&mut self, waiter: Waiter, link: Link, want: Sockets) -> (OpId, ExchangeId) {
        let (op, exchange) = self.registry.out.open_for(Owner::Above, outbox::Waiter::Above, link, want);
        (self.waits(op, waiter), exchange)
    }

    pub(super) fn make(&mut self, waiter: Waiter, link: OwnLink) -> OpId {
        let op = self.registry.out.make(link);
        self.waits(op, waiter)
    }

    pub(super) fn unmake(&mut self, waiter: Waiter, owner: LinkOwner) -> OpId {
        let op = self.registry.out.unmake(owner);
        self.waits(op, waiter)
    }

    pub(super) fn list_own(&mut self) {
        let op = self.registry.out.list_own();
        self.waits(op, Waiter::OwnLinks);
    }

    fn waits(&mut self, op: OpId, waiter: Waiter) -> OpId {
        self.docker.waiters.insert(op, waiter);
        op
    }

    /// Has the outcome of an effect ignored.
    pub(super) fn ignore(&mut self, op: OpId) {
        self.registry.out.forget(op);
        self.docker.waiters.remove(&op);
    }

    /// Writes what nobody waits for. If that fails, the store holds its old value at the next start.
    pub(super) fn write_alone(&mut self, change: Change) {
        self.registry.out.write_alone(change);
    }

    pub(super) fn reply(&mut self, id: RequestId, answer: Answer) {
        self.registry.out.reply(id, answer);
    }

    /// Sets the time-out of a call.
    pub(super) fn time_call(&mut self, id: RequestId, at: Instant) {
        self.docker.timers.set(Key::Call(id), Some((at, Why::Call)));
    }
}
