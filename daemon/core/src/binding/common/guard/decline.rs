//! Declining an address that another station uses (RFC 2131 §3.1 step 5), and how many DECLINEs a LAN may get.

use crate::binding::Cx;
use crate::binding::common::tenancy::is_unheld;
use crate::event::EventKind;
use crate::lan::MOST_DECLINES;
use crate::source::{Client, Lease};
use crate::wire::Mac;

/// Declines what a server was asked to commit, if another station is known to use it and the sockets are still open. Returns
/// whether that is known: if so, nothing must be released.
pub(in crate::binding) fn owed(client: &mut Client, cx: &mut Cx<'_>) -> bool {
    let Some((address, by)) = cx.own.claim() else {
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
    if cx.own.exchange.can_send() && is_unheld("DECLINE", &lease, cx) && declined(&lease, by, cx) {
        cx.own.exchange.send(frame.into_iter().collect(), cx.out);
    }
    true
}

/// Records that a lease is given up because a station uses its address, and counts its DECLINE. Returns whether one may be
/// sent: a LAN has a few in ten minutes, so that a station which claims every address does not empty its pool.
pub(in crate::binding) fn declined(lease: &Lease, by: Mac, cx: &mut Cx<'_>) -> bool {
    let attachment = &cx.own.attachment;
    let address = lease.ip();
    let lan = cx.own.identity.lan.clone();
    let may = cx.lans.decline(&lan, cx.now.boot);
    if may {
        tracing::warn!(%attachment, %address, %by, server = %lease.server, "another station uses the address: declined");
        let cause = format_args!("{by} uses the address");
        cx.note(EventKind::Declined, lease, cause);
    } else {
        tracing::warn!(%attachment, %address, %by, %lan, "another station uses the address; no DECLINE: {MOST_DECLINES} were sent on this LAN in ten minutes");
        let cause = format_args!(
            "{by} uses the address; no DECLINE: {MOST_DECLINES} were sent on {lan} in ten minutes"
        );
        cx.note(EventKind::Lost, lease, cause);
    }
    may
}
