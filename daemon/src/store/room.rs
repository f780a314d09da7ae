//! Room that is kept on the disk beside the file: even a transaction that only removes something needs some.

use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// How much is kept: enough to drop half of the events, and to make the file shorter.
const SIZE: usize = 256 << 10;

/// A file that only takes room.
pub(super) struct Room(PathBuf);

impl Room {
    pub(super) fn beside(path: &Path) -> Self {
        Self(path.with_extension("room"))
    }

    /// Takes the room, as much of it as there is.
    pub(super) fn keep(&self) {
        if let Err(error) = self.take() {
            tracing::debug!(file = %self.0.display(), %error, "no room is kept to drop events in");
        }
    }

    /// Gives the room to whoever needs it.
    pub(super) fn give(&self) {
        match fs::remove_file(&self.0) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                tracing::debug!(file = %self.0.display(), %error, "the room to drop events in is not free");
            }
            Ok(()) | Err(_) => {}
        }
    }

    fn take(&self) -> io::Result<()> {
        if fs::metadata(&self.0).is_ok_and(|found| found.len() == SIZE as u64) {
            return Ok(());
        }
        // Some file systems allocate only what is written.
        let mut file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&self.0)?;
        file.write_all(&vec![0; SIZE])?;
        file.sync_all()
    }
}
