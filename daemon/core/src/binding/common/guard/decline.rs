//! Declining an address that another station uses (RFC 2131 §3.1 step 5): when the DECLINE leaves, and how many a LAN may get.

use crate::binding::{Common, Cx};
use crate::conflict::lans::MOST_DECLINES;
use crate::event::EventKind;
use crate::source::{Client, Lease};
use crate::wire::Mac;

impl Common {
    /// Keeps the DECLINE of a lease that was just lost until the store has recorded the loss.
    pub(in crate::binding) fn decline_later(&mut self, lease: Lease, frames: Vec<Vec<u8>>) {
        if let Some(guard) = self.guard.as_mut().filter(|_| !frames.is_empty()) {
            guard.decline = Some(Box::new((lease, frames)));
        }
    }

    /// Stops watching, unless a DECLINE waits for the store.
    pub(in crate::binding) fn let_guard_decline(&mut self, cx: &mut Cx<'_>) {
        if self
            .guard
            .as_ref()
            .is_some_and(|guard| guard.decline.is_none())
        {
            self.close_guard(cx);
        }
    }

    /// Records that a write begins which records the loss that a DECLINE waits for.
    pub(in crate::binding) fn recording_loss(&mut self) {
        if let Some(guard) = &mut self.guard {
            guard.recording = guard.decline.is_some();
        }
    }

    /// Sends the DECLINE that waited for this write: the store has recorded the loss, or has failed.
    pub(in crate::binding) fn loss_recorded(&mut self, cx: &mut Cx<'_>) {
        if self.guard.as_ref().is_some_and(|guard| guard.recording) {
            self.close_guard(cx);
        }
    }

    /// Declines what a server was asked to commit, if another station is known to use it and the sockets are still open. Returns
    /// whether that is known: if so, nothing must be released.
    pub(in crate::binding) fn decline_owed(
        &mut self,
        client: &mut Client,
        cx: &mut Cx<'_>,
    ) -> bool {
        let Some((address, by)) = self.claim() else {
            return false;
        };
        let Some(lease) = client
            .owed(cx.now.boot)
            .filter(|lease| lease.ip() == address)
            .cloned()
        else {
            return false;
        };
        let frame = client.abort_in_conflict(cx.now.boot);
        if self.exchange.can_send()
            && self.is_declinable(&lease, cx)
            && self.declined(&lease, by, cx)
        {
            self.exchange.send(frame.into_iter().collect(), cx.out);
        }
        true
    }

    /// Records that a lease is given up because a station uses its address, and counts its DECLINE. Returns whether one may be
    /// sent: a LAN has a few in ten minutes, so that a station which claims every address does not empty its pool.
    pub(in crate::binding) fn declined(&mut self, lease: &Lease, by: Mac, cx: &mut Cx<'_>) -> bool {
        let attachment = &self.attachment;
        let address = lease.ip();
        let lan = &self.identity.lan;
        let may = cx.conflicts.decline(lan, cx.now.boot);
        if may {
            tracing::warn!(%attachment, %address, %by, server = %lease.server, "another station uses the address: declined");
            let cause = format_args!("{by} uses the address");
            self.note(EventKind::Declined, lease, cause, cx);
        } else {
            tracing::warn!(%attachment, %address, %by, %lan, "another station uses the address; no DECLINE: {MOST_DECLINES} were sent on this LAN in ten minutes");
            let cause = format_args!(
                "{by} uses the address; no DECLINE: {MOST_DECLINES} were sent on {lan} in ten minutes"
            );
            self.note(EventKind::Lost, lease, cause, cx);
        }
        may
    }
}
