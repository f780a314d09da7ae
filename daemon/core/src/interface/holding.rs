//! What an interface must know of what a binding holds.

use ipnet::IpNet;

use crate::grant::Grant;
use crate::grant::policy::{OnChange, OnExpiry};

/// What an interface must know of what a binding holds.
#[derive(Debug)]
pub(crate) struct Holding {
    /// What its network's configuration says about changes.
    pub(crate) on_change: OnChange,
    /// What it says about a lease that ends.
    pub(crate) on_expiry: OnExpiry,
    /// Whether its LAN is named by a host link.
    pub(crate) has_parent: bool,
    /// What its lease gives the interface; `None`: there is no lease.
    pub(crate) grant: Option<Grant>,
    /// What the last lease in use gives: usually the same.
    pub(crate) last: Grant,
    /// Whether the store certainly has that grant.
    pub(crate) is_durable: bool,
    /// Whether a write is under way.
    pub(crate) is_writing: bool,
    /// The address that the runtime was given, if it cannot be told about another.
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

impl Holding {
    /// Returns the address that the runtime puts on the interface although the lease now has another address or mask, or is lost:
    /// the runtime cannot be told. Such a runtime's networks never keep what has changed.
    pub(crate) fn outdated(&self) -> Option<IpNet> {
        let grant = self.grant.as_ref();
        self.told
            .filter(|told| grant.is_none_or(|grant| !grant.addresses.contains(told)))
    }
}
