//! ADD, from the call to the binding that acquires: prepare the link, wait for carrier, settle with rivals, take the
//! identity. After that its binding carries on.

use std::sync::Arc;
use std::time::Duration;

use ipnet::Ipv4Net;

use super::Registry;
use super::jobs::Caller;
use super::operation::{Admission, CARRIER_PAUSE, Operation, Ready};
use super::pacing::{Pacing, Urgency};
use super::slots::Slot;
use super::timers::Key;
use crate::binding::{Binding, Holder, Known, Life, Owed, Quest, Release};
use crate::effect::{
    Add, Adoptee, Answer, ClientIdRule, ExchangeId, Failure, OpId, RequestId, Why,
};
use crate::identity::{Attachment, ClientId, Identity, Lan};
use crate::interface::At;
use crate::link::{Cookie, Link, LinkCause, LinkView, Place, Step, Target};
use crate::outbox::{Look, Outbox, Waiter};
use crate::record::BindingId;
use crate::rules::{Rule, cut};
use crate::source::{Client, Lease, Wanted};
use crate::time::{Instant, Now};

/// Sockets that were opened when an ADD's link was looked at. The ADD goes on over them at once, or they are closed.
#[derive(Debug)]
pub(super) struct Spare {
    pub(super) exchange: ExchangeId,
    pub(super) attachment: Attachment,
}

impl Registry {
    pub(super) fn begin_add(
        &mut self,
        request: RequestId,
        mut add: Box<Add>,
        began: Instant,
        ran_with: Option<Ipv4Net>,
    ) {
        self.settle_client_id(&mut add, false);
        let same = ran_with.map(|net| Wanted {
            address: net.addr(),
            preferred: true,
        });
        add.wanted = add.wanted.or(same);
        let attachment = add.attachment.clone();
        let ready = Ready::Preparing(prepare(&mut self.tables.out, &self.turns.permits, &add));
        let latest = self.tables.bindings.latest();
        let admission = Admission {
            ran_with,
            ..Admission::new(request, Quest::new(add, began), latest, ready)
        };
        self.begin(&attachment, Operation::Adding(Box::new(admission)));
    }

    /// Looks again at what ADDs wait for and the kernel does not report here: the carrier of the host's links, and an Ethernet address
    /// that another link has.
    pub(super) fn look_on_clock(&mut self) {
        self.tables.timers.set(Key::Look, None);
        self.look_for_carrier(|place, _| matches!(place, Place::Parent { .. }));
        for (_, slot) in self.slots.iter_mut() {
            if let Some(Operation::Adding(admission)) = &mut slot.operation
                && let Ready::AwaitingAddress(_) = admission.ready
            {
                admission.ready = Ready::Preparing(prepare(
                    &mut self.tables.out,
                    &self.turns.permits,
                    &admission.quest.add,
                ));
            }
        }
    }

    /// Begins the ADD of a container that runs already: its link is looked at, not changed.
    pub(super) fn begin_adoption(&mut self, now: Now, request: RequestId, adoptee: Adoptee) {
        let Adoptee {
            mut add,
            address,
            mac,
        } = adoptee;
        self.settle_client_id(&mut add, true);
        let attachment = add.attachment.clone();
        let target = match (add.place.target(), mac) {
            (Target::Named(at), Some(mac)) => Target::OfServer(at, mac),
            (target, _) => target,
        };
        let waiter = Waiter::Operation(attachment.clone(), Look::Prepare);
        let op = self.tables.out.inspect(waiter, target.clone());
        self.time_call(request, now.boot + add.timeout);
        let latest = self.tables.bindings.latest();
        let quest = Quest {
            adopts: Some(address),
            ..Quest::new(add, now.boot)
        };
        let admission = Admission {
            target,
            ..Admission::new(request, quest, latest, Ready::Preparing(op))
        };
        self.begin(&attachment, Operation::Adding(Box::new(admission)));
    }

    /// Settles an ADD's client identifier: a client that `ran` before this daemon knew about it, or that has, had or is
    /// getting a lease under the whole of a long name, keeps that name.
    fn settle_client_id(&self, add: &mut Add, ran: bool) {
        let ClientIdRule::Hashed { sent, known } = &add.client_id else {
            return;
        };
        let is_known = |id: &ClientId| {
            let key = (add.lan.clone(), id.clone());
            let holders = self.tables.bindings.holders();
            holders.of(&key).is_some()
                || !holders.leaving(&key).is_empty()
                || self.past.of(&key).is_some()
        };
        let known = known.as_ref().filter(|known| ran || is_known(known));
        add.client_id = ClientIdRule::Bytes(known.unwrap_or(sent).clone());
    }

