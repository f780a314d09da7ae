//! What happened, line by line. Kept only when a seed is replayed.

use std::fmt;

use netns_fixtures::model::{Message, Packet, decode};

/// What happens to the lines of a run.
#[derive(Debug)]
pub(crate) enum Trace {
    /// They are not made.
    Off,
    /// They are kept.
    Kept(Vec<String>),
    /// They are printed at once, so that a panic does not lose them.
    Printed,
}

impl Trace {
    /// Adds a line, which is only made if it is wanted.
    pub(crate) fn line(&mut self, now: u64, line: impl FnOnce() -> String) {
        let stamped = || format!("{:>7}.{:06}  {}", now / 1_000_000, now % 1_000_000, line());
        match self {
            Self::Off => {}
            Self::Kept(lines) => lines.push(stamped()),
            Self::Printed => println!("{}", stamped()),
        }
    }

    /// Returns the lines that were kept.
    pub(crate) fn into_lines(self) -> Vec<String> {
        match self {
            Self::Kept(lines) => lines,
            Self::Off | Self::Printed => Vec::new(),
        }
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
                Packet::Udp {
                    source,
                    destination,
                    payload,
                } => {
                    write!(f, "{source} > {destination} ")?;
                    match Message::decode(payload) {
                        Err(cause) => write!(f, "bad message: {cause}"),
                        Ok(m) => {
                            write!(
                                f,
                                "{:?} xid {:08x} ciaddr {} yiaddr {}",
                                m.kind(),
                                m.xid,
                                m.ciaddr,
                                m.yiaddr
                            )?;
                            write!(
                                f,
                                " requested {:?} server {:?}",
                                m.address(50),
                                m.address(54)
                            )
                        }
                    }
                }
            },
        }
    }
}
