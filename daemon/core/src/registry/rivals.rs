//! An ADD's rivals: the attachment's own earlier binding, and the holder of its identity. A rival that lives fails the ADD; one
//! whose interface is gone yields.
//!
//! A lease kept for an identity that may return is given back for an ADD that insists on its address, before its DISCOVER. No
//! ADD ends a grace because it waits in vain: in an outage that would cost containers that are known the addresses they need.

use std::net::Ipv4Addr;
use std::path::Path;

use super::Registry;
use super::operation::{Operation, Ready};
use crate::binding::{Binding, Leave, Life, Release, change};
use crate::effect::{Answer, Failure};
use crate::identity::{Attachment, Identity, Lan};
use crate::link::{Link, LinkCause, LinkView, Step, Target, directory_of};
use crate::outbox::{Look, Waiter};
use crate::record::BindingId;
use crate::source::Wanted;
use crate::time::{Now, whole_millis};

impl Registry {
    /// Settles with an ADD's rivals: the attachment's own earlier binding, and the holder of its identity. A rival
    /// that lives fails the ADD; one whose link is gone yields.
    pub(super) fn settle_rivals(&mut self, now: Now, attachment: &Attachment, view: LinkView) {
        let Some(Operation::Adding(admission)) = self.slots.operation(attachment) else {
            return;
        };
        if admission.quest.add.place.netns().is_none() {
            self.tables
                .bindings
                .note_host(&admission.quest.add.lan, &view);
        }
        let link = admission.link(&view);
        let identity = admission.identity(&view);
        let cleared = admission.cleared;
        let latest = admission.latest;
        let wanted = admission.quest.add.wanted;
        let netns = admission.quest.add.place.netns().map(Path::to_owned);
        let waited = whole_millis(now.boot.saturating_since(admission.quest.began));
        let limits = admission.quest.add.limits.clone();
        let own = self.tables.bindings.holder(attachment);
        let rivals = [own, self.tables.bindings.holders().of(&identity.key())];
        for rival in rivals.into_iter().flatten() {
            let Some(binding) = self
                .tables
                .bindings
                .get(rival)
                .filter(|binding| binding.is_live())
            else {
                continue;
            };
            let same_place =
                *binding.attachment == *attachment && binding.link.in_netns() == link.in_netns();
            let usable = binding.lease(now.boot).cloned();
            if let Some(lease) = usable.filter(|_| same_place && binding.identity == identity) {
                if let Some(why) = limits.as_ref().and_then(|limits| limits.refuse(lease.ip())) {
                    let server = Some(lease.server);
                    let address = lease.ip();
                    return self.refuse(
                        now,
                        attachment,
                        Failure::Unfit {
                            server,
                            address,
                            why,
                        },
                    );
                }
                if Wanted::takes(wanted, lease.ip()) {
                    self.tables
                        .with(now, rival, |binding, cx| binding.route_again(cx));
                    // The rival waits for the ADD's interface, not for the one that disappeared.
                    self.seeking.wait(&mut self.tables, now, rival);
                    let Some(Operation::Adding(admission)) = self.slots.operation(attachment)
                    else {
                        return;
                    };
                    let answer = Answer::leased(&lease, &admission.quest.add.profile.policy);
                    return self.answer_add(now, attachment, answer);
                }
                return self.refuse(
                    now,
                    attachment,
                    Failure::Attached {
                        attachment: attachment.clone(),
                        netns,
                    },
                );
            }
            if same_place && binding.identity == identity && binding.waits_for_store(now.boot) {
                let failure = Failure::TimedOut("the store to write the lease", waited);
                return self.refuse(now, attachment, failure);
            }
            if same_place {
                if self.tables.interfaces.is_changing(view.at()) {
                    return self.await_change(attachment, view);
                }
                let bare = cleared || binding.is_on_host();
                let steps = if bare {
                    Vec::new()
                } else {
                    binding.leavings(&view.addresses, &self.tables.interfaces, now.boot)
                };
                if !steps.is_empty() {
                    return self.clear(attachment, link, steps);
                }
                self.displace(now, rival, &identity);
                continue;
            }
            // Nobody lives there: what is known about it goes with the attachment.
            if binding.is_on_host() && own == Some(rival) {
                self.displace(now, rival, &identity);
                continue;
            }
            // Its interface may exist although it has not been found. A later rival's is still to come.
            if binding.sought().is_some() {
                if rival > latest {
                    let failure = held_by(binding, false);
                    return self.refuse(now, attachment, failure);
                }
                if let Some(Operation::Adding(admission)) = self.slots.operation_mut(attachment) {
                    admission.ready = Ready::AwaitingSearch(rival, view);
                }
                return self.seeking.seek_for(&mut self.tables, attachment);
            }
            // If a host link is there, that says nothing about the binding's container.
            if binding.is_on_host() || matches!(binding.life, Life::Acquiring(_)) {
                let failure = held_by(binding, true);
                return self.refuse(now, attachment, failure);
            }
            let target = Target::Known(binding.link.clone());
            let op = self.tables.out.inspect(
                Waiter::Operation(attachment.clone(), Look::Rival(rival)),
                target,
            );
            if let Some(Operation::Adding(admission)) = self.slots.operation_mut(attachment) {
                admission.ready = Ready::AwaitingRival(op, view);
            }
            return;
        }
        if self.tables.interfaces.is_changing(view.at()) {
            return self.await_change(attachment, view);
        }
        let Some(Operation::Adding(admission)) = self.slots.operation_mut(attachment) else {
            return;
        };
        match admission.leavings(&view) {
            steps if steps.is_empty() => self.claim(now, attachment, &view, link, identity),
            steps => self.clear(attachment, link, steps),
        }
    }

