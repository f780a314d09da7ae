//! The writer thread: takes all waiting jobs, commits them as one, answers each; then carries out the reads.

use std::sync::mpsc::Receiver;
use std::thread;

use leasehold_core::effect::{OpId, StoreCause};
use leasehold_core::record::Change;
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::watch;

use super::file::{Encoded, LeaseFile};
use super::{Job, Persisted};

/// The most jobs taken together: bounds how long the first of them waits for the others.
const GROUP: usize = 512;

/// All that the thread has.
pub(super) struct Writer {
    pub(super) file: LeaseFile,
    /// Where the results of transactions go.
    pub(super) events: UnboundedSender<Persisted>,
    /// Where the number of the last event goes.
    pub(super) last_event: watch::Sender<u64>,
}

impl Writer {
    /// Runs until told to end, with all earlier jobs done.
    pub(super) fn run(mut self, queue: &Receiver<Job>) {
        while let Ok(first) = queue.recv() {
            // After a failure, what comes meanwhile shares the next try.
            thread::sleep(self.file.pause());
            let (mut writes, mut readings, mut closing) = (Vec::new(), Vec::new(), false);
            for job in std::iter::once(first).chain(queue.try_iter()).take(GROUP) {
                match job {
                    Job::Write { op, changes } => writes.push((op, changes)),
                    Job::Read(reading) => readings.push(reading),
                    Job::Close => closing = true,
                }
            }
            for persisted in self.commit(writes) {
                // While the daemon stops nobody listens any more; what is queued is still written.
                let _ = self.events.send(persisted);
            }
            self.last_event.send_if_modified(|last| std::mem::replace(last, self.file.last_event()) != *last);
            readings.into_iter().for_each(|reading| self.file.read(reading));
            if closing {
                return;
            }
        }
    }

    /// Commits a group. A transaction that cannot be encoded fails alone; the others share one fate.
    fn commit(&mut self, group: Vec<(OpId, Vec<Change>)>) -> Vec<Persisted> {
        let mut answers = Vec::with_capacity(group.len());
        let mut encoded = Vec::with_capacity(group.len());
        for (op, changes) in group {
            let result = match changes.into_iter().map(Encoded::new).collect::<Result<Vec<_>, _>>() {
                // A transaction without changes asks whether writing is possible.
                Ok(nothing) if nothing.is_empty() => {
                    encoded.extend(Encoded::trial());
                    Ok(())
                }
                Ok(mut changes) => {
                    encoded.append(&mut changes);
                    Ok(())
                }
                Err(error) => Err(StoreCause::Failed(format!("cannot write the record as JSON: {error}"))),
            };
            answers.push(Persisted { op, result });
        }
        if let Err(cause) = self.file.commit(&encoded) {
            tracing::error!(%cause, transactions = answers.len(), "nothing written");
            answers.iter_mut().filter(|a| a.result.is_ok()).for_each(|a| a.result = Err(cause.clone()));
        }
        answers
    }
}
