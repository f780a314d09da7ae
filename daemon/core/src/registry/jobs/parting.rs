//! A DEL of a network with local ranges: the store first, then its own files.

use std::collections::BTreeSet;
use std::net::IpAddr;

use super::range::FILES;
use super::{Job, Next};
use crate::effect::{Answer, Outcome, RequestId};
use crate::identity::Attachment;
use crate::outbox::Waiter;
use crate::registry::Registry;
use crate::time::Now;

/// A DEL under way.
#[derive(Debug)]
pub(in crate::registry) struct Parting {
    attachment: Attachment,
    /// The files that are being removed.
    files: BTreeSet<IpAddr>,
}

impl Parting {
    /// Goes on when the store has forgotten it, and when a file is gone: the next daemon would take a leftover file for somebody
    /// else's.
    pub(super) fn done(
        mut self,
        core: &mut Registry,
        now: Now,
        id: RequestId,
        outcome: Outcome,
    ) -> Next {
        match outcome {
            // A full store does not keep a container from being removed: at its next start the daemon finds the namespace gone.
            Outcome::Persisted(result) => {
                self.files = core.range_ended(now, &self.attachment, result.is_ok(), Some(id));
                core.time_call(id, now.boot + FILES);
            }
            Outcome::Filed { address, .. } => _ = self.files.remove(&address),
            _ => return Next::Waits(Job::Parting(self)),
        }
        if self.files.is_empty() {
            Next::Answers(Answer::Deleted)
        } else {
            Next::Waits(Job::Parting(self))
        }
    }

    /// The files follow.
    pub(super) fn time_out(self) -> Next {
        Next::Answers(Answer::Deleted)
    }

    /// It goes on.
    pub(super) fn hang_up(self) -> Next {
        Next::Waits(Job::Parting(self))
    }
}

impl Registry {
    /// Begins a DEL of an attachment that has addresses from local ranges.
    pub(super) fn del_from_ranges(
        &mut self,
        now: Now,
        id: RequestId,
        attachment: Attachment,
    ) -> Next {
        self.cancel_ranging(now, |add| *add == attachment);
        self.remove_files(&attachment);
        if !self.ranges.leaves(&attachment) {
            return Next::Answers(Answer::Deleted);
        }
        let changes = self.end_of_range(now, &attachment, "DEL");
        self.out.write_for(Waiter::Call(id), changes);
        Next::Waits(Job::Parting(Parting {
            attachment,
            files: BTreeSet::new(),
        }))
    }
}
