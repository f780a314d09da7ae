//! STATUS: could an ADD be served now? Writes to the store, and looks at the network's host link. Readiness, for monitors: could
//! an ADD be recorded? Only writes to the store.

use std::time::Duration;

use super::{Job, Next};
use crate::effect::{Answer, Failure, Outcome, RequestId};
use crate::link::Target;
use crate::outbox::Waiter;
use crate::registry::Registry;

/// How long the looks may take.
const LIMIT: Duration = Duration::from_secs(10);

/// A STATUS under way.
#[derive(Debug)]
pub(in crate::registry) struct StatusCheck {
    left: usize,
    faults: Vec<String>,
}

impl StatusCheck {
    /// Begins a STATUS, or without a link the question for readiness.
    pub(super) fn begin(core: &mut Registry, id: RequestId, parent: Option<String>) -> Next {
        core.tables.out.write_for(Waiter::Call(id), Vec::new());
        let parents = usize::from(parent.is_some());
        if let Some(ifname) = parent {
            core.tables
                .out
                .inspect(Waiter::Call(id), Target::Host { ifname });
        }
        core.time_call(id, core.tables.now.boot + LIMIT);
        Next::Waits(Job::Status(Self {
            left: 1 + parents,
            faults: Vec::new(),
        }))
    }

    pub(super) fn done(mut self, outcome: Outcome) -> Next {
        self.faults.extend(fault(outcome));
        self.left -= 1;
        match self.left {
            0 => self.end(),
            _ => Next::Waits(Job::Status(self)),
        }
    }

    pub(super) fn time_out(mut self) -> Next {
        self.faults.push(format!(
            "the store or the kernel did not answer within {} s",
            LIMIT.as_secs()
        ));
        self.end()
    }

    fn end(mut self) -> Next {
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
        Outcome::Inspected(Err(cause)) => Some(format!("the network's parent link: {cause}")),
        _ => None,
    }
}
