//! Releasing: record it, wait for the turn (`turn`), find the way to the server (`way`), send the RELEASE, delete the record.
//!
//! What could not be sent is tried again until the lease ends. While another binding holds the identity, nothing is sent
//! (invariant 4).

mod turn;
mod way;

use std::net::Ipv4Addr;
use std::time::Duration;

use crate::backoff::Backoff;
use crate::binding::common::tenancy::claim_to;
use crate::binding::holders::{Claim, Stand};
use crate::binding::{Common, Cx, Found, Leave, Life, Living, Next, Report, SAME, Want};
use crate::effect::{BindingState, OpId, Outcome, StoreCause, Why};
use crate::event::EventKind;
use crate::interface::News;
use crate::link::{Line, LinkCause, LinkView};
use crate::patience::COMES_FIRST;
use crate::question::Question;
use crate::record::{Record, RecordState};
use crate::source::{Client, Lease, ReleaseExchange};
use crate::time::Instant;
use crate::wire::frame::Frame;

/// Why nothing is sent if the network wants that.
pub(in crate::binding) const LEFT: &str = "left to expire, as its network's `release` says";

/// A lease that is being given back.
#[derive(Debug)]
pub(crate) struct Release {
    /// The lease.
    pub(crate) lease: Lease,
    /// What the server does not know yet.
    pub(crate) owed: Owed,
    why: Leave,
    stage: ReleaseStage,
    /// Whether it was granted, no server has refused it since, and no other station is known to use its address.
    good: bool,
    /// Until when it is kept for its identity, which may return.
    kept: Option<Instant>,
    /// Whether the container's own link is known to be gone.
    link_gone: bool,
    /// Whether an earlier boot's daemon may have given it back without recording that: another station may have its address
    /// by now.
    of_earlier_boot: bool,
    /// Whether its address was seen on the container's own link.
    seen: bool,
    /// Whether it was tried.
    tried: bool,
    /// Where on the host it leaves; `None`: over the container's own link.
    line: Option<Line>,
    /// Since when it has waited for the container's link, which is gone, to disappear.
    going: Option<Instant>,
    /// Whether the server, or the router to it, answered ARP.
    answered: bool,
    /// What keeps it from leaving from the host, and since when.
    held_up: Option<Box<(Instant, String)>>,
    /// How often no way was found. The first pause is two seconds.
    backoff: Backoff,
    /// Whether a waiting DEL was answered.
    del_answered: bool,
    /// When a DEL must be answered.
    answer_by: Option<Instant>,
}

/// What a release owes the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owed {
    /// Nothing, or nothing any more.
    Nothing,
    /// Nothing: it granted the lease, but the network wants it to expire.
    Left,
    /// A RELEASE of what it was asked for and may have committed.
    Asked,
    /// A RELEASE of what it granted.
    Leased,
}

impl Owed {
    pub(in crate::binding) fn is_nothing(self) -> bool {
        matches!(self, Self::Nothing | Self::Left)
    }
}

/// How far a release is.
#[derive(Debug)]
enum ReleaseStage {
    /// The store is recording it.
    Marking,
    /// Another binding holds the identity. `marked`: the store has recorded it.
    Paused { marked: bool },
    /// The next try is at this instant.
    Waiting(Instant),
    /// Its turn comes at this instant: other RELEASEs on the LAN go first, or the container's link is still there; `None`:
    /// the instant is about to be known.
    Queued(Option<Instant>),
    /// It is on its way to the server.
    Going(Way),
    /// The store is deleting it.
    Forgetting,
}

/// How far a RELEASE is on its way.
#[derive(Debug)]
enum Way {
    /// The container's link is being looked at.
    Finding(OpId),
    /// Sockets are being opened; on the host after a look at the LAN's link.
    Opening,
    /// The LAN is asked whether another station has the address.
    Asking(Box<Question>),
    /// The server's hardware address is being looked up.
    Sending(Box<ReleaseExchange>),
    /// The RELEASE is being sent.
    Leaving(OpId),
}

impl Release {
    pub(in crate::binding) fn new(lease: Lease, owed: Owed, why: Leave) -> Self {
        // Only a server is told. What no server granted is good until it goes.
        let is_asked = lease.source.is_asked();
        let is_good = matches!(owed, Owed::Leased | Owed::Left);
        let owed = if is_asked { owed } else { Owed::Nothing };
        let link_gone = why == Leave::LinkGone;
        Self {
            lease,
            owed,
            why,
            stage: ReleaseStage::Marking,
            good: (is_good || !is_asked) && why != Leave::Undone,
            kept: None,
            link_gone,
            of_earlier_boot: false,
            seen: false,
            tried: false,
            line: None,
            going: None,
            answered: false,
            held_up: None,
            backoff: Backoff::of_two(),
            del_answered: false,
            answer_by: None,
        }
    }

