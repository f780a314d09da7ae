//! How a RELEASE gets to its server: from inside while the link shows the address, else from the host's link on the LAN.
//!
//! From the host it leaves through its own port. A frame sent on a bridge never reaches a server on that bridge, and a frame
//! sent on the parent of macvlans never reaches a server in one of them; a frame that comes in through a port reaches these
//! and the wire. If no macvlan can be made (the parent is another bridge's port, or has ipvlans), it leaves from the parent
//! itself.

use std::fmt;
use std::net::Ipv4Addr;
use std::time::Duration;

use super::{Owed, Release, ReleaseStage, Way};
use crate::backoff::{LONGEST_PAUSE, jittered};
use crate::binding::{Common, Cx, Report, Task, Waiter};
use crate::event::EventKind;
use crate::link::{Hears, Line, Link, LinkCause, LinkView, Sockets, Target};
use crate::outbox::Owner;
use crate::question::{self, Question, QuestionAction};
use crate::rules::{Rule, cut};
use crate::source::{Fate, Form, Lease, ReleaseAction, ReleaseExchange};
use crate::wire::Mac;
use crate::wire::frame::Frame;

/// How long a link may take to disappear. The kernel reports a dead namespace before it removes the links in it, and removes
/// many at once: until then the container's link answers ARP, and no other macvlan can have its Ethernet address.
const GOES_WITHIN: Duration = Duration::from_secs(5);

/// The first pause of that wait; it doubles.
const GOING_PAUSE: Duration = Duration::from_millis(20);

impl Release {
    /// Finds a way to the server and takes it. If another host may have the address by now, the RELEASE leaves from inside only
    /// if the address is seen there.
    pub(super) fn go(&mut self, cx: &mut Cx<'_>) {
        (self.line, self.seen) = (None, false);
        if self.link_gone || cx.own.link.in_netns().is_none() {
            return self.find_parent(cx);
        }
        if self.may_be_anothers(cx.own) {
            let target = Target::Known(cx.own.link.clone());
            let waiter = Waiter::Binding(cx.own.id, Task::FindAddress);
            self.stage = ReleaseStage::Going(Way::Finding(cx.out.inspect(waiter, target)));
            return;
        }
        self.open_inside(cx);
    }

    /// Returns whether another station may have the address by now, although this binding holds it: its identity can return,
    /// also on another host, or an earlier boot's daemon gave it back.
    fn may_be_anothers(&self, common: &Common) -> bool {
        (common.profile.returns() || self.of_earlier_boot) && !cut(Rule::AskBeforeRelease)
    }

    /// Goes on after a look at the container's link. If its address is not there, the LAN is asked for it.
    pub(in crate::binding) fn on_inside(
        &mut self,
        result: Result<LinkView, LinkCause>,
        cx: &mut Cx<'_>,
    ) {
        if !matches!(self.stage, ReleaseStage::Going(Way::Finding(_))) {
            return;
        }
        match result {
            Ok(view) => {
                self.seen = view.has(self.lease.ip().into());
                match self.seen || cx.own.identity.lan.parent().is_none() {
                    true => self.open_inside(cx),
                    false => self.find_parent(cx),
                }
            }
            Err(cause) => {
                self.link_gone |= cause.is_gone();
                self.find_parent(cx);
            }
        }
    }

    fn open_inside(&mut self, cx: &mut Cx<'_>) {
        self.stage = ReleaseStage::Going(Way::Opening);
        self.open(&cx.own.link.clone(), cx);
    }

    /// Looks for the host's link on the LAN, if there is one.
    fn find_parent(&mut self, cx: &mut Cx<'_>) {
        // No caller waits for this: its link is gone already, or no longer has the address.
        self.answer_del(cx);
        match cx.own.identity.lan.parent() {
            Some(ifname) => {
                self.stage = ReleaseStage::Going(Way::Opening);
                cx.own
                    .exchange
                    .find(Owner::Binding(cx.own.id), ifname, cx.out);
            }
            None if !self.link_gone => self.later(cx),
            None if self.lease.times.is_some() => {
                let what = "its network names no host link that could be its LAN";
                self.held_up_by(what.to_owned(), cx);
                self.later(cx);
            }
            None => {
                tracing::warn!(attachment = %cx.own.attachment, address = %self.lease.address, "no way to release an endless lease");
                cx.note(
                    EventKind::Lost,
                    &self.lease,
                    "endless, and there is no way to give it back",
                );
                self.forget(cx);
            }
        }
    }

