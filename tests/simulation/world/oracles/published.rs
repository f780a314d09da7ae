//! The name servers that the host's programs read.

use super::*;

/// They are those of the attachments' durable leases.
pub(super) fn published(world: &World, seen: &Seen<'_>, says: &mut Says) {
    let (Seen::Quiet(_) | Seen::Rest) = seen else {
        return;
    };
    let held = |record: &&Record| record.state != RecordState::Releasing;
    let bound = |record: &Record| {
        record
            .lease
            .resolver()
            .filter(|_| record.state == RecordState::Bound)
    };
    let said = world
        .store
        .durable
        .values()
        .filter(held)
        .filter_map(|r| Some((r.attachment.clone(), bound(r)?)));
    let said: BTreeMap<_, _> = said.collect();
    if said != world.published {
        let detail = format!(
            "published is {:?}, and leases say {said:?}",
            world.published
        );
        says.broken(Rule::Published, detail);
    }
}
