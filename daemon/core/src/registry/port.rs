//! The registry as a door above sees it.
//!
//! A door above sees a binding only through this. It hears what concerns it as a [`Notice`](super::Notice).

use std::net::Ipv4Addr;

use ipnet::Ipv4Net;

use super::Registry;
use crate::binding::{Binding, Life};
use crate::grant::Grant;
use crate::grant::policy::Policy;
use crate::identity::{Attachment, Lan};
use crate::record::BindingId;
use crate::source::Lease;
use crate::time::Instant;
use crate::wire::Mac;

/// A binding as a door above sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PortHolding<'a>(&'a Binding);

impl<'a> PortHolding<'a> {
    pub(crate) fn of(core: &'a Registry, attachment: &Attachment) -> Option<Self> {
        core.tables.bindings.held_by(attachment).map(Self)
    }

    pub(crate) fn all(core: &'a Registry) -> impl Iterator<Item = Self> {
        core.tables.bindings.iter().map(Self)
    }

    /// Returns those that hold a lease for the attachments of a network, or look for another.
    pub(crate) fn held_in(core: &'a Registry, network: &str) -> impl Iterator<Item = Self> {
        let is_its = move |it: &Self| core.tables.bindings.holder(it.attachment()) == Some(it.id());
        Self::all_in(core, network).filter(is_its)
    }

    /// Returns those that ask for their first lease in a network.
    pub(crate) fn asking_in(core: &'a Registry, network: &str) -> impl Iterator<Item = Self> {
        let asks = |it: &Self| matches!(it.0.life, Life::Acquiring(_));
        Self::all_in(core, network).filter(asks)
    }

    /// Returns those whose leases in a network are being given back, until that is durable.
    pub(crate) fn leaving_in(core: &'a Registry, network: &str) -> impl Iterator<Item = Self> {
        Self::all_in(core, network).filter(|it| core.leavings.has(it.id()))
    }

    fn all_in(core: &'a Registry, network: &str) -> impl Iterator<Item = Self> {
        Self::all(core).filter(move |it| it.attachment().network() == network)
    }

    pub(crate) fn id(self) -> BindingId {
        self.0.id
    }

    pub(crate) fn attachment(self) -> &'a Attachment {
        &self.0.attachment
    }

    pub(crate) fn lan(self) -> &'a Lan {
        &self.0.identity.lan
    }

    pub(crate) fn chaddr(self) -> Mac {
        self.0.identity.chaddr
    }

    /// Returns whether its client speaks over the LAN's parent, with the parent's Ethernet address.
    pub(crate) fn is_on_parent(self) -> bool {
        self.0.profile.on_parent
    }

    /// Returns whether its attachment holds it, with a lease or looking for another.
    pub(crate) fn is_live(self) -> bool {
        self.0.is_live()
    }

    pub(crate) fn is_on_host(self) -> bool {
        self.0.is_on_host()
    }

    pub(crate) fn holds_on_host(self) -> bool {
        self.0.holds_on_host()
    }

    /// Returns the address that its caller was given.
    pub(crate) fn told(self) -> Option<Ipv4Net> {
        self.0.told
    }

    pub(crate) fn leased(self, now: Instant) -> Option<Ipv4Addr> {
        self.0.lease(now).map(Lease::ip)
    }

    /// Returns the address that it is about to lease.
    pub(crate) fn claimed(self, now: Instant) -> Option<Ipv4Addr> {
        self.0.standing(now).claim.map(|claim| claim.address)
    }

    /// Returns what its lease gives an interface, with the default router whatever its network says.
    pub(crate) fn grant(self, now: Instant) -> Option<Grant> {
        let policy = Policy {
            suppress_default_route: false,
            ..self.0.profile.policy.clone()
        };
        self.0.lease(now).map(|lease| lease.grant(&policy))
    }
}