    pub(super) fn prepared(
        &mut self,
        now: Now,
        attachment: &Attachment,
        view: Result<LinkView, LinkCause>,
    ) {
        let Some(Operation::Adding(admission)) = self.slots.operation_mut(attachment) else {
            return;
        };
        if let Ok(view) = &view
            && let Some(wire) = &view.wire
        {
            admission.quest.add.lan = wire.lan(&admission.quest.add.lan);
        }
        match view {
            Err(cause @ LinkCause::MacTaken(_)) if !cut(Rule::MacTaken) => {
                admission.ready = Ready::AwaitingAddress(cause);
                // Usually the other link is in a dead namespace that the kernel is removing.
                let at = now.boot + CARRIER_PAUSE / 20;
                self.tables.timers.set_no_later(Key::Look, (at, Why::Call));
            }
            Err(cause) => {
                let failure = admission.link_failure(cause);
                self.refuse(now, attachment, failure);
            }
            Ok(view) if let Some(address) = admission.lacks_address(&view) => {
                let failure = Failure::NotOnLink {
                    attachment: attachment.clone(),
                    address,
                    ifname: view.ifname,
                };
                self.refuse(now, attachment, failure);
            }
            Ok(view) if !admission.has_carrier(&view) => {
                // Carrier may have come since the look; from now on the kernel reports it.
                let again = matches!(
                    admission.ready,
                    Ready::Preparing(_) | Ready::AwaitingCarrier { news: true, .. }
                );
                admission.ready = Ready::AwaitingCarrier {
                    view,
                    look: None,
                    news: false,
                };
                if matches!(admission.quest.add.place, Place::Parent { .. }) {
                    let at = now.boot + CARRIER_PAUSE;
                    return self.tables.timers.set_no_later(Key::Look, (at, Why::Call));
                }
                if again {
                    self.look_again(attachment);
                }
            }
            Ok(view) => {
                if view.was_down || matches!(admission.ready, Ready::AwaitingCarrier { .. }) {
                    admission.quest.came_up = Some(now.boot);
                }
                self.settle_rivals(now, attachment, view);
            }
        }
    }

    /// Looks again where ADDs wait for carrier and `is_meant`: the kernel has reported it, or its report may have been missed.
    ///
    /// It reports one end of a veth before the bridge at the other end forwards, and on a busy host a DISCOVER that leaves at
    /// once is lost there. A look waits until the kernel is done with both: it works on links under one lock.
    pub(super) fn look_for_carrier(&mut self, is_meant: impl Fn(&Place, At) -> bool) {
        for attachment in self.awaiting_carrier(is_meant) {
            self.look_again(&attachment);
        }
    }

    /// Looks once more at the link of an ADD that waits for carrier, after the look under way if there is one.
    fn look_again(&mut self, attachment: &Attachment) {
        let slot = self.slots.get_mut(attachment);
        let Some(Operation::Adding(admission)) = slot.and_then(|slot| slot.operation.as_mut())
        else {
            return;
        };
        let target = admission.target.clone();
        let Ready::AwaitingCarrier { look, news, .. } = &mut admission.ready else {
            return;
        };
        if look.is_some() {
            *news = true;
            return;
        }
        let op = match admission.quest.adopts {
            Some(_) => self
                .tables
                .out
                .inspect(Waiter::Operation(attachment.clone(), Look::Prepare), target),
            None => prepare(
                &mut self.tables.out,
                &self.turns.permits,
                &admission.quest.add,
            ),
        };
        *look = Some(op);
    }

    /// Returns the attachments whose ADDs wait for carrier where `is_meant`.
    fn awaiting_carrier(&self, is_meant: impl Fn(&Place, At) -> bool) -> Vec<Arc<Attachment>> {
        let waits = |slot: &Slot| match &slot.operation {
            Some(Operation::Adding(admission)) => admission
                .waits_for_carrier()
                .is_some_and(|view| is_meant(&admission.quest.add.place, view.at())),
            _ => false,
        };
        let waiting = self.slots.iter().filter(|(_, slot)| waits(slot));
        waiting.map(|(attachment, _)| attachment.clone()).collect()
    }

