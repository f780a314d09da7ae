//! The contract between core and shell: what comes in, what goes out, and the ids that join them.
//!
//! Three rules hold for every shell, the real one and the simulated ones:
//! * Each [`Effect`] that bears an [`OpId`] is answered by exactly one [`Input::Done`]: success, failure, or the
//!   shell's own limit.
//! * Effects of one [`ExchangeId`] keep their order; so do transactions. Nothing else is ordered by position: what must
//!   come after something waits for its `Done`.
//! * A `Done`, `Frame` or `HungUp` with an id that the core no longer knows is dropped.

mod add;
mod call;
mod docker;
mod order;
mod ranges;
mod row;
mod show;

use std::sync::Arc;

pub use self::add::{Add, Adoptee};
pub use self::call::{Answer, Call};
pub use self::docker::{
    EndpointAddress, EndpointRequest, NetworkAnswer, NetworkCall, PoolCall, PoolRequest,
};
pub use self::order::{Obeyed, Order, Upshot, Verb, Which};
pub use self::ranges::RangeRow;
pub use self::row::{BindingState, Row};
pub use self::show::Shown;
pub use crate::failure::{Failure, StoreCause};
use crate::grant::Dns;
pub use crate::identity::ClientIdRule;
use crate::identity::{Attachment, Lan};
use crate::link::own::{LinkOwner, OwnLink, OwnLinks};
use crate::link::{
    Hears, KernelMessage, Link, LinkCause, LinkView, Place, Sightings, Sockets, Sought, Step,
    Target,
};
use crate::record::{BindingId, Change, DoorRecord, Record};
use crate::silence::Survey;
use crate::source::Timer;
use crate::time::BootId;
use crate::wire::Mac;
pub use crate::wire::frame::FrameMeta;

/// One open request. Issued by the shell, below 2^63, and never used again in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// One effect that reports back. Issued by the core, and never used again in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OpId(pub u64);

/// The sockets of an exchange. Issued by the core, and never used again in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ExchangeId(pub u64);

/// What happened outside.
#[derive(Debug)]
pub enum Input<'a> {
    /// The first input, once: after the socket listens, before the first request is accepted.
    Start {
        /// The current boot.
        boot: BootId,
        /// All bindings that the store holds.
        records: Vec<(BindingId, Record)>,
        /// What it holds for front doors.
        doors: Vec<DoorRecord>,
        /// Calls that came while no daemon ran. They are answered like any other; the shell forgets a call when it is answered
        /// with success.
        spooled: Vec<(RequestId, Call)>,
        /// Running containers that the store does not know: the store is new, or had to be set aside.
        adoptees: Vec<Adoptee>,
    },
    /// A caller asks.
    Request {
        /// The request, until it is answered or hangs up.
        id: RequestId,
        /// What it asks.
        call: Call,
    },
    /// A caller hung up before it had its answer. An answer may have crossed this.
    HungUp(RequestId),
    /// An effect is over.
    Done {
        /// The effect.
        op: OpId,
        /// How it ended.
        outcome: Outcome,
    },
    /// A frame came in on an exchange's packet socket.
    Frame {
        /// The exchange.
        exchange: ExchangeId,
        /// The frame from its Ethernet header on.
        bytes: &'a [u8],
        /// What the kernel said about it.
        meta: FrameMeta,
    },
    /// An exchange's socket failed; nothing more comes from it. The core still closes it.
    Broken {
        /// The exchange.
        exchange: ExchangeId,
        /// Why.
        cause: LinkCause,
    },
    /// The link did not accept a frame whose [`Effect::Send`] bears no op.
    Unsent {
        /// The exchange.
        exchange: ExchangeId,
        /// Why.
        cause: LinkCause,
    },
    /// The kernel reported something, unasked.
    Kernel(KernelMessage),
}

/// How an effect ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Of [`Effect::Persist`]: all changes are durable, or none.
    Persisted(Result<(), StoreCause>),
    /// Of [`Effect::Open`].
    Opened(Result<(), LinkCause>),
    /// Of [`Effect::Send`]: the link accepted the frame, or why it did not.
    Sent(Result<(), LinkCause>),
    /// Of [`Effect::Inspect`].
    Inspected(Result<LinkView, LinkCause>),
    /// Of [`Effect::Apply`].
    Applied {
        /// How many steps were taken, counted from the first.
        taken: usize,
        /// The link after the last step, or why the next step (or the look after it) failed.
        result: Result<LinkView, LinkCause>,
    },
    /// Of [`Effect::Prepare`].
    Prepared {
        /// The link, or why it could not be set up or looked at.
        result: Result<LinkView, LinkCause>,
        /// The exchange, if its sockets are open.
        exchange: Option<ExchangeId>,
    },
    /// Of [`Effect::Survey`]. It names what could not be found out.
    Surveyed(Survey),
    /// Of [`Effect::ListInside`]: the Ethernet addresses that are there.
    Inside(Result<Vec<Mac>, LinkCause>),
    /// Of [`Effect::Seek`], or why no namespace could be looked at.
    Sought(Result<Sightings, LinkCause>),
    /// Of [`Effect::Make`]: the link is there.
    Made(Result<(), LinkCause>),
    /// Of [`Effect::Unmake`]: the link is not there.
    Unmade(Result<(), LinkCause>),
    /// Of [`Effect::ListOwn`]: the links that are there.
    OwnLinks(Result<OwnLinks, LinkCause>),
    /// Of [`Effect::Close`]: the exchange is closed, and so is any link that was made for it.
    Closed,
}

