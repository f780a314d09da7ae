//! Undoing what an ADD has asked servers for, or was granted, when it is given up.

use crate::binding::release::{Owed, Release};
use crate::binding::{Binding, Cx, Leave, Life, Report};
use crate::dhcpv4::lease::Lease;

impl Binding {
    /// Closes the exchange. What a server was asked to commit is released or declined first, on the same sockets, unless
    /// another binding has taken the identity over meanwhile, or has the address.
    pub(super) fn undo_exchange(&mut self, cx: &mut Cx<'_>) {
        if self.is_held_over(cx) {
            return self.close(cx);
        }
        let Life::Acquiring(acquire) = &self.life else { return };
        let owed = acquire.client.owed(cx.now.boot).cloned();
        if let Some(lease) = &owed
            && !self.may_release(lease, cx)
        {
            return self.close(cx);
        }
        let Life::Acquiring(acquire) = &mut self.life else { return };
        let owed = owed.as_ref();
        if let Some(address) = owed.map(Lease::ip).filter(|_| self.exchange.can_send()) {
            // What this ADD had taken over went back with it.
            cx.out.report(self.id, Report::Undone(address, acquire.replaces.clone()));
        }
        if !self.decline_owed(cx) {
            let Life::Acquiring(acquire) = &mut self.life else { return };
            let release = acquire.client.abort(cx.now.boot);
            self.exchange.send(release.into_iter().collect(), cx);
        }
        self.close(cx);
    }

    /// Tells whether a server may hold a lease for this ADD, and no RELEASE can go out on the same sockets.
    pub(super) fn owes_unsaid(&self, link_gone: bool, cx: &Cx<'_>) -> bool {
        let Life::Acquiring(acquire) = &self.life else { return false };
        let mute = !self.exchange.can_send() || link_gone && self.parent.is_none();
        let owed = acquire.client.owed(cx.now.boot).map(Lease::ip);
        mute && !self.held_by_other(cx) && owed.is_some_and(|address| self.conflict_over(address).is_none())
    }

    /// Gives back what a server was asked to commit, or has granted, by another way than the sockets over which it was asked:
    /// like any other lease, until it would have ended.
    pub(super) fn give_back_unsaid(&mut self, link_gone: bool, cx: &mut Cx<'_>) {
        let Life::Acquiring(acquire) = &mut self.life else { return };
        let Some(lease) = acquire.client.owed(cx.now.boot).cloned() else { return };
        let owed = if acquire.client.lease().is_some() { Owed::Leased } else { Owed::Asked };
        // What this ADD had taken over goes back with it.
        cx.out.report(self.id, Report::Undone(lease.ip(), std::mem::take(&mut acquire.replaces)));
        self.close(cx);
        let why = if link_gone { Leave::LinkGone } else { Leave::Aborted };
        self.life = Life::Releasing(Box::new(Release::new(lease, owed, why)));
        self.release_begin(cx);
    }

    /// Gives a lease back that could not be made durable. A write that failed may have been done all the same, so the
    /// record is removed.
    pub(super) fn undo_write(&mut self, cx: &mut Cx<'_>) {
        if self.owes_unsaid(false, cx) {
            return self.give_back_unsaid(false, cx);
        }
        self.undo_exchange(cx);
        let Life::Acquiring(acquire) = &self.life else { return };
        let Some(lease) = acquire.client.lease().cloned() else { return };
        self.life = Life::Releasing(Box::new(Release::new(lease, Owed::Nothing, Leave::Undone)));
        self.release_begin(cx);
    }

    /// Gives a durable lease back that nobody wants any more.
    pub(super) fn give_back_won(&mut self, cx: &mut Cx<'_>) {
        let Life::Acquiring(acquire) = &self.life else { return };
        let Some(lease) = acquire.client.lease().cloned() else { return };
        self.close(cx);
        self.life = Life::Releasing(Box::new(Release::new(lease, Owed::Leased, Leave::Aborted)));
        self.release_begin(cx);
    }
}
