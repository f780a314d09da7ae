//! The calls of the CNI shim: ADD, DEL, CHECK.
//!
//! An attachment has one operation at a time; further calls wait in its slot, in order. DEL goes before them and ends an
//! ADD that is under way (invariant 2). ADD: prepare the link, wait for carrier, settle with rivals, take the identity, and
//! from there on it is the binding's.

use std::collections::VecDeque;
use std::time::Duration;

use super::Registry;
use super::timers::Key;
use crate::binding::{Abort, Acquire, Binding, Leave, Life, Owner, Purpose, Stage};
use crate::dhcpv4::Client;
use crate::dhcpv4::lease::Lease;
use crate::effect::{Add, Answer, Call, Failure, OpId, Outcome, RequestId, StoreCause, Why};
use crate::identity::{Attachment, Identity};
use crate::link::{Cookie, Link, LinkCause, LinkView, Step, Target};
use crate::record::BindingId;
use crate::time::{Instant, Now};
use ipnet::Ipv4Net;

/// How long a CHECK may wait behind another operation and for its look at the link.
const CHECK_LIMIT: Duration = Duration::from_secs(30);

/// One attachment: what it holds, what it is at, and who waits for that to end.
#[derive(Debug, Default)]
pub(super) struct Slot {
    /// The binding that holds its lease.
    pub(super) holder: Option<BindingId>,
    pub(super) operation: Option<Operation>,
    waiting: VecDeque<Waiting>,
}

/// A call that waits for the operation before it.
#[derive(Debug)]
struct Waiting {
    id: RequestId,
    call: Call,
    since: Instant,
}

/// What an attachment is at.
#[derive(Debug)]
pub(super) enum Operation {
    /// An ADD whose link is being made ready.
    Adding(Box<Admission>),
    /// An ADD whose binding is acquiring.
    Acquiring(RequestId, BindingId),
    /// An ADD that was given up, whose binding settles that.
    Ending(BindingId),
    /// A DEL, or several.
    Deleting(Vec<RequestId>, BindingId),
    /// A CHECK that looks at the link.
    Checking(RequestId, OpId),
}

/// An ADD before it has a binding.
#[derive(Debug)]
pub(super) struct Admission {
    request: RequestId,
    add: Add,
    began: Instant,
    step: Ready,
}

/// How far an ADD's link is.
#[derive(Debug)]
enum Ready {
    /// It is being set up and looked at.
    Preparing(OpId),
    /// It is up, without carrier.
    AwaitingCarrier(LinkView),
    /// A rival's link is looked at: does it live?
    AwaitingRival(OpId, LinkView),
}

impl Admission {
    fn op(&self) -> Option<OpId> {
        match &self.step {
            Ready::Preparing(op) | Ready::AwaitingRival(op, _) => Some(*op),
            Ready::AwaitingCarrier(_) => None,
        }
    }

    fn target(&self) -> Target {
        Target::Named { netns: self.add.netns.clone(), ifname: self.add.attachment.ifname.clone() }
    }

    fn link_failure(&self, cause: LinkCause) -> Failure {
        Failure::Link { target: self.target().to_string(), cause }
    }

    fn timed_out(&self, now: Instant) -> Failure {
        let waited = whole_millis(now.saturating_since(self.began));
        match &self.step {
            Ready::AwaitingCarrier(view) => Failure::NoCarrier { ifname: view.ifname.clone(), waited },
            Ready::Preparing(_) => Failure::TimedOut { waiting_for: "the interface to be set up", waited },
            Ready::AwaitingRival(..) => Failure::TimedOut { waiting_for: "a look at the identity's holder", waited },
        }
    }

    fn link(&self, view: &LinkView) -> Link {
        Link::InNetns { path: self.add.netns.clone(), cookie: view.cookie, ifindex: view.ifindex, mac: view.mac }
    }

    fn identity(&self, view: &LinkView) -> Identity {
        Identity { lan: self.add.lan.clone(), client_id: self.add.client_id.clone(), chaddr: view.mac }
    }
}

