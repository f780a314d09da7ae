//! Releasing: note it, wait for the turn, send RELEASE, forget. `way` finds the way to the server.
//!
//! What could not be sent is tried again until the lease ends by itself. While another binding holds the identity nothing is
//! sent (invariant 4).

mod way;

use std::fmt;
use std::net::Ipv4Addr;
use std::time::Duration;

use super::hold::{Before, Hold};
use super::persistence::Want;
use super::{Binding, Cx, Holder, Leave, Life, Report};
use crate::conflict::stations::Question;
use crate::dhcpv4::lease::Lease;
use crate::dhcpv4::release as dhcp;
use crate::effect::{OpId, StoreCause, Why};
use crate::event::EventKind;
use crate::link::LinkCause;
use crate::record::BindingId;
use crate::time::Instant;

/// How long a DEL waits for the RELEASE to leave once it is noted. Three ARP requests take 0.6 s.
const PATIENCE: Duration = Duration::from_secs(1);

/// Why nothing is sent where the network wants that.
pub(super) const LEFT: &str = "left to end by itself, as its network wants";

/// A lease on its way back.
#[derive(Debug)]
pub(crate) struct Release {
    /// The lease.
    pub(crate) lease: Lease,
    /// What the server does not know yet.
    pub(crate) owed: Owed,
    why: Leave,
    stage: Stage,
    /// It was granted, and nobody else is known to use its address.
    good: bool,
    /// Until when it is kept for its identity, which may return.
    kept: Option<Instant>,
    /// The container's own link is known to be gone.
    link_gone: bool,
    /// It had no carrier when this began: the first try leaves from the host.
    mute: bool,
    /// The way that is being tried.
    way: Way,
    /// Why it leaves by no port of its own where it should.
    no_port: Option<LinkCause>,
    /// Since when the container's link, which is gone, has been on its way out still.
    going: Option<Instant>,
    /// The server, or the router before it, answered ARP.
    answered: bool,
    /// What keeps it from leaving from the host, and since when something has.
    held_up: Option<Box<(Instant, String)>>,
    tries: u32,
    /// A DEL that waits was told.
    told: bool,
    /// When a DEL is told at the latest.
    tell_by: Option<Instant>,
    /// How it was held, until the store knows of a DEL, and what it waited for while it was probed for.
    held: Option<(Box<Hold>, Option<Before>)>,
}

/// What a release owes the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owed {
    /// Nothing, or nothing any more.
    Nothing,
    /// Nothing: it granted the lease, whose network wants it to end by itself.
    Left,
    /// A RELEASE of what it was asked for and may have committed.
    Asked,
    /// A RELEASE of what it granted.
    Leased,
}

impl Owed {
    pub(super) fn is_nothing(self) -> bool {
        matches!(self, Self::Nothing | Self::Left)
    }
}

/// The way of a RELEASE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// Over the container's own link.
    Inside,
    /// By a port of a bridge, made for it.
    BridgePort,
    /// By a macvlan, made for it, on the host's link with this index.
    Macvlan(u32),
    /// Over the host's link itself.
    Parent,
}

/// How far a release is.
#[derive(Debug)]
enum Stage {
    /// The store is being told.
    Marking,
    /// Another binding holds the identity. `marked`: the store knows.
    Paused { marked: bool },
    /// The next try is at this instant; `None`: there is no way, the lease will end by itself.
    Waiting(Option<Instant>),
    /// Its turn comes at this instant: other RELEASEs of the LAN go first, or the container's link is on its way out still;
    /// `None`: it is about to be known.
    Queued(Option<Instant>),
    /// The host's link is being looked for.
    Finding(OpId),
    /// Sockets are being opened.
    Opening,
    /// It is asked whether another station has the address.
    Asking(Box<Question>),
    /// The server's hardware address is being asked for.
    Sending(Box<dhcp::Release>),
    /// The RELEASE is on its way out.
    Leaving(OpId),
    /// The store is to forget.
    Forgetting,
}

