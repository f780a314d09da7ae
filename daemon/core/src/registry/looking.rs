//! Asking a LAN for Docker, which wants to know its subnet and router before any container is there.
//!
//! A look speaks from the LAN's link like any ADD over it, and after a second from a macvlan beside it, but takes nothing: see
//! `dhcpv4::look`. It ends with the first offer that is believed, or after a few seconds. Nobody has its Ethernet address, so
//! that it need not wait for the end of the macvlan.

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;

use super::Registry;
use super::add::CARRIER_PAUSE;
use super::timers::Key;
use crate::dhcpv4::look::{Look, Sight};
use crate::dhcpv4::message::Sender;
use crate::dhcpv4::profile::ClientProfile;
use crate::effect::{Answer, ExchangeId, Failure, FrameMeta, OpId, Outcome, PoolRequest, RequestId, Why};
use crate::identity::ClientId;
use crate::link::{Hears, Link, LinkCause, LinkView, Sockets};
use crate::outbox::{Outbox, Waiter};
use crate::pool::{PoolFault, PoolId};
use crate::time::{Instant, Now, whole_millis};
use crate::wire::frame::{self, Frame};

/// How long an offer is waited for, once sockets are open; and the link's carrier before that.
const SILENCE: Duration = Duration::from_secs(3);

/// A look under way.
#[derive(Debug)]
pub(super) struct Looking {
    request: Box<PoolRequest>,
    /// When what it waits for is given up.
    limit: Instant,
    began: Instant,
    stage: Stage,
    /// What is asked, from the moment when the first sockets are open.
    look: Option<Box<Look>>,
    /// The LAN's link, until it is gone back to.
    link: Option<Link>,
    /// A macvlan beside it is to ask on.
    goes_aside: bool,
}

/// How far a look is.
#[derive(Debug)]
enum Stage {
    /// The LAN's link is being looked at.
    Finding(OpId),
    /// It has no carrier.
    AwaitingCarrier(Box<LinkView>),
    /// Sockets are being opened.
    Opening(OpId, ExchangeId),
    /// Servers are asked.
    Asking(ExchangeId),
}

impl Looking {
    fn op(&self) -> Option<OpId> {
        match &self.stage {
            Stage::Finding(op) | Stage::Opening(op, _) => Some(*op),
            Stage::AwaitingCarrier(_) | Stage::Asking(..) => None,
        }
    }

    fn exchange(&self) -> Option<ExchangeId> {
        match &self.stage {
            Stage::Opening(_, exchange) | Stage::Asking(exchange) => Some(*exchange),
            Stage::Finding(_) | Stage::AwaitingCarrier(_) => None,
        }
    }

    /// Returns the client that asks. A server is not to commit anything to it.
    fn sender(&self) -> Sender {
        let PoolRequest { mac, profile, .. } = &*self.request;
        let client = ClientProfile { rapid_commit: false, ..(*profile.client).clone() };
        Sender::new(*mac, &ClientId::ethernet(*mac), Arc::new(client))
    }

    /// Opens sockets, in the place of those that there are.
    fn open(&mut self, id: RequestId, link: Link, out: &mut Outbox) {
        self.exchange().into_iter().for_each(|before| out.close(before));
        let want = Sockets { chaddr: self.sender().chaddr, arp: Hears::Answers, hold_port: None };
        let (op, exchange) = out.open_for(Waiter::Pool(id), link, want);
        self.stage = Stage::Opening(op, exchange);
    }

    /// Asks over sockets that are open.
    fn asks(&mut self, now: Instant, rng: &mut Rng) {
        let Stage::Opening(_, exchange) = self.stage else { return };
        self.stage = Stage::Asking(exchange);
        if self.look.is_some() {
            return;
        }
        self.look = Some(Box::new(Look::new(self.sender(), now, rng.fork())));
        self.limit = (now + SILENCE).min(self.began + self.request.timeout);
    }

    /// Returns the link to go back to where the macvlan beside it cannot be had.
    fn back_to(&self) -> Option<Link> {
        self.link.clone().filter(|_| self.look.is_some())
    }

