//! The way of a RELEASE to its server: from inside while the link lives, else from the host's link that is the LAN.
//!
//! From the host it leaves by a port of its own. What is sent on a bridge never reaches a server on that bridge, nor what is
//! sent on the parent of macvlans a server in one of them; what comes in by a port reaches these and the wire. Where no
//! macvlan can be made (the parent is another bridge's port, or has ipvlans), it leaves from the parent itself.

use std::fmt;
use std::net::Ipv4Addr;
use std::time::Duration;

use super::{Owed, Release, Stage, Way};
use crate::binding::{Binding, Cx, Life, Owner, Purpose};
use crate::conflict::stations::{Question, Turn};
use crate::dhcpv4::release as dhcp;
use crate::dhcpv4::release::ReleaseStep;
use crate::dhcpv4::timing;
use crate::event::EventKind;
use crate::link::{Hears, Link, LinkCause, LinkView, Sockets, Target};
use crate::wire::Mac;
use crate::wire::frame::Frame;

/// The longest pause between two tries.
const LONGEST_PAUSE: Duration = Duration::from_secs(300);

/// How long the container's link may take to go: the kernel tells that a namespace is dead before it takes down the links in
/// it, and takes down those of many at once. Until then no macvlan can have its Ethernet address, and it answers ARP.
const GOES_WITHIN: Duration = Duration::from_secs(5);

/// The first pause of that wait; it doubles.
const GOING_PAUSE: Duration = Duration::from_millis(20);

/// How long a RELEASE waits for another binding's answer.
const CROSSING: Duration = Duration::from_secs(1);

