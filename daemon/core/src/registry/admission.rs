//! An ADD until it has a binding: its link is set up and looked at, and has carrier. Then it settles with its rivals.

use ipnet::Ipv4Net;

use super::pacing::Pacing;
use super::tables::Tables;
use super::timers::Key;
use crate::binding::Quest;
use crate::effect::{Add, Adoptee, Answer, Failure, OpId, RequestId, Why};
use crate::identity::{Attachment, Identity};
use crate::interface::{At, without};
use crate::link::{Cookie, Link, LinkCause, LinkView, Place, Step, Target};
use crate::outbox::{Outbox, Waiter};
use crate::patience::LINK_DOWN;
use crate::record::BindingId;
use crate::rules::{Rule, cut};
use crate::source::Wanted;
use crate::time::{Instant, whole_millis};

/// An ADD before it has a binding.
#[derive(Debug)]
pub(super) struct Admission {
    pub(super) request: RequestId,
    pub(super) quest: Quest,
    /// Its interface.
    pub(super) target: Target,
    /// The last binding that was there when it began.
    pub(super) latest: BindingId,
    pub(super) ready: Ready,
    /// Whether what the attachment had on the interface before has been taken off.
    pub(super) cleared: bool,
    /// The address that the interface may have already, of a container that could not be adopted.
    pub(super) ran_with: Option<Ipv4Net>,
}

/// What becomes of an ADD that has no binding yet.
#[derive(Debug)]
pub(super) enum Admitted {
    /// It waits.
    Waits,
    /// Its interface is ready: it settles with its rivals.
    Prepared(LinkView),
    /// It fails.
    Fails(Failure),
    /// It is answered: its attachment has what it asks for.
    Holds(Answer),
    /// It takes its identity, on this interface.
    Claims(LinkView, Link, Identity),
}

/// How far an ADD's link is.
#[derive(Debug)]
pub(super) enum Ready {
    /// It is being set up and looked at.
    Preparing(OpId),
    /// It could not be set up: another interface has its Ethernet address, perhaps one that is about to disappear.
    AwaitingAddress(LinkCause),
    /// It is up, without carrier.
    AwaitingCarrier {
        /// As it was found.
        view: LinkView,
        /// The look at it under way.
        look: Option<OpId>,
        /// Whether the kernel has reported something since that look was asked for: then another must follow.
        news: bool,
    },
    /// A rival's link is looked at: does it live?
    AwaitingRival(OpId, BindingId, LinkView),
    /// All namespaces are looked through for the interface of a rival.
    AwaitingSearch(BindingId, LinkView),
    /// The interface is being changed for an earlier binding. A late change for that one would undo what the main plugin puts
    /// there.
    AwaitingChange(LinkView),
}

impl Admission {
    /// Begins an ADD: its link is set up and looked at. Its container may have run with an address already.
    pub(super) fn begin(
        tables: &mut Tables,
        permits: &Pacing,
        request: RequestId,
        mut add: Box<Add>,
        began: Instant,
        ran_with: Option<Ipv4Net>,
    ) -> Self {
        let same = ran_with.map(|net| Wanted {
            address: net.addr(),
            preferred: true,
        });
        add.wanted = add.wanted.or(same);
        Self {
            request,
            target: add.place.target(),
            latest: tables.bindings.latest(),
            ready: Ready::Preparing(prepare(&mut tables.out, permits, &add)),
            quest: Quest::new(add, began),
            cleared: false,
            ran_with,
        }
    }

    /// Begins the ADD of a container that runs already: its link is looked at, not changed.
    pub(super) fn adopt(
        tables: &mut Tables,
        request: RequestId,
        adoptee: Adoptee,
        began: Instant,
    ) -> Self {
        let Adoptee { add, address, mac } = adoptee;
        let target = match (add.place.target(), mac) {
            (Target::Named(at), Some(mac)) => Target::OfServer(at, mac),
            (target, _) => target,
        };
        let waiter = Waiter::Operation(add.attachment.clone());
        Self {
            request,
            latest: tables.bindings.latest(),
            ready: Ready::Preparing(tables.out.inspect(waiter, target.clone())),
            target,
            quest: Quest {
                adopts: Some(address),
                ..Quest::new(add, began)
            },
            cleared: false,
            ran_with: None,
        }
    }

