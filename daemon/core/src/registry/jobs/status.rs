//! STATUS: could an ADD be served now? Writes to the store, looks at the network's host link, and opens a socket. Readiness, for
//! monitors: could an ADD be recorded? Only writes to the store.

use std::time::Duration;

use super::{Job, Next};
use crate::effect::{Answer, ExchangeId, Failure, Outcome, RequestId};
use crate::link::{Hears, Link, LinkCause, Sockets, Target};
use crate::outbox::{Owner, Waiter};
use crate::registry::Registry;
use crate::wire::Mac;

/// How long the looks may take.
const LIMIT: Duration = Duration::from_secs(10);

/// The loopback link's index in every namespace.
const LOOPBACK: u32 = 1;

/// A STATUS under way.
#[derive(Debug)]
pub(in crate::registry) struct StatusCheck {
    left: usize,
    sockets: Option<ExchangeId>,
    faults: Vec<String>,
}

impl StatusCheck {
    /// Begins a STATUS.
    pub(super) fn begin(core: &mut Registry, id: RequestId, parent: Option<String>) -> Next {
        core.tables.out.write_for(Waiter::Call(id), Vec::new());
        let link = Link::parent(LOOPBACK, Mac::default());
        let want = Sockets::new(Mac::default(), Hears::Answers);
        let (_, sockets) = core.tables.out.open(Owner::Call(id), link, want);
        let parents = usize::from(parent.is_some());
        if let Some(ifname) = parent {
            core.tables
                .out
                .inspect(Waiter::Call(id), Target::Host { ifname });
        }
        core.time_call(id, core.tables.now.boot + LIMIT);
        Next::Waits(Job::Status(Self {
            left: 2 + parents,
            sockets: Some(sockets),
            faults: Vec::new(),
        }))
    }

    /// Begins the question for readiness.
    pub(super) fn ready(core: &mut Registry, id: RequestId) -> Next {
        core.tables.out.write_for(Waiter::Call(id), Vec::new());
        core.time_call(id, core.tables.now.boot + LIMIT);
        Next::Waits(Job::Status(Self {
            left: 1,
            sockets: None,
            faults: Vec::new(),
        }))
    }

    pub(super) fn done(mut self, core: &mut Registry, outcome: Outcome) -> Next {
        self.faults.extend(fault(outcome));
        self.left -= 1;
        match self.left {
            0 => self.end(core),
            _ => Next::Waits(Job::Status(self)),
        }
    }

    pub(super) fn time_out(mut self, core: &mut Registry) -> Next {
        self.faults.push(format!(
            "the store or the kernel did not answer within {} s",
            LIMIT.as_secs()
        ));
        self.end(core)
    }

    /// Closes its sockets.
    pub(super) fn close(&self, core: &mut Registry) {
        self.sockets
            .into_iter()
            .for_each(|sockets| core.tables.out.close(sockets));
    }

    fn end(mut self, core: &mut Registry) -> Next {
        self.close(core);
        // They come in any order, but the same faults should read the same.
        self.faults.sort();
        Next::Answers(match self.faults.as_slice() {
            [] => Answer::Ready,
            faults => Answer::Failed(Failure::NotReady(faults.join("; "))),
        })
    }
}

/// Returns why no ADD could be served, by the outcome of a look.
fn fault(outcome: Outcome) -> Option<String> {
    match outcome {
        Outcome::Persisted(Err(cause)) => Some(cause.to_string()),
        // A socket was made; whether its link is down does not matter here.
        Outcome::Opened(Err(LinkCause::Down)) => None,
        Outcome::Opened(Err(cause)) => Some(format!("no packet sockets: {cause}")),
        Outcome::Inspected(Err(cause)) => Some(format!("the network's parent link: {cause}")),
        _ => None,
    }
}
