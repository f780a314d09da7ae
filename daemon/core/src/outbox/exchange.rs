//! The sockets of a binding or a call: closed most of its life.

use super::{Outbox, Owner, Task};
use crate::effect::{ExchangeId, OpId};
use crate::link::{Hears, Link, Sockets, Target};
use crate::record::BindingId;

/// The sockets of one owner.
#[derive(Debug, Default)]
pub(crate) enum Exchange {
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
    pub(crate) fn open(&mut self, owner: Owner, link: &Link, want: Sockets, out: &mut Outbox) {
        if self.is_closed() {
            let (op, exchange) = out.open(owner, link.clone(), want);
            *self = Self::Opening(op, exchange);
        }
    }

    /// Asks for a report when the sockets that are being opened are closed: they are on a temporary link.
    pub(crate) fn reports_close(&self, owner: BindingId, out: &mut Outbox) {
        if let Self::Opening(_, exchange) = self {
            out.goes_aside(owner, *exchange);
        }
    }

    /// Takes sockets that are open.
    pub(crate) fn take(&mut self, owner: BindingId, exchange: ExchangeId, out: &mut Outbox) {
        self.close(out);
        out.give(exchange, owner);
        *self = Self::Open(exchange);
    }

    /// Looks for the host's link first, unless that is under way.
    pub(crate) fn find(&mut self, owner: Owner, ifname: &str, out: &mut Outbox) {
        if self.is_closed() {
            let target = Target::Host {
                ifname: ifname.to_owned(),
            };
            *self = Self::Finding(out.inspect(owner.waiter(Task::FindLine), target));
        }
    }

    /// Records that the host's link was looked for; false if it is no longer wanted.
    pub(crate) fn found(&mut self) -> bool {
        let wanted = self.is_finding();
        if wanted {
            *self = Self::Closed;
        }
        wanted
    }

    /// Records that the sockets are open; false if they are no longer wanted.
    pub(crate) fn opened(&mut self, exchange: ExchangeId) -> bool {
        let wanted = matches!(self, Self::Opening(_, wanted) if *wanted == exchange);
        if wanted {
            *self = Self::Open(exchange);
        }
        wanted
    }

    /// Closes what is open or opening.
    pub(crate) fn close(&mut self, out: &mut Outbox) {
        match std::mem::take(self) {
            Self::Closed => {}
            Self::Finding(op) => out.forget(op),
            Self::Opening(op, exchange) => {
                out.forget(op);
                out.close(exchange);
            }
            Self::Open(exchange) => out.close(exchange),
        }
    }

    /// Takes these sockets away, if they are open, to hear other ARP with them.
    pub(crate) fn take_to_hear(&mut self, arp: Hears, out: &mut Outbox) -> Option<Self> {
        let Self::Open(exchange) = *self else {
            return None;
        };
        out.hear(exchange, arp);
        Some(std::mem::take(self))
    }

    /// Sends frames, in order. Sockets that are not open lose them, as a wire may.
    pub(crate) fn send(&self, frames: Vec<Vec<u8>>, out: &mut Outbox) {
        frames
            .into_iter()
            .for_each(|frame| self.send_over(frame, None, out));
    }

    /// Sends a frame, over the `lower` link if there is one.
    pub(crate) fn send_over(&self, frame: Vec<u8>, lower: Option<u32>, out: &mut Outbox) {
        if let Self::Open(exchange) = self {
            out.send_over(*exchange, frame, lower);
        }
    }

    /// Sends a RELEASE, and its owner hears the outcome; `None` if the sockets are not open.
    pub(crate) fn send_release(
        &self,
        owner: BindingId,
        frame: Vec<u8>,
        out: &mut Outbox,
    ) -> Option<OpId> {
        let Self::Open(exchange) = self else {
            return None;
        };
        Some(out.send_release(owner, *exchange, frame))
    }

    pub(crate) fn is_finding(&self) -> bool {
        matches!(self, Self::Finding(_))
    }

    /// Returns the sockets that are being opened.
    pub(crate) fn opening(&self) -> Option<ExchangeId> {
        match self {
            Self::Opening(_, exchange) => Some(*exchange),
            Self::Closed | Self::Finding(_) | Self::Open(_) => None,
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        matches!(self, Self::Closed)
    }

    /// Returns whether frames reach the wire.
    pub(crate) fn can_send(&self) -> bool {
        matches!(self, Self::Open(_))
    }

    /// Returns whether this exchange is the owner's, open or opening.
    pub(crate) fn is(&self, exchange: ExchangeId) -> bool {
        self.opening() == Some(exchange) || self.is_open(exchange)
    }

    pub(crate) fn is_open(&self, exchange: ExchangeId) -> bool {
        matches!(self, Self::Open(own) if *own == exchange)
    }
}
