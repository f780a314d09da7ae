//! An address of a LAN has one live holder (invariant 4): what a binding neither takes nor gives back because another has it.
//!
//! A server that offers the address of a live holder has its offer refused: the holder renews, if a server granted its address,
//! and DISCOVER leaves again. An ADD that gets nothing else fails, and names the server and the holder. Either the server has
//! forgotten the lease (Kea lost its lease file) and learns about it from the renewal, or it recognises clients by chaddr, or it
//! shares its pool with another server without knowing of it. It gets no DECLINE: that would make it quarantine an address that
//! is in use, and refuse the holder's next renewal.
//!
//! A container that is being adopted has its address too, and so has the host what is on the LAN's link.
//!
//! A RELEASE or a DECLINE of an address that a live binding or the host has is not sent: a server that goes only by chaddr, or
//! by the address, would end the holder's lease.

use std::net::Ipv4Addr;

use crate::binding::Cx;
use crate::binding::holders::{Basis, Claim, Tenant};
use crate::event::EventKind;
use crate::source::{Client, Lease, Loss, Output, Verdict};
use crate::time::Instant;

/// Returns the claim on a lease's address.
pub(in crate::binding) fn claim_to(lease: &Lease, granted: bool) -> Claim {
    let basis = if granted {
        Basis::Granted
    } else {
        Basis::Asked
    };
    Claim {
        address: lease.ip(),
        ends: lease.expires(),
        basis,
    }
}

/// Returns the claim on an address that a container was running with.
pub(in crate::binding) fn claim_of_user(address: Ipv4Addr) -> Claim {
    Claim {
        address,
        ends: None,
        basis: Basis::Used,
    }
}

/// Returns the claim on the address that a client has, or asks for.
pub(in crate::binding) fn claim_of(client: &Client, now: Instant) -> Option<Claim> {
    let asked = client
        .requesting()
        .and_then(|_| client.owed(now))
        .map(|lease| claim_to(lease, false));
    let held = client.lease().map(|lease| claim_to(lease, true));
    held.or(asked)
}

/// Returns who else has an address of the LAN.
pub(in crate::binding) fn tenant(address: Ipv4Addr, cx: &Cx<'_>) -> Option<Tenant> {
    cx.holders
        .tenant(&cx.own.identity.lan, address, cx.own.id, cx.now.boot)
}

/// Returns what a server gives, and whether it has granted that: an offer that is about to be requested, or a lease. `used`: the
/// address that the binding has already, which is not given anew.
pub(in crate::binding) fn given<'a>(
    client: &'a Client,
    output: &'a Output,
    used: Option<Ipv4Addr>,
    now: Instant,
) -> Option<(&'a Lease, bool)> {
    match (&output.verdict, client.requesting()) {
        (Some(Verdict::Granted(lease)), _) if used != Some(lease.ip()) => Some((&**lease, true)),
        (None, Some((_, false))) if !output.frames.is_empty() => Some((client.owed(now)?, false)),
        (Some(_) | None, _) => None,
    }
}

/// Reports that a server's address is another holder's; once for each server and holder.
pub(in crate::binding) fn tell_taken(tenant: &Tenant, lease: &Lease, cx: &mut Cx<'_>) {
    let attachment = &cx.own.attachment;
    let holder = &tenant.who;
    let cause = format!("not taken from server {}: {holder} has it", lease.server);
    if cx.own.warnings.is_new(&format!("{} {cause}", lease.ip())) {
        tracing::warn!(%attachment, address = %lease.ip(), server = %lease.server, %holder, "not taken: another attachment has it");
        cx.note(EventKind::AddressHeld, lease, cause);
    }
}

/// Takes a DECLINE out of what a client sends, unless it may leave now: nobody else here has the address, and the LAN has not had its
/// DECLINEs.
pub(in crate::binding) fn limit_declines(output: &mut Output, cx: &mut Cx<'_>) {
    if let Some(Verdict::Lost(lease, Loss::Conflict { .. })) = &output.verdict {
        let may = cx.lans.may_decline(&cx.own.identity.lan, cx.now.boot)
            && is_unheld("DECLINE", lease, cx);
        if !may {
            output.frames.clear();
        }
    }
}

/// Returns whether nobody else here has a lease's address, so that `what`, a DECLINE or a RELEASE, may be sent.
pub(in crate::binding) fn is_unheld(what: &str, lease: &Lease, cx: &mut Cx<'_>) -> bool {
    let Some(tenant) = tenant(lease.ip(), cx) else {
        return true;
    };
    let attachment = &cx.own.attachment;
    let holder = &tenant.who;
    tracing::info!(%attachment, address = %lease.ip(), %holder, "no {what}: another attachment has the address");
    let cause = format_args!("no {what} sent: {holder} has the address");
    cx.note(EventKind::AddressHeld, lease, cause);
    false
}
