//! What happens in the world, as the oracles see it.

use std::net::Ipv4Addr;

use leasehold_core::effect::{Answer, Call, Effect, ExchangeId, OpId, Outcome, RequestId, Row};
use leasehold_core::event::Event;
use leasehold_core::identity::Attachment;
use leasehold_core::link::Step;
use leasehold_core::testbed::kernel::{Applied, At};
use leasehold_core::wire::Mac;
use netns_fixtures::model::{ClientKey, Event as Served, Message};

use super::Micros;
use super::actor::Asked;

/// A client, with its LAN and its Ethernet address.
pub(super) type Who = (usize, Mac, ClientKey);

/// What an oracle sees. A LAN, a station and an actor are named by their indices.
pub(super) enum Seen<'a> {
    /// A daemon is about to start with what is durable.
    Started,
    /// The daemon ended.
    Ended,
    /// The host rebooted.
    Rebooted,
    /// Nobody may know any more who holds what.
    StoreLost,
    /// A call is handed to the core.
    Requested(&'a Call),
    /// The core emits an effect.
    Emitted(&'a Effect),
    /// The core has a frame sent on an exchange.
    Sends(usize, ExchangeId, &'a [u8]),
    /// An outcome is handed to the core.
    Done(OpId, &'a Outcome),
    /// The core has taken in an input.
    Fed,
    /// A frame is handed to the core, for a client if one still has the socket.
    Frame {
        lan: usize,
        client: Option<Who>,
        bytes: &'a [u8],
    },
    /// A server's message reaches the client that it is for.
    Heard(usize, &'a [u8], &'a Message),
    /// A client asks a server for something that it has not asked for before.
    Requests(usize, &'a Message),
    /// A client declines an address, and names a server.
    Declines(&'a Who, Ipv4Addr),
    /// A frame is on the wire.
    Left {
        lan: usize,
        exchange: ExchangeId,
        frame: &'a [u8],
    },
    /// A server took a message.
    Served(usize, usize, Served),
    /// Steps were taken on a link.
    Applied(&'a Applied, &'a [Step]),
    /// Events of leases are durable.
    Noted(&'a [Event]),
    /// There is a cause to send from this Ethernet address, or from all.
    Cause(Mac),
    CauseForAll,
    /// An actor begins another container.
    Begins(usize),
    /// An actor's link appeared in the container.
    Appeared(&'a Attachment),
    /// The container is ending.
    Leaves(usize),
    /// Nobody has the attachment's lease any more.
    Gone(&'a Attachment),
    /// An attachment's caller hangs up.
    HangsUp,
    /// A runtime sends a GC on a LAN.
    Collects(usize),
    /// A client's ADD begins.
    AddBegins(&'a Who),
    AddEnds(&'a Who, Option<Ipv4Addr>),
    /// The shell sends an answer.
    Replied(RequestId, &'a Answer),
    /// An actor's ADD is answered.
    Answered(usize, &'a Asked, &'a Answer),
    /// The client on a link that had no carrier since the first time must be heard by now, as its port forwards since the second.
    HeardBy {
        at: At,
        lost: Micros,
        forwards: Micros,
    },
    /// The server must know by now that an address of an actor's container was given back.
    ReleasedBy {
        index: usize,
        generation: u32,
        address: Ipv4Addr,
    },
    /// All bindings are looked at.
    Listed(&'a [Row]),
    /// The same, and nobody may hold anything for an attachment whose ADD was cancelled.
    Dropped(&'a Attachment, &'a [Row]),
    /// All is quiet, and no work is under way.
    Idle,
    /// All is quiet: whatever runs is as it should be.
    Quiet(&'a [Row]),
    /// All is gone, and nothing may be left.
    Rest,
    /// Something has happened.
    Passed,
}
