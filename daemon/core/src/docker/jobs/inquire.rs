//! Asks a LAN for its subnet and router, which Docker wants to know before any container is there.
//!
//! It asks from the LAN's link like any ADD there, and after a second from a macvlan beside the link, but takes nothing: see
//! `source`. It ends with the first believed offer, or after a few seconds. Nobody else has its Ethernet address, so it
//! need not wait for the macvlan to be deleted.

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;

use super::{DockerJob, Next};
use crate::docker::Desk;
use crate::effect::{
    Answer, ExchangeId, Failure, FrameMeta, OpId, Outcome, PoolRequest, RequestId,
};
use crate::identity::ClientId;
use crate::link::{Beside, Hears, Link, LinkCause, LinkView, Sockets};
use crate::outbox::{DoorWaiter, Owner, Waiter};
use crate::patience::OFFER;
use crate::pool::{PoolFault, PoolId};
use crate::registry::CARRIER_PAUSE;
use crate::silence::Silence;
use crate::source::{ClientProfile, Inquiry, OfferedLan, Sender};
use crate::time::{Instant, Now, whole_millis};
use crate::wire::frame::{self, Frame};

/// How long before its end it looks for the reason of the silence.
const AHEAD: Duration = Duration::from_secs(2);

/// A look under way.
#[derive(Debug)]
pub(in crate::docker) struct LanInquiry {
    request: Box<PoolRequest>,
    /// When it gives up.
    limit: Instant,
    began: Instant,
    stage: InquiryStage,
    /// The inquiry, once the first sockets are open.
    inquiry: Option<Box<Inquiry>>,
    /// The LAN's link, once it is found.
    link: Option<Link>,
    /// How many frames had come in on its LAN then, once they are counted.
    before: Option<u64>,
    /// The count, and later the search for the reason of the silence, while it is under way.
    survey: Option<OpId>,
    /// Whether that search has begun.
    searches: bool,
    /// What was found about the reason.
    reason: Option<Box<Silence>>,
    /// Whether asking from a macvlan next to that link is possible, or under way.
    beside: Beside,
}

/// How far a look is.
#[derive(Debug)]
enum InquiryStage {
    /// The LAN's link is being looked at.
    Finding(OpId),
    /// It has no carrier.
    AwaitingCarrier(Box<LinkView>),
    /// Sockets are being opened.
    Opening(OpId, ExchangeId),
    /// Servers are asked.
    Asking(ExchangeId),
}

impl LanInquiry {
    fn ops(&self) -> impl Iterator<Item = OpId> {
        let of_stage = match &self.stage {
            InquiryStage::Finding(op) | InquiryStage::Opening(op, _) => Some(*op),
            InquiryStage::AwaitingCarrier(_) | InquiryStage::Asking(..) => None,
        };
        of_stage.into_iter().chain(self.survey)
    }

    /// Counts the frames that have come in, or searches for the reason of the silence.
    fn surveys(&mut self, id: RequestId, link: Link, desk: &mut Desk<'_>) {
        let waiter = Waiter::Above(DoorWaiter::Call(id));
        let (lan, counts) = (&self.request.lan, !self.searches);
        self.survey = Some(desk.registry.out.survey_for(waiter, link, lan, counts));
    }

    /// Looks for the reason of a silence shortly before the end. Returns when, if that is still to come.
    fn looks_for_reason(
        &mut self,
        id: RequestId,
        now: Instant,
        desk: &mut Desk<'_>,
    ) -> Option<Instant> {
        let at = self.limit - AHEAD;
        let link = self.link.clone().filter(|_| !self.searches)?;
        if now < at {
            return Some(at);
        }
        self.searches = true;
        // A count that is still under way comes too late.
        self.survey
            .take()
            .into_iter()
            .for_each(|op| desk.registry.out.forget(op));
        self.surveys(id, link, desk);
        None
    }

