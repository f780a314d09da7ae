//! ADD: its turn begins an `admission`, which sets the link up and settles with rivals. Then the ADD takes its
//! identity, and a binding acquires. This file answers what becomes of either.

use std::time::Duration;

use ipnet::Ipv4Net;

use super::admission::{Admission, Admitted, Ready};
use super::jobs::Caller;
use super::operation::Operation;
use super::pacing::Urgency;
use super::timers::Key;
use super::{Registry, rivals};
use crate::backoff::RARELY;
use crate::binding::{Binding, Common, Known, Life, Owed, Release};
use crate::effect::{Add, Adoptee, Answer, ClientIdRule, Failure, RequestId};
use crate::identity::{Attachment, ClientId, Identity, Lan};
use crate::interface::At;
use crate::link::{Cookie, Link, LinkCause, LinkView};
use crate::record::BindingId;
use crate::source::{Client, Lease};
use crate::time::Instant;

impl Registry {
    /// Begins the ADD whose turn it is.
    pub(super) fn begin_add(&mut self, request: RequestId, mut add: Box<Add>, began: Instant) {
        self.settle_client_id(&mut add, false);
        let attachment = add.attachment.clone();
        let ran_with = self.forget_adoption(&attachment);
        let permits = &self.turns.permits;
        let admission = Admission::begin(&mut self.tables, permits, request, add, began, ran_with);
        self.begin(&attachment, Operation::Adding(Box::new(admission)));
    }

    /// Begins to adopt a container, unless its attachment is known already.
    pub(crate) fn adopt(&mut self, adoptee: Adoptee) {
        if !self.knows(&adoptee.add.attachment) {
            self.adoptions.enter(adoptee.clone());
            self.begin_adoption(adoptee);
        }
    }

    /// Tries once more to adopt the containers whose time has come.
    pub(super) fn adopt_again(&mut self) {
        for adoptee in self.adoptions.due(self.tables.now.boot) {
            let attachment = &adoptee.add.attachment;
            if self.tables.bindings.holder(attachment).is_some() {
                self.forget_adoption(attachment);
            } else if self.knows(attachment) {
                // An ADD that waits ends it once it begins.
                let at = self.tables.now.boot + RARELY;
                self.adoptions.wait(attachment, at);
            } else {
                self.begin_adoption(adoptee);
            }
        }
        self.adoptions.time(&mut self.tables);
    }

    /// Leaves an attachment to its runtime. Returns the address that its container ran with, if it still had to be adopted.
    pub(super) fn forget_adoption(&mut self, attachment: &Attachment) -> Option<Ipv4Net> {
        let ran_with = self.adoptions.forget(attachment);
        self.adoptions.time(&mut self.tables);
        ran_with
    }

    /// Begins the ADD of a container that runs already.
    fn begin_adoption(&mut self, mut adoptee: Adoptee) {
        self.settle_client_id(&mut adoptee.add, true);
        let attachment = adoptee.add.attachment.clone();
        let request = self.jobs.errand(Caller::Adoption, attachment.clone());
        let now = self.tables.now.boot;
        self.time_call(request, now + adoptee.add.timeout);
        let admission = Admission::adopt(&mut self.tables, request, adoptee, now);
        self.begin(&attachment, Operation::Adding(Box::new(admission)));
    }

    /// Has the ADDs whose interface is meant look for carrier.
    pub(super) fn look_for_carrier(&mut self, at: Option<At>) {
        let is_meant = |it: &&mut Admission| {
            at.is_none_or(|(cookie, index)| it.waits_for_carrier(cookie, Some(index)))
        };
        for admission in self.slots.admissions().filter(is_meant) {
            admission.look_for_carrier(&mut self.tables, &self.turns.permits);
        }
    }

    pub(super) fn look_on_clock(&mut self) {
        self.tables.timers.set(Key::Look, None);
        for admission in self.slots.admissions() {
            admission.on_clock(&mut self.tables, &self.turns.permits);
        }
    }

