//! An address of a LAN has one live holder (invariant 4): what a binding neither takes nor gives back because it is another's.
//!
//! | a server offers the address of a live holder with | then |
//! |---|---|
//! | the same chaddr, or the same server | the offer is refused, the holder renews, DISCOVER leaves again; no DECLINE |
//! | another chaddr, of another server | it is taken and declined, and DISCOVER leaves again |
//!
//! The first is a server that has forgotten the lease (Kea lost its lease file), and learns of it by the renewal; or one that
//! knows its clients by chaddr, which goes on offering the address. A DECLINE would have it quarantine an address that is well
//! in use: the holder's next renewal would be refused.
//!
//! The second are two servers with one pool that do not know of each other. What the holder says to its own this one never
//! hears, and it would offer the address for ever: it has to be told. The DECLINE bears its server identifier, so that no other
//! server takes it for its own (RFC 2131 §4.3.3), and our chaddr and client identifier, so that it is about our lease there.
//! Of a pair that shares its leases both would obey; but such a pair does not offer what it has leased.
//!
//! A RELEASE or a DECLINE of an address that a live binding has is not sent: a server that goes by chaddr, or by the address
//! alone, would end that one's lease.

use std::net::Ipv4Addr;
use std::time::Duration;

use super::acquire::Refused;
use super::holders::{Claim, Stand, Standing, Tenant};
use super::release::Owed;
use super::{Abort, Binding, Cx, Life, Report, Stage};
use crate::dhcpv4::lease::Lease;
use crate::dhcpv4::{Client, Event, Loss, Output, Verdict};
use crate::event::EventKind;
use crate::time::Instant;

/// What a server offers or has granted although another binding has it.
struct Taken {
    tenant: Tenant,
    lease: Lease,
    granted: bool,
}

impl Taken {
    /// Returns whether a server would give it that cannot know of the holder's lease.
    fn is_foreign(&self, binding: &Binding) -> bool {
        self.tenant.chaddr != binding.identity.chaddr && self.tenant.server != self.lease.server
    }
}

impl Binding {
    /// Returns how the binding stands to its identity, and to its address.
    pub(super) fn standing(&self, now: Instant) -> Standing {
        let claim = |lease: &Lease, granted| {
            let (address, server, ends) = (lease.ip(), lease.server, lease.expires());
            Claim { address, server, ends, granted }
        };
        let of_client = |client: &Client| {
            let asked = client.requesting().and_then(|_| client.owed(now)).map(|lease| claim(lease, false));
            client.lease().map(|lease| claim(lease, true)).or(asked)
        };
        match &self.life {
            Life::Acquiring(acquire) => Standing {
                stage: if acquire.is_wanted() { Stand::Acquiring } else { Stand::Leaving },
                claim: of_client(&acquire.client).filter(|_| acquire.stage != Stage::Over),
            },
            Life::Held(hold) => Standing { stage: Stand::Held, claim: of_client(&hold.client) },
            Life::Releasing(release) => Standing {
                stage: Stand::Leaving,
                claim: (!release.owed.is_nothing()).then(|| claim(&release.lease, release.owed == Owed::Leased)),
            },
        }
    }

    /// Returns who else has an address of the LAN.
    fn tenant(&self, address: Ipv4Addr, cx: &Cx<'_>) -> Option<Tenant> {
        cx.holders.tenant(&self.identity.lan, address, self.id, cx.now.boot)
    }

    /// Returns whether another live binding has the identity, and with it this binding's address, or may come to it. One that
    /// has another address is no reason to keep this one.
    pub(super) fn is_held_over(&self, cx: &Cx<'_>) -> bool {
        let Some(holder) = cx.holders.of(&self.identity.key()).filter(|holder| *holder != self.id) else {
            return false;
        };
        let held = cx.holders.standing(holder).filter(|standing| standing.stage == Stand::Held);
        let has = held.and_then(|standing| standing.claim).filter(|claim| claim.granted);
        let own = self.standing(cx.now.boot).claim.map(|claim| claim.address);
        has.is_none_or(|claim| Some(claim.address) == own)
    }

