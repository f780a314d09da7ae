//! How an ordered extension of a lease ends.

use crate::source::{Client, StateName};
use crate::time::Instant;

/// How the extension of a lease stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Standstill {
    /// A server is being asked, or is about to be.
    Asks,
    /// The lease is as it was, and no server is asked any more. For a person: why.
    InVain(Option<String>),
    /// It was extended.
    Extended,
    /// It is gone.
    Lost,
}

impl Standstill {
    /// Returns how the extension of a client's lease, ordered when the lease began at `start`, stands.
    pub(in crate::binding) fn since(start: Instant, client: &Client) -> Self {
        match client.lease() {
            None => Self::Lost,
            Some(lease) if lease.start > start => Self::Extended,
            Some(_) if client.state() == StateName::Bound => Self::InVain(client.tally().reason()),
            Some(_) => Self::Asks,
        }
    }
}