impl Release {
    pub(super) fn new(lease: Lease, owed: Owed, why: Leave) -> Self {
        let link_gone = why == Leave::LinkGone;
        Self {
            lease,
            owed,
            why,
            stage: Stage::Marking,
            good: matches!(owed, Owed::Leased | Owed::Left) && why != Leave::Undone,
            kept: None,
            link_gone,
            mute: false,
            way: Way::Inside,
            no_port: None,
            going: None,
            answered: false,
            held_up: None,
            tries: 0,
            told: false,
            tell_by: None,
            held: None,
        }
    }

    /// Keeps the lease for its identity until then, if it is to be kept at all.
    pub(super) fn kept(self, kept: Option<Instant>) -> Self {
        Self { kept, ..self }
    }

    /// Returns until when the lease is kept for its identity, from its start.
    pub(super) fn kept_from_start(&self) -> Option<Duration> {
        self.kept.map(|kept| kept.saturating_since(self.lease.start))
    }

    /// Returns until when the lease waits for its identity to return, if that is what it is at.
    fn waits_until(&self) -> Option<Instant> {
        self.kept.filter(|kept| matches!(self.stage, Stage::Waiting(Some(at)) if at == *kept))
    }

    /// Takes note that nothing which is sent on the container's own link arrives.
    pub(super) fn muted(self, mute: bool) -> Self {
        Self { mute, ..self }
    }

    /// Takes note of how the lease was held, for when the store refuses to note its DEL.
    pub(super) fn held_before(&mut self, hold: Box<Hold>, probing: Option<Before>) {
        self.held = (self.why == Leave::Deleted).then_some((hold, probing));
    }

    /// Returns what keeps it from leaving from the host, and for how long something has.
    pub(super) fn held_up(&self, now: Instant) -> Option<(Duration, String)> {
        self.held_up.as_ref().map(|held_up| (now.saturating_since(held_up.0), held_up.1.clone()))
    }

    /// Returns whether there is nothing more to decide: the RELEASE is out, or the record is going.
    pub(super) fn is_leaving(&self) -> bool {
        matches!(self.stage, Stage::Leaving(_) | Stage::Forgetting)
    }

    pub(super) fn speaks_from_host(&self) -> bool {
        self.way != Way::Inside
    }

    pub(super) fn deadline(&self) -> Option<(Instant, Why)> {
        let ends = self.lease.expires().map(|at| (at, Why::LeaseEnds));
        let own = match &self.stage {
            // The store answers.
            Stage::Marking | Stage::Forgetting => return None,
            Stage::Paused { .. } | Stage::Finding(_) | Stage::Opening | Stage::Leaving(_) => None,
            Stage::Waiting(at) | Stage::Queued(at) => at.map(|at| (at, Why::Release)),
            Stage::Asking(question) => Some((question.deadline(), Why::Release)),
            Stage::Sending(release) => release.deadline().map(|at| (at, Why::Release)),
        };
        let tell = self.tell_by.filter(|_| !self.told).map(|at| (at, Why::Call));
        [own, ends, tell].into_iter().flatten().min_by_key(|(at, _)| *at)
    }
}

impl Binding {
    /// Returns a binding whose record says that its lease is on its way back, at once or when it was kept for long enough.
    /// Where the link is of an earlier boot it is gone.
    pub(crate) fn releasing(
        id: BindingId,
        holder: Holder,
        lease: Lease,
        (kept, link_gone): (Option<Instant>, bool),
        now: Instant,
    ) -> Self {
        let owed = if holder.profile.release { Owed::Leased } else { Owed::Left };
        let mut release =
            Release::new(lease, owed, if link_gone { Leave::LinkGone } else { Leave::Resumed }).kept(kept);
        release.stage = Stage::Waiting(Some(kept.unwrap_or(now)));
        release.told = true;
        Self::new(id, holder, Life::Releasing(Box::new(release)))
    }

    /// Returns a binding that held no lease when its boot ended: nothing is owed, only its record has to go.
    pub(crate) fn forgotten(id: BindingId, holder: Holder, last: Lease, cx: &mut Cx<'_>) -> Self {
        let release = Release::new(last, Owed::Nothing, Leave::LinkGone);
        let mut binding = Self::new(id, holder, Life::Releasing(Box::new(release)));
        binding.forget(cx);
        binding
    }