/// What the core wants done outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Makes changes durable, in one transaction. If the store cannot be written, a transaction that ends a binding
    /// ([`ended_by`](crate::record::ended_by)) may be kept where only a reboot loses it.
    Persist {
        /// Answered by [`Outcome::Persisted`].
        op: OpId,
        /// The transaction. An empty one asks whether the store could be written.
        changes: Vec<Change>,
    },
    /// Opens the sockets of an exchange.
    Open {
        /// Answered by [`Outcome::Opened`].
        op: OpId,
        /// The exchange.
        exchange: ExchangeId,
        /// Where.
        link: Link,
        /// Which.
        want: Sockets,
    },
    /// Looks at a link. From then on the shell also reports events in the link's namespace ([`Input::Kernel`]), if that is a
    /// container's.
    Inspect {
        /// Answered by [`Outcome::Inspected`].
        op: OpId,
        /// Which link.
        target: Target,
        /// Whether to look at its routes too.
        routes: bool,
    },
    /// Changes a link step by step, then looks at it as [`Effect::Inspect`] does.
    Apply {
        /// Answered by [`Outcome::Applied`].
        op: OpId,
        /// Which link.
        target: Target,
        /// The steps, in order; the first failure ends them.
        steps: Vec<Step>,
    },
    /// Sets a link up and looks at it, and opens the sockets of an exchange there in the same visit. A link of the host is not
    /// set up. No sockets are opened if the link has no carrier then, or if they would take a port, or cannot be had at once.
    Prepare {
        /// Answered by [`Outcome::Prepared`].
        op: OpId,
        /// Where.
        place: Place,
        /// The wire of this place.
        lan: Lan,
        /// The exchange. It hears answers by ARP, and holds no port.
        exchange: ExchangeId,
        /// The client's hardware address in answers; `None`: the place's own.
        chaddr: Option<Mac>,
    },
    /// Looks for reasons why no DHCP server answers.
    Survey {
        /// Answered by [`Outcome::Surveyed`].
        op: OpId,
        /// The container's link.
        link: Link,
        /// The host's link on its LAN, if it is named by one.
        lan_parent: Option<String>,
        /// Whether only to count the frames that came in.
        counts: bool,
    },
    /// Lists the Ethernet addresses of all links in a container's namespace.
    ListInside {
        /// Answered by [`Outcome::Inside`].
        op: OpId,
        /// One of its links.
        link: Link,
    },
    /// Looks for interfaces in the namespaces of an engine that does not say where it puts them: Docker. From then on the shell
    /// also reports events in the namespaces in which it finds any.
    Seek {
        /// Answered by [`Outcome::Sought`].
        op: OpId,
        /// The interfaces.
        sought: Vec<Sought>,
        /// The number of the only namespace to look through; `None`: all.
        number: Option<i32>,
    },
    /// Makes a link in the host's namespace, with an alias that names its owner; a VLAN's link is set up, any other is down. If
    /// this owner already has one there, that is success.
    Make {
        /// Answered by [`Outcome::Made`].
        op: OpId,
        /// The link.
        link: Box<OwnLink>,
    },
    /// Deletes the link with this owner from the host's namespace. It is also a success if it is not there, or if the link with
    /// that name has another alias; that link stays.
    Unmake {
        /// Answered by [`Outcome::Unmade`].
        op: OpId,
        /// The owner.
        owner: LinkOwner,
    },
    /// Lists the links in the host's namespace that this daemon, or one with another store, made.
    ListOwn {
        /// Answered by [`Outcome::OwnLinks`].
        op: OpId,
    },
    /// Sends a frame, from its Ethernet header on. The network may lose it.
    Send {
        /// Answered by [`Outcome::Sent`], if anybody wants to know, unless the exchange breaks or is closed first.
        op: Option<OpId>,
        /// The exchange.
        exchange: ExchangeId,
        /// The frame.
        frame: Vec<u8>,
        /// The index of a host link that the frame leaves by instead, so that the stations of this host do not hear it. If that
        /// link does not accept it at once, it leaves over the exchange.
        over: Option<u32>,
    },
    /// Makes the packet socket of an open exchange hear only this ARP. If that fails, the exchange breaks.
    Hear {
        /// The exchange.
        exchange: ExchangeId,
        /// The ARP that it hears from here on.
        arp: Hears,
    },
    /// Closes an exchange, opened or still opening, once everything has been sent over it.
    Close {
        /// Answered by [`Outcome::Closed`], if anybody waits for that.
        op: Option<OpId>,
        /// The exchange.
        exchange: ExchangeId,
    },
    /// Answers a request.
    Reply {
        /// The request.
        id: RequestId,
        /// The answer.
        answer: Answer,
    },
    /// Publishes an attachment's name servers to the host's programs, replacing the previous ones; `None`: it has none any
    /// more. There is no answer. The shell keeps the order, and deletes at the start whatever no effect of the start names.
    Publish {
        /// The attachment.
        attachment: Arc<Attachment>,
        /// What its durable lease says.
        dns: Option<Dns>,
    },
}

/// What the core's next deadline is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Why {
    /// A call must be answered.
    Call,
    /// The DHCP client of a binding goes on.
    Dhcp(Timer),
    /// Conflict detection goes on.
    Conflict,
    /// A RELEASE goes on, or is tried again.
    Release,
    /// A lease that could not be given back ends.
    LeaseEnds,
    /// A failed write is tried again.
    Store,
    /// A failed change of an interface, or a failed look at one, is tried again.
    Work,
    /// No DEL has come for a link that is gone.
    Orphan,
}
