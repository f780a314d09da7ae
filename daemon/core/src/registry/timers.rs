//! Whose deadlines there are.

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
    /// The pause before an adoption that failed is tried again.
    Adoption(RequestId),
    /// The links of the host that ADDs wait for carrier of are looked at again.
    Carrier,
    /// The links of ADDs whose Ethernet address another has are set up again.
    Taken,
    /// The next link that went is taken for one without a DEL.
    Orphans,
    /// All namespaces are looked through for an interface that has not come.
    Seek,
    /// The next LAN whose servers were silent is asked whether one is back.
    Silent,
}
