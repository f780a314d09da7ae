//! Everything about one lease, for `show`.

use std::time::Duration;

use super::row::Row;
use crate::link::{LinkCause, LinkView};
use crate::source::{Lease, StateName};
use crate::time::WallTime;

/// One lease, for `show`. If several match, only their rows are returned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    /// The lease as `list` shows it.
    pub row: Row,
    /// What a DHCP server granted.
    pub lease: Option<Box<Lease>>,
    /// How it was last acquired or extended; `None`: that is no longer known.
    pub exchanged: Option<Exchanged>,
    /// What is on its interface, or why that cannot be seen; `None`: no interface is known.
    pub interface: Option<Result<Box<LinkView>, LinkCause>>,
}

impl Shown {
    /// Returns a row alone.
    pub(crate) fn of(row: Row) -> Self {
        Self {
            row,
            lease: None,
            exchanged: None,
            interface: None,
        }
    }
}

/// How a lease was last acquired or extended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Exchanged {
    /// The time from the first DISCOVER to the offer that was taken, and how many DISCOVERs that took; `None`: there was none.
    pub offer: Option<(Duration, u32)>,
    /// The ACK; `None`: it has not come yet.
    pub ack: Option<Acknowledged>,
}

/// An ACK.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acknowledged {
    /// When it came, by the wall clock.
    pub at: WallTime,
    /// The state in which its client asked.
    pub state: StateName,
    /// The time from the first REQUEST, or DISCOVER, to the ACK.
    pub took: Duration,
    /// How many of these there were.
    pub requests: u32,
}