    /// A DEL asks for what is on its way already: a release that waits is tried at once. One that waited for its container
    /// after a reboot is kept from here on as any other is after its DEL.
    pub(super) fn hurry(&mut self, cx: &mut Cx<'_>) {
        let kept = self.grace_from(cx.now.boot);
        let Life::Releasing(release) = &mut self.life else { return };
        let told = std::mem::replace(&mut release.told, false);
        match release.stage {
            Stage::Waiting(Some(_)) => {
                release.stage = Stage::Marking;
                release.kept = kept.filter(|_| release.owed == Owed::Leased);
                self.persist(Want::Releasing, cx);
            }
            _ if told => self.tell(cx),
            Stage::Waiting(None) => self.tell(cx),
            Stage::Marking
            | Stage::Paused { .. }
            | Stage::Queued(_)
            | Stage::Finding(_)
            | Stage::Opening
            | Stage::Asking(_)
            | Stage::Sending(_)
            | Stage::Leaving(_)
            | Stage::Forgetting => {}
        }
    }

    /// Returns until when a lease is kept whose attachment went now, if its identity can return.
    ///
    /// It is not renewed meanwhile: nobody has its address, for which servers ask, and a lease that was renewed at T1 has half
    /// of its time left. One that is shorter just ends. Who returns confirms it (INIT-REBOOT), or asks for its address.
    pub(super) fn grace_from(&self, now: Instant) -> Option<Instant> {
        let seconds = self.profile.grace.filter(|seconds| *seconds > 0)?;
        Some(now + Duration::from_secs(seconds.into()))
    }

    /// Returns until when a lease is kept for its container to return.
    pub(crate) fn kept_until(&self) -> Option<Instant> {
        match &self.life {
            Life::Releasing(release) => release.waits_until(),
            Life::Acquiring(_) | Life::Held(_) => None,
        }
    }

    /// Gives back at once what is kept.
    pub(crate) fn end_grace(&mut self, cx: &mut Cx<'_>) {
        let Life::Releasing(release) = &mut self.life else { return };
        let waits = release.waits_until().is_some();
        release.kept = None;
        if waits {
            release.stage = Stage::Waiting(Some(cx.now.boot));
            self.release_on_clock(cx);
        }
    }

    pub(super) fn release_begin(&mut self, cx: &mut Cx<'_>) {
        let Life::Releasing(release) = &mut self.life else { return };
        if release.why == Leave::Undone {
            self.tell(cx);
            return self.forget(cx);
        }
        if release.owed.is_nothing() {
            return self.forget(cx);
        }
        if release.why == Leave::Yielded {
            release.stage = Stage::Paused { marked: false };
            return;
        }
        self.persist(Want::Releasing, cx);
    }

    pub(super) fn release_on_clock(&mut self, cx: &mut Cx<'_>) {
        let Life::Releasing(release) = &mut self.life else { return };
        let over = release.lease.expired(cx.now.boot);
        if release.tell_by.is_some_and(|at| cx.now.boot >= at) {
            self.tell(cx);
        }
        let Life::Releasing(release) = &mut self.life else { return };
        match &mut release.stage {
            Stage::Marking | Stage::Forgetting => {}
            _ if over => {
                tracing::info!(attachment = %self.attachment, address = %release.lease.address, "lease ended before it could be released");
                let cause = match release.kept {
                    Some(_) => "was kept for its container until its end",
                    None => "could not be given back before its end",
                };
                if !release.owed.is_nothing() {
                    self.note_leave(EventKind::Expired, cause, cx);
                }
                self.forget(cx);
            }
            Stage::Waiting(Some(at)) if cx.now.boot >= *at => self.try_release(cx),
            Stage::Queued(Some(at)) if cx.now.boot >= *at => self.go(cx),
            Stage::Asking(question) => {
                let turn = question.on_clock(cx.now.boot);
                self.asked(turn, cx);
            }
            Stage::Sending(sending) => {
                let step = sending.on_clock(cx.now.boot);
                self.release_step(step, cx);
            }
            Stage::Paused { .. }
            | Stage::Waiting(_)
            | Stage::Queued(_)
            | Stage::Finding(_)
            | Stage::Opening
            | Stage::Leaving(_) => {}
        }
    }