    /// Looks at the interface of ADDs that waited for a change of it to end.
    pub(super) fn admissions_changed(&mut self, at: At) {
        for attachment in self.tables.interfaces.take_adds(at) {
            let Some(Operation::Adding(admission)) = self.slots.operation_mut(&attachment) else {
                continue;
            };
            let Ready::AwaitingChange(view) = &admission.ready else {
                continue;
            };
            // A later ADD may wait for another interface.
            if view.at() != at {
                continue;
            }
            let target = admission.target.clone();
            let waiter = Waiter::Operation(attachment.clone(), Look::Prepare);
            let op = self.tables.out.inspect(waiter, target);
            if let Some(Operation::Adding(admission)) = self.slots.operation_mut(&attachment) {
                admission.ready = Ready::Preparing(op);
            }
        }
    }

    /// Fails the ADDs that wait on a link that is gone.
    pub(super) fn admissions_gone(&mut self, now: Now, cookie: Cookie, ifindex: Option<u32>) {
        for attachment in self
            .awaiting_carrier(|_, at| at.0 == cookie && ifindex.is_none_or(|index| index == at.1))
        {
            let Some(Operation::Adding(admission)) = self.slots.operation_mut(&attachment) else {
                continue;
            };
            let failure = admission.link_failure(LinkCause::NoLink(
                admission.quest.add.place.ifname().to_owned(),
            ));
            self.refuse(now, &attachment, failure);
        }
    }

    /// Takes the identity: from here on its binding carries on the ADD. No lease is given back under the same identity any more;
    /// one of whose end the server does not know yet is requested again.
    pub(super) fn claim(
        &mut self,
        now: Now,
        attachment: &Attachment,
        view: &LinkView,
        link: Link,
        identity: Identity,
    ) {
        let Some(Operation::Adding(admission)) = self.slots.operation_mut(attachment) else {
            return;
        };
        let request = admission.request;
        let quest = &mut admission.quest;
        let limits = quest.add.limits.clone();
        let unfit = |address| limits.as_ref().and_then(|limits| limits.refuse(address));
        let wanted = quest.add.wanted;
        match wanted.and_then(|wanted| Some((wanted, unfit(wanted.address)?))) {
            Some((wanted, why)) if !wanted.preferred => {
                let failure = Failure::Unfit {
                    server: None,
                    address: wanted.address,
                    why,
                };
                return self.refuse(now, attachment, failure);
            }
            Some(_) => quest.add.wanted = None,
            None => {}
        }
        let adopts = quest.adopts;
        let profile = quest.add.profile.clone();
        let holders = self.tables.bindings.holders();
        let tenant = |address| holders.tenant(&identity.lan, address, BindingId(0), now.boot);
        let held = adopts.and_then(|net| Some((net.addr(), tenant(net.addr())?)));
        if let Some((address, tenant)) = held {
            let failure = Failure::AddressHeld {
                server: None,
                address,
                holder: tenant.who,
                shared: None,
            };
            return self.refuse(now, attachment, failure);
        }
        let replaces = holders.leaving(&identity.key());
        let leaving = || {
            replaces
                .iter()
                .filter_map(|id| self.tables.bindings.get(*id))
        };
        let owed = leaving().filter_map(|old| owed(old, now.boot));
        let lease = owed.max_by_key(|lease| lease.start).cloned();
        let lease = lease.filter(|lease| tenant(lease.ip()).is_none());
        let lease = lease.filter(|lease| unfit(lease.ip()).is_none());
        // An address that its server may believe to be free, or has refused, is not used before the server confirms it.
        let is_doubtful = leaving()
            .any(|old| matches!(&old.life, Life::Releasing(release) if !release.may_be_trusted()));
        let given_back = leaving().filter(|old| old.is_to_remember());
        let given_back = given_back.filter_map(|old| old.lease(now.boot));
        let given_back = given_back.map(Lease::ip).next_back();
        let last = self.past.of(&identity.key());
        let holder = Holder {
            attachment: self.slots.shared(attachment),
            identity,
            profile: self.tables.profiles.share(profile),
            link,
            told: None,
        };
        replaces.iter().for_each(|id| self.tables.departs(now, *id));
        let patience = holder.profile.wants.patience.filter(|_| !is_doubtful);
        let last_record = last.map(|last| last.record);
        let last = given_back.or(last.map(|last| last.address));
        let id = self.tables.bindings.mint();
        self.tables.timers.set(Key::Call(request), None);
        let lan = holder.identity.lan.clone();
        let acquiring = Operation::Acquiring(request, id);
        let slot = self.slots.make(attachment);
        let Some(Operation::Adding(admission)) = slot.operation.replace(acquiring) else {
            return;
        };
        if let Some(fallback) = &admission.quest.add.fallback {
            self.fallbacks.enter(attachment.network(), &lan, fallback);
        }
        let known = Known {
            quest: admission.quest,
            lease,
            patience,
            last: last.filter(|last| unfit(*last).is_none()),
            replaces: replaces.iter().copied().chain(last_record).collect(),
            view,
        };
        self.tables.interfaces.enter(&holder.link, id);
        self.tables.interfaces.is_on(view.at(), view.lower);
        let binding = Binding::acquiring(id, holder, known, now.boot, self.tables.rng.fork());
        self.tables.insert(now, binding);
        replaces.into_iter().for_each(|old| {
            self.tables.with(now, old, |binding, cx| {
                binding.gives_back(cx, Release::pause)
            })
        });
        let urgency = match adopts {
            Some(_) => Urgency::Background,
            None => Urgency::Caller,
        };
        if self.turns.permits.ask(&lan, id, urgency) {
            let spare = self.spare.take_if(|it| it.attachment == *attachment);
            let sockets = spare.map(|spare| spare.exchange);
            self.tables
                .with(now, id, |binding, cx| binding.on_permit(sockets, cx));
        }
    }

