//! What is to be done at the interface of a held lease, and how far it is. What becomes of it is [`super::carry`]'s.

use std::net::IpAddr;

use ipnet::IpNet;

use crate::backoff::Backoff;
use crate::dhcpv4::lease::Lease;
use crate::link::Step;
use crate::record::Former;
use crate::time::Instant;

/// Leases of which something may be on an interface. Beyond that one is forgotten, but not the oldest: that is on it for
/// certain, while those after it may never have come so far.
const MAX_FORMER: usize = 4;

/// Addresses of others that are put back after a change that was cut short, at most: whose namespace it is may put any number
/// there.
const MAX_DISPLACED: usize = 16;

/// What is to be done at an interface, and how far it is.
#[derive(Debug, Default)]
pub(super) struct Work {
    /// What the interface may carry; empty and not bare when it carries what the lease says.
    pub(super) former: Former,
    pub(super) stage: Stage,
    pub(super) backoff: Backoff,
    pub(super) retry: Option<Instant>,
    /// Until then nothing is taken off for good while the store writes that its lease is lost.
    pub(super) patience: Option<Instant>,
    /// Steps that the kernel refused, and that the rest can do without.
    pub(super) refused: Vec<Step>,
    /// Something of a former lease came onto the interface during the change under way.
    pub(super) stirred: bool,
    /// Of the routes that are due a main plugin adds the others at this moment: only those that it is not told of are put on.
    pub(super) only_late: bool,
}

/// How far it is.
#[derive(Debug, Default)]
pub(super) enum Stage {
    /// Nothing is under way.
    #[default]
    Idle,
    /// A restart cut it short, and it goes on when it is its turn.
    Queued,
    /// The LAN's link is being looked at: no interface of it has a larger MTU.
    Parent,
    /// The interface is being looked at. The MTU is to be this at most; `asked`: the LAN's link was looked at for that.
    /// `came_up`: the link came up meanwhile, which the look may not have seen.
    Looking { most: Option<u32>, asked: bool, came_up: bool },
    /// The store is writing down what a change is to put back; then the interface is looked at once more.
    Noting,
    /// The interface is being changed for this lease. `short`: its MTU has to be smaller than it could be, as nobody knows
    /// the one of the LAN's link. `routed`: with all of its routes.
    Applying { steps: Vec<Step>, next: Option<Box<Lease>>, short: bool, routed: bool },
}

impl Work {
    /// Returns work that goes on where a restart cut it short, when it is its turn.
    pub(super) fn recovered(former: Option<Box<Former>>) -> Option<Box<Self>> {
        former.map(|former| Box::new(Self { former: *former, stage: Stage::Queued, ..Self::default() }))
    }

    /// Lets it wait for its turn among all that a restart goes on with.
    pub(super) fn await_turn(&mut self) {
        self.stage = Stage::Queued;
    }

    /// Returns what the interface may carry of earlier leases, for the record.
    pub(super) fn former(&self) -> Option<Box<Former>> {
        (self.former != Former::default()).then(|| Box::new(self.former.clone()))
    }

    /// Returns when it is tried again, or waits no longer.
    pub(super) fn retry_at(&self) -> Option<Instant> {
        self.retry.into_iter().chain(self.patience).min()
    }

    pub(super) fn busy(&self) -> bool {
        !matches!(self.stage, Stage::Idle)
    }

    /// Returns whether what the interface carries, beside its MTU, may be something else than what the lease says.
    pub(super) fn differs(&self) -> bool {
        self.former.bare || !self.former.leases.is_empty()
    }

    /// Returns the MTU that the way to `next` sets, before the link's own bounds.
    pub(super) fn mtu(&self, next: Option<&Lease>) -> Option<u16> {
        let wanted = next?.mtu?;
        let Former { leases, bare, mtu_due, .. } = &self.former;
        let has_it = !bare && !mtu_due && leases.iter().all(|lease| lease.mtu == Some(wanted));
        (!has_it).then_some(wanted)
    }

    /// Records that something of a lease may be on the interface.
    pub(super) fn leave_behind(&mut self, lease: &Lease, bare: bool) {
        let leases = &mut self.former.leases;
        if !leases.iter().any(|was| was.grants_the_same(lease)) {
            leases.push(lease.clone());
        }
        if leases.len() > MAX_FORMER {
            leases.remove(1);
        }
        self.expect_bare(bare);
    }

    /// Records what these steps put back on the interface. Returns whether there is anything new.
    pub(super) fn displace(&mut self, steps: &[Step], next: Option<&Lease>) -> bool {
        let is_ours = |address: &IpNet| {
            let of_lease = |lease: &Lease| IpAddr::V4(lease.ip()) == address.addr();
            next.is_some_and(of_lease) || self.former.leases.iter().any(of_lease)
        };
        let stays = |address: &IpNet| !steps.contains(&Step::RemoveAddress(*address));
        let put_on = steps.iter().filter_map(|step| match step {
            Step::AddAddress(address) if stays(address) => Some(*address),
            Step::AddAddress(_) => None,
            Step::Up | Step::Mtu(_) | Step::RemoveAddress(_) | Step::AddRoute(_) | Step::RemoveRoute(_) => None,
        });
        let is_known = |address: &IpNet| self.former.displaced.contains(address);
        let room = MAX_DISPLACED.saturating_sub(self.former.displaced.len());
        let new: Vec<_> = put_on.filter(|address| !is_ours(address) && !is_known(address)).take(room).collect();
        self.former.displaced.extend(&new);
        !new.is_empty()
    }

    /// Returns those of these addresses that a change which was cut short put on in the place of what it was to put back.
    pub(super) fn makeshifts(&self, addresses: &[IpNet]) -> Vec<IpNet> {
        let displaced = &self.former.displaced;
        let is_one = |there: &&IpNet| {
            there.prefix_len() == there.max_prefix_len()
                && !displaced.contains(there)
                && displaced.iter().any(|a| a.addr() == there.addr())
        };
        addresses.iter().filter(is_one).copied().collect()
    }

    /// Returns the former leases of which something came back while the interface was changed for `next`: it may be there now.
    pub(super) fn back(&mut self, next: Option<&Lease>, addresses: &[IpNet]) -> Vec<Lease> {
        let stirred = std::mem::take(&mut self.stirred);
        let is_next = |lease: &Lease| next.is_some_and(|next| next.address == lease.address);
        let is_back = |lease: &&Lease| !is_next(lease) && (stirred || addresses.contains(&lease.address.into()));
        self.former.leases.iter().filter(is_back).cloned().collect()
    }

    pub(super) fn expect_bare(&mut self, bare: bool) {
        self.former.bare |= bare;
        (self.backoff, self.retry) = (Backoff::default(), None);
        self.refused.clear();
    }
}
