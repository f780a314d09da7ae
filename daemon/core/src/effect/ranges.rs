//! The ranges of fallbacks, as `list` shows them.

use std::net::IpAddr;
use std::sync::Arc;

use crate::identity::{Attachment, Lan};
use crate::range::{Range, RangeHolding, Usage};
use crate::time::WallTime;

/// One range as `list` shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RangeRow {
    /// The network.
    pub network: String,
    /// Its wire.
    pub lan: Lan,
    /// The range.
    pub range: Range,
    /// How many addresses it has for containers.
    pub size: u128,
    /// Its addresses in use, in order.
    pub taken: Vec<TakenRow>,
}

impl RangeRow {
    /// Returns the row of a fallback's range.
    pub(crate) fn of(network: &str, lan: &Lan, usage: Usage<'_>) -> Self {
        let taken = |(address, RangeHolding { by, since }): (IpAddr, &RangeHolding)| TakenRow {
            address,
            by: by.clone(),
            since: *since,
        };
        Self {
            network: network.to_owned(),
            lan: lan.clone(),
            range: *usage.range,
            size: usage.size,
            taken: usage.taken.into_iter().map(taken).collect(),
        }
    }
}

/// One taken address as `list` shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TakenRow {
    /// The address.
    pub address: IpAddr,
    /// Who has it; the attachment may belong to another network on the same LAN.
    pub by: Arc<Attachment>,
    /// Since when.
    pub since: WallTime,
}
