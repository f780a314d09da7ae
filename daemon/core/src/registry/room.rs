//! Leases kept for identities that may return go back for an ADD: before its DISCOVER if the only address that will do is among
//! them; else once the ADD waits in vain, as all addresses may be taken.

use std::net::Ipv4Addr;

use super::Registry;
use crate::binding::Binding;
use crate::record::BindingId;
use crate::time::{Instant, Now};

impl Registry {
    /// Gives back the lease that has been kept longest on a binding's LAN, unless its servers may as well be away: that would
    /// help nobody, and cost a container its address that returns before they do. A server was there if it has given or extended
    /// a lease since the host's boot.
    pub(super) fn make_room(&mut self, now: Now, id: BindingId) {
        let Some(lan) = self.lan(id) else { return };
        let others = || self.bindings.iter().filter(|binding| binding.identity.lan == lan);
        // What began before the boot is cut to it.
        let is_fresh = |binding: &Binding| binding.lease(now.boot).is_some_and(|lease| lease.start > Instant::BOOT);
        if self.is_silent(&lan, now.boot) || !others().any(is_fresh) {
            return;
        }
        let others = others();
        // Of one network they are kept for equally long.
        let longest = others.filter_map(|binding| Some((binding.kept_until()?, binding.id))).min();
        if let Some((_, kept)) = longest {
            tracing::info!(binding = id.0, kept = kept.0, "no offer: giving back what is kept");
            self.with(now, kept, |binding, cx| binding.end_grace(cx));
        }
    }

    /// Gives back the lease that is kept with the only address that will do for an ADD. One under the ADD's own identity and
    /// Ethernet address is not what keeps its server from giving that.
    pub(super) fn unblock(&mut self, now: Now, id: BindingId, address: Ipv4Addr) {
        let Some(identity) = self.bindings.get(id).map(|binding| &binding.identity) else { return };
        let blocks = |other: &&Binding| {
            let is_kept = other.kept_until().is_some() || other.identity.key() == identity.key();
            let has = other.lease(now.boot).is_some_and(|lease| lease.ip() == address);
            has && is_kept && other.identity.lan == identity.lan && other.identity != *identity
        };
        let Some(kept) = self.bindings.iter().find(blocks).map(|binding| binding.id) else { return };
        tracing::info!(binding = id.0, kept = kept.0, %address, "giving back what is kept: its address is asked for");
        self.with(now, kept, |binding, cx| binding.make_way(cx));
    }
}
