//! The ranges of fallbacks, as `list` shows them.

use crate::identity::Lan;
use crate::range::Usage;

/// One range as `list` shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RangeRow {
    /// The network.
    pub network: String,
    /// Its wire.
    pub lan: Lan,
    /// The range, and its addresses in use.
    pub usage: Usage,
}
