//! GC: a runtime names the attachments of a network that are still valid, and the rest is given back by DELs.

use std::collections::BTreeSet;

use super::{Next, Returning};
use crate::binding::Release;
use crate::effect::RequestId;
use crate::identity::Attachment;
use crate::registry::Registry;

/// Begins a GC.
pub(super) fn collect(
    core: &mut Registry,
    id: RequestId,
    network: &str,
    keep: &[(String, String)],
) -> Next {
    let stale = |attachment: &Attachment| {
        let Attachment::Cni {
            network: theirs,
            container,
            ifname,
        } = attachment
        else {
            return false;
        };
        theirs == network && !keep.iter().any(|(c, i)| c == container && i == ifname)
    };
    let bindings = core.tables.bindings.iter();
    let of_stale = bindings.filter(|binding| stale(&binding.attachment));
    for id in of_stale.map(|binding| binding.id).collect::<Vec<_>>() {
        core.tables.at_release(id, Release::end_grace);
    }
    let holds = core.tables.bindings.attachments().map(|(known, _)| known);
    let does = core.slots.by_attachment.keys();
    let known = holds.chain(does).map(|known| &**known);
    let left: BTreeSet<_> = known.filter(|known| stale(known)).cloned().collect();
    core.adoptions.forget_all(stale);
    core.adoptions.time(&mut core.tables);
    if !left.is_empty() {
        tracing::info!(
            network,
            attachments = left.len(),
            "giving back what a GC does not name"
        );
    }
    let left = left.into_iter().map(|attachment| (attachment, None));
    let job = Returning {
        left: left.collect(),
        done: Vec::new(),
        collects: true,
    };
    job.delete(core, id)
}
