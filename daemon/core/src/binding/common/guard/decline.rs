//! Declining an address that another station uses (RFC 2131 §3.1 step 5), and how many DECLINEs a LAN may get.

use crate::binding::common::tenancy::is_unheld;
use crate::binding::{Common, Cx};
use crate::conflict::lans::MOST_DECLINES;
use crate::event::EventKind;
use crate::source::{Client, Lease};
use crate::wire::Mac;

/// Declines what a server was asked to commit, if another station is known to use it and the sockets are still open. Returns
/// whether that is known: if so, nothing must be released.
pub(in crate::binding) fn owed(common: &mut Common, client: &mut Client, cx: &mut Cx<'_>) -> bool {
    let Some((address, by)) = common.claim() else {
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
    if common.exchange.can_send()
        && is_unheld(common, "DECLINE", &lease, cx)
        && declined(common, &lease, by, cx)
    {
        common.exchange.send(frame.into_iter().collect(), cx.out);
    }
    true
}

/// Records that a lease is given up because a station uses its address, and counts its DECLINE. Returns whether one may be
/// sent: a LAN has a few in ten minutes, so that a station which claims every address does not empty its pool.
pub(in crate::binding) fn declined(
    common: &Common,
    lease: &Lease,
    by: Mac,
    cx: &mut Cx<'_>,
) -> bool {
    let attachment = &common.attachment;
    let address = lease.ip();
    let lan = &common.identity.lan;
    let may = cx.conflicts.decline(lan, cx.now.boot);
    if may {
        tracing::warn!(%attachment, %address, %by, server = %lease.server, "another station uses the address: declined");
        let cause = format_args!("{by} uses the address");
        common.note(EventKind::Declined, lease, cause, cx);
    } else {
        tracing::warn!(%attachment, %address, %by, %lan, "another station uses the address; no DECLINE: {MOST_DECLINES} were sent on this LAN in ten minutes");
        let cause = format_args!(
            "{by} uses the address; no DECLINE: {MOST_DECLINES} were sent on {lan} in ten minutes"
        );
        common.note(EventKind::Lost, lease, cause, cx);
    }
    may
}
