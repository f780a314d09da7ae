//! GC: a runtime names the attachments of a network that are still valid, and the rest is given back.

use std::collections::BTreeSet;
use std::time::Duration;

use super::Registry;
use super::errands::Errand;
use super::timers::Key;
use crate::effect::{Answer, Failure, RequestId, Why};
use crate::identity::Attachment;
use crate::time::Now;

/// How long a GC waits for the DELs that it began. They go on after it.
const LIMIT: Duration = Duration::from_secs(20);

/// A GC under way.
#[derive(Debug, Default)]
pub(super) struct Collection {
    left: BTreeSet<Attachment>,
    faults: Vec<String>,
}

impl Registry {
    pub(super) fn collect(&mut self, now: Now, id: RequestId, network: &str, keep: &[(String, String)]) {
        let stale = |attachment: &Attachment| {
            let Attachment::Cni { network: theirs, container, ifname } = attachment else { return false };
            theirs == network && !keep.iter().any(|(c, i)| c == container && i == ifname)
        };
        let stale_bindings = self.bindings.iter().filter(|binding| stale(&binding.attachment));
        for id in stale_bindings.map(|binding| binding.id).collect::<Vec<_>>() {
            self.with(now, id, |binding, cx| binding.end_grace(cx));
        }
        let left: BTreeSet<_> =
            self.slots.iter().map(|(known, _)| &**known).filter(|known| stale(known)).cloned().collect();
        self.forget_adoptions(stale);
        if left.is_empty() {
            return self.out.reply(id, Answer::Collected);
        }
        tracing::info!(network, attachments = left.len(), "giving back what is not valid any more");
        self.collections.insert(id, Collection { left: left.clone(), faults: Vec::new() });
        self.timers.set(Key::Call(id), Some((now.boot + LIMIT, Why::Call)));
        for attachment in left {
            let errand = self.errands.begin(Errand::Collect(id, attachment.clone()));
            self.delete(now, attachment, errand);
        }
    }

    pub(super) fn collected(&mut self, id: RequestId, attachment: Attachment, answer: Answer) {
        let Some(collection) = self.collections.get_mut(&id) else { return };
        if let Answer::Failed(failure) = answer {
            collection.faults.push(format!("{attachment}: {failure}"));
        }
        collection.left.remove(&attachment);
        if collection.left.is_empty() {
            self.end_collection(id);
        }
    }

    pub(super) fn collection_timed_out(&mut self, id: RequestId) {
        let Some(collection) = self.collections.get_mut(&id) else { return };
        let left = std::mem::take(&mut collection.left);
        collection.faults.extend(left.iter().map(|attachment| format!("{attachment}: still on its way")));
        self.end_collection(id);
    }

    fn end_collection(&mut self, id: RequestId) {
        self.timers.set(Key::Call(id), None);
        let Some(Collection { faults, .. }) = self.collections.remove(&id) else { return };
        let answer = match faults.is_empty() {
            true => Answer::Collected,
            false => Answer::Failed(Failure::NotCollected(faults)),
        };
        self.out.reply(id, answer);
    }
}