    /// Fails the ADDs that wait on a link that is gone.
    pub(super) fn admissions_gone(&mut self, cookie: Cookie, ifindex: Option<u32>) {
        let waits = |it: &&mut Admission| it.waits_for_carrier(cookie, ifindex);
        let gone = self.slots.admissions().filter(waits);
        let failure = |it: &mut Admission| {
            let cause = LinkCause::NoLink(it.quest.add.place.ifname().to_owned());
            (it.attachment().clone(), it.link_failure(cause))
        };
        for (attachment, failure) in gone.map(failure).collect::<Vec<_>>() {
            self.refuse(&attachment, failure);
        }
    }

    /// Goes on with an ADD after a look at its interface, or at that of its rival.
    pub(super) fn prepared(&mut self, attachment: &Attachment, view: Result<LinkView, LinkCause>) {
        let Some(admission) = self.slots.admission(attachment) else {
            return;
        };
        let (tables, seeking) = (&mut self.tables, &mut self.seeking);
        let next = match admission.ready {
            Ready::AwaitingRival(..) => rivals::seen(admission, tables, seeking, view),
            _ => match admission.prepared(tables, &self.turns.permits, view) {
                Admitted::Prepared(view) => rivals::settle(admission, tables, seeking, view),
                next => next,
            },
        };
        self.admission_goes_on(attachment, next);
    }

    /// Goes on with an ADD after a search for the interface of its rival.
    pub(super) fn rival_sought(&mut self, attachment: &Attachment, whole: bool) {
        if let Some(admission) = self.slots.admission(attachment) {
            let tables = &mut self.tables;
            let next = rivals::sought(admission, tables, &mut self.seeking, whole);
            self.admission_goes_on(attachment, next);
        }
    }

