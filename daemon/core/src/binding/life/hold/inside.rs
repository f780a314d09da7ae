//! What a held lease does when something happens at its interface. [`crate::interface`] knows what is there, what should be
//! there, and how to get from one to the other.
//!
//! A change that a restart cut short goes on after the look at its interface that each start asks for; these looks take turns.

use std::net::{IpAddr, Ipv4Addr};
use std::ops::ControlFlow::Break;
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;

use super::Hold;
use crate::binding::common::change;
use crate::binding::{Common, Cx, Leave, Living, Next, Report, SAME};
use crate::effect::Outcome;
use crate::event::EventKind;
use crate::grant::Grant;
use crate::interface::{Done, Holding, Interfaces, Presence, Seat, Work, Worked};
use crate::link::{LinkCause, LinkView};
use crate::rules::{Rule, cut};
use crate::source::Lease;
use crate::time::Instant;

/// Carrier that was away longer than this may have come back on another network (RFC 2131 §3.7).
const CARRIER_LOSS: Duration = Duration::from_secs(3);

impl Hold {
    /// Returns what the interface must know of what the binding holds.
    pub(in crate::binding) fn holding(&self, common: &Common) -> Holding {
        common.holding(&self.client, &self.last)
    }

    pub(in crate::binding) fn expected_address(
        &self,
        common: &Common,
        interfaces: &Interfaces,
    ) -> Option<IpAddr> {
        common.seat(interfaces)?.expected(&self.holding(common))
    }

    /// Returns whether the interface is about to carry what the lease says: that is being written or put on. What
    /// failed, or waits for room in the store, does not count.
    pub(in crate::binding) fn is_changing(
        &self,
        common: &Common,
        interfaces: &Interfaces,
        now: Instant,
    ) -> bool {
        let writes = common.persistence.busy() && self.waits_for_store(common, now);
        let works = common.seat(interfaces).is_some_and(Seat::is_changing);
        self.client.lease().is_some() && (writes || works)
    }

    /// Takes everything of the lease off the interface before the lease is given back. Reports when that is done.
    pub(crate) fn vacate(&mut self, cx: &mut Cx<'_>) {
        let told = cx.own.told.into_iter().map(Into::into).collect();
        let left = [
            cx.own.grant(&self.last),
            Grant {
                addresses: told,
                ..Grant::default()
            },
        ];
        if let Some(seat) = cx.own.seat_mut(cx.interfaces) {
            seat.vacate(left);
        }
        self.has_work();
    }

    /// Records that a lease is lost; `taken`: another station uses its address, which is on the interface. Returns whether
    /// that requires anything to be taken off.
    pub(super) fn leaves_lost(&self, lost: &Lease, taken: bool, cx: &mut Cx<'_>) -> bool {
        let seat = cx.own.seat_mut(cx.interfaces);
        seat.is_some_and(|seat| seat.leaves_lost(&cx.own.profile.policy, cx.own.grant(lost), taken))
    }

    /// Records that a main plugin is about to put the address on again, without some of the routes. Docker is told the lease
    /// again, which may have another address by now.
    pub(crate) fn route_again(&mut self, cx: &mut Cx<'_>) {
        let Some(lease) = self.client.shared() else {
            return;
        };
        let grant = cx.own.grant(&lease);
        if let Some(seat) = cx.own.seat_mut(cx.interfaces) {
            seat.route_again(&grant);
        }
        self.after.record |= cx.own.answers(&lease);
    }
}

// The way to what the interface should carry.
impl Hold {
    /// Goes on with the work at the interface, if there is any and it may be done.
    pub(super) fn work(&mut self, cx: &mut Cx<'_>) {
        let Some(seat) = cx
            .own
            .seat(cx.interfaces)
            .filter(|seat| seat.work().is_some())
        else {
            return;
        };
        let vacates = seat.vacates();
        if change::go_on(&self.holding(cx.own), cx) {
            if vacates {
                cx.out.report(cx.own.id, Report::Vacated);
            }
            self.record_again();
        }
    }

