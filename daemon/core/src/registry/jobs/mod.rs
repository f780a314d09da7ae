//! The calls that are not answered yet, each as a job: what happens to a call is decided here.
//!
//! Each kind of call has a type of its own. It says what to do when one of its effects is done, at its time-out, and when its
//! caller hangs up. Meanwhile the job is out of the table; what it returns puts it back, answers the call, or does neither.

mod attached;
mod collect;
mod leave;
mod release;
mod renew;
mod show;
mod status;

use std::collections::BTreeMap;

pub(super) use self::attached::Attached;
pub(super) use self::attached::Caller;
use self::collect::collect;
pub(crate) use self::leave::leave;
pub(super) use self::leave::{Leavings, begin_leaving, left, left_inside};
pub(super) use self::release::Returning;
pub(super) use self::renew::Renewal;
use self::show::Showing;
use self::status::StatusCheck;
use super::Registry;
use super::orders::chosen;
use crate::effect::{Answer, Call, Obeyed, Order, Outcome, RequestId, Row, Upshot, Verb};
use crate::identity::Attachment;
use crate::job;

/// A call that is not answered yet.
#[derive(Debug)]
pub(super) enum Job {
    /// An ADD, a DEL or a CHECK, or a lease that is given back by its address.
    Attached(Attached),
    /// A STATUS.
    Status(StatusCheck),
    /// A lease that an operator looks at.
    Showing(Showing),
    /// Leases that an operator extends.
    Renewal(Renewal),
    /// Leases that an operator or a GC gives back.
    Returning(Returning),
}

impl Job {
    /// Begins a call.
    pub(super) fn begin(core: &mut Registry, id: RequestId, call: Call) -> Next {
        match call {
            Call::Add(add) => {
                core.jobs.attach(id, Caller::Door, add.attachment.clone());
                core.add(id, add);
                Next::Nothing
            }
            Call::Del { attachment, grace } => {
                core.jobs.attach(id, Caller::Door, attachment.clone());
                core.del(id, attachment, grace);
                Next::Nothing
            }
            Call::Check {
                attachment,
                expected,
            } => {
                core.jobs.attach(id, Caller::Door, attachment.clone());
                core.check(id, &attachment, expected);
                Next::Nothing
            }
            Call::Collect { network, keep } => collect(core, id, &network, &keep),
            Call::Status { parent } => StatusCheck::begin(core, id, parent),
            Call::Ready => StatusCheck::begin(core, id, None),
            Call::Show(which) => Showing::begin(core, id, &which),
            Call::Order(order) => obey(core, id, &order),
            Call::Ranges => Next::Answers(Answer::Ranges(core.fallbacks.rows(&core.tables))),
            // They are answered above.
            Call::List | Call::Pool(_) | Call::Network(_) => Next::Nothing,
        }
    }

    /// Goes on with a call after one of its effects is done.
    pub(super) fn done(self, outcome: Outcome) -> Next {
        match self {
            Self::Status(job) => job.done(outcome),
            Self::Showing(job) => job.done(outcome),
            Self::Attached(_) | Self::Renewal(_) | Self::Returning(_) => Next::Waits(self),
        }
    }

    /// Ends a call that has waited for as long as it may.
    pub(super) fn time_out(self, core: &mut Registry, id: RequestId) -> Next {
        match self {
            Self::Attached(job) => job.time_out(core, id),
            Self::Status(job) => job.time_out(),
            Self::Showing(job) => job.time_out(),
            Self::Renewal(job) => job.time_out(core),
            Self::Returning(job) => job.time_out(),
        }
    }

    /// Drops a call whose caller hung up.
    pub(super) fn hang_up(self, core: &mut Registry, id: RequestId) {
        match self {
            Self::Attached(job) => job.hang_up(core, id),
            // What they have begun goes on.
            Self::Renewal(_) | Self::Returning(_) | Self::Showing(_) | Self::Status(_) => {}
        }
    }
}

/// Begins an order. A name that matches several leases selects none of them.
fn obey(core: &mut Registry, id: RequestId, order: &Order) -> Next {
    let chosen = chosen(core, &order.which);
    if order.which.name.is_some() && chosen.len() > 1 {
        let of = |(_, row): (_, Row)| Obeyed::of(&row, Upshot::Ambiguous);
        return Next::Answers(Answer::Obeyed(chosen.into_iter().map(of).collect()));
    }
    match order.verb {
        Verb::Renew => Renewal::begin(core, id, chosen),
        Verb::Release { force } => Returning::begin(core, id, chosen, force),
    }
}

/// What happens to a call next.
pub(super) type Next = job::Next<Job>;

/// The calls that are not answered yet.
#[derive(Debug, Default)]
pub(super) struct Jobs {
    pub(super) by_id: BTreeMap<RequestId, Job>,
    /// How many calls the core has made itself.
    errands: u64,
    /// Whether an operator may wait for leases to be extended: spares a look at all calls for each input.
    may_renew: bool,
}

/// The ids of the core's own calls begin here. The shell never issues that many.
const FIRST_ERRAND: u64 = 1 << 63;

impl Jobs {
    /// Adds a call about an attachment.
    pub(super) fn attach(&mut self, id: RequestId, by: Caller, attachment: Attachment) {
        self.by_id
            .insert(id, Job::Attached(Attached { attachment, by }));
    }

    /// Adds a call about an attachment that the core makes itself, and returns its id.
    pub(super) fn errand(&mut self, by: Caller, attachment: Attachment) -> RequestId {
        let id = RequestId(FIRST_ERRAND + self.errands);
        self.errands += 1;
        self.attach(id, by, attachment);
        id
    }

    pub(super) fn caller(&self, id: RequestId) -> Option<&Caller> {
        match self.by_id.get(&id)? {
            Job::Attached(job) => Some(&job.by),
            _ => None,
        }
    }
}

/// Answers an order that waits for nothing any more.
fn obeyed(mut done: Vec<Obeyed>) -> Next {
    done.sort_by(|a, b| a.attachment.cmp(&b.attachment));
    Next::Answers(Answer::Obeyed(done))
}