    /// Returns why it has failed by now.
    fn failure(&self, now: Instant) -> Failure {
        let (lan, waited) = (self.request.lan.clone(), whole_millis(now.saturating_since(self.began)));
        if let Some(look) = &self.look {
            let (tally, sent) = (Box::new(look.tally().clone()), look.tally().discovers);
            return Failure::NoOffer { lan, sent, waited, queued: Duration::ZERO, tally, silence: None, cut: false };
        }
        match &self.stage {
            Stage::AwaitingCarrier(view) => Failure::NoCarrier { ifname: view.ifname.clone(), waited },
            Stage::Finding(_) => Failure::TimedOut { waiting_for: "a look at the LAN's link", waited },
            Stage::Opening(..) | Stage::Asking(_) => {
                Failure::TimedOut { waiting_for: "sockets on the LAN's link", waited }
            }
        }
    }
}

impl Registry {
    /// Begins a look for a pool that is not known.
    pub(super) fn look(&mut self, now: Now, id: RequestId, request: Box<PoolRequest>) {
        let limit = now.boot + request.timeout.min(SILENCE);
        let stage = Stage::Finding(self.out.inspect(Waiter::Pool(id), request.place().target()));
        let (look, link, goes_aside) = (None, None, false);
        let looking = Looking { request, limit, began: now.boot, stage, look, link, goes_aside };
        self.looks.insert(id, looking);
        self.timers.set(Key::Call(id), Some((limit, Why::Call)));
    }

    /// Goes on with the outcome of an effect.
    pub(super) fn look_done(&mut self, now: Now, id: RequestId, outcome: Outcome) {
        let Some(looking) = self.looks.get_mut(&id) else { return };
        let target = looking.request.place().target().to_string();
        match (outcome, &looking.stage) {
            (Outcome::Inspected(Ok(view)), Stage::Finding(_)) if !looking.request.place().has_carrier(&view) => {
                looking.stage = Stage::AwaitingCarrier(Box::new(view));
                let at = (now.boot + CARRIER_PAUSE).min(looking.limit);
                self.timers.set(Key::Call(id), Some((at, Why::Call)));
            }
            (Outcome::Inspected(Ok(view)), Stage::Finding(_)) => {
                let link = looking.request.place().link(&view, &looking.request.lan);
                looking.goes_aside = link.has_beside(&view) && !looking.request.profile.on_parent;
                looking.link = Some(link.clone());
                looking.open(id, link, &mut self.out);
            }
            (Outcome::Opened(Ok(())), Stage::Opening(..)) => {
                looking.asks(now.boot, &mut self.rng);
                self.look_goes_on(now, id);
            }
            (Outcome::Opened(Err(cause)), Stage::Opening(..)) if let Some(link) = looking.back_to() => {
                tracing::info!(%target, %cause, "no macvlan to ask from beside the LAN's link");
                looking.link = None;
                looking.open(id, link, &mut self.out);
            }
            (Outcome::Inspected(Err(cause)), Stage::Finding(_)) | (Outcome::Opened(Err(cause)), Stage::Opening(..)) => {
                self.end_look(now, id, Err(Failure::Link { target, cause }));
            }
            _ => {}
        }
    }

    /// Goes on as the clock says; false where the call is at no look.
    pub(super) fn look_goes_on(&mut self, now: Now, id: RequestId) -> bool {
        let Some(looking) = self.looks.get_mut(&id) else { return false };
        if now.boot >= looking.limit {
            let failure = looking.failure(now.boot);
            self.end_look(now, id, Err(failure));
            return true;
        }
        let mut next = looking.limit;
        match (&looking.stage, &mut looking.look) {
            (Stage::AwaitingCarrier(_), _) => {
                looking.stage = Stage::Finding(self.out.inspect(Waiter::Pool(id), looking.request.place().target()));
            }
            (Stage::Asking(_), Some(look)) if looking.goes_aside && look.asks_again(now.boot) => {
                looking.goes_aside = false;
                let aside = looking.link.clone().map(Link::by_port);
                aside.into_iter().for_each(|link| looking.open(id, link, &mut self.out));
            }
            (Stage::Asking(exchange), Some(look)) => {
                look.on_clock(now.boot).into_iter().for_each(|frame| self.out.send(*exchange, frame));
                next = next.min(look.deadline());
            }
            (Stage::Finding(_) | Stage::Opening(..) | Stage::Asking(_), _) => {}
        }
        self.timers.set(Key::Call(id), Some((next, Why::Call)));
        true
    }

