//! Where a lease comes from, and what it therefore needs.

use serde::{Deserialize, Serialize};

/// Who grants a lease.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// A DHCP server.
    #[default]
    Server,
    /// A local range.
    Range,
}

impl Source {
    /// Returns whether a server on the wire knows about the lease: the server is asked to extend and confirm it, and is told
    /// when it is given back or cannot be used.
    pub fn is_asked(&self) -> bool {
        match self {
            Self::Server => true,
            Self::Range => false,
        }
    }
}
