//! LANs whose servers were silent a moment ago: they may be away, or have no address left. An impatient caller is not kept
//! waiting there.

use std::collections::BTreeMap;
use std::time::Duration;

use super::Registry;
use crate::binding::Binding;
use crate::effect::Add;
use crate::identity::Lan;
use crate::time::Instant;

/// For how long a LAN's servers count as silent after a request without an offer.
const SILENT_FOR: Duration = Duration::from_secs(60);

/// The LANs on which a request had no offer, and when the last one was given up.
#[derive(Debug, Default)]
pub(super) struct Silent(BTreeMap<Lan, Instant>);

impl Silent {
    /// Records that a request on a LAN had no offer.
    pub(super) fn begins(&mut self, lan: &Lan, now: Instant) {
        self.0.retain(|_, since| now < *since + SILENT_FOR);
        self.0.insert(lan.clone(), now);
    }

    /// Records that an address of a LAN became free: if none was left, there is one now.
    pub(super) fn ends(&mut self, lan: &Lan) {
        self.0.remove(lan);
    }
}

impl Registry {
    /// Returns whether a request on a LAN had no offer a moment ago, and its servers have not been heard since.
    pub(super) fn is_silent(&self, lan: &Lan, now: Instant) -> bool {
        let since = self
            .silent
            .0
            .get(lan)
            .copied()
            .filter(|since| now < *since + SILENT_FOR);
        let granted = |binding: &Binding| binding.lease(now).map(|lease| lease.start);
        let of_lan = || {
            self.bindings
                .iter()
                .filter(|binding| binding.identity.lan == *lan)
        };
        since.is_some_and(|since| !of_lan().any(|binding| granted(binding) >= Some(since)))
    }

    /// Returns how long an ADD may take.
    pub(crate) fn time_for(&self, add: &Add, now: Instant) -> Duration {
        // An ADD with a fallback gets the time for it.
        let gives_up = add.fallback.is_none() && self.is_silent(&add.lan, now);
        let patience = add.profile.wants.patience.filter(|_| gives_up);
        patience.map_or(add.timeout, |patience| add.timeout.min(patience))
    }
}