    /// Goes on after a look or a change.
    pub(super) fn on_looked_or_changed(&mut self, outcome: Outcome, cx: &mut Cx<'_>) -> Next {
        match change::worked(outcome, &self.holding(cx.own), cx) {
            Worked::Waits => SAME,
            Worked::Again { .. } => {
                self.has_work();
                SAME
            }
            Worked::Done(done) => self.applied(done, cx),
            Worked::Failed(cause) => self.work_failed(cause, cx),
        }
    }

    /// Records that the record must be written again: the lease or the work at the interface changed.
    pub(crate) fn record_again(&mut self) {
        self.after.record = true;
    }

    /// Records that there may be work at the interface.
    pub(in crate::binding) fn has_work(&mut self) {
        self.after.work = true;
    }

    /// Records that the interface was changed: the record must say what stays there, unless more is done first.
    pub(in crate::binding) fn has_changed(&mut self) {
        (self.after.work, self.after.note) = (true, true);
    }

    /// Goes on after the interface was changed.
    fn applied(&mut self, done: Done, cx: &mut Cx<'_>) -> Next {
        let Done { next, lacks, .. } = done;
        let address = next
            .iter()
            .flat_map(|grant| &grant.addresses)
            .next()
            .map(tracing::field::display);
        tracing::info!(attachment = %cx.own.attachment, address, "interface changed");
        let own = self.client.lease().map(Lease::ip);
        let own = own.filter(|own| next.as_ref().is_some_and(|next| next.has((*own).into())));
        // Only what this run of the daemon put there has arrived just now.
        if let Some(address) = own
            && cx.own.seat_mut(cx.interfaces).is_some_and(Seat::arrives)
            && cx.announce(address)
        {
            self.watch(cx)?;
        }
        lacks
            .into_iter()
            .for_each(|lack| change::try_later(&lack, Some(lack), cx));
        self.has_changed();
        SAME
    }

    fn work_failed(&mut self, cause: LinkCause, cx: &mut Cx<'_>) -> Next {
        if self.is_lost(&cause, cx) {
            return self.on_gone(cause, cx);
        }
        // If it is not seen, the word of the caller that ended it counts.
        match cause.is_unseen() && cx.own.seat(cx.interfaces).is_some_and(Seat::vacates) {
            true => cx.out.report(cx.own.id, Report::Vacated),
            false => change::try_later(&cause, None, cx),
        }
        SAME
    }

    /// Does what is due at the interface by now: Docker has finished with it, what failed is tried again, and the daemon checks
    /// what the runtime did with its answer.
    pub(in crate::binding) fn on_time(&mut self, cx: &mut Cx<'_>) {
        let now = cx.now.boot;
        let has_lease = self.client.lease().is_some();
        let Some(seat) = cx.own.seat_mut(cx.interfaces) else {
            return;
        };
        if seat.end_setup(now) {
            // What changed in the lease since the interface was last known, or the runtime last told, is changed there too.
            let rare = self.rare.as_mut().filter(|_| has_lease);
            if let Some(carried) = rare.and_then(|rare| rare.carried.take()) {
                seat.due().leave_behind(carried, false);
                self.after.record = true;
            }
            self.after.work = true;
        }
        self.after.work |= seat.work_mut().is_some_and(|work| work.take_retry(now));
        if seat.looks_now(has_lease, now) {
            cx.out.report(cx.own.id, Report::WantsLook);
        }
    }
}

// What is seen and heard there.
impl Hold {
    /// Goes on after the interface was found to be gone. A lease that is older than its interface outlives it.
    pub(super) fn on_gone(&mut self, cause: LinkCause, cx: &mut Cx<'_>) -> Next {
        if matches!(cause, LinkCause::NoPath(_)) && !cx.own.profile.wants.is_found_later() {
            return self.lose_path(cause, cx);
        }
        // No other lease is asked for on behalf of a container that is gone.
        let is_over = self.client.lease().is_none() && cause.is_missing();
        let stays = cx.own.profile.wants.is_found_later() && !is_over;
        let what = if stays {
            "waiting for the lease to be released"
        } else {
            "giving the lease back"
        };
        tracing::info!(attachment = %cx.own.attachment, %cause, "link gone: {what}");
        let lease = self.client.lease().unwrap_or(&self.last);
        let event = cx.event(EventKind::OrphanFound, lease, &cause);
        cx.out.report(cx.own.id, Report::Orphaned(Box::new(event)));
        match stays {
            true => self.move_back(cx),
            false => Break(self.give_back(Leave::LinkGone, cx)),
        }
    }