impl Registry {
    /// Begins a call, or lets it wait for its turn.
    pub(super) fn call(&mut self, now: Now, attachment: Attachment, id: RequestId, call: Call) {
        if matches!(call, Call::Del { .. }) {
            return self.delete(now, attachment, id);
        }
        let limit = match &call {
            Call::Add(add) => add.timeout,
            Call::Check { .. } | Call::Del { .. } | Call::List => CHECK_LIMIT,
        };
        self.timers.set(Key::Call(id), Some((now.boot + limit, Why::Call)));
        let slot = self.slots.entry(attachment.clone()).or_default();
        slot.waiting.push_back(Waiting { id, call, since: now.boot });
        self.next_call(now, &attachment);
    }

    /// Begins the call that has waited longest, if nothing is under way. Forgets an attachment that has nothing.
    fn next_call(&mut self, now: Now, attachment: &Attachment) {
        while let Some(slot) = self.slots.get_mut(attachment) {
            if slot.operation.is_some() {
                return;
            }
            let Some(Waiting { id, call, since }) = slot.waiting.pop_front() else {
                if slot.holder.is_none() {
                    self.slots.remove(attachment);
                }
                return;
            };
            match call {
                Call::Add(add) => self.begin_add(id, add, since),
                Call::Del { .. } => self.begin_delete(now, attachment, id),
                Call::Check { expected, .. } => self.begin_check(now, attachment, id, expected),
                Call::List => {}
            }
        }
    }

    fn operation(&mut self, attachment: &Attachment) -> Option<&mut Operation> {
        self.slots.get_mut(attachment)?.operation.as_mut()
    }

    fn begin(&mut self, attachment: &Attachment, operation: Operation) {
        self.slots.entry(attachment.clone()).or_default().operation = Some(operation);
    }

    fn end(&mut self, now: Now, attachment: &Attachment) {
        if let Some(slot) = self.slots.get_mut(attachment) {
            slot.operation = None;
        }
        self.next_call(now, attachment);
    }

    // ADD

    fn begin_add(&mut self, request: RequestId, add: Add, began: Instant) {
        let attachment = add.attachment.clone();
        let target = Target::Named { netns: add.netns.clone(), ifname: attachment.ifname.clone() };
        let op = self.out.apply(Owner::Operation(attachment.clone()), Purpose::Prepare, target, vec![Step::Up]);
        let admission = Admission { request, add, began, step: Ready::Preparing(op) };
        self.begin(&attachment, Operation::Adding(Box::new(admission)));
    }

    pub(super) fn operation_done(&mut self, now: Now, attachment: Attachment, purpose: Purpose, outcome: Outcome) {
        let view = match outcome {
            Outcome::Applied { result, .. } | Outcome::Inspected(result) => result,
            Outcome::Persisted(_) | Outcome::Opened(_) => return,
        };
        match purpose {
            Purpose::Prepare => self.prepared(now, &attachment, view),
            Purpose::Rival(rival) => self.rival_seen(now, &attachment, rival, view),
            Purpose::Check => self.checked(now, &attachment, view),
            Purpose::Open(_) | Purpose::Persist | Purpose::Size | Purpose::FindParent | Purpose::Audit => {}
        }
    }

    fn prepared(&mut self, now: Now, attachment: &Attachment, view: Result<LinkView, LinkCause>) {
        let Some(Operation::Adding(admission)) = self.operation(attachment) else {
            return;
        };
        match view {
            Err(cause) => {
                let failure = admission.link_failure(cause);
                self.refuse(now, attachment, failure);
            }
            Ok(view) if !view.carrier => admission.step = Ready::AwaitingCarrier(view),
            Ok(view) => self.settle_rivals(now, attachment, view),
        }
    }

    pub(super) fn carrier_up(&mut self, now: Now, cookie: Cookie, ifindex: u32) {
        for (attachment, view) in self.awaiting_carrier() {
            if view.cookie == cookie && view.ifindex == ifindex {
                self.settle_rivals(now, &attachment, LinkView { carrier: true, ..view });
            }
        }
    }

    /// Looks again at the links of ADDs that wait for carrier: its coming may have been missed.
    pub(super) fn look_for_carrier(&mut self) {
        for (attachment, _) in self.awaiting_carrier() {
            let Some(Operation::Adding(admission)) = self.operation(&attachment) else {
                continue;
            };
            let target = admission.target();
            let op = self.out.inspect(Owner::Operation(attachment.clone()), Purpose::Prepare, target);
            if let Some(Operation::Adding(admission)) = self.operation(&attachment) {
                admission.step = Ready::Preparing(op);
            }
        }
    }

