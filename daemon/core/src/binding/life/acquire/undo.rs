//! Undoing what an abandoned ADD has asked servers for, or was granted.

use std::net::Ipv4Addr;
use std::ops::ControlFlow::Break;

use super::Acquire;
use crate::binding::common::guard::decline;
use crate::binding::common::tenancy;
use crate::binding::life::release::{Owed, Release};
use crate::binding::{Common, Cx, Leave, Living, Next, Report, SAME};

impl Acquire {
    /// Closes the exchange. What a server was asked to commit is first released or declined on the same sockets, unless another
    /// binding has taken over the identity meanwhile, or has the address.
    pub(super) fn undo_exchange(&mut self, common: &mut Common, cx: &mut Cx<'_>) {
        let own = self.standing(cx.now.boot).claim.map(|claim| claim.address);
        if common.is_held_over(own, cx) {
            return common.close(cx);
        }
        if let Some(lease) = self.client.owed(cx.now.boot) {
            if !tenancy::is_unheld(common, "RELEASE", lease, cx) {
                return common.close(cx);
            }
            self.spoils(common, lease.ip(), cx);
        }
        if !decline::owed(common, &mut self.client, cx) {
            let release = self.client.abort(cx.now.boot);
            common.exchange.send(release.into_iter().collect(), cx.out);
        }
        common.close(cx);
    }

    /// Reports that an address is refused, declined or given back: no later ADD uses a lease of it which this one takes over, even if
    /// no server answers by then.
    pub(super) fn spoils(&self, common: &Common, address: Ipv4Addr, cx: &mut Cx<'_>) {
        let report = Report::Refused(address, self.replaces.clone());
        cx.out.report(common.id, report);
    }

    /// Returns whether a server may hold a lease for this ADD, and neither RELEASE nor DECLINE can go out on the same sockets.
    pub(super) fn owes_unsaid(&self, common: &Common, link_gone: bool, cx: &Cx<'_>) -> bool {
        let mute = !common.exchange.can_send() || link_gone && common.line.is_none();
        mute && !common.held_by_other(cx) && self.client.owed(cx.now.boot).is_some()
    }

    /// Gives back what a server was asked to commit, or has granted, over sockets other than those of the request: like any
    /// other lease, with tries until it would have ended.
    pub(super) fn give_back(
        &mut self,
        common: &mut Common,
        link_gone: bool,
        cx: &mut Cx<'_>,
    ) -> Next {
        let (lease, owed) = match (self.client.lease(), self.client.owed(cx.now.boot)) {
            (Some(lease), _) => (lease.clone(), Owed::Leased),
            (None, Some(asked)) => (asked.clone(), Owed::Asked),
            (None, None) => return SAME,
        };
        common.close(cx);
        let why = if link_gone {
            Leave::LinkGone
        } else {
            Leave::Aborted
        };
        Break(Release::new(lease, owed, why).begun(common, cx))
    }

    /// Gives back a lease that could not be made durable. A write that failed may have been done all the same, so the record is
    /// removed.
    pub(super) fn undo_write(&mut self, common: &mut Common, cx: &mut Cx<'_>) -> Next {
        if self.owes_unsaid(common, false, cx) {
            return self.give_back(common, false, cx);
        }
        self.undo_exchange(common, cx);
        let Some(lease) = self.client.lease().cloned() else {
            return SAME;
        };
        Break(Release::new(lease, Owed::Nothing, Leave::Undone).begun(common, cx))
    }
}
