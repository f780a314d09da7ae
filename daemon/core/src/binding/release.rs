//! Releasing: note it, wait for the turn, find a way to the server, send RELEASE, forget.
//!
//! From inside while the link lives, else from the host's link that is the LAN. What could not be sent is tried again until
//! the lease ends by itself. While another binding holds the identity nothing is sent (invariant 4).

use std::net::Ipv4Addr;
use std::time::Duration;

use super::hold::{Before, Hold};
use super::persistence::Want;
use super::{Binding, Cx, Holder, Leave, Life, Owner, Purpose, Report};
use crate::dhcpv4::lease::Lease;
use crate::dhcpv4::release as dhcp;
use crate::dhcpv4::release::ReleaseStep;
use crate::dhcpv4::timing;
use crate::effect::{OpId, StoreCause, Why};
use crate::event::EventKind;
use crate::link::{Hears, Link, LinkCause, LinkView, Sockets, Target};
use crate::record::BindingId;
use crate::time::Instant;
use crate::wire::Mac;
use crate::wire::frame::Frame;

/// How long a DEL waits for the RELEASE to leave once it is noted. Three ARP requests take 0.6 s.
const PATIENCE: Duration = Duration::from_secs(1);

/// The longest pause between two tries.
const LONGEST_PAUSE: Duration = Duration::from_secs(300);

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
    /// The container's own link is known to be gone.
    link_gone: bool,
    /// It had no carrier when this began: the first try leaves from the host.
    mute: bool,
    /// The way that is being tried leaves from the host.
    from_host: bool,
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
    fn is_nothing(self) -> bool {
        matches!(self, Self::Nothing | Self::Left)
    }
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
    /// Other RELEASEs of the LAN go first, until this instant; `None`: it is about to be known.
    Queued(Option<Instant>),
    /// The host's link is being looked for.
    Finding(OpId),
    /// Sockets are being opened.
    Opening,
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
            link_gone,
            mute: false,
            from_host: false,
            tries: 0,
            told: false,
            tell_by: None,
            held: None,
        }
    }

    /// Takes note that nothing which is sent on the container's own link arrives.
    pub(super) fn muted(self, mute: bool) -> Self {
        Self { mute, ..self }
    }

    /// Takes note of how the lease was held, for when the store refuses to note its DEL.
    pub(super) fn held_before(&mut self, hold: Box<Hold>, probing: Option<Before>) {
        self.held = (self.why == Leave::Deleted).then_some((hold, probing));
    }

    pub(super) fn speaks_from_host(&self) -> bool {
        self.from_host
    }

    pub(super) fn deadline(&self) -> Option<(Instant, Why)> {
        let ends = self.lease.expires().map(|at| (at, Why::LeaseEnds));
        let own = match &self.stage {
            // The store answers.
            Stage::Marking | Stage::Forgetting => return None,
            Stage::Paused { .. } | Stage::Finding(_) | Stage::Opening | Stage::Leaving(_) => None,
            Stage::Waiting(at) | Stage::Queued(at) => at.map(|at| (at, Why::Release)),
            Stage::Sending(release) => release.deadline().map(|at| (at, Why::Release)),
        };
        let tell = self.tell_by.filter(|_| !self.told).map(|at| (at, Why::Call));
        [own, ends, tell].into_iter().flatten().min_by_key(|(at, _)| *at)
    }
}

impl Binding {
    /// Returns a binding whose record says that its lease is on its way back; the next try is at `at`. Where the link
    /// is of an earlier boot it is gone.
    pub(crate) fn releasing(id: BindingId, holder: Holder, lease: Lease, (at, link_gone): (Instant, bool)) -> Self {
        let owed = if holder.profile.release { Owed::Leased } else { Owed::Left };
        let mut release = Release::new(lease, owed, if link_gone { Leave::LinkGone } else { Leave::Aborted });
        release.stage = Stage::Waiting(Some(at));
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

    /// A DEL asks for what is on its way already: a release that waits is tried at once.
    pub(super) fn hurry(&mut self, cx: &mut Cx<'_>) {
        let Life::Releasing(release) = &mut self.life else { return };
        let told = std::mem::replace(&mut release.told, false);
        match release.stage {
            Stage::Waiting(Some(_)) => {
                release.stage = Stage::Marking;
                self.persist(Want::Releasing, cx);
            }
            _ if told => self.tell(cx),
            Stage::Waiting(None) => self.tell(cx),
            Stage::Marking
            | Stage::Paused { .. }
            | Stage::Queued(_)
            | Stage::Finding(_)
            | Stage::Opening
            | Stage::Sending(_)
            | Stage::Leaving(_)
            | Stage::Forgetting => {}
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
                if !release.owed.is_nothing() {
                    self.note_leave(EventKind::Expired, "could not be given back before its end", cx);
                }
                self.forget(cx);
            }
            Stage::Waiting(Some(at)) if cx.now.boot >= *at => self.try_release(cx),
            Stage::Queued(Some(at)) if cx.now.boot >= *at => self.go(cx),
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
                // The store may have taken longer than the lease lasts.
                release.stage = Stage::Waiting(Some(cx.now.boot));
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
            | Stage::Sending(_)
            | Stage::Leaving(_) => {}
        }
    }

