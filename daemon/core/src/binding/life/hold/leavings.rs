//! What must be taken off an interface before another binding takes its place there.

use ipnet::IpNet;

use super::Hold;
use crate::binding::Common;
use crate::grant::Grant;
use crate::grant::policy::{OnChange, OnExpiry, Policy};
use crate::interface::Interfaces;
use crate::link::Step;
use crate::plan::{self, Before};
use crate::time::Instant;

impl Hold {
    /// Returns the steps that take this binding's leases off an interface with these addresses, before another binding takes its
    /// place there.
    pub(crate) fn leavings(
        &self,
        common: &Common,
        addresses: &[IpNet],
        interfaces: &Interfaces,
        now: Instant,
    ) -> Vec<Step> {
        let is_held = self.client.lease().is_some_and(|lease| !lease.expired(now));
        let stays = common.profile.policy.on_expiry == OnExpiry::Keep
            || (is_held && common.profile.policy.on_change == OnChange::Keep);
        let work = common.work(interfaces);
        let former = work.into_iter().flat_map(|work| work.former().grants.iter().cloned());
        let is_there = |grant: &Grant| grant.addresses.iter().any(|address| addresses.contains(address));
        let grants: Vec<_> = former.chain([common.grant(&self.last)]).filter(is_there).collect();
        let taken = work.is_some_and(|work| work.former().taken);
        if grants.is_empty() || stays && !taken {
            return Vec::new();
        }
        let before = Before { grants: &grants, bare: false, unrouted: false, router: None, addresses };
        plan::difference(&before, None)
    }
}

/// Returns the steps that take an address that no binding holds off an interface with these addresses, unless the profile keeps
/// what is there.
pub(crate) fn without(address: IpNet, addresses: &[IpNet], policy: &Policy) -> Vec<Step> {
    let stays = policy.on_expiry == OnExpiry::Keep || policy.on_change == OnChange::Keep;
    match stays || !addresses.contains(&address) {
        true => Vec::new(),
        false => plan::without(address, addresses),
    }
}
