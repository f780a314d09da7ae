//! How a lease comes to be held without an ADD, and how its holding ends.

use std::sync::Arc;

use super::Hold;
use crate::binding::common::persistence::Persistence;
use crate::binding::life::release::LEFT;
use crate::binding::{Common, Cx, Leave, Life, Living, Owed, Release};
use crate::event::EventKind;
use crate::interface::Presence;
use crate::record::Former;
use crate::source::{Client, Lease};

impl Hold {
    /// Goes on with a lease where it was.
    pub(crate) fn resumed(
        common: &mut Common,
        lease: Lease,
        unconfirmed: bool,
        former: Option<Box<Former>>,
        presence: Presence,
        cx: &mut Cx<'_>,
    ) -> Life {
        let lease = Arc::new(lease);
        let client = Client::resume(common.sender(), lease.clone(), cx.now.boot, cx.rng.fork());
        let mut hold = Self::new(client, lease.clone());
        hold.recall(common, former, presence, cx);
        if unconfirmed {
            hold.client.confirm(cx.now.boot);
        }
        common.persistence = Persistence::recovered(lease.clone());
        let lost = hold.client.lease().is_none();
        hold.client.set_station(common.station());
        if lost {
            tracing::warn!(attachment = %common.attachment, address = %lease.address, "lease ended meanwhile: looking for another");
            common.note(
                EventKind::Expired,
                &lease,
                "it ended while no daemon ran",
                cx,
            );
            hold.leaves_lost(common, &lease, false, cx);
            hold.record_again();
        }
        hold.settle(common, cx);
        Life::Held(Box::new(hold))
    }

    /// Goes on looking for a lease after the loss of the previous one.
    pub(crate) fn seeking(
        common: &Common,
        last: Lease,
        former: Option<Box<Former>>,
        presence: Presence,
        cx: &mut Cx<'_>,
    ) -> Life {
        let mut hold = Self::new(
            Client::seek(common.sender(), cx.now.boot, cx.rng.fork()),
            last,
        );
        hold.recall(common, former, presence, cx);
        hold.client.set_station(common.station());
        Life::Held(Box::new(hold))
    }

    /// Records that Docker is told the lease again, which may have another address by now.
    pub(in crate::binding) fn answer_again(&mut self, common: &mut Common, cx: &mut Cx<'_>) {
        if self
            .client
            .shared()
            .is_some_and(|lease| common.answers(&lease))
        {
            self.record_again();
            self.settle(common, cx);
        }
    }

    /// Returns the life that gives back the lease, or whatever a server may hold for the binding.
    pub(in crate::binding) fn give_back(
        &mut self,
        common: &mut Common,
        why: Leave,
        cx: &mut Cx<'_>,
    ) -> Life {
        if self.client.lease().is_none() {
            common.decline_owed(&mut self.client, cx);
        }
        common.end_exchange(cx);
        common.let_guard_decline(cx);
        let (lease, owed) = match (self.client.lease(), self.client.owed(cx.now.boot)) {
            (Some(lease), _) if !lease.source.is_asked() => {
                common.note_gone(EventKind::Released, lease, why.cause(), cx);
                (lease, Owed::Nothing)
            }
            // A network may want its leases to expire.
            (Some(lease), _) if !common.profile.release => {
                common.note_gone(EventKind::Released, lease, LEFT, cx);
                (lease, Owed::Left)
            }
            (Some(lease), _) => (lease, Owed::Leased),
            (None, Some(asked)) => (asked, Owed::Asked),
            (None, None) => (&*self.last, Owed::Nothing),
        };
        let returns = owed == Owed::Leased
            && matches!(
                why,
                Leave::Deleted | Leave::Released | Leave::LinkGone | Leave::Yielded
            );
        let kept = common.grace_from(cx.now.boot).filter(|_| returns);
        let release = Release::new(lease.clone(), owed, why).kept(kept);
        release.begun(common, cx)
    }
}
