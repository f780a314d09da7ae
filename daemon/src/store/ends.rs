//! The ends of bindings while the file cannot be written: they are kept beside the socket.
//!
//! A DEL does not fail on a full disk: its container would stay, and with it whatever fills the disk. An entry names the store,
//! the binding and its lease's start, so that it cannot end a later ADD, and is removed once the file has recorded the end. It lies in a directory
//! that a reboot empties (`/run`), which does no harm: before a lease from an earlier boot is given back, the LAN is asked
//! whether its address is in use.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use leasehold_api::spool;
use leasehold_core::event::Event;
use leasehold_core::record::{BindingId, Change, Record};
use leasehold_core::time::Instant;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tracing::{debug, warn};

use super::Stored;
use crate::{beside, small_file};

/// More than any entry, and any record of a copy.
const MOST: usize = 16 << 20;

/// The ends that the file still has to record.
pub(super) struct Ends {
    socket: PathBuf,
    store: u64,
    waiting: BTreeMap<BindingId, Entry>,
}

/// One of them.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Entry {
    /// What the file should hold about the binding.
    record: Option<Box<Record>>,
    /// The events that come with that.
    events: Vec<Event>,
    /// The start of the lease that the file holds for the binding; `None` if that could not be read. The binding's number may be
    /// used again.
    #[serde(default)]
    start: Option<Instant>,
}

impl Ends {
    /// Returns the ends kept beside `socket` for a store, and applies them to `stored` as if the store had recorded them.
    pub(super) fn open(socket: &Path, store: u64, stored: &mut Stored) -> Self {
        let mut ends = Self {
            socket: socket.to_owned(),
            store,
            waiting: BTreeMap::new(),
        };
        let found = ends.found();
        if !found.is_empty() && !beside::is_trusted(beside::directory(socket)) {
            warn!(socket = %socket.display(), files = found.len(), "ends of leases beside the socket are not believed: {}", beside::REMEDY);
            return ends;
        }
        for binding in found {
            let path = ends.path(binding);
            let Some(at) = stored.records.iter().position(|(id, _)| *id == binding) else {
                // Recorded by a daemon that was killed before it removed the entry.
                remove(&path);
                continue;
            };
            match read::<Entry>(&path) {
                // That lease's end was recorded, and another has its number.
                Ok(Entry {
                    start: Some(start), ..
                }) if start != stored.records[at].1.lease.start => remove(&path),
                Ok(entry) => {
                    match &entry.record {
                        Some(record) => stored.records[at].1 = (**record).clone(),
                        None => drop(stored.records.remove(at)),
                    }
                    ends.waiting.insert(binding, entry);
                }
                Err(error) => {
                    warn!(file = %path.display(), %error, "cannot read the end of a lease: the lease is held again")
                }
            }
        }
        ends
    }

    /// Returns whether the file has recorded every end.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Keeps a transaction that ends a binding, for which the file holds a lease that began at `start`.
    pub(super) fn keep(
        &mut self,
        binding: BindingId,
        changes: Vec<Change>,
        start: Option<Instant>,
    ) -> io::Result<()> {
        // The next daemon would not believe it.
        if !beside::is_trusted(beside::directory(&self.socket)) {
            return Err(io::Error::other(beside::REMEDY));
        }
        let mut entry = self.waiting.get(&binding).cloned().unwrap_or_default();
        entry.start = entry.start.or(start);
        for change in changes {
            match change {
                Change::Put(_, record) => entry.record = Some(record),
                Change::Remove(_) => entry.record = None,
                Change::Note(event) => entry.events.push(*event),
                Change::PutDoor(_) | Change::RemoveDoor(_) => {}
            }
        }
        let path = self.path(binding);
        write(&path, &entry)?;
        warn!(binding = binding.0, file = %path.display(), "store not written: this end is kept beside the socket");
        self.waiting.insert(binding, entry);
        Ok(())
    }

    /// Returns what the file still has to record.
    pub(super) fn changes(&self) -> impl Iterator<Item = Change> {
        self.waiting.iter().flat_map(|(binding, entry)| {
            let own = match &entry.record {
                Some(record) => Change::Put(*binding, record.clone()),
                None => Change::Remove(*binding),
            };
            let notes = entry
                .events
                .iter()
                .map(|event| Change::Note(Box::new(event.clone())));
            std::iter::once(own).chain(notes)
        })
    }

    /// Forgets all ends, which the file has recorded.
    pub(super) fn recorded(&mut self) {
        for (binding, _) in std::mem::take(&mut self.waiting) {
            remove(&self.path(binding));
        }
    }

    fn path(&self, binding: BindingId) -> PathBuf {
        spool::end(&self.socket, self.store, binding.0)
    }

    fn found(&self) -> Vec<BindingId> {
        let names = fs::read_dir(beside::directory(&self.socket))
            .into_iter()
            .flatten()
            .filter_map(|entry| Some(entry.ok()?.file_name()));
        names
            .filter_map(|name| spool::ended(&self.socket, self.store, &name))
            .map(BindingId)
            .collect()
    }
}

/// Reads a file's JSON.
pub(super) fn read<T: DeserializeOwned>(path: &Path) -> io::Result<T> {
    Ok(serde_json::from_slice(&small_file::read(path, MOST)?)?)
}

/// Writes an entry, and its name in the directory.
fn write(path: &Path, entry: &Entry) -> io::Result<()> {
    small_file::write(path, 0o600, &serde_json::to_vec(entry)?, true)?;
    File::open(beside::directory(path)).and_then(|directory| directory.sync_all())
}

/// Removes a file that may not be there.
fn remove(path: &Path) {
    match small_file::remove(path) {
        Err(error) => {
            warn!(file = %path.display(), %error, "cannot remove an entry that the store has recorded");
        }
        Ok(()) => debug!(file = %path.display(), "removed"),
    }
}
