//! ADD, from the call to the binding that acquires: prepare the link, wait for carrier, settle with rivals, take the
//! identity. From there on the ADD is its binding's.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ipnet::Ipv4Net;

use super::Registry;
use super::docker::PATIENCE;
use super::operation::{Admission, Operation, Ready, target};
use super::pacing::Urgency;
use super::timers::Key;
use crate::binding::{Binding, Holder, Known, Leave, Life, Owed, change};
use crate::dhcpv4::lease::Lease;
use crate::dhcpv4::profile::Wanted;
use crate::effect::{Add, Adoptee, Answer, ExchangeId, Failure, RequestId, Why};
use crate::grant::Dns;
use crate::identity::{Attachment, Identity};
use crate::interface::At;
use crate::link::{Cookie, Link, LinkCause, LinkView, Place, Step, Target, directory_of};
use crate::outbox::{Look, Waiter};
use crate::record::BindingId;
use crate::time::{Instant, Now, whole_millis};

/// How long a call waits before it looks again whether a link of the host has carrier.
pub(super) const CARRIER_PAUSE: Duration = Duration::from_secs(1);

/// Sockets that were opened where an ADD's link was looked at. The ADD goes on over them at once, or they are closed.
#[derive(Debug)]
pub(super) struct Spare {
    pub(super) exchange: ExchangeId,
    pub(super) attachment: Attachment,
}

impl Registry {
    pub(super) fn begin_add(&mut self, request: RequestId, add: Box<Add>, began: Instant, ran_with: Option<Ipv4Net>) {
        let attachment = add.attachment.clone();
        let waiter = Waiter::Operation(attachment.clone(), Look::Prepare);
        let op = match &add.place {
            // Sockets that would wait for a permit, or be of no use, are not opened: others may need them.
            place if add.opens_at_once() && self.pacing.has_room(&add.lan) => {
                self.out.prepare(attachment.clone(), place.clone(), add.lan.clone(), add.chaddr)
            }
            Place::InNetns(at) => self.out.apply(waiter, Target::Named(at.clone()), vec![Step::Up]),
            // The host's link is not ours to change.
            Place::Parent { .. } => self.out.inspect(waiter, add.place.target()),
        };
        let step = Ready::Preparing(op);
        let admission = Admission { request, add, began, step, cleared: false, adopts: None, known_by: None, ran_with };
        self.begin(&attachment, Operation::Adding(Box::new(admission)));
    }

    /// Begins the ADD of a container that runs already: its link is looked at, not changed.
    pub(super) fn begin_adoption(&mut self, now: Now, request: RequestId, adoptee: Adoptee) {
        let Adoptee { add, address, mac: known_by } = adoptee;
        let attachment = add.attachment.clone();
        let op = self.out.inspect(Waiter::Operation(attachment.clone(), Look::Prepare), target(&add.place, known_by));
        let (step, adopts) = (Ready::Preparing(op), Some(address));
        self.timers.set(Key::Call(request), Some((now.boot + add.timeout, Why::Call)));
        let admission =
            Admission { request, add, began: now.boot, step, cleared: false, adopts, known_by, ran_with: None };
        self.begin(&attachment, Operation::Adding(Box::new(admission)));
    }

    pub(super) fn prepared(&mut self, now: Now, attachment: &Attachment, view: Result<LinkView, LinkCause>) {
        let Some(Operation::Adding(admission)) = self.operation(attachment) else { return };
        match view {
            Err(cause) => {
                let failure = admission.link_failure(cause);
                self.refuse(now, attachment, failure);
            }
            Ok(view) if let Some(address) = admission.lacks_address(&view) => {
                let (attachment, ifname) = (attachment.clone(), view.ifname);
                self.refuse(now, &attachment.clone(), Failure::NotOnLink { attachment, address, ifname });
            }
            Ok(view) if !admission.has_carrier(&view) => {
                let first = matches!(admission.step, Ready::Preparing(_));
                admission.step = Ready::AwaitingCarrier(view, None);
                if matches!(admission.add.place, Place::Parent { .. }) {
                    return self.timers.set(Key::Carrier, Some((now.boot + CARRIER_PAUSE, Why::Call)));
                }
                // Carrier may have come since the look; what comes from here on the kernel tells.
                if first {
                    self.look_again(attachment);
                }
            }
            Ok(view) => self.settle_rivals(now, attachment, view),
        }
    }

