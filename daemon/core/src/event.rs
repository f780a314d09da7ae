//! What is worth telling an operator: each change of a binding, with its cause.
//!
//! The store numbers events and keeps the latest; the names of kinds are for programs and stay as they are.

use std::fmt;
use std::net::Ipv4Addr;

use ipnet::Ipv4Net;
use serde::{Deserialize, Serialize};

use crate::identity::Attachment;
use crate::time::WallTime;

/// A cause is cut here, in bytes. Some bear text that a server chose.
const MAX_CAUSE: usize = 512;

/// One change of a binding.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// When, by the wall clock.
    pub wall: WallTime,
    /// Whose.
    pub attachment: Attachment,
    /// What happened.
    pub kind: EventKind,
    /// The address that it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<Ipv4Net>,
    /// The server that it came from, or goes to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<Ipv4Addr>,
    /// Why. Text from the wire is escaped in it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub cause: String,
}

/// What happened to a binding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EventKind {
    /// There is a lease where there was none.
    Acquired,
    /// The server that granted the lease extended it, or confirmed it.
    Renewed,
    /// Some server extended the lease, asked by broadcast.
    Rebound,
    /// The lease that is held grants something else than before.
    Changed,
    /// A server refused the lease, or there is no way to give it back.
    Lost,
    /// The lease ended, and no server had extended it; or it could not be given back before.
    Expired,
    /// Another station uses the address.
    Conflict,
    /// The address was given back because another station uses it.
    Declined,
    /// The lease went back, or is left to end by itself.
    Released,
    /// The lease of a container that ran before was taken over.
    Adopted,
    /// A link or a namespace went without DEL.
    OrphanFound,
    /// Somebody else took the address off its interface.
    AddressRemoved,
    /// Conflicts are not looked for any more.
    DetectionOff,
}

impl EventKind {
    /// Returns the kind's name, the same as in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Acquired => "acquired",
            Self::Renewed => "renewed",
            Self::Rebound => "rebound",
            Self::Changed => "changed",
            Self::Lost => "lost",
            Self::Expired => "expired",
            Self::Conflict => "conflict",
            Self::Declined => "declined",
            Self::Released => "released",
            Self::Adopted => "adopted",
            Self::OrphanFound => "orphan_found",
            Self::AddressRemoved => "address_removed",
            Self::DetectionOff => "detection_off",
        }
    }
}

impl fmt::Display for EventKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Returns a cause as an event bears it: at most 512 bytes.
pub(crate) fn cut(mut cause: String) -> String {
    if cause.len() > MAX_CAUSE {
        let end = (0..=MAX_CAUSE).rev().find(|at| cause.is_char_boundary(*at)).unwrap_or(0);
        cause.truncate(end);
    }
    cause
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_is_called_the_same_in_text_and_in_json() {
        use EventKind::*;
        let kinds = [
            Acquired,
            Renewed,
            Rebound,
            Changed,
            Lost,
            Expired,
            Conflict,
            Declined,
            Released,
            Adopted,
            OrphanFound,
            AddressRemoved,
            DetectionOff,
        ];
        for kind in kinds {
            assert_eq!(serde_json::to_string(&kind).unwrap(), format!("\"{kind}\""));
        }
    }

    #[test]
    fn a_long_cause_is_cut_between_characters() {
        assert_eq!(cut("short".to_owned()), "short");
        assert_eq!(cut("ä".repeat(300)).len(), 512);
        assert_eq!(cut(format!("a{}", "ä".repeat(300))).len(), 511);
    }
}
