//! The front doors: HTTP/1.1 on Unix sockets, one request per connection, turned into the core's calls and back.
//!
//! Holds no rule and no lease state: [`cni`] (with [`add`], [`named`], [`names`], [`args`], [`client_id`],
//! [`refusal`] and [`result`]), [`docker`] and [`control`] are pure conversions between the wire (`leasehold-api`)
//! and the core, [`events`] reads the journal, [`order`] reads an operator's orders, [`show`] and [`status`] describe one lease and
//! the daemon, [`logging`] changes what is logged, [`capture`] gives frames, [`monitor`] answers monitors, [`server`] is hyper
//! ([`caller`]: one connection, [`operator`]: what an operator asks), [`spool`] carries out what shims left while no daemon
//! answered.
//!
//! # For the driver
//! One channel carries everything, so one `recv` in the driver's loop hears every caller:
//! * [`DoorReport::Asked`]: give `call` to the core as `Input::Request` under `id`, and keep `reply` until the core's
//!   `Effect::Reply` for that id; then [`Reply::send`].
//! * [`DoorReport::HungUp`]: the caller of `id` closed its connection before its answer. Drop its `reply`, and give the core
//!   `Input::HungUp`. It never comes before the request's `Asked`. It may cross an answer just sent, which the caller then did
//!   not get: the core hears of that too.
//! * [`DoorReport::Measured`], [`DoorReport::Pinged`]: answer at once.
//! * Dropping a `reply` unsent answers the caller "try again later".
//!
//! The channel needs no bound: a request holds its place among [`MAX_OPEN`] from the accept until the connection is closed *and*
//! the driver has dropped its `Reply`, so there are at most two events for each place.
//!
//! Call [`serve`] only after `Input::Start` was handed in: that is "listen, scan, accept". Until then callers wait in the
//! backlog. When the channel of listeners is closed, callers without an answer are cut off before any byte, which makes the shim
//! ask the next daemon; the `HungUp`s that follow come from stopping. Docker's callers are not cut off, because dockerd asks
//! again with an empty body: each must be answered by then, or its `reply` dropped.

mod add;
mod args;
mod caller;
mod capture;
mod client_id;
mod cni;
mod control;
mod docker;
mod events;
mod fallback;
mod logging;
mod monitor;
mod named;
mod names;
mod operator;
mod order;
mod question;
mod refusal;
mod result;
mod server;
mod show;
mod spool;
mod status;
#[cfg(test)]
pub(crate) mod tests;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use leasehold_api::MAX_BODY;
use leasehold_core::effect::{Answer, Call, RequestId};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};

pub(crate) use add::Site;
pub(crate) use client_id::MachineId;
pub(crate) use cni::{Asked, warnings};
pub(crate) use events::rfc3339;
pub(crate) use server::{Listening, serve};
pub(crate) use spool::Spool;

use crate::capture::Frames;
use crate::health::OldPlugin;
use crate::listen::Protocol;
use crate::log::Filter;
use crate::metrics::Snapshot;
use crate::store::journal::Journal;

/// The most connections served at once at one socket; further ones wait in its backlog.
pub(crate) const MAX_OPEN: usize = 1024;

/// The most bytes of requests read at once at one socket; further requests wait in their connections.
const MAX_READING: usize = 8 * MAX_BODY;

/// The most readers at one socket that wait for events or frames, each of which holds a place.
const MAX_WAITING: usize = 64;

/// What the front doors tell the driver.
#[derive(Debug)]
pub(crate) enum DoorReport {
    /// A caller asks.
    Asked {
        /// The request's number, unique in this run.
        id: RequestId,
        /// What is asked.
        call: Call,
        /// Where the answer goes.
        reply: Reply,
    },
    /// The caller hung up before it had its answer.
    HungUp(RequestId),
    /// A monitor wants all numbers.
    Measured(oneshot::Sender<Box<Snapshot>>),
    /// A monitor wants to know whether the loop runs.
    Pinged(oneshot::Sender<()>),
}

/// The way back to one caller.
#[derive(Debug)]
pub(crate) struct Reply {
    answer: oneshot::Sender<Answer>,
    protocol: Protocol,
    _place: Arc<OwnedSemaphorePermit>,
}

impl Reply {
    /// Returns what the caller speaks.
    pub(crate) fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// Answers the caller, if it is still there.
    pub(crate) fn send(self, answer: Answer) {
        // A caller that has gone has already caused a DoorReport::HungUp.
        let _ = self.answer.send(answer);
    }
}

/// What all front doors share: what they know about the host, the next request id, the places, and the channels to the
/// driver and the journal.
#[derive(Clone, Debug)]
pub(crate) struct Doors {
    site: Site,
    reports: mpsc::UnboundedSender<DoorReport>,
    /// Where host-local's files are, as seen from here.
    networks: Arc<Path>,
    /// What the callers of each protocol may have at once: slow ones at one socket delay nobody at another.
    shares: Arc<BTreeMap<Protocol, Share>>,
    journal: Journal,
    log: Filter,
    frames: Frames,
    /// What was answered a moment ago.
    said: Arc<monitor::Said>,
    /// Calls of the replaced plugin.
    old_plugin: Arc<OldPlugin>,
    next: Arc<AtomicU64>,
}

/// What the callers at one socket may have at once.
#[derive(Debug)]
struct Share {
    /// Connections, and how many of them there may be.
    places: Arc<Semaphore>,
    most: usize,
    /// Places for readers that wait for events or frames.
    waiting: Arc<Semaphore>,
    /// Bytes of requests that may be read at once.
    reading: Arc<Semaphore>,
}

impl Doors {
    /// Returns the front doors' end, for `places` connections at once at each socket, and the driver's end.
    pub(crate) fn new(
        site: Site,
        networks: PathBuf,
        journal: Journal,
        log: Filter,
        frames: Frames,
        places: usize,
    ) -> (Self, mpsc::UnboundedReceiver<DoorReport>) {
        let (reports, driver) = mpsc::unbounded_channel();
        let of = |places| Arc::new(Semaphore::new(places));
        let most = places.clamp(1, MAX_OPEN);
        let share = || Share {
            places: of(most),
            most,
            waiting: of(MAX_WAITING),
            reading: of(MAX_READING),
        };
        let shares = Arc::new(Protocol::ALL.map(|protocol| (protocol, share())).into());
        let doors = Self {
            site,
            networks: networks.into(),
            reports,
            shares,
            journal,
            log,
            frames,
            said: Arc::default(),
            old_plugin: Arc::default(),
            next: Arc::default(),
        };
        (doors, driver)
    }

    /// Returns what the callers of a protocol may have at once.
    fn share(&self, protocol: Protocol) -> &Share {
        &self.shares[&protocol]
    }

    /// Returns how many connections there are at each socket.
    pub(crate) fn connections(&self) -> BTreeMap<&'static str, u64> {
        let open = |share: &Share| match share.places.available_permits() {
            0 => share.most as u64,
            // One is reserved for the next caller.
            free => share.most.saturating_sub(free + 1) as u64,
        };
        self.shares
            .iter()
            .map(|(protocol, share)| (protocol.name(), open(share)))
            .collect()
    }

    /// Returns a new id, for spooled calls too.
    pub(crate) fn mint(&self) -> RequestId {
        RequestId(self.next.fetch_add(1, Ordering::Relaxed))
    }
}