    /// Has an ADD wait for the end of a change of its interface that was begun for an earlier binding.
    fn await_change(&mut self, attachment: &Attachment, view: LinkView) {
        if let Some(Operation::Adding(admission)) = self.slots.operation_mut(attachment) {
            let at = view.at();
            admission.ready = Ready::AwaitingChange(view);
            self.tables.interfaces.await_change(at, attachment);
        }
    }

    pub(super) fn rival_seen(
        &mut self,
        now: Now,
        attachment: &Attachment,
        rival: BindingId,
        seen: Result<LinkView, LinkCause>,
    ) {
        let Some(Operation::Adding(admission)) = self.slots.operation_mut(attachment) else {
            return;
        };
        let Ready::AwaitingRival(_, view) = &admission.ready else {
            return;
        };
        let identity = admission.identity(view);
        let view = view.clone();
        let gone = match &seen {
            Err(cause) if cause.is_unseen() && self.is_again(attachment, rival) => true,
            // Our own sockets may keep the namespace of an ended container for a moment.
            Err(LinkCause::NoPath(_)) => true,
            Err(cause) => {
                cause.is_gone() && (!cause.is_missing() || self.vouches_for(attachment, rival))
            }
            Ok(_) => false,
        };
        match self
            .tables
            .bindings
            .get(rival)
            .filter(|binding| binding.is_live())
        {
            Some(binding) if !gone => {
                let failure = match &binding.link {
                    Link::InNetns { path, .. } if *binding.attachment == *attachment => {
                        Failure::Attached {
                            attachment: attachment.clone(),
                            netns: Some(path.clone()),
                        }
                    }
                    Link::InNetns { .. } | Link::Parent { .. } => held_by(binding, seen.is_ok()),
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

    /// Goes on after a search of the namespaces for the interface of an ADD's rival; `whole`: of every one. If it is nowhere, the
    /// rival yields.
    pub(super) fn rival_sought(&mut self, now: Now, attachment: &Attachment, whole: bool) {
        let Some(Operation::Adding(admission)) = self.slots.operation_mut(attachment) else {
            return;
        };
        let Ready::AwaitingSearch(rival, view) = &admission.ready else {
            return;
        };
        let rival = *rival;
        let identity = admission.identity(view);
        let view = view.clone();
        match self
            .tables
            .bindings
            .get(rival)
            .filter(|binding| binding.sought().is_some())
        {
            Some(binding) if !whole => {
                let failure = held_by(binding, false);
                return self.refuse(now, attachment, failure);
            }
            Some(_) => self.displace(now, rival, &identity),
            None => {}
        }
        self.settle_rivals(now, attachment, view);
    }

    /// Returns whether an ADD's namespace, which was just seen, shows that its rival's missing one is gone.
    fn vouches_for(&self, attachment: &Attachment, rival: BindingId) -> bool {
        let Some(Operation::Adding(admission)) = self.slots.operation(attachment) else {
            return false;
        };
        let binding = self.tables.bindings.get(rival);
        let path = binding.and_then(|binding| binding.link.netns());
        let seen = admission.quest.add.place.netns().map(directory_of);
        path.is_some_and(|path| Some(directory_of(path)) == seen)
    }

    /// Returns whether an ADD on a host link replaces its rival: Docker creates an endpoint again, and has lost the last one. A
    /// dockerd that was killed unmounts the earlier namespaces, leaves their files for a while, and tells nobody.
    fn is_again(&self, attachment: &Attachment, rival: BindingId) -> bool {
        let Some(Operation::Adding(admission)) = self.slots.operation(attachment) else {
            return false;
        };
        let binding = self.tables.bindings.get(rival);
        let is_own = binding.is_some_and(|binding| *binding.attachment == *attachment);
        is_own && admission.quest.add.place.netns().is_none()
    }

    /// Removes what is left on the interface from before, then looks at it once more.
    fn clear(&mut self, attachment: &Attachment, link: Link, steps: Vec<Step>) {
        let waiter = Waiter::Operation(attachment.clone(), Look::Prepare);
        let op = change(
            &mut self.tables.out,
            &mut self.tables.interfaces,
            waiter,
            &link,
            steps,
        );
        if let Some(Operation::Adding(admission)) = self.slots.operation_mut(attachment) {
            (admission.ready, admission.cleared) = (Ready::Preparing(op), true);
        }
    }

    /// Has a held binding stand back: if another takes over its identity, it only waits; else its lease is given back.
    fn displace(&mut self, now: Now, rival: BindingId, identity: &Identity) {
        self.tables.with(now, rival, |binding, cx| {
            let why = if binding.identity.key() == identity.key() {
                Leave::Yielded
            } else {
                Leave::Displaced
            };
            binding.give_back(why, cx);
        });
        if let Some(attachment) = self.tables.attachment(rival) {
            self.tables.bindings.vacate(&attachment, rival);
        }
    }

    /// Gives back the kept lease with the only acceptable address for an ADD. A kept lease under the ADD's own identity and
    /// Ethernet address does not keep its server from giving it.
    pub(super) fn unblock(&mut self, now: Now, id: BindingId, address: Ipv4Addr) {
        let Some(identity) = self
            .tables
            .bindings
            .get(id)
            .map(|binding| &binding.identity)
        else {
            return;
        };
        let blocks = |other: &&Binding| {
            let is_kept = other.kept_until().is_some() || other.identity.key() == identity.key();
            let has = other
                .lease(now.boot)
                .is_some_and(|lease| lease.ip() == address);
            has && is_kept && other.identity.lan == identity.lan && other.identity != *identity
        };
        let Some(kept) = self
            .tables
            .bindings
            .iter()
            .find(blocks)
            .map(|binding| binding.id)
        else {
            return;
        };
        tracing::info!(binding = id.0, kept = kept.0, %address, "giving back a kept lease: its address is requested");
        self.tables.with(now, kept, |binding, cx| {
            binding.gives_back(cx, Release::make_way)
        });
    }

    /// Returns how many leases of a LAN are kept for identities that may return.
    pub(super) fn kept_on(&self, lan: &Lan) -> usize {
        let on_lan = |binding: &&Binding| binding.identity.lan == *lan;
        let kept = self.tables.bindings.iter().filter(on_lan);
        kept.filter(|binding| binding.kept_until().is_some())
            .count()
    }
}

/// Returns why an ADD fails because a binding holds its identity. `seen`: the binding's interface is there; else it may be out of
/// sight.
fn held_by(binding: &Binding, seen: bool) -> Failure {
    let Identity { lan, client_id, .. } = binding.identity.clone();
    Failure::Held {
        lan,
        client_id,
        holder: (*binding.attachment).clone(),
        seen,
    }
}