    pub(super) fn carrier_up(&mut self, now: Now, cookie: Cookie, ifindex: u32) {
        for (attachment, view) in self.awaiting_carrier() {
            if view.cookie == cookie && view.ifindex == ifindex {
                self.forget_look(&attachment);
                self.settle_rivals(now, &attachment, LinkView { carrier: true, ..view });
            }
        }
    }

    /// Looks again at the links of ADDs that wait for carrier: its coming may have been missed.
    pub(super) fn look_for_carrier(&mut self) {
        for (attachment, _) in self.awaiting_carrier() {
            self.look_again(&attachment);
        }
    }

    /// Looks again at the links of the host that ADDs wait for: of those the kernel's news are not told.
    pub(super) fn look_for_carrier_on_host(&mut self) {
        self.timers.set(Key::Carrier, None);
        for (attachment, _) in self.awaiting_carrier() {
            let operation = self.slots.operation(&attachment);
            if matches!(operation, Some(Operation::Adding(admission)) if matches!(admission.add.place, Place::Parent { .. }))
            {
                self.look_again(&attachment);
            }
        }
    }

    /// Looks once more at the link of an ADD that waits for carrier, and goes on waiting.
    fn look_again(&mut self, attachment: &Attachment) {
        self.forget_look(attachment);
        let Some(Operation::Adding(admission)) = self.operation(attachment) else { return };
        let target = admission.target();
        let op = self.out.inspect(Waiter::Operation(attachment.clone(), Look::Prepare), target);
        let Some(Operation::Adding(admission)) = self.operation(attachment) else { return };
        if let Ready::AwaitingCarrier(_, look) = &mut admission.step {
            *look = Some(op);
        }
    }

    /// Makes the outcome of a look that is under way count for nothing.
    fn forget_look(&mut self, attachment: &Attachment) {
        if let Some(Operation::Adding(admission)) = self.operation(attachment)
            && let Some(op) = admission.op()
        {
            self.out.forget(op);
        }
    }

    fn awaiting_carrier(&self) -> Vec<(Arc<Attachment>, LinkView)> {
        let views = self.slots.iter().filter_map(|(attachment, slot)| match &slot.operation {
            Some(Operation::Adding(admission)) => match &admission.step {
                Ready::AwaitingCarrier(view, _) => Some((attachment.clone(), view.clone())),
                Ready::Preparing(_)
                | Ready::AwaitingRival(..)
                | Ready::AwaitingSearch(..)
                | Ready::AwaitingChange(_) => None,
            },
            _ => None,
        });
        views.collect()
    }

    /// Looks at the interface of ADDs that waited for a change of it to end.
    pub(super) fn admissions_changed(&mut self, at: At) {
        for attachment in self.interfaces.take_adds(at) {
            let Some(Operation::Adding(admission)) = self.operation(&attachment) else { continue };
            let Ready::AwaitingChange(view) = &admission.step else { continue };
            // An ADD that came in its place may wait for another.
            if view.at() != at {
                continue;
            }
            let target = admission.target();
            let op = self.out.inspect(Waiter::Operation(attachment.clone(), Look::Prepare), target);
            if let Some(Operation::Adding(admission)) = self.operation(&attachment) {
                admission.step = Ready::Preparing(op);
            }
        }
    }

    /// Returns whether what a binding has on its interface is being taken off for an ADD in its place.
    pub(super) fn is_being_cleared(&self, id: BindingId) -> bool {
        matches!(self.slot_of(id).and_then(|slot| slot.operation.as_ref()), Some(Operation::Adding(admission)) if admission.cleared)
    }

    /// Lets a binding put on again what was taken off for an ADD in its place that came to nothing.
    pub(super) fn restore(&mut self, now: Now, attachment: &Attachment, admission: &Admission) {
        let holder = self.slots.holder(attachment);
        if let Some(holder) = holder.filter(|_| admission.cleared) {
            self.with(now, holder, |binding, cx| binding.put_back(cx));
        }
    }

