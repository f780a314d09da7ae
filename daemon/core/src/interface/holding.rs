//! What an interface should carry for a binding, by what that holds and by what its network says of changes.
//!
//! A new lease is durable before the interface is changed for it. What an ended lease left there goes at once, whatever the store
//! says. What a refused or declined lease left there goes when the store knows, or fails, or takes too long: the next daemon
//! would take the lease up again, and think that somebody took its address off.

use ipnet::IpNet;

use super::{Seat, Work};
use crate::grant::Grant;
use crate::grant::policy::{OnChange, OnExpiry, Policy};

/// What a binding holds, as far as its interface is concerned.
#[derive(Debug)]
pub(crate) struct Holding<'a> {
    /// What its network's configuration says.
    pub(crate) policy: &'a Policy,
    /// What its lease gives the interface; `None`: there is no lease.
    pub(crate) grant: Option<Grant>,
    /// What the last lease that was used gives: mostly the same.
    pub(crate) last: Grant,
    /// Whether the store certainly has that grant.
    pub(crate) is_durable: bool,
    /// Whether a write is under way.
    pub(crate) is_writing: bool,
    /// Whether the lease waits for its probes.
    pub(crate) is_probing: bool,
    /// Whether it does so after the last one was lost.
    pub(crate) probes_after_loss: bool,
    /// The address that the runtime was told, if it hears of no other.
    pub(crate) told: Option<IpNet>,
}

/// What an interface should carry for a binding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Wish {
    /// This grant.
    Carry(Box<Grant>),
    /// Nothing of any grant.
    Nothing,
    /// What it carries, for now.
    AsIs,
}

impl Wish {
    pub(super) fn grant(&self) -> Option<&Grant> {
        match self {
            Self::Carry(grant) => Some(grant),
            Self::Nothing | Self::AsIs => None,
        }
    }
}

impl Holding<'_> {
    /// Returns what the interface should carry.
    pub(super) fn wish(&self, seat: &Seat) -> Wish {
        let Some(former) = seat.work().map(Work::former) else { return Wish::AsIs };
        let carry = |grant: &Grant| Wish::Carry(Box::new(grant.clone()));
        if seat.vacates() {
            return Wish::Nothing;
        }
        match self.grant.as_ref().filter(|_| !seat.presence().is_left()) {
            None if self.policy.on_expiry == OnExpiry::Remove || former.taken => Wish::Nothing,
            None => Wish::AsIs,
            // The MTU that came with the ADD is not a change, nor are missing routes.
            Some(next) if self.keeps_changed(seat) => match former.grants.first() {
                _ if !former.mtu_due && !former.routes_due => Wish::AsIs,
                Some(kept) => carry(kept),
                None if self.is_usable() => carry(next),
                None => Wish::AsIs,
            },
            Some(next) if self.is_usable() => carry(next),
            // What was lost before does not wait for it.
            Some(_) if (self.follows_loss(seat) || former.taken) && !former.grants.is_empty() => Wish::Nothing,
            Some(_) => Wish::AsIs,
        }
    }

    /// Returns the part of it that may come true already: not what waits for the store to record a loss.
    pub(super) fn wish_by_now(&self, seat: &Seat) -> Wish {
        let wish = self.wish(seat);
        let waits = self.is_writing && seat.work().is_some_and(Work::is_patient);
        if wish == Wish::Nothing && waits { Wish::AsIs } else { wish }
    }

    fn is_usable(&self) -> bool {
        self.is_durable && !self.is_probing
    }

    /// Returns whether the interface keeps what it carries though there is another lease.
    pub(super) fn keeps_changed(&self, seat: &Seat) -> bool {
        self.policy.on_change == OnChange::Keep && !seat.keeps_nothing() && !self.probes_after_loss
    }

    /// Returns whether the interface keeps what the lost lease put there.
    pub(super) fn keeps_lost(&self, seat: &Seat) -> bool {
        self.policy.on_expiry == OnExpiry::Keep && !seat.keeps_nothing()
    }

    /// Returns whether the lease that is not used yet follows a loss, whose traces go in any case.
    fn follows_loss(&self, seat: &Seat) -> bool {
        let bare = seat.work().is_some_and(|work| work.former().bare);
        self.policy.on_expiry == OnExpiry::Remove && if self.is_probing { self.probes_after_loss } else { bare }
    }

    /// Returns the address that the runtime puts on the interface although the lease now has another address or mask, or is lost:
    /// the runtime does not hear of that.
    pub(crate) fn outdated(&self) -> Option<IpNet> {
        self.told.filter(|told| match &self.grant {
            Some(grant) if grant.has(told.addr()) => {
                !grant.addresses.contains(told) && self.policy.on_change == OnChange::Apply
            }
            Some(_) => true,
            None => self.policy.on_expiry == OnExpiry::Remove,
        })
    }
}
