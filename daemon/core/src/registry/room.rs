//! Leases kept for identities that may return are given back for an ADD: before its DISCOVER if the only acceptable address is
//! among them; else once the ADD waits in vain, because all addresses may be taken.

use std::net::Ipv4Addr;

use super::Registry;
use crate::binding::{Binding, Release};
use crate::record::BindingId;
use crate::time::{Instant, Now};

impl Registry {
    /// Gives back the lease that has been kept longest on a binding's LAN, unless its servers may just be away: in that case it
    /// would help nobody, and would cost a container that returns before they do its address. A server was there if it has given
    /// or extended a lease since the host's boot.
    pub(super) fn make_room(&mut self, now: Now, id: BindingId) {
        let Some(lan) = self.lan(id) else { return };
        let others = || {
            self.bindings
                .iter()
                .filter(|binding| binding.identity.lan == lan)
        };
        // A start before the boot is recorded as the boot.
        let is_fresh = |binding: &Binding| {
            binding
                .lease(now.boot)
                .is_some_and(|lease| lease.start > Instant::BOOT)
        };
        if self.lans.is_silent(&lan, now.boot) || !others().any(is_fresh) {
            return;
        }
        let others = others();
        // Leases of one network are kept for equally long.
        let longest = others
            .filter_map(|binding| Some((binding.kept_until()?, binding.id)))
            .min();
        if let Some((_, kept)) = longest {
            tracing::info!(
                binding = id.0,
                kept = kept.0,
                "no offer: giving back a kept lease"
            );
            self.with(now, kept, |binding, cx| {
                binding.gives_back(cx, Release::end_grace)
            });
        }
    }

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
}
