//! The registry as a door above sees it: its bindings, to look at. The door hears what concerns it as a
//! [`Notice`](super::Notice).

use super::Registry;
use super::operation::Operation;
use super::slots::Asked;
use crate::binding::{Binding, Life};
use crate::identity::Attachment;
use crate::limits::Limits;

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

/// Applies these limits from now on to a network's ADDs that came with limits and have no lease yet.
pub(crate) fn limit(core: &mut Registry, network: &str, limits: &Limits) {
    let slots = core.slots.by_attachment.iter_mut();
    for (_, slot) in slots.filter(|(attachment, _)| attachment.network() == network) {
        let waiting = slot
            .waiting
            .iter_mut()
            .filter_map(|waiting| match &mut waiting.asked {
                Asked::Add(add) => Some(add),
                Asked::Del | Asked::Check(_) => None,
            });
        let under_way = match &mut slot.operation {
            Some(Operation::Adding(admission)) => Some(&mut admission.quest.add),
            Some(_) | None => None,
        };
        let adds = waiting.chain(under_way);
        adds.flat_map(|add| &mut add.limits)
            .for_each(|own| own.clone_from(limits));
    }
    let asking: Vec<_> = asking_in(core, network).map(|it| it.id).collect();
    asking
        .into_iter()
        .for_each(|asking| core.tables.with(asking, |life, _| life.limit(limits)));
}
