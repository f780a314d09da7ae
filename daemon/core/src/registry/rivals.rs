//! An ADD's rivals: the attachment's own earlier binding, and the holder of its identity. A rival that lives fails the ADD; one
//! whose interface is gone yields.
//!
//! A lease kept for an identity that may return is given back for an ADD that insists on its address, before its DISCOVER. No
//! ADD ends a grace because it waits in vain: in an outage that would cost containers that are known the addresses they need.

use std::net::Ipv4Addr;
use std::path::Path;

use super::admission::{Admission, Admitted, Ready};
use super::seek::Seeking;
use super::tables::Tables;
use crate::binding::{Binding, Hold, Leave, Life, Release, change};
use crate::effect::{Answer, Failure};
use crate::identity::{Identity, Lan};
use crate::link::{Link, LinkCause, LinkView, Step, Target, directory_of};
use crate::outbox::Waiter;
use crate::record::BindingId;
use crate::rules::{Rule, cut};
use crate::source::Wanted;
use crate::time::whole_millis;

/// Settles with an ADD's rivals: the attachment's own earlier binding, and the holder of its identity. A rival
/// that lives fails the ADD; one whose link is gone yields.
pub(super) fn settle(
    admission: &mut Admission,
    tables: &mut Tables,
    seeking: &mut Seeking,
    view: LinkView,
) -> Admitted {
    let now = tables.now;
    let add = &admission.quest.add;
    if add.place.netns().is_none() {
        tables.bindings.note_host(&add.lan, &view);
    }
    let link = admission.link(&view);
    let identity = admission.identity(&view);
    let own = tables.bindings.holder(&add.attachment);
    let rivals = [own, tables.bindings.holders().of(&identity.key())];
    for rival in rivals.into_iter().flatten() {
        let binding = tables.bindings.get(rival);
        let Some(binding) = binding.filter(|binding| binding.is_live()) else {
            continue;
        };
        let is_own = *binding.attachment == add.attachment;
        let same_place = is_own && binding.link.in_netns() == link.in_netns();
        let same = same_place && binding.identity == identity;
        if let Some(lease) = binding.lease(now.boot).filter(|_| same).cloned() {
            if let Some(why) = admission.quest.unfit(lease.ip()) {
                return Admitted::Fails(Failure::Unfit {
                    server: Some(lease.server),
                    address: lease.ip(),
                    why,
                });
            }
            if !Wanted::takes(add.wanted, lease.ip()) {
                return Admitted::Fails(Failure::Attached {
                    attachment: add.attachment.clone(),
                    netns: add.place.netns().map(Path::to_owned),
                });
            }
            tables.with(rival, |life, cx| life.keeps(cx, Hold::route_again));
            // The rival waits for the ADD's interface, not for the one that disappeared.
            seeking.wait(tables, rival);
            return Admitted::Holds(Answer::leased(&lease, &add.profile.policy));
        }
        if same && binding.waits_for_store(now.boot) {
            let waited = whole_millis(now.boot.saturating_since(admission.quest.began));
            let failure = Failure::TimedOut("the store to write the lease", waited);
            return Admitted::Fails(failure);
        }
        if same_place {
            if tables.interfaces.is_changing(view.at()) {
                admission.ready = Ready::AwaitingChange(view);
                return Admitted::Waits;
            }
            let bare = admission.cleared || binding.is_on_host();
            let steps = match bare {
                true => Vec::new(),
                false => binding.leavings(&view.addresses, &tables.interfaces, now.boot),
            };
            if !steps.is_empty() {
                return clear(admission, tables, &link, steps);
            }
            displace(tables, rival, &identity);
            continue;
        }
        // Nobody lives there: what is known about it goes with the attachment.
        if binding.is_on_host() && own == Some(rival) {
            displace(tables, rival, &identity);
            continue;
        }
        // Its interface may exist although it has not been found. A later rival's is still to come.
        if binding.sought().is_some() {
            if rival > admission.latest {
                return Admitted::Fails(held_by(binding, false));
            }
            seeking.seek_for(tables, &add.attachment);
            admission.ready = Ready::AwaitingSearch(rival, view);
            return Admitted::Waits;
        }
        // If a host link is there, that says nothing about the binding's container.
        if binding.is_on_host() || matches!(binding.life, Life::Acquiring(_)) {
            return Admitted::Fails(held_by(binding, true));
        }
        let target = Target::Known(binding.link.clone());
        let op = admission.look(tables, target);
        admission.ready = Ready::AwaitingRival(op, rival, view);
        return Admitted::Waits;
    }
    if tables.interfaces.is_changing(view.at()) {
        admission.ready = Ready::AwaitingChange(view);
        return Admitted::Waits;
    }
    match admission.leavings(&view) {
        steps if steps.is_empty() => Admitted::Claims(view, link, identity),
        steps => clear(admission, tables, &link, steps),
    }
}

