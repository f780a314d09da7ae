//! What is worth an operator's attention: each change of a binding, with its cause.
//!
//! The store numbers events and keeps the latest; the names of kinds are for programs and stay as they are.

use std::net::IpAddr;

use ipnet::{IpNet, Ipv4Net};
use serde::{Deserialize, Serialize};

use crate::identity::Attachment;
use crate::names::named;
use crate::time::WallTime;

/// The length at which a cause is cut, in bytes. Some causes bear text that a server chose.
const MAX_CAUSE: usize = 512;

/// One change of a binding.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// When, by the wall clock.
    pub wall: WallTime,
    /// The attachment.
    pub attachment: Attachment,
    /// What happened.
    pub kind: EventKind,
    /// The address that it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<IpNet>,
    /// The server that it came from, or goes to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<IpAddr>,
    /// Why. Text from the wire is escaped in it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub cause: String,
    /// The run of events that it stands for, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<Run>,
}

/// The same thing, several times in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// How often, this time included.
    pub times: u64,
    /// When it first happened, by the wall clock.
    pub since: WallTime,
}

impl Event {
    /// Returns its address, if that is of IPv4.
    pub fn v4(&self) -> Option<Ipv4Net> {
        match self.address? {
            IpNet::V4(net) => Some(net),
            IpNet::V6(_) => None,
        }
    }

    /// Returns whether the next event of the same attachment may stand for this one too: it says that a lease was extended
    /// without change. Such events never end, but the journal is bounded.
    pub fn may_run(&self) -> bool {
        matches!(self.kind, EventKind::Renewed | EventKind::Rebound)
    }

    /// Returns this event as one that also stands for `earlier`, its attachment's last one, if both say the same.
    pub fn continuing(&self, earlier: &Self) -> Option<Self> {
        let said = |event: &Self| Self {
            wall: self.wall,
            run: None,
            ..event.clone()
        };
        let run = |event: &Self| {
            event.run.unwrap_or(Run {
                times: 1,
                since: event.wall,
            })
        };
        let times = run(earlier).times.saturating_add(run(self).times);
        let both = || Self {
            run: Some(Run {
                times,
                ..run(earlier)
            }),
            ..self.clone()
        };
        (self.may_run() && said(self) == said(earlier)).then(both)
    }
}

named! {
    /// What happened to a binding.
    #[derive(Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    EventKind {
        /// There is a lease where there was none.
        Acquired = "acquired",
        /// A server that was asked by its own address extended the lease, or confirmed it.
        Renewed = "renewed",
        /// A server extended the lease after being asked by broadcast.
        Rebound = "rebound",
        /// The held lease grants something different from before.
        Changed = "changed",
        /// A server refused the lease, or it cannot be given back.
        Lost = "lost",
        /// The lease ended before any server extended it, or before it could be given back.
        Expired = "expired",
        /// Another station uses the address.
        Conflict = "conflict",
        /// The address was declined because another station uses it.
        Declined = "declined",
        /// The lease was given back, or is left to expire.
        Released = "released",
        /// The lease of a container that already ran was taken over.
        Adopted = "adopted",
        /// A link or a namespace disappeared without DEL.
        OrphanFound = "orphan_found",
        /// Somebody else took the address off its interface.
        AddressRemoved = "address_removed",
        /// A station that claims the address also claims one that nobody can have: its claims are ignored from now on.
        DetectionOff = "detection_off",
        /// Another attachment of this host, or the host itself, has the address: it was not taken, or not given back.
        AddressHeld = "address_held",
        /// A server has stopped to extend leases.
        ServerSilent = "server_silent",
        /// A server answers again: it extends leases, or a LAN has one where containers got addresses from a local range.
        ServerBack = "server_back",
        /// Only broadcasts reach a container.
        Unreachable = "unreachable",
    }
}

/// Returns a cause as an event bears it: at most 512 bytes.
pub(crate) fn cut(mut cause: String) -> String {
    cause.truncate(cause.floor_char_boundary(MAX_CAUSE));
    cause
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_kind_is_called_the_same_in_text_and_in_json() {
        for kind in EventKind::ALL {
            assert_eq!(serde_json::to_string(&kind).unwrap(), format!("\"{kind}\""));
        }
    }

    fn event(kind: EventKind, second: u64) -> Event {
        let text = |text: &str| text.to_owned();
        Event {
            wall: WallTime::from_epoch(Duration::from_secs(second)),
            attachment: Attachment::cni("lan", "c", "eth0"),
            kind,
            address: Some("10.0.0.7/24".parse().unwrap()),
            server: Some([10, 0, 0, 1].into()),
            cause: text("renewal at T1"),
            run: None,
        }
    }

    #[test]
    fn renewals_in_a_row_are_one_event_that_says_how_many() {
        let [first, second, third] = [7, 8, 9].map(|second| event(EventKind::Renewed, second));
        let two = second.continuing(&first).unwrap();
        let three = third.continuing(&two).unwrap();
        let run = Run {
            times: 3,
            since: first.wall,
        };
        assert_eq!(
            three,
            Event {
                run: Some(run),
                ..third.clone()
            }
        );
        assert_eq!(
            third.continuing(&second).unwrap().continuing(&first),
            Some(three)
        );
    }

    #[test]
    fn what_says_more_than_the_one_before_it_stands_alone() {
        let first = event(EventKind::Renewed, 7);
        let next = event(EventKind::Renewed, 8);
        let others = [
            event(EventKind::Rebound, 8),
            Event {
                address: None,
                ..next.clone()
            },
            Event {
                server: None,
                ..next.clone()
            },
            Event {
                cause: "confirmation".to_owned(),
                ..next.clone()
            },
            Event {
                attachment: Attachment::cni("lan", "c", "eth1"),
                ..next.clone()
            },
        ];
        for other in others {
            assert_eq!(other.continuing(&first), None, "{other:?}");
        }
        for kind in [EventKind::Lost, EventKind::Changed, EventKind::Acquired] {
            assert_eq!(event(kind, 8).continuing(&event(kind, 7)), None, "{kind}");
        }
        assert!(next.continuing(&first).is_some());
    }

    #[test]
    fn a_long_cause_is_cut_between_characters() {
        assert_eq!(cut("short".to_owned()), "short");
        assert_eq!(cut("ä".repeat(300)).len(), 512);
        assert_eq!(cut(format!("a{}", "ä".repeat(300))).len(), 511);
    }
}