    pub(super) fn leased(&mut self, now: Now, id: BindingId, lease: Lease) {
        let Some(attachment) = self.tables.attachment(id) else {
            return;
        };
        if !self.knows(&attachment) {
            return;
        }
        self.tables.bindings.hold(attachment.clone(), id);
        if let Some(binding) = self.tables.bindings.get(id)
            && let Some(helped) = binding.client().and_then(Client::flag_helped)
        {
            self.tables
                .lans
                .got_answers(&binding.identity.lan, helped, now.boot);
            if helped {
                self.tables
                    .with(now, id, |binding, _| binding.doubts_reach(&lease));
            }
        }
        // The lease became durable before the attachment had it, because its link had to be prepared first.
        if lease.resolver().is_some() {
            self.tables.out.resolvers.insert(attachment.clone());
        }
        if lease.source.is_asked()
            && let Some(lan) = self.tables.lan(id)
        {
            self.tables.lans.add_succeeded(&lan);
        }
        self.audit.saw(&mut self.tables, id);
        self.seeking.wait(&mut self.tables, now, id);
        let Some(profile) = self
            .tables
            .bindings
            .get(id)
            .map(|binding| binding.profile.clone())
        else {
            return;
        };
        self.answer_add(now, &attachment, Answer::leased(&lease, &profile.policy));
    }

    pub(super) fn acquisition_failed(&mut self, now: Now, id: BindingId, mut failure: Failure) {
        let Some(attachment) = self.tables.attachment(id) else {
            return;
        };
        let Some(Operation::Acquiring(request, _)) = self.slots.operation_mut(&attachment) else {
            return;
        };
        let request = *request;
        if let Failure::NoOffer { tally, .. } | Failure::NoAck { tally, .. } = &mut failure {
            tally.flag_helped_elsewhere = self
                .tables
                .lan(id)
                .is_some_and(|lan| self.tables.lans.flag_helped(&lan));
        }
        if let Failure::NoOffer {
            lan,
            kept,
            waited,
            queued,
            silence,
            ..
        } = &mut failure
        {
            *kept = self.kept_on(lan);
            let server = silence.as_mut().and_then(|silence| silence.server.as_mut());
            if let Some(server) = server {
                let began = now.boot.since_boot().saturating_sub(*waited + *queued);
                let began = Instant::from_boot(began);
                server.acknowledged =
                    self.tables
                        .lans
                        .acknowledged_since(lan, server.address, began);
            }
        }
        let binding = self.tables.bindings.get(id);
        let is_impatient = binding.is_some_and(|it| it.profile.wants.patience.is_some());
        // A server whose answers are refused is there nonetheless.
        if let Failure::NoOffer { lan, tally, .. } = &failure
            && is_impatient
            && tally.answers == 0
        {
            self.tables.lans.no_offer(lan, now.boot);
        }
        let lan = self.tables.lan(id);
        if let Some(by) = self.jobs.caller(request).copied() {
            self.add_failed(now, &by, &attachment, lan.as_ref(), &failure);
        }
        let answer = Answer::Failed(failure);
        match self.tables.out.is_aside(id) {
            true => self.jobs.withhold(request, id, answer),
            false => self.reply(now, request, answer),
        }
        self.begin(&attachment, Operation::Ending(id));
    }

