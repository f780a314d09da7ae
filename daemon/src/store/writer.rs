//! The writer thread: takes what waits, commits it as one, answers each.

use std::sync::mpsc::Receiver;

use leasehold_core::effect::StoreCause;
use tokio::sync::mpsc::UnboundedSender;

use super::file::{Encoded, LeaseFile};
use super::{Job, Persisted};

/// The most transactions of one commit: bounds what the first of them waits for the others.
const GROUP: usize = 512;

/// Runs until the queue is closed and empty.
pub(super) fn run(mut file: LeaseFile, queue: Receiver<Job>, events: UnboundedSender<Persisted>) {
    while let Ok(first) = queue.recv() {
        let group: Vec<Job> = std::iter::once(first).chain(queue.try_iter()).take(GROUP).collect();
        for persisted in commit(&mut file, group) {
            // Nobody listens any more while the daemon stops; what is queued is written all the same.
            let _ = events.send(persisted);
        }
    }
}

/// Commits a group. A transaction that cannot be encoded fails alone; the others share one fate.
fn commit(file: &mut LeaseFile, group: Vec<Job>) -> Vec<Persisted> {
    let mut answers = Vec::with_capacity(group.len());
    let mut encoded = Vec::with_capacity(group.len());
    for Job { op, changes } in group {
        let result = match changes.iter().map(Encoded::new).collect::<Result<Vec<_>, _>>() {
            Ok(mut changes) => {
                encoded.append(&mut changes);
                Ok(())
            }
            Err(error) => Err(StoreCause::Failed(format!("record cannot be written as JSON: {error}"))),
        };
        answers.push(Persisted { op, result });
    }
    if let Err(cause) = file.commit(&encoded) {
        tracing::error!(%cause, transactions = answers.len(), "nothing written");
        answers.iter_mut().filter(|a| a.result.is_ok()).for_each(|a| a.result = Err(cause.clone()));
    }
    answers
}