    /// Keeps the lease for its identity until this instant, if at all.
    pub(in crate::binding) fn kept(self, kept: Option<Instant>) -> Self {
        Self { kept, ..self }
    }

    /// Returns until when the lease waits for its identity to return, if it does.
    pub(in crate::binding) fn waits_until(&self) -> Option<Instant> {
        self.kept
            .filter(|kept| matches!(self.stage, ReleaseStage::Waiting(at) if at == *kept))
    }

    /// Returns what keeps it from leaving from the host, and for how long.
    pub(in crate::binding) fn held_up(&self, now: Instant) -> Option<(Duration, String)> {
        self.held_up
            .as_ref()
            .map(|held_up| (now.saturating_since(held_up.0), held_up.1.clone()))
    }

    /// Returns whether there is nothing more to decide: the RELEASE is out, or the record is being deleted.
    pub(in crate::binding) fn is_leaving(&self) -> bool {
        matches!(
            self.stage,
            ReleaseStage::Going(Way::Leaving(_)) | ReleaseStage::Forgetting
        )
    }

    /// Returns whether a successor may use the lease unconfirmed: it is good, and neither this daemon nor an earlier one may have
    /// told the server that the address is free.
    pub(crate) fn may_be_trusted(&self) -> bool {
        self.good && !self.tried
    }

    pub(in crate::binding) fn speaks_from_host(&self) -> bool {
        self.line.is_some()
    }

    /// Returns a release that, as its record says, has begun, at once or after the lease was kept for long enough. A link from
    /// an earlier boot is gone.
    pub(crate) fn recorded(
        common: &Common,
        lease: Lease,
        kept: Option<Instant>,
        link_gone: bool,
        now: Instant,
    ) -> Life {
        let owed = if common.profile.release {
            Owed::Leased
        } else {
            Owed::Left
        };
        let why = if link_gone {
            Leave::LinkGone
        } else {
            Leave::Resumed
        };
        let stage = ReleaseStage::Waiting(kept.unwrap_or(now));
        let tried = kept.is_none_or(|kept| kept <= now);
        Life::Releasing(Box::new(Self {
            stage,
            tried,
            del_answered: true,
            of_earlier_boot: link_gone,
            ..Self::new(lease, owed, why).kept(kept)
        }))
    }

    /// Returns the life of a binding that held no lease when its boot ended: nothing is owed, only its record must be
    /// removed.
    pub(crate) fn forgotten(last: Lease, cx: &mut Cx<'_>) -> Life {
        let mut release = Box::new(Self::new(last, Owed::Nothing, Leave::LinkGone));
        release.forget(cx);
        Life::Releasing(release)
    }

    pub(in crate::binding) fn begun(self, cx: &mut Cx<'_>) -> Life {
        let mut release = Box::new(self);
        release.begin(cx);
        Life::Releasing(release)
    }

    /// Handles a DEL for a lease that is already being given back: a release that waits is tried at once. One that waited for
    /// its container after a reboot is from now on kept like any other after its DEL.
    pub(in crate::binding) fn hurry(&mut self, cx: &mut Cx<'_>) {
        let kept = cx.own.grace_from(cx.now.boot);
        let del_answered = std::mem::replace(&mut self.del_answered, false);
        match self.stage {
            ReleaseStage::Waiting(_) => {
                self.stage = ReleaseStage::Marking;
                self.kept = kept.filter(|_| self.owed == Owed::Leased);
                self.persist(Want::Releasing, cx);
            }
            _ if del_answered => self.answer_del(cx),
            // The store may take it by now.
            ReleaseStage::Marking | ReleaseStage::Forgetting => self.write(cx),
            ReleaseStage::Paused { .. } | ReleaseStage::Queued(_) | ReleaseStage::Going(_) => {}
        }
    }

    /// Has the record of a lease that waits to be given back written again; a release under way is soon over.
    pub(in crate::binding) fn record_again(&mut self, cx: &mut Cx<'_>) {
        if self.del_answered && matches!(self.stage, ReleaseStage::Waiting(_)) {
            self.persist(Want::Releasing, cx);
        }
    }

    /// Gives a kept lease back at once.
    pub(crate) fn end_grace(&mut self, cx: &mut Cx<'_>) {
        let waits = self.waits_until().is_some();
        self.kept = None;
        if waits {
            self.stage = ReleaseStage::Waiting(cx.now.boot);
            self.go_on(cx);
        }
    }

