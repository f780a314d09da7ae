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

use self::attached::Attached;
pub(super) use self::attached::Caller;
use self::collect::Collection;
pub(super) use self::leave::Leaving;
use self::release::Returning;
pub(super) use self::release::{begin_return, vacated};
pub(super) use self::renew::Renewal;
use self::show::Showing;
use self::status::StatusCheck;
use super::Registry;
use super::notice::Notice;
use super::orders::chosen;
use super::timers::Key;
use crate::effect::{Answer, Call, Obeyed, Order, Outcome, RequestId, Row, Upshot, Verb, Why};
use crate::identity::Attachment;
use crate::job;
use crate::record::BindingId;
use crate::time::{Instant, Now};

/// A call that is not answered yet.
#[derive(Debug)]
pub(super) enum Job {
    /// An ADD, a DEL or a CHECK.
    Attached(Attached),
    /// A GC.
    Collect(Collection),
    /// A STATUS.
    Status(StatusCheck),
    /// A lease that is given back by its address.
    Leave(Leaving),
    /// A lease that an operator looks at.
    Showing(Showing),
    /// Leases that an operator extends.
    Renewal(Renewal),
    /// Leases that an operator gives back.
    Returning(Returning),
}

/// What happens to a call next.
pub(super) type Next = job::Next<Job>;

/// The calls that are not answered yet.
#[derive(Debug, Default)]
pub(super) struct Jobs {
    by_id: BTreeMap<RequestId, Job>,
    /// How many calls the core has made itself.
    errands: u64,
    /// Whether an operator may wait for leases to be extended: spares a look at all calls for each input.
    may_renew: bool,
}

/// The ids of the core's own calls begin here. The shell never issues that many.
const FIRST_ERRAND: u64 = 1 << 63;

impl Jobs {
    pub(super) fn len(&self) -> usize {
        self.by_id.len()
    }

    /// Adds a call about an attachment.
    fn attach(&mut self, id: RequestId, by: Caller, attachment: Attachment) {
        self.by_id.insert(
            id,
            Job::Attached(Attached {
                attachment,
                by,
                withheld: None,
            }),
        );
    }

    /// Adds a call about an attachment that the core makes itself, and returns its id.
    pub(super) fn errand(&mut self, by: Caller, attachment: Attachment) -> RequestId {
        let id = RequestId(FIRST_ERRAND + self.errands);
        self.errands += 1;
        self.attach(id, by, attachment);
        id
    }

    pub(super) fn forget(&mut self, id: RequestId) {
        self.by_id.remove(&id);
    }

    fn attached(&self, id: RequestId) -> Option<&Attached> {
        self.by_id.get(&id).and_then(|job| {
            if let Job::Attached(job) = job {
                Some(job)
            } else {
                None
            }
        })
    }

    pub(super) fn attachment(&self, id: RequestId) -> Option<&Attachment> {
        self.attached(id).map(|job| &job.attachment)
    }

    pub(super) fn caller(&self, id: RequestId) -> Option<&Caller> {
        self.attached(id).map(|job| &job.by)
    }

    /// Withholds the answer to an ADD until the temporary link of its binding's exchange is gone.
    pub(super) fn withhold(&mut self, id: RequestId, binding: BindingId, answer: Answer) {
        if let Some(Job::Attached(job)) = self.by_id.get_mut(&id) {
            job.withheld = Some((binding, answer));
        }
    }

    /// Returns the answer that waits for a binding's temporary link to go, with the call.
    pub(super) fn take_withheld(&mut self, binding: BindingId) -> Option<(RequestId, Answer)> {
        self.by_id.iter_mut().find_map(|(id, job)| {
            let Job::Attached(job) = job else { return None };
            let (_, answer) = job.withheld.take_if(|(whose, _)| *whose == binding)?;
            Some((*id, answer))
        })
    }

    /// Returns the leases that operators extend.
    fn renewals(&mut self) -> impl Iterator<Item = (RequestId, &mut Renewal)> {
        self.by_id.iter_mut().filter_map(|(id, job)| {
            if let Job::Renewal(job) = job {
                Some((*id, job))
            } else {
                None
            }
        })
    }
}

/// Answers an order that waits for nothing any more.
fn obeyed(mut done: Vec<Obeyed>) -> Next {
    done.sort_by(|a, b| a.attachment.cmp(&b.attachment));
    Next::Answers(Answer::Obeyed(done))
}

impl Registry {
    /// Begins a call.
    pub(crate) fn request(&mut self, now: Now, id: RequestId, call: Call) {
        let next = match call {
            Call::Add(add) => {
                self.jobs.attach(id, Caller::Door, add.attachment.clone());
                self.add(now, id, add);
                Next::Nothing
            }
            Call::Del { attachment, grace } => {
                self.jobs.attach(id, Caller::Door, attachment.clone());
                self.del(now, id, attachment, grace);
                Next::Nothing
            }
            Call::Check {
                attachment,
                expected,
            } => {
                self.jobs.attach(id, Caller::Door, attachment.clone());
                self.check(now, id, &attachment, expected);
                Next::Nothing
            }
            Call::Collect { network, keep } => Collection::begin(self, now, id, &network, &keep),
            Call::Status { parent } => StatusCheck::begin(self, now, id, parent),
            Call::Ready => StatusCheck::ready(self, now, id),
            Call::Show(which) => Showing::begin(self, now, id, &which),
            Call::Order(order) => self.order(now, id, &order),
            Call::Ranges => Next::Answers(Answer::Ranges(self.fallbacks.rows(&self.tables, now))),
            // They are answered above.
            Call::List | Call::Pool(_) | Call::Network(_) => Next::Nothing,
        };
        self.call_goes_on(id, next);
    }

