//! Leases that an operator or a GC gives back. That is a DEL for each. An operator's first takes the address off the
//! interface of a living container: the runtime does not know, and leaves the interface there.

use std::collections::BTreeMap;

use ipnet::IpNet;

use super::{Caller, Job, Next, obeyed};
use crate::binding::Release;
use crate::effect::{Answer, Failure, Obeyed, RequestId, Row, Upshot};
use crate::identity::Attachment;
use crate::job::LIMIT;
use crate::record::BindingId;
use crate::registry::Registry;

/// Leases that are being given back.
#[derive(Debug, Default)]
pub(in crate::registry) struct Returning {
    /// Those that are not being given back yet, each with its address.
    pub(super) left: BTreeMap<Attachment, Option<IpNet>>,
    pub(super) done: Vec<Obeyed>,
    /// Whether a GC gives them back, and not an operator.
    pub(super) collects: bool,
}

impl Returning {
    /// Gives leases back for an operator; those of living containers only with `force`.
    pub(super) fn begin(
        core: &mut Registry,
        id: RequestId,
        leases: Vec<(BindingId, Row)>,
        force: bool,
    ) -> Next {
        let mut job = Self::default();
        for (of, row) in leases {
            let upshot = match core.tables.bindings.get(of) {
                Some(binding)
                    if binding.is_held()
                        && force
                        && core.tables.bindings.holder(&row.attachment) == Some(of) =>
                {
                    let address = row.addresses().next();
                    job.left.insert(row.attachment, address);
                    continue;
                }
                Some(binding) if binding.is_held() => Upshot::Lives {
                    interface: !binding.is_on_host(),
                },
                Some(_) if row.kept.is_some() => {
                    core.tables.at_release(of, Release::end_grace);
                    Upshot::Leaves
                }
                Some(binding) if !binding.is_live() => Upshot::Leaves,
                _ => Upshot::Nothing(row.state),
            };
            job.done.push(Obeyed::of(&row, upshot));
        }
        if !job.left.is_empty() {
            let leases = job.left.len();
            tracing::info!(
                leases,
                "an operator gives back leases of containers that live"
            );
        }
        job.delete(core, id)
    }

    /// Begins the DELs, and waits for them.
    pub(super) fn delete(self, core: &mut Registry, id: RequestId) -> Next {
        let left: Vec<_> = self.left.keys().cloned().collect();
        if left.is_empty() {
            return self.goes_on();
        }
        let by = match self.collects {
            true => Caller::Collection(id),
            false => Caller::Operator(id),
        };
        // The DELs may be over at once.
        core.call_goes_on(id, Next::Waits(Job::Returning(self)));
        core.time_call(id, core.tables.now.boot + LIMIT);
        for attachment in left {
            let errand = core.jobs.errand(by, attachment.clone());
            core.delete(attachment, errand);
        }
        Next::Nothing
    }

    /// Handles the end of a DEL.
    pub(in crate::registry) fn go_on(
        core: &mut Registry,
        id: RequestId,
        attachment: &Attachment,
        answer: Answer,
    ) {
        let Some(Job::Returning(mut job)) = core.jobs.by_id.remove(&id) else {
            return;
        };
        let upshot = match answer {
            Answer::Failed(failure) => Upshot::Failed(failure),
            _ => Upshot::Leaves,
        };
        job.over(attachment, upshot);
        core.call_goes_on(id, job.goes_on());
    }

    fn over(&mut self, attachment: &Attachment, upshot: Upshot) {
        if let Some((attachment, address)) = self.left.remove_entry(attachment) {
            self.done.push(Obeyed::new(attachment, address, upshot));
        }
    }

    fn goes_on(self) -> Next {
        match self.collects {
            _ if !self.left.is_empty() => Next::Waits(Job::Returning(self)),
            true => Next::Answers(collected(self.done)),
            false => obeyed(self.done),
        }
    }

    pub(super) fn time_out(mut self) -> Next {
        let waiting_for = "the interface to be cleared, and the store to record it";
        let failure = Failure::TimedOut(waiting_for, LIMIT);
        let left: Vec<_> = self.left.keys().cloned().collect();
        left.iter()
            .for_each(|attachment| self.over(attachment, Upshot::Failed(failure.clone())));
        self.goes_on()
    }
}

/// Answers a GC whose DELs are over.
fn collected(mut done: Vec<Obeyed>) -> Answer {
    done.sort_by(|a, b| a.attachment.cmp(&b.attachment));
    let fault = |of: Obeyed| match of.upshot {
        Upshot::Failed(failure) => Some(format!("{}: {failure}", of.attachment)),
        _ => None,
    };
    let faults: Vec<_> = done.into_iter().filter_map(fault).collect();
    match faults.is_empty() {
        true => Answer::Collected,
        false => Answer::Failed(Failure::NotCollected(faults)),
    }
}