impl Binding {
    /// Finds a way to the server and takes it.
    pub(super) fn go(&mut self, cx: &mut Cx<'_>) {
        let Life::Releasing(release) = &mut self.life else { return };
        release.way = Way::Inside;
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
            None if release.lease.times.is_some() => {
                release.stage = Stage::Waiting(None);
                self.held_up_by("its network names no link of the host that could be its LAN".to_owned(), cx);
            }
            None => {
                tracing::warn!(attachment = %self.attachment, address = %release.lease.address, "no way to release an endless lease");
                self.note_leave(EventKind::Lost, "endless, and there is no way to give it back", cx);
                self.forget(cx);
            }
        }
    }

    pub(in crate::binding) fn on_parent(&mut self, result: Result<LinkView, LinkCause>, cx: &mut Cx<'_>) {
        let Life::Releasing(release) = &mut self.life else { return };
        if !matches!(release.stage, Stage::Finding(_)) {
            return;
        }
        match result {
            // A bridge gets carrier by the port that is made.
            Ok(view) if view.bridge => self.open_on_host(Way::BridgePort, view.ifindex, cx),
            // The wire's end: what its VLAN interfaces send leaves with their tag, and so does what is sent for one of them. No
            // macvlan hears that. Nor can one be made where children have the parent's own Ethernet address.
            Ok(view) if view.carrier && (self.identity.lan.vlan() != 0 || self.profile.on_parent) => {
                self.open_on_host(Way::Parent, view.ifindex, cx);
            }
            Ok(view) if view.carrier => self.open_on_host(Way::Macvlan(view.ifindex), view.ifindex, cx),
            // What is sent would be lost without a word.
            Ok(_) => self.no_way_by_host("has no carrier: plug it in, or set it up", cx),
            Err(LinkCause::NoLink(_)) => self.no_way_by_host("is not there: make it, or give it that name again", cx),
            Err(cause) => self.no_way_by_host(format_args!("cannot be used: {cause}"), cx),
        }
    }

    fn open_on_host(&mut self, way: Way, ifindex: u32, cx: &mut Cx<'_>) {
        let Life::Releasing(release) = &mut self.life else { return };
        (release.stage, release.way) = (Stage::Opening, way);
        let (mac, vlan) = (self.asker(), self.identity.lan.vlan());
        let Life::Releasing(release) = &mut self.life else { return };
        let link = Link::Parent { ifindex, mac, vlan, port: way != Way::Parent };
        let want = sockets(self.identity.chaddr, release.lease.ip());
        self.exchange.open(self.id, &link, want, cx);
    }

    /// Returns the Ethernet address that hears ARP.
    ///
    /// A port may have any. For an identity that can return it is nobody's: where its successor on another host has the
    /// client's, that would take a question from there for its own, and be silent.
    fn asker(&self) -> Mac {
        let chaddr = self.identity.chaddr;
        let by_port = matches!(&self.life, Life::Releasing(r) if matches!(r.way, Way::BridgePort | Way::Macvlan(_)));
        if !by_port || !self.profile.returns() {
            return self.station();
        }
        let [a, b, c, d, e, f] = chaddr.0;
        // Locally administered (IEEE 802 §8.4).
        Mac([a ^ 0x40 | 2, b, c, d, e, f])
    }

    /// Goes on when there are sockets. An identity that can return may live on another host by now, where this is a late DEL:
    /// unless a caller waits, it is asked whether its address does.
    pub(in crate::binding) fn release_on_opened(&mut self, cx: &mut Cx<'_>) {
        let asker = self.asker();
        let Life::Releasing(release) = &mut self.life else { return };
        if !self.profile.returns() || !release.told {
            return self.send(cx);
        }
        let own = Some(self.link.mac()).filter(|_| !release.link_gone);
        let mut question = Question::new(release.lease.address, asker, own, cx.now.boot);
        let turn = question.on_clock(cx.now.boot);
        release.stage = Stage::Asking(Box::new(question));
        self.asked(turn, cx);
    }

    /// Goes on with a question who has the address. While another station has it, it is not given back.
    pub(super) fn asked(&mut self, turn: Turn, cx: &mut Cx<'_>) {
        match turn {
            Turn::Wait => {}
            Turn::Ask(frames) => self.exchange.send(frames, cx),
            Turn::Over { by: None } => self.send(cx),
            Turn::Over { by: Some(by) } => {
                let own = self.link.mac();
                let Life::Releasing(release) = &mut self.life else { return };
                if by == own && release.waits_for_link_to_go(cx) {
                    return self.exchange.close(cx);
                }
                release.owed = Owed::Nothing;
                tracing::info!(attachment = %self.attachment, address = %release.lease.address, %by, "not released: in use");
                let cause = format!("not given back: {by} has it, perhaps the same client on another host");
                self.note_leave(EventKind::Conflict, cause, cx);
                self.forget(cx);
            }
        }
    }

    /// Looks for the server, then sends the RELEASE.
    fn send(&mut self, cx: &mut Cx<'_>) {
        let (sender, asker) = (self.sender(), self.asker());
        let Life::Releasing(release) = &mut self.life else { return };
        if release.way != Way::Inside {
            release.held_up = None;
        }
        let lease = release.lease.clone();
        let mut sending = dhcp::Release::new(sender, asker, lease, cx.now.boot, cx.rng);
        let step = sending.on_clock(cx.now.boot);
        release.stage = Stage::Sending(Box::new(sending));
        self.release_step(step, cx);
    }

    pub(in crate::binding) fn release_on_frame(&mut self, frame: &Frame<'_>, cx: &mut Cx<'_>) {
        let Life::Releasing(release) = &mut self.life else { return };
        match (&mut release.stage, frame) {
            (Stage::Asking(question), Frame::Arp(arp)) => question.on_arp(arp),
            (Stage::Sending(sending), Frame::Arp(arp)) => {
                let step = sending.on_arp(arp);
                self.release_step(step, cx);
            }
            _ => {}
        }
    }

    pub(super) fn release_step(&mut self, step: ReleaseStep, cx: &mut Cx<'_>) {
        match step {
            ReleaseStep::Wait => {}
            ReleaseStep::Ask(frame) => self.exchange.send(vec![frame], cx),
            ReleaseStep::Send { .. } if self.gives_way(cx) => {}
            ReleaseStep::Send { .. } if self.crosses_request(cx) => {}
            ReleaseStep::Send { frame, answered } => {
                let leaving = self.exchange.send_release(self.id, frame, cx).map(Stage::Leaving);
                let Life::Releasing(release) = &mut self.life else { return };
                release.answered = answered;
                release.stage = leaving.expect("only open sockets speak");
            }
        }
    }

    /// Puts off what a REQUEST for the same address would cross, of another binding with the same chaddr: whether that gets the
    /// address is about to be known. Returns whether there is one.
    fn crosses_request(&mut self, cx: &mut Cx<'_>) -> bool {
        let Life::Releasing(release) = &self.life else { return false };
        let crosses = self.is_asked_for(release.lease.ip(), cx);
        if crosses {
            self.exchange.close(cx);
            self.tell(cx);
            let Life::Releasing(release) = &mut self.life else { return false };
            release.stage = Stage::Waiting(Some(cx.now.boot + CROSSING));
        }
        crosses
    }

    /// What the link did not take is tried another way.
    pub(in crate::binding) fn release_on_sent(&mut self, result: Result<(), LinkCause>, cx: &mut Cx<'_>) {
        self.exchange.close(cx);
        match result {
            Ok(()) => self.released(cx),
            Err(cause) => self.release_on_unopened(cause, cx),
        }
    }

    pub(super) fn released(&mut self, cx: &mut Cx<'_>) {
        let Life::Releasing(release) = &mut self.life else { return };
        release.owed = Owed::Nothing;
        let (address, server, answered_arp) = (release.lease.address, release.lease.server, release.answered);
        tracing::info!(attachment = %self.attachment, %address, %server, answered_arp, "lease released");
        let cause = release.cause();
        self.note_leave(EventKind::Released, cause, cx);
        self.tell(cx);
        self.forget(cx);
    }

    /// A way that failed from inside is followed by the way from the host; then comes a pause.
    pub(in crate::binding) fn release_on_unopened(&mut self, cause: LinkCause, cx: &mut Cx<'_>) {
        let Life::Releasing(release) = &mut self.life else { return };
        match release.stage {
            Stage::Opening | Stage::Asking(_) | Stage::Sending(_) => {}
            Stage::Leaving(op) => cx.out.forget(op),
            Stage::Marking
            | Stage::Paused { .. }
            | Stage::Waiting(_)
            | Stage::Queued(_)
            | Stage::Finding(_)
            | Stage::Forgetting => return,
        }
        tracing::debug!(attachment = %self.attachment, %cause, "no way for the RELEASE here");
        match release.way {
            Way::Inside => {
                release.link_gone |= cause.is_gone();
                self.find_parent(cx);
            }
            Way::Macvlan(parent) if matches!(release.stage, Stage::Opening) => self.without_macvlan(parent, cause, cx),
            Way::Macvlan(_) | Way::BridgePort | Way::Parent => {
                self.no_way_by_host(format_args!("cannot be used: {cause}"), cx);
            }
        }
    }

    /// Goes by the parent itself, where the macvlan's Ethernet address is not about to be free.
    fn without_macvlan(&mut self, parent: u32, cause: LinkCause, cx: &mut Cx<'_>) {
        let Life::Releasing(release) = &mut self.life else { return };
        if matches!(cause, LinkCause::MacTaken(_)) && release.waits_for_link_to_go(cx) {
            return;
        }
        release.no_port = Some(cause);
        self.open_on_host(Way::Parent, parent, cx);
    }

    pub(in crate::binding) fn release_on_link_gone(&mut self, cx: &mut Cx<'_>) {
        let Life::Releasing(release) = &mut self.life else { return };
        if release.link_gone {
            return;
        }
        release.link_gone = true;
        match release.stage {
            Stage::Opening | Stage::Asking(_) | Stage::Sending(_) => {
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

    /// Tries again later, as the host's link lets nothing out.
    fn no_way_by_host(&mut self, cause: impl fmt::Display, cx: &mut Cx<'_>) {
        let parent = self.identity.lan.parent().unwrap_or_default();
        self.held_up_by(format!("host link {parent} {cause}"), cx);
        self.release_later(cx);
    }

    /// Says once what the RELEASE waits for, and has `list` show it.
    fn held_up_by(&mut self, what: String, cx: &Cx<'_>) {
        let Life::Releasing(release) = &mut self.life else { return };
        if release.held_up.as_ref().is_some_and(|held_up| held_up.1 == what) {
            return;
        }
        tracing::warn!(attachment = %self.attachment, address = %release.lease.address, waits_for = what, "RELEASE held up; the lease ends by itself otherwise");
        let since = release.held_up.as_ref().map_or(cx.now.boot, |held_up| held_up.0);
        release.held_up = Some(Box::new((since, what)));
    }

    fn release_later(&mut self, cx: &mut Cx<'_>) {
        let Life::Releasing(release) = &mut self.life else { return };
        release.tries += 1;
        let pause = timing::doubled(release.tries, LONGEST_PAUSE);
        release.stage = Stage::Waiting(Some(cx.now.boot + timing::jittered(pause, cx.rng)));
    }
}

impl Release {
    /// Tries again in a moment, where the container's link, of which it is known that it is gone, may be on its way out still.
    fn waits_for_link_to_go(&mut self, cx: &mut Cx<'_>) -> bool {
        if !self.link_gone {
            return false;
        }
        let since = *self.going.get_or_insert(cx.now.boot);
        let waited = cx.now.boot.saturating_since(since);
        let waits = waited < GOES_WITHIN;
        if waits {
            let pause = timing::jittered(waited.max(GOING_PAUSE), cx.rng);
            self.stage = Stage::Queued(Some(cx.now.boot + pause));
        }
        waits
    }

    /// Returns why the lease was given back, for a person, and what may have kept the RELEASE from arriving.
    fn cause(&self) -> String {
        let why = self.why.cause();
        match (self.answered, self.way, &self.no_port) {
            (true, ..) => why.to_owned(),
            (false, Way::Parent, Some(cause)) => format!(
                "{why}; neither its server nor a router before it answered ARP, so the RELEASE may not have arrived: it left from \
                 the host's link itself, where a server in a macvlan on that link does not hear it ({cause})"
            ),
            (false, ..) => {
                format!(
                    "{why}; neither its server nor a router before it answered ARP, so the RELEASE may not have arrived"
                )
            }
        }
    }
}

fn sockets(chaddr: Mac, leased: Ipv4Addr) -> Sockets {
    Sockets { chaddr, arp: Hears::About(leased), hold_port: None }
}
