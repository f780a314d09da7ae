//! Guarding a leased address against others (RFC 5227): where a window's frames go, and what a conflict leads to.
//!
//! * Optimistic: the first probe leaves with the REQUEST, on the same sockets, which hear what is addressed to us. Once the
//!   lease is durable, the window takes these sockets over and hears everything about the address. If they are gone by then, it
//!   opens others.
//! * Strict: the window has its own sockets from the ACK on, and the ADD waits for its probes. It fails if the lease would end
//!   before they do. A lease that no ADD waits for is guarded as an optimistic one is: its container runs without an address.
//!
//! A conflict is declined once there is no doubt about it ([`doubt`]). An ADD that is not answered yet then tries again, up
//! to three addresses, unless it was abandoned; after the answer the lease is lost like any other.
//!
//! A lease that goes on after a restart is not guarded: a restart sends nothing. With each extension, others are asked once whether
//! they have taken the address, where it is on the interface.
//!
//! An address that the daemon puts on is always announced, because neighbours may know it as another station's. So is an
//! address whose interface gets another Ethernet address. A lease that goes on after a restart is not announced: a restart
//! sends nothing.

pub(in crate::binding) mod decline;
mod doubt;

use std::net::Ipv4Addr;
use std::ops::ControlFlow;
use std::time::Duration;

use crate::binding::{Common, Cx};
use crate::conflict::{Heard, Window, WindowAction};
use crate::effect::{ExchangeId, Why};
use crate::event::EventKind;
use crate::grant::policy::Detection;
use crate::link::{Hears, Line, Link, LinkCause, Sockets};
use crate::outbox::{Exchange, Owner};
use crate::patience::LINK_DOWN;
use crate::question::Question;
use crate::rules::{Rule, cut};
use crate::source::{Client, Lease, Reach};
use crate::time::Instant;
use crate::wire::Mac;
use crate::wire::frame::Arp;

/// How long a window waits before it opens its own sockets: by then the caller has its answer.
const OFF_REPLY: Duration = Duration::from_millis(10);

/// An address under watch.
#[derive(Debug)]
pub(in crate::binding) struct Guard {
    window: Window,
    /// When it opens sockets of its own; `None`: its frames leave over those of the DHCP exchange.
    own: Option<Instant>,
    /// Its own sockets.
    exchange: Exchange,
    /// Whether they were lost once, when the link went down.
    reopened: bool,
    /// Claims that wait until the links of the container's namespace are known.
    claims: Vec<Arp>,
    /// The question whether a claimant claims every address.
    control: Option<Box<Question>>,
    /// The question whether anything reaches the container.
    reach: Option<Box<Reach>>,
    /// The station that uses the address.
    heard: Option<Mac>,
}

/// What conflict detection found out, for the life whose address is under watch.
#[derive(Debug)]
pub(in crate::binding) enum Found {
    /// Nobody else uses the address.
    Free,
    /// Every station that claims the address claims every address.
    Cleared,
    /// A station uses the address.
    Conflict { by: Mac },
    /// The window is over, and nothing reaches the container but broadcasts.
    Unreached,
    /// The address cannot be watched.
    Unwatched(LinkCause),
}

impl Guard {
    fn new(window: Window, own: Option<Instant>) -> Box<Self> {
        Box::new(Self {
            window,
            own,
            exchange: Exchange::default(),
            reopened: false,
            claims: Vec::new(),
            control: None,
            reach: None,
            heard: None,
        })
    }

    /// Returns whether its frames leave now, and when it opens its own sockets, if that is still to come. `shared`: the sockets
    /// of the DHCP exchange.
    fn sends(&self, shared: &Exchange) -> (bool, Option<Instant>) {
        let exchange = self.own.map_or(shared, |_| &self.exchange);
        (
            exchange.can_send(),
            self.own.filter(|_| self.exchange.is_closed()),
        )
    }

    /// Returns whether the window has heard of no claim.
    fn is_idle(&self) -> bool {
        self.heard.is_none() && self.claims.is_empty() && self.control.is_none()
    }
}

impl Common {
    /// Returns whether an ADD waits for probes before it uses an address.
    pub(in crate::binding) fn probes_first(&self) -> bool {
        self.detects() && self.profile.policy.detection == Detection::Strict
    }

    /// Returns who uses the address, if that was heard before the lease could be declined.
    pub(in crate::binding) fn heard_conflict(&self) -> Option<Mac> {
        self.guard.as_ref().and_then(|guard| guard.heard)
    }