    /// Returns what a server would give that is another's: an offer that is about to be asked for, or a lease.
    fn taken(&self, output: &Output, used: Option<Ipv4Addr>, cx: &Cx<'_>) -> Option<Taken> {
        let client = match &self.life {
            Life::Acquiring(acquire) => &acquire.client,
            Life::Held(hold) => &hold.client,
            Life::Releasing(_) => return None,
        };
        let (lease, granted) = match (&output.verdict, client.requesting()) {
            (Some(Verdict::Won(lease) | Verdict::Kept(lease)), _) if used != Some(lease.ip()) => (&**lease, true),
            (None, Some((_, false))) if !output.frames.is_empty() => (client.owed(cx.now.boot)?, false),
            (Some(_) | None, _) => return None,
        };
        let tenant = self.tenant(lease.ip(), cx)?;
        Some(Taken { tenant, lease: lease.clone(), granted })
    }

    /// Refuses what a server would have an ADD take that is another's. Returns whether the ADD has failed by that.
    pub(super) fn acquire_refuses(&mut self, output: &mut Output, cx: &mut Cx<'_>) -> bool {
        let Some(taken) = self.taken(output, None, cx) else { return false };
        self.tell_taken(&taken, cx);
        let (is_foreign, shares) = (taken.is_foreign(self), taken.tenant.chaddr == self.identity.chaddr);
        let refused = Refused {
            server: taken.lease.server,
            address: taken.lease.ip(),
            holder: (*taken.tenant.attachment).clone(),
            shared: shares.then_some(self.identity.chaddr),
            times: 0,
        };
        let Life::Acquiring(acquire) = &mut self.life else { return false };
        let no_other_will_do = acquire.insists.is_some() || taken.granted && shares;
        match acquire.again.refuse(refused.clone()).filter(|_| !no_other_will_do) {
            Some(_) if is_foreign => self.declines_foreign(&taken, output, cx),
            Some(pause) => {
                output.replace(acquire.client.refuse(cx.now.boot, pause));
                cx.out.report(self.id, Report::WantsRenewed(taken.tenant.id));
            }
            None => {
                if !taken.granted {
                    acquire.client.refuse(cx.now.boot, Duration::ZERO);
                }
                self.abort(Abort::Because(refused.failure()), cx);
                return true;
            }
        }
        false
    }

    /// Refuses what a server would have a held binding take that is another's. `used`: the address that it has. Returns the
    /// lease which it has lost by that, where the server has put the other one in its place.
    pub(super) fn hold_refuses(
        &mut self,
        output: &mut Output,
        used: Option<Ipv4Addr>,
        cx: &mut Cx<'_>,
    ) -> Option<Loss> {
        let taken = self.taken(output, used, cx)?;
        self.tell_taken(&taken, cx);
        if taken.is_foreign(self) && used.is_none() {
            self.declines_foreign(&taken, output, cx);
            return None;
        }
        let Life::Held(hold) = &mut self.life else { return None };
        let pause = hold.client.pause();
        output.replace(hold.client.refuse(cx.now.boot, pause));
        cx.out.report(self.id, Report::WantsRenewed(taken.tenant.id));
        let (server, address) = (taken.lease.server, taken.lease.ip());
        used.map(|_| Loss::Misplaced { server, address })
    }

    /// Has an offer declined with its ACK, or a lease at once: its server cannot hear of the holder in another way.
    fn declines_foreign(&mut self, taken: &Taken, output: &mut Output, cx: &Cx<'_>) {
        let client = match &mut self.life {
            Life::Acquiring(acquire) => &mut acquire.client,
            Life::Held(hold) => &mut hold.client,
            Life::Releasing(_) => return,
        };
        let Output { frames, verdict, listen, .. } =
            client.handle(cx.now.boot, Event::Conflict { by: taken.tenant.chaddr });
        output.frames.extend(frames);
        output.listen = listen;
        if taken.granted {
            output.verdict = verdict;
        }
    }

    fn tell_taken(&mut self, taken: &Taken, cx: &mut Cx<'_>) {
        let (Taken { tenant, lease, granted }, attachment) = (taken, &self.attachment);
        let holder = &tenant.attachment;
        tracing::debug!(%attachment, address = %lease.ip(), server = %lease.server, %holder, granted, "not taken: another attachment has it");
        let cause = format!("not taken from server {}: {holder} has it", lease.server);
        if self.told.is_new(&format!("{} {cause}", lease.ip())) {
            tracing::warn!(attachment = %self.attachment, address = %lease.ip(), server = %lease.server, %holder, "not taken: another attachment has it");
            self.note(EventKind::AddressHeld, lease, cause, cx);
        }
    }

