//! What becomes of a lease that is to be extended.

use crate::dhcpv4::{Client, StateName};
use crate::time::Instant;

/// What has become of a lease that was to be extended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Standstill {
    /// A server is being asked, or is about to be.
    Asks,
    /// It is as it was, and none is asked any more. For a person: why.
    InVain(Option<String>),
    /// It was extended.
    Extended,
    /// It is gone.
    Lost,
}

impl Standstill {
    /// Returns what has become of a client's lease that began at `start` since it was to be extended.
    pub(in crate::binding) fn since(start: Instant, client: &Client) -> Self {
        match client.lease() {
            None => Self::Lost,
            Some(lease) if lease.start > start => Self::Extended,
            Some(_) if client.state() == StateName::Bound => Self::InVain(client.tally().reason()),
            Some(_) => Self::Asks,
        }
    }
}
