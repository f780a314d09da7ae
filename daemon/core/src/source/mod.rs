//! Where a lease comes from: who grants it, what that needs, and how a binding and its source talk.
//!
//! A binding gives its [`Client`] signals and the time, and gets frames to send, whether to open sockets, and a [`Verdict`] when
//! its lease changes. `dhcp4` is the only client so far, and private: no binding names a protocol.

mod dhcp4;
pub mod lease;

use std::net::Ipv4Addr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

pub(crate) use self::dhcp4::RECENT;
pub use self::dhcp4::accept::Refusal;
pub use self::dhcp4::form::{Fate, Form};
pub use self::dhcp4::inquiry::{Inquiry, Offer, OfferedLan};
pub use self::dhcp4::message::Sender;
pub use self::dhcp4::profile::{ClientProfile, Servers, Wanted};
pub(crate) use self::dhcp4::reach::Reach;
pub use self::dhcp4::reach::{UNREACHED, UNREACHED_REMEDY};
pub use self::dhcp4::release::{ReleaseAction, ReleaseExchange};
pub(crate) use self::dhcp4::timing::RECEIVE_WINDOW;
pub use self::dhcp4::timing::Timer;
pub use self::dhcp4::{Client, InVain, Refused, StateName, Tally};
pub use self::lease::Lease;
use crate::lan::Said;
use crate::wire::Mac;
use crate::wire::frame::{Arp, BadFrame, Frame, Udp};
use crate::wire::option::DroppedOption;

/// Who grants a lease.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// A DHCP server.
    #[default]
    Server,
    /// A local range.
    Range,
}

impl Source {
    /// Returns whether a server on the wire knows about the lease: the server is asked to extend and confirm it, and is told
    /// when it is given back or cannot be used.
    pub fn is_asked(&self) -> bool {
        match self {
            Self::Server => true,
            Self::Range => false,
        }
    }
}

/// What happened to a client.
#[derive(Debug)]
pub enum Signal<'a> {
    /// A deadline passed, or nothing in particular.
    Clock,
    /// The sockets that were wanted are open.
    Opened,
    /// The sockets that were wanted could not be opened, or failed.
    Unopened,
    /// A UDP datagram to port 68 came in.
    Udp(&'a Udp<'a>),
    /// An unreadable frame came in that looks like an answer to this client.
    Unreadable {
        /// Why it cannot be read.
        cause: BadFrame,
        /// Its Ethernet source.
        from: Mac,
    },
    /// An ARP packet came in.
    Arp(&'a Arp),
    /// Another station uses the address that is being requested or held.
    Conflict {
        /// Its Ethernet address.
        by: Mac,
    },
}

/// What a client wants after a signal.
#[derive(Debug, Default)]
pub struct Output {
    /// Frames to send, in order.
    pub frames: Vec<Vec<u8>>,
    /// The verdict, if there is one.
    pub verdict: Option<Verdict>,
    /// Whether the sockets should be open from now on.
    pub listen: bool,
    /// An offer that came to nothing.
    pub missed: Option<Missed>,
    /// Why the answer that came in was refused.
    pub refused: Option<Refused>,
    /// What a believed server said.
    pub heard: Option<Said>,
    /// What was dropped from the ACK behind a verdict.
    pub dropped: Vec<DroppedOption>,
    /// The message whose fate is known now.
    pub settled: Option<(Form, Fate)>,
    /// Whether to close the open sockets first: what follows uses others.
    pub anew: bool,
}

impl Output {
    /// Replaces this output with that of a later signal.
    pub(crate) fn replace(&mut self, later: Self) {
        (self.frames, self.verdict, self.listen) = (later.frames, later.verdict, later.listen);
    }
}

/// What has happened to the lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// A server granted a lease, or extended or confirmed the one that there was; its other values may have changed.
    Granted(Arc<Lease>),
    /// The lease is gone. The client looks for a new one, over other sockets: the open ones are closed.
    Lost(Arc<Lease>, Loss),
}

/// Why a lease was lost.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Loss {
    /// It ended before any server extended it.
    #[error("no server had extended it{}", .reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default())]
    Expired {
        /// What is known about the cause, for a person.
        reason: Option<String>,
    },
    /// A server refused it.
    #[error("server {server} sent NAK{}", .message.as_ref().map(|m| format!(": \"{m}\"")).unwrap_or_default())]
    Nak {
        /// The server.
        server: Ipv4Addr,
        /// Its message (56), escaped.
        message: Option<String>,
    },
    /// A server granted another address, which another client of this host has.
    #[error("server {server} granted {address} instead, which another attachment has")]
    Misplaced {
        /// The server.
        server: Ipv4Addr,
        /// What it granted.
        address: Ipv4Addr,
    },
    /// Another station uses the address. The server was told (DECLINE).
    #[error("{by} uses the address")]
    Conflict {
        /// Its Ethernet address.
        by: Mac,
    },
}

impl Signal<'_> {
    /// Returns the IP address, if that can be read, and the Ethernet address of the sender of an answer.
    pub(crate) fn sender(&self) -> Option<(Option<Ipv4Addr>, Mac)> {
        match self {
            Self::Udp(udp) => Some((Some(udp.source), udp.source_mac)),
            Self::Unreadable { from, .. } => Some((None, *from)),
            Self::Clock | Self::Opened | Self::Unopened | Self::Arp(_) | Self::Conflict { .. } => {
                None
            }
        }
    }
}

impl<'a> From<&'a Frame<'a>> for Signal<'a> {
    fn from(frame: &'a Frame<'a>) -> Self {
        match frame {
            Frame::Udp(udp) => Self::Udp(udp),
            Frame::Arp(arp) => Self::Arp(arp),
        }
    }
}

/// An offer that came to nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missed {
    /// The server.
    pub server: Ipv4Addr,
    /// The address.
    pub address: Ipv4Addr,
    /// Why.
    pub miss: Miss,
}

/// Why an offer came to nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Miss {
    /// Only another address is acceptable.
    Unwanted {
        /// The only acceptable address.
        wanted: Ipv4Addr,
    },
    /// The server did not acknowledge it.
    Unacknowledged,
    /// The server refused it, or an earlier lease.
    Nak {
        /// Its message (56), escaped.
        message: Option<String>,
    },
}
