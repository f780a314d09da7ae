//! How an acquisition begins: what is known about it, and what its client therefore asks for.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use ipnet::Ipv4Net;

use super::{Acquire, Misses, Pace, Reason, Resort, Stage};
use crate::binding::Holder;
use crate::limits::Limits;
use crate::link::{Beside, LinkView};
use crate::range::Fallback;
use crate::record::BindingId;
use crate::source::{Client, Lease, Wanted};
use crate::time::Instant;

/// If an ADD waited this long for carrier, not only its interface came up, but also the links below it.
const LATELY: Duration = Duration::from_secs(1);

/// What is known about an ADD, or about the adoption of a container, that begins to acquire.
#[derive(Debug)]
pub(crate) struct Known<'a> {
    /// When it came in.
    pub(crate) began: Instant,
    /// When it must be answered.
    pub(crate) limit: Instant,
    /// Whether that is sooner than was asked for, because servers were silent a moment ago.
    pub(crate) hurried: bool,
    /// When the interface got carrier, if it had none when the ADD came.
    pub(crate) came_up: Option<Instant>,
    /// The address that it asks for.
    pub(crate) wanted: Option<Wanted>,
    /// The address that the container runs with, if it is adopted.
    pub(crate) adopts: Option<Ipv4Net>,
    /// The lease of its identity that another binding is giving back, while the server does not know that.
    pub(crate) lease: Option<Lease>,
    /// How long to wait for an answer before using that lease; `None`: it is never used.
    pub(crate) patience: Option<Duration>,
    /// The last address of its identity.
    pub(crate) last: Option<Ipv4Addr>,
    /// The local ranges that give it an address if no server answers.
    pub(crate) fallback: Option<Box<Fallback>>,
    /// The acceptable addresses, if not all are.
    pub(crate) limits: Option<Limits>,
    /// The bindings and records that it replaces.
    pub(crate) replaces: Vec<BindingId>,
    /// The interface as it was seen.
    pub(crate) view: &'a LinkView,
}

impl Acquire {
    /// Returns an acquisition that waits for its permit. An adoption asks for the address that is there, and nobody waits for
    /// it. An ADD asks for the lease that it takes over, else for the address that it wants, else for its identity's last
    /// address.
    pub(in crate::binding) fn new(
        holder: &Holder,
        known: Known<'_>,
        now: Instant,
        rng: Rng,
    ) -> Self {
        let sender = holder.sender();
        let Known {
            began,
            limit,
            hurried,
            came_up,
            wanted,
            adopts,
            lease,
            patience,
            last,
            ..
        } = known;
        let Known {
            fallback,
            limits,
            replaces,
            view,
            ..
        } = known;
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
        let trusts = lease.clone().zip(patience.map(|patience| began + patience));
        let mut client = match (adopts, lease) {
            (Some(address), _) => Client::adopt(sender, address, now, rng),
            (None, Some(lease)) => Client::reacquire(sender, lease, now, rng),
            (None, None) => Client::acquire(sender, wanted.or(last), now, rng),
        };
        if adopts.is_some() {
            client.not_waited_for();
        } else if let Some(carrier) = came_up {
            client.repeat_first(carrier);
        }
        client.set_mtu(view.mtu);
        let insists = match adopts {
            Some(address) => Some(address.addr()),
            None => wanted
                .filter(|wanted| !wanted.preferred)
                .map(|wanted| wanted.address),
        };
        // The server may no longer know a lease that is taken over, and nothing that it offers instead is acceptable.
        insists
            .into_iter()
            .for_each(|address| client.insist(address));
        Self {
            client,
            began,
            limit,
            whole_limit: limit,
            hurried,
            came_up: came_up.filter(|at| at.saturating_since(began) >= LATELY),
            since: now,
            queued: Duration::ZERO,
            ifname: view.ifname.clone(),
            mtu: view.mtu,
            replaces,
            adopts: adopts.is_some(),
            taken_off: adopts.is_some_and(|address| !view.addresses.contains(&address.into())),
            insists,
            blocked: None,
            beside: Beside::of(&holder.link, view, holder.profile.on_parent),
            reason: Reason::NotLookedFor,
            sized: false,
            trusts,
            trusted: false,
            resort,
            limits: limits.map(Box::new),
            misses: Misses::default(),
            pace: Pace::default(),
            stage: Stage::AwaitingPermit,
        }
    }
}