    fn awaiting_carrier(&self) -> Vec<(Attachment, LinkView)> {
        let views = self.slots.iter().filter_map(|(attachment, slot)| match &slot.operation {
            Some(Operation::Adding(admission)) => match &admission.step {
                Ready::AwaitingCarrier(view) => Some((attachment.clone(), view.clone())),
                Ready::Preparing(_) | Ready::AwaitingRival(..) => None,
            },
            _ => None,
        });
        views.collect()
    }

    /// Fails the ADDs that wait on a link that is gone.
    pub(super) fn admissions_gone(&mut self, now: Now, cookie: Cookie, ifindex: Option<u32>) {
        for (attachment, view) in self.awaiting_carrier() {
            if view.cookie == cookie && ifindex.is_none_or(|index| index == view.ifindex) {
                let Some(Operation::Adding(admission)) = self.operation(&attachment) else {
                    continue;
                };
                let failure = admission.link_failure(LinkCause::NoLink(view.ifname));
                self.refuse(now, &attachment, failure);
            }
        }
    }

    /// Settles with the bindings that stand in an ADD's way: the attachment's own from before, and the holder of its
    /// identity. One that lives fails the ADD; one whose link is gone yields.
    fn settle_rivals(&mut self, now: Now, attachment: &Attachment, view: LinkView) {
        let Some(Operation::Adding(admission)) = self.operation(attachment) else {
            return;
        };
        let (link, identity) = (admission.link(&view), admission.identity(&view));
        let own = self.slots.get(attachment).and_then(|slot| slot.holder);
        let rivals = [own, self.holders.get(&identity.key()).copied()];
        for rival in rivals.into_iter().flatten() {
            let Some(binding) = self.bindings.get(&rival).filter(|binding| binding.is_live()) else {
                continue;
            };
            let same_place = binding.attachment == *attachment && binding.link.in_netns() == link.in_netns();
            let usable = binding.lease().filter(|lease| !lease.expired(now.boot)).cloned();
            if let Some(lease) = usable.filter(|_| same_place && binding.identity == identity) {
                return self.answer_add(now, attachment, Answer::Leased(Box::new(lease)));
            }
            if same_place {
                self.displace(now, rival, &identity);
                continue;
            }
            if matches!(binding.life, Life::Acquiring(_)) {
                let failure = held_by(&binding.identity, binding.attachment.clone());
                return self.refuse(now, attachment, failure);
            }
            let target = Target::Known(binding.link.clone());
            let op = self.out.inspect(Owner::Operation(attachment.clone()), Purpose::Rival(rival), target);
            if let Some(Operation::Adding(admission)) = self.operation(attachment) {
                admission.step = Ready::AwaitingRival(op, view);
            }
            return;
        }
        self.claim(now, attachment, &view, link, identity);
    }

    fn rival_seen(&mut self, now: Now, attachment: &Attachment, rival: BindingId, seen: Result<LinkView, LinkCause>) {
        let Some(Operation::Adding(admission)) = self.operation(attachment) else {
            return;
        };
        let Ready::AwaitingRival(_, view) = &admission.step else {
            return;
        };
        let (view, identity) = (view.clone(), admission.identity(view));
        let gone = matches!(&seen, Err(cause) if cause.is_gone());
        match self.bindings.get(&rival).filter(|binding| binding.is_live()) {
            Some(binding) if !gone => {
                let failure = match &binding.link {
                    Link::InNetns { path, .. } if binding.attachment == *attachment => {
                        Failure::Attached { attachment: attachment.clone(), netns: path.clone() }
                    }
                    Link::InNetns { .. } | Link::Parent { .. } => {
                        held_by(&binding.identity, binding.attachment.clone())
                    }
                };
                self.refuse(now, attachment, failure);
            }
            Some(_) => {
                self.displace(now, rival, &identity);
                self.settle_rivals(now, attachment, view);
            }
            None => self.settle_rivals(now, attachment, view),
        }
    }

