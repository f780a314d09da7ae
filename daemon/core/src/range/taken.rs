//! Which addresses are taken, by whom, and since when.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use crate::identity::Attachment;
use crate::time::WallTime;

/// Who has an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holding {
    /// Whose it is.
    pub by: Arc<Attachment>,
    /// When it was given.
    pub since: WallTime,
}

/// The taken addresses of a network, by address and by holder.
#[derive(Clone, Debug, Default)]
pub(super) struct Taken {
    by_address: BTreeMap<IpAddr, Holding>,
    by_holder: BTreeMap<Arc<Attachment>, BTreeSet<IpAddr>>,
}

impl Taken {
    /// Records a holder of an address that has none.
    pub(super) fn insert(&mut self, address: IpAddr, holding: Holding) {
        self.by_holder.entry(holding.by.clone()).or_default().insert(address);
        self.by_address.insert(address, holding);
    }

    /// Forgets who has an address.
    pub(super) fn remove(&mut self, address: IpAddr) {
        let Some(Holding { by, .. }) = self.by_address.remove(&address) else { return };
        if let Some(of_holder) = self.by_holder.get_mut(&by) {
            of_holder.remove(&address);
            if of_holder.is_empty() {
                self.by_holder.remove(&by);
            }
        }
    }

    /// Returns who has an address.
    pub(super) fn get(&self, address: IpAddr) -> Option<&Holding> {
        self.by_address.get(&address)
    }

    /// Returns the addresses of a holder, in order.
    pub(super) fn of(&self, by: &Attachment) -> impl Iterator<Item = IpAddr> {
        self.by_holder.get(by).into_iter().flatten().copied()
    }

    /// Returns the taken addresses from `first` to `last`, in order.
    pub(super) fn within(&self, first: IpAddr, last: IpAddr) -> impl Iterator<Item = (IpAddr, &Holding)> {
        self.by_address.range(first..=last).map(|(address, holding)| (*address, holding))
    }

    /// Returns all taken addresses, in order.
    pub(super) fn all(&self) -> impl Iterator<Item = (IpAddr, &Holding)> {
        self.by_address.iter().map(|(address, holding)| (*address, holding))
    }
}
