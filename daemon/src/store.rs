//! The store: every lease on disk before anyone hears of it.
//!
//! One redb file in the state directory, written by one thread. The thread takes all transactions that wait and makes
//! them durable in one commit (group commit): under load the cost of a flush is shared, and alone a record waits for
//! nobody. It holds no lease state and decides nothing.

mod file;
mod lock;
mod writer;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};

use leasehold_core::effect::{OpId, StoreCause};
use leasehold_core::record::{BindingId, Change, Record};
use tokio::sync::mpsc::UnboundedSender;

use crate::owner::Owner;

/// The end of one transaction.
#[derive(Debug)]
pub(crate) struct Persisted {
    /// The transaction.
    pub(crate) op: OpId,
    /// All of it is durable; or none is, as far as the device can tell.
    pub(crate) result: Result<(), StoreCause>,
}

/// Why the store cannot be opened.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StoreError {
    /// The state directory cannot be made or used.
    #[error("cannot {doing} {}", .path.display())]
    Directory {
        /// What was tried: `create`, `lock`.
        doing: &'static str,
        /// The directory or the file in it.
        path: PathBuf,
        /// The kernel's reason.
        source: io::Error,
    },
    /// Another daemon works on the state directory.
    #[error("state directory {} is in use by {owner}: stop it, or choose another with --state-dir", .dir.display())]
    Held {
        /// The directory.
        dir: PathBuf,
        /// Who holds it.
        owner: Owner,
    },
    /// The file was written by a later leasehold.
    #[error("{} has format {found}, this leasehold knows {known} at most: run the newer one, or move the file away", .path.display())]
    NewerFormat {
        /// The file.
        path: PathBuf,
        /// Its format.
        found: u64,
        /// The latest known here.
        known: u64,
    },
    /// The file cannot be opened, though it is not damaged: no permission, no room, a device error.
    #[error("cannot open {}", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: Box<redb::Error>,
    },
}

/// One transaction on its way to the disk.
struct Job {
    op: OpId,
    changes: Vec<Change>,
}

/// The open store.
pub(crate) struct Store {
    jobs: mpsc::Sender<Job>,
    writer: JoinHandle<()>,
    _lock: lock::DirLock,
}

impl Store {
    /// Opens the store in `dir`, which is made (0700) if it is missing, and reads all that it holds.
    ///
    /// A damaged file is set aside and an empty one begun; a record that does not parse is kept in the file, but not
    /// returned. The ends of transactions go to `events`.
    pub(crate) fn open(
        dir: &Path,
        events: UnboundedSender<Persisted>,
    ) -> Result<(Self, Vec<(BindingId, Record)>), StoreError> {
        let lock = lock::DirLock::take(dir)?;
        let (file, records) = file::LeaseFile::open(dir)?;
        let (jobs, queue) = mpsc::channel();
        let writer = thread::Builder::new().name("store".to_owned()).spawn(move || writer::run(file, queue, events));
        let writer = writer.map_err(|source| StoreError::Directory {
            doing: "start a thread for",
            path: dir.to_owned(),
            source,
        })?;
        Ok((Self { jobs, writer, _lock: lock }, records))
    }

    /// Queues a transaction. Transactions happen in the order of these calls; each is answered by one [`Persisted`].
    pub(crate) fn persist(&self, op: OpId, changes: Vec<Change>) {
        self.jobs.send(Job { op, changes }).expect("the writer ends only when its queue is closed");
    }

    /// Waits until everything queued is on disk, and closes the file cleanly.
    pub(crate) fn close(self) {
        drop(self.jobs);
        self.writer.join().expect("the writer catches the panics of the database");
    }
}

#[cfg(test)]
mod tests;
