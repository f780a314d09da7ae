//! An operator extends leases now. Each asks in turn, like those that are due at the same moment.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::{Job, Next, obeyed};
use crate::binding::Hold;
use crate::effect::{Obeyed, RequestId, Row, Upshot};
use crate::identity::Attachment;
use crate::record::BindingId;
use crate::registry::Registry;
use crate::registry::fallback::is_of_range;
use crate::registry::pacing::Extensions;
use crate::source::{Client, Lease, RECENT, StateName};
use crate::time::Instant;

/// How long the last lease has after its turn. Within 28 s a client has made its last try and listened for the answer.
const LIMIT: Duration = Duration::from_secs(30);

/// Leases that are being extended.
#[derive(Debug, Default)]
pub(in crate::registry) struct Renewal {
    /// Those that are not extended yet: whose, and when their previous lease began.
    left: BTreeMap<BindingId, (Attachment, Instant)>,
    done: Vec<Obeyed>,
}

impl Renewal {
    /// Has leases extended.
    pub(super) fn begin(core: &mut Registry, id: RequestId, leases: Vec<(BindingId, Row)>) -> Next {
        let now = core.tables.now;
        let mut job = Self::default();
        for (of, row) in leases {
            let binding = core.tables.bindings.get(of);
            if binding.is_some_and(|binding| is_of_range(binding, now.boot)) {
                job.done.push(Obeyed::of(&row, Upshot::Local));
                continue;
            }
            let binding = binding.filter(|binding| binding.is_held());
            let start = binding.and_then(|binding| Some(binding.lease(now.boot)?.start));
            let upshot = match start.map(|start| (start, now.boot.saturating_since(start))) {
                None => Upshot::Nothing(row.state),
                Some((_, age)) if age < RECENT => Upshot::Fresh(age),
                // Nobody would hear it.
                Some(_)
                    if row
                        .link
                        .as_ref()
                        .is_some_and(|link| !core.tables.interfaces.has_carrier(link)) =>
                {
                    Upshot::Unanswered(Some("its interface has no carrier".to_owned()))
                }
                Some((start, _)) => {
                    job.left.insert(of, (row.attachment, start));
                    continue;
                }
            };
            job.done.push(Obeyed::of(&row, upshot));
        }
        let asked: Vec<_> = job.left.keys().copied().collect();
        core.jobs.may_renew = true;
        tracing::info!(leases = asked.len(), "an operator has leases extended");
        core.time_call(id, now.boot + LIMIT + Extensions::longest(asked.len()));
        for of in asked {
            core.tables
                .with(of, |life, cx| life.holds(cx, Hold::renew_early));
        }
        job.goes_on()
    }

    /// Tells operators which leases have advanced during the current input.
    pub(in crate::registry) fn go_on(core: &mut Registry, touched: &BTreeSet<BindingId>) {
        if !core.jobs.may_renew {
            return;
        }
        let jobs = core.jobs.by_id.iter();
        let waiting = jobs.filter(|(_, job)| matches!(job, Job::Renewal(_)));
        let waiting: Vec<_> = waiting.map(|(id, _)| *id).collect();
        core.jobs.may_renew = !waiting.is_empty();
        for id in waiting {
            let Some(Job::Renewal(mut job)) = core.jobs.by_id.remove(&id) else {
                continue;
            };
            touched.iter().for_each(|of| job.judge(core, *of));
            core.call_goes_on(id, job.goes_on());
        }
    }

    /// Decides what became of a lease, if that is known by now.
    fn judge(&mut self, core: &Registry, id: BindingId) {
        let now = core.tables.now;
        let Some((_, start)) = self.left.get(&id) else {
            return;
        };
        let upshot = match held(core, id) {
            None => Upshot::Lost,
            Some((client, held)) if held.start <= *start => match client.state() {
                StateName::Bound => Upshot::Unanswered(client.tally().reason()),
                _ => return,
            },
            Some(_) => match leased(core, id).filter(|lease| lease.start > *start) {
                Some(lease) => {
                    let ends = lease.expires().map(|at| at.saturating_since(now.boot));
                    Upshot::Extended {
                        server: lease.server.into(),
                        ends,
                    }
                }
                // It is not reported before the store has it.
                None => return,
            },
        };
        self.over(core, id, upshot);
    }

    fn over(&mut self, core: &Registry, id: BindingId, upshot: Upshot) {
        let address = leased(core, id).map(|lease| lease.address.into());
        let left = self.left.remove(&id);
        let over = left.map(|(attachment, _)| Obeyed::new(attachment, address, upshot));
        self.done.extend(over);
    }

    fn goes_on(self) -> Next {
        if self.left.is_empty() {
            obeyed(self.done)
        } else {
            Next::Waits(Job::Renewal(self))
        }
    }

    /// Reports the leases that no server has extended, which keep asking, and those whose extension the store has not recorded.
    pub(super) fn time_out(mut self, core: &Registry) -> Next {
        let left: Vec<_> = self.left.iter().map(|(id, (_, at))| (*id, *at)).collect();
        for (id, start) in left {
            let upshot = match held(core, id) {
                Some((_, held)) if held.start > start => Upshot::Unrecorded,
                held => Upshot::Unanswered(held.and_then(|(client, _)| client.tally().reason())),
            };
            self.over(core, id, upshot);
        }
        self.goes_on()
    }
}

/// Returns the lease of a binding, whether or not it is held.
fn leased(core: &Registry, id: BindingId) -> Option<&Lease> {
    core.tables.bindings.get(id)?.lease(core.tables.now.boot)
}

/// Returns the client of a binding that is held, with its lease.
fn held(core: &Registry, id: BindingId) -> Option<(&Client, &Lease)> {
    let binding = core.tables.bindings.get(id)?;
    let client = binding.client().filter(|_| binding.is_held())?;
    Some((client, client.lease()?))
}
