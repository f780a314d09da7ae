//! A lease kept for an identity that may return is given back for an ADD that insists on its address, before its DISCOVER. No
//! ADD ends a grace because it waits in vain: in an outage that would cost containers that are known the addresses they need.

use std::net::Ipv4Addr;

use super::Registry;
use crate::binding::{Binding, Release};
use crate::identity::Lan;
use crate::record::BindingId;
use crate::time::Now;

impl Registry {
    /// Gives back the kept lease with the only acceptable address for an ADD. A kept lease under the ADD's own identity and
    /// Ethernet address does not keep its server from giving it.
    pub(super) fn unblock(&mut self, now: Now, id: BindingId, address: Ipv4Addr) {
        let Some(identity) = self.bindings.get(id).map(|binding| &binding.identity) else {
            return;
        };
        let blocks = |other: &&Binding| {
            let is_kept = other.kept_until().is_some() || other.identity.key() == identity.key();
            let has = other
                .lease(now.boot)
                .is_some_and(|lease| lease.ip() == address);
            has && is_kept && other.identity.lan == identity.lan && other.identity != *identity
        };
        let Some(kept) = self.bindings.iter().find(blocks).map(|binding| binding.id) else {
            return;
        };
        tracing::info!(binding = id.0, kept = kept.0, %address, "giving back a kept lease: its address is requested");
        self.with(now, kept, |binding, cx| {
            binding.gives_back(cx, Release::make_way)
        });
    }

    /// Returns how many leases of a LAN are kept for identities that may return.
    pub(super) fn kept_on(&self, lan: &Lan) -> usize {
        let on_lan = |binding: &&Binding| binding.identity.lan == *lan;
        let kept = self.bindings.iter().filter(on_lan);
        kept.filter(|binding| binding.kept_until().is_some())
            .count()
    }
}