    pub(super) fn on_parent(&mut self, result: Result<LinkView, LinkCause>, cx: &mut Cx<'_>) {
        let chaddr = cx.own.identity.chaddr;
        let asker = match cx.own.profile.returns() {
            true => nobodys(chaddr),
            false => chaddr,
        };
        let own = self.lease.ip();
        match result {
            Ok(view) if cx.own.identity.lan.vlan() == 0 && view.has(own.into()) => {
                let (attachment, ifname) = (&cx.own.attachment, &view.ifname);
                tracing::warn!(%attachment, address = %own, %ifname, "no RELEASE: this host has the address itself");
                let cause =
                    format_args!("no RELEASE sent: this host has the address itself, on {ifname}");
                cx.note(EventKind::AddressHeld, &self.lease, cause);
                self.end_unsaid(cx);
            }
            // A bridge gets carrier from the port that is made.
            Ok(view) if view.carrier || view.has_ports_for(asker) => {
                let link = Link::parent_of(&cx.own.identity.lan, &view, asker);
                let mut line = Line::over(link, &view, cx.own.profile.on_parent);
                line.go_beside();
                self.open_on_host(line, cx);
            }
            // Frames would be lost silently.
            Ok(_) => self.no_way_by_host("has no carrier: plug it in, or set it up", cx),
            Err(LinkCause::NoLink(_)) => {
                self.no_way_by_host("is missing: make it, or give it that name again", cx)
            }
            Err(cause) => self.no_way_by_host(format_args!("cannot be used: {cause}"), cx),
        }
    }

    /// Opens sockets on the host.
    ///
    /// The Ethernet address of a macvlan is nobody's: with the client's, it would keep a successor's interface from coming up. The
    /// same goes for any port if the identity can return: a successor on another host would take a question from its own address
    /// for its own, and stay silent.
    fn open_on_host(&mut self, mut line: Line, cx: &mut Cx<'_>) {
        let is_nobodys = line.is_beside() || line.link.is_port() && cx.own.profile.returns();
        let chaddr = cx.own.identity.chaddr;
        if let Link::Parent { mac, .. } = &mut line.link {
            *mac = if is_nobodys { nobodys(chaddr) } else { chaddr };
        }
        self.stage = ReleaseStage::Going(Way::Opening);
        self.open(&line.link, cx);
        self.line = Some(line);
    }

    fn open(&self, link: &Link, cx: &mut Cx<'_>) {
        let want = Sockets::new(cx.own.identity.chaddr, Hears::About(self.lease.ip()));
        let owner = Owner::Binding(cx.own.id);
        cx.own.exchange.open(owner, link, want, cx.out);
    }

    /// Returns the Ethernet address that hears ARP.
    fn asker(&self, common: &Common) -> Mac {
        self.line
            .as_ref()
            .map_or(common.station(), |line| line.link.mac())
    }

    /// Goes on when there are sockets. If another station may have the address, and it was not seen inside, the LAN is asked
    /// first, and no caller waits.
    pub(super) fn begin_asking(&mut self, cx: &mut Cx<'_>) {
        let asker = self.asker(cx.own);
        if !self.may_be_anothers(cx.own) || self.seen && self.line.is_none() {
            return self.send(cx);
        }
        self.answer_del(cx);
        // Nobody may have the sender's address, not even the client: on another host, a station with the client's own would take
        // the question for its own.
        let Lease {
            address, server, ..
        } = self.lease;
        let control = question::control(address, server, cx.rng);
        let from = (asker, Ipv4Addr::UNSPECIFIED);
        let mut question = Question::new(from, address.addr(), cx.now.boot).with_control(control);
        let action = question.on_clock(cx.now.boot, true);
        self.stage = ReleaseStage::Going(Way::Asking(Box::new(question)));
        self.asked(action, cx);
    }