    /// Returns its sockets.
    pub(super) fn exchange(&self) -> Option<ExchangeId> {
        match &self.stage {
            InquiryStage::Opening(_, exchange) | InquiryStage::Asking(exchange) => Some(*exchange),
            InquiryStage::Finding(_) | InquiryStage::AwaitingCarrier(_) => None,
        }
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

    /// Opens sockets, replacing those it has.
    fn open(&mut self, id: RequestId, desk: &mut Desk<'_>) {
        let Some(link) = self.link.clone() else {
            return;
        };
        let link = if self.beside == Beside::Now {
            link.by_port()
        } else {
            link
        };
        self.exchange()
            .into_iter()
            .for_each(|before| desk.registry.out.close(before));
        let want = Sockets {
            chaddr: self.sender().chaddr,
            arp: Hears::Answers,
            hold_port: None,
        };
        let waiter = Waiter::Above(DoorWaiter::Call(id));
        let (op, exchange) = desk.registry.out.open_for(Owner::Above, waiter, link, want);
        self.stage = InquiryStage::Opening(op, exchange);
    }

    /// Asks over the open sockets.
    fn asks(&mut self, now: Instant, rng: &mut Rng) {
        let InquiryStage::Opening(_, exchange) = self.stage else {
            return;
        };
        self.stage = InquiryStage::Asking(exchange);
        if self.inquiry.is_some() {
            return;
        }
        self.inquiry = Some(Box::new(Inquiry::new(self.sender(), now, rng.fork())));
        self.limit = (now + OFFER).min(self.began + self.request.timeout);
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
                silence: self.reason.clone(),
                cut: false,
                kept: 0,
            };
        }
        match &self.stage {
            InquiryStage::AwaitingCarrier(view) => Failure::NoCarrier {
                ifname: view.ifname.clone(),
                waited,
            },
            InquiryStage::Finding(_) => Failure::TimedOut {
                waiting_for: "a look at the LAN's link",
                waited,
            },
            InquiryStage::Opening(..) | InquiryStage::Asking(_) => Failure::TimedOut {
                waiting_for: "sockets on the LAN's link",
                waited,
            },
        }
    }

    /// Begins a look for a pool that is not known.
    pub(in crate::docker) fn begin(
        desk: &mut Desk<'_>,
        now: Now,
        id: RequestId,
        request: Box<PoolRequest>,
    ) -> Next {
        let limit = now.boot + request.timeout.min(OFFER);
        let stage =
            InquiryStage::Finding(desk.inspect(DoorWaiter::Call(id), request.place().target()));
        desk.time_call(id, limit);
        let (inquiry, link, beside) = (None, None, Beside::Never);
        let (reason, survey, searches) = (None, None, false);
        Self {
            request,
            limit,
            began: now.boot,
            stage,
            inquiry,
            link,
            before: None,
            survey,
            searches,
            reason,
            beside,
        }
        .waits()
    }

    fn waits(self) -> Next {
        Next::Waits(DockerJob::Inquire(Box::new(self)))
    }

    pub(super) fn done(
        mut self,
        desk: &mut Desk<'_>,
        now: Now,
        id: RequestId,
        outcome: Outcome,
    ) -> Next {
        let target = self.request.place().target().to_string();
        match (outcome, &self.stage) {
            (Outcome::Inspected(Ok(view)), InquiryStage::Finding(_))
                if !self.request.place().has_carrier(&view) =>
            {
                self.stage = InquiryStage::AwaitingCarrier(Box::new(view));
                desk.time_call(id, (now.boot + CARRIER_PAUSE).min(self.limit));
            }
            (Outcome::Inspected(Ok(view)), InquiryStage::Finding(_)) => {
                let link = self.request.place().link(&view, &self.request.lan);
                self.beside = Beside::of(&link, &view, self.request.profile.on_parent);
                self.surveys(id, link.clone(), desk);
                self.link = Some(link);
                self.open(id, desk);
            }
            (Outcome::Surveyed(survey), _) if !self.searches => {
                (self.survey, self.before) = (None, survey.received);
            }
            (Outcome::Surveyed(survey), _) => {
                self.survey = None;
                self.reason = Some(Box::new(Silence {
                    ifname: self.request.ifname.clone(),
                    before: self.before,
                    up_for: None,
                    survey,
                    server: None,
                }));
            }
            (Outcome::Opened(Ok(())), InquiryStage::Opening(..)) => {
                self.asks(now.boot, &mut desk.registry.rng);
                return self.time_out(desk, now, id);
            }
            (Outcome::Opened(Err(cause)), InquiryStage::Opening(..)) if self.beside.come_back() => {
                tracing::info!(%target, %cause, "no macvlan to ask from beside the LAN's link");
                self.open(id, desk);
            }
            (Outcome::Inspected(Err(cause)), InquiryStage::Finding(_))
            | (Outcome::Opened(Err(cause)), InquiryStage::Opening(..)) => {
                return self.end(desk, now, id, Err(Failure::Link { target, cause }));
            }
            _ => {}
        }
        self.waits()
    }

    /// Does what is due by the clock.
    pub(super) fn time_out(mut self, desk: &mut Desk<'_>, now: Now, id: RequestId) -> Next {
        if now.boot >= self.limit {
            let failure = self.failure(now.boot);
            return self.end(desk, now, id, Err(failure));
        }
        let mut next = self.limit;
        match (&self.stage, &mut self.inquiry) {
            (InquiryStage::AwaitingCarrier(_), _) => {
                self.stage = InquiryStage::Finding(
                    desk.inspect(DoorWaiter::Call(id), self.request.place().target()),
                );
            }
            (InquiryStage::Asking(_), Some(inquiry))
                if inquiry.asks_again(now.boot) && self.beside.go() =>
            {
                self.open(id, desk)
            }
            (InquiryStage::Asking(exchange), Some(inquiry)) => {
                inquiry
                    .on_clock(now.boot)
                    .into_iter()
                    .for_each(|frame| desk.registry.out.send(*exchange, frame));
                next = next.min(inquiry.deadline());
                next = next.min(self.looks_for_reason(id, now.boot, desk).unwrap_or(next));
            }
            (InquiryStage::Finding(_) | InquiryStage::Opening(..) | InquiryStage::Asking(_), _) => {
            }
        }
        desk.time_call(id, next);
        self.waits()
    }

    pub(super) fn hears(
        mut self,
        desk: &mut Desk<'_>,
        now: Now,
        id: RequestId,
        (bytes, meta): (&[u8], FrameMeta),
    ) -> Next {
        let Some(inquiry) = &mut self.inquiry else {
            return self.waits();
        };
        match frame::decode(bytes, meta) {
            Ok(Frame::Udp(udp)) => match inquiry.on_udp(now.boot, &udp) {
                Ok(sight) => return self.end(desk, now, id, Ok(sight)),
                Err(refused) => desk.registry.out.counts.refused(refused.name()),
            },
            Ok(Frame::Arp(_)) => {}
            Err(cause) => {
                desk.registry.out.counts.refused(cause.name());
                inquiry.on_unreadable(cause);
            }
        }
        self.waits()
    }

    /// Ends because its sockets failed.
    pub(super) fn broken(
        self,
        desk: &mut Desk<'_>,
        now: Now,
        id: RequestId,
        cause: LinkCause,
    ) -> Next {
        let target = self.request.place().target().to_string();
        self.end(desk, now, id, Err(Failure::Link { target, cause }))
    }

    /// Records that the link did not take a message.
    pub(super) fn unsent(mut self, cause: &LinkCause) -> Next {
        self.inquiry
            .iter_mut()
            .for_each(|inquiry| inquiry.on_unsent(cause.to_string()));
        self.waits()
    }

    pub(super) fn hang_up(self, desk: &mut Desk<'_>) -> Next {
        self.ops().for_each(|op| desk.registry.out.forget(op));
        self.exchange()
            .into_iter()
            .for_each(|exchange| desk.registry.out.close(exchange));
        Next::Nothing
    }

    /// Makes the requested pool from what was seen. A pool with a subnet needs no server.
    fn end(
        self,
        desk: &mut Desk<'_>,
        now: Now,
        id: RequestId,
        seen: Result<OfferedLan, Failure>,
    ) -> Next {
        let request = self.request.clone();
        self.hang_up(desk);
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
        desk.add_pool(
            now,
            id,
            PoolId::new(definition, subnet, range),
            lan,
            gateway,
            automatic,
        )
    }
}