    pub(super) fn release_on_persisted(&mut self, cx: &mut Cx<'_>) {
        let Life::Releasing(release) = &mut self.life else { return };
        match release.stage {
            Stage::Marking => {
                release.tell_by = Some(cx.now.boot + PATIENCE);
                release.held = None;
                release.stage = Stage::Waiting(Some(release.kept.unwrap_or(cx.now.boot)));
                if release.kept.is_some() {
                    self.tell(cx);
                }
                // The store may have taken longer than the lease lasts.
                self.release_on_clock(cx);
            }
            Stage::Forgetting => {
                self.tell(cx);
                cx.out.report(self.id, Report::Over);
            }
            Stage::Paused { .. }
            | Stage::Waiting(_)
            | Stage::Queued(_)
            | Stage::Finding(_)
            | Stage::Opening
            | Stage::Asking(_)
            | Stage::Sending(_)
            | Stage::Leaving(_) => {}
        }
    }

    /// A DEL that the store cannot note fails, and the binding is held as before. Everything else is tried again.
    pub(super) fn release_on_unpersisted(&mut self, cause: StoreCause, cx: &mut Cx<'_>) {
        let is_replaced = self.held_by_other(cx) || self.has_tenant(cx);
        let Life::Releasing(release) = &mut self.life else { return };
        if release.told {
            return self.persist_later(&cause, cx);
        }
        let link_gone = release.link_gone;
        if let Some((hold, probing)) = release.held.take().filter(|_| !is_replaced) {
            self.hold_again(hold, probing, cx);
            self.persistence.want_again(Want::Bound { replaces: Vec::new() });
            self.work(cx);
        }
        self.persist_later(&cause, cx);
        cx.out.report(self.id, Report::NotGivenBack(cause));
        if link_gone && matches!(self.life, Life::Held(_)) {
            cx.out.report(self.id, Report::LinkGone(LinkCause::NoLink(self.attachment.ifname.clone())));
        }
    }

    /// Takes its turn among the RELEASEs of its LAN, if there is something to be said and nobody else holds the identity.
    fn try_release(&mut self, cx: &mut Cx<'_>) {
        let held = self.is_held_over(cx);
        let Life::Releasing(release) = &mut self.life else { return };
        if held {
            release.stage = Stage::Paused { marked: true };
            return self.tell(cx);
        }
        if release.owed == Owed::Left {
            self.note_leave(EventKind::Released, LEFT, cx);
            return self.forget(cx);
        }
        if release.owed.is_nothing() {
            return self.forget(cx);
        }
        if self.gives_way(cx) {
            return;
        }
        let Life::Releasing(release) = &mut self.life else { return };
        release.stage = Stage::Queued(None);
        if release.link_gone {
            // Nothing that a caller waits for.
            self.tell(cx);
        }
        let Life::Releasing(release) = &self.life else { return };
        cx.out.report(self.id, Report::WantsTurn { waited_for: !release.told });
    }

    /// Takes note of when its turn comes, which may be now.
    pub(crate) fn on_turn(&mut self, at: Instant, cx: &mut Cx<'_>) {
        let Life::Releasing(release) = &mut self.life else { return };
        if !matches!(release.stage, Stage::Queued(None)) {
            return;
        }
        if at <= cx.now.boot {
            return self.go(cx);
        }
        release.stage = Stage::Queued(Some(at));
        release.tell_by = release.tell_by.map(|by| by.max(at + PATIENCE));
    }

    /// Goes before others of the LAN: a call waits behind this.
    pub(crate) fn skip_queue(&mut self, cx: &mut Cx<'_>) {
        let Life::Releasing(release) = &self.life else { return };
        if matches!(release.stage, Stage::Queued(Some(_))) {
            self.go(cx);
        }
    }