    /// Goes on asking who has the address. While another station has it, it is not given back.
    pub(super) fn asked(&mut self, action: QuestionAction, cx: &mut Cx<'_>) {
        match action {
            QuestionAction::Wait => {}
            QuestionAction::Ask(frames) => cx.own.exchange.send(frames, cx.out),
            QuestionAction::Over => {
                let ReleaseStage::Going(Way::Asking(question)) = &self.stage else {
                    return;
                };
                let Some(by) = question.by() else {
                    return self.send(cx);
                };
                let own = cx.own.link.mac();
                if by == own && self.waits_for_link_to_go(cx) {
                    return cx.own.exchange.close(cx.out);
                }
                self.owed = Owed::Nothing;
                tracing::info!(attachment = %cx.own.attachment, address = %self.lease.address, %by, "not released: in use");
                let cause =
                    format!("not given back: {by} has it, perhaps the same client on another host");
                cx.note(EventKind::Conflict, &self.lease, cause);
                self.forget(cx);
            }
        }
    }

    /// Looks for the server, then sends the RELEASE.
    fn send(&mut self, cx: &mut Cx<'_>) {
        let asker = self.asker(cx.own);
        let mut station = cx.own.station();
        if self.line.is_some() {
            (self.held_up, station) = (None, cx.own.identity.chaddr);
        }
        let sender = cx.own.sender().from_station(station);
        let lease = self.lease.clone();
        let sending = ReleaseExchange::new(sender, asker, lease, cx.now.boot, cx.rng);
        let is_elsewhere = cx.own.presence(cx.interfaces).is_left() && !cut(Rule::WithoutArp);
        let mut sending = if is_elsewhere {
            sending.without_arp()
        } else {
            sending
        };
        let action = sending.on_clock(cx.now.boot);
        self.stage = ReleaseStage::Going(Way::Sending(Box::new(sending)));
        self.act(action, cx);
    }

    pub(super) fn take_in(&mut self, frame: &Frame<'_>, cx: &mut Cx<'_>) {
        let (ReleaseStage::Going(way), Frame::Arp(arp)) = (&mut self.stage, frame) else {
            return;
        };
        match way {
            // While the container's own link is there, it answers too.
            Way::Asking(question) if self.link_gone || arp.sender_mac != cx.own.link.mac() => {
                question.on_arp(arp);
            }
            Way::Sending(sending) => {
                let action = sending.on_arp(arp);
                self.act(action, cx);
            }
            Way::Finding(_) | Way::Opening | Way::Asking(_) | Way::Leaving(_) => {}
        }
    }

    pub(super) fn act(&mut self, action: ReleaseAction, cx: &mut Cx<'_>) {
        match action {
            ReleaseAction::Wait => {}
            ReleaseAction::Ask(frames) => cx.own.exchange.send(frames, cx.out),
            ReleaseAction::Send { .. } if self.give_way(cx) => {}
            ReleaseAction::Send { frame, answered } => {
                let leaving = cx.own.exchange.send_release(cx.own.id, frame, cx.out);
                let op = leaving.expect("only open sockets speak");
                self.answered = answered;
                self.stage = ReleaseStage::Going(Way::Leaving(op));
            }
        }
    }

    /// Tries another way after the link did not take the RELEASE.
    pub(in crate::binding) fn on_sent(&mut self, result: Result<(), LinkCause>, cx: &mut Cx<'_>) {
        cx.own.exchange.close(cx.out);
        let fate = if result.is_ok() {
            Fate::Sent
        } else {
            Fate::Unsent
        };
        cx.out.counts.settled(Some((Form::Release, fate)));
        match result {
            Ok(()) => self.released(cx),
            Err(cause) => self.no_way(cause, cx),
        }
    }

    pub(super) fn released(&mut self, cx: &mut Cx<'_>) {
        self.owed = Owed::Nothing;
        let (address, server, answered_arp) =
            (self.lease.address, self.lease.server, self.answered);
        tracing::info!(attachment = %cx.own.attachment, %address, %server, answered_arp, "lease released");
        let cause = self.cause();
        cx.note(EventKind::Released, &self.lease, cause);
        // The record of an earlier binding may give the same lease: an ADD that trusted it was abandoned, and gave it back.
        let mut others = cx.holders.leaving(&cx.own.identity.key());
        others.retain(|other| *other != cx.own.id);
        let report = Report::Spoiled(self.lease.ip(), others);
        cx.out.report(cx.own.id, report);
        self.answer_del(cx);
        self.forget(cx);
    }

