//! What happened, in lines. Kept only when a seed is replayed.

use std::fmt;

use netns_fixtures::model::{Message, Packet, decode};

/// The lines of one run.
#[derive(Debug, Default)]
pub(crate) struct Trace {
    lines: Option<Vec<String>>,
}

impl Trace {
    /// Returns a trace that keeps its lines, or one that keeps nothing.
    pub(crate) fn new(keep: bool) -> Self {
        Self { lines: keep.then(Vec::new) }
    }

    /// Adds a line, which is made only where lines are kept.
    pub(crate) fn line(&mut self, now: u64, line: impl FnOnce() -> String) {
        if let Some(lines) = &mut self.lines {
            lines.push(format!("{:>7}.{:06}  {}", now / 1_000_000, now % 1_000_000, line()));
        }
    }

    /// Returns the lines.
    pub(crate) fn into_lines(self) -> Vec<String> {
        self.lines.unwrap_or_default()
    }
}

/// A frame in a few words.
pub(crate) struct Brief<'a>(pub &'a [u8]);

impl fmt::Display for Brief<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match decode(self.0) {
            Err(cause) => write!(f, "bad frame: {cause}"),
            Ok(frame) => match frame.packet {
                Packet::Other(kind) => write!(f, "EtherType {kind:#06x}"),
                Packet::Arp(arp) => {
                    let verb = if arp.request { "asks for" } else { "tells" };
                    write!(f, "ARP {} {verb} {}", arp.sender, arp.target)
                }
                Packet::Udp { source, destination, payload } => {
                    write!(f, "{source} > {destination} ")?;
                    match Message::decode(payload) {
                        Err(cause) => write!(f, "bad message: {cause}"),
                        Ok(m) => {
                            write!(f, "{:?} xid {:08x} ciaddr {} yiaddr {}", m.kind(), m.xid, m.ciaddr, m.yiaddr)?;
                            write!(f, " requested {:?} server {:?}", m.address(50), m.address(54))
                        }
                    }
                }
            },
        }
    }
}