    /// Goes on when the link's carrier is back. After a long absence the lease is confirmed, or the search for another starts
    /// soon.
    pub(super) fn on_carrier_back(&mut self, lost: Duration, cx: &mut Cx<'_>) {
        if lost <= CARRIER_LOSS || cut(Rule::CarrierAway) {
            return;
        }
        if self.client.lease().is_some() {
            return self.confirm("carrier is back", cx);
        }
        if self.client.seek_anew(cx.now.boot) {
            cx.end_exchange();
        }
    }

    /// Has the lease confirmed by INIT-REBOOT, soon. `why`: what makes it doubtful.
    pub(in crate::binding) fn confirm(&mut self, why: &str, cx: &mut Cx<'_>) {
        if !self.client.confirm(cx.now.boot) {
            return;
        }
        let address = self
            .client
            .lease()
            .map(|lease| tracing::field::display(lease.address));
        tracing::info!(attachment = %cx.own.attachment, address, "{why}: confirming the lease");
        cx.end_exchange();
        self.record_again();
        // What was heard on the previous network says nothing about this one.
        cx.close_guard();
    }

    /// Records that the link is down: the kernel has taken its routes.
    pub(super) fn on_down(&self, cx: &mut Cx<'_>) {
        cx.own
            .seat_mut(cx.interfaces)
            .into_iter()
            .for_each(Seat::on_down);
    }

    /// Announces the address of an interface that got another Ethernet address.
    fn announce_moved(&mut self, cx: &mut Cx<'_>) -> Next {
        let moved = cx.interfaces.take_moved(&cx.own.link, cx.own.id);
        let Some(address) = self.client.lease().map(Lease::ip) else {
            return SAME;
        };
        match moved && cx.announce_moved(address) {
            true => self.watch(cx),
            false => SAME,
        }
    }

    /// Handles what a look at the interface showed. `back`: for how long its carrier was away, if it is back.
    pub(super) fn on_seen(
        &mut self,
        view: &LinkView,
        back: Option<Duration>,
        cx: &mut Cx<'_>,
    ) -> Next {
        self.find_path(cx)?;
        back.into_iter()
            .for_each(|lost| self.on_carrier_back(lost, cx));
        // The kernel's message about an address may be lost.
        for there in &view.addresses {
            self.on_address_added(there.addr(), cx)?;
            self.on_outdated(*there, cx);
        }
        if let Some(address) = self.expected_address(cx.own, cx.interfaces) {
            self.on_address(view.has(address), cx);
        }
        self.settle_interface(view, cx);
        if !view.up {
            self.on_down(cx);
        }
        self.has_work();
        self.announce_moved(cx)
    }

    /// Records which routes others have removed or replaced, once the runtime has had its time.
    fn settle_interface(&mut self, view: &LinkView, cx: &mut Cx<'_>) {
        let now = cx.now.boot;
        let Some(seat) = cx
            .own
            .seat_mut(cx.interfaces)
            .filter(|seat| seat.is_settling())
        else {
            return;
        };
        let used = self.client.lease().map(|lease| cx.own.grant(lease));
        let removed = seat.settle(used.as_ref(), view, now);
        if !removed.is_empty() {
            tracing::info!(attachment = %cx.own.attachment, ?removed, "routes were removed or replaced when the container was set up: they are not put back");
            Arc::make_mut(&mut cx.own.profile)
                .policy
                .left_out
                .extend(removed);
            self.record_again();
        }
    }

