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

/// The taken addresses of a network, by address and by holder. An address may have more than one holder: others' files are not
/// always right.
#[derive(Clone, Debug, Default)]
pub(super) struct Taken {
    by_address: BTreeMap<IpAddr, Vec<Holding>>,
    by_holder: BTreeMap<Arc<Attachment>, BTreeSet<IpAddr>>,
}

impl Taken {
    /// Records a holder of an address, unless it is known.
    pub(super) fn insert(&mut self, address: IpAddr, holding: Holding) {
        if self
            .by_holder
            .entry(holding.by.clone())
            .or_default()
            .insert(address)
        {
            self.by_address.entry(address).or_default().push(holding);
        }
    }

    /// Forgets that somebody has an address. Returns whether nobody has it any more.
    pub(super) fn remove(&mut self, address: IpAddr, by: &Attachment) -> bool {
        let Some(of_holder) = self
            .by_holder
            .get_mut(by)
            .filter(|of_holder| of_holder.contains(&address))
        else {
            return false;
        };
        of_holder.remove(&address);
        if of_holder.is_empty() {
            self.by_holder.remove(by);
        }
        let holdings = self
            .by_address
            .get_mut(&address)
            .expect("what a holder has is taken");
        holdings.retain(|holding| *holding.by != *by);
        let is_nobodys = holdings.is_empty();
        if is_nobodys {
            self.by_address.remove(&address);
        }
        is_nobodys
    }

    /// Returns who has an address, the first of several.
    pub(super) fn get(&self, address: IpAddr) -> Option<&Holding> {
        self.by_address.get(&address)?.first()
    }

    /// Returns the addresses of a holder, in order.
    pub(super) fn of(&self, by: &Attachment) -> impl Iterator<Item = IpAddr> {
        self.by_holder.get(by).into_iter().flatten().copied()
    }

    /// Returns the taken addresses from `first` to `last`, in order.
    pub(super) fn within(
        &self,
        first: IpAddr,
        last: IpAddr,
    ) -> impl Iterator<Item = (IpAddr, &Holding)> {
        self.by_address.range(first..=last).filter_map(first_of)
    }

    /// Returns all taken addresses, in order.
    pub(super) fn all(&self) -> impl Iterator<Item = (IpAddr, &Holding)> {
        self.by_address.iter().filter_map(first_of)
    }
}

fn first_of<'a>((address, holdings): (&IpAddr, &'a Vec<Holding>)) -> Option<(IpAddr, &'a Holding)> {
    Some((*address, holdings.first()?))
}
