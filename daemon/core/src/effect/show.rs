//! Everything about one lease, for `show`.

use super::row::Row;
use crate::link::{LinkCause, LinkView};
use crate::source::Lease;

/// One lease, for `show`. If several match, only their rows are returned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    /// The lease as `list` shows it.
    pub row: Row,
    /// What a DHCP server granted.
    pub lease: Option<Box<Lease>>,
    /// What is on its interface, or why that cannot be seen; `None`: no interface is known.
    pub interface: Option<Result<Box<LinkView>, LinkCause>>,
}

impl Shown {
    /// Returns a row alone.
    pub(crate) fn of(row: Row) -> Self {
        Self {
            row,
            lease: None,
            interface: None,
        }
    }
}