    /// Records that an address is on the interface.
    pub(super) fn on_address_added(&mut self, address: IpAddr, cx: &mut Cx<'_>) -> Next {
        let IpAddr::V4(address) = address else {
            return SAME;
        };
        if cx.guard_on_address(address) {
            self.watch(cx)?;
        }
        self.on_address_late(address, cx);
        SAME
    }

    /// Handles an address that a main plugin puts on after its lease was lost: it is taken off again.
    fn on_address_late(&mut self, address: Ipv4Addr, cx: &mut Cx<'_>) {
        if self.client.lease().is_some() || self.last.ip() != address || cut(Rule::AddressLate) {
            return;
        }
        let taken = self
            .client
            .tally()
            .declined
            .is_some_and(|(declined, _)| declined == address);
        if self.leaves_lost(&self.last, taken, cx) {
            self.record_again();
        }
        cx.own
            .seat_mut(cx.interfaces)
            .and_then(Seat::work_mut)
            .into_iter()
            .for_each(Work::stir);
        self.has_work();
    }

    /// Records whether the leased address is on the interface. An address that somebody took off is not put back; without it
    /// servers cannot answer a renewal, so the lease is from then on extended by INIT-REBOOT. An address that only stays
    /// there after its lease does not count.
    pub(super) fn on_address(&mut self, there: bool, cx: &mut Cx<'_>) {
        let lease = self.client.shared();
        let now = cx.now.boot;
        let Some(seat) = cx.own.seat_mut(cx.interfaces) else {
            return;
        };
        let (was, is) = seat.see(there, lease.as_ref().map(|lease| lease.start), now);
        if was == is {
            return;
        }
        let Some(lease) = lease else {
            self.after.record |= is == Presence::TakenOff;
            return;
        };
        let is_news =
            is == Presence::TakenOff && self.rare.get_or_insert_default().tells_removal(now);
        // Whoever took the address off decides about its routes too.
        seat.work_mut()
            .filter(|_| is.is_left())
            .into_iter()
            .for_each(Work::route_no_more);
        let attachment = cx.own.attachment.clone();
        let address = lease.address;
        if there {
            if !was.on_link() {
                tracing::debug!(%attachment, %address, "leased address is on the interface again");
            }
            return self.has_work();
        }
        if is_news {
            tracing::warn!(%attachment, %address, "somebody took the leased address off the interface");
            let cause = "somebody took it off the interface: it is not put back";
            cx.note(EventKind::AddressRemoved, &lease, cause);
        }
        if is == Presence::Elsewhere {
            tracing::info!(%attachment, %address, "the leased address never appeared on the interface: its lease is extended without ARP, and nothing is put there");
        }
        self.after.record |= is.is_left();
        cx.own.guard_off_address(address.addr());
    }

    /// Replaces an outdated address that the runtime has put on the interface, if it is there, with the lease's, or with none.
    pub(super) fn replaces(&mut self, outdated: Option<IpNet>, cx: &mut Cx<'_>) {
        let router = self
            .rare
            .as_ref()
            .and_then(|rare| rare.carried.as_ref()?.router);
        let left = outdated.map(|outdated| Grant {
            addresses: vec![outdated],
            router,
            ..Grant::default()
        });
        let has_lease = self.client.lease().is_some();
        if let Some(seat) = cx.own.seat_mut(cx.interfaces) {
            seat.replaces(has_lease, left);
        }
        self.record_again();
        self.has_work();
    }

    /// Handles an address that was seen on the interface: the runtime may have put it there although the lease no longer has
    /// it.
    fn on_outdated(&mut self, there: IpNet, cx: &mut Cx<'_>) {
        if cx.own.told.is_none_or(|told| IpNet::V4(told) != there) || cut(Rule::OutdatedAddress) {
            return;
        }
        let is_left = cx.own.presence(cx.interfaces).is_left();
        let outdated = self.holding(cx.own).outdated();
        if let Some(outdated) = outdated.filter(|_| !is_left) {
            self.replaces(Some(outdated), cx);
        }
    }
}
