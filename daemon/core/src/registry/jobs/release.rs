//! An operator gives leases back. That is a DEL for each, which first takes the address off the interface of a living
//! container: the runtime does not know, and leaves the interface there.

use std::collections::BTreeMap;

use ipnet::IpNet;

use super::{Caller, Job, Next, obeyed};
use crate::binding::Release;
use crate::effect::{Answer, Failure, Obeyed, RequestId, Row, Upshot};
use crate::identity::Attachment;
use crate::job::LIMIT;
use crate::record::BindingId;
use crate::registry::Registry;
use crate::time::Now;

/// Leases that are being given back.
#[derive(Debug, Default)]
pub(in crate::registry) struct Returning {
    /// Those that are not being given back yet.
    left: BTreeMap<Attachment, Option<IpNet>>,
    done: Vec<Obeyed>,
}

impl Returning {
    /// Gives leases back; those of living containers only with `force`.
    pub(super) fn begin(
        core: &mut Registry,
        now: Now,
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
                    core.tables.with(now, of, |binding, cx| {
                        binding.gives_back(cx, Release::end_grace)
                    });
                    Upshot::Leaves
                }
                Some(binding) if !binding.is_live() => Upshot::Leaves,
                _ => Upshot::Nothing(row.state),
            };
            job.done.push(Obeyed::of(&row, upshot));
        }
        let left: Vec<_> = job.left.keys().cloned().collect();
        if left.is_empty() {
            return job.goes_on();
        }
        tracing::info!(
            leases = left.len(),
            "an operator gives back leases of containers that live"
        );
        // The DELs may be over at once.
        core.call_goes_on(id, Next::Waits(Job::Returning(job)));
        core.time_call(id, now.boot + LIMIT);
        for attachment in left {
            let errand = core.jobs.errand(Caller::Operator(id), attachment.clone());
            core.delete(now, attachment, errand);
        }
        Next::Nothing
    }

    /// Handles the end of a DEL of an operator's release.
    pub(in crate::registry) fn go_on(
        core: &mut Registry,
        id: RequestId,
        attachment: &Attachment,
        answer: Answer,
    ) {
        let Some(Job::Returning(mut job)) = core.jobs.by_id.remove(&id) else {
            return;
        };
        job.over(
            attachment,
            if let Answer::Failed(failure) = answer {
                Upshot::Failed(failure)
            } else {
                Upshot::Leaves
            },
        );
        core.call_goes_on(id, job.goes_on());
    }

    fn over(&mut self, attachment: &Attachment, upshot: Upshot) {
        if let Some(address) = self.left.remove(attachment) {
            self.done.push(Obeyed {
                attachment: attachment.clone(),
                address,
                upshot,
            });
        }
    }

    fn goes_on(self) -> Next {
        if self.left.is_empty() {
            obeyed(self.done)
        } else {
            Next::Waits(Job::Returning(self))
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