    /// Fails the ADDs that wait on a link that is gone.
    pub(super) fn admissions_gone(&mut self, now: Now, cookie: Cookie, ifindex: Option<u32>) {
        for (attachment, view) in self.awaiting_carrier() {
            if view.cookie == cookie && ifindex.is_none_or(|index| index == view.ifindex) {
                let Some(Operation::Adding(admission)) = self.operation(&attachment) else { continue };
                let failure = admission.link_failure(LinkCause::NoLink(view.ifname));
                self.refuse(now, &attachment, failure);
            }
        }
    }

    /// Settles with the bindings that stand in an ADD's way: the attachment's own from before, and the holder of its
    /// identity. One that lives fails the ADD; one whose link is gone yields.
    fn settle_rivals(&mut self, now: Now, attachment: &Attachment, view: LinkView) {
        let Some(Operation::Adding(admission)) = self.operation(attachment) else { return };
        let (link, identity, cleared) = (admission.link(&view), admission.identity(&view), admission.cleared);
        let (wanted, netns) = (admission.add.wanted, admission.add.place.netns().map(Path::to_owned));
        let waited = whole_millis(now.boot.saturating_since(admission.began));
        let pool = admission.add.pool.clone();
        let limits = pool.map(|pool| self.docker.limits(&pool));
        let own = self.slots.holder(attachment);
        let rivals = [own, self.bindings.holders().of(&identity.key())];
        for rival in rivals.into_iter().flatten() {
            let Some(binding) = self.bindings.get(rival).filter(|binding| binding.is_live()) else { continue };
            let same_place = *binding.attachment == *attachment && binding.link.in_netns() == link.in_netns();
            let usable = binding.lease(now.boot).cloned();
            if let Some(lease) = usable.filter(|_| same_place && binding.identity == identity) {
                if let Some(why) = limits.as_ref().and_then(|limits| limits.refuse(lease.ip())) {
                    let (server, address) = (Some(lease.server), lease.ip());
                    return self.refuse(now, attachment, Failure::Unfit { server, address, why });
                }
                if Wanted::takes(wanted, lease.ip()) {
                    self.with(now, rival, |binding, cx| binding.route_again(cx));
                    // Not the interface that went is waited for, but the one that this is for.
                    self.await_interface(now, rival);
                    let Some(Operation::Adding(admission)) = self.slots.operation(attachment) else { return };
                    let answer = Answer::leased(lease, &admission.add.profile);
                    return self.answer_add(now, attachment, answer);
                }
                return self.refuse(now, attachment, Failure::Attached { attachment: attachment.clone(), netns });
            }
            if same_place && binding.identity == identity && binding.waits_for_store(now.boot) {
                let failure = Failure::TimedOut { waiting_for: "the store to write the lease", waited };
                return self.refuse(now, attachment, failure);
            }
            if same_place {
                if self.interfaces.is_changing(view.at()) {
                    return self.await_change(attachment, view);
                }
                let bare = cleared || binding.is_on_host();
                let steps =
                    if bare { Vec::new() } else { binding.leavings(&view.addresses, &self.interfaces, now.boot) };
                if !steps.is_empty() {
                    return self.clear(attachment, link, steps);
                }
                self.displace(now, rival, &identity);
                continue;
            }
            // Nobody lives there: what is known of it goes with the attachment.
            if binding.is_on_host() && own == Some(rival) {
                self.displace(now, rival, &identity);
                continue;
            }
            // That its interface has not been found does not mean that it is nowhere.
            if binding.sought().is_some() {
                if let Some(Operation::Adding(admission)) = self.operation(attachment) {
                    admission.step = Ready::AwaitingSearch(rival, view);
                }
                return self.search_for(attachment);
            }
            // That a link of the host is there says nothing of whom the binding is for.
            if binding.is_on_host() || matches!(binding.life, Life::Acquiring(_)) {
                let failure = held_by(&binding.identity, &binding.attachment);
                return self.refuse(now, attachment, failure);
            }
            let target = Target::Known(binding.link.clone());
            let op = self.out.inspect(Waiter::Operation(attachment.clone(), Look::Rival(rival)), target);
            if let Some(Operation::Adding(admission)) = self.operation(attachment) {
                admission.step = Ready::AwaitingRival(op, view);
            }
            return;
        }
        if self.interfaces.is_changing(view.at()) {
            return self.await_change(attachment, view);
        }
        let Some(Operation::Adding(admission)) = self.operation(attachment) else { return };
        match admission.leavings(&view) {
            steps if steps.is_empty() => self.claim(now, attachment, &view, link, identity),
            steps => self.clear(attachment, link, steps),
        }
    }