    /// Returns whether its sockets are on a port of the host's link. That port has the Ethernet address of the interface that
    /// is about to appear: two links with one address must not exist at once, and the window goes on at the interface.
    fn lives_on_port(&self) -> bool {
        self.link.is_port()
    }

    /// Records that the leased address is not on the interface.
    pub(in crate::binding) fn guard_off_address(&mut self, address: Ipv4Addr) {
        if let Some(guard) = self.guard_of(address) {
            guard.window.disappeared();
        }
    }

    /// Records that the interface has another Ethernet address.
    pub(in crate::binding) fn on_ethernet(&mut self, mac: Mac) {
        let Link::InNetns { mac: known, .. } = &mut self.link else {
            return;
        };
        *known = mac;
        tracing::debug!(attachment = %self.attachment, %mac, "interface has another Ethernet address");
        // Frames over the parent bear the parent's Ethernet address, which is the same there.
        if self.profile.on_parent
            && let Some(Line {
                link: Link::Parent { mac: known, .. },
                ..
            }) = self.line.as_deref_mut()
        {
            *known = mac;
        }
        let own = self.own_macs();
        if let Some(guard) = &mut self.guard {
            guard.window.bear(own);
        }
    }

    /// Returns when the window next has something to do, if it can do it.
    pub(in crate::binding) fn guard_deadline(&self) -> Option<(Instant, Why)> {
        let guard = self.guard.as_ref()?;
        if guard.heard.is_some() || !guard.claims.is_empty() {
            return None;
        }
        let (can_send, opens) = guard.sends(&self.exchange);
        let due = match &guard.control {
            Some(control) => Some(control.deadline(can_send)),
            None => can_send.then(|| guard.window.deadline()),
        };
        let at = opens.into_iter().chain(due).min()?;
        Some((at, Why::Conflict))
    }

    /// Returns whether this exchange is the window's own.
    pub(in crate::binding) fn is_guards(&self, exchange: ExchangeId) -> bool {
        self.guard
            .as_ref()
            .is_some_and(|guard| guard.exchange.is(exchange))
    }

    pub(in crate::binding) fn guard_hears(&self, exchange: ExchangeId) -> bool {
        self.guard
            .as_ref()
            .is_some_and(|guard| guard.exchange.is_open(exchange))
    }

    /// Returns whether the window hears through the sockets of the DHCP exchange.
    pub(in crate::binding) fn guard_shares(&self) -> bool {
        self.guard.as_ref().is_some_and(|guard| guard.own.is_none())
    }

    /// Records that the window's own sockets are open; false if these are others, or no longer wanted.
    pub(in crate::binding) fn guard_opened(&mut self, exchange: ExchangeId) -> bool {
        self.guard
            .as_mut()
            .is_some_and(|guard| guard.exchange.opened(exchange))
    }

    /// Has the window ask whether anything reaches the container: an answer came only with the broadcast flag.
    pub(crate) fn doubts_reach(&mut self, lease: &Lease) {
        let is_inside = self.link.in_netns().is_some();
        if let Some(guard) = self.guard.as_mut().filter(|_| is_inside) {
            guard.reach = Reach::of(lease).map(Box::new);
        }
    }

    fn guard_exchange(&self) -> &Exchange {
        match &self.guard {
            Some(guard) if guard.exchange.can_send() => &guard.exchange,
            Some(_) | None => &self.exchange,
        }
    }

    /// Returns whether such frames leave.
    pub(in crate::binding) fn can_send(&self) -> bool {
        self.exchange.can_send()
            || self
                .guard
                .as_ref()
                .is_some_and(|guard| guard.exchange.can_send())
    }

    pub(in crate::binding) fn detects(&self) -> bool {
        self.profile.policy.detection != Detection::Off
    }

    fn guards(&self, address: Ipv4Addr) -> bool {
        let guard = self.guard.as_ref();
        guard.is_some_and(|guard| guard.window.address() == address)
    }

    /// Returns the watch, unless it has heard of a conflict that nobody has acted on yet.
    fn undecided(&mut self) -> Option<&mut Box<Guard>> {
        self.guard.as_mut().filter(|guard| guard.heard.is_none())
    }

    /// Returns the watch of this address.
    fn guard_of(&mut self, address: Ipv4Addr) -> Option<&mut Guard> {
        let guard = self.guard.as_deref_mut();
        guard.filter(|guard| guard.window.address() == address)
    }