    fn admission_goes_on(&mut self, attachment: &Attachment, next: Admitted) {
        match next {
            Admitted::Waits | Admitted::Prepared(_) => {}
            Admitted::Fails(failure) => self.refuse(attachment, failure),
            Admitted::Holds(answer) => self.answer_add(attachment, answer),
            Admitted::Claims(view, link, identity) => self.claim(attachment, &view, link, identity),
        }
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

    /// Takes the identity: from here on its binding carries on the ADD. No lease is given back under the same identity any more;
    /// one of whose end the server does not know yet is requested again.
    pub(super) fn claim(
        &mut self,
        attachment: &Attachment,
        view: &LinkView,
        link: Link,
        identity: Identity,
    ) {
        let now = self.tables.now;
        let Some(admission) = self.slots.admission(attachment) else {
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
                return self.refuse(attachment, failure);
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
            return self.refuse(attachment, failure);
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
        replaces.iter().for_each(|id| self.tables.departs(*id));
        let patience = profile.wants.patience.filter(|_| !is_doubtful);
        let last_record = last.map(|last| last.record);
        let last = given_back.or(last.map(|last| last.address));
        let id = self.tables.bindings.mint();
        self.tables.timers.set(Key::Call(request), None);
        let lan = identity.lan.clone();
        let profile = self.tables.profiles.share(profile);
        let common = Common::new(id, self.slots.shared(attachment), identity, profile, link);
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
        self.tables.interfaces.enter(&common.link, id);
        self.tables.interfaces.is_on(view.at(), view.lower);
        let binding = Binding::acquiring(common, known, now.boot, self.tables.rng.fork());
        self.tables.insert(binding);
        for old in replaces {
            self.tables.at_release(old, Release::pause);
        }
        let urgency = match adopts {
            Some(_) => Urgency::Background,
            None => Urgency::Caller,
        };
        if self.turns.permits.ask(&lan, id, urgency) {
            let spare = self.spare.take_if(|(_, whose)| whose == attachment);
            let sockets = spare.map(|(exchange, _)| exchange);
            self.tables.with(id, |life, cx| life.on_permit(sockets, cx));
        }
    }

    pub(super) fn leased(&mut self, id: BindingId, lease: Lease) {
        let Some(attachment) = self.tables.attachment(id) else {
            return;
        };
        if !self.knows(&attachment) {
            return;
        }
        let tables = &mut self.tables;
        tables.bindings.hold(attachment.clone(), id);
        let Some(binding) = tables.bindings.get(id) else {
            return;
        };
        let lan = &binding.identity.lan;
        let answer = Answer::leased(&lease, &binding.profile.policy);
        if lease.source.is_asked() {
            tables.lans.add_succeeded(lan);
        }
        if binding.client().is_some_and(Client::flag_helped) {
            tables.with(id, |_, cx| cx.own.doubts_reach(&lease));
        }
        // The lease became durable before the attachment had it, because its link had to be prepared first.
        if lease.resolver().is_some() {
            self.tables.out.resolvers.insert(attachment.clone());
        }
        self.seeking.wait(&mut self.tables, id);
        self.answer_add(&attachment, answer);
    }

    pub(super) fn acquisition_failed(&mut self, id: BindingId, mut failure: Failure) {
        let Some(attachment) = self.tables.attachment(id) else {
            return;
        };
        let operation = self.slots.operation_mut(&attachment);
        let Some(&mut Operation::Acquiring(request, _)) = operation else {
            return;
        };
        if let Failure::NoOffer {
            lan,
            kept,
            waited,
            queued,
            silence,
            ..
        } = &mut failure
        {
            *kept = rivals::kept_on(&self.tables, lan);
            let server = silence.as_mut().and_then(|silence| silence.server.as_mut());
            if let Some(server) = server {
                let began = self
                    .tables
                    .now
                    .boot
                    .since_boot()
                    .saturating_sub(*waited + *queued);
                let began = Instant::from_boot(began);
                let lans = &self.tables.lans;
                server.acknowledged = lans.acknowledged_since(lan, server.address, began);
            }
        }
        let binding = self.tables.bindings.get(id);
        let is_impatient = binding.is_some_and(|it| it.profile.wants.patience.is_some());
        // A server whose answers are refused is there nonetheless.
        if let Failure::NoOffer { lan, tally, .. } = &failure
            && is_impatient
            && tally.answers == 0
        {
            self.tables.lans.no_offer(lan, self.tables.now.boot);
        }
        let lan = self.tables.lan(id);
        if let Some(by) = self.jobs.caller(request).copied() {
            self.add_failed(&by, &attachment, lan.as_ref(), &failure);
        }
        self.reply(request, Answer::Failed(failure));
        self.begin(&attachment, Operation::Leaving(id));
    }

    /// Fails an ADD that has no binding.
    pub(super) fn refuse(&mut self, attachment: &Attachment, failure: Failure) {
        if let Some(admission) = self.slots.admission(attachment) {
            let request = admission.request;
            let lan = admission.quest.add.lan.clone();
            if let Some(by) = self.jobs.caller(request).copied() {
                self.add_failed(&by, attachment, Some(&lan), &failure);
            }
        }
        self.answer_add(attachment, Answer::Failed(failure));
    }

    /// Logs that an ADD failed, and enters that in the account of its LAN. An adoption has its own message.
    pub(super) fn add_failed(
        &mut self,
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
            let now = self.tables.now;
            self.tables
                .lans
                .add_failed(lan, attachment, failure.to_string(), now);
        }
    }

    /// Returns how long an ADD may take. One with a fallback gets the time for that.
    pub(crate) fn time_for(&self, add: &Add) -> Duration {
        let gives_up =
            add.fallback.is_none() && self.tables.lans.is_silent(&add.lan, self.tables.now.boot);
        let patience = add.profile.wants.patience.filter(|_| gives_up);
        patience.map_or(add.timeout, |patience| add.timeout.min(patience))
    }

    pub(super) fn answer_add(&mut self, attachment: &Attachment, answer: Answer) {
        let request = match self.slots.operation_mut(attachment) {
            Some(Operation::Adding(admission)) => admission.request,
            Some(Operation::Acquiring(request, _)) => *request,
            Some(Operation::Leaving(_) | Operation::Checking(..)) | None => return,
        };
        self.reply(request, answer);
        self.end(attachment);
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
