//! How an acquisition begins: what is known about it, and what its client therefore asks for.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use ipnet::Ipv4Net;

use super::{Acquire, Misses, Pace, Phase, Resort};
use crate::binding::{Common, Quest};
use crate::link::LinkView;
use crate::record::BindingId;
use crate::silence::Reason;
use crate::source::{Client, Lease, Wanted};
use crate::time::Instant;

/// What is known about an ADD, or about the adoption of a container, that begins to acquire.
#[derive(Debug)]
pub(crate) struct Known<'a> {
    /// What is asked for.
    pub(crate) quest: Quest,
    /// The lease of its identity that another binding is giving back, while the server does not know that.
    pub(crate) lease: Option<Lease>,
    /// How long to wait for an answer before using that lease; `None`: it is never used.
    pub(crate) patience: Option<Duration>,
    /// The last address of its identity.
    pub(crate) last: Option<Ipv4Addr>,
    /// The bindings and records that it replaces.
    pub(crate) replaces: Vec<BindingId>,
    /// The interface as it was seen.
    pub(crate) view: &'a LinkView,
}

impl Known<'_> {
    /// Returns an acquisition that waits for its permit. An adoption asks for the address that is there, and nobody waits for
    /// it. An ADD asks for the lease that it takes over, else for the address that it wants, else for its identity's last
    /// address.
    pub(in crate::binding) fn acquire(self, common: &Common, now: Instant, rng: Rng) -> Acquire {
        let sender = common.sender();
        let Self {
            mut quest,
            lease,
            patience,
            last,
            replaces,
            view,
        } = self;
        let wanted = quest.add.wanted;
        let fallback = quest.add.fallback.take();
        let resort = fallback.map(|fallback| Box::new(Resort::new(*fallback, last, now)));
        let is_of_range =
            |last: &Ipv4Addr| resort.as_ref().is_some_and(|resort| resort.has_last(*last));
        // No server knows of an address of a range.
        let last = last
            .filter(|last| !is_of_range(last))
            .map(|address| Wanted {
                address,
                preferred: true,
            });
        let lease = lease
            .filter(|lease| Wanted::takes(wanted, lease.ip()))
            .map(Arc::new);
        let trusts = lease
            .clone()
            .zip(patience.map(|patience| quest.began + patience));
        let mut client = match (quest.adopts, lease) {
            (Some(address), _) => Client::adopt(sender, address, now, rng),
            (None, Some(lease)) => Client::reacquire(sender, lease, now, rng),
            (None, None) => Client::acquire(sender, wanted.or(last), now, rng),
        };
        if quest.adopts() {
            client.not_waited_for();
        } else if let Some(carrier) = quest.came_up {
            client.repeat_first(carrier);
        }
        // The server may no longer know a lease that is taken over, and nothing that it offers instead is acceptable.
        if let Some(address) = quest.insists() {
            client.insist(address);
        }
        let is_off = |address: Ipv4Net| !view.addresses.contains(&address.into());
        Acquire {
            client,
            limit: quest.limit(),
            since: now,
            queued: Duration::ZERO,
            ifname: view.ifname.clone(),
            mtu: view.mtu,
            replaces,
            taken_off: quest.adopts.is_some_and(is_off),
            quest,
            unblocked: false,
            reason: Reason::default(),
            sized: false,
            trusts,
            trusted: false,
            resort,
            misses: Misses::default(),
            pace: Pace::default(),
            phase: Phase::Queue,
            wanted: true,
        }
    }
}