    /// Returns the link that the window's frames leave by: the profile's choice for broadcasts applies to ARP too.
    fn guard_link(&self) -> Option<&Link> {
        if self.broadcasts_on_host() {
            self.line.as_ref().map(|line| &line.link)
        } else {
            Some(&self.link)
        }
    }

    /// Returns the Ethernet address of the window's frames, then that of our messages.
    fn own_macs(&self) -> Box<[Mac]> {
        Box::new([
            self.guard_link().unwrap_or(&self.link).mac(),
            self.identity.chaddr,
        ])
    }
}

impl Cx<'_> {
    /// Begins to watch the address that a REQUEST among `frames` asks for, and puts a probe before it. `asked`: the address,
    /// and whether the client knows about a conflict over it. A conflict heard before this REQUEST does not count.
    pub(in crate::binding) fn guard_request(
        &mut self,
        asked: Option<(Ipv4Addr, bool)>,
        frames: &mut Vec<Vec<u8>>,
    ) {
        let Some((address, taken)) = asked.filter(|_| self.own.detects()) else {
            return;
        };
        // If another attachment has it, the window need not find that out.
        if taken && self.own.heard_conflict().is_none() {
            return;
        }
        if self.own.guards(address) && self.own.heard_conflict().is_some() == taken {
            return;
        }
        let mut window = Window::optimistic(address, self.own.own_macs(), self.now.boot);
        if let WindowAction::Send(probe) = window.on_clock(self.now.boot, self.rng) {
            frames.insert(0, probe);
        }
        self.close_guard();
        self.own.guard = Some(Guard::new(window, None));
    }

    /// Stops watching any address but this one.
    pub(in crate::binding) fn guard_only(&mut self, address: Ipv4Addr) {
        if !self.own.guards(address) {
            self.close_guard();
        }
    }

    /// Ends a window that probed over the sockets of an exchange without a lease: nobody has heard the answers since they closed.
    pub(in crate::binding) fn end_try(&mut self) {
        let is_unheard = |guard: &Guard| {
            let asks = guard.control.is_some() || !guard.claims.is_empty();
            guard.own.is_none() && guard.heard.is_none() && !asks
        };
        if self.own.guard.as_deref().is_some_and(is_unheard) {
            self.close_guard();
        }
    }

    /// Leaves the sockets of the finished DHCP exchange to the window, which then hears everything about the address. If there
    /// is no window, or its link is another one, they are closed.
    pub(in crate::binding) fn hand_over(&mut self) {
        let is_there =
            self.own.guard_link().is_some() && !self.own.lives_on_port() && !self.own.is_aside();
        let goes_on =
            |guard: &&mut Box<Guard>| is_there && guard.own.is_none() && guard.heard.is_none();
        if let Some(guard) = self.own.guard.as_mut().filter(goes_on)
            && let Some(sockets) = self
                .own
                .exchange
                .take_to_hear(Hears::About(guard.window.address()), self.out)
        {
            (guard.exchange, guard.own) = (sockets, Some(self.now.boot));
        }
        self.own.exchange.close(self.out);
    }

    /// Watches a leased address from here on over the window's own sockets. `present`: it is on the interface. Claims heard
    /// before it was leased are examined again.
    pub(in crate::binding) fn guard_lease(&mut self, address: Ipv4Addr, present: bool) {
        if !self.own.detects() || self.own.lives_on_port() {
            return self.close_guard();
        }
        let own = Some(self.now.boot + OFF_REPLY);
        if !self.own.guards(address) || self.own.heard_conflict().is_some() {
            self.close_guard();
            let window = if present {
                Window::established
            } else {
                Window::optimistic
            };
            self.own.guard = Some(Guard::new(
                window(address, self.own.own_macs(), self.now.boot),
                own,
            ));
        }
        let Some(guard) = &mut self.own.guard else {
            return;
        };
        guard.own = own;
        if present {
            guard.window.appeared(self.now.boot);
        }
    }

    /// Asks once whether somebody has taken the address of a lease that was extended, over the sockets of that exchange if they are
    /// on the right link.
    pub(in crate::binding) fn guard_extended(&mut self, address: Ipv4Addr) {
        let is_cut = cut(Rule::WatchExtended);
        if is_cut || !self.own.detects() || self.own.lives_on_port() || self.own.guard.is_some() {
            return;
        }
        let window = Window::extended(address, self.own.own_macs(), self.now.boot);
        let at = self.now.boot + OFF_REPLY;
        self.own.guard = Some(Guard::new(window, Some(at)));
    }

    /// Watches the leased address over the binding's next link, from the start.
    pub(in crate::binding) fn guard_moved(&mut self, leased: Option<Ipv4Addr>) {
        self.close_guard();
        let goes_on = !self.own.is_outside() && !cut(Rule::WatchMoved);
        if let Some(address) = leased.filter(|_| goes_on) {
            self.guard_lease(address, false);
        }
    }

    /// Probes for an address before it is used. To be followed by a watch.
    pub(in crate::binding) fn guard_first(&mut self, address: Ipv4Addr) {
        self.close_guard();
        let window = Window::strict(address, self.own.own_macs(), self.now.boot, self.rng);
        // There cannot be two macvlans with one Ethernet address. The existing one hears who already has the address, but not
        // who else is about to take it.
        let own = (!self.own.is_aside()).then_some(self.now.boot);
        self.own.guard = Some(Guard::new(window, own));
    }

    /// Records that an address appeared on the binding's interface. Returns whether it is the one under watch: then a watch must
    /// follow.
    pub(in crate::binding) fn guard_on_address(&mut self, address: Ipv4Addr) -> bool {
        let guard = self.own.guard_of(address);
        guard
            .map(|guard| guard.window.appeared(self.now.boot))
            .is_some()
    }

    /// Announces an address that the daemon has put on its interface, if no window does so: there is no detection, or the
    /// change came after the window had closed. Returns whether an announcement begins, to be followed by a watch.
    pub(in crate::binding) fn announce(&mut self, address: Ipv4Addr) -> bool {
        let begins = self.own.guard.is_none();
        if begins {
            let window = Window::announcing(address, self.own.own_macs(), self.now.boot);
            self.own.guard = Some(Guard::new(window, Some(self.now.boot)));
        }
        begins
    }

    /// Announces the address of an interface that got another Ethernet address (`tuning` sets it when the address is already
    /// on): the neighbours know the previous one, which may have been announced. Returns whether an announcement begins, to be
    /// followed by a watch.
    pub(in crate::binding) fn announce_moved(&mut self, address: Ipv4Addr) -> bool {
        let Some(guard) = self.own.guard_of(address) else {
            return self.announce(address);
        };
        guard.window.announce_again(self.now.boot);
        if guard.exchange.is_closed() {
            guard.own = Some(self.now.boot);
        }
        true
    }

    /// Stops watching.
    pub(in crate::binding) fn close_guard(&mut self) {
        if let Some(mut guard) = self.own.guard.take() {
            guard.exchange.close(self.out);
        }
    }

    /// Goes on as far as possible now. Returns what it found out; there may be more to find out.
    pub(in crate::binding) fn watch(&mut self, client: &Client) -> Option<Found> {
        // A window that has heard a conflict is kept until somebody can act on it.
        while let Some(guard) = self
            .own
            .guard
            .as_mut()
            .filter(|guard| guard.heard.is_none())
        {
            if !guard.claims.is_empty() {
                return None;
            }
            let (can_send, opens) = guard.sends(&self.own.exchange);
            if opens.is_some_and(|at| self.now.boot >= at) {
                return self.open_guard();
            }
            if guard.control.is_some() {
                match self.control_on_clock(can_send, client) {
                    ControlFlow::Continue(()) => continue,
                    ControlFlow::Break(found) => return found,
                }
            }
            if !can_send {
                return None;
            }
            match guard.window.on_clock(self.now.boot, self.rng) {
                WindowAction::Send(frame) => {
                    self.guard_send(vec![frame]);
                    self.ask_reach();
                }
                // The stations of this host have already heard it.
                WindowAction::Repeat(frame) => {
                    self.own.guard_exchange().send_over(
                        frame,
                        self.interfaces.lower(&self.own.link),
                        self.out,
                    );
                    self.ask_reach();
                }
                WindowAction::Free => return Some(Found::Free),
                WindowAction::Wait => return None,
                WindowAction::Over => {
                    let is_unreached = guard.reach.as_ref().is_some_and(|reach| reach.times() > 0);
                    self.close_guard();
                    return is_unreached.then_some(Found::Unreached);
                }
            }
        }
        None
    }

    /// Opens the window's sockets again, a little later, unless a station claims the address or an ADD waits for probes.
    fn reopens(&mut self) -> bool {
        let waits = self.own.probes_first();
        let Some(guard) = self.own.guard.as_mut().filter(|guard| {
            guard.is_idle() && !guard.reopened && !(waits && guard.window.is_pending())
        }) else {
            return false;
        };
        guard.exchange.close(self.out);
        (guard.reopened, guard.own) = (true, Some(self.now.boot + LINK_DOWN));
        true
    }

    /// Goes on without sockets: holding a lease matters more than knowing that no other station uses it, unless an ADD waits for
    /// exactly that. `is_lost`: the binding's own link is gone.
    pub(in crate::binding) fn unwatch(&mut self, cause: LinkCause, is_lost: bool) -> Option<Found> {
        if cause == LinkCause::Down && !cut(Rule::WatchReopened) && self.reopens() {
            return None;
        }
        // If all claimants have answered for an address that nobody can have, nobody is known to use this one.
        if !is_lost
            && self.own.is_in_doubt()
            && let Some(found) = self.own.believe_claim()
        {
            return Some(found);
        }
        self.close_guard();
        tracing::debug!(attachment = %self.own.attachment, %cause, "no sockets for conflict detection");
        Some(Found::Unwatched(cause))
    }

    /// Asks that, from the leased address, if it is in use.
    fn ask_reach(&mut self) {
        let Some(guard) = self
            .own
            .guard
            .as_mut()
            .filter(|guard| guard.window.is_in_use())
        else {
            return;
        };
        let (from, address) = (guard.window.from(), guard.window.address());
        let Some(reach) = &mut guard.reach else {
            return;
        };
        let frames = reach.ask(from, address);
        self.guard_send(frames);
    }

    /// Sends over the window's sockets, or over those of the DHCP exchange if it has none.
    pub(in crate::binding) fn guard_send(&mut self, frames: Vec<Vec<u8>>) {
        self.own.guard_exchange().send(frames, self.out);
    }

    fn open_guard(&mut self) -> Option<Found> {
        let Some(link) = self.own.guard_link().cloned() else {
            return self.unwatch(
                LinkCause::refused("use the parent link", "it is not known"),
                false,
            );
        };
        let Some(guard) = &mut self.own.guard else {
            return None;
        };
        let arp = Hears::About(guard.window.address());
        let want = Sockets::new(self.own.identity.chaddr, arp);
        guard
            .exchange
            .open(Owner::Binding(self.own.id), &link, want, self.out);
        None
    }

    /// Returns whether this is the Ethernet address of an interface that is about to disappear, and that had the address
    /// under watch before.
    fn has_departed(&self, mac: Mac) -> bool {
        let Some(address) = self.own.guard.as_ref().map(|guard| guard.window.address()) else {
            return false;
        };
        self.departed
            .had(&self.own.identity.lan, address, mac, self.now.boot)
    }

    /// Handles an ARP packet. Returns what it reveals.
    pub(in crate::binding) fn hear(&mut self, client: &Client, arp: &Arp) -> Option<Found> {
        let answers = |reach: &mut Box<Reach>| reach.is_answered_by(arp);
        if let Some(guard) = &mut self.own.guard {
            guard.reach.take_if(answers);
        }
        if !self.own.detects() || self.has_departed(arp.sender_mac) {
            return None;
        }
        if self.is_of_proxy(arp) {
            return None;
        }
        let guard = self.own.undecided()?;
        if guard.window.is_claim(arp) && self.own.link.in_netns().is_some() {
            self.ask_inside(arp);
            return None;
        }
        self.count(client, arp)
    }

    /// Handles an ARP packet that is none of the container's own. Returns what it reveals.
    fn count(&mut self, client: &Client, arp: &Arp) -> Option<Found> {
        let guard = self.own.undecided()?;
        match guard.window.on_arp(self.now.boot, arp) {
            Heard::Nothing => None,
            Heard::Defend(frame) => {
                tracing::warn!(attachment = %self.own.attachment, address = %arp.sender, by = %arp.sender_mac, "another station claims the address: defending it");
                self.guard_send(vec![frame]);
                None
            }
            Heard::Conflict { by } => self.doubt(by, client, arp),
        }
    }

    /// Notes for the operator that a station uses the address that the client has, or asks for.
    pub(in crate::binding) fn note_conflict(&mut self, client: &Client, by: Mac) {
        if let Some(lease) = client.claimed(self.now.boot) {
            self.note(
                EventKind::Conflict,
                lease,
                format_args!("{by} uses the address"),
            );
        }
    }
}
