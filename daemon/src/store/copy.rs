//! A copy, beside the socket, of what would be lost for good with the store: Docker's leases, pools, networks and endpoints.
//!
//! A runtime's cache names CNI's containers, but Docker says each thing only once. So each of its records has a file of its own,
//! which is read where the store is missing or was set aside. The copy lags a moment behind the store, and nothing waits for it.
//! Like the store, it may come from an earlier boot: each lease says from which.

use std::collections::BTreeSet;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use leasehold_api::spool;
use leasehold_core::record::{Change, DoorKey};
use serde::{Deserialize, Serialize};
use tracing::{error, warn};

use super::ends;
use crate::{beside, small_file};

/// The copy.
pub(super) struct Copied {
    directory: PathBuf,
    /// The name of the copied store.
    store: u64,
    /// Changes that the store has made and the copy has not.
    due: Vec<Change>,
    /// Whether a change could not be made, and a warning has said so.
    fails: bool,
}

/// A file.
#[derive(Serialize, Deserialize)]
struct Entry {
    /// The name of the store.
    store: u64,
    /// The change that puts the record into a store.
    change: Change,
}

impl Copied {
    /// Returns the copy beside a socket.
    pub(super) fn beside(socket: &Path) -> Self {
        Self {
            directory: spool::copy(socket),
            store: 0,
            due: Vec::new(),
            fails: false,
        }
    }

    /// Returns the name of the lost store, and the changes that put its records into another; `None` if there is no copy.
    pub(super) fn read(&self) -> Option<(u64, Vec<Change>)> {
        let parent = beside::directory(&self.directory);
        let is_trusted = [parent, &self.directory]
            .into_iter()
            .all(beside::is_trusted);
        if !is_trusted && self.directory.exists() {
            error!(copy = %self.directory.display(), "the copy of the previous store is not believed: {}", beside::REMEDY);
            return None;
        }
        let mut entries = Vec::new();
        // A file that is being written has a name that begins with a dot.
        let is_whole = |path: &PathBuf| {
            let name = path.file_name().unwrap_or_default();
            !name.as_bytes().starts_with(b".")
        };
        for path in self.files().filter(is_whole) {
            match ends::read::<Entry>(&path) {
                Ok(entry) => entries.push(entry),
                Err(error) => {
                    error!(file = %path.display(), %error, "cannot read a record that was copied from the lost store: it is lost")
                }
            }
        }
        let store = entries.first()?.store;
        warn!(copy = %self.directory.display(), records = entries.len(), "the store is new: restoring what was copied of the previous one");
        Some((
            store,
            entries
                .into_iter()
                .filter(|of| of.store == store)
                .map(|of| of.change)
                .collect(),
        ))
    }

    /// Makes the copy hold what a store holds, and nothing else.
    pub(super) fn begin(&mut self, store: u64, copied: Vec<Change>) {
        self.store = store;
        let kept: BTreeSet<_> = copied
            .iter()
            .filter_map(|change| self.path(change))
            .collect();
        self.owe(copied);
        self.follow();
        let others: Vec<_> = self.files().filter(|path| !kept.contains(path)).collect();
        others
            .iter()
            .for_each(|path| self.warn_once(path, small_file::remove(path)));
    }

    /// Adds changes that the store has made to those that are due.
    pub(super) fn owe(&mut self, copied: impl IntoIterator<Item = Change>) {
        self.due.extend(copied);
    }

    /// Makes the changes that are due.
    pub(super) fn follow(&mut self) {
        for change in std::mem::take(&mut self.due) {
            let Some(path) = self.path(&change) else {
                continue;
            };
            let made = match change {
                Change::Remove(_) | Change::RemoveDoor(_) => small_file::remove(&path),
                change => self.write(
                    &path,
                    &Entry {
                        store: self.store,
                        change,
                    },
                ),
            };
            self.warn_once(&path, made);
        }
    }

    fn warn_once(&mut self, path: &Path, made: io::Result<()>) {
        if let Err(error) = made
            && !std::mem::replace(&mut self.fails, true)
        {
            warn!(file = %path.display(), %error, "cannot copy the store: Docker's records would be lost with it");
        }
    }

    /// Writes a file, which is there whole or not at all. It need not survive a reboot.
    fn write(&self, path: &Path, entry: &Entry) -> io::Result<()> {
        small_file::make_directories(&self.directory, 0o700)?;
        let bytes = serde_json::to_vec(entry)?;
        small_file::write(path, 0o600, &bytes, false)
    }

    /// Returns the file of the record that a change is about.
    fn path(&self, change: &Change) -> Option<PathBuf> {
        let of_door = |DoorKey { table, name }: &DoorKey| {
            let mut hasher = DefaultHasher::new();
            name.hash(&mut hasher);
            // A pool's name is a path, and may be too long for a file name.
            format!("{table}-{:016x}", hasher.finish())
        };
        let name = match change {
            Change::Put(id, _) | Change::Remove(id) => format!("lease-{}", id.0),
            Change::PutDoor(record) => of_door(&record.key),
            Change::RemoveDoor(key) => of_door(key),
            Change::Note(_) => return None,
        };
        Some(self.directory.join(name))
    }

    fn files(&self) -> impl Iterator<Item = PathBuf> + use<> {
        let entries = fs::read_dir(&self.directory).into_iter().flatten();
        entries.filter_map(|entry| Some(entry.ok()?.path()))
    }
}
