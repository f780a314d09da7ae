//! The writer thread: takes all waiting jobs, commits the writes as one and answers each, then carries out one read, copies what
//! was committed, and looks for writes again.

use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use leasehold_core::effect::{OpId, StoreCause};
use leasehold_core::record::{self, BindingId, Change};
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::watch;

use super::commits::CommitCounts;
use super::ends::Ends;
use super::file::{self, LeaseFile};
use super::journal::Reading;
use super::{Job, Persisted};

/// The most writes taken together, which bounds how long the first of them waits for the others.
const GROUP: usize = 512;

/// How long to wait before the file is tried again after a failure, with the ends that it could not record, if nothing else is
/// written.
const AGAIN: Duration = Duration::from_secs(10);

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
    /// When it last tried whether an ADD could be recorded.
    pub(super) tried: Option<Instant>,
}

impl Writer {
    /// Runs until it is told to end, and all earlier writes are done.
    pub(super) fn run(mut self, queue: &Receiver<Job>) {
        let mut readings = VecDeque::new();
        loop {
            let first = match readings.is_empty() {
                true => match self.next(queue) {
                    Some(job) => Some(job),
                    None => return,
                },
                false => None,
            };
            // Transactions that arrive during the pause after a failure share the next try.
            thread::sleep(self.file.pause());
            let mut writes = Vec::new();
            let mut closing = false;
            for job in first.into_iter().chain(queue.try_iter()) {
                match job {
                    Job::Write { op, changes } => writes.push((op, changes)),
                    Job::Read(reading) => readings.push_back(reading),
                    Job::Close => closing = true,
                }
                if writes.len() == GROUP {
                    break;
                }
            }
            for persisted in self.commit(writes) {
                // While the daemon stops nobody listens any more; what is queued is still written.
                let _ = self.reports.send(persisted);
            }
            self.last_event
                .send_if_modified(|last| std::mem::replace(last, self.file.last_event) != *last);
            // Only one: by then there may be another write.
            readings.retain(Reading::is_wanted);
            if let Some(reading) = readings.pop_front() {
                self.file.read(reading);
            }
            self.file.copy.follow();
            if closing {
                return;
            }
        }
    }

    /// Waits for the next job. If none comes, has the file record what it could not before.
    fn next(&mut self, queue: &Receiver<Job>) -> Option<Job> {
        while !self.ends.is_empty() || self.commits.is_faulty() {
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

    /// Commits a group, after what the file could not record before. Its transactions succeed or fail together; if they fail, those
    /// that end a binding are kept beside the socket.
    fn commit(&mut self, group: Vec<(OpId, Vec<Change>)>) -> Vec<Persisted> {
        let mut changes: Vec<_> = self.ends.changes().collect();
        let mut written_for = Vec::with_capacity(group.len());
        let mut tries = Vec::new();
        for (op, own) in group {
            // A transaction without changes asks whether writing is possible.
            if own.is_empty() {
                tries.push(op);
                continue;
            }
            let ends = record::ended_by(&own).map(|binding| (binding, own.clone()));
            written_for.push((op, ends));
            changes.extend(own);
        }
        let was_faulty = self.commits.is_faulty();
        let written = self.write(&changes);
        match &written {
            Ok(()) => {
                self.ends.recorded();
                self.file
                    .copy
                    .owe(changes.iter().filter_map(Change::copied));
            }
            Err(cause) if !written_for.is_empty() => {
                tracing::error!(%cause, transactions = written_for.len(), "nothing written");
            }
            Err(_) => {}
        }
        let mut answers = Vec::new();
        for (op, ends) in written_for {
            let result = written.clone().or_else(|cause| self.keep(ends, &cause));
            answers.push(Persisted { op, result });
        }
        // Where this found no room, an ADD would find none.
        let tried = match written {
            Err(cause) => Some(Err(cause)),
            Ok(()) => (!tries.is_empty() || self.is_to_try()).then(|| self.try_file()),
        };
        if let Some(Err(cause)) = &tried
            && answers.is_empty()
            && !was_faulty
        {
            tracing::error!(%cause, "no ADD could be recorded");
        }
        let trials = tries.into_iter().zip(tried.into_iter().cycle());
        answers.extend(trials.map(|(op, result)| Persisted { op, result }));
        answers
    }

    /// Commits changes, and counts that.
    fn write(&mut self, changes: &[Change]) -> Result<(), StoreCause> {
        let began = Instant::now();
        self.commits.is_busy(true);
        let committed = self.file.commit(changes);
        self.commits.is_busy(false);
        if !changes.is_empty() {
            self.commits.count(committed.is_ok(), began.elapsed());
        }
        if let Err(cause) = &committed {
            self.commits.fails(cause);
        }
        committed
    }

    /// Returns whether to find out if an ADD can be recorded again.
    fn is_to_try(&self) -> bool {
        self.commits.is_faulty() && self.tried.is_none_or(|tried| tried.elapsed() >= AGAIN)
    }

    /// Finds out whether an ADD could be recorded, in a commit of its own: whatever is smaller may still find room.
    fn try_file(&mut self) -> Result<(), StoreCause> {
        let tried = self.write(&[file::trial()]);
        self.tried = Some(Instant::now());
        if tried.is_ok() {
            self.commits.works();
        }
        tried
    }

    /// Keeps the end of a binding beside the socket, because the file was not written for this cause.
    fn keep(
        &mut self,
        ends: Option<(BindingId, Vec<Change>)>,
        cause: &StoreCause,
    ) -> Result<(), StoreCause> {
        let (binding, changes) = ends.ok_or_else(|| cause.clone())?;
        let start = self.file.start_of(binding);
        self.ends.keep(binding, changes, start).map_err(|error| {
            tracing::error!(%error, binding = binding.0, "the end cannot be kept beside the socket either");
            cause.clone()
        })
    }
}