    /// Returns whether a lease may be declined: nobody else here has its address, or one that its server cannot know of.
    pub(super) fn may_decline(&self, lease: &Lease, cx: &mut Cx<'_>) -> bool {
        let Some(tenant) = self.tenant(lease.ip(), cx) else { return true };
        if tenant.chaddr != self.identity.chaddr && tenant.server != lease.server {
            return true;
        }
        self.tell_unsent("DECLINE", lease, &tenant, cx);
        false
    }

    /// Returns whether a lease that an ADD gives up may be released: nobody else here has its address.
    pub(super) fn may_release(&self, lease: &Lease, cx: &mut Cx<'_>) -> bool {
        let Some(tenant) = self.tenant(lease.ip(), cx) else { return true };
        self.tell_unsent("RELEASE", lease, &tenant, cx);
        false
    }

    /// Returns whether a DECLINE may leave that waited for the store.
    pub(super) fn may_decline_late(&self, address: Ipv4Addr, cx: &mut Cx<'_>) -> bool {
        let last = match &self.life {
            Life::Held(hold) => Some((*hold.last).clone()),
            Life::Releasing(release) => Some(release.lease.clone()),
            Life::Acquiring(_) => None,
        };
        let lease = last.filter(|last| last.ip() == address);
        self.may_decline(&lease.unwrap_or_else(|| Lease::unknown(address.into(), cx.now.boot)), cx)
    }

    /// Returns whether another binding has the address of the lease that is on its way back.
    pub(super) fn has_tenant(&self, cx: &Cx<'_>) -> bool {
        matches!(&self.life, Life::Releasing(release) if self.tenant(release.lease.ip(), cx).is_some())
    }

    fn tell_unsent(&self, what: &str, lease: &Lease, tenant: &Tenant, cx: &mut Cx<'_>) {
        let (attachment, holder) = (&self.attachment, &tenant.attachment);
        tracing::info!(%attachment, address = %lease.ip(), %holder, "no {what}: another attachment has the address");
        self.note(EventKind::AddressHeld, lease, format_args!("no {what} sent: {holder} has the address"), cx);
    }

    /// Ends without a RELEASE where another binding has the address by now, which lives.
    pub(crate) fn give_way(&mut self, cx: &mut Cx<'_>) {
        self.gives_way(cx);
    }

    /// Does so; returns whether there is one.
    pub(super) fn gives_way(&mut self, cx: &mut Cx<'_>) -> bool {
        let Life::Releasing(release) = &self.life else { return false };
        if release.owed.is_nothing() || release.is_leaving() {
            return false;
        }
        let lease = release.lease.clone();
        let gives_way = !self.may_release(&lease, cx);
        if gives_way {
            self.end_unsaid(cx);
        }
        gives_way
    }

    /// Loses a lease that another binding has too, without a word to the server, and looks for another.
    pub(crate) fn cede(&mut self, cx: &mut Cx<'_>) {
        let Life::Held(hold) = &self.life else { return };
        let Some(lease) = hold.client.shared() else { return };
        let Some(tenant) = self.tenant(lease.ip(), cx) else { return };
        let holder = tenant.attachment;
        tracing::error!(attachment = %self.attachment, address = %lease.ip(), %holder, "two attachments have one address on record: this one gives it up, and it is not released");
        let Life::Held(hold) = &mut self.life else { return };
        let pause = hold.client.pause();
        hold.client.refuse(cx.now.boot, pause);
        self.hold_lost(&lease, &Loss::Double { holder: holder.to_string() }, cx);
    }

    /// Extends the lease now, as another client was offered its address.
    pub(crate) fn renew_early(&mut self, cx: &mut Cx<'_>) {
        let Life::Held(hold) = &mut self.life else { return };
        hold.client.renew_early(cx.now.boot);
        self.hold_on_clock(cx);
    }

    /// Returns whether another binding with the same chaddr is asking for an address: a RELEASE might cross its REQUEST.
    pub(super) fn is_asked_for(&self, address: Ipv4Addr, cx: &Cx<'_>) -> bool {
        cx.holders.is_asked_for(&self.identity.lan, address, self.identity.chaddr, self.id)
    }
}
