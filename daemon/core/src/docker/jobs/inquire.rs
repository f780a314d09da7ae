//! Asks a LAN for its subnet and router, which Docker wants to know before any container is there.
//!
//! It asks from the LAN's link like any ADD there, and after a second from a macvlan beside the link, but takes nothing: see
//! `source`. It ends with the first believed offer, or after a few seconds. Nobody else has its Ethernet address, so it
//! need not wait for the macvlan to be deleted.

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;

use super::pool::PoolChange;
use super::{DockerJob, Next};
use crate::docker::Desk;
use crate::effect::{Answer, Failure, FrameMeta, Outcome, PoolRequest, RequestId};
use crate::identity::ClientId;
use crate::link::{Hears, Line, LinkCause, Sockets};
use crate::outbox::{DoorWaiter, Exchange, Owner, Waiter};
use crate::patience::{LINK_DOWN, OFFER};
use crate::pool::{PoolFault, PoolId};
use crate::silence::Reason;
use crate::source::{ClientProfile, Inquiry, OfferedLan, Sender};
use crate::time::{Instant, whole_millis};
use crate::wire::frame::{self, Frame};

/// A look under way.
#[derive(Debug)]
pub(in crate::docker) struct LanInquiry {
    request: Box<PoolRequest>,
    /// When it gives up.
    limit: Instant,
    began: Instant,
    exchange: Exchange,
    /// The name of the LAN's link, while it has no carrier.
    no_carrier: Option<String>,
    /// The inquiry, once the first sockets are open.
    inquiry: Option<Box<Inquiry>>,
    /// Where it speaks, once the LAN's link is found.
    line: Option<Line>,
    /// Why nobody answers.
    reason: Reason,
}

impl LanInquiry {
    /// Counts frames, or looks for the reason of a silence, if that is due. Returns when the next look is.
    fn looks_for_reason(&mut self, id: RequestId, desk: &mut Desk<'_>) -> Option<Instant> {
        let at = self.reason.due_at(self.began, self.limit)?;
        if desk.now().boot < at {
            return Some(at);
        }
        let counts = self.reason.look(None);
        let waiter = Waiter::Above(DoorWaiter::Call(id));
        let link = self.line.as_ref()?.link.clone();
        desk.out().survey(waiter, link, &self.request.lan, counts);
        self.reason.due_at(self.began, self.limit)
    }

    /// Returns the client that asks. No server should commit anything to it.
    fn sender(&self) -> Sender {
        let PoolRequest { mac, profile, .. } = &*self.request;
        let client = ClientProfile {
            rapid_commit: false,
            ..(*profile.client).clone()
        };
        Sender::new(*mac, &ClientId::ethernet(*mac), Arc::new(client))
    }

    /// Looks for the LAN's link.
    fn find(&mut self, id: RequestId, desk: &mut Desk<'_>) {
        let out = desk.out();
        self.exchange
            .find(Owner::Above(id), self.request.place().ifname(), out);
    }

    /// Opens sockets, replacing those it has.
    fn open(&mut self, id: RequestId, desk: &mut Desk<'_>) {
        let Some(line) = &self.line else { return };
        let out = desk.out();
        let want = Sockets::new(self.request.mac, Hears::Answers);
        self.exchange.close(out);
        self.exchange.open(Owner::Above(id), &line.link, want, out);
    }

    /// Asks over the open sockets.
    fn asks(&mut self, now: Instant, rng: &mut Rng) {
        if self.inquiry.is_none() {
            self.inquiry = Some(Box::new(Inquiry::new(self.sender(), now, rng.fork())));
            self.limit = (now + OFFER).min(self.began + self.request.timeout);
        }
    }

    /// Returns why it has failed by now.
    fn failure(&self, now: Instant) -> Failure {
        let (lan, waited) = (
            self.request.lan.clone(),
            whole_millis(now.saturating_since(self.began)),
        );
        if let Some(inquiry) = &self.inquiry {
            let (tally, sent) = (Box::new(inquiry.tally().clone()), inquiry.tally().discovers);
            return Failure::NoOffer {
                lan,
                sent,
                waited,
                queued: Duration::ZERO,
                tally,
                silence: self.reason.silence(),
                cut: false,
                kept: 0,
            };
        }
        match &self.no_carrier {
            Some(ifname) => Failure::NoCarrier {
                ifname: ifname.clone(),
                waited,
            },
            None if self.exchange.is_finding() => {
                Failure::TimedOut("a look at the LAN's link", waited)
            }
            None => Failure::TimedOut("sockets on the LAN's link", waited),
        }
    }

    /// Begins a look for a pool that is not known.
    pub(in crate::docker) fn begin(
        desk: &mut Desk<'_>,
        id: RequestId,
        request: Box<PoolRequest>,
    ) -> Next {
        let mut look = Self {
            limit: desk.now().boot + request.timeout.min(OFFER),
            request,
            began: desk.now().boot,
            exchange: Exchange::default(),
            no_carrier: None,
            inquiry: None,
            line: None,
            reason: Reason::default(),
        };
        look.find(id, desk);
        desk.time_call(id, look.limit);
        look.waits()
    }

    fn waits(self) -> Next {
        Next::Waits(DockerJob::Inquire(Box::new(self)))
    }