    /// Fails an ADD once the temporary link of its binding's exchange is gone.
    pub(super) fn answer_withheld(&mut self, now: Now, id: BindingId) {
        if !self.tables.out.is_aside(id)
            && let Some((request, answer)) = self.jobs.take_withheld(id)
        {
            self.reply(now, request, answer);
        }
    }

    /// Fails an ADD that has no binding.
    pub(super) fn refuse(&mut self, now: Now, attachment: &Attachment, failure: Failure) {
        if let Some(Operation::Adding(admission)) = self.slots.operation_mut(attachment) {
            let request = admission.request;
            let lan = admission.quest.add.lan.clone();
            if let Some(by) = self.jobs.caller(request).copied() {
                self.add_failed(now, &by, attachment, Some(&lan), &failure);
            }
        }
        self.answer_add(now, attachment, Answer::Failed(failure));
    }

    /// Logs that an ADD failed, and enters that in the account of its LAN. An adoption has its own message.
    pub(super) fn add_failed(
        &mut self,
        now: Now,
        by: &Caller,
        attachment: &Attachment,
        lan: Option<&Lan>,
        failure: &Failure,
    ) {
        if matches!(by, Caller::Door) {
            tracing::warn!(%attachment, %failure, "ADD failed");
        }
        let counts = !matches!(by, Caller::Adoption) && failure.is_of_host_or_lan();
        if let Some(lan) = lan.filter(|_| counts) {
            self.tables
                .lans
                .add_failed(lan, attachment, failure.to_string(), now);
        }
    }

    /// Returns how long an ADD may take. One with a fallback gets the time for that.
    pub(crate) fn time_for(&self, add: &Add, now: Instant) -> Duration {
        let gives_up = add.fallback.is_none() && self.tables.lans.is_silent(&add.lan, now);
        let patience = add.profile.wants.patience.filter(|_| gives_up);
        patience.map_or(add.timeout, |patience| add.timeout.min(patience))
    }

    pub(super) fn answer_add(&mut self, now: Now, attachment: &Attachment, answer: Answer) {
        let request = match self.slots.operation_mut(attachment) {
            Some(Operation::Adding(admission)) => admission.request,
            Some(Operation::Acquiring(request, _)) => *request,
            Some(Operation::Ending(_) | Operation::Deleting(..) | Operation::Checking(..))
            | None => return,
        };
        self.reply(now, request, answer);
        self.end(now, attachment);
    }
}

/// Returns the lease of a binding that gives it back, if its server does not know that yet.
fn owed(binding: &Binding, now: Instant) -> Option<&Lease> {
    let Life::Releasing(release) = &binding.life else {
        return None;
    };
    let is_owed = matches!(release.owed, Owed::Leased | Owed::Left);
    Some(&release.lease).filter(|lease| is_owed && !lease.expired(now))
}

/// Sets the link of an ADD up and looks at it.
fn prepare(out: &mut Outbox, pacing: &Pacing, add: &Add) -> OpId {
    let waiter = Waiter::Operation(add.attachment.clone(), Look::Prepare);
    match &add.place {
        // Sockets that would wait for a permit, or be of no use, are not opened: others may need them.
        place if add.opens_at_once() && pacing.has_room(&add.lan) => out.prepare(
            add.attachment.clone(),
            place.clone(),
            add.lan.clone(),
            add.chaddr,
        ),
        Place::InNetns(at) => out.apply(waiter, Target::Named(at.clone()), vec![Step::Up]),
        // The daemon does not change the host's link.
        Place::Parent { .. } => out.inspect(waiter, add.place.target()),
    }
}