    pub(super) fn attachment(&self) -> &Attachment {
        &self.quest.add.attachment
    }

    /// Looks at its interface.
    pub(super) fn look(&self, tables: &mut Tables, target: Target) -> OpId {
        let waiter = Waiter::Operation(self.attachment().clone());
        tables.out.inspect(waiter, target)
    }

    /// Handles what was seen at its interface.
    pub(super) fn prepared(
        &mut self,
        tables: &mut Tables,
        permits: &Pacing,
        view: Result<LinkView, LinkCause>,
    ) -> Admitted {
        let now = tables.now;
        if let Ok(view) = &view
            && let Some(wire) = &view.wire
        {
            let lan = &mut self.quest.add.lan;
            *lan = wire.lan(lan);
        }
        match view {
            Err(cause @ LinkCause::MacTaken(_)) if !cut(Rule::MacTaken) => {
                self.ready = Ready::AwaitingAddress(cause);
                // Usually the other link is in a dead namespace that the kernel is removing.
                let at = now.boot + LINK_DOWN / 20;
                tables.timers.set_no_later(Key::Look, (at, Why::Call));
            }
            Err(cause) => return Admitted::Fails(self.link_failure(cause)),
            Ok(view) if let Some(address) = self.lacks_address(&view) => {
                return Admitted::Fails(Failure::NotOnLink {
                    attachment: self.attachment().clone(),
                    address,
                    ifname: view.ifname,
                });
            }
            Ok(view) if !self.quest.add.place.has_carrier(&view) => {
                // Carrier may have come since the look; from now on the kernel reports it.
                let again = matches!(
                    self.ready,
                    Ready::Preparing(_) | Ready::AwaitingCarrier { news: true, .. }
                );
                self.ready = Ready::AwaitingCarrier {
                    view,
                    look: None,
                    news: false,
                };
                if self.is_on_host() {
                    let at = now.boot + LINK_DOWN;
                    tables.timers.set_no_later(Key::Look, (at, Why::Call));
                } else if again {
                    self.look_for_carrier(tables, permits);
                }
            }
            Ok(view) => {
                if view.was_down || matches!(self.ready, Ready::AwaitingCarrier { .. }) {
                    self.quest.came_up = Some(now.boot);
                }
                return Admitted::Prepared(view);
            }
        }
        Admitted::Waits
    }

    /// Looks again at what it waits for and the kernel does not report here: the carrier of the host's link, and an Ethernet
    /// address that another link has.
    pub(super) fn on_clock(&mut self, tables: &mut Tables, permits: &Pacing) {
        if self.is_on_host() {
            self.look_for_carrier(tables, permits);
        }
        if let Ready::AwaitingAddress(_) = self.ready {
            self.ready = Ready::Preparing(prepare(&mut tables.out, permits, &self.quest.add));
        }
    }

    /// Looks again at the link if it waits for carrier. One look at a time: there may have been news since it began.
    pub(super) fn look_for_carrier(&mut self, tables: &mut Tables, permits: &Pacing) {
        let Ready::AwaitingCarrier { look, news, .. } = &mut self.ready else {
            return;
        };
        if look.is_some() {
            *news = true;
            return;
        }
        let add = &self.quest.add;
        *look = Some(match self.quest.adopts {
            Some(_) => {
                let waiter = Waiter::Operation(add.attachment.clone());
                tables.out.inspect(waiter, self.target.clone())
            }
            None => prepare(&mut tables.out, permits, add),
        });
    }

