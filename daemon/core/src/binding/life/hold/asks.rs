//! Asks whether a server is there, on behalf of all containers on the LAN that got an address without one: a DISCOVER that takes
//! nothing.

use super::Hold;
use crate::binding::{Common, Cx, Next, Report, SAME};
use crate::lan::Said;
use crate::link::{Hears, Sockets};
use crate::patience::OFFER;
use crate::source::Inquiry;
use crate::time::Instant;
use crate::wire::frame::Frame;

/// A question under way.
#[derive(Debug)]
pub(super) struct Asks {
    inquiry: Inquiry,
    until: Instant,
}

impl Hold {
    fn is_of_range(&self) -> bool {
        self.client
            .lease()
            .is_some_and(|lease| !lease.source.is_asked())
    }

    /// Returns the question under way. It ends with a lease that no server granted.
    fn asks(&self) -> Option<&Asks> {
        self.rare
            .as_ref()?
            .asks
            .as_deref()
            .filter(|_| self.is_of_range())
    }

    fn asks_mut(&mut self) -> Option<&mut Asks> {
        self.rare.as_mut()?.asks.as_deref_mut()
    }

    /// Asks, once, if its lease came from a local range and its sockets are free. Returns whether it does.
    pub(in crate::binding) fn ask(&mut self, common: &mut Common, cx: &mut Cx<'_>) -> bool {
        if !self.is_of_range() || !common.exchange.is_closed() || common.is_pathless {
            return false;
        }
        let inquiry = Inquiry::new(common.sender(), cx.now.boot, cx.rng.fork());
        self.rare.get_or_insert_default().asks = Some(Box::new(Asks {
            inquiry,
            until: cx.now.boot + OFFER,
        }));
        common.open(
            Sockets {
                chaddr: common.identity.chaddr,
                arp: Hears::Answers,
                hold_port: None,
            },
            true,
            cx,
        );
        true
    }

    /// Returns whether a question is under way: its sockets are not for the client.
    pub(super) fn is_asking(&self) -> bool {
        self.asks().is_some()
    }

    pub(super) fn asks_until(&self) -> Option<Instant> {
        self.asks().map(|asks| asks.until)
    }

    /// Ends a question that nobody has answered in time.
    pub(super) fn end_question(&mut self, common: &mut Common, cx: &mut Cx<'_>) {
        if self.asks_until().is_some_and(|until| cx.now.boot >= until) {
            self.asks_no_more(common, cx);
        }
    }

    pub(super) fn asks_no_more(&mut self, common: &mut Common, cx: &mut Cx<'_>) {
        self.rare.iter_mut().for_each(|rare| rare.asks = None);
        common.end_exchange(cx);
    }

    /// Sends the DISCOVER: the sockets are open.
    pub(super) fn put_question(&mut self, common: &mut Common, cx: &mut Cx<'_>) -> Next {
        if let Some(asks) = self.asks_mut() {
            common.exchange.send(asks.inquiry.on_clock(cx.now.boot), cx);
        }
        SAME
    }

    /// Handles a frame that may be the answer.
    pub(super) fn hear_answer(
        &mut self,
        common: &mut Common,
        frame: &Frame<'_>,
        cx: &mut Cx<'_>,
    ) -> Next {
        let Frame::Udp(udp) = frame else { return SAME };
        let Some(asks) = self.asks_mut() else {
            return SAME;
        };
        match asks.inquiry.on_udp(cx.now.boot, udp) {
            Ok(sight) => {
                self.asks_no_more(common, cx);
                let said = Said {
                    server: sight.server,
                    subnet: sight.subnet,
                    extends: false,
                    acknowledges: false,
                };
                cx.out.report(common.id, Report::Heard(said));
            }
            Err(refused) => {
                tracing::debug!(attachment = %common.attachment, %refused, "no answer to the DISCOVER that asks for a server")
            }
        }
        SAME
    }
}