    /// Lets an ADD wait until the change of its interface is over that was begun for an earlier binding.
    fn await_change(&mut self, attachment: &Attachment, view: LinkView) {
        if let Some(Operation::Adding(admission)) = self.operation(attachment) {
            let at = view.at();
            admission.step = Ready::AwaitingChange(view);
            self.interfaces.await_change(at, attachment);
        }
    }

    pub(super) fn rival_seen(
        &mut self,
        now: Now,
        attachment: &Attachment,
        rival: BindingId,
        seen: Result<LinkView, LinkCause>,
    ) {
        let Some(Operation::Adding(admission)) = self.operation(attachment) else { return };
        let Ready::AwaitingRival(_, view) = &admission.step else { return };
        let (view, identity) = (view.clone(), admission.identity(view));
        let gone = match &seen {
            Err(cause) if cause.is_unseen() && self.is_again(attachment, rival) => true,
            Err(cause) => cause.is_gone() && (!cause.is_missing() || self.vouches_for(attachment, rival)),
            Ok(_) => false,
        };
        match self.bindings.get(rival).filter(|binding| binding.is_live()) {
            Some(binding) if !gone => {
                let failure = match &binding.link {
                    Link::InNetns { path, .. } if *binding.attachment == *attachment => {
                        Failure::Attached { attachment: attachment.clone(), netns: Some(path.clone()) }
                    }
                    Link::InNetns { .. } | Link::Parent { .. } => held_by(&binding.identity, &binding.attachment),
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

    /// All namespaces were looked through for the interface of an ADD's rival; `whole`: each of them. One that is nowhere yields.
    pub(super) fn rival_sought(&mut self, now: Now, attachment: &Attachment, whole: bool) {
        let Some(Operation::Adding(admission)) = self.operation(attachment) else { return };
        let Ready::AwaitingSearch(rival, view) = &admission.step else { return };
        let (rival, view, identity) = (*rival, view.clone(), admission.identity(view));
        match self.bindings.get(rival).filter(|binding| binding.sought().is_some()) {
            Some(binding) if !whole => {
                let failure = held_by(&binding.identity, &binding.attachment);
                return self.refuse(now, attachment, failure);
            }
            Some(_) => self.displace(now, rival, &identity),
            None => {}
        }
        self.settle_rivals(now, attachment, view);
    }

    /// Returns whether an ADD's namespace, which was just seen, shows that the one of its rival is gone if that is missing.
    fn vouches_for(&self, attachment: &Attachment, rival: BindingId) -> bool {
        let Some(Operation::Adding(admission)) = self.slots.operation(attachment) else { return false };
        let path = self.bindings.get(rival).and_then(|binding| binding.link.netns());
        let seen = admission.add.place.netns().map(directory_of);
        path.is_some_and(|path| Some(directory_of(path)) == seen)
    }

    /// Returns whether an ADD on a host's link is for what its rival was for: Docker makes an endpoint anew, and has lost the last
    /// one. A dockerd that was killed unmounts the namespaces of before, leaves their files for a while, and tells nobody.
    fn is_again(&self, attachment: &Attachment, rival: BindingId) -> bool {
        let Some(Operation::Adding(admission)) = self.slots.operation(attachment) else { return false };
        let is_own = self.bindings.get(rival).is_some_and(|binding| *binding.attachment == *attachment);
        is_own && admission.add.place.netns().is_none()
    }

    /// Takes off the interface what is there from before, then looks at it once more.
    fn clear(&mut self, attachment: &Attachment, link: Link, steps: Vec<Step>) {
        let waiter = Waiter::Operation(attachment.clone(), Look::Prepare);
        let op = change(&mut self.out, &mut self.interfaces, waiter, &link, steps);
        if let Some(Operation::Adding(admission)) = self.operation(attachment) {
            (admission.step, admission.cleared) = (Ready::Preparing(op), true);
        }
    }

    /// Makes a held binding stand back: for one that takes its identity over it only waits, else it is given back.
    fn displace(&mut self, now: Now, rival: BindingId, identity: &Identity) {
        self.with(now, rival, |binding, cx| {
            let why = if binding.identity.key() == identity.key() { Leave::Yielded } else { Leave::Displaced };
            binding.give_back(why, cx);
        });
        if let Some(attachment) = self.attachment(rival) {
            self.slots.vacate(&attachment, rival);
        }
    }

    /// Takes the identity: from here on the ADD is its binding's. What is on its way back under the same identity stops,
    /// and its lease, if the server does not know yet, is asked for again.
    fn claim(&mut self, now: Now, attachment: &Attachment, view: &LinkView, link: Link, identity: Identity) {
        let Some(Operation::Adding(admission)) = self.operation(attachment) else { return };
        let (request, began, limit) = (admission.request, admission.began, admission.began + admission.add.timeout);
        let (wanted, adopts) = (admission.add.wanted, admission.adopts);
        let profile = admission.add.profile.clone();
        let pool = admission.add.pool.clone();
        let limits = pool.map(|id| self.docker.limits(&id));
        let unfit = |address| limits.as_ref().and_then(|limits| limits.refuse(address));
        if let Some((wanted, why)) = wanted.and_then(|wanted| Some((wanted, unfit(wanted.address)?)))
            && !wanted.preferred
        {
            return self.refuse(now, attachment, Failure::Unfit { server: None, address: wanted.address, why });
        }
        let wanted = wanted.filter(|wanted| unfit(wanted.address).is_none());
        let tenant = |address| self.bindings.holders().tenant(&identity.lan, address, BindingId(0), now.boot);
        if let Some((address, tenant)) = adopts.and_then(|address| Some((address.addr(), tenant(address.addr())?))) {
            let holder = (*tenant.attachment).clone();
            return self.refuse(now, attachment, Failure::AddressHeld { server: None, address, holder, shared: None });
        }
        let profile = self.profiles.share(profile);
        let replaces = self.bindings.holders().leaving(&identity.key());
        let holder = Holder { attachment: self.slots.shared(attachment), identity, profile, link, answered: None };
        let key = holder.identity.key();
        let replaced = replaces.iter().filter_map(|id| self.bindings.get(*id)).map(|old| old.link.mac());
        let predecessors = replaced.chain(self.departed.of(&key, now.boot)).collect();
        let lease = self.lease_to_take_over(&replaces, now.boot);
        let lan = &holder.identity.lan;
        let lease =
            lease.filter(|lease| self.bindings.holders().tenant(lan, lease.ip(), BindingId(0), now.boot).is_none());
        let lease = lease.filter(|lease| unfit(lease.ip()).is_none());
        // What its server may have been told is free is asked for, and never used unasked.
        let lives = replaces.iter().filter_map(|id| Some(&self.bindings.get(*id)?.life));
        let is_out = lives.into_iter().any(|life| matches!(life, Life::Releasing(release) if release.may_be_out()));
        let last = self.past.of(&holder.identity.key()).filter(|_| holder.profile.returns());
        let given_back = replaces.iter().filter_map(|id| self.bindings.get(*id)).filter(|old| old.is_to_remember());
        let given_back = given_back.filter_map(|old| old.lease(now.boot)).map(Lease::ip).next_back();
        let known = Known {
            began,
            limit,
            wanted,
            adopts,
            lease,
            patience: matches!(attachment, Attachment::Docker { .. }).then_some(PATIENCE).filter(|_| !is_out),
            last: given_back.or(last.map(|last| last.address)).filter(|last| unfit(*last).is_none()),
            limits,
            replaces: replaces.iter().copied().chain(last.map(|last| last.record)).collect(),
            view,
        };
        let id = self.bindings.mint();
        self.timers.set(Key::Call(request), None);
        self.begin(attachment, Operation::Acquiring(request, id));
        let lan = holder.identity.lan.clone();
        self.interfaces.enter(&holder.link, id);
        let binding = Binding::acquiring(id, holder, known, predecessors, (now.boot, self.rng.fork()));
        self.insert(now, binding);
        replaces.into_iter().for_each(|old| self.with(now, old, |binding, cx| binding.pause(cx)));
        let urgency = if adopts.is_some() { Urgency::Background } else { Urgency::Caller };
        if self.pacing.ask(&lan, id, urgency) {
            let sockets = self.spare.take_if(|spare| spare.attachment == *attachment).map(|spare| spare.exchange);
            self.with(now, id, |binding, cx| binding.on_permit(sockets, cx));
        }
    }

    fn lease_to_take_over(&self, from: &[BindingId], now: Instant) -> Option<Lease> {
        let owed = from.iter().filter_map(|id| match &self.bindings.get(*id)?.life {
            Life::Releasing(release)
                if matches!(release.owed, Owed::Leased | Owed::Left) && !release.lease.expired(now) =>
            {
                Some(&release.lease)
            }
            Life::Releasing(_) | Life::Acquiring(_) | Life::Held(_) => None,
        });
        owed.max_by_key(|lease| lease.start).cloned()
    }

    pub(super) fn leased(&mut self, now: Now, id: BindingId, lease: Lease, began: Instant) {
        let Some(attachment) = self.attachment(id) else { return };
        let Some(slot) = self.slots.get_mut(&attachment) else { return };
        slot.holder = Some(id);
        // An earlier lease says nothing of whether there is a server.
        if lease.start >= began {
            self.lan(id).into_iter().for_each(|lan| self.docker.spoke(&lan));
        }
        // It became durable before it was the attachment's: its link had to be made fit first.
        if Dns::v4(&lease).is_some() {
            self.out.resolvers.insert(attachment.clone());
        }
        self.audit_new(id, began);
        self.saw(id);
        self.await_interface(now, id);
        let Some(profile) = self.bindings.get(id).map(|binding| binding.profile.clone()) else { return };
        self.answer_add(now, &attachment, Answer::leased(lease, &profile));
    }

    pub(super) fn acquisition_failed(&mut self, now: Now, id: BindingId, failure: Failure) {
        let Some(attachment) = self.attachment(id) else { return };
        let Some(Operation::Acquiring(request, _)) = self.operation(&attachment) else { return };
        let request = *request;
        self.log_failed(request, &attachment, &failure);
        if let (Failure::NoOffer { lan, .. }, Attachment::Docker { .. }) = (&failure, &*attachment) {
            self.docker.fell_silent(lan, now.boot);
        }
        let answer = Answer::Failed(failure);
        match self.out.is_aside(id) {
            true => _ = self.withheld.insert(id, (request, answer)),
            false => self.reply(now, request, answer),
        }
        self.begin(&attachment, Operation::Ending(id));
    }

    /// Fails an ADD whose binding has no link any more that was made for its exchange.
    pub(super) fn answer_withheld(&mut self, now: Now, id: BindingId) {
        if self.withheld.contains_key(&id)
            && !self.out.is_aside(id)
            && let Some((request, answer)) = self.withheld.remove(&id)
        {
            self.reply(now, request, answer);
        }
    }

    /// Fails an ADD that has no binding.
    fn refuse(&mut self, now: Now, attachment: &Attachment, failure: Failure) {
        if let Some(Operation::Adding(admission)) = self.operation(attachment) {
            let request = admission.request;
            self.log_failed(request, attachment, &failure);
        }
        self.answer_add(now, attachment, Answer::Failed(failure));
    }

    /// An adoption that fails has words of its own.
    fn log_failed(&self, request: RequestId, attachment: &Attachment, failure: &Failure) {
        if self.errands.get(request).is_none() {
            tracing::warn!(%attachment, %failure, "ADD failed");
        }
    }

    fn answer_add(&mut self, now: Now, attachment: &Attachment, answer: Answer) {
        let request = match self.operation(attachment) {
            Some(Operation::Adding(admission)) => admission.request,
            Some(Operation::Acquiring(request, _)) => *request,
            Some(Operation::Ending(_) | Operation::Deleting(..) | Operation::Checking(..)) | None => return,
        };
        self.reply(now, request, answer);
        self.end(now, attachment);
    }
}

fn held_by(identity: &Identity, holder: &Attachment) -> Failure {
    Failure::Held { lan: identity.lan.clone(), client_id: identity.client_id.clone(), holder: holder.clone() }
}
