//! What an attachment can be doing: one operation at a time (invariant 2), and how far it is.
//!
//! Values only. What an ADD does next is in `add`, what a CHECK does in `check`.

use std::time::Duration;

use ipnet::Ipv4Net;

use super::check::Check;
use crate::binding::Quest;
use crate::effect::{Failure, OpId, RequestId};
use crate::identity::Identity;
use crate::interface::without;
use crate::link::{Link, LinkCause, LinkView, Step, Target};
use crate::record::BindingId;
use crate::time::{Instant, whole_millis};

/// How long a call waits before it checks again whether a host link has carrier, or another link still has its Ethernet address.
pub(crate) const CARRIER_PAUSE: Duration = Duration::from_secs(1);

/// What an attachment is doing.
#[derive(Debug)]
pub(super) enum Operation {
    /// An ADD whose link is being made ready.
    Adding(Box<Admission>),
    /// An ADD whose binding is acquiring.
    Acquiring(RequestId, BindingId),
    /// An abandoned ADD, whose binding is cleaning up.
    Ending(BindingId),
    /// A DEL, or several.
    Deleting(Vec<RequestId>, BindingId),
    /// A CHECK that looks at the link.
    Checking(Box<Check>),
}

impl Operation {
    /// Returns the look at a link that is under way for it.
    pub(super) fn op(&self) -> Option<OpId> {
        match self {
            Self::Adding(admission) => admission.op(),
            Self::Checking(check) => check.op(),
            Self::Acquiring(..) | Self::Ending(_) | Self::Deleting(..) => None,
        }
    }
}

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
    AwaitingRival(OpId, LinkView),
    /// All namespaces are looked through for the interface of a rival.
    AwaitingSearch(BindingId, LinkView),
    /// The interface is being changed for an earlier binding. A late change for that one would undo what the main plugin puts
    /// there.
    AwaitingChange(LinkView),
}

impl Admission {
    pub(super) fn new(request: RequestId, quest: Quest, latest: BindingId, ready: Ready) -> Self {
        Self {
            request,
            target: quest.add.place.target(),
            quest,
            latest,
            ready,
            cleared: false,
            ran_with: None,
        }
    }

    fn op(&self) -> Option<OpId> {
        match &self.ready {
            Ready::Preparing(op) | Ready::AwaitingRival(op, _) => Some(*op),
            Ready::AwaitingCarrier { look, .. } => *look,
            Ready::AwaitingAddress(_) | Ready::AwaitingSearch(..) | Ready::AwaitingChange(_) => {
                None
            }
        }
    }

    /// Returns the link without carrier that it waits for.
    pub(super) fn waits_for_carrier(&self) -> Option<&LinkView> {
        match &self.ready {
            Ready::AwaitingCarrier { view, .. } => Some(view),
            _ => None,
        }
    }

    /// Returns whether frames sent over the link, as it was found, get out.
    pub(super) fn has_carrier(&self, view: &LinkView) -> bool {
        self.quest.add.place.has_carrier(view)
    }

    /// Returns whether an interface lacks the address that its container should be adopted with. KubeVirt moves
    /// the address away, and leaves a stand-in under the old name.
    pub(super) fn lacks_address(&self, view: &LinkView) -> Option<Ipv4Net> {
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
