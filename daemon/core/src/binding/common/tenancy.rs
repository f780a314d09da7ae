//! An address of a LAN has one live holder (invariant 4): what a binding neither takes nor gives back because another has it.
//!
//! | a server offers the address of a live holder with | then |
//! |---|---|
//! | the same chaddr, or the same server | the offer is refused, the holder renews, DISCOVER leaves again; no DECLINE |
//! | another chaddr, the same server, which does not answer the holder | as below |
//! | another chaddr, from another server | it is taken and declined, and DISCOVER leaves again |
//!
//! In the first case, either the server has forgotten the lease (Kea lost its lease file) and learns about it from the renewal,
//! or it recognises clients by chaddr and keeps offering the address. A DECLINE would make it quarantine an address that is in
//! use: it would refuse the holder's next renewal.
//!
//! In the second case the server has forgotten the lease, and is silent to a client that it does not know (RFC 2131 §4.3.2). No
//! renewal tells it that the address is in use. A DECLINE does, and costs the holder nothing: nobody answers its renewals anyway.
//!
//! In the third case, two servers share a pool without knowing of each other. The second never hears what the holder says to
//! its own server, and would offer the address for ever: it must be told. The DECLINE bears its server identifier, so that no
//! other server obeys it (RFC 2131 §4.3.3), and our chaddr and client identifier, so that it concerns our lease there. If the
//! holder has lost the address by the time of the ACK, the ADD keeps it. In a pair that shares its leases both servers would
//! obey; but such a pair does not offer what it has leased.
//!
//! A container that is being adopted has its address too. It is not known which server granted that, so it is never declined.
//!
//! An address that the host itself has on the LAN's link is not taken either.
//!
//! A RELEASE or a DECLINE of an address that a live binding or the host has is not sent: a server that goes only by chaddr, or
//! by the address, would end the holder's lease.

use std::net::Ipv4Addr;

use crate::binding::holders::{Basis, Claim, Tenant};
use crate::binding::{Common, Cx};
use crate::dhcpv4::lease::Lease;
use crate::dhcpv4::{Client, Output, Signal, Verdict};
use crate::event::EventKind;
use crate::time::Instant;

/// What a server offers or has granted although another binding has it.
pub(in crate::binding) struct Taken {
    pub(in crate::binding) tenant: Tenant,
    pub(in crate::binding) lease: Lease,
    /// Whether the server has granted it.
    pub(in crate::binding) granted: bool,
}

/// Returns the claim on a lease's address.
pub(in crate::binding) fn claim_to(lease: &Lease, granted: bool) -> Claim {
    let basis = if granted {
        Basis::Granted
    } else {
        Basis::Asked
    };
    Claim {
        address: lease.ip(),
        server: lease.server,
        ends: lease.expires(),
        basis,
        in_vain: false,
    }
}

/// Returns the claim on an address that a container was running with.
pub(in crate::binding) fn claim_of_user(address: Ipv4Addr) -> Claim {
    Claim {
        address,
        server: Ipv4Addr::UNSPECIFIED,
        ends: None,
        basis: Basis::Used,
        in_vain: false,
    }
}

/// Returns the claim on the address that a client has, or asks for.
pub(in crate::binding) fn claim_of(client: &Client, now: Instant) -> Option<Claim> {
    let asked = client
        .requesting()
        .and_then(|_| client.owed(now))
        .map(|lease| claim_to(lease, false));
    let held = client.lease().map(|lease| Claim {
        in_vain: client.unextended(now).is_some(),
        ..claim_to(lease, true)
    });
    held.or(asked)
}

impl Common {
    /// Returns who else has an address of the LAN.
    pub(in crate::binding) fn tenant(&self, address: Ipv4Addr, cx: &Cx<'_>) -> Option<Tenant> {
        cx.holders
            .tenant(&self.identity.lan, address, self.id, cx.now.boot)
    }

    /// Returns the address of another holder that a server gives: an offer that is about to be requested, or a lease.
    /// `used`: the binding's own address.
    pub(in crate::binding) fn taken(
        &self,
        client: &Client,
        output: &Output,
        used: Option<Ipv4Addr>,
        cx: &Cx<'_>,
    ) -> Option<Taken> {
        let (lease, granted) = self.given(client, output, used, cx.now.boot)?;
        let tenant = self.tenant(lease.ip(), cx)?;
        Some(Taken {
            tenant,
            lease: lease.clone(),
            granted,
        })
    }

