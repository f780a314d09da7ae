//! Who in the registry has a deadline.

use crate::effect::RequestId;
use crate::interface::At;
use crate::record::BindingId;

/// The deadlines of the registry.
pub(super) type Timers = crate::timers::Timers<Key>;

/// Whose deadline it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Key {
    /// A binding's.
    Binding(BindingId),
    /// A call's that has no binding yet.
    Call(RequestId),
    /// A look at an interface that failed, until it is tried again.
    Audit(At),
    /// The pause before a failed adoption is tried again.
    Adoption,
    /// What ADDs wait for is looked at again: the carrier of host links, and Ethernet addresses that others have.
    Look,
    /// The next link that disappeared counts as one without a DEL.
    Orphans,
    /// All namespaces are searched for an interface that has not appeared.
    Seek,
    /// A lease waits for its turn to be extended.
    Extensions,
    /// A deadline of a door above the registry.
    Above(DoorTimer),
}

/// Whose deadline it is above the registry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum DoorTimer {
    /// A call's.
    Call(RequestId),
    /// A link that the daemon made has been in the host's namespace for too long.
    Strays,
    /// The links that the daemon made are listed again, because that failed.
    OwnLinks,
}