    /// Stops: another binding has taken the identity over.
    pub(crate) fn pause(&mut self, cx: &mut Cx<'_>) {
        if !matches!(self.life, Life::Releasing(_)) {
            return;
        }
        // A DECLINE that waits leaves before the other asks for anything.
        self.close_guard(cx);
        let Life::Releasing(release) = &mut self.life else { return };
        match release.stage {
            Stage::Waiting(_)
            | Stage::Queued(_)
            | Stage::Finding(_)
            | Stage::Opening
            | Stage::Asking(_)
            | Stage::Sending(_) => {
                let before = std::mem::replace(&mut release.stage, Stage::Paused { marked: true });
                if let Stage::Finding(op) = before {
                    cx.out.forget(op);
                }
                self.exchange.close(cx);
                self.tell(cx);
            }
            // It leaves before the other asks for anything.
            Stage::Leaving(_) => self.released(cx),
            Stage::Marking | Stage::Paused { .. } | Stage::Forgetting => {}
        }
    }

    /// Takes note that a RELEASE for this address went out under the same identity.
    pub(crate) fn owes_no_more(&mut self, address: Ipv4Addr) {
        if let Life::Releasing(release) = &mut self.life
            && release.lease.ip() == address
        {
            (release.owed, release.good) = (Owed::Nothing, false);
        }
    }

    /// Returns whether the lease is to be remembered, as the last of an identity that can return.
    pub(crate) fn is_to_remember(&self) -> bool {
        let good = matches!(&self.life, Life::Releasing(release) if release.good);
        good && self.profile.returns()
    }

    /// Goes: the write of another has taken its record out. Tells whether that is all; a write of its own that came after that
    /// brings the record back, and is undone.
    pub(crate) fn replaced(&mut self, cx: &mut Cx<'_>) -> bool {
        let Life::Releasing(release) = &mut self.life else { return true };
        if !self.persistence.busy() {
            return true;
        }
        release.owed = Owed::Nothing;
        self.forget(cx);
        false
    }

    /// Goes on if nobody holds the identity any more, or who does has another address: then its wait is over.
    pub(crate) fn unpause(&mut self, cx: &mut Cx<'_>) {
        if self.is_held_over(cx) {
            return;
        }
        if self.held_by_other(cx) {
            self.end_grace(cx);
        }
        let Life::Releasing(release) = &mut self.life else { return };
        match release.stage {
            Stage::Paused { .. } if release.owed.is_nothing() => self.forget(cx),
            Stage::Paused { marked: true } => {
                release.stage = Stage::Waiting(Some(release.kept.unwrap_or(cx.now.boot)));
                self.release_on_clock(cx);
            }
            Stage::Paused { marked: false } => {
                release.stage = Stage::Marking;
                self.persist(Want::Releasing, cx);
            }
            Stage::Marking => self.write(cx),
            Stage::Waiting(_)
            | Stage::Queued(_)
            | Stage::Finding(_)
            | Stage::Opening
            | Stage::Asking(_)
            | Stage::Sending(_)
            | Stage::Leaving(_)
            | Stage::Forgetting => {}
        }
    }

    /// Lets a DEL that waits be answered.
    fn tell(&mut self, cx: &mut Cx<'_>) {
        let Life::Releasing(release) = &mut self.life else { return };
        if !std::mem::replace(&mut release.told, true) {
            cx.out.report(self.id, Report::GivenBack);
        }
    }

    /// Ends without a word to the server.
    pub(super) fn end_unsaid(&mut self, cx: &mut Cx<'_>) {
        let Life::Releasing(release) = &mut self.life else { return };
        (release.owed, release.good) = (Owed::Nothing, false);
        self.forget(cx);
    }

    fn note_leave(&self, kind: EventKind, cause: impl fmt::Display, cx: &mut Cx<'_>) {
        let Life::Releasing(release) = &self.life else { return };
        self.note(kind, &release.lease, cause, cx);
    }

    fn forget(&mut self, cx: &mut Cx<'_>) {
        self.exchange.close(cx);
        let Life::Releasing(release) = &mut self.life else { return };
        if let Stage::Finding(op) | Stage::Leaving(op) = std::mem::replace(&mut release.stage, Stage::Forgetting) {
            cx.out.forget(op);
        }
        self.persist(Want::Gone, cx);
    }
}