    /// Begins an order. A name that matches several leases selects none of them.
    fn order(&mut self, now: Now, id: RequestId, order: &Order) -> Next {
        let chosen = chosen(self, now, &order.which);
        if order.which.name.is_some() && chosen.len() > 1 {
            let of = |(_, row): (_, Row)| Obeyed::of(&row, Upshot::Ambiguous);
            return Next::Answers(Answer::Obeyed(chosen.into_iter().map(of).collect()));
        }
        match order.verb {
            Verb::Renew => Renewal::begin(self, now, id, chosen),
            Verb::Release { force } => Returning::begin(self, now, id, chosen, force),
        }
    }

    /// Goes on with a call after one of its effects is done.
    pub(super) fn call_done(&mut self, id: RequestId, outcome: Outcome) {
        let Some(job) = self.jobs.by_id.remove(&id) else {
            return;
        };
        let next = match job {
            Job::Status(job) => job.done(self, outcome),
            Job::Showing(job) => job.done(outcome),
            Job::Attached(_)
            | Job::Collect(_)
            | Job::Leave(_)
            | Job::Renewal(_)
            | Job::Returning(_) => Next::Waits(job),
        };
        self.call_goes_on(id, next);
    }

    /// Ends a call that has waited for as long as it may.
    pub(super) fn call_timed_out(&mut self, now: Now, id: RequestId) {
        self.tables.timers.set(Key::Call(id), None);
        let next = match self.jobs.by_id.remove(&id) {
            Some(Job::Attached(job)) => job.time_out(self, now, id),
            Some(Job::Collect(job)) => job.time_out(),
            Some(Job::Status(job)) => job.time_out(self),
            Some(Job::Leave(job)) => job.time_out(self, id),
            Some(Job::Showing(job)) => job.time_out(),
            Some(Job::Renewal(job)) => job.time_out(self, now),
            Some(Job::Returning(job)) => job.time_out(),
            None => return,
        };
        self.call_goes_on(id, next);
    }

    /// Drops a call whose caller hung up. Returns false if it is not known here.
    pub(crate) fn hung_up(&mut self, now: Now, id: RequestId) -> bool {
        self.tables.timers.set(Key::Call(id), None);
        let next = match self.jobs.by_id.remove(&id) {
            Some(Job::Attached(job)) => job.hang_up(self, now, id),
            // What they have begun goes on.
            Some(Job::Collect(_) | Job::Renewal(_) | Job::Returning(_) | Job::Showing(_)) => {
                Next::Nothing
            }
            Some(Job::Status(job)) => job.hang_up(self),
            Some(Job::Leave(job)) => job.hang_up(self, id),
            None => return false,
        };
        self.call_goes_on(id, next);
        true
    }

    /// Answers a call or has it wait.
    pub(super) fn call_goes_on(&mut self, id: RequestId, next: Next) {
        if let Some(answer) = next.settle(id, &mut self.jobs.by_id) {
            self.tables.timers.set(Key::Call(id), None);
            self.tables.out.reply(id, answer);
        }
    }

    /// Answers a call about an attachment, unless it was answered or its caller hung up.
    pub(super) fn reply(&mut self, now: Now, id: RequestId, answer: Answer) {
        self.tables.timers.set(Key::Call(id), None);
        if let Some(Job::Attached(job)) = self.jobs.by_id.remove(&id) {
            self.answer_attached(now, id, job, answer);
        }
    }

    /// Gives the answer to the caller.
    fn answer_attached(&mut self, now: Now, id: RequestId, job: Attached, answer: Answer) {
        let Attached { attachment, by, .. } = job;
        match by {
            Caller::Door => self.tables.out.reply(id, answer),
            Caller::Collection(collection) => {
                Collection::go_on(self, collection, &attachment, answer)
            }
            Caller::Operator(order) => Returning::go_on(self, order, &attachment, answer),
            Caller::Adoption => self.adopted(now, attachment, answer),
            Caller::Above => self.notices.push_back(Notice::Answered {
                id,
                attachment,
                answer,
            }),
        }
    }

    /// Answers any other call that waits, unless its caller hung up.
    pub(super) fn answer(&mut self, id: RequestId, answer: Answer) {
        if self.jobs.by_id.remove(&id).is_some() {
            self.call_goes_on(id, Next::Answers(answer));
        }
    }

    pub(super) fn time_call(&mut self, id: RequestId, at: Instant) {
        self.tables.timers.set(Key::Call(id), Some((at, Why::Call)));
    }
}
