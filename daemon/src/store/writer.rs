//! The writer thread: takes all waiting jobs, commits the writes as one and answers each, then carries out the reads and copies
//! what was committed.

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use leasehold_core::effect::{OpId, StoreCause};
use leasehold_core::record::{self, BindingId, Change};
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::watch;

use super::commits::CommitCounts;
use super::ends::Ends;
use super::file::{Encoded, LeaseFile};
use super::{Job, Persisted};

/// The most jobs taken together, which bounds how long the first of them waits for the others.
const GROUP: usize = 512;

/// How long to wait before the file is tried again with the ends that it could not record, if nothing else is written.
const AGAIN: Duration = Duration::from_secs(60);

/// Everything that the thread has.
pub(super) struct Writer {
    pub(super) file: LeaseFile,
    pub(super) ends: Ends,
    /// Where the results of transactions go.
    pub(super) reports: UnboundedSender<Persisted>,
    /// Where the number of the last event goes.
    pub(super) last_event: watch::Sender<u64>,
    /// Where what it does is counted.
    pub(super) commits: CommitCounts,
}

impl Writer {
    /// Runs until it is told to end, and all earlier jobs are done.
    pub(super) fn run(mut self, queue: &Receiver<Job>) {
        while let Some(first) = self.next(queue) {
            // Transactions that arrive during the pause after a failure share the next try.
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
                let _ = self.reports.send(persisted);
            }
            self.last_event
                .send_if_modified(|last| std::mem::replace(last, self.file.last_event()) != *last);
            readings
                .into_iter()
                .for_each(|reading| self.file.read(reading));
            self.file.copy.follow();
            if closing {
                return;
            }
        }
    }

    /// Waits for the next job. If none comes, has the file record what it could not before.
    fn next(&mut self, queue: &Receiver<Job>) -> Option<Job> {
        while !self.ends.is_empty() {
            match queue.recv_timeout(AGAIN) {
                Ok(job) => return Some(job),
                Err(RecvTimeoutError::Timeout) => {
                    self.commit(Vec::new());
                    self.file.copy.follow();
                }
                Err(RecvTimeoutError::Disconnected) => return None,
            }
        }
        queue.recv().ok()
    }

    /// Commits a group, after what the file could not record before. A transaction that cannot be encoded fails alone. The others
    /// succeed or fail together; if they fail, those that end a binding are kept beside the socket.
    fn commit(&mut self, group: Vec<(OpId, Vec<Change>)>) -> Vec<Persisted> {
        let mut answers = Vec::with_capacity(group.len());
        let mut encoded: Vec<_> = self
            .ends
            .changes()
            .map(Encoded::new)
            .filter_map(Result::ok)
            .collect();
        let mut copied: Vec<_> = self
            .ends
            .changes()
            .filter_map(|change| change.copied())
            .collect();
        for (op, changes) in group {
            let ends = record::ended_by(&changes).map(|binding| (binding, changes.clone()));
            let copies: Vec<_> = changes.iter().filter_map(Change::copied).collect();
            let result = match changes
                .into_iter()
                .map(Encoded::new)
                .collect::<Result<Vec<_>, _>>()
            {
                // A transaction without changes asks whether writing is possible.
                Ok(nothing) if nothing.is_empty() => {
                    encoded.extend(Encoded::trial());
                    Ok(())
                }
                Ok(mut changes) => {
                    encoded.append(&mut changes);
                    copied.extend(copies);
                    Ok(())
                }
                Err(error) => Err(StoreCause::Failed(format!(
                    "cannot write the record as JSON: {error}"
                ))),
            };
            answers.push((Persisted { op, result }, ends));
        }
        let began = Instant::now();
        let committed = self.file.commit(&encoded);
        if !encoded.is_empty() {
            self.commits.count(committed.is_ok(), began.elapsed());
        }
        match committed {
            Ok(()) => {
                self.ends.recorded();
                self.file.copy.owe(copied);
            }
            Err(cause) => {
                tracing::error!(%cause, transactions = answers.len(), "nothing written");
                for (answer, ends) in answers
                    .iter_mut()
                    .filter(|(answer, _)| answer.result.is_ok())
                {
                    answer.result = self.keep(ends.take(), &cause);
                }
            }
        }
        answers.into_iter().map(|(answer, _)| answer).collect()
    }

    /// Keeps the end of a binding beside the socket, because the file was not written for this cause.
    fn keep(
        &mut self,
        ends: Option<(BindingId, Vec<Change>)>,
        cause: &StoreCause,
    ) -> Result<(), StoreCause> {
        let (binding, changes) = ends.ok_or_else(|| cause.clone())?;
        self.ends.keep(binding, changes).map_err(|error| {
            tracing::error!(%error, binding = binding.0, "the end cannot be kept beside the socket either");
            cause.clone()
        })
    }
}
