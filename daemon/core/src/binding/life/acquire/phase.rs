//! The phases of an ADD from its binding's beginning to its lease, and every way from one to another.

use crate::wire::Mac;

/// How far an acquisition is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Other acquisitions of the LAN go first.
    Queue,
    /// Talking to servers.
    Ask,
    /// The lease waits until it is known that no other station uses its address.
    Probe,
    /// The lease is being made durable.
    Write,
    /// The lease is durable. A station that claims its address is asked whether it claims every address, the macvlan that was used
    /// to acquire it is being removed, or the link's MTU is being set.
    Fit,
    /// The lease is durable but useless: it has ended, or another station (`by`) uses its address. The store is deleting it.
    Forget {
        /// That station.
        by: Option<Mac>,
    },
    /// It was abandoned; the registry is about to hear.
    Over,
}

impl Phase {
    /// Returns whether another phase may follow. From `Write` on, another life may follow too: from `Fit`, or `Write` without a
    /// store, the lease is held; whatever nobody wants any more is given back.
    pub(super) fn leads_to(self, next: Self) -> bool {
        use Phase::{Ask, Fit, Forget, Over, Probe, Queue, Write};
        match self {
            Queue => matches!(next, Ask | Probe | Write | Over),
            Ask => matches!(next, Ask | Probe | Write | Over),
            Probe => matches!(next, Ask | Write | Over),
            Write | Fit => matches!(next, Fit | Forget { .. }),
            Forget { .. } => matches!(next, Ask | Over),
            Over => next == Over,
        }
    }

    /// Returns whether a server has granted the lease for good.
    pub(super) fn is_won(self) -> bool {
        match self {
            Self::Queue | Self::Ask | Self::Probe | Self::Over => false,
            Self::Write | Self::Fit | Self::Forget { .. } => true,
        }
    }
}