    /// Returns what a server gives, and whether it has granted that: an offer that is about to be requested, or a lease.
    pub(in crate::binding) fn given<'a>(
        &self,
        client: &'a Client,
        output: &'a Output,
        used: Option<Ipv4Addr>,
        now: Instant,
    ) -> Option<(&'a Lease, bool)> {
        match (&output.verdict, client.requesting()) {
            (Some(Verdict::Won(lease) | Verdict::Kept(lease)), _) if used != Some(lease.ip()) => {
                Some((&**lease, true))
            }
            (None, Some((_, false))) if !output.frames.is_empty() => {
                Some((client.owed(now)?, false))
            }
            (Some(_) | None, _) => None,
        }
    }

    /// Keeps an offer that was to be declined after its ACK, if nobody else here has its address any more.
    pub(in crate::binding) fn keep_if_free(&self, client: &mut Client, cx: &Cx<'_>) {
        if let Some((address, true)) = client.requesting()
            && self.tenant(address, cx).is_none()
        {
            client.is_taken_here_no_more();
        }
    }

    /// Returns whether the server that gives it cannot know about the holder's lease.
    pub(in crate::binding) fn is_foreign(&self, taken: &Taken) -> bool {
        self.is_strange_to(taken.lease.server, &taken.tenant)
    }

    /// Returns whether a server cannot know about a holder's lease.
    fn is_strange_to(&self, server: Ipv4Addr, tenant: &Tenant) -> bool {
        let is_unknown = |granted_by| granted_by != server || tenant.in_vain;
        tenant.chaddr != self.identity.chaddr && tenant.server.is_some_and(is_unknown)
    }

    pub(in crate::binding) fn tell_taken(&mut self, taken: &Taken, cx: &mut Cx<'_>) {
        let (
            Taken {
                tenant,
                lease,
                granted,
            },
            attachment,
        ) = (taken, &self.attachment);
        let holder = &tenant.who;
        tracing::debug!(%attachment, address = %lease.ip(), server = %lease.server, %holder, granted, "not taken: another attachment has it");
        let cause = format!("not taken from server {}: {holder} has it", lease.server);
        if self.warnings.is_new(&format!("{} {cause}", lease.ip())) {
            tracing::warn!(attachment = %self.attachment, address = %lease.ip(), server = %lease.server, %holder, "not taken: another attachment has it");
            self.note(EventKind::AddressHeld, lease, cause, cx);
        }
    }

    /// Returns whether a lease may be declined: nobody else here has its address, or only a holder that its server cannot
    /// know about.
    pub(in crate::binding) fn may_decline(&self, lease: &Lease, cx: &mut Cx<'_>) -> bool {
        let Some(tenant) = self.tenant(lease.ip(), cx) else {
            return true;
        };
        if self.is_strange_to(lease.server, &tenant) {
            return true;
        }
        self.tell_unsent("DECLINE", lease, &tenant, cx);
        false
    }

    /// Returns whether a lease that an ADD gives up may be released: nobody else here has its address.
    pub(in crate::binding) fn may_release(&self, lease: &Lease, cx: &mut Cx<'_>) -> bool {
        let Some(tenant) = self.tenant(lease.ip(), cx) else {
            return true;
        };
        self.tell_unsent("RELEASE", lease, &tenant, cx);
        false
    }

    fn tell_unsent(&self, what: &str, lease: &Lease, tenant: &Tenant, cx: &mut Cx<'_>) {
        let (attachment, holder) = (&self.attachment, &tenant.who);
        tracing::info!(%attachment, address = %lease.ip(), %holder, "no {what}: another attachment has the address");
        self.note(
            EventKind::AddressHeld,
            lease,
            format_args!("no {what} sent: {holder} has the address"),
            cx,
        );
    }

    /// Returns whether another binding with the same chaddr is asking for an address: a RELEASE might cross its REQUEST.
    pub(in crate::binding) fn is_asked_for(&self, address: Ipv4Addr, cx: &Cx<'_>) -> bool {
        cx.holders
            .is_asked_for(&self.identity.lan, address, self.identity.chaddr, self.id)
    }
}

/// Declines a lease at once, or an offer after its ACK: its server cannot learn about the holder in another way.
pub(in crate::binding) fn decline_foreign(
    client: &mut Client,
    taken: &Taken,
    output: &mut Output,
    now: Instant,
) {
    let by = taken.tenant.chaddr;
    if !taken.granted {
        return client.is_taken_here(by);
    }
    let Output {
        frames,
        verdict,
        listen,
        ..
    } = client.handle(now, Signal::Conflict { by });
    output.frames.extend(frames);
    (output.verdict, output.listen) = (verdict, listen);
}
