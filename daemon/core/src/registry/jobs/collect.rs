//! GC: a runtime names the attachments of a network that are still valid, and the rest is given back.

use std::collections::BTreeSet;

use super::{Caller, Job, Next};
use crate::binding::Release;
use crate::effect::{Answer, Failure, RequestId};
use crate::identity::Attachment;
use crate::job::LIMIT;
use crate::registry::Registry;
use crate::time::Now;

/// A GC under way.
#[derive(Debug, Default)]
pub(in crate::registry) struct Collection {
    left: BTreeSet<Attachment>,
    faults: Vec<String>,
}

impl Collection {
    /// Begins a GC.
    pub(super) fn begin(
        core: &mut Registry,
        now: Now,
        id: RequestId,
        network: &str,
        keep: &[(String, String)],
    ) -> Next {
        let stale = |attachment: &Attachment| {
            let Attachment::Cni {
                network: theirs,
                container,
                ifname,
            } = attachment
            else {
                return false;
            };
            theirs == network && !keep.iter().any(|(c, i)| c == container && i == ifname)
        };
        let bindings = core.tables.bindings.iter();
        let of_stale = bindings.filter(|binding| stale(&binding.attachment));
        for id in of_stale.map(|binding| binding.id).collect::<Vec<_>>() {
            core.tables.with(now, id, |binding, cx| {
                binding.gives_back(cx, Release::end_grace)
            });
        }
        let holds = core.tables.bindings.attachments().map(|(known, _)| known);
        let does = core.slots.iter().map(|(known, _)| known);
        let known = holds.chain(does).map(|known| &**known);
        let left: BTreeSet<_> = known.filter(|known| stale(known)).cloned().collect();
        core.adoptions
            .forget_all(&mut core.tables, &mut core.jobs, stale);
        if left.is_empty() {
            return Next::Answers(Answer::Collected);
        }
        tracing::info!(
            network,
            attachments = left.len(),
            "giving back what a GC does not name"
        );
        let collection = Collection {
            left: left.clone(),
            faults: Vec::new(),
        };
        core.call_goes_on(id, Next::Waits(Job::Collect(collection)));
        core.time_call(id, now.boot + LIMIT);
        for attachment in left {
            let errand = core.jobs.errand(Caller::Collection(id), attachment.clone());
            core.delete(now, attachment, errand);
        }
        Next::Nothing
    }

    /// Handles the end of a GC's DEL.
    pub(in crate::registry) fn go_on(
        core: &mut Registry,
        id: RequestId,
        attachment: &Attachment,
        answer: Answer,
    ) {
        let Some(Job::Collect(mut collection)) = core.jobs.by_id.remove(&id) else {
            return;
        };
        let next = match collection.is_last(attachment, answer) {
            true => collection.end(),
            false => Next::Waits(Job::Collect(collection)),
        };
        core.call_goes_on(id, next);
    }

    /// Records that a DEL is over. Returns whether it was the last.
    fn is_last(&mut self, attachment: &Attachment, answer: Answer) -> bool {
        if let Answer::Failed(failure) = answer {
            self.faults.push(format!("{attachment}: {failure}"));
        }
        self.left.remove(attachment);
        self.left.is_empty()
    }

    pub(super) fn time_out(mut self) -> Next {
        self.faults.extend(
            self.left
                .iter()
                .map(|attachment| format!("{attachment}: not done yet")),
        );
        self.end()
    }

    fn end(self) -> Next {
        Next::Answers(match self.faults.is_empty() {
            true => Answer::Collected,
            false => Answer::Failed(Failure::NotCollected(self.faults)),
        })
    }
}
