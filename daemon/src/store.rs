//! The store: every lease on disk before anyone hears about it.
//!
//! One redb file in the state directory, written by one thread. The thread takes all transactions that wait and makes them
//! durable in one commit (group commit): under load the cost of a flush is shared, and a lone record waits for nobody. The store
//! holds no lease state and decides nothing. [`journal`] keeps the events that come with the records, [`ends`] keeps the ends of
//! leases while the file cannot be written, and [`copy`] keeps what nobody else would remember if the file were lost.

mod commits;
mod copy;
mod ends;
mod file;
pub(crate) mod journal;
mod lock;
mod named;
mod on_disk;
mod ranges;
mod room;
mod writer;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};

use leasehold_core::effect::{OpId, StoreCause};
use leasehold_core::identity::Attachment;
use leasehold_core::record::{BindingId, Change, DoorKey, DoorRecord, Record};
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::watch;

use self::commits::CommitCounts;
pub(crate) use self::commits::{Commits, Fault};
use self::ends::Ends;
use self::journal::{Journal, Reading};
use self::writer::Writer;
use crate::cannot::Cannot;

pub(crate) use self::file::check_version;
pub(crate) use self::lock::DirLock;
pub(crate) use self::ranges::RangeRecord;

/// The version of this leasehold.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The result of one transaction.
#[derive(Debug)]
pub(crate) struct Persisted {
    /// The transaction.
    pub(crate) op: OpId,
    /// Either all of it is durable or none, as far as the device can tell. The end of a binding at least outlives this daemon.
    pub(crate) result: Result<(), StoreCause>,
}

/// Why the store cannot be opened.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StoreError {
    /// The state directory cannot be made, locked or used.
    #[error(transparent)]
    Cannot(#[from] Cannot),
    /// A later version of leasehold wrote the file.
    #[error("{} is from {by} and has {of} {found}; leasehold {} knows {known} at most: run the newer one, or move the file away", .path.display(), VERSION)]
    NewerFormat {
        /// The file.
        path: PathBuf,
        /// The version that wrote it, as far as the file says so.
        by: String,
        /// Which of the two formats is newer.
        of: FormatOf,
        /// Its format.
        found: u64,
        /// The latest known here.
        known: u64,
    },
    /// The file cannot be opened, although it is not damaged: no permission, no room, a device error.
    #[error("cannot open {}", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: Box<redb::Error>,
    },
}

/// A format of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FormatOf {
    /// Ours, of the records.
    Leasehold,
    /// The database's.
    Redb,
}

impl fmt::Display for FormatOf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Leasehold => "format",
            Self::Redb => "redb's format",
        })
    }
}

/// A job for the writer.
enum Job {
    /// A transaction.
    Write { op: OpId, changes: Vec<Change> },
    /// Events.
    Read(Reading),
    /// Stop, after all earlier writes.
    Close,
}

/// What the store held when it was opened.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Stored {
    /// The bindings.
    pub(crate) records: Vec<(BindingId, Record)>,
    /// What front doors keep.
    pub(crate) doors: Vec<DoorRecord>,
    /// What an earlier daemon gave from local ranges.
    pub(crate) ranges: Vec<RangeRecord>,
}

impl Stored {
    /// Returns the part of this that the copy holds.
    fn copied(&self) -> Vec<Change> {
        let leases = self
            .records
            .iter()
            .map(|(id, record)| Change::Put(*id, Box::new(record.clone())));
        let doors = self
            .doors
            .iter()
            .map(|record| Change::PutDoor(Box::new(record.clone())));
        leases
            .chain(doors)
            .filter_map(|change| change.copied())
            .collect()
    }
}

/// The open store.
pub(crate) struct Store {
    jobs: mpsc::Sender<Job>,
    commits: CommitCounts,
    journal: Journal,
    writer: JoinHandle<()>,
    pub(crate) path: PathBuf,
    /// The store's name, which no other has.
    pub(crate) id: u64,
    /// Whether every record was returned when the file was opened: it was there, and all that was in it could be read.
    pub(crate) is_whole: bool,
}

impl Store {
    /// Opens the store in `dir`, which is locked, and reads everything that it holds.
    ///
    /// A damaged file is set aside and another begun, with what was copied of it beside `socket`, as where there is none; a record
    /// that does not parse stays in the file but is not returned. The results of transactions go to `reports`. While the file cannot
    /// be written, what ends a binding is kept beside `socket`.
    pub(crate) fn open(
        dir: &Path,
        socket: &Path,
        reports: UnboundedSender<Persisted>,
    ) -> Result<(Self, Stored), StoreError> {
        let (file, mut stored) = file::LeaseFile::open(dir, socket)?;
        let ends = Ends::open(socket, file.id, &mut stored);
        let copied = stored.copied();
        let (jobs, queue) = mpsc::channel();
        let (last_event, last) = watch::channel(file.last_event);
        let journal = Journal::new(jobs.clone(), last);
        let id = file.id;
        let is_whole = file.is_whole;
        let path = file.path.clone();
        let commits = CommitCounts::default();
        let mut writer = Writer {
            file,
            ends,
            reports,
            last_event,
            commits: commits.clone(),
            tried: None,
        };
        let writer = thread::Builder::new()
            .name("store".to_owned())
            .spawn(move || {
                writer.file.copy.begin(id, copied);
                writer.run(&queue);
            });
        let writer = writer.map_err(Cannot::with("start a thread for", dir))?;
        Ok((
            Self {
                jobs,
                commits,
                journal,
                writer,
                path,
                id,
                is_whole,
            },
            stored,
        ))
    }

    /// Queues a transaction. Transactions happen in the order of these calls; each is answered by one [`Persisted`].
    pub(crate) fn persist(&self, op: OpId, changes: Vec<Change>) {
        self.jobs
            .send(Job::Write { op, changes })
            .expect("the writer ends only when it is told to");
    }

    /// Returns what ends records of local ranges, which no daemon writes any more. A record that cannot be removed is there again at
    /// the next start.
    pub(crate) fn range_ends(&self) -> impl Fn(Vec<Attachment>) + Send + 'static + use<> {
        let jobs = self.jobs.clone();
        move |of| {
            let end = |of: Attachment| {
                Change::RemoveDoor(DoorKey {
                    table: ranges::TABLE.to_owned(),
                    name: of.to_string(),
                })
            };
            let changes = of.into_iter().map(end).collect();
            // The store may be closed already. Nobody waits for this number.
            let op = OpId(u64::MAX);
            let _ = jobs.send(Job::Write { op, changes });
        }
    }

    pub(crate) fn commits(&self) -> Commits {
        self.commits.read()
    }

    pub(crate) fn journal(&self) -> Journal {
        self.journal.clone()
    }

    /// Waits until everything queued is on disk, and closes the file cleanly.
    pub(crate) fn close(self) {
        self.jobs
            .send(Job::Close)
            .expect("the writer ends only when it is told to");
        self.writer
            .join()
            .expect("the writer catches the panics of the database");
    }
}

#[cfg(test)]
mod tests;