/// Goes on after a look at the interface of an ADD's rival.
pub(super) fn seen(
    admission: &mut Admission,
    tables: &mut Tables,
    seeking: &mut Seeking,
    seen: Result<LinkView, LinkCause>,
) -> Admitted {
    let Ready::AwaitingRival(_, rival, view) = &admission.ready else {
        return Admitted::Waits;
    };
    let (rival, view) = (*rival, view.clone());
    let add = &admission.quest.add;
    if let Some(binding) = tables.bindings.get(rival).filter(|it| it.is_live()) {
        let is_own = *binding.attachment == add.attachment;
        let gone = match &seen {
            // Docker creates an endpoint again, and has lost the last one. A dockerd that was killed unmounts the earlier
            // namespaces, leaves their files for a while, and tells nobody.
            Err(cause) if cause.is_unseen() && is_own && add.place.netns().is_none() => true,
            // Our own sockets may keep the namespace of an ended container, to which no path leads, for a moment.
            Err(LinkCause::NoPath(_)) => vouches_for(admission, binding),
            Err(cause) if cause.is_missing() => vouches_for(admission, binding),
            Err(cause) => cause.is_gone(),
            Ok(_) => false,
        };
        if !gone {
            return Admitted::Fails(match binding.link.netns() {
                Some(path) if is_own => Failure::Attached {
                    attachment: add.attachment.clone(),
                    netns: Some(path.to_owned()),
                },
                _ => held_by(binding, seen.is_ok()),
            });
        }
        displace(tables, rival, &admission.identity(&view));
    }
    settle(admission, tables, seeking, view)
}

/// Goes on after a search of the namespaces for the interface of an ADD's rival; `whole`: of every one. If it is nowhere, the
/// rival yields.
pub(super) fn sought(
    admission: &mut Admission,
    tables: &mut Tables,
    seeking: &mut Seeking,
    whole: bool,
) -> Admitted {
    let Ready::AwaitingSearch(rival, view) = &admission.ready else {
        return Admitted::Waits;
    };
    let (rival, view) = (*rival, view.clone());
    let binding = tables.bindings.get(rival);
    if let Some(binding) = binding.filter(|binding| binding.sought().is_some()) {
        if !whole {
            return Admitted::Fails(held_by(binding, false));
        }
        displace(tables, rival, &admission.identity(&view));
    }
    settle(admission, tables, seeking, view)
}

/// Returns whether an ADD's namespace, which was just seen, shows that its rival's, which was not, is gone.
fn vouches_for(admission: &Admission, rival: &Binding) -> bool {
    let seen = admission.quest.add.place.netns().map(directory_of);
    rival.link.netns().map(directory_of) == seen || cut(Rule::Vouches)
}

/// Removes what is left on the interface from before, then looks at it once more.
fn clear(
    admission: &mut Admission,
    tables: &mut Tables,
    link: &Link,
    steps: Vec<Step>,
) -> Admitted {
    let waiter = Waiter::Operation(admission.attachment().clone());
    let op = change(&mut tables.out, &mut tables.interfaces, waiter, link, steps);
    (admission.ready, admission.cleared) = (Ready::Preparing(op), true);
    Admitted::Waits
}

/// Has a held binding stand back: if another takes over its identity, it only waits; else its lease is given back.
fn displace(tables: &mut Tables, rival: BindingId, identity: &Identity) {
    tables.with(rival, |life, cx| {
        let why = if cx.own.identity.key() == identity.key() {
            Leave::Yielded
        } else {
            Leave::Displaced
        };
        life.give_back(why, cx);
    });
    if let Some(attachment) = tables.attachment(rival) {
        tables.bindings.vacate(&attachment, rival);
    }
}

/// Gives back the kept lease with the only acceptable address for an ADD. A kept lease under the ADD's own identity and
/// Ethernet address does not keep its server from giving it.
pub(super) fn unblock(tables: &mut Tables, id: BindingId, address: Ipv4Addr) {
    let Some(identity) = tables.bindings.get(id).map(|binding| &binding.identity) else {
        return;
    };
    let blocks = |other: &&Binding| {
        let is_kept = other.kept_until().is_some() || other.identity.key() == identity.key();
        let has = other
            .lease(tables.now.boot)
            .is_some_and(|lease| lease.ip() == address);
        has && is_kept && other.identity.lan == identity.lan && other.identity != *identity
    };
    let kept = tables.bindings.iter().find(blocks);
    let Some(kept) = kept.map(|binding| binding.id) else {
        return;
    };
    tracing::info!(binding = id.0, kept = kept.0, %address, "giving back a kept lease: its address is requested");
    tables.at_release(kept, Release::make_way);
}

/// Returns how many leases of a LAN are kept for identities that may return.
pub(super) fn kept_on(tables: &Tables, lan: &Lan) -> usize {
    let on_lan = |binding: &&Binding| binding.identity.lan == *lan;
    let kept = tables.bindings.iter().filter(on_lan);
    kept.filter(|binding| binding.kept_until().is_some())
        .count()
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