    pub(super) fn done(mut self, desk: &mut Desk<'_>, id: RequestId, outcome: Outcome) -> Next {
        let target = self.request.place().target().to_string();
        match outcome {
            Outcome::Inspected(Ok(view)) if self.exchange.found() => {
                if !self.request.place().has_carrier(&view) {
                    self.no_carrier = Some(view.ifname);
                    desk.time_call(id, (desk.now().boot + LINK_DOWN).min(self.limit));
                    return self.waits();
                }
                let link = self.request.place().link(&view, &self.request.lan);
                let shared = self.request.profile.on_parent;
                self.line = Some(Line::over(link, &view, shared));
                self.open(id, desk);
            }
            Outcome::Surveyed(survey) => {
                let asks = (self.began, self.limit);
                self.reason.found(survey, &self.request.ifname, asks, None);
            }
            Outcome::Opened(Ok(()))
                if let Some(exchange) = self.exchange.opening()
                    && self.exchange.opened(exchange) =>
            {
                self.asks(desk.now().boot, &mut desk.registry.tables.rng);
                return self.time_out(desk, id);
            }
            Outcome::Opened(Err(cause)) if self.line.as_mut().is_some_and(Line::come_back) => {
                tracing::info!(%target, %cause, "no macvlan to ask from beside the LAN's link");
                self.open(id, desk);
            }
            Outcome::Inspected(Err(cause)) | Outcome::Opened(Err(cause)) => {
                return self.end(desk, id, Err(Failure::Link { target, cause }));
            }
            _ => {}
        }
        self.waits()
    }

    /// Does what is due by the clock.
    pub(super) fn time_out(mut self, desk: &mut Desk<'_>, id: RequestId) -> Next {
        let now = desk.now();
        if now.boot >= self.limit {
            let failure = self.failure(now.boot);
            return self.end(desk, id, Err(failure));
        }
        let mut next = self.limit;
        if self.no_carrier.take().is_some() {
            self.find(id, desk);
        }
        if let Some(inquiry) = self.inquiry.as_mut().filter(|_| self.exchange.can_send()) {
            let again = inquiry.asks_again(now.boot);
            if again && self.line.as_mut().is_some_and(Line::go_beside) {
                self.open(id, desk);
            } else {
                let out = desk.out();
                self.exchange.send(inquiry.on_clock(now.boot), out);
                next = next.min(inquiry.deadline());
                next = next.min(self.looks_for_reason(id, desk).unwrap_or(next));
            }
        }
        desk.time_call(id, next);
        self.waits()
    }

    pub(super) fn hears(
        mut self,
        desk: &mut Desk<'_>,
        id: RequestId,
        (bytes, meta): (&[u8], FrameMeta),
    ) -> Next {
        let Some(inquiry) = &mut self.inquiry else {
            return self.waits();
        };
        match frame::decode(bytes, meta) {
            Ok(Frame::Udp(udp)) => match inquiry.on_udp(desk.now().boot, &udp) {
                Ok(sight) => return self.end(desk, id, Ok(sight)),
                Err(refused) => desk.out().counts.refused(refused),
            },
            Ok(Frame::Arp(_)) => {}
            Err(cause) => {
                desk.out().counts.refused(cause);
                inquiry.on_unreadable(cause);
            }
        }
        self.waits()
    }

    /// Ends because its sockets failed.
    pub(super) fn broken(self, desk: &mut Desk<'_>, id: RequestId, cause: LinkCause) -> Next {
        let target = self.request.place().target().to_string();
        self.end(desk, id, Err(Failure::Link { target, cause }))
    }

    /// Records that the link did not take a message.
    pub(super) fn unsent(mut self, cause: &LinkCause) -> Next {
        self.inquiry
            .iter_mut()
            .for_each(|inquiry| inquiry.on_unsent(cause.to_string()));
        self.waits()
    }

    pub(super) fn hang_up(mut self, desk: &mut Desk<'_>, id: RequestId) {
        desk.forget(id);
        self.exchange.close(desk.out());
    }

    /// Makes the requested pool from what was seen. A pool with a subnet needs no server.
    fn end(self, desk: &mut Desk<'_>, id: RequestId, seen: Result<OfferedLan, Failure>) -> Next {
        let request = self.request.clone();
        self.hang_up(desk, id);
        let PoolRequest {
            definition,
            subnet,
            range,
            lan,
            ..
        } = *request;
        let fail = |because: String| Answer::Failed(Failure::Pool(PoolFault::NoSubnet { because }));
        let (offered, router) = match seen {
            Ok(OfferedLan {
                server,
                subnet: offered,
                router,
            }) => {
                tracing::info!(%lan, %server, ?offered, ?router, "looked at a pool's LAN");
                (
                    offered.ok_or_else(|| format!("server {server} of {lan} names no subnet mask")),
                    router,
                )
            }
            Err(
                failure @ Failure::Link {
                    cause: LinkCause::NoLink(_),
                    ..
                },
            ) if subnet.is_none() => return Next::Answers(Answer::Failed(failure)),
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
            (None, Err(because)) => return Next::Answers(fail(because)),
        };
        let gateway = router.filter(|router| subnet.contains(router));
        if let Some(router) = router.filter(|_| gateway.is_none()) {
            tracing::warn!(%lan, %router, %subnet, "the server's router is not in the pool's subnet");
        }
        PoolChange::add(
            desk,
            id,
            PoolId::new(definition, subnet, range),
            lan,
            gateway,
            automatic,
        )
    }
}