    /// A DEL that the store cannot note fails, and the binding is held as before. Everything else is tried again.
    pub(super) fn release_on_unpersisted(&mut self, cause: StoreCause, cx: &mut Cx<'_>) {
        let is_replaced = self.held_by_other(cx);
        let Life::Releasing(release) = &mut self.life else { return };
        if release.told {
            return self.persist_later(&cause, cx);
        }
        if let Some((hold, probing)) = release.held.take().filter(|_| !is_replaced) {
            self.hold_again(hold, probing, cx);
            self.persistence.want_again(Want::Bound { replaces: Vec::new() });
            self.work(cx);
        }
        self.persist_later(&cause, cx);
        cx.out.report(self.id, Report::NotGivenBack(cause));
    }

    /// Takes its turn among the RELEASEs of its LAN, if there is something to be said and nobody else holds the identity.
    fn try_release(&mut self, cx: &mut Cx<'_>) {
        let held = self.held_by_other(cx);
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

    /// Finds a way to the server and takes it.
    fn go(&mut self, cx: &mut Cx<'_>) {
        let Life::Releasing(release) = &mut self.life else { return };
        release.tries += 1;
        release.from_host = false;
        if release.link_gone || std::mem::take(&mut release.mute) || self.link.in_netns().is_none() {
            return self.find_parent(cx);
        }
        release.stage = Stage::Opening;
        let want = sockets(self.identity.chaddr, release.lease.ip());
        self.exchange.open(self.id, &self.link, want, cx);
    }

    /// Looks for the host's link that is the LAN, if the LAN is such a link.
    fn find_parent(&mut self, cx: &mut Cx<'_>) {
        // Nothing that a caller waits for: its link is gone already.
        self.tell(cx);
        let parent = self.identity.lan.parent().map(str::to_owned);
        let Life::Releasing(release) = &mut self.life else { return };
        match parent {
            Some(ifname) => {
                let target = Target::Host { ifname };
                release.stage = Stage::Finding(cx.out.inspect(Owner::Binding(self.id), Purpose::FindParent, target));
            }
            None if !release.link_gone => self.release_later(cx),
            None if release.lease.times.is_some() => release.stage = Stage::Waiting(None),
            None => {
                tracing::warn!(attachment = %self.attachment, address = %release.lease.address, "no way to release an endless lease");
                self.note_leave(EventKind::Lost, "endless, and there is no way to give it back", cx);
                self.forget(cx);
            }
        }
    }

    pub(super) fn on_parent(&mut self, result: Result<LinkView, LinkCause>, cx: &mut Cx<'_>) {
        let Life::Releasing(release) = &mut self.life else { return };
        if !matches!(release.stage, Stage::Finding(_)) {
            return;
        }
        match result {
            // A bridge gets carrier by the port that is made.
            Ok(view) if view.carrier || view.bridge => {
                release.stage = Stage::Opening;
                release.from_host = true;
                // The server may listen on the bridge itself, where only what comes in by a port is heard. Any other link is the
                // wire's end: what its VLAN interfaces send leaves with their tag, and so does what is sent for one of them.
                let (ifindex, mac, vlan) = (view.ifindex, self.identity.chaddr, self.identity.lan.vlan());
                let link = Link::Parent { ifindex, mac, vlan, port: view.bridge };
                let want = sockets(self.identity.chaddr, release.lease.ip());
                self.exchange.open(self.id, &link, want, cx);
            }
            // What is sent would be lost without a word.
            Ok(_) | Err(_) => self.release_later(cx),
        }
    }

    pub(super) fn release_on_opened(&mut self, cx: &mut Cx<'_>) {
        let sender = self.sender();
        let Life::Releasing(release) = &mut self.life else { return };
        let lease = release.lease.clone();
        let mut sending = dhcp::Release::new(sender, lease, cx.now.boot, cx.rng);
        let step = sending.on_clock(cx.now.boot);
        release.stage = Stage::Sending(Box::new(sending));
        self.release_step(step, cx);
    }

    pub(super) fn release_on_frame(&mut self, frame: &Frame<'_>, cx: &mut Cx<'_>) {
        let Life::Releasing(release) = &mut self.life else { return };
        let (Stage::Sending(sending), Frame::Arp(arp)) = (&mut release.stage, frame) else { return };
        let step = sending.on_arp(arp);
        self.release_step(step, cx);
    }

    fn release_step(&mut self, step: ReleaseStep, cx: &mut Cx<'_>) {
        match step {
            ReleaseStep::Wait => {}
            ReleaseStep::Ask(frame) => self.exchange.send(vec![frame], cx),
            ReleaseStep::Send(frame) => {
                let leaving = self.exchange.send_release(self.id, frame, cx).map(Stage::Leaving);
                let Life::Releasing(release) = &mut self.life else { return };
                release.stage = leaving.expect("only open sockets speak");
            }
        }
    }

    /// What the link did not take is tried another way.
    pub(super) fn release_on_sent(&mut self, result: Result<(), LinkCause>, cx: &mut Cx<'_>) {
        self.exchange.close(cx);
        match result {
            Ok(()) => self.released(cx),
            Err(cause) => self.release_on_unopened(cause, cx),
        }
    }

    fn released(&mut self, cx: &mut Cx<'_>) {
        let Life::Releasing(release) = &mut self.life else { return };
        release.owed = Owed::Nothing;
        tracing::info!(attachment = %self.attachment, address = %release.lease.address, server = %release.lease.server, "lease released");
        let why = release.why;
        self.note_leave(EventKind::Released, why.cause(), cx);
        self.tell(cx);
        self.forget(cx);
    }

    /// A way that failed from inside is followed by the way from the host; then comes a pause.
    pub(super) fn release_on_unopened(&mut self, cause: LinkCause, cx: &mut Cx<'_>) {
        let Life::Releasing(release) = &mut self.life else { return };
        match release.stage {
            Stage::Opening | Stage::Sending(_) => {}
            Stage::Leaving(op) => cx.out.forget(op),
            Stage::Marking
            | Stage::Paused { .. }
            | Stage::Waiting(_)
            | Stage::Queued(_)
            | Stage::Finding(_)
            | Stage::Forgetting => return,
        }
        tracing::debug!(attachment = %self.attachment, %cause, "no way for the RELEASE here");
        if release.from_host {
            return self.release_later(cx);
        }
        release.link_gone |= cause.is_gone();
        self.find_parent(cx);
    }

    pub(super) fn release_on_link_gone(&mut self, cx: &mut Cx<'_>) {
        let Life::Releasing(release) = &mut self.life else { return };
        if release.link_gone {
            return;
        }
        release.link_gone = true;
        match release.stage {
            Stage::Opening | Stage::Sending(_) => {
                self.exchange.close(cx);
                self.find_parent(cx);
            }
            // Nothing that a caller waits for any more.
            Stage::Queued(_) => self.tell(cx),
            // Whether the link took the RELEASE before it went is about to be known.
            Stage::Leaving(_) => {}
            Stage::Marking | Stage::Paused { .. } | Stage::Waiting(_) | Stage::Finding(_) | Stage::Forgetting => {}
        }
    }

    fn release_later(&mut self, cx: &mut Cx<'_>) {
        let Life::Releasing(release) = &mut self.life else { return };
        let pause = timing::doubled(release.tries, LONGEST_PAUSE);
        release.stage = Stage::Waiting(Some(cx.now.boot + timing::jittered(pause, cx.rng)));
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
            Stage::Waiting(_) | Stage::Queued(_) | Stage::Finding(_) | Stage::Opening | Stage::Sending(_) => {
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
            release.owed = Owed::Nothing;
        }
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

    /// Goes on: nobody holds the identity any more.
    pub(crate) fn unpause(&mut self, cx: &mut Cx<'_>) {
        let Life::Releasing(release) = &mut self.life else { return };
        match release.stage {
            Stage::Paused { .. } if release.owed.is_nothing() => self.forget(cx),
            Stage::Paused { marked: true } => self.try_release(cx),
            Stage::Paused { marked: false } => {
                release.stage = Stage::Marking;
                self.persist(Want::Releasing, cx);
            }
            Stage::Marking => self.write(cx),
            Stage::Waiting(_)
            | Stage::Queued(_)
            | Stage::Finding(_)
            | Stage::Opening
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

    fn note_leave(&self, kind: EventKind, cause: &str, cx: &mut Cx<'_>) {
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

fn sockets(chaddr: Mac, leased: Ipv4Addr) -> Sockets {
    Sockets { chaddr, arp: Hears::About(leased), hold_port: None }
}
