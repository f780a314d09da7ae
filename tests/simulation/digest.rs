//! What a run did to the world, as one number: its frames, changes of links, answers and stored leases, with their times.
//!
//! It has no texts that people read, so that it stays the same when a text is corrected or code is moved.

use std::fmt::{self, Debug, Write};

use leasehold_core::effect::{Answer, RequestId};
use leasehold_core::link::Step;
use leasehold_core::record::Change;
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
            self.line(format_args!("{at} link {} {} {step:?}", link.0.0, link.1));
        }
    }

    /// Adds a link of the daemon's own that appeared or disappeared.
    pub(crate) fn own(&mut self, at: u64, there: bool, ifname: &str) {
        let word = if there { "made" } else { "unmade" };
        self.line(format_args!("{at} {word} {ifname}"));
    }

    /// Adds an answer.
    pub(crate) fn answer(&mut self, at: u64, id: RequestId, answer: &Answer) {
        let what = match answer {
            Answer::Leased { tenures } => {
                tenures.iter().map(|it| format!(" {}", it.net())).collect()
            }
            Answer::Reserved(address) => format!(" {address}"),
            Answer::Failed(failure) => format!(" {}", variant(failure)),
            _ => String::new(),
        };
        self.line(format_args!(
            "{at} answer {} {}{what}",
            id.0,
            variant(answer)
        ));
    }

    /// Adds changes that the store has made durable.
    pub(crate) fn stored(&mut self, at: u64, changes: &[Change]) {
        for change in changes {
            let what = match change {
                Change::Put(id, record) => {
                    let (lease, who) = (&record.lease, container(&record.attachment));
                    format!(
                        "{:?} {} {who} {} {} {:?} {:?}",
                        record.state, id.0, lease.address, lease.server, lease.start, lease.times
                    )
                }
                Change::Remove(id) => format!("removed {}", id.0),
                Change::PutDoor(record) => format!("{:?}", record.key),
                Change::RemoveDoor(key) => format!("removed {key:?}"),
                Change::Note(event) => {
                    let who = container(&event.attachment);
                    format!("{} {who} {:?}", event.kind.name(), event.address)
                }
            };
            self.line(format_args!("{at} {what}"));
        }
    }
}

/// Returns the name of a value's variant.
fn variant(value: &impl Debug) -> String {
    let text = format!("{value:?}");
    let end = text.find(|c: char| !c.is_alphanumeric());
    text[..end.unwrap_or(text.len())].to_owned()
}