    /// Takes in a frame of a look's exchange; false where it is no look's.
    pub(super) fn look_hears(&mut self, now: Now, exchange: ExchangeId, bytes: &[u8], meta: FrameMeta) -> bool {
        let Some(id) = self.look_of(exchange) else { return false };
        let Some(look) = self.looks.get_mut(&id).and_then(|looking| looking.look.as_mut()) else { return true };
        match frame::decode(bytes, meta) {
            Ok(Frame::Udp(udp)) => match look.on_udp(now.boot, &udp) {
                Ok(sight) => self.end_look(now, id, Ok(sight)),
                Err(refused) => self.out.refused(&refused),
            },
            Ok(Frame::Arp(_)) => {}
            Err(cause) => {
                self.out.refused(&cause);
                look.on_unreadable(cause);
            }
        }
        true
    }

    /// The sockets of a look failed; false where they are no look's.
    pub(super) fn look_broken(&mut self, now: Now, exchange: ExchangeId, cause: LinkCause) -> bool {
        let Some(id) = self.look_of(exchange) else { return false };
        let target = self.looks.get(&id).map(|looking| looking.request.place().target().to_string());
        self.end_look(now, id, Err(Failure::Link { target: target.unwrap_or_default(), cause }));
        true
    }

    /// The link did not take a message of a look; false where it is no look's.
    pub(super) fn look_unsent(&mut self, exchange: ExchangeId, cause: &LinkCause) -> bool {
        let Some(id) = self.look_of(exchange) else { return false };
        let look = self.looks.get_mut(&id).and_then(|looking| looking.look.as_mut());
        look.into_iter().for_each(|look| look.on_unsent(cause.to_string()));
        true
    }

    /// Drops a look whose caller went away; false when there is none.
    pub(super) fn forget_look_at_lan(&mut self, id: RequestId) -> bool {
        let looking = self.looks.remove(&id);
        if let Some(looking) = &looking {
            self.timers.set(Key::Call(id), None);
            looking.op().into_iter().for_each(|op| self.out.forget(op));
            looking.exchange().into_iter().for_each(|exchange| self.out.close(exchange));
        }
        looking.is_some()
    }

    fn look_of(&self, exchange: ExchangeId) -> Option<RequestId> {
        let mut all = self.looks.iter();
        all.find(|(_, looking)| looking.exchange() == Some(exchange)).map(|(id, _)| *id)
    }

    /// Makes of what was seen the pool that was asked for. One with a subnet needs no server.
    fn end_look(&mut self, now: Now, id: RequestId, seen: Result<Sight, Failure>) {
        let Some(request) = self.looks.get(&id).map(|looking| looking.request.clone()) else { return };
        self.forget_look_at_lan(id);
        let PoolRequest { definition, subnet, range, lan, .. } = *request;
        let fail = |because: String| Answer::Failed(Failure::Pool(PoolFault::NoSubnet { because }));
        let (offered, router) = match seen {
            Ok(Sight { server, subnet: offered, router }) => {
                tracing::info!(%lan, %server, ?offered, ?router, "looked at the LAN for a pool");
                (offered.ok_or_else(|| format!("server {server} of {lan} names no subnet mask")), router)
            }
            Err(failure) => {
                let failure = failure.to_string();
                if subnet.is_some() {
                    tracing::warn!(%lan, %failure, "no router known for a pool: its network may have no default route");
                }
                (Err(failure), None)
            }
        };
        let (subnet, automatic) = match (subnet, offered) {
            (Some(subnet), _) => (subnet, false),
            (None, Ok(offered)) => (offered, true),
            (None, Err(because)) => return self.out.reply(id, fail(because)),
        };
        let gateway = router.filter(|router| subnet.contains(router));
        if let Some(router) = router.filter(|_| gateway.is_none()) {
            tracing::warn!(%lan, %router, %subnet, "the server's router is not in the pool's subnet");
        }
        self.add_pool(now, id, PoolId::new(definition, subnet, range), lan, gateway, automatic);
    }
}
