//! STATUS: could an ADD be served now? The store is written to, the network's host link looked at, a socket opened.

use std::time::Duration;

use super::Registry;
use super::timers::Key;
use crate::effect::{Answer, ExchangeId, Failure, Outcome, RequestId, Why};
use crate::link::{Hears, Link, LinkCause, Sockets, Target};
use crate::outbox::Waiter;
use crate::time::Now;
use crate::wire::Mac;

/// How long the looks may take.
const LIMIT: Duration = Duration::from_secs(10);

/// The loopback link's index in every namespace.
const LOOPBACK: u32 = 1;

/// A STATUS under way.
#[derive(Debug)]
pub(super) struct StatusCheck {
    left: usize,
    sockets: ExchangeId,
    faults: Vec<String>,
}

impl Registry {
    pub(super) fn status(&mut self, now: Now, id: RequestId, parent: Option<String>) {
        self.out.try_store(id);
        let link = Link::parent(LOOPBACK, Mac::default());
        let want = Sockets { chaddr: Mac::default(), arp: Hears::Answers, hold_port: None };
        let (_, sockets) = self.out.open_for(Waiter::Status(id), link, want);
        let parents = usize::from(parent.is_some());
        if let Some(ifname) = parent {
            self.out.inspect(Waiter::Status(id), Target::Host { ifname });
        }
        self.status.insert(id, StatusCheck { left: 2 + parents, sockets, faults: Vec::new() });
        self.timers.set(Key::Call(id), Some((now.boot + LIMIT, Why::Call)));
    }

    pub(super) fn status_seen(&mut self, id: RequestId, outcome: Outcome) {
        let fault = match outcome {
            Outcome::Persisted(Err(cause)) => Some(cause.to_string()),
            // A socket was made; that its link is down is another matter.
            Outcome::Opened(Err(LinkCause::Down)) => None,
            Outcome::Opened(Err(cause)) => Some(format!("no packet sockets: {cause}")),
            Outcome::Inspected(Err(cause)) => Some(format!("the network's parent link: {cause}")),
            Outcome::Persisted(Ok(()))
            | Outcome::Opened(Ok(()))
            | Outcome::Sent(_)
            | Outcome::Inspected(Ok(_))
            | Outcome::Applied { .. }
            | Outcome::Prepared { .. }
            | Outcome::Surveyed(_)
            | Outcome::Sought(_)
            | Outcome::Closed
            | Outcome::Made(_)
            | Outcome::Unmade(_)
            | Outcome::OwnLinks(_) => None,
        };
        let Some(check) = self.status.get_mut(&id) else { return };
        check.faults.extend(fault);
        check.left -= 1;
        if check.left == 0 {
            self.end_status(id);
        }
    }

    pub(super) fn status_timed_out(&mut self, id: RequestId) {
        if let Some(check) = self.status.get_mut(&id) {
            check.faults.push(format!("the store or the kernel did not answer within {} s", LIMIT.as_secs()));
            self.end_status(id);
        }
    }

    /// Drops a STATUS whose caller went away; false when it is none.
    pub(super) fn forget_status(&mut self, id: RequestId) -> bool {
        let check = self.status.remove(&id);
        check.as_ref().into_iter().for_each(|check| self.out.close(check.sockets));
        check.is_some()
    }

    fn end_status(&mut self, id: RequestId) {
        self.timers.set(Key::Call(id), None);
        let Some(mut check) = self.status.remove(&id) else { return };
        self.out.close(check.sockets);
        // They came in any order; the same ones are to read the same.
        check.faults.sort();
        let answer = match check.faults.as_slice() {
            [] => Answer::Ready,
            faults => Answer::Failed(Failure::NotReady(faults.join("; "))),
        };
        self.out.reply(id, answer);
    }
}