    /// Makes a held binding stand back: for one that takes its identity over it only waits, else it is given back.
    fn displace(&mut self, now: Now, rival: BindingId, identity: &Identity) {
        self.with(now, rival, |binding, cx| {
            let why = if binding.identity.key() == identity.key() { Leave::Yielded } else { Leave::Aborted };
            binding.give_back(why, cx);
        });
        if let Some(slot) = self.attachment(rival).and_then(|attachment| self.slots.get_mut(&attachment)) {
            slot.holder.take_if(|holder| *holder == rival);
        }
    }

    /// Takes the identity: from here on the ADD is its binding's. What is on its way back under the same identity stops,
    /// and its lease, if the server does not know yet, is asked for again.
    fn claim(&mut self, now: Now, attachment: &Attachment, view: &LinkView, link: Link, identity: Identity) {
        let Some(Operation::Adding(admission)) = self.operation(attachment) else {
            return;
        };
        let (request, began, limit) = (admission.request, admission.began, admission.began + admission.add.timeout);
        let key = identity.key();
        let replaces: Vec<_> = self.releasing.get(&key).into_iter().flatten().copied().collect();
        let (chaddr, client_id) = (identity.chaddr, &identity.client_id);
        let client = match self.lease_to_take_over(&replaces, now.boot) {
            Some(lease) => Client::reacquire(chaddr, client_id, lease, now.boot, self.rng.fork()),
            None => Client::acquire(chaddr, client_id, now.boot, self.rng.fork()),
        };
        let (stage, mtu) = (Stage::AwaitingPermit, view.mtu);
        let acquire = Acquire { client, began, limit, mtu, replaces: replaces.clone(), stage };
        let id = self.mint_binding();
        self.timers.set(Key::Call(request), None);
        self.begin(attachment, Operation::Acquiring(request, id));
        self.insert(Binding::acquiring(id, attachment.clone(), identity.clone(), link, acquire));
        replaces.into_iter().for_each(|old| self.with(now, old, |binding, cx| binding.pause(cx)));
        if self.pacing.ask(&identity.lan, id) {
            self.with(now, id, |binding, cx| binding.on_permit(cx));
        }
    }

    fn lease_to_take_over(&self, from: &[BindingId], now: Instant) -> Option<Lease> {
        let owed = from.iter().filter_map(|id| match &self.bindings.get(id)?.life {
            Life::Releasing(release) if release.owed && !release.lease.expired(now) => Some(&release.lease),
            Life::Releasing(_) | Life::Acquiring(_) | Life::Held(_) => None,
        });
        owed.max_by_key(|lease| lease.start).cloned()
    }

    pub(super) fn leased(&mut self, now: Now, id: BindingId, lease: Lease) {
        let Some(attachment) = self.attachment(id) else {
            return;
        };
        let Some(slot) = self.slots.get_mut(&attachment) else {
            return;
        };
        slot.holder = Some(id);
        self.answer_add(now, &attachment, Answer::Leased(Box::new(lease)));
    }

    pub(super) fn acquisition_failed(&mut self, id: BindingId, failure: Failure) {
        let Some(attachment) = self.attachment(id) else {
            return;
        };
        let Some(Operation::Acquiring(request, _)) = self.operation(&attachment) else {
            return;
        };
        let request = *request;
        tracing::warn!(%attachment, %failure, "ADD failed");
        self.reply(request, Answer::Failed(failure));
        self.begin(&attachment, Operation::Ending(id));
    }

    /// Fails an ADD that has no binding.
    fn refuse(&mut self, now: Now, attachment: &Attachment, failure: Failure) {
        tracing::warn!(%attachment, %failure, "ADD failed");
        self.answer_add(now, attachment, Answer::Failed(failure));
    }

    fn answer_add(&mut self, now: Now, attachment: &Attachment, answer: Answer) {
        let request = match self.operation(attachment) {
            Some(Operation::Adding(admission)) => admission.request,
            Some(Operation::Acquiring(request, _)) => *request,
            Some(Operation::Ending(_) | Operation::Deleting(..) | Operation::Checking(..)) | None => return,
        };
        self.reply(request, answer);
        self.end(now, attachment);
    }

    // DEL

