//! The registry as a door above sees it: its bindings, to look at. The door hears what concerns it as a
//! [`Notice`](super::Notice).

use super::Registry;
use crate::binding::{Binding, Life};
use crate::identity::Attachment;

pub(crate) fn bindings(core: &Registry) -> impl Iterator<Item = &Binding> {
    core.tables.bindings.iter()
}

/// Returns the binding that holds an attachment's lease, or looks for another.
pub(crate) fn held_by<'a>(core: &'a Registry, attachment: &Attachment) -> Option<&'a Binding> {
    core.tables.bindings.held_by(attachment)
}

/// Returns those that hold a lease for the attachments of a network, or look for another.
pub(crate) fn held_in<'a>(core: &'a Registry, network: &str) -> impl Iterator<Item = &'a Binding> {
    let is_its = |it: &&Binding| core.tables.bindings.holder(&it.attachment) == Some(it.id);
    all_in(core, network).filter(is_its)
}

/// Returns those that ask for their first lease in a network.
pub(crate) fn asking_in<'a>(
    core: &'a Registry,
    network: &str,
) -> impl Iterator<Item = &'a Binding> {
    all_in(core, network).filter(|it| matches!(it.life, Life::Acquiring(_)))
}

/// Returns those whose leases in a network are being given back, until that is durable.
pub(crate) fn leaving_in<'a>(
    core: &'a Registry,
    network: &str,
) -> impl Iterator<Item = &'a Binding> {
    all_in(core, network).filter(|it| core.leavings.has(it.id))
}

fn all_in<'a>(core: &'a Registry, network: &str) -> impl Iterator<Item = &'a Binding> {
    bindings(core).filter(move |it| it.attachment.network() == network)
}
