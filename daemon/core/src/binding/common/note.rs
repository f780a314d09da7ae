//! What a binding notes for its operator: one event per change, with its cause.

use std::fmt;

use crate::binding::{Common, Cx, Leave};
use crate::event::{Event, EventKind};
use crate::outbox::Stake;
use crate::source::{Lease, StateName};

/// Why the address of another lease is not on the interface.
const STAYS_OFF: &str = "not put on the interface: the previous address was not there either";

impl Common {
    /// Notes an event about a lease. It is written with the binding's record, if that must be written.
    pub(in crate::binding) fn note(
        &self,
        kind: EventKind,
        lease: &Lease,
        cause: impl fmt::Display,
        cx: &mut Cx<'_>,
    ) {
        cx.out
            .note(self.id, self.event(kind, lease, cause, cx), Stake::Nothing);
    }

    /// Notes that there is a lease, or another one: reported together with its record, or not at all.
    pub(in crate::binding) fn note_bound(
        &self,
        kind: EventKind,
        lease: &Lease,
        cause: impl fmt::Display,
        cx: &mut Cx<'_>,
    ) {
        cx.out
            .note(self.id, self.event(kind, lease, cause, cx), Stake::Bound);
    }

    /// Notes that a lease is given up: reported together with the removal of its record, or not at all.
    pub(in crate::binding) fn note_gone(
        &self,
        kind: EventKind,
        lease: &Lease,
        cause: impl fmt::Display,
        cx: &mut Cx<'_>,
    ) {
        cx.out
            .note(self.id, self.event(kind, lease, cause, cx), Stake::Gone);
    }

    /// Returns an event about a lease, as it is now.
    pub(in crate::binding) fn event(
        &self,
        kind: EventKind,
        lease: &Lease,
        cause: impl fmt::Display,
        cx: &Cx<'_>,
    ) -> Event {
        // If only the address of a lease is known, it has no server yet.
        let server = Some(lease.server)
            .filter(|server| !server.is_unspecified())
            .map(Into::into);
        let attachment = (*self.attachment).clone();
        let address = Some(lease.address.into());
        Event {
            wall: cx.now.wall,
            attachment,
            kind,
            address,
            server,
            cause: cause.to_string(),
            run: None,
        }
    }

    /// Notes that a held lease was extended, or another one replaced it. `state` is the client's before; `is_taken_off`: the
    /// address is not on the interface, and none is put there.
    pub(in crate::binding) fn note_extended(
        &self,
        state: StateName,
        before: &Lease,
        lease: &Lease,
        is_taken_off: bool,
        cx: &mut Cx<'_>,
    ) {
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
            true => self.note_bound(kind, lease, cause, cx),
            false => self.note_bound(
                EventKind::Changed,
                lease,
                format_args!("{cause}: {}", changes.join(", ")),
                cx,
            ),
        }
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