    /// Looks at the interface if it waited for a change of it to end.
    pub(super) fn change_ended(&mut self, tables: &mut Tables, at: At) {
        // A later ADD may wait for another interface.
        if let Ready::AwaitingChange(view) = &self.ready
            && view.at() == at
        {
            self.ready = Ready::Preparing(self.look(tables, self.target.clone()));
        }
    }

    /// Returns whether its interface is a link of the host.
    pub(super) fn is_on_host(&self) -> bool {
        matches!(self.quest.add.place, Place::Parent { .. })
    }

    pub(super) fn op(&self) -> Option<OpId> {
        match &self.ready {
            Ready::Preparing(op) | Ready::AwaitingRival(op, ..) => Some(*op),
            Ready::AwaitingCarrier { look, .. } => *look,
            Ready::AwaitingAddress(_) | Ready::AwaitingSearch(..) | Ready::AwaitingChange(_) => {
                None
            }
        }
    }

    /// Returns whether it waits for carrier of a link of a namespace, or of any.
    pub(super) fn waits_for_carrier(&self, cookie: Cookie, ifindex: Option<u32>) -> bool {
        let Ready::AwaitingCarrier { view, .. } = &self.ready else {
            return false;
        };
        let at = view.at();
        at.0 == cookie && ifindex.is_none_or(|index| index == at.1)
    }

    /// Returns whether an interface lacks the address that its container should be adopted with. KubeVirt moves
    /// the address away, and leaves a stand-in under the old name.
    fn lacks_address(&self, view: &LinkView) -> Option<Ipv4Net> {
        let is_replaced =
            matches!(&self.target, Target::OfServer(at, _) if at.ifname != view.ifname);
        self.quest
            .adopts
            .filter(|address| !view.addresses.contains(&(*address).into()) && !is_replaced)
    }

    pub(super) fn link_failure(&self, cause: LinkCause) -> Failure {
        Failure::Link {
            target: self.target.to_string(),
            cause,
        }
    }

    /// Returns why there is no binding when time is up.
    pub(super) fn timed_out(&self, now: Instant) -> Failure {
        let waited = whole_millis(now.saturating_since(self.quest.began));
        match &self.ready {
            Ready::AwaitingCarrier { view, .. } => Failure::NoCarrier {
                ifname: view.ifname.clone(),
                waited,
            },
            Ready::AwaitingAddress(cause) => self.link_failure(cause.clone()),
            Ready::Preparing(_) => Failure::TimedOut("the interface to be set up", waited),
            Ready::AwaitingRival(..) | Ready::AwaitingSearch(..) => {
                Failure::TimedOut("a look at the identity's holder", waited)
            }
            Ready::AwaitingChange(_) => {
                Failure::TimedOut("an earlier change of the interface to end", waited)
            }
        }
    }

    pub(super) fn link(&self, view: &LinkView) -> Link {
        self.quest.add.place.link(view, &self.quest.add.lan)
    }

    /// Returns the steps that remove from the interface an address that its container already ran with, if nobody holds it.
    pub(super) fn leavings(&self, view: &LinkView) -> Vec<Step> {
        let there = self.ran_with.filter(|_| !self.cleared);
        there
            .map(|address| {
                without(
                    address.into(),
                    &view.addresses,
                    &self.quest.add.profile.policy,
                )
            })
            .unwrap_or_default()
    }

    pub(super) fn identity(&self, view: &LinkView) -> Identity {
        let chaddr = self.quest.add.chaddr.unwrap_or(self.link(view).mac());
        Identity {
            lan: self.quest.add.lan.clone(),
            client_id: self.quest.add.client_id.resolve(chaddr),
            chaddr,
        }
    }
}

/// Sets the link of an ADD up and looks at it.
fn prepare(out: &mut Outbox, pacing: &Pacing, add: &Add) -> OpId {
    let waiter = Waiter::Operation(add.attachment.clone());
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
