//! The sockets of a binding: closed most of its life.

use crate::binding::{Cx, Task, Waiter};
use crate::effect::{ExchangeId, OpId};
use crate::link::{Hears, Link, Sockets, Target};
use crate::record::BindingId;

/// A binding's sockets.
#[derive(Debug, Default)]
pub(in crate::binding) enum Exchange {
    /// There are none.
    #[default]
    Closed,
    /// The host's link for them is being looked for.
    Finding(OpId),
    /// They are being opened.
    Opening(OpId, ExchangeId),
    /// They are open.
    Open(ExchangeId),
}

impl Exchange {
    /// Asks for sockets, unless there are some or they are being opened.
    pub(in crate::binding) fn open(
        &mut self,
        owner: BindingId,
        link: &Link,
        want: Sockets,
        cx: &mut Cx<'_>,
    ) {
        if matches!(self, Self::Closed) {
            let (op, exchange) = cx.out.open(owner, link.clone(), want);
            *self = Self::Opening(op, exchange);
        }
    }

    /// Asks for a report when the sockets that are being opened are closed: they are on a temporary link.
    pub(in crate::binding) fn reports_close(&self, owner: BindingId, cx: &mut Cx<'_>) {
        if let Self::Opening(_, exchange) = self {
            cx.out.goes_aside(owner, *exchange);
        }
    }

    /// Takes sockets that are open.
    pub(in crate::binding) fn take(
        &mut self,
        owner: BindingId,
        exchange: ExchangeId,
        cx: &mut Cx<'_>,
    ) {
        self.close(cx);
        cx.out.give(exchange, owner);
        *self = Self::Open(exchange);
    }

    /// Looks for the host's link first, unless that is under way.
    pub(in crate::binding) fn find(&mut self, owner: BindingId, ifname: &str, cx: &mut Cx<'_>) {
        if matches!(self, Self::Closed) {
            let target = Target::Host {
                ifname: ifname.to_owned(),
            };
            *self = Self::Finding(
                cx.out
                    .inspect(Waiter::Binding(owner, Task::FindLine), target),
            );
        }
    }

    /// Records that the host's link was looked for; false if it is no longer wanted.
    pub(in crate::binding) fn found(&mut self) -> bool {
        let wanted = matches!(self, Self::Finding(_));
        if wanted {
            *self = Self::Closed;
        }
        wanted
    }

    /// Records that the sockets are open; false if they are no longer wanted.
    pub(in crate::binding) fn opened(&mut self, exchange: ExchangeId) -> bool {
        match self {
            Self::Opening(_, wanted) if *wanted == exchange => *self = Self::Open(exchange),
            Self::Finding(_) | Self::Opening(..) | Self::Open(_) | Self::Closed => return false,
        }
        true
    }

    /// Closes what is open or opening.
    pub(in crate::binding) fn close(&mut self, cx: &mut Cx<'_>) {
        match std::mem::take(self) {
            Self::Closed => {}
            Self::Finding(op) => cx.out.forget(op),
            Self::Opening(op, exchange) => {
                cx.out.forget(op);
                cx.out.close(exchange);
            }
            Self::Open(exchange) => cx.out.close(exchange),
        }
    }

    /// Takes these sockets away, if they are open, to hear other ARP with them.
    pub(in crate::binding) fn take_to_hear(&mut self, arp: Hears, cx: &mut Cx<'_>) -> Option<Self> {
        let Self::Open(exchange) = *self else {
            return None;
        };
        cx.out.hear(exchange, arp);
        Some(std::mem::take(self))
    }

    /// Sends frames, in order. Sockets that are not open lose them, as a wire may.
    pub(in crate::binding) fn send(&self, frames: Vec<Vec<u8>>, cx: &mut Cx<'_>) {
        if let Self::Open(exchange) = self {
            frames
                .into_iter()
                .for_each(|frame| cx.out.send(*exchange, frame));
        }
    }

    /// Sends a frame over the `lower` link, if there is one.
    pub(in crate::binding) fn send_over(
        &self,
        frame: Vec<u8>,
        lower: Option<u32>,
        cx: &mut Cx<'_>,
    ) {
        if let Self::Open(exchange) = self {
            cx.out.send_over(*exchange, frame, lower);
        }
    }

    /// Sends a RELEASE, and its owner hears the outcome; `None` if the sockets are not open.
    pub(in crate::binding) fn send_release(
        &self,
        owner: BindingId,
        frame: Vec<u8>,
        cx: &mut Cx<'_>,
    ) -> Option<OpId> {
        let Self::Open(exchange) = self else {
            return None;
        };
        Some(cx.out.send_release(owner, *exchange, frame))
    }

    pub(in crate::binding) fn is_finding(&self) -> bool {
        matches!(self, Self::Finding(_))
    }

    pub(in crate::binding) fn is_closed(&self) -> bool {
        matches!(self, Self::Closed)
    }

    /// Returns whether frames reach the wire.
    pub(in crate::binding) fn can_send(&self) -> bool {
        matches!(self, Self::Open(_))
    }

    /// Returns whether this exchange is the binding's, open or opening.
    pub(in crate::binding) fn is(&self, exchange: ExchangeId) -> bool {
        matches!(self, Self::Opening(_, own) | Self::Open(own) if *own == exchange)
    }

    pub(in crate::binding) fn is_open(&self, exchange: ExchangeId) -> bool {
        matches!(self, Self::Open(own) if *own == exchange)
    }
}
