//! What an operator reads of a lease that was extended, or is given back.

use crate::event::EventKind;
use crate::source::{Lease, StateName};

/// Why the address of another lease is not on the interface.
const STAYS_OFF: &str = "not put on the interface: the previous address was not there either";

/// Why a lease is given back, which decides how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leave {
    /// A DEL waits for it. If the store refuses it, the DEL fails, and the release goes on once the store takes it.
    Deleted,
    /// The ADD that got it was abandoned.
    Aborted,
    /// An earlier daemon had begun to give it back.
    Resumed,
    /// The ADD that got it failed at the store, and has sent its RELEASE. Nobody waits for the record to go.
    Undone,
    /// The link is gone; the RELEASE leaves from the host.
    LinkGone,
    /// An ADD of the same attachment has another identity.
    Displaced,
    /// Its caller gave its address back, and waits until that is durable.
    Released,
    /// An operator gave it back, and waits for that as for a DEL. It is not kept for its identity.
    Ordered,
    /// Another binding takes the identity over. Nothing is written or sent unless that fails.
    Yielded,
}

/// Returns what to note of a held lease that was extended, or that another one replaced, and why. `state`: the client's before;
/// `is_taken_off`: the address is not on the interface, and none is put there.
pub(in crate::binding) fn extension(
    state: StateName,
    before: &Lease,
    lease: &Lease,
    is_taken_off: bool,
) -> (EventKind, String) {
    let (kind, cause) = match state {
        StateName::Renewing => (EventKind::Renewed, "renewal at T1"),
        StateName::Rebinding => (EventKind::Rebound, "rebinding at T2"),
        StateName::Rebooting => (EventKind::Renewed, "confirmation"),
        StateName::Init
        | StateName::Selecting
        | StateName::Requesting
        | StateName::InitReboot
        | StateName::Bound => (EventKind::Acquired, "new lease after a loss"),
    };
    let stays_off =
        is_taken_off && (before.address != lease.address || kind == EventKind::Acquired);
    let cause = if stays_off {
        format!("{cause}, {STAYS_OFF}")
    } else {
        cause.to_owned()
    };
    let changes = differences(before, lease);
    match changes.is_empty() {
        true => (kind, cause),
        false => (
            EventKind::Changed,
            format!("{cause}: {}", changes.join(", ")),
        ),
    }
}

/// Returns the differences between two leases, for a person.
fn differences(before: &Lease, lease: &Lease) -> Vec<String> {
    let mut all = Vec::new();
    if before.address != lease.address {
        all.push(format!("address was {}", before.address));
    }
    let parts = [
        (
            before.gateway != lease.gateway || before.routes != lease.routes,
            "routes",
        ),
        (before.mtu != lease.mtu, "MTU"),
        (before.dns != lease.dns, "DNS servers"),
        (
            before.domain != lease.domain || before.search != lease.search,
            "domains",
        ),
    ];
    all.extend(
        parts
            .into_iter()
            .filter(|(differs, _)| *differs)
            .map(|(_, part)| part.to_owned()),
    );
    all
}

impl Leave {
    /// Returns why a lease is given back, for a person.
    pub(crate) fn cause(self) -> &'static str {
        match self {
            Self::Released => "Docker gave its address back",
            Self::Ordered => "an operator gave it back",
            Self::Deleted => "its attachment was deleted",
            Self::Aborted => "its ADD was abandoned",
            Self::Resumed => "an earlier daemon had begun to give it back",
            Self::Undone => "its ADD failed at the store",
            Self::LinkGone => "its link is gone",
            Self::Displaced => "an ADD replaced its attachment under another identity",
            Self::Yielded => "another attachment took over its identity",
        }
    }
}