    /// A DEL ends ADDs that wait or are under way, then goes before all that waits.
    fn delete(&mut self, now: Now, attachment: Attachment, id: RequestId) {
        let slot = self.slots.entry(attachment.clone()).or_default();
        let (adds, others) =
            std::mem::take(&mut slot.waiting).into_iter().partition(|w| matches!(w.call, Call::Add(_)));
        slot.waiting = others;
        let cancelled: VecDeque<Waiting> = adds;
        for add in cancelled {
            self.reply(add.id, Answer::Failed(Failure::Cancelled(attachment.clone())));
        }
        let Some(slot) = self.slots.get_mut(&attachment) else {
            return;
        };
        if let Some(Operation::Deleting(requests, _)) = &mut slot.operation {
            return requests.push(id);
        }
        slot.waiting.push_front(Waiting { id, call: Call::Del { attachment: attachment.clone() }, since: now.boot });
        self.cancel_add(now, &attachment, Some(Failure::Cancelled(attachment.clone())));
        self.next_call(now, &attachment);
    }

    /// Gives the ADD up that is under way, if there is one.
    fn cancel_add(&mut self, now: Now, attachment: &Attachment, why: Option<Failure>) {
        match self.operation(attachment) {
            Some(Operation::Adding(admission)) => {
                let (request, op) = (admission.request, admission.op());
                op.into_iter().for_each(|op| self.out.forget(op));
                if let Some(failure) = why {
                    self.reply(request, Answer::Failed(failure));
                }
                self.end(now, attachment);
            }
            Some(Operation::Acquiring(_, id)) => {
                let id = *id;
                let abort = why.map_or(Abort::Silent, Abort::Because);
                self.with(now, id, |binding, cx| binding.abort(abort.clone(), cx));
                if abort == Abort::Silent {
                    self.begin(attachment, Operation::Ending(id));
                }
            }
            Some(Operation::Ending(_) | Operation::Deleting(..) | Operation::Checking(..)) | None => {}
        }
    }

    fn begin_delete(&mut self, now: Now, attachment: &Attachment, id: RequestId) {
        let holder = self.slots.get(attachment).and_then(|slot| slot.holder);
        let Some(holder) = holder.filter(|holder| self.bindings.contains_key(holder)) else {
            self.reply(id, Answer::Deleted);
            return self.end(now, attachment);
        };
        self.begin(attachment, Operation::Deleting(vec![id], holder));
        self.with(now, holder, |binding, cx| binding.give_back(Leave::Deleted, cx));
    }

    /// A binding has no more to do with its attachment.
    pub(super) fn given_back(&mut self, now: Now, id: BindingId, attachment: Attachment) {
        let Some(slot) = self.slots.get_mut(&attachment) else {
            return;
        };
        slot.holder.take_if(|holder| *holder == id);
        match &slot.operation {
            Some(Operation::Deleting(requests, binding)) if *binding == id => {
                let requests = requests.clone();
                requests.into_iter().for_each(|request| self.reply(request, Answer::Deleted));
                self.end(now, &attachment);
            }
            Some(Operation::Ending(binding) | Operation::Acquiring(_, binding)) if *binding == id => {
                self.end(now, &attachment);
            }
            _ => self.next_call(now, &attachment),
        }
    }

    /// The store refused to note a DEL: the attachment holds its lease as before.
    pub(super) fn not_given_back(&mut self, now: Now, id: BindingId, cause: StoreCause) {
        let Some(binding) = self.bindings.get(&id) else {
            return;
        };
        let (key, attachment) = (binding.identity.key(), binding.attachment.clone());
        super::remove_from(&mut self.releasing, &key, id);
        self.holders.insert(key, id);
        let Some(Operation::Deleting(requests, _)) = self.operation(&attachment) else {
            return;
        };
        let requests = std::mem::take(requests);
        tracing::warn!(%attachment, %cause, "DEL failed");
        for request in requests {
            self.reply(request, Answer::Failed(Failure::Store(cause.clone())));
        }
        self.end(now, &attachment);
    }

    // CHECK

    fn begin_check(&mut self, now: Now, attachment: &Attachment, id: RequestId, expected: Vec<Ipv4Net>) {
        let holder = self.slots.get(attachment).and_then(|slot| slot.holder);
        let binding = holder.and_then(|holder| self.bindings.get(&holder));
        let lease = binding.filter(|binding| binding.is_live()).and_then(Binding::lease);
        let (Some(binding), Some(lease)) = (binding, lease.filter(|lease| !lease.expired(now.boot))) else {
            self.reply(id, Answer::Failed(Failure::Unknown(attachment.clone())));
            return self.end(now, attachment);
        };
        if !expected.is_empty() && !expected.contains(&lease.address) {
            let expected = expected.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
            let failure = Failure::Differs { attachment: attachment.clone(), held: lease.address, expected };
            self.reply(id, Answer::Failed(failure));
            return self.end(now, attachment);
        }
        let target = Target::Known(binding.link.clone());
        let op = self.out.inspect(Owner::Operation(attachment.clone()), Purpose::Check, target);
        self.begin(attachment, Operation::Checking(id, op));
    }