    /// Gives a kept lease back at once, though its identity may have returned: the client takes no other address, and its
    /// server does not confirm this one, since it recognises clients by their Ethernet addresses.
    pub(crate) fn make_way(&mut self, cx: &mut Cx<'_>) {
        self.end_grace(cx);
        if matches!(self.stage, ReleaseStage::Paused { marked: true }) && self.owed == Owed::Leased
        {
            self.queue(cx);
        }
    }

    fn begin(&mut self, cx: &mut Cx<'_>) {
        if self.why == Leave::Undone {
            self.answer_del(cx);
            return self.forget(cx);
        }
        if self.owed.is_nothing() {
            return self.forget(cx);
        }
        if self.why == Leave::Yielded {
            self.stage = ReleaseStage::Paused { marked: false };
            return;
        }
        self.persist(Want::Releasing, cx);
    }

    /// Does what is due by the clock.
    fn go_on(&mut self, cx: &mut Cx<'_>) {
        let over = self.lease.expired(cx.now.boot);
        if self.answer_by.is_some_and(|at| cx.now.boot >= at) {
            self.answer_del(cx);
        }
        match &mut self.stage {
            ReleaseStage::Marking | ReleaseStage::Forgetting => {}
            // Its identity has returned, and asks for it by itself.
            ReleaseStage::Paused { .. } if over => self.forget(cx),
            _ if over => {
                tracing::info!(attachment = %cx.own.attachment, address = %self.lease.address, "lease ended before it could be released");
                let cause = match self.kept {
                    Some(_) => "was kept for its container until it ended",
                    None => "ended before it could be given back",
                };
                if !self.owed.is_nothing() {
                    cx.note(EventKind::Expired, &self.lease, cause);
                }
                self.forget(cx);
            }
            ReleaseStage::Waiting(at) if cx.now.boot >= *at => self.try_release(cx),
            ReleaseStage::Queued(Some(at)) if cx.now.boot >= *at => self.go(cx),
            ReleaseStage::Going(Way::Asking(question)) => {
                let action = question.on_clock(cx.now.boot, true);
                self.asked(action, cx);
            }
            ReleaseStage::Going(Way::Sending(sending)) => {
                let action = sending.on_clock(cx.now.boot);
                self.act(action, cx);
            }
            ReleaseStage::Paused { .. }
            | ReleaseStage::Waiting(_)
            | ReleaseStage::Queued(_)
            | ReleaseStage::Going(_) => {}
        }
    }

    /// Goes on once the store has recorded it.
    fn noted(&mut self, cx: &mut Cx<'_>) {
        match self.stage {
            ReleaseStage::Marking => {
                self.answer_by = Some(cx.now.boot + COMES_FIRST);
                self.stage = ReleaseStage::Waiting(self.kept.unwrap_or(cx.now.boot));
                // Docker waits for no more than that.
                if self.kept.is_some() || self.why == Leave::Released {
                    self.answer_del(cx);
                }
                // The store may have taken longer than the lease lasts.
                self.go_on(cx);
            }
            ReleaseStage::Forgetting => {
                self.answer_del(cx);
                cx.out.report(cx.own.id, Report::Over);
            }
            ReleaseStage::Paused { .. }
            | ReleaseStage::Waiting(_)
            | ReleaseStage::Queued(_)
            | ReleaseStage::Going(_) => {}
        }
    }

    /// Handles a write that failed: it is tried again. A DEL that waits for it fails; the next finds the release under way.
    fn not_noted(&mut self, cause: StoreCause, cx: &mut Cx<'_>) {
        cx.write_later(&cause);
        if !self.del_answered {
            cx.out.report(cx.own.id, Report::NotGivenBack(cause));
        }
    }

    /// Records that a server refused this address under the same identity, or was told that it is free, so that no successor uses
    /// it unconfirmed. The server may hold it for the Ethernet address that it was leased to: it is owed the RELEASE all the same.
    pub(crate) fn spoil(&mut self, address: Ipv4Addr) {
        self.good &= self.lease.ip() != address;
    }

    /// Returns whether the lease must be remembered, as the last of an identity that can return, or whose engine may start its
    /// container again.
    pub(in crate::binding) fn is_to_remember(&self, common: &Common) -> bool {
        self.good
            && (common.profile.returns()
                || common.attachment.is_named_by(&common.identity.client_id))
    }

    fn is_held_over(&self, cx: &Cx<'_>) -> bool {
        let own = self.claim(cx.now.boot).map(|claim| claim.address);
        cx.is_held_over(own)
    }

    fn answer_del(&mut self, cx: &mut Cx<'_>) {
        if !std::mem::replace(&mut self.del_answered, true) {
            cx.out.report(cx.own.id, Report::GivenBack);
        }
    }