    /// Tries from the host after a failure inside, and pauses after a failure there.
    pub(super) fn no_way(&mut self, cause: LinkCause, cx: &mut Cx<'_>) {
        match self.stage {
            ReleaseStage::Going(Way::Opening | Way::Asking(_) | Way::Sending(_)) => {}
            ReleaseStage::Going(Way::Leaving(op)) => cx.out.forget(op),
            _ => return,
        }
        tracing::debug!(attachment = %cx.own.attachment, %cause, "no way for the RELEASE here");
        match self.line.clone() {
            None => {
                self.link_gone |= cause.is_gone();
                self.find_parent(cx);
            }
            Some(mut line)
                if line.is_beside() && matches!(self.stage, ReleaseStage::Going(Way::Opening)) =>
            {
                // Its Ethernet address may be about to be free.
                let waits =
                    matches!(cause, LinkCause::MacTaken(_)) && self.waits_for_link_to_go(cx);
                if !waits {
                    line.come_back();
                    self.open_on_host(line, cx);
                }
            }
            Some(_) => self.no_way_by_host(format_args!("cannot be used: {cause}"), cx),
        }
    }

    pub(super) fn lose_link(&mut self, cx: &mut Cx<'_>) {
        if self.link_gone {
            return;
        }
        self.link_gone = true;
        match self.stage {
            // It is about to leave from the host.
            ReleaseStage::Going(Way::Opening) if cx.own.exchange.is_finding() => {}
            ReleaseStage::Going(Way::Opening | Way::Asking(_) | Way::Sending(_)) => {
                cx.own.exchange.close(cx.out);
                self.find_parent(cx);
            }
            // No caller waits for this any more.
            ReleaseStage::Queued(_) => self.answer_del(cx),
            // A look ends by itself, and it will soon be known whether the link took the RELEASE before it disappeared.
            ReleaseStage::Going(Way::Finding(_) | Way::Leaving(_))
            | ReleaseStage::Marking
            | ReleaseStage::Paused { .. }
            | ReleaseStage::Waiting(_)
            | ReleaseStage::Forgetting => {}
        }
    }

    /// Tries again later, because the host's link lets nothing out.
    fn no_way_by_host(&mut self, cause: impl fmt::Display, cx: &mut Cx<'_>) {
        let parent = cx.own.identity.lan.parent().unwrap_or_default();
        self.held_up_by(format!("host link {parent} {cause}"), cx);
        self.later(cx);
    }

    /// Reports once what the RELEASE waits for, and has `list` show it.
    fn held_up_by(&mut self, what: String, cx: &Cx<'_>) {
        if self
            .held_up
            .as_ref()
            .is_some_and(|held_up| held_up.1 == what)
        {
            return;
        }
        tracing::warn!(attachment = %cx.own.attachment, address = %self.lease.address, waits_for = what, "RELEASE held up: without it the lease ends by itself");
        let since = self
            .held_up
            .as_ref()
            .map_or(cx.now.boot, |held_up| held_up.0);
        self.held_up = Some(Box::new((since, what)));
    }

    fn later(&mut self, cx: &mut Cx<'_>) {
        self.backoff.fail();
        let pause = self.backoff.pause(LONGEST_PAUSE, cx.rng);
        self.stage = ReleaseStage::Waiting(cx.now.boot + pause);
    }
}

impl Release {
    /// Tries again in a moment, if the container's link, reported as gone, may still exist.
    fn waits_for_link_to_go(&mut self, cx: &mut Cx<'_>) -> bool {
        if !self.link_gone || cut(Rule::LinkGoing) {
            return false;
        }
        let since = *self.going.get_or_insert(cx.now.boot);
        let waited = cx.now.boot.saturating_since(since);
        let waits = waited < GOES_WITHIN;
        if waits {
            let pause = jittered(waited.max(GOING_PAUSE), cx.rng);
            self.stage = ReleaseStage::Queued(Some(cx.now.boot + pause));
        }
        waits
    }

    /// Returns why the lease was given back, for a person, and what may have kept the RELEASE from arriving.
    fn cause(&self) -> String {
        let why = self.why.cause();
        match self.answered {
            true => why.to_owned(),
            false => format!(
                "{why}; neither its server nor the router to it answered ARP, so the RELEASE may not have arrived"
            ),
        }
    }
}

/// Returns the Ethernet address of no client, but for this one's use.
fn nobodys(chaddr: Mac) -> Mac {
    let [a, b, c, d, e, f] = chaddr.0;
    // Locally administered (IEEE 802 §8.4).
    Mac([a ^ 0x40 | 2, b, c, d, e, f])
}
