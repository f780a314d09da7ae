//! What a run did to the world, as one number: its frames, changes of links, answers and stored leases, with their times.
//!
//! Everything is spelled out here, without the texts that people read and without the names of types, so that the number stays
//! the same when a text is corrected or code is moved.

use std::fmt::{self, Write};
use std::net::IpAddr;

use leasehold_core::effect::{Answer, Failure, RequestId};
use leasehold_core::identity::DoorId;
use leasehold_core::link::Step;
use leasehold_core::record::{Change, DoorKey, RecordState};
use leasehold_core::testbed::kernel::At;

use crate::subject::container;

/// The number so far (FNV-1a).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Digest(u64);

impl Default for Digest {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Write for Digest {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.bytes(text.as_bytes());
        Ok(())
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl Digest {
    fn bytes(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    fn line(&mut self, line: fmt::Arguments<'_>) {
        writeln!(self, "{line}").expect("a digest takes all that is written");
    }

    /// Adds a frame that left for a LAN, at a time in microseconds.
    pub(crate) fn frame(&mut self, at: u64, lan: usize, frame: &[u8]) {
        self.line(format_args!("{at} frame {lan} {}", frame.len()));
        self.bytes(frame);
    }

    /// Adds the steps that were taken on a link.
    pub(crate) fn steps(&mut self, at: u64, link: At, steps: &[Step]) {
        for step in steps {
            let (word, thing) = step_of(step);
            self.line(format_args!(
                "{at} link {} {} {word} {thing}",
                link.0.0, link.1
            ));
        }
    }

    /// Adds a link of the daemon's own that appeared or disappeared.
    pub(crate) fn own(&mut self, at: u64, there: bool, ifname: &str) {
        self.line(format_args!(
            "{at} {} {ifname}",
            if there { "made" } else { "unmade" }
        ));
    }

    /// Adds an answer.
    pub(crate) fn answer(&mut self, at: u64, id: RequestId, answer: &Answer) {
        self.line(format_args!("{at} answer {} {}", id.0, code_of(answer)));
        match answer {
            Answer::Leased { tenures } => tenures
                .iter()
                .for_each(|tenure| self.line(format_args!("{}", tenure.net()))),
            Answer::Bindings { rows, .. } => {
                for row in rows {
                    let address = row
                        .tenure
                        .as_ref()
                        .map(|tenure| tenure.net().to_string())
                        .unwrap_or_default();
                    self.line(format_args!("{} {address}", container(&row.attachment)));
                }
            }
            Answer::Deleted
            | Answer::Checked
            | Answer::Collected
            | Answer::Ready
            | Answer::Failed(_) => {}
            Answer::Pool { id, gateway } => self.line(format_args!("{id} {gateway:?}")),
            Answer::Reserved(address) => self.line(format_args!("{address}")),
            Answer::Obeyed(obeyed) => {
                obeyed.iter().for_each(|of| {
                    self.line(format_args!(
                        "{} {:?}",
                        container(&of.attachment),
                        of.address
                    ))
                });
            }
            Answer::PoolReleased
            | Answer::Released
            | Answer::Network(_)
            | Answer::Ranges(_)
            | Answer::Shown(_) => {}
        }
    }

    /// Adds changes that the store has made durable.
    pub(crate) fn stored(&mut self, at: u64, changes: &[Change]) {
        for change in changes {
            match change {
                Change::Put(id, record) => {
                    let (lease, word) = (&record.lease, state_of(record.state));
                    let (address, server): (_, IpAddr) = (lease.address, lease.server.into());
                    let start = lease.start.since_boot().as_micros();
                    let times = lease
                        .times
                        .map(|t| [t.t1, t.t2, t.end].map(|time| time.as_micros()));
                    let times = times.unwrap_or_default();
                    let who = container(&record.attachment);
                    self.line(format_args!(
                        "{at} {word} {} {who} {address} {server} {start} {times:?}",
                        id.0
                    ));
                }
                Change::Remove(id) => self.line(format_args!("{at} removed {}", id.0)),
                Change::PutDoor(record) => self.line(format_args!("{at} {}", key_of(&record.key))),
                Change::RemoveDoor(key) => self.line(format_args!("{at} removed {}", key_of(key))),
                Change::Note(event) => {
                    let address = event
                        .address
                        .map(|address| address.to_string())
                        .unwrap_or_default();
                    self.line(format_args!(
                        "{at} {} {} {address}",
                        event.kind.name(),
                        container(&event.attachment)
                    ));
                }
            }
        }
    }
}

fn step_of(step: &Step) -> (&'static str, String) {
    match step {
        Step::Up => ("up", String::new()),
        Step::Mtu(mtu) => ("mtu", mtu.to_string()),
        Step::AddAddress(address) => ("add", address.to_string()),
        Step::RemoveAddress(address) => ("remove", address.to_string()),
        Step::AddRoute(route) => ("add route", format!("{route} {}", route.mtu.unwrap_or(0))),
        Step::ReplaceDefault { from, to } => ("replace default", format!("{from} {to}")),
        Step::Abandon => ("abandon", String::new()),
        Step::RemoveRoute(route) => (
            "remove route",
            format!("{route} {}", route.mtu.unwrap_or(0)),
        ),
    }
}

fn state_of(state: RecordState) -> &'static str {
    match state {
        RecordState::Bound => "bound",
        RecordState::Seeking => "seeking",
        RecordState::Releasing => "releasing",
        RecordState::Past => "past",
    }
}

fn code_of(answer: &Answer) -> u32 {
    match answer {
        Answer::Leased { .. } => 1,
        Answer::Deleted => 2,
        Answer::Checked => 3,
        Answer::Collected => 4,
        Answer::Ready => 5,
        Answer::Bindings { .. } => 6,
        Answer::Pool { .. } => 7,
        Answer::PoolReleased => 8,
        Answer::Reserved(_) => 9,
        Answer::Released => 10,
        Answer::Network(_) => 11,
        Answer::Ranges(_) => 12,
        Answer::Obeyed(_) => 13,
        Answer::Shown(_) => 14,
        Answer::Failed(failure) => match failure {
            Failure::Link { .. } => 101,
            Failure::NoCarrier { .. } => 102,
            Failure::NoOffer { .. } => 103,
            Failure::NoAck { .. } => 104,
            Failure::Nak { .. } => 105,
            Failure::Conflict { .. } => 106,
            Failure::Conflicts { .. } => 107,
            Failure::NotDeclined { .. } => 108,
            Failure::TooShort { .. } => 109,
            Failure::TimedOut(..) => 110,
            Failure::Store(_) => 111,
            Failure::Held { .. } => 112,
            Failure::AddressHeld { .. } => 113,
            Failure::Cancelled(_) => 114,
            Failure::NotWanted { .. } => 115,
            Failure::NotReady(_) => 116,
            Failure::NotCollected(_) => 117,
            Failure::Attached { .. } => 118,
            Failure::Unknown(_) => 119,
            Failure::Differs { .. } => 120,
            Failure::NotOnLink { .. } => 121,
            Failure::NoRoute { .. } => 128,
            Failure::Unfit { .. } => 122,
            Failure::Pool(_) => 123,
            Failure::Network(_) => 124,
            Failure::NoAddress { .. } => 129,
        },
    }
}

/// Returns the kind and the name of a door's record; for an endpoint or a network, the name that people see.
fn key_of(DoorKey { table, name }: &DoorKey) -> String {
    let seen = if table == "pools" {
        name
    } else {
        &name[..name.len().min(DoorId::SHORT)]
    };
    format!("{} {seen}", table.trim_end_matches('s'))
}