    /// Ends without telling the server.
    pub(in crate::binding) fn end_unsaid(&mut self, cx: &mut Cx<'_>) {
        (self.owed, self.good) = (Owed::Nothing, false);
        self.forget(cx);
    }

    fn forget(&mut self, cx: &mut Cx<'_>) {
        cx.own.exchange.close(cx.out);
        if let ReleaseStage::Going(Way::Finding(op) | Way::Leaving(op)) =
            std::mem::replace(&mut self.stage, ReleaseStage::Forgetting)
        {
            cx.out.forget(op);
        }
        self.persist(Want::Gone, cx);
    }
}

impl Living for Release {
    fn stand(&self) -> Stand {
        Stand::Leaving
    }

    fn claim(&self, _now: Instant) -> Option<Claim> {
        (!self.owed.is_nothing()).then(|| claim_to(&self.lease, self.owed == Owed::Leased))
    }

    fn lease<'a>(&'a self, _common: &'a Common, _now: Instant) -> Option<&'a Lease> {
        Some(&self.lease)
    }

    fn client(&self) -> Option<&Client> {
        None
    }

    fn client_mut(&mut self) -> Option<&mut Client> {
        None
    }

    fn state(&self) -> BindingState {
        if self.waits_until().is_some() {
            BindingState::Kept
        } else {
            BindingState::Releasing
        }
    }

    fn deadline(&self) -> Option<(Instant, Why)> {
        let ends = self.lease.expires().map(|at| (at, Why::LeaseEnds));
        let own = match &self.stage {
            // The store answers.
            ReleaseStage::Marking | ReleaseStage::Forgetting => return None,
            ReleaseStage::Waiting(at) => Some(*at),
            ReleaseStage::Queued(at) => *at,
            ReleaseStage::Going(Way::Asking(question)) => Some(question.deadline(true)),
            ReleaseStage::Going(Way::Sending(release)) => release.deadline(),
            ReleaseStage::Paused { .. } | ReleaseStage::Going(_) => None,
        };
        let own = own.map(|at| (at, Why::Release));
        let answer = self
            .answer_by
            .filter(|_| !self.del_answered)
            .map(|at| (at, Why::Call));
        [own, ends, answer]
            .into_iter()
            .flatten()
            .min_by_key(|(at, _)| *at)
    }

    fn record(&self, cx: &Cx<'_>) -> Option<Record> {
        let state = match cx.own.persistence.wanted() {
            Want::Gone if !self.is_to_remember(cx.own) => return None,
            Want::Gone => RecordState::Past,
            Want::Bound { .. } => RecordState::Bound,
            Want::Releasing | Want::AsIs => RecordState::Releasing,
        };
        let kept = self
            .kept
            .map(|kept| kept.saturating_since(self.lease.start));
        Some(Record {
            kept,
            ..cx.record(&self.lease, state)
        })
    }

    /// The successor's write removes this record; a later write would bring it back.
    fn may_write(&self, cx: &Cx<'_>) -> bool {
        *cx.own.persistence.wanted() == Want::Gone || !self.is_held_over(cx)
    }

    fn on_clock(&mut self, cx: &mut Cx<'_>) -> Next {
        self.go_on(cx);
        SAME
    }

    fn on_opened(&mut self, cx: &mut Cx<'_>) -> Next {
        self.begin_asking(cx);
        SAME
    }

    fn on_unopened(&mut self, cause: LinkCause, cx: &mut Cx<'_>) -> Next {
        self.no_way(cause, cx);
        SAME
    }

    fn on_line(&mut self, result: Result<LinkView, LinkCause>, cx: &mut Cx<'_>) -> Next {
        self.on_parent(result, cx);
        SAME
    }

    fn on_frame(&mut self, frame: &Frame<'_>, cx: &mut Cx<'_>) -> Next {
        self.take_in(frame, cx);
        SAME
    }

    fn on_persisted(&mut self, result: Result<(), StoreCause>, cx: &mut Cx<'_>) -> Next {
        match result {
            Ok(()) => self.noted(cx),
            Err(cause) => self.not_noted(cause, cx),
        }
        SAME
    }

    fn on_worked(&mut self, _outcome: Outcome, _cx: &mut Cx<'_>) -> Next {
        SAME
    }

    fn on_news(&mut self, news: News<'_>, cx: &mut Cx<'_>) -> Next {
        match news {
            News::Gone(_) => self.lose_link(cx),
            // What it carries no longer belongs to this binding.
            News::Down | News::Free | News::CarrierBack(_) => {}
            News::Ethernet(_) | News::AddressAdded(_) | News::Seen { .. } => {}
        }
        SAME
    }

    fn on_found(&mut self, _found: Found, _cx: &mut Cx<'_>) -> Next {
        SAME
    }
}