    fn checked(&mut self, now: Now, attachment: &Attachment, view: Result<LinkView, LinkCause>) {
        let Some(Operation::Checking(id, ..)) = self.operation(attachment) else {
            return;
        };
        let id = *id;
        let holder = self.slots.get(attachment).and_then(|slot| slot.holder);
        let binding = holder.and_then(|holder| self.bindings.get(&holder));
        let answer = match (binding, binding.and_then(Binding::lease), view) {
            (Some(_), Some(lease), Ok(view)) if view.addresses.contains(&lease.address) => Answer::Checked,
            (Some(_), Some(lease), Ok(view)) => Answer::Failed(Failure::NotOnLink {
                attachment: attachment.clone(),
                address: lease.address,
                ifname: view.ifname,
            }),
            (Some(binding), _, Err(cause)) => {
                let target = Target::Known(binding.link.clone()).to_string();
                Answer::Failed(Failure::Link { target, cause })
            }
            (Some(_), None, Ok(_)) | (None, ..) => Answer::Failed(Failure::Unknown(attachment.clone())),
        };
        self.reply(id, answer);
        self.end(now, attachment);
    }

    // All

    /// A caller went away: what it waited for is given up, but for a DEL.
    pub(super) fn hung_up(&mut self, now: Now, id: RequestId) {
        self.timers.set(Key::Call(id), None);
        let Some(attachment) = self.requests.remove(&id) else {
            self.unknown += 1;
            return;
        };
        let Some(slot) = self.slots.get_mut(&attachment) else {
            return;
        };
        slot.waiting.retain(|waiting| waiting.id != id);
        match &mut slot.operation {
            Some(Operation::Adding(admission)) if admission.request == id => self.cancel_add(now, &attachment, None),
            Some(Operation::Acquiring(request, _)) if *request == id => self.cancel_add(now, &attachment, None),
            Some(Operation::Checking(request, op)) if *request == id => {
                let op = *op;
                self.out.forget(op);
                self.end(now, &attachment);
            }
            Some(Operation::Deleting(requests, _)) => requests.retain(|request| *request != id),
            _ => {}
        }
        self.next_call(now, &attachment);
    }

    /// A call has waited for as long as it may.
    pub(super) fn call_timed_out(&mut self, now: Now, id: RequestId) {
        self.timers.set(Key::Call(id), None);
        let Some(attachment) = self.requests.get(&id).cloned() else {
            return;
        };
        let Some(slot) = self.slots.get_mut(&attachment) else {
            return;
        };
        if let Some(at) = slot.waiting.iter().position(|waiting| waiting.id == id) {
            let waited = slot.waiting.remove(at).map_or(now.boot, |waiting| waiting.since);
            let waited = whole_millis(now.boot.saturating_since(waited));
            let waiting_for = "the operation before it on the same attachment";
            return self.reply(id, Answer::Failed(Failure::TimedOut { waiting_for, waited }));
        }
        match &slot.operation {
            Some(Operation::Adding(admission)) if admission.request == id => {
                let failure = admission.timed_out(now.boot);
                self.cancel_add(now, &attachment, Some(failure));
            }
            Some(Operation::Checking(request, op)) if *request == id => {
                let op = *op;
                self.out.forget(op);
                let failure = Failure::TimedOut { waiting_for: "a look at the interface", waited: CHECK_LIMIT };
                self.reply(id, Answer::Failed(failure));
                self.end(now, &attachment);
            }
            _ => {}
        }
    }
}

fn held_by(identity: &Identity, holder: Attachment) -> Failure {
    Failure::Held { lan: identity.lan.clone(), client_id: identity.client_id.clone(), holder }
}

/// Durations are told to the millisecond.
fn whole_millis(duration: Duration) -> Duration {
    Duration::from_millis(duration.as_millis() as u64)
}
